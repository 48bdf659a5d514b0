"""The code that a class of the user's own consists of: its module, and all that this imports of the
user's own.
"""

from __future__ import annotations

import ast
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from urllib.parse import unquote_to_bytes

from pytest_imgedit.core.errors import SetupError
from pytest_imgedit.core.files import digest
from pytest_imgedit.kinds.source import is_third_party, source_file

_OWN_PACKAGE = "pytest_imgedit"
#: Modules of this package by which a class of the user's own computes with torch.
COMPUTE = {
    f"{_OWN_PACKAGE}.kinds.{name}"
    for name in ("diffusers", "qwen_vl", "compute.fsdp", "compute.pipeline", "sharded_editor")
}
_URI = "file://"


@dataclass(frozen=True)
class Closure:
    """Source files of first-party modules by name, and names of the installed packages that they
    import.
    """

    files: dict[str, Path]
    packages: frozenset[str]

    def distributions(self) -> set[str]:
        """Return the names of the distributions behind `packages`, in lower case."""
        known = _distributions()
        names = {name for package in self.packages for name in known.get(package, ())}
        if any(_needs_torch(name) for name in names):
            names |= set(known.get("torch", ()))
        return {name.lower() for name in names}


def _needs_torch(distribution: str) -> bool:
    """Tell whether a distribution requires torch without any extra, as accelerate does."""
    return any(re.match(r"torch\b(?!.*extra)", line) for line in requires(distribution) or ())


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Names of distributions by the package that they install; reading them all takes a tenth of a
    second.
    """
    return packages_distributions()


def source_closure(module: str) -> Closure:
    """Follow the imports of a module, which is not imported itself, through all first-party
    modules.

    First-party is what lies outside folders of installed packages, as in the user's repository or
    an editable install, and the module's own top-level package wherever it is. Imports inside
    functions count too; a module whose name is computed when it is imported cannot be seen.
    """
    top = module.partition(".")[0]
    files: dict[str, Path] = {}
    packages: set[str] = set()
    seen: set[str] = set()
    waiting = list(_with_parents(module))
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        root = name.partition(".")[0]
        if name in COMPUTE:
            packages.add("torch")
        path = (
            None if root in sys.stdlib_module_names or root == _OWN_PACKAGE else source_file(name)
        )
        if path is None:
            continue
        if root != top and is_third_party(path):
            packages.add(root)
            continue
        files[name] = path
        waiting += _imported(name, path)
    return Closure(files, frozenset(packages))


def _with_parents(module: str) -> Iterator[str]:
    """Yield a dotted name and the packages around it, which run first when it is imported."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _imported(module: str, path: Path) -> list[str]:
    """Names that a source file imports, with the packages around them; attributes of modules may be
    among them.
    """
    if path.suffix != ".py":
        return []
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # the worker will say so
        return []
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)] if base else []
    return [name for named in names for name in _with_parents(named)]


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """Return the absolute name of what `from … import` names; empty for a relative import beyond
    the top.
    """
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    if node.level - 1 >= len(parts):
        return ""
    return ".".join(
        [*parts[: len(parts) - (node.level - 1)], *([node.module] if node.module else [])]
    )


def loaded_code() -> dict[str, str]:
    """Return the SHA-256 of the first-party modules that this process has imported, by file.

    A path that is not UTF-8, which no message and no record could hold, is written as a `file:`
    URI.
    """
    found = {}
    for name, module in sys.modules.copy().items():  # another thread may import
        path = getattr(module, "__file__", None)
        if not path or name.startswith(("__", _OWN_PACKAGE)) or is_third_party(Path(path)):
            continue
        if Path(path).is_file():
            found[_written(Path(path).absolute())] = digest(Path(path))
    return found


def _written(path: Path) -> str:
    is_text = not any("\ud800" <= letter <= "\udfff" for letter in str(path))
    if is_text:
        return str(path)
    return path.as_uri()


def _read(written: str) -> Path:
    if not written.startswith(_URI):
        return Path(written)
    return Path(os.fsdecode(unquote_to_bytes(written.removeprefix(_URI))))


def require_code(code: Mapping[str, str]) -> None:
    """Raise `SetupError` unless the modules of a class, by name, have the source here that they
    have elsewhere.
    """
    for name, sha256 in code.items():
        path = source_file(name)
        if path is None or not is_unchanged({str(path): sha256}):
            found = f"{path}: another source" if path else f"module {name}: no source file"
            raise SetupError(
                f"{found} on {socket.gethostname()}, expected that of {name} where the run started"
            )


def is_unchanged(code: Mapping[str, str]) -> bool:
    """Tell whether files (as `loaded_code` names them) still have the content of these SHA-256
    digests.
    """
    for path, sha256 in code.items():
        try:
            if digest(_read(path)) != sha256:
                return False
        except OSError:
            return False
    return True
