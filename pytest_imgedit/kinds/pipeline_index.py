"""What a pipeline's model_index.json must name, read from the source of diffusers; imports neither
torch nor diffusers.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

from pytest_imgedit.core import errors, files
from pytest_imgedit.kinds.user_code import signature, source_file

_OPTIONAL = "_optional_components"


def require_components(folder: Path) -> None:
    """Raise `UsageError` for a component that the class of the pipeline in a folder needs, and that
    its index lacks or has as null, and for a class that diffusers does not have.

    The index of a pipeline that the installed diffusers lacks is not looked at, nor is one that is
    not here.
    """
    path = folder / "model_index.json"
    if not path.is_file():
        return
    index = files.read_object(path, "a diffusers checkpoint")
    pipeline = str(index.get("_class_name"))
    if pipeline_source(pipeline) is None:
        return
    for name in needed_components(pipeline):
        value = index.get(name)
        if name not in index or value is None or value == [None, None]:
            found = f"{name!r} is null" if name in index else f"no {name!r}"
            raise errors.UsageError(
                f"{path}: {found}, expected the component that {pipeline} needs"
            )
        if not _is_entry(value):
            raise errors.UsageError(
                f"{path}: {name!r} is {value!r:.60}, expected [LIBRARY, CLASS] of the component "
                f"that {pipeline} needs"
            )
    for name, value in index.items():
        is_of_diffusers = not name.startswith("_") and _is_entry(value) and value[0] == "diffusers"
        if is_of_diffusers and lacks_class(value[1]):
            raise errors.UsageError(
                f"{path}: {name!r} is {value[1]!r:.60}, which the installed diffusers does not "
                "have, expected one of its classes: a newer diffusers may have it"
            )


def _is_entry(value: Any) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2
    return is_pair and all(isinstance(part, str) for part in value)


@cache
def pipeline_source(name: str) -> Path | None:
    """Return the file of diffusers that defines a pipeline; `None` if none is found."""
    package = source_file("diffusers")
    if package is None:
        return None
    for path in sorted(package.parent.glob("pipelines/**/*.py")):
        if f"class {name}(" in path.read_text("utf-8"):
            return path
    return None


@cache
def needed_components(name: str) -> tuple[str, ...]:
    """Return the components without which a pipeline does not load: the parameters of its
    constructor that have no default, but for its optional components; none where its source is not
    found.
    """
    path = pipeline_source(name)
    constructor = None if path is None else signature(path, name, "__init__")
    if path is None or constructor is None:
        return ()
    optional = _optional_components(path, name)
    return tuple(part for part in constructor.required if part not in optional)


def _optional_components(path: Path, name: str) -> list[str]:
    """Return the texts of the list of optional components in the body of a class."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if not (isinstance(node, ast.ClassDef) and node.name == name):
            continue
        for line in node.body:
            if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == _OPTIONAL:
                return [str(text) for text in ast.literal_eval(line.value)]
    return []


@cache
def lacks_class(name: str) -> bool:
    """Tell whether the installed diffusers exports no class of this name, by the lists in its
    source; the classes of Flax stand for those without that prefix, as its loader takes them.
    """
    package = source_file("diffusers")
    if package is None:
        return False
    exported = package.read_text("utf-8")
    return not re.search(rf"[\"']{re.escape(name.removeprefix('Flax'))}[\"']", exported)
