"""Writes the tables of docs/reference.md: options from their declarations, keys from the settings.

python tools/settings_table.py

What a setting means is the text below its field.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_imgedit.config.options import OPTIONS
from pytest_imgedit.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from pytest_imgedit.config.options import Option

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"
SECTIONS = ("suite", "editor", "judge", "gates", "workers", "run")
_PLACE = re.compile(r"(<!-- (options|keys) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_PAGE_NAME = re.compile(r"`docs/([\w-]+\.md)`")


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the texts below the fields of a model and of its bases."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not base.__module__.startswith("pytest_imgedit."):
            continue
        [definition] = ast.parse(inspect.getsource(base)).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in zip(definition.body, definition.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                match text:
                    case ast.Expr(value=ast.Constant(value=str(words))):
                        found[field.target.id] = " ".join(words.split())
    return found


def settings() -> Iterator[tuple[str, FieldInfo, str]]:
    """Return the key, the field and the meaning of each setting."""
    for section in SECTIONS:
        model: Any = Settings.model_fields[section].annotation
        texts = meanings(model)
        for name, field in model.model_fields.items():
            yield f"{section}.{name}", field, texts.get(name, "")


def written(field: FieldInfo) -> str:
    """Write a default as TOML would have it."""
    value: Any = field.get_default(call_default_factory=True)
    if value in (None, [], {}, ()):
        return ""
    return f"`{json.dumps(str(value) if isinstance(value, Path) else value)}`"


def options_table() -> Iterator[tuple[str, ...]]:
    """Give one row an option."""
    yield ("option", "key", "default", "meaning")
    known = {key: (field, text) for key, field, text in settings()}
    for option in OPTIONS:
        key = key_of(option)
        field, text = known.get(key, (None, ""))
        shown = f"`{key}`" if field and (not key.startswith("run.") or key == "run.reuse") else ""
        yield (flag(option), shown, written(field) if field else "", text or sentence(option))


def key_of(option: Option) -> str:
    """Return the key that an option sets; one without a key of its own names a model."""
    return option.toml or f"{option.name}.spec"


def flag(option: Option) -> str:
    """Write an option with what it takes."""
    return f"`{option.flag}`" if option.kind == "flag" else f"`{option.flag}={option.metavar}`"


def sentence(option: Option) -> str:
    """Make a sentence of the help of an option that no setting explains."""
    return option.help[0].upper() + option.help[1:] + "."


def keys_table() -> Iterator[tuple[str, ...]]:
    """Give one row a key that has no option."""
    yield ("key", "default", "meaning")
    by_option = set(map(key_of, OPTIONS))
    for key, field, text in settings():
        if key not in by_option and not key.startswith("run."):
            yield (f"`{key}`", written(field), text)


def table(rows: Iterator[tuple[str, ...]]) -> str:
    """Render rows, the first of which is the header, in Markdown."""
    header, *others = ((*(cell.replace("|", "\\|") for cell in row),) for row in rows)
    lines = [header, ("---",) * len(header), *others]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return _PAGE_NAME.sub(r"[`\1`](\1)", text)


def page() -> str:
    """Return the page with its tables as they must be."""
    tables = {"options": options_table, "keys": keys_table}
    return _PLACE.sub(
        lambda place: f"{place[1]}{table(tables[place[2]]())}{place[4]}", PAGE.read_text()
    )


if __name__ == "__main__":
    PAGE.write_text(page())
