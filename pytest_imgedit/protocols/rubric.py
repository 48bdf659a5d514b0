"""Rubric sets: TOML with Jinja2 templates, loaded, checked, rendered and hashed."""

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, cached_property, partial
from importlib.resources import files
from itertools import cycle, product
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_imgedit.config.toml_file import ConfigFile
from pytest_imgedit.core import environments, errors, sanitize, strict_json
from pytest_imgedit.core.images import Base64Image
from pytest_imgedit.core.pairs import EditPair, category_slug
from pytest_imgedit.core.reply import SCALE, parse_reply

BUILTIN = ("aspects", "plausibility")
IMAGES = ("source", "edited", "reference")
_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=jinja2.StrictUndefined, keep_trailing_newline=False
)
_ENVIRONMENT.globals.update(sqrt=math.sqrt, min=min, max=max)
_template = cache(_ENVIRONMENT.from_string)
_formula: Callable[[str], Callable[..., Any]] = cache(
    partial(_ENVIRONMENT.compile_expression, undefined_to_none=False)
)


class Criteria(BaseModel):
    """The title of a category in the prompt, and its criteria of realism."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    criteria: tuple[str, ...] = Field(min_length=1)


class Rubric(BaseModel):
    """One rubric set; see `aspects.toml` for the meaning of each key."""

    model_config = ConfigDict(extra="forbid", frozen=True, ignored_types=(cached_property,))

    aspects: tuple[str, ...] = Field(min_length=1)
    score: str
    system: str
    user: str
    reminder: str
    categories: dict[str, Criteria]

    @cached_property
    def sha256(self) -> str:
        """Hash of everything in the set, for provenance."""
        return environments.key(self.model_dump())

    def render(self, pair: EditPair) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Render the prompts for a pair: the system text, and the user's turn as texts and images
        in order.
        """
        criteria = self.categories.get(pair.category) or self.categories["default"]
        values = {
            "instruction": pair.instruction.replace("\x00", ""),
            "description": pair.description.replace("\x00", ""),
            "reference_text": pair.reference_text.replace("\x00", ""),
            "category": pair.category,
            "title": criteria.title,
            "criteria": criteria.criteria,
            "aspects": self.aspects,
        }
        marks = {name: f"\x00{name}\x00" for name in IMAGES}
        if pair.reference is None:
            marks["reference"] = ""
        system = _template(self.system).render(values).strip()
        user = _template(self.user).render(marks, **values).strip()
        parts = zip(cycle(("text", "image")), re.split("\x00([a-z]+)\x00", user), strict=False)
        return system, tuple(part for part in parts if part[1].strip())

    def check(self, pairs: Iterable[EditPair]) -> None:
        """Render the prompts of every pair; raise `UsageError` naming the first that fails."""
        for pair in pairs:
            try:
                self.render(pair)
            except Exception as error:  # a template can raise anything
                raise errors.UsageError(
                    f"rubric: the template fails on pair {pair.id!r}: {sanitize.one_line(error)}"
                ) from None

    def remind(self, problem: str) -> str:
        """Render the reminder that follows an unreadable reply."""
        return _template(self.reminder).render(problem=problem, aspects=self.aspects).strip()

    def read(self, reply: str) -> tuple[dict[str, float], float]:
        """Parse a reply to its aspects and the score in [0, 10]; raise `ReplyError` if it cannot be
        read.
        """
        aspects = parse_reply(reply, self.aspects)
        return aspects, self.combine(aspects)

    def combine(self, aspects: Mapping[str, float]) -> float:
        """Apply the set's score formula; raise `ReplyError` if the result is not a number in [0,
        10].
        """
        try:
            value = float(_formula(self.score)(**aspects))
        except Exception as error:  # a formula can raise anything
            raise errors.ReplyError(f"score formula {self.score!r} failed: {error}") from error
        if not (math.isfinite(value) and SCALE[0] <= value <= SCALE[1]):
            raise errors.ReplyError(f"score formula {self.score!r} gave {value}, expected 0 to 10")
        return value


def load_rubric(name: str, custom: Mapping[str, Mapping[str, Any]]) -> Rubric:
    """Load a rubric set by name: one of the config's `[rubrics.NAME]`, else a built-in one.

    `[rubrics.NAME]` holds the keys itself or `file = "PATH"`. Raises `UsageError` for an unknown
    name, an unknown or missing key, and a template or formula that does not work.
    """
    if name in custom:
        location, table = _custom(name, dict(custom[name]))
    elif name in BUILTIN:
        location, table = f"{name}.toml", _builtin(name)
    else:
        raise errors.UsageError(
            f"judge.rubric: unknown rubric {name!r}, expected one of: "
            f"{', '.join(sorted({*custom, *BUILTIN}))}"
        )
    if isinstance(table.get("categories"), dict):
        table["categories"] = _categories(location, table["categories"])
    try:
        rubric = Rubric.model_validate(table)
    except ValidationError as error:
        raise errors.UsageError(f"{location}: {errors.first_problem(error)}") from None
    _try_out(location, rubric)
    return rubric


def _custom(name: str, table: strict_json.JsonObject) -> tuple[str, strict_json.JsonObject]:
    """Return the location and the table of a rubric in the config, or in the file that it names."""
    location = f"[rubrics.{name}]"
    if "file" not in table:
        return location, table
    if beside := [setting for setting in table if setting != "file"]:
        raise errors.UsageError(
            f"{location}: {beside[0]!r} beside 'file', expected the file to hold the whole rubric"
        )
    location = str(table["file"])
    return location, dict(ConfigFile.read(Path(location), "a rubric in TOML").tables)


def _builtin(name: str) -> strict_json.JsonObject:
    return tomllib.loads(
        files("pytest_imgedit.protocols").joinpath(f"{name}.toml").read_text("utf-8")
    )


def _categories(location: str, categories: strict_json.JsonObject) -> strict_json.JsonObject:
    """Add the categories of the rubric to `inherit`, and replace each name by its slug, so that
    aliases are found too.
    """
    inherited = categories.get("inherit")
    if inherited is not None:
        if inherited not in BUILTIN:
            raise errors.UsageError(
                f"{location}: categories.inherit is {inherited!r}, expected one of: "
                f"{', '.join(BUILTIN)}"
            )
        categories = {**_builtin(inherited)["categories"], **categories}
        del categories["inherit"]
    slugs = {category_slug(name): value for name, value in categories.items()}
    if len(slugs) != len(categories):
        raise errors.UsageError(f"{location}: a category is given twice, by two of its names")
    return slugs


def _try_out(location: str, rubric: Rubric) -> None:
    """Render every template for every category, so that a mistake in it ends the run before any
    model loads.
    """
    if "default" not in rubric.categories:
        raise errors.UsageError(
            f"{location}: no [categories.default], expected one for categories without their own"
        )
    bare = EditPair("id", "default", "instruction", Base64Image(""))
    full = replace(
        bare, description="description", reference=Base64Image(""), reference_text="right result"
    )
    try:
        prompts = [
            rubric.render(replace(pair, category=category))[1]
            for category, pair in product(rubric.categories, (bare, full))
        ]
        rubric.remind("problem")
        for values in product((0.0, 5.0, 10.0), repeat=min(len(rubric.aspects), 6)):
            middle = dict.fromkeys(rubric.aspects, 5.0)
            rubric.combine({**middle, **dict(zip(rubric.aspects, values, strict=False))})
    except Exception as error:  # a template can raise anything
        line = getattr(error, "lineno", None)
        where = f" (template line {line})" if line else ""
        raise errors.UsageError(
            f"{location}: template{where}: {sanitize.one_line(error)}"
        ) from None
    for parts in prompts:
        images = sorted({text for kind, text in parts if kind == "image"})
        if not {"source", "edited"}.issubset(images):
            raise errors.UsageError(
                f"{location}: user shows {images or 'no image'}, "
                "expected {{ source }} and {{ edited }}"
            )
