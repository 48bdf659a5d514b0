"""The parameters of models, shortly, and those in which runs differ."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from pytest_imgedit.core.results import EditorInfo, JudgeInfo, ModelInfo, Results
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import shorten

#: The most characters of a parameter's value.
_LONGEST = 40
#: The same, where the beginnings of two runs' values are alike.
_LONGEST_WHOLE = 200
#: The most characters of all that is set of a model, beside its spec.
_LINE = 120
#: Stands for a parameter that a run does not set, where another one does.
_UNSET = "–"


class Setting(NamedTuple):
    """The value of a parameter: `short`, with the `content` of its files, and `whole`, with all
    that tells two of them apart.
    """

    short: str
    content: str
    whole: str


Settings = dict[str, Setting]


def parameters_of(results: Results) -> JsonObject:
    """Return what may differ between two runs of one editor: its parameters, the seeds, and the
    judge with its parameters.
    """
    parameters: JsonObject = dict(results.editor.params)
    parameters |= _other_parameters(results)
    for name, value in results.judge.params.items():
        parameters[f"judge.{name}"] = value
    return parameters


def _other_parameters(results: Results) -> JsonObject:
    """Return the seeds, the judge and its protocol."""
    editor = results.run.options.editor
    return {
        "seed": editor.seed,
        "seeds": editor.seeds,
        "judge": results.judge.spec,
        "protocol": results.judge.protocol,
    }


def settings_of(results: Results) -> Settings:
    """Return the same as `parameters_of`, with the values as text."""
    settings = model_settings(results.editor)
    for name, value in _other_parameters(results).items():
        settings[name] = _setting(value, {})
    for name, setting in model_settings(results.judge).items():
        settings[f"judge.{name}"] = setting
    return settings


def model_settings(model: ModelInfo) -> Settings:
    """Return the parameters of a model; those in tables are named `table.key`."""
    return {name: _setting(value, model.files) for name, value in _flat(model.params)}


def set_parameters(model: EditorInfo | JudgeInfo) -> str:
    """Return what is set of a model, on one short line; an empty text if nothing is."""
    texts = [f"{name}={setting.short}" for name, setting in model_settings(model).items()]
    return shorten(" ".join(texts), _LINE)


def differing(runs: Iterable[tuple[str, str, Settings]]) -> list[str]:
    """Name for each run the parameters that differ between the runs of its suite and editor.

    A run is its suite, its editor, and its parameters as `settings_of` returns them.
    """
    rows = list(runs)
    groups: dict[tuple[str, str], list[Settings]] = {}
    for suite, editor, settings in rows:
        groups.setdefault((suite, editor), []).append(settings)
    texts = []
    for suite, editor, settings in rows:
        group = groups[suite, editor]
        texts.append(
            " ".join(f"{name}={_told(name, settings, group)}" for name in _names_differing(group))
        )
    return texts


def model_differences(before: ModelInfo, now: ModelInfo) -> list[str]:
    """Return the parameters in which two models of one spec differ, as `name before → now`, and the
    fingerprints if these differ; the recipes if nothing else does.

    Models with different specs have no list: it is empty.
    """
    if before.spec != now.spec:
        return []
    pair = [model_settings(before), model_settings(now)]
    lines = []
    for name in _names_differing(pair):
        old, new = (_told(name, settings, pair) for settings in pair)
        lines.append(f"{name} {old} → {new}")
    lines += _unlike("fingerprint", before.fingerprint, now.fingerprint)
    return lines or _unlike("recipe", before.recipe, now.recipe)


def _unlike(name: str, before: str | None, now: str | None) -> list[str]:
    """Return the beginnings of two digests if they differ; nothing if one is unknown."""
    if before is None or now is None or before == now:
        return []
    return [f"{name} {before[:12]} → {now[:12]}"]


def _names_differing(group: Sequence[Settings]) -> list[str]:
    """Return the names of the parameters whose values differ between runs of a group."""
    first = group[0]
    names = dict.fromkeys(name for settings in group for name in settings)
    return [
        name for name in names if any(settings.get(name) != first.get(name) for settings in group)
    ]


def _told(name: str, settings: Settings, group: Sequence[Settings]) -> str:
    """Return the value of a parameter, as much of it as tells it apart from those of a group."""
    setting = settings.get(name)
    if setting is None:
        return _UNSET
    others = [other[name] for other in group if other.get(name, setting) != setting]
    if all(setting.short != other.short for other in others):
        return setting.short
    if all(setting.content != other.content for other in others):
        return setting.content
    return shorten(setting.whole, _LONGEST_WHOLE)


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a table and of the tables in it."""
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _setting(value: Any, files: Mapping[str, str]) -> Setting:
    """Return a value as text; a list of adapters names each by its path and weight."""
    if isinstance(value, list) and value and all(map(_is_adapter, value)):
        columns = zip(*(_adapter(entry, files) for entry in value), strict=True)
        return Setting(*map("+".join, columns))
    if isinstance(value, str) and value in files:
        content = named_file(value, files)
        return Setting(_last_names(value), content, content)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    short = shorten(text, _LONGEST)
    return Setting(short, short, text)


def _is_adapter(entry: Any) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("path"), str)


def _adapter(entry: Mapping[str, Any], files: Mapping[str, str]) -> Setting:
    """Return the file of an adapter with its weight; the whole has its other settings too."""
    path = entry["path"]
    weight = "" if entry.get("weight", 1) == 1 else f"×{entry['weight']}"
    content = named_file(path, files) + weight
    others = {name: value for name, value in entry.items() if name not in ("path", "weight")}
    rest = ", ".join(f"{name} {value}" for name, value in _flat(others) if value)
    return Setting(_last_names(path) + weight, content, f"{content} ({rest})" if rest else content)


def named_file(path: str, files: Mapping[str, str]) -> str:
    """Return the last two names of a path, with the digest of its content; the whole path if that
    is not known.
    """
    return f"{_last_names(path)}@{files[path]}" if path in files else path


def _last_names(path: str) -> str:
    return "/".join(PurePath(path).parts[-2:])
