"""JSON without what other readers refuse or read differently."""

from __future__ import annotations

import json
from typing import Any

JsonObject = dict[str, Any]


def loads(text: str) -> Any:
    """Parse strict JSON: raises `ValueError` for NaN, Infinity, and a key that occurs twice."""

    def refuse_constant(name: str) -> None:
        raise ValueError(f"{name} is not a JSON number")

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> JsonObject:
        values = dict(pairs)
        if len(values) != len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"key {next(n for n in names if names.count(n) > 1)!r} occurs twice")
        return values

    return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=refuse_duplicates)
