"""A protocol: which calls judge an edit, what their replies make of it, and the tables of a run."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import ClassVar

from pytest_imgedit.core import environments, errors, results
from pytest_imgedit.core.files import digest
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import SCALE, Grammar
from pytest_imgedit.core.requests import EDITS, Preparation
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import one_line, shorten
from pytest_imgedit.protocols.prompts import Prompts

PERCENT = (0.0, 100.0)
#: A user's turn in order: texts as `("text", words)`, images as `("image", name)`.
Parts = tuple[tuple[str, str], ...]
#: Replies of an item by the names of their calls: the numbers that were read, by name.
Replies = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Call:
    """One question to a judge: what it is shown, and the grammar of its reply, which may be at
    least `max_new_tokens` long.

    Calls that are equal but for their name differ by `attempt`, from 1 on: each gets a reply of its
    own, also from the store.

    Images are `source`, `edited`, `reference`, and `source-2` and so on for further sources. A call
    about two edits shows `first` and `second` in place of `edited`.
    """

    name: str
    parts: Parts
    grammar: Grammar
    system: str = ""
    preparation: Preparation = field(default_factory=Preparation)
    max_new_tokens: int = 0
    attempt: int = 1

    @property
    def images(self) -> tuple[str, ...]:
        """The names of the images that it shows."""
        return tuple(text for kind, text in self.parts if kind == "image")

    @property
    def recipe(self) -> JsonObject:
        """What decides a reply, beside the images: their preparation, the texts, and its length."""
        recipe: JsonObject = {
            "system": self.system,
            "parts": [list(part) for part in self.parts],
            "preparation": self.preparation.recipe,
            "max_new_tokens": self.max_new_tokens,
        }
        if self.attempt > 1:  # the first attempt is what other protocols ask, with their keys
            recipe["attempt"] = self.attempt
        return recipe


@dataclass(frozen=True)
class Row:
    """One row of a protocol's tables: the mean over the groups of the means of their values.

    `values` are numbers of `scale`, `sources` names the source image behind each, and `groups` the
    group of each; without groups it is the mean of all values. A row that `is_detail` is left to
    the reports and `-v`.
    """

    name: str
    values: Sequence[float]
    sources: Sequence[str]
    groups: Sequence[str] = ()
    scale: tuple[float, float] = SCALE
    decimals: int = 2
    is_detail: bool = False


def mean_row(
    name: str,
    items: Iterable[results.Item],
    measures: Sequence[str],
    scale: tuple[float, float] = SCALE,
    change: Callable[[float], float] = float,
    *,
    group: Callable[[results.Item], str] | None = None,
    decimals: int = 2,
) -> Row:
    """Return the row over every value that items have of some measures; `change` maps each to
    `scale`.

    With `group`, which names the group of an item, it is the mean of the groups' means.
    """
    values: list[float] = []
    sources: list[str] = []
    groups: list[str] = []
    for item, measure in product(items, measures):
        value = item.aspects.get(measure, item.score if measure == "score" else None)
        if value is None:
            continue
        values.append(change(value))
        sources.append(item.cluster)
        if group is not None:
            groups.append(group(item))
    return Row(
        name=name,
        values=values,
        sources=sources,
        groups=groups,
        scale=scale,
        decimals=decimals,
    )


def percent_of(scale: tuple[float, float]) -> Callable[[float], float]:
    """Return the function that maps a number of a scale to percent of it."""
    low, high = scale
    return lambda value: 100 * (value - low) / (high - low)


def grades_of(replies: Replies) -> dict[str, float]:
    """Return the numbers of all replies by name."""
    return {name: grade for reply in replies.values() for name, grade in reply.items()}


class Protocol(ABC):
    """How edits are judged. A class of another package is made as `Class(variant, prompts)`.

    Under the variant `strict` a reply that cannot be read is an error of its pair. Under `compat`
    nothing is asked again, and the protocol does what the authors' script does with such a reply,
    which `replies` of `item` then lack; it never draws a number. `scale` is that of the value
    `score` of an item. `totals` says how the rows of its tables are made, where two ways are in
    use. `total` names the row that is given over the pairs of one source image, too, where a run
    has pairs of several: models that take one image are reported so. `prompt_files` and `pins` name
    the benchmark's own prompts, see `Prompts`.
    """

    name: ClassVar[str]
    totals: ClassVar[str] = ""
    total: ClassVar[str] = "Overall"
    prompt_files: ClassVar[tuple[str, ...]] = ()
    pins: ClassVar[Mapping[str, str]] = {}
    scale: tuple[float, float] = SCALE

    def __init__(self, variant: results.Variant, prompts: Prompts) -> None:
        self.variant = variant
        self.prompts = prompts

    @abstractmethod
    def calls(self, pair: EditPair) -> Sequence[Call]:
        """Return the calls that judge an edit of a pair; raises `UsageError` for a pair that lacks
        what they need.
        """

    @abstractmethod
    def item(self, pair: EditPair, replies: Replies) -> Mapping[str, float]:
        """Return the values of an edit by name, on their own scales; `score` is the main one.

        Without a `score` the item is left out of all means, which only `compat` may do. Raises
        `ReplyError` for numbers that make no value.
        """

    @abstractmethod
    def tables(self, items: Sequence[results.Item]) -> Sequence[Row]:
        """Return the rows that the authors print, over the items that are scored, whose `aspects`
        hold the values, or `dropped`, which have none. Rows without a value are left out.
        """

    @property
    def measures(self) -> Mapping[str, results.Measure]:
        """The values of an item beside its score, which tables and gates are to know."""
        return {}

    @property
    def published(self) -> tuple[results.PublishedRow, ...]:
        """Rows that others have published, to be printed beside those of a run."""
        return ()

    def all_tables(self, items: Sequence[results.Item]) -> Sequence[Row]:
        """Return the rows of `tables` over the judged ones of all items of a run; if some items
        have several source images, the row `total` is followed by itself over those of one.
        """
        judged = [item for item in items if item.is_judged]
        rows = list(self.tables(judged))
        names = [row.name for row in rows]
        of_one_source = [item for item in judged if not item.further]
        has_several = any(item.further for item in items)
        if self.total not in names or not (has_several and of_one_source):
            return rows
        for row in self.tables(of_one_source):
            if row.name == self.total:
                name = f"{row.name}, pairs of one source image"
                rows.insert(names.index(self.total) + 1, replace(row, name=name))
        return rows

    @property
    def attempts(self) -> int:
        """How often each question is asked, at least, in calls that differ by their `attempt`."""
        return 1

    def remind(self, call: Call, problem: str) -> str:
        """Return the text that is put behind a question whose reply could not be read."""
        grammar = call.grammar
        names = ", ".join(grammar.called)
        expected = f"one {grammar.range} for each of: {names}"
        if grammar.is_choice:
            expected = f"{grammar.range} as {names!r}"
        return (
            f"That reply could not be read: {problem}. Answer in the form that was asked for, with "
            f"{expected}."
        )

    @cached_property
    def sha256(self) -> str:
        """Hash of what decides values: the variant, the source of the class, and its prompts."""
        source = digest(Path(inspect.getfile(type(self))))
        return environments.key(
            {"variant": self.variant, "source": source, "prompts": dict(self.prompts.digests)}
        )

    @property
    def label(self) -> str:
        """The name and the variant, such as `gedit@strict`."""
        return f"{self.name}@{self.variant}"

    def check(self, pairs: Iterable[EditPair]) -> None:
        """Raise `UsageError` for the first pair for which the calls cannot be made, or which lacks
        an image that they show.
        """
        for pair in pairs:
            there = {"source", *EDITS}.union(pair.images)
            for call in self.checked_calls(pair):
                missing = [name for name in call.images if name not in there]
                if missing:
                    raise errors.UsageError(
                        f"protocol {self.name}: {pair.row or pair.id}: no image {missing[0]!r}, "
                        f"which its call {call.name!r} shows"
                    )

    def checked_item(self, pair: EditPair, replies: Replies) -> dict[str, float]:
        """Return what `item` does; raises `ReplyError` for anything that it raises, and for values
        that are not finite, or beyond their scale.
        """
        try:
            values = {name: float(value) for name, value in self.item(pair, replies).items()}
        except errors.ReplyError:
            raise
        except Exception as error:  # a class of a user can raise anything
            reason = f"{type(error).__name__}: {one_line(error)}"
            raise errors.ReplyError(f"protocol {self.name}: no values: {reason}") from error
        measures = {**self.measures, "score": results.Measure(scale=self.scale)}
        for name, value in values.items():
            low, high = measures.get(name, results.Measure()).ends
            if not (math.isfinite(value) and low <= value <= high):
                raise errors.ReplyError(
                    f"protocol {self.name}: {name} is {value}, expected {low:g} to {high:g}"
                )
        return values

    @cached_property
    def _calls(self) -> dict[int, tuple[EditPair, Sequence[Call]]]:
        """The rendered calls by the identity of their pairs, each with its pair, which is kept."""
        return {}

    def checked_calls(self, pair: EditPair) -> Sequence[Call]:
        """Return what `calls` does, once for a pair; raises `UsageError` for anything that it
        raises.
        """
        if id(pair) not in self._calls:
            self._calls[id(pair)] = (pair, self._rendered(pair))
        _, calls = self._calls[id(pair)]
        return calls

    def _rendered(self, pair: EditPair) -> Sequence[Call]:
        try:
            return self.calls(pair)
        except errors.UsageError:
            raise
        except Exception as error:  # a template, or a class of a user, can raise anything
            raise errors.UsageError(
                f"protocol {self.name}: it fails on pair {pair.id!r}: "
                f"{shorten(one_line(error), 600)}"
            ) from None

    def sees_change(self, pairs: Iterable[EditPair]) -> bool:
        """Tell whether some call about a pair of every category can tell the edit from the source:
        it shows the edit or two, and also the source, the reference, or what the edit is to be.
        """
        pair_of_category = {pair.category: pair for pair in pairs}
        for pair in pair_of_category.values():
            if not any(_sees_change(call, pair) for call in self.calls(pair)):
                return False
        return True


def _sees_change(call: Call, pair: EditPair) -> bool:
    """Tell whether a call can tell the edit of a pair from its source, as `sees_change` says."""
    if not set(EDITS) & set(call.images):
        return False
    if "source" in call.images or "reference" in call.images:
        return True
    words = " ".join(text for kind, text in call.parts if kind == "text")
    targets = (pair.instruction, pair.reference_text)
    return any(text in words for text in targets if text)
