"""Writes the tables of docs/models.md and docs/metrics.md from the parameters that each kind of
editor, judge and metric declares.

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

DOCS = Path(__file__).parent.parent / "docs"
PAGES = (DOCS / "models.md", DOCS / "metrics.md")
_PLACE = re.compile(
    r"(<!-- parameters of (editor|judge|metric) ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL
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
    section = f"metrics.{name}" if role == "metric" else role
    lines = [("key", "default", "meaning"), ("---",) * 3, *rows(params, section)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def filled(page: Path) -> str:
    """A page with its tables as they must be."""

    def fill(match: re.Match[str]) -> str:
        role: Any = match[2]
        return f"{match[1]}{table(role, match[3])}{match[5]}"

    return _PLACE.sub(fill, page.read_text())


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page))
