"""Protocols in TOML with Jinja2 templates; `aspects.toml` says what each key means."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import cycle
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pytest_imgedit.core import environments, results
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import SCALE, Form, Grammar
from pytest_imgedit.core.requests import Preparation
from pytest_imgedit.protocols import templates
from pytest_imgedit.protocols.prompts import Prompts
from pytest_imgedit.protocols.protocol import (
    PERCENT,
    Call,
    Parts,
    Protocol,
    Replies,
    Row,
    grades_of,
    mean_row,
    percent_of,
)

#: Images that a template may place.
_IMAGES = ("source", "edited", "first", "second", "reference")
#: The most calls of a protocol, names of one reply or further values, and categories.
MAX_CALLS = 20
MAX_NAMES = 100
MAX_CATEGORIES = 200
Formula = Annotated[str, Field(max_length=10_000)]
#: The name of a call or a number, short enough for a message.
Name = Annotated[str, Field(max_length=100)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Criteria(_Table):
    """The title of a category in the prompt, and its criteria of realism."""

    title: str
    criteria: tuple[str, ...] = Field(min_length=1)


class ReplyTable(_Table):
    """`[calls.reply]`: a grammar, and what a reply calls the names, in all or by category."""

    form: Form
    names: tuple[Name, ...] = Field(min_length=1, max_length=MAX_NAMES)
    scale: tuple[float, float] = SCALE
    whole: bool = False
    labels: tuple[str, ...] | dict[str, tuple[str, ...]] = ()
    compat: str = ""

    @property
    def is_choice(self) -> bool:
        """Whether the reply chooses between two edits."""
        return self.form in ("choice", "choice-or-tie")

    def grammar(self, category: str) -> Grammar:
        """Return the grammar for pairs of a category; raises `UsageError` as `check` says."""
        labels = self.labels
        if isinstance(labels, dict):
            labels = labels.get(category, ())
        return Grammar(
            self.form,
            self.names,
            self.scale,
            whole=self.whole,
            labels=labels,
            compat=self.compat,
        )

    def check(self) -> None:
        """Raise `UsageError` for labels, of any category, that do not fit the names, and for an
        unknown rule.
        """
        categories = self.labels if isinstance(self.labels, dict) else [""]
        for category in categories:
            self.grammar(category)  # made for its errors alone


class CallTable(_Table):
    """`[[calls]]`: the templates of a question, and the grammar of its reply.

    `prompt` names texts of the benchmark's files, joined by line ends; `by_category` takes the one
    with the name of the category. `fill` puts the instruction in place of a mark in them.
    """

    name: Name
    system: str = ""
    user: str
    reminder: str = ""
    prompt: tuple[str, ...] | Literal["by_category"] = ()
    fill: str = ""
    max_new_tokens: int = Field(default=0, ge=0)
    reply: ReplyTable


class ImagesTable(_Table):
    """`[images]`: see `core.requests.Preparation`."""

    codec: Literal["", "png", "jpeg"] = ""
    quality: int = Field(default=75, ge=1, le=100)
    max_side: int | None = Field(default=None, ge=16)
    at_source_size: bool = False
    detail: Literal["", "low", "high"] = ""


class ScoreTable(_Table):
    """`[score]`: a formula over the names of all replies and `mean`, that of their numbers, and
    further values of an item, on the same scale.
    """

    item: Formula
    compat: Formula = ""
    scale: tuple[float, float] = SCALE
    values: dict[str, Formula] = Field(default_factory=dict, max_length=MAX_NAMES)


class RowTable(_Table):
    """`[[rows]]`: a row of the tables, and one for each tag in `by`.

    It is the mean over all `values` (names of an item's values) at once, of `items` alike or of
    `groups` (categories) alike. `scale` is theirs, by default that of the score; with `percent` the
    row is in percent of it.
    """

    name: Name = "score"
    values: tuple[str, ...] = ("score",)
    mean: Literal["groups", "items"] = "groups"
    by: tuple[str, ...] = ()
    scale: tuple[float, float] | None = None
    percent: bool = False

    def rows(self, items: Sequence[results.Item], score_scale: tuple[float, float]) -> list[Row]:
        """Return the row over all items, and that over the items of each tag in `by`."""
        scale = self.scale or score_scale
        change: Callable[[float], float] = float
        if self.percent:
            change = percent_of(scale)
            scale = PERCENT
        group = _category if self.mean == "groups" else None
        rows = []
        for tag in ("", *self.by):
            name = self.name
            members = items
            if tag:
                name = f"{name}, {tag}" if name else tag
                members = [item for item in items if tag in item.tags]
            rows.append(mean_row(name, members, self.values, scale, change, group=group))
        return rows


class PromptsTable(_Table):
    """`[prompts]`: names of the benchmark's file, and the SHA-256 of each text of it."""

    files: tuple[str, ...] = ()
    pins: dict[str, str] = Field(default_factory=dict)


class Definition(_Table):
    """A whole protocol."""

    prompts: PromptsTable = PromptsTable()
    images: ImagesTable = ImagesTable()
    calls: tuple[CallTable, ...] = Field(min_length=1, max_length=MAX_CALLS)
    score: ScoreTable
    rows: tuple[RowTable, ...] = (RowTable(),)
    unreadable: Literal["drop"] | float = "drop"
    categories: dict[str, Criteria] = Field(default_factory=dict, max_length=MAX_CATEGORIES)
    published: tuple[results.PublishedRow, ...] = ()


class TomlProtocol(Protocol):
    """A protocol that a `Definition` describes."""

    def __init__(
        self, name: str, definition: Definition, variant: results.Variant, prompts: Prompts
    ) -> None:
        super().__init__(variant, prompts)
        self.name = name  # type: ignore[misc]
        self.definition = definition
        self.scale = definition.score.scale

    @cached_property
    def sha256(self) -> str:
        """Hash of what decides values: the variant, the definition, and the benchmark's prompts."""
        return environments.key(
            {
                "variant": self.variant,
                "definition": self.definition.model_dump(exclude={"published"}),
                "prompts": dict(self.prompts.digests),
            }
        )

    @property
    def measures(self) -> Mapping[str, results.Measure]:
        """The numbers of the replies, and the further values, which are the main ones if there are
        some.
        """
        further = self.definition.score.values
        measures: dict[str, results.Measure] = {}
        for call in self.definition.calls:
            graded = results.Measure(scale=call.reply.scale, is_main=not further)
            measures.update(dict.fromkeys(call.reply.names, graded))
        computed = results.Measure(scale=self.scale, is_main=True)
        measures.update(dict.fromkeys(further, computed))
        return measures

    @property
    def published(self) -> tuple[results.PublishedRow, ...]:
        return self.definition.published

    def calls(self, pair: EditPair) -> Sequence[Call]:
        return [self._call(table, pair) for table in self.definition.calls]

    def _call(self, table: CallTable, pair: EditPair) -> Call:
        """Return a question about an edit of a pair; raises what its templates raise."""
        values = self._values(pair)
        values["aspects"] = table.reply.names
        if table.prompt:
            values["prompt"] = self._prompt(table, pair)
        return Call(
            name=table.name,
            parts=_parts(table.user, values, pair),
            grammar=table.reply.grammar(pair.category),
            system=templates.render(table.system.strip(), values),
            preparation=Preparation(**self.definition.images.model_dump()),
            max_new_tokens=table.max_new_tokens,
        )

    def _prompt(self, table: CallTable, pair: EditPair) -> str:
        """Return the texts of the benchmark's files that `table.prompt` names, with the instruction
        in place of `table.fill`.
        """
        names = table.prompt
        if names == "by_category":
            names = (pair.own_category or pair.category,)
        text = "\n".join(self.prompts[name] for name in names)
        return text.replace(table.fill, pair.instruction) if table.fill else text

    def _values(self, pair: EditPair) -> dict[str, Any]:
        """Return what templates see of a pair: its texts, and the criteria of its category, if the
        protocol has some.
        """
        values: dict[str, Any] = {
            "instruction": _without_marks(pair.instruction),
            "description": _without_marks(pair.description),
            "reference_text": _without_marks(pair.reference_text),
            "category": pair.category,
            "sources": [_mark(name) for name in pair.source_names],
            "edited_source": pair.edited_source,
        }
        categories = self.definition.categories
        criteria = categories.get(pair.category) or categories.get("default")
        if criteria:
            values |= {"title": criteria.title, "criteria": criteria.criteria}
        return values

    def remind(self, call: Call, problem: str) -> str:
        table = next(table for table in self.definition.calls if table.name == call.name)
        if not table.reminder:
            return super().remind(call, problem)
        values = {"problem": problem, "aspects": table.reply.names}
        return templates.render(table.reminder, values).strip()

    def item(self, pair: EditPair, replies: Replies) -> Mapping[str, float]:
        """Return the numbers of the replies, and what the formulas make of them.

        A number that could not be read is that of `unreadable`. If that is `drop`, an edit that
        lacks a reply, or a number that a formula needs, has no values.
        """
        numbers: dict[str, float] = {}
        unreadable = self.definition.unreadable
        names = [name for table in self.definition.calls for name in table.reply.names]
        if isinstance(unreadable, float):
            numbers = dict.fromkeys(names, unreadable)
        elif len(replies) < len(self.definition.calls):
            return {}
        numbers |= grades_of(replies)
        unread = set(names) - numbers.keys()
        if self._needed & unread:
            return {}
        known = {"mean": sum(numbers.values()) / len(numbers), **numbers}
        values = {name: numbers[name] for name in names if name in numbers}
        for name, formula in self._formulas.items():
            values[name] = templates.evaluate(formula, known)
        return values

    @property
    def _formulas(self) -> Mapping[str, str]:
        return {**self.definition.score.values, "score": self._score_formula}

    @cached_property
    def _needed(self) -> set[str]:
        """The names in the formulas."""
        return templates.names_in(list(self._formulas.values()))

    @property
    def _score_formula(self) -> str:
        score = self.definition.score
        return score.compat if score.compat and self.variant == "compat" else score.item

    def tables(self, items: Sequence[results.Item]) -> Sequence[Row]:
        return [row for table in self.definition.rows for row in table.rows(items, self.scale)]


def _without_marks(text: str) -> str:
    """Return a text that places no image, as `_parts` divides it."""
    return text.replace("\x00", "")


def _mark(name: str) -> str:
    """Return what stands for an image in a rendered template."""
    return f"\x00{name}\x00"


def _parts(template: str, values: Mapping[str, Any], pair: EditPair) -> Parts:
    """Render the template of a user's turn, and divide it at the images that it places."""
    marks = {name: _mark(name) for name in _IMAGES}
    if pair.reference is None:
        marks["reference"] = ""
    user = templates.render(template.strip(), {**marks, **values})
    kinds = cycle(("text", "image"))  # what re.split returns in turn
    parts = zip(kinds, re.split("\x00([a-z0-9-]+)\x00", user), strict=False)
    return tuple((kind, text) for kind, text in parts if text.strip())


def _category(item: results.Item) -> str:
    return item.category
