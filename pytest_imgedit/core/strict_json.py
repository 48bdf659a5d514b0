"""JSON without features that other parsers reject or read differently."""

import json
import re
from collections import Counter
from typing import Any

JsonObject = dict[str, Any]


def loads(text: str) -> Any:
    """Return the value of a strict JSON text; raises `ValueError` for one that is not valid JSON,
    and for NaN, Infinity, a key that occurs twice, and a lone surrogate.
    """

    def refuse_constant(name: str) -> None:
        raise ValueError(f"{name} is not a JSON number")

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> JsonObject:
        values = dict(pairs)
        if len(values) != len(pairs):
            [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
            raise ValueError(f"key {twice!r} occurs twice")
        return values

    value = json.loads(text, parse_constant=refuse_constant, object_pairs_hook=refuse_duplicates)
    if re.search(r"\\u[dD][89a-fA-F]", text):  # a surrogate, which may lack its other half
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"lone surrogate {error.object[error.start]!a}, expected Unicode text"
            ) from None
    return value
