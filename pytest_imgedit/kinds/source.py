"""Reads what modules hold from their source, without importing them."""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_imgedit.core.sanitize import did_you_mean
from pytest_imgedit.core.strict_json import JsonObject


def source_file(module: str) -> Path | None:
    """Find a module's file without importing the module itself (its parent packages are only looked
    up).
    """
    top, *rest = module.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not rest:
        if spec.origin:
            return Path(spec.origin)
        return None
    for folder in spec.submodule_search_locations or ():
        base = Path(folder, *rest)
        for candidate in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None


def top_level_names(path: Path) -> set[str]:
    """Names that a module binds by classes, functions, imports and assignments, read from its
    source.
    """
    names: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
            continue  # what is bound inside stays inside
        if isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        waiting.extend(ast.iter_child_nodes(node))
    return names


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters of a method as its source writes them: name -> annotation, and whether it takes
    `**kwargs`.

    `defaults` holds those that are plain values.
    """

    annotations: Mapping[str, str]
    open_ended: bool
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def problem(
        self, params: Mapping[str, Any], reserved: Container[str]
    ) -> tuple[str, str] | None:
        """Return the first parameter that does not fit, with the reason; `reserved` names are set
        by the harness.
        """
        for name, value in params.items():
            if name in reserved or (name not in self.annotations and not self.open_ended):
                return name, f"no such argument is taken{did_you_mean(name, self.annotations)}"
            wanted = [part.strip() for part in self.annotations.get(name, "").split("|")]
            if set(wanted) <= {*_PLAIN_TYPES, "None"} and not any(
                _is_a(value, part) for part in wanted
            ):
                return (
                    name,
                    f"found {value!r}, expected "
                    f"{' or '.join(part for part in wanted if part != 'None')}",
                )
        return None


_PLAIN_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
}


def _is_a(value: object, name: str) -> bool:
    return isinstance(value, _PLAIN_TYPES.get(name, ())) and (
        name == "bool" or not isinstance(value, bool)
    )


def signature(path: Path, class_name: str, method: str) -> Signature | None:
    """Read the signature of `class_name.method` from source; `None` where this file does not hold
    it.
    """
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == method:
                    every = (*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs)
                    written = {
                        a.arg: ast.unparse(a.annotation) if a.annotation else ""
                        for a in every
                        if a.arg != "self"
                    }
                    return Signature(written, item.args.kwarg is not None, _defaults(item.args))
    return None


def class_defaults(paths: Iterable[Path], class_name: str) -> JsonObject:
    """Read what `__init__` of a class has by default from source files, those of its bases in these
    files included.
    """
    classes: dict[str, ast.ClassDef] = {}
    for path in paths:
        if path.suffix == ".py":
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    classes.setdefault(node.name, node)
    found: JsonObject = {}
    waiting = [class_name]
    while waiting:
        known = classes.pop(waiting.pop(0), None)
        if known is None:
            continue
        for item in known.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                found = {**_defaults(item.args), **found}
        waiting += [
            base.id if isinstance(base, ast.Name) else getattr(base, "attr", "")
            for base in known.bases
        ]
    return found


def _defaults(arguments: ast.arguments) -> JsonObject:
    positional = [*arguments.posonlyargs, *arguments.args]
    given = positional[len(positional) - len(arguments.defaults) :]
    pairs = [
        *zip(given, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    found = {}
    for argument, value in pairs:
        if value is not None:
            with suppress(ValueError):  # computed: not known without running it
                found[argument.arg] = ast.literal_eval(value)
    return found


def is_installed(path: Path) -> bool:
    """Tell whether a path lies in the folders of this interpreter: its library and what is
    installed there.
    """
    return any(path.is_relative_to(folder) for folder in _own_folders())


@cache
def _own_folders() -> tuple[Path, ...]:
    return tuple(
        {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    )


def is_third_party(path: Path) -> bool:
    """Tell whether a file belongs to an interpreter's library or to an installed package, of
    whatever environment.
    """
    return bool({"site-packages", "dist-packages"} & set(path.parts)) or is_installed(path)


def user_import_paths() -> list[str]:
    """Entries of `sys.path` that a worker needs so that it finds the modules that this process
    finds.
    """
    entries = [Path(entry).absolute() for entry in sys.path if not entry.endswith(".zip")]
    return [str(entry) for entry in entries if not is_installed(entry)]
