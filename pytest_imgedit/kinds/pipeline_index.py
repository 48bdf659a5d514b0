"""What a pipeline's model_index.json must name, read from the source of diffusers and transformers,
which are not imported.
"""

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from pytest_imgedit.core import errors, files
from pytest_imgedit.kinds.user_code import signature, source_file

_OPTIONAL = "_optional_components"
#: The module of diffusers that maps names that transformers has given up.
_RENAMED = "diffusers.utils.deprecation_utils"
#: What stands before a class that is saved in the format of flashpack.
_READER = "FlashPack"


def require_components(folder: Path) -> None:
    """Raise `UsageError` for a component that the class of the pipeline in a folder needs, and that
    its index lacks or has as null, and for a class that its library does not have.

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
        if name.startswith("_") or not _is_entry(value):
            continue
        library, class_name = value[0], value[1].removeprefix(_READER)
        if library in _LACKS and _LACKS[library](class_name):
            raise errors.UsageError(
                f"{path}: {name!r} is {class_name!r:.60}, which the installed {library} does not "
                f"have, expected one of its classes: another version may have it"
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
def lacks_diffusers(name: str) -> bool:
    """Tell whether the installed diffusers exports no class of this name, by the lists in its
    source.
    """
    package = source_file("diffusers")
    return package is not None and not _quotes(package, name)


@cache
def lacks_transformers(name: str) -> bool:
    """Tell whether no source of the installed transformers holds the name of a class, and diffusers
    does not know another name for it. A tokenizer `…Fast` may stand for the one without that
    ending, which the source need not say.

    The lists of the automatic classes and the folders of models whose names the class begins with
    are looked at first: they have nearly all that pipelines name.
    """
    package = source_file("transformers")
    renamed = source_file(_RENAMED)
    if package is None or renamed is None or _quotes(renamed, name):
        return False
    root = package.parent
    word = re.compile(rf"\b{re.escape(name.removesuffix('Fast'))}(Fast)?\b")
    likely = [
        folder
        for folder in sorted((root / "models").glob("*/"))
        if name.lower().startswith(folder.name.replace("_", "")) or folder.name == "auto"
    ]
    for folder in (*likely, root):
        for path in folder.rglob("*.py"):
            if word.search(path.read_text("utf-8", "replace")):
                return False
    return True


def _quotes(path: Path, name: str) -> bool:
    """Tell whether a source file holds a name in quotes."""
    return re.search(rf"[\"']{re.escape(name)}[\"']", path.read_text("utf-8")) is not None


#: How it is known, by library, that it lacks a class.
_LACKS: dict[str, Callable[[str], bool]] = {
    "diffusers": lacks_diffusers,
    "transformers": lacks_transformers,
}
