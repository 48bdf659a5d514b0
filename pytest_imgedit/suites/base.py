"""What a suite is, and how a spec becomes one."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.config.toml_file import SUITE_SUFFIXES
from pytest_imgedit.core import errors, files, folders, targets
from pytest_imgedit.core.measures import count_groups
from pytest_imgedit.core.pairs import EditPair, category_slug, in_order, slug
from pytest_imgedit.core.text import (
    counted,
    did_you_mean,
    first_of,
    one_line,
    shorten,
    steering,
)
from pytest_imgedit.kinds.registry import known, resolve
from pytest_imgedit.suites import cells
from pytest_imgedit.suites.public import Query, remarks_on

BUILTIN = {
    "native": "pytest_imgedit.suites.native:load",
    "scenes": "pytest_imgedit.suites.scenes:load",
    "seeds": "pytest_imgedit.suites.native:load",
}
#: Public benchmarks, whose spec may have a query: `name:DIR?key=value`. Their loaders take the
#: folder, the query and the settings.
PUBLIC = {
    "gedit": "pytest_imgedit.suites.gedit:load",
    "gedit-v2": "pytest_imgedit.suites.gedit_v2:load",
    "genarena": "pytest_imgedit.suites.genarena:load",
    "imgedit": "pytest_imgedit.suites.imgedit:load",
    "kris": "pytest_imgedit.suites.kris:load",
    "omnicontext": "pytest_imgedit.suites.omnicontext:load",
    "re-edit": "pytest_imgedit.suites.re_edit:load",
    "risebench": "pytest_imgedit.suites.risebench:load",
}
#: The end of a row's place: its line, and its number in the file.
_PLACE_IN_FILE = re.compile(r":\d+(?:: row \d+)?$")
#: Suites whose fields and folder of images can be set.
_MAPPED = ("native", "seeds", "re-edit")


class SuiteLoader(Protocol):
    """What an entry point of the group `pytest_imgedit.suites` names."""

    def __call__(self, argument: str, settings: SuiteSettings) -> Iterable[EditPair]:
        """Yield the pairs of the suite `name:argument`; raise `UsageError` with `file:line: …`.

        Images must stay unread: give each pair an `ImageSource`.
        """


#: The texts of a pair.
_TEXTS = (
    "id",
    "category",
    "instruction",
    "description",
    "reference_text",
    "difficulty",
    "own_id",
    "own_category",
    "rewritten",
)
#: What `Suite.sha256` covers of each pair.
_HASHED = attrgetter("id", "category", "instruction", "description", "reference_text", "seed")


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A named list of pairs. `sha256` covers every text of every pair, in order, and which source
    is edited, but no image.

    `counts` holds the number of pairs of each group before any limit; `remarks` holds warnings
    about the file.
    """

    name: str
    pairs: Sequence[EditPair]
    sha256: str
    counts: Mapping[str, int]
    remarks: tuple[str, ...] = ()

    @property
    def categories(self) -> list[str]:
        """Category slugs, known ones first."""
        return in_order(pair.category for pair in self.pairs)

    @property
    def labels(self) -> dict[str, str]:
        """The suite's own names of categories, by slug, where they differ from it."""
        return {
            pair.category: pair.own_category
            for pair in reversed(self.pairs)
            if pair.own_category not in ("", pair.category)
        }


def load_suite(settings: SuiteSettings) -> Suite:
    """Load the suite of `settings.spec`: the pairs of `settings.categories`, and of each category
    at most `settings.limit`.

    Raises `UsageError` if it is unknown, empty or without one of the categories, if a pair is
    malformed, if an id occurs twice, and for settings that the suite cannot have.
    """
    spec = settings.spec
    loaders = {**known("suite"), **BUILTIN, **PUBLIC}
    prefix, _, _ = spec.partition(":")
    if Path(spec).suffix.lower() in SUITE_SUFFIXES and prefix not in loaders:
        spec = f"native:{spec}"
    name, path, argument = resolve("suite", spec, loaders, _hint_at_folder)
    if (name in BUILTIN or name in PUBLIC) and name not in _MAPPED:
        _refuse_mapping(settings)
    if name in PUBLIC:
        pairs = _load_public(settings, path, argument or "")
    else:
        pairs = _load(settings, path, argument or "", spec, is_builtin=name in BUILTIN)
    _require_valid(settings.spec, pairs)
    pairs = _of_categories([_with_slug(pair) for pair in pairs], settings.categories)
    remarks: list[str] = []
    if name in _MAPPED:
        remarks += _remarks_on_fields(settings.spec, pairs)
    if name in PUBLIC:
        remarks += remarks_on(name, spec, len(pairs))
    kept: Iterable[EditPair] = pairs
    if settings.limit is not None:
        kept = _first_of_each(pairs, settings.limit)
    return Suite(
        name=settings.spec,
        pairs=tuple(kept),
        sha256=_digest(pairs),
        counts=count_groups(pairs),
        remarks=tuple(remarks),
    )


def _refuse_mapping(settings: SuiteSettings) -> None:
    """Raise `UsageError` for a root or fields, which the suite of the settings has fixed."""
    spec = settings.spec
    if settings.root is not None:
        raise errors.UsageError(
            f"suite.root: suite {spec!r} has its images in a fixed place, expected none"
        )
    if settings.fields:
        raise errors.UsageError(f"suite.fields: suite {spec!r} has fixed fields, expected none")


def _digest(pairs: Iterable[EditPair]) -> str:
    """Return the SHA-256 of the texts of pairs, in their order, and of the place of the edited
    source where it is not the first.
    """
    texts = []
    for pair in pairs:
        values = _HASHED(pair)
        if pair.edited_source != 1:
            values += (pair.edited_source,)
        texts.append(json.dumps(values))
    return hashlib.sha256("".join(texts).encode()).hexdigest()


def _load_public(settings: SuiteSettings, path: str, argument: str) -> list[EditPair]:
    """Load a public benchmark, or `per_category` pairs of each category, drawn with `seed`; both
    are keys of the query in `argument`.

    Raises `UsageError` for an unknown key, and for a folder that does not hold the benchmark.
    """
    folder, query = Query.split(settings.spec, argument)
    if not files.is_folder(Path(folder)):
        raise errors.SpecError(
            f"suite {settings.spec}: no folder {folder!r}, expected that of the benchmark's data "
            "(imgedit suites says where they come from)"
        )
    other_form = folders.hub_cache_hint(Path(folder)) or folders.arrow_hint(Path(folder))
    if other_form:
        raise errors.SpecError(f"suite {settings.spec}: {folder} is {other_form}")
    per_category = query.number("per_category")
    seed = query.number("seed")
    pairs = list(targets.Target.parse(path).load()(Path(folder), query, settings))
    query.end()
    if per_category is None:
        return pairs
    return _drawn(pairs, per_category, seed or 0)


def _drawn(pairs: Sequence[EditPair], count: int, seed: int) -> list[EditPair]:
    """Draw `count` pairs of each category, or all that it has, by hashes of their ids; they keep
    their order.
    """
    ids_by_category: dict[str, list[str]] = {}
    for pair in pairs:
        ids_by_category.setdefault(pair.category, []).append(pair.id)

    def digest_of(pair_id: str) -> str:
        return hashlib.sha256(f"{seed}:{pair_id}".encode()).hexdigest()

    kept: set[str] = set()
    for ids in ids_by_category.values():
        kept.update(sorted(ids, key=digest_of)[:count])
    return [pair for pair in pairs if pair.id in kept]


def _load(
    settings: SuiteSettings, path: str, argument: str, spec: str, is_builtin: bool
) -> list[EditPair]:
    """Call a suite's loader; raises `UsageError` for an `OSError`, and for any error of a loader
    that is not `is_builtin`.
    """
    try:
        return list(targets.Target.parse(path).load()(argument, settings))
    except (errors.UsageError, KeyboardInterrupt):
        raise
    except OSError as error:
        raise errors.UsageError(
            f"{str(error.filename or spec)[:200]}: {error.strerror}, expected a suite that can be "
            "read"
        ) from error
    except BaseException as error:  # a custom loader can raise anything, also SystemExit
        if is_builtin:
            raise
        raise errors.SpecError(
            f"suite {settings.spec}: its loader raised {type(error).__name__}: {one_line(error)}"
        ) from error


def _require_valid(spec: str, pairs: Sequence[EditPair]) -> None:
    """Raise `UsageError` if there are no pairs, for the first malformed one, and for an id that
    occurs twice: a `SpecError` where the suite is wrong, rather than one of its rows.
    """
    if not pairs:
        raise errors.SpecError(f"suite {spec}: no pairs, expected at least one")
    seen: dict[str, EditPair] = {}
    for pair in pairs:
        problem = _problem_of_pair(pair)
        if problem:
            row = getattr(pair, "row", "")  # a custom loader may yield anything
            if row:
                raise errors.UsageError(f"{row}: {problem}")
            raise errors.SpecError(f"suite {spec}: {pair!a:.80}: {problem}")
        if pair.id in seen:
            raise errors.SpecError(f"suite {spec}: {_same_ids(seen[pair.id], pair)}")
        seen[pair.id] = pair


def _same_ids(first: EditPair, second: EditPair) -> str:
    """Say that two pairs have one id, and where; rows of two files may be copies of one another."""
    rows = [row for row in (first.row, second.row) if row]
    places = f", in {' and '.join(rows)}" if rows else ""
    files_of_rows = {_PLACE_IN_FILE.sub("", row) for row in rows}
    advice = ": if the files are copies, name the folder of one" if len(files_of_rows) > 1 else ""
    return f"id {second.id!r} occurs twice{places}, expected unique ids{advice}"


def with_rewrites(suite: Suite, path: Path) -> Suite:
    """Return the suite with the instructions for the editor that a JSON object has by the ids of
    its pairs, or by what the suite itself calls them.

    Raises `UsageError` if a pair has none.
    """
    texts = files.read_object(path, "instructions by the ids of pairs")
    rewritten = []
    for pair in suite.pairs:
        text = texts.get(pair.id, texts.get(pair.own_id))
        if not isinstance(text, str) or cells.is_missing(text):
            raise errors.UsageError(
                f"editor.rewrites: {path}: {pair.id!r} is {text!r:.40}, expected the instruction "
                "for the editor"
            )
        rewritten.append(replace(pair, rewritten=text.strip()))
    return replace(suite, pairs=tuple(rewritten))


def _hint_at_folder(spec: str) -> str:
    """Return the end of a message on an unknown spec that is a folder: what the folder is, or what
    makes a suite of it; an empty text for other specs.
    """
    folder = Path(spec)
    if not files.is_folder(folder):
        return ""
    other_form = folders.hub_cache_hint(folder) or folders.arrow_hint(folder)
    if other_form:
        return f"; {spec} is {other_form}"
    return f"; {spec} is a folder: imgedit init {spec} makes a suite of it"


def _remarks_on_fields(spec: str, pairs: Sequence[EditPair]) -> list[str]:
    """Return a line with the fields of a suite file that nothing reads, if there are some: one may
    hold what should be shown.
    """
    counts = Counter(name for pair in pairs for name in pair.fields)
    if not counts:
        return []
    named = [f"{shorten(name, 100)} ({counted(n, 'row')})" for name, n in counts.most_common()]
    return [f"{spec}: fields that nothing reads: {first_of(named)}; [suite.fields] maps names"]


def _with_slug(pair: EditPair) -> EditPair:
    """Return a pair whose category is a slug; it keeps the suite's own name of it."""
    category = category_slug(pair.category)
    if category == pair.category:
        return pair
    return replace(pair, category=category, own_category=pair.own_category or pair.category)


def _of_categories(pairs: list[EditPair], names: Sequence[str]) -> list[EditPair]:
    """Return the pairs of the categories with these slugs or names, all pairs without any; raises
    `UsageError` for a category that no pair has.
    """
    if not names:
        return pairs
    known = {name: pair.category for pair in pairs for name in pair.category_names}
    for name in names:
        if name not in known:
            raise errors.UsageError(
                f"suite.categories: no pairs of {name!r:.100}, expected some of "
                f"{', '.join(in_order(known.values()))}{did_you_mean(name, known)}"
            )
    wanted = {known[name] for name in names}
    return [pair for pair in pairs if pair.category in wanted]


def _problem_of_pair(pair: Any) -> str | None:
    """Return what is wrong with a pair of a loader, and what was expected; `None` if nothing is."""
    if not isinstance(pair, EditPair):
        return "expected an EditPair"
    for name in _TEXTS:
        value = getattr(pair, name)
        if not _is_text(value):
            return f"{name} is {value!a:.40}, expected text"
    mark = steering(pair.own_id)
    if mark:
        return f"id {pair.own_id!a:.200} with {mark}, expected printable text"
    if not isinstance(pair.tags, tuple | list) or not all(map(_is_text, pair.tags)):
        return f"tags is {pair.tags!a:.40}, expected texts"
    for name in ("source", "reference"):
        value = getattr(pair, name)
        may_lack = name == "reference" and value is None
        if not may_lack and not callable(getattr(value, "read", None)):
            return f"{name} is {value!a:.40}, expected an image source with a method read()"
    problem = _problem_of_sources(pair)
    if problem:
        return problem
    if slug(pair.id) != pair.id or not pair.category or not pair.instruction:
        return "expected an id of [A-Za-z0-9._-]{1,128}, a category and an instruction"
    if pair.category.casefold() == "overall":
        return (
            "category 'overall', expected another name: that is what all categories together "
            "are called"
        )
    if type(pair.seed) is not int or not 0 <= pair.seed < 2**63:
        return f"seed is {pair.seed!r:.40}, expected an integer of at least 0 and under 2**63"
    return None


def _problem_of_sources(pair: EditPair) -> str | None:
    """Return what is wrong with the further sources of a pair, or with the place of the edited one;
    `None` if nothing is.
    """
    further = pair.further
    if not isinstance(further, tuple | list):
        return f"further is {further!a:.40}, expected image sources"
    for image in further:
        if not callable(getattr(image, "read", None)):
            return f"further holds {image!a:.40}, expected image sources with a method read()"
    place = pair.edited_source
    count = len(further) + 1
    if type(place) is not int or not 1 <= place <= count:
        expected = f"a whole number from 1 to {count}" if count > 1 else "1 for one source"
        return f"edited_source is {place!a:.40}, expected {expected}"
    return None


def _is_text(value: Any) -> bool:
    """Tell whether a value is a text without surrogates, which UTF-8 cannot encode."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _first_of_each(pairs: Iterable[EditPair], limit: int) -> Iterator[EditPair]:
    """Yield the first `limit` pairs of each category, in the order of the suite."""
    counts: Counter[str] = Counter()
    for pair in pairs:
        counts[pair.category] += 1
        if counts[pair.category] <= limit:
            yield pair
