"""Protocols by name: those of the config, of this package, and of other packages."""

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import product
from pathlib import Path

from pydantic import ValidationError

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.config.toml_file import ConfigFile
from pytest_imgedit.core import errors, strict_json, targets
from pytest_imgedit.core.images import Base64Image
from pytest_imgedit.core.pairs import EditPair, category_slug
from pytest_imgedit.core.reply import CHOICE_SCALE
from pytest_imgedit.core.results import PublishedRow
from pytest_imgedit.core.text import did_you_mean, one_line, shorten
from pytest_imgedit.kinds.registry import known, resolve
from pytest_imgedit.protocols import templates
from pytest_imgedit.protocols.prompts import Prompts
from pytest_imgedit.protocols.protocol import Call, Protocol
from pytest_imgedit.protocols.toml_protocol import Definition, TomlProtocol

#: Protocols of this package in TOML, and as classes.
IN_TOML = ("aspects", "gedit", "gedit-qwen", "imgedit", "seeds")
#: Protocols of this package that judge two edits against each other.
DUELS = ("duel", "duel-tie", "duel-aspects")
#: The same of public arenas, as classes. Each has a suite of the same name.
ARENAS = {
    "gedit-v2": "pytest_imgedit.protocols.gedit_v2:GEditV2",
    "genarena": "pytest_imgedit.protocols.genarena:GenArena",
}
CLASSES = {
    "kris": "pytest_imgedit.protocols.kris:Kris",
    "kris?totals=bagel": "pytest_imgedit.protocols.kris:KrisByGrades",
    "omnicontext": "pytest_imgedit.protocols.omnicontext:OmniContext",
    "risebench": "pytest_imgedit.protocols.risebench:RiseBench",
}


#: Protocols of the suites that have one of their own; that of all others is `aspects`.
OF_SUITES = {
    "gedit": "gedit",
    "imgedit": "imgedit",
    "kris": "kris",
    "omnicontext": "omnicontext",
    "re-edit": "seeds",
    "risebench": "risebench",
    "seeds": "seeds",
}


#: Raises `UsageError` for a protocol, given its location and its calls, that is not of a kind.
Check = Callable[[str, TomlProtocol, Sequence[Call]], None]
#: Images of a duel beside its sources.
_TWO_EDITS = {"first", "second"}
#: A pair with as little as it may have, about which a protocol is tried out.
_BARE = EditPair("id", "default", "instruction", Base64Image(""))
#: Numbers whose ends and middle are tried in all combinations; further ones stay in the middle.
_MOST_TRIED = 6


def load_protocol(settings: Settings) -> Protocol:
    """Load the protocol of the settings, by default that of the suite: one of the config's
    `[protocols.NAME]`, one of this package, or a class.

    `[protocols.NAME]` holds the keys itself or `file = "PATH"`. Prompts that the benchmark keeps to
    itself are in the folder `judge.prompts`, by default that of the suite. Raises `UsageError` for
    an unknown name, an unknown or missing key, a template or formula that does not work, and a
    protocol of duels.
    """
    name = protocol_name(settings)
    if name in settings.protocols or name in IN_TOML:
        return _of_toml(name, settings, _check_shows_edit)
    if name in DUELS or name in ARENAS:
        raise errors.UsageError(
            f"{settings.place('judge', 'protocol')}judge.protocol: {name!r} compares two edits, "
            f"expected it as judge.duel_protocol, and a protocol that judges one: "
            f"{', '.join(IN_TOML)}"
        )
    return _of_class(name, settings)


def load_duel_protocol(settings: Settings) -> Protocol:
    """Load the protocol that compares two edits, `judge.duel_protocol`: one of the config's
    `[protocols.NAME]`, or one of this package, those of `ARENAS` with the prompts of their authors.

    Each of its calls shows `first` and `second`, and its reply is a choice. Raises `UsageError` as
    `load_protocol` does, and for a protocol that judges one edit, for a class, and for a score that
    favours a side.
    """
    name = settings.judge.duel_protocol
    if name in ARENAS and name not in settings.protocols:
        kind: type[Protocol] = targets.Target.parse(ARENAS[name]).load()
        return _of_kind(kind, settings)
    if name not in settings.protocols and name not in DUELS:
        names = (*DUELS, *ARENAS, *settings.protocols)
        what = "no such protocol"
        if name in (*IN_TOML, *CLASSES, *known("protocol")):
            what = "it judges one edit"
        elif ":" in name:
            what = "it is a class"
        setting = f"{settings.place('judge', 'duel_protocol')}judge.duel_protocol"
        raise errors.UsageError(
            f"{setting}: {name!r:.100}: {what}, expected a protocol that compares two: "
            f"{', '.join(names)}{did_you_mean(name, names)}"
        )
    return _of_toml(name, settings, _check_compares_edits)


def published_rows(name: str) -> tuple[PublishedRow, ...]:
    """Return the rows that others have published for a protocol of this package; none for any other
    name.
    """
    if name in IN_TOML:
        return Definition.model_validate(_builtin(name)).published
    if name in CLASSES:
        kind: type[Protocol] = targets.Target.parse(CLASSES[name]).load()
        return kind("strict", Prompts(None, kind.prompt_files, kind.pins)).published
    return ()


def _of_toml(name: str, settings: Settings, check: Check) -> TomlProtocol:
    """Return a protocol in TOML, of the config or of this package, tried out; raises `UsageError`
    as `load_protocol` does, and what `check` raises.
    """
    judge = settings.judge
    if name in settings.protocols:
        location, raw = _custom(name, dict(settings.protocols[name]))
    else:
        location = f"{name}.toml"
        raw = _builtin(name)
    if isinstance(raw.get("categories"), dict):
        raw["categories"] = _categories(location, raw["categories"])
    try:
        definition = Definition.model_validate(raw)
    except ValidationError as error:
        problem = shorten(errors.first_problem(error), 300)
        raise errors.UsageError(f"{location}: {problem}") from None
    call_of_number = _calls_by_number(location, definition)
    _check_unreadable(location, definition)
    _check_score_names(location, definition, call_of_number)
    table = definition.prompts
    prompts = Prompts(_prompts_folder(settings), table.files, table.pins, judge.any_version)
    protocol = TomlProtocol(name, definition, judge.variant, prompts)
    with templates.trial():
        check(location, protocol, _try_out(location, protocol))
    return protocol


def _prompts_folder(settings: Settings) -> Path | None:
    """Return the folder of the benchmark's own prompts: `judge.prompts`, or that of a suite that
    has a protocol of its own, for edits or for duels.
    """
    suite, _, argument = settings.suite.spec.partition(":")
    folder = settings.judge.prompts
    if folder is None and (suite in OF_SUITES or suite in ARENAS):
        suite_folder, _, _ = argument.partition("?")
        folder = Path(suite_folder)
    return folder


def protocol_name(settings: Settings) -> str:
    """Return the name of the protocol that settings ask for, by default that of the suite.

    The query of a suite may hold a part of it, as that of `kris:DIR?totals=bagel` does. The loader
    of another package's suite has it as its attribute `protocol`. Without these it is `aspects`.
    """
    if settings.judge.protocol != "auto":
        return settings.judge.protocol
    suite, _, argument = settings.suite.spec.partition(":")
    if suite in OF_SUITES or suite not in known("suite"):
        name = OF_SUITES.get(suite, "aspects")
        _, _, query = argument.partition("?")
        for part in query.split("&"):
            if f"{name}?{part}" in CLASSES:
                return f"{name}?{part}"
        return name
    loader = targets.Target.parse(known("suite")[suite]).load()
    return str(getattr(loader, "protocol", "aspects"))


def _of_class(name: str, settings: Settings) -> Protocol:
    """Make a protocol of the class with a name; raises `UsageError` for an unknown name, and for a
    class that is no protocol.
    """
    names = {**known("protocol"), **CLASSES}
    in_toml = sorted(settings.protocols.keys() | set(IN_TOML))
    hint = f"; or of {', '.join(in_toml)}"
    _, path, _ = resolve("protocol", name, names, lambda _: hint)
    kind = targets.Target.parse(path).load()
    if not (isinstance(kind, type) and issubclass(kind, Protocol)):
        raise errors.UsageError(f"judge.protocol: {path} is no subclass of pytest_imgedit.Protocol")
    return _of_kind(kind, settings)


def _of_kind(kind: type[Protocol], settings: Settings) -> Protocol:
    """Return the protocol of a class, with the prompts that the settings name."""
    judge = settings.judge
    folder = _prompts_folder(settings)
    return kind(judge.variant, Prompts(folder, kind.prompt_files, kind.pins, judge.any_version))


def _custom(name: str, table: strict_json.JsonObject) -> tuple[str, strict_json.JsonObject]:
    """Return the location and the table of a protocol in the config, or in the file that it names;
    raises `UsageError` for keys beside `file`.
    """
    location = f"[protocols.{name}]"
    if "file" not in table:
        return location, table
    others = [key for key in table if key != "file"]
    if others:
        raise errors.UsageError(
            f"{location}: {others[0]!r:.100} beside 'file', expected the file to hold the whole "
            "protocol"
        )
    location = str(table["file"])
    return location, dict(ConfigFile.read(Path(location), "a protocol in TOML").tables)


def _builtin(name: str) -> strict_json.JsonObject:
    text = files("pytest_imgedit.protocols").joinpath(f"{name}.toml").read_text("utf-8")
    return tomllib.loads(text)


def _categories(location: str, categories: strict_json.JsonObject) -> strict_json.JsonObject:
    """Return categories by their slugs, so that aliases are found too, with those of the protocol
    that `inherit` names.

    Raises `UsageError` for an unknown `inherit`, and for two names of one category.
    """
    inherited = categories.get("inherit")
    if inherited is not None:
        if inherited not in IN_TOML:
            raise errors.UsageError(
                f"{location}: categories.inherit is {inherited!r:.100}, expected one of: "
                f"{', '.join(IN_TOML)}"
            )
        categories = {**_builtin(inherited)["categories"], **categories}
        del categories["inherit"]
    slugs = {category_slug(name): value for name, value in categories.items()}
    if len(slugs) != len(categories):
        raise errors.UsageError(f"{location}: a category is given twice, by two of its names")
    return slugs


def _calls_by_number(location: str, definition: Definition) -> dict[str, str]:
    """Return the name of the call whose reply holds a number, by the number's name.

    Raises `UsageError` for two calls of one name, a number in two of them, and a reply that does
    not fit its grammar.
    """
    calls: set[str] = set()
    call_of: dict[str, str] = {}
    for call in definition.calls:
        if call.name in calls:
            raise errors.UsageError(f"{location}: two calls are named {call.name!r}")
        calls.add(call.name)
        try:
            call.reply.check()
        except errors.UsageError as error:
            raise errors.UsageError(f"{location}: call {call.name!r}: {error}") from None
        for name in call.reply.names:
            if name in call_of:
                raise errors.UsageError(
                    f"{location}: the calls {call_of[name]!r} and {call.name!r} both have a number "
                    f"{name!r}, expected it in one"
                )
            call_of[name] = call.name
    return call_of


def _check_score_names(
    location: str, definition: Definition, call_of_number: Mapping[str, str]
) -> None:
    """Raise `UsageError` if a value of `[score]` has the name of a number of the replies, unless
    that number is itself the score.
    """
    score = definition.score
    taken = [name for name in score.values if name in call_of_number or name == "score"]
    if taken:
        raise errors.UsageError(
            f"{location}: [score] would overwrite the number {taken[0]!r}, expected another name "
            "in [score.values]"
        )
    if "score" in call_of_number and score.item != "score":
        raise errors.UsageError(
            f"{location}: [score] would overwrite the number 'score', expected another name of "
            f"that number in the names of call {call_of_number['score']!r}, or item = 'score'"
        )


def _check_unreadable(location: str, definition: Definition) -> None:
    """Raise `UsageError` for a number of `unreadable` that is not on the scale of every reply."""
    value = definition.unreadable
    if value == "drop":
        return
    for call in definition.calls:
        low, high = call.reply.scale
        if not low <= value <= high:
            raise errors.UsageError(
                f"{location}: unreadable is {value}, expected 'drop' or a number on the scale of "
                f"call {shorten(call.name, 60)!r}, from {low:g} to {high:g}"
            )


def _try_out(location: str, protocol: TomlProtocol) -> list[Call]:
    """Render every template for every category, and apply the formulas, so that a mistake ends the
    run before any model loads; return the calls, none if their texts are read from the benchmark,
    for pairs of it.

    Raises `UsageError` for it, and for categories without `default`.
    """
    definition = protocol.definition
    if definition.categories and "default" not in definition.categories:
        raise errors.UsageError(
            f"{location}: no [categories.default], expected one for categories without their own"
        )
    calls: list[Call] = []
    try:
        if not definition.prompts.files:
            calls = _calls_of_all_categories(protocol)
        for call in calls:
            protocol.remind(call, "problem")  # rendered for its mistakes alone
        _try_formulas(protocol)
    except Exception as error:  # a template can raise anything
        line = getattr(error, "lineno", None)
        where = f" (template line {line})" if line else ""
        raise errors.UsageError(
            f"{location}: template{where}: {shorten(one_line(error), 600)}"
        ) from None
    return calls


def _check_shows_edit(location: str, protocol: TomlProtocol, calls: Sequence[Call]) -> None:
    """Raise `UsageError` for calls that do not show the source and the edit, or that compare two
    edits.
    """
    shown = {image for call in calls for image in call.images}
    compares = any(table.reply.is_choice for table in protocol.definition.calls)
    if compares or shown & _TWO_EDITS:
        raise errors.UsageError(
            f"{location}: it compares two edits, expected it as judge.duel_protocol, and "
            "{{ source }} and {{ edited }} in judge.protocol"
        )
    if calls and not {"source", "edited"} <= shown:
        raise errors.UsageError(
            f"{location}: user shows {sorted(shown) or 'no image'}, "
            "expected {{ source }} and {{ edited }}"
        )


def _check_compares_edits(location: str, protocol: TomlProtocol, calls: Sequence[Call]) -> None:
    """Raise `UsageError` for a call that does not show the two edits of a duel, shows the only one
    of a pair, or whose reply is no choice, and for a score on another scale or that favours a side.
    """
    for table in protocol.definition.calls:
        if not table.reply.is_choice:
            raise errors.UsageError(
                f"{location}: call {table.name!r} has replies of the form {table.reply.form!r}, "
                "expected 'choice' or 'choice-or-tie' in judge.duel_protocol"
            )
    for call in calls:
        shown = set(call.images)
        if not shown >= _TWO_EDITS or "edited" in shown:
            raise errors.UsageError(
                f"{location}: call {call.name!r} shows {sorted(shown) or 'no image'}, expected "
                "{{ first }} and {{ second }}, without {{ edited }}, in judge.duel_protocol"
            )
    if protocol.scale != CHOICE_SCALE:
        low, high = protocol.scale
        raise errors.UsageError(
            f"{location}: [score] has the scale [{low:g}, {high:g}], expected scale = [0, 1]"
        )
    _check_fairness(location, protocol)


def _calls_of_all_categories(protocol: TomlProtocol) -> list[Call]:
    """Return the calls for a pair of every category, once with as little as a pair may have, and
    once with all that it may have.
    """
    full = replace(
        _BARE, description="description", reference=Base64Image(""), reference_text="right result"
    )
    calls: list[Call] = []
    for category, pair in product(protocol.definition.categories or [""], (_BARE, full)):
        calls += protocol.calls(replace(pair, category=category))
    return calls


def _try_formulas(protocol: TomlProtocol) -> None:
    """Apply the formulas to the ends and the middle of the scales, for the errors alone: raises
    `ReplyError` if one fails, or makes a value beyond its scale.
    """
    for shares in product((0.0, 0.5, 1.0), repeat=min(_MOST_TRIED, _count_numbers(protocol))):
        _score_at(protocol, shares)


def _check_fairness(location: str, protocol: TomlProtocol) -> None:
    """Raise `UsageError` if the score of a duel favours a side: if it is not 1 - score for swapped
    edits, whose choices are swapped.
    """
    for shares in product((0.0, 1.0), repeat=min(_MOST_TRIED, _count_numbers(protocol))):
        score = _score_at(protocol, shares)
        swapped = _score_at(protocol, [1 - share for share in shares])
        if not math.isclose(score + swapped, 1, abs_tol=1e-9):
            raise errors.UsageError(
                f"{location}: [score] item is {score:g} for some choices and {swapped:g} for the "
                f"opposite ones, expected {1 - score:g}: a formula such as mean, which favours no "
                "side"
            )


def _count_numbers(protocol: TomlProtocol) -> int:
    return sum(len(table.reply.names) for table in protocol.definition.calls)


def _score_at(protocol: TomlProtocol, shares: Sequence[float]) -> float:
    """Return the score of replies whose first numbers lie at these shares of their scales, and all
    others in the middle; raises `ReplyError` if a formula fails, or makes a value beyond its scale.
    """
    rest = iter(shares)
    replies: dict[str, dict[str, float]] = {}
    for table in protocol.definition.calls:
        low, high = table.reply.scale
        replies[table.name] = {
            name: low + next(rest, 0.5) * (high - low) for name in table.reply.names
        }
    return protocol.checked_item(_BARE, replies)["score"]
