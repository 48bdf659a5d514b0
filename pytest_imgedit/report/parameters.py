"""The parameters in which runs of one editor differ."""

import json
from collections.abc import Iterable, Sequence

from pytest_imgedit.core.results import Results
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import shorten

#: The most characters of a parameter's value.
_LONGEST = 40


def parameters_of(results: Results) -> JsonObject:
    """Return what may differ between two runs of one editor: its parameters, the seeds, and the
    judge with its parameters.
    """
    editor = results.run.options.editor
    judge = results.judge
    parameters: JsonObject = dict(results.editor.params)
    parameters |= {
        "seed": editor.seed,
        "seeds": editor.seeds,
        "judge": judge.spec,
        "protocol": judge.protocol,
    }
    for name, value in judge.params.items():
        parameters[f"judge.{name}"] = value
    return parameters


def differing(runs: Iterable[tuple[str, str, JsonObject]]) -> list[str]:
    """Name for each run the parameters that differ between the runs of its suite and editor.

    A run is its suite, its editor, and its parameters as `parameters_of` returns them.
    """
    rows = list(runs)
    groups: dict[tuple[str, str], list[JsonObject]] = {}
    for suite, editor, parameters in rows:
        groups.setdefault((suite, editor), []).append(parameters)
    texts = []
    for suite, editor, parameters in rows:
        names = _names_differing(groups[suite, editor])
        texts.append(" ".join(f"{name}={_value(parameters, name)}" for name in names))
    return texts


def _names_differing(group: Sequence[JsonObject]) -> list[str]:
    """Return the names of the parameters whose values differ between runs of a group."""
    first = group[0]
    names = dict.fromkeys(name for parameters in group for name in parameters)
    return [
        name
        for name in names
        if any(parameters.get(name) != first.get(name) for parameters in group)
    ]


def _value(parameters: JsonObject, name: str) -> str:
    value = parameters.get(name, "default")
    return shorten(value if isinstance(value, str) else json.dumps(value), _LONGEST)
