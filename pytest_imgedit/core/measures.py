"""Measures, the numbers that items end with, and the groups of items over which they are averaged.

A gate names its field as `[MEASURE@]GROUP`; without a measure it is the score. A group is
`overall`, a category, `difficulty=NAME` or `tag=NAME`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from pytest_imgedit.core.pairs import category_slug, in_order
from pytest_imgedit.core.results import Measure

T = TypeVar("T")

SCORE = "score"
OVERALL = "overall"
#: The score, which every run has.
SCORE_ONLY: Mapping[str, Measure] = {SCORE: Measure(scale=(0.0, 10.0))}
#: The share of duels, which every run with duels has.
WIN = Measure(scale=(0.0, 1.0))
WINS_ONLY: Mapping[str, Measure] = {SCORE: WIN}


def further_score(judge: str) -> str:
    """Return the name of the measure that is the score of a further judge."""
    return f"{judge}.{SCORE}"


class Grouped(Protocol):
    """What belongs to groups: a pair, or an item of a run or a baseline."""

    @property
    def category(self) -> str: ...
    @property
    def difficulty(self) -> str: ...
    @property
    def tags(self) -> tuple[str, ...]: ...


class Field(NamedTuple):
    """The mean of a measure over a group of pairs."""

    measure: str
    group: str

    @classmethod
    def parse(cls, text: str) -> Field:
        """Return the field that `[MEASURE@]GROUP` names; a category may be named by an alias."""
        measure, at, group = text.partition("@")
        if not at or "=" in measure:  # the @ may belong to the name of a tag
            measure = SCORE
            group = text
        kind, equals, name = group.partition("=")
        if equals:
            return cls(measure.strip(), f"{kind.strip()}={name.strip()}")
        return cls(measure.strip(), OVERALL if group == OVERALL else category_slug(group))

    def __str__(self) -> str:
        return self.group if self.measure == SCORE else f"{self.measure}@{self.group}"


class Measured(Grouped, Protocol):
    """An item of a run or a baseline."""

    @property
    def cluster(self) -> str: ...
    @property
    def score(self) -> float | None: ...
    @property
    def missing(self) -> tuple[str, ...]: ...
    def value(self, measure: str) -> float | None:
        """Return the value of a measure, if it has one."""


def groups_of(item: Grouped) -> tuple[str, ...]:
    """Return the groups that an item belongs to, each once."""
    groups = [OVERALL, item.category]
    if item.difficulty:
        groups.append(f"difficulty={item.difficulty}")
    for tag in dict.fromkeys(item.tags):
        groups.append(f"tag={tag}")
    return tuple(groups)


def count_groups(items: Iterable[Grouped]) -> Counter[str]:
    """Return the number of items in each group."""
    return Counter(group for item in items for group in groups_of(item))


def by_group(members: Iterable[T], groups: Callable[[T], Iterable[str]]) -> dict[str, list[T]]:
    """Return the members of each group, in their order; `groups` lists those of one, each once."""
    by_name: dict[str, list[T]] = {}
    for member in members:
        for group in groups(member):
            by_name.setdefault(group, []).append(member)
    return by_name


def groups_in(items: Iterable[Grouped]) -> list[str]:
    """Return the groups of all items: `overall`, the categories as `in_order` puts them, and the
    difficulties and tags in alphabetical order.
    """
    items = list(items)
    categories = in_order(item.category for item in items)
    further = {group for item in items for group in groups_of(item) if "=" in group}
    return [OVERALL] + categories + sorted(further)
