"""Results whose every free text is hostile. They are made from the models themselves, so that a new
field is hostile too.
"""

from __future__ import annotations

import copy
import types
import typing
import unicodedata
from typing import Any, Literal

from pydantic import BaseModel

from pytest_imgedit.core import results

#: Characters that control a terminal or the order of a line, each kind once.
STEERING = (
    "\x1b\x07\r\x00\x7f\x9b\x85\u2028\u2029\u200e\u200f\u061c\u202e\u2066\u2069\ufeff\U000e0041"
)
#: What a text with a line break would have begin a line of its own.
FORGED = "FORGED LINE"
#: Texts that are not free, with one that is allowed: those of a type with a pattern, ...
PATTERNS = {
    results.PairId: "p1",
    results.Category: "physics",
    results.Sha256: "ab" * 32,
    results.Signature: "A" * 1366 + "==",
    results.BlobPath: f"ab/{'ab' * 32}.png",
}
#: ... and those of a field with a pattern of its own.
CLOSED = {"RunInfo.name": "r"}
#: Fields that name one thing have one text.
SAME = {
    "Results.categories": "a category",
    "SuiteInfo.labels": "a category",
    "Results.measures": "a measure",
    "Comparison.measures": "a measure",
    "Item.aspects": "a measure",
    "Verdict.aspects": "a measure",
    "MeasuredGroups.rows": "a group",
    "Comparison.rows": "a group",
    "Comparison.measures, inside": "a group",
    "Duel.measures": "a measure",
    "Duel.measures, inside": "a group",
    "Duel.disagreement": "a measure",
    "Duel.first": "a measure",
    "Vote.values": "a measure",
    "Results.further": "a further judge",
    "SeedResult.further": "a further judge",
}
#: Values that other parts of a document must agree with, or that let more of it be shown.
GIVEN: dict[str, Any] = {
    "Measure.scale": [0.0, 10.0],
    "Options.judge": {"gpus_per_replica": 1},
    "Options.workers": {"gpus_per_worker": 1},
    "SelectionInfo.shard": None,
    "Summary.scored": 3,
    "GateResult.state": "FAIL",
    "ComparedPair.difference": -0.25,
    "ProtocolTable.sees_change": False,
    "Duel.by_scores": False,
    "SeedTrial.varies": False,
}


def steering_in(text: str, keep: str = "\n") -> list[str]:
    """List the characters of a text that control a terminal or the order of a line, except those of
    `keep`.
    """
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return [
        ascii(char) for char in text if unicodedata.category(char) in kinds and char not in keep
    ]


class HostileTexts:
    """Makes values of the models, with a hostile text in each free field; `marks` has what each
    text begins with, by its field.
    """

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}

    def text(self, field: str) -> str:
        """Return the text of a field."""
        if field in CLOSED:
            return CLOSED[field]
        field = SAME.get(field, field)
        mark = self.marks.setdefault(field, f"Q{len(self.marks):03}Q")
        return f"{mark}{STEERING}\n{FORGED}"

    def value(self, kind: Any, field: str = "") -> Any:
        """Return a value of a type, as JSON has it."""
        if field in GIVEN:
            return copy.deepcopy(GIVEN[field])
        if kind in PATTERNS:
            return PATTERNS[kind]
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is Literal:
            return arguments[0]
        if origin in (typing.Annotated, typing.Union, types.UnionType):
            return self.value(arguments[0], field)
        if origin is tuple:
            parts = arguments[:1] if arguments[-1] is Ellipsis else arguments
            return [self.value(part, field) for part in parts]
        if origin is not None:
            key, value = arguments
            inside = f"{field}, inside" if typing.get_origin(value) is dict else field
            return {self.value(key, field): self.value(value, inside)}
        if kind in (str, Any):
            return self.text(field)
        if kind in (bool, int, float):
            return {bool: True, int: 1, float: 0.25}[kind]
        names = kind.model_fields if issubclass(kind, BaseModel) else kind.__dataclass_fields__
        hints = typing.get_type_hints(kind, include_extras=True)
        return {
            "schema" if name == "schema_name" else name: self.value(
                hints[name], f"{_owner(kind, name)}.{name}"
            )
            for name in names
        }


def _owner(kind: type, name: str) -> str:
    """Return the class that declares a field."""
    classes = [base for base in kind.__mro__ if name in vars(base).get("__annotations__", {})]
    return classes[-1].__name__


def hostile_run(run: int = 0) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a results document of nine pairs, and the marks of its texts; documents with other
    numbers are of other runs of the same pairs.
    """
    texts = HostileTexts()
    document = texts.value(results.Results)
    document["run"]["id"] = f"{run}{document['run']['id']}"
    document["judge"]["canary"]["models"] *= 2
    measures, comparison = document["measures"], document["comparison"]
    (measure,), (compared,) = measures.values(), comparison["measures"].values()
    for groups in (measure["rows"], compared, comparison["rows"]):
        groups["overall"] = copy.deepcopy(next(iter(groups.values())))
    measure["rows"]["overall"]["mean"] = 0.5
    _add_rows(document["duel"]["measures"])
    for name in ("score", "realism"):
        measures[name] = copy.deepcopy(measure)
        comparison["measures"][name] = copy.deepcopy(compared)
    document["items"] = [_item(document["items"][0], number, run) for number in range(9)]
    comparison["pairs"] = {item["id"]: {**comparison["pairs"]["p1"]} for item in document["items"]}
    return document, texts.marks


def _add_rows(measures: dict[str, dict[str, Any]]) -> None:
    """Give a duel the score of all pairs, and of one measure all pairs too."""
    (groups,) = measures.values()
    groups["overall"] = copy.deepcopy(next(iter(groups.values())))
    measures["score"] = copy.deepcopy(groups)


def _item(item: dict[str, Any], number: int, run: int) -> dict[str, Any]:
    """Return a pair like another one; the last one has no score."""
    item = copy.deepcopy(item)
    score = (number * 3 + run * (number % 2)) % 7 + 1.0
    is_scored = number < 8
    item |= {
        "id": f"p{number}",
        "source": f"{number}b/{f'{number}b' * 32}.png",
        "status": "scored" if is_scored else "judge_error",
        "score": score if is_scored else None,
        "aspects": {**dict.fromkeys(item["aspects"], score), "realism": score} if is_scored else {},
    }
    seed = item["seeds"][0]
    if is_scored:
        item["error"] = seed["error"] = None
        seed["verdict"]["score"] = score
    else:
        seed["verdict"] = None
    return item
