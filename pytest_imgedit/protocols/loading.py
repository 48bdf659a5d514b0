"""Protocols by name: those of the config, of this package, and of other packages."""

import tomllib
from collections.abc import Mapping
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
from pytest_imgedit.core.text import one_line, shorten
from pytest_imgedit.kinds.registry import known, resolve
from pytest_imgedit.protocols import templates
from pytest_imgedit.protocols.prompts import Prompts
from pytest_imgedit.protocols.protocol import Call, Protocol
from pytest_imgedit.protocols.toml_protocol import Definition, TomlProtocol

#: Protocols of this package in TOML, and as classes.
IN_TOML = ("aspects", "gedit", "gedit-qwen", "imgedit", "seeds")
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


#: Numbers whose ends and middle are tried in all combinations; further ones stay in the middle.
_MOST_TRIED = 6


def load_protocol(settings: Settings) -> Protocol:
    """Load the protocol of the settings, by default that of the suite: one of the config's
    `[protocols.NAME]`, one of this package, or a class.

    `[protocols.NAME]` holds the keys itself or `file = "PATH"`. Prompts that the benchmark keeps to
    itself are in the folder `judge.prompts`, by default that of the suite. Raises `UsageError` for
    an unknown name, an unknown or missing key, and a template or formula that does not work.
    """
    judge = settings.judge
    name = protocol_name(settings)
    suite, _, argument = settings.suite.spec.partition(":")
    folder = judge.prompts
    if folder is None and suite in OF_SUITES:
        suite_folder, _, _ = argument.partition("?")
        folder = Path(suite_folder)
    if name in settings.protocols:
        location, raw = _custom(name, dict(settings.protocols[name]))
    elif name in IN_TOML:
        location = f"{name}.toml"
        raw = _builtin(name)
    else:
        return _of_class(name, settings, folder)
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
    prompts = Prompts(folder, table.files, table.pins, judge.any_version)
    protocol = TomlProtocol(name, definition, judge.variant, prompts)
    with templates.trial():
        _try_out(location, protocol)
    return protocol


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


def _of_class(name: str, settings: Settings, folder: Path | None) -> Protocol:
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
    judge = settings.judge
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
    if "score" in call_of_number and score.item != "score":
        taken.append("score")
    if taken:
        raise errors.UsageError(
            f"{location}: [score] would overwrite the number {taken[0]!r}, expected another name"
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


def _try_out(location: str, protocol: TomlProtocol) -> None:
    """Render every template for every category, and apply the formulas, so that a mistake ends the
    run before any model loads.

    Raises `UsageError` for it, for categories without `default`, and for calls that do not show
    the source and the edit.
    """
    definition = protocol.definition
    if definition.categories and "default" not in definition.categories:
        raise errors.UsageError(
            f"{location}: no [categories.default], expected one for categories without their own"
        )
    bare = EditPair("id", "default", "instruction", Base64Image(""))
    calls: list[Call] = []
    try:
        if not definition.prompts.files:  # else they are read from the benchmark, for pairs of it
            calls = _calls_of_all_categories(protocol, bare)
        for call in calls:
            protocol.remind(call, "problem")  # rendered for its mistakes alone
        _try_formulas(protocol, bare)
    except Exception as error:  # a template can raise anything
        line = getattr(error, "lineno", None)
        where = f" (template line {line})" if line else ""
        raise errors.UsageError(
            f"{location}: template{where}: {shorten(one_line(error), 600)}"
        ) from None
    shown = {image for call in calls for image in call.images}
    if calls and not {"source", "edited"} <= shown:
        raise errors.UsageError(
            f"{location}: user shows {sorted(shown) or 'no image'}, "
            "expected {{ source }} and {{ edited }}"
        )


def _calls_of_all_categories(protocol: TomlProtocol, bare: EditPair) -> list[Call]:
    """Return the calls for a pair of every category, once with as little as a pair may have, and
    once with all that it may have.
    """
    full = replace(
        bare, description="description", reference=Base64Image(""), reference_text="right result"
    )
    calls: list[Call] = []
    for category, pair in product(protocol.definition.categories or [""], (bare, full)):
        calls += protocol.calls(replace(pair, category=category))
    return calls


def _try_formulas(protocol: TomlProtocol, pair: EditPair) -> None:
    """Apply the formulas to the ends and the middle of the scales, for the errors alone: raises
    `ReplyError` if one fails, or makes a value beyond its scale.
    """
    names: dict[str, tuple[str, tuple[float, float]]] = {}
    for table in protocol.definition.calls:
        names |= dict.fromkeys(table.reply.names, (table.name, table.reply.scale))
    tried = list(names)[:_MOST_TRIED]
    for shares in product((0.0, 0.5, 1.0), repeat=len(tried)):
        share_of = dict(zip(tried, shares, strict=True))
        replies: dict[str, dict[str, float]] = {}
        for name, (call, (low, high)) in names.items():
            share = share_of.get(name, 0.5)
            replies.setdefault(call, {})[name] = low + share * (high - low)
        protocol.checked_item(pair, replies)
