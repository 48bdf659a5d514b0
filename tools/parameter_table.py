"""Writes the tables of docs/models.md from the parameters that each kind of editor and judge
declares.

python tools/parameter_table.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_imgedit.kinds.base import Parameters
from pytest_imgedit.kinds.registry import BUILTIN, kind_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

    from pytest_imgedit.kinds.base import Role

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
_PLACE = re.compile(
    r"(<!-- parameters of (editor|judge) ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL
)


def rows(params: type[Parameters], section: str) -> Iterator[tuple[str, str, str]]:
    """Key, default and meaning of each parameter; those of a table follow it."""
    for name, field in params.model_fields.items():
        inner = field.annotation
        table = inner if isinstance(inner, type) and issubclass(inner, Parameters) else None
        yield f"`{section}.{name}`", "" if table else written(field), field.description or ""
        if table is not None:
            yield from rows(table, f"{section}.{name}")


def written(field: FieldInfo) -> str:
    """The default as TOML would have it."""
    value: Any = field.get_default(call_default_factory=True)
    return "none" if value in (None, [], {}) else f"`{json.dumps(value)}`"


def table(role: Role, name: str) -> str:
    """The table of a kind in Markdown."""
    params = kind_at(role, name, BUILTIN[role][name]).Params
    assert params is not None
    lines = [("key", "default", "meaning"), ("---",) * 3, *rows(params, role)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def page() -> str:
    """The page with its tables as they must be."""

    def filled(match: re.Match[str]) -> str:
        role: Role = "editor" if match[2] == "editor" else "judge"
        return f"{match[1]}{table(role, match[3])}{match[5]}"

    return _PLACE.sub(filled, PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
