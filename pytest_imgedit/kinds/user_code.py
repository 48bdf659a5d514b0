"""What the source of modules says, read without importing them: their names and signatures, and
all the code that a class of a user consists of.
"""

import ast
import os
import re
import socket
import symtable
import sys
import sysconfig
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import packages_distributions, requires
from importlib.util import find_spec, resolve_name
from itertools import accumulate
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote_to_bytes

from pytest_imgedit.core import errors, strict_json
from pytest_imgedit.core.files import digest
from pytest_imgedit.core.text import did_you_mean

_THIS_PACKAGE = "pytest_imgedit"
#: Modules of this package by which a user's class computes with torch.
COMPUTE = {
    f"{_THIS_PACKAGE}.kinds.{name}"
    for name in ("diffusers", "qwen_vl", "compute.fsdp", "compute.pipeline", "sharded_editor")
}
_PLAIN_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
}
_URI = "file://"
#: The folders of this interpreter.
_INSTALLED = {
    Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")
}
#: Where the commands of this environment are, the first entry of `sys.path` in each of them.
_SCRIPTS = Path(sysconfig.get_path("scripts"))
#: Files by which pytest knows its root folder.
_ROOT_FILES = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "setup.py")
#: Distributions by the packages that they install; reading them all takes a tenth of a second.
_distributions = cache(packages_distributions)


def source_file(module: str) -> Path | None:
    """Return a module's source file without importing it or its packages; `None` if none is found.
    Of a top-level module, return what its import would load, which may be a compiled file.
    """
    top, *rest = module.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not rest and spec.origin:
        return Path(spec.origin)
    bases = [Path(folder, *rest) for folder in spec.submodule_search_locations or ()]
    for base in bases:
        for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None


def keys_of_table(module: str, name: str) -> list[str]:
    """Return the keys of a dictionary that a module binds to a name, read from its source: texts,
    and the last names of attributes; none if it is not found.
    """
    path = source_file(module)
    body = ast.parse(path.read_text("utf-8")).body if path else []
    tables = [
        node.value
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    ]
    keys = [key for table in tables if isinstance(table, ast.Dict) for key in table.keys]
    return [
        key.attr if isinstance(key, ast.Attribute) else str(key.value)
        for key in keys
        if isinstance(key, ast.Attribute | ast.Constant)
    ]


def top_level_names(path: Path) -> set[str]:
    """Return the names that a module binds by classes, functions, imports and assignments, read
    from its source.
    """
    symbols = symtable.symtable(path.read_text("utf-8"), "<unknown>", "exec").get_symbols()
    return {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters of a method as its source writes them: name -> annotation, and whether it takes
    `**kwargs`.

    `defaults` holds those that are plain values; `required` are the names that have none.
    """

    annotations: Mapping[str, str]
    open_ended: bool
    defaults: Mapping[str, Any] = field(default_factory=dict)
    required: Sequence[str] = ()

    @classmethod
    def of(cls, arguments: ast.arguments) -> Self:
        """Return the parameters of a definition, except `self`."""
        positional = arguments.posonlyargs + arguments.args
        without_default = positional[: len(positional) - len(arguments.defaults)]
        for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if value is None:
                without_default.append(argument)
        annotations: dict[str, str] = {}
        for argument in positional + arguments.kwonlyargs:
            if argument.arg != "self":
                annotation = argument.annotation
                annotations[argument.arg] = ast.unparse(annotation) if annotation else ""
        required = [argument.arg for argument in without_default if argument.arg in annotations]
        return cls(annotations, arguments.kwarg is not None, _defaults(arguments), required)

    def check(
        self, params: Mapping[str, Any], reserved: Container[str], beside: Iterable[str] = ()
    ) -> None:
        """Raise `SettingError` for the first parameter that is not taken, that is `reserved` for
        the harness, or that is not of its annotated type, if that is made of plain types. Names
        that are taken elsewhere, `beside` these parameters, are suggested too.
        """
        names = [name for name in self.annotations if name not in reserved] + list(beside)
        for name, value in params.items():
            if name in reserved or (name not in self.annotations and not self.open_ended):
                raise errors.SettingError(
                    name, f"no such argument is taken{did_you_mean(name, names)}"
                )
            types = [part.strip() for part in self.annotations.get(name, "").split("|")]
            is_plain = set(types) <= _PLAIN_TYPES.keys() | {"None"}
            if is_plain and not any(_is_a(value, type_name) for type_name in types):
                types = [type_name for type_name in types if type_name != "None"]
                raise errors.SettingError(name, f"found {value!r}, expected {' or '.join(types)}")


def _is_a(value: object, type_name: str) -> bool:
    return isinstance(value, _PLAIN_TYPES.get(type_name, ())) and (
        type_name == "bool" or not isinstance(value, bool)
    )


def signature(path: Path, class_name: str, method: str) -> Signature | None:
    """Return the signature of `class_name.method`, read from source; `None` if the file does not
    define it. The first definition counts.
    """
    definitions = _arguments_of(ast.parse(path.read_text("utf-8")).body, class_name, method)
    return Signature.of(definitions[0]) if definitions else None


def class_defaults(paths: Iterable[Path], class_name: str) -> strict_json.JsonObject:
    """Return the defaults of the `__init__` of a class and of its bases that are plain values, for
    those of the classes that these source files define; a class comes before its bases.
    """
    defaults: strict_json.JsonObject = {}
    for _, class_node in with_bases(paths, class_name):
        for arguments in _arguments_of([class_node], class_node.name, "__init__"):
            defaults = {**_defaults(arguments), **defaults}
    return defaults


def with_bases(paths: Iterable[Path], class_name: str) -> Iterator[tuple[Path, ast.ClassDef]]:
    """Yield a class and its bases with their files, as far as these source files define them; a
    class comes before its bases.
    """
    classes: dict[str, tuple[Path, ast.ClassDef]] = {}
    for path in paths:
        if path.suffix == ".py":
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    classes.setdefault(node.name, (path, node))  # the first of a name counts
    waiting = [class_name]
    while waiting:
        found = classes.pop(waiting.pop(0), None)
        if found is not None:
            yield found
            for base in found[1].bases:
                waiting.append(base.id if isinstance(base, ast.Name) else getattr(base, "attr", ""))


def _arguments_of(nodes: Sequence[ast.stmt], class_name: str, method: str) -> list[ast.arguments]:
    """Return the arguments of each definition of a method in classes with this name."""
    found: list[ast.arguments] = []
    for node in nodes:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == method:
                    found.append(item.args)
    return found


def _defaults(arguments: ast.arguments) -> strict_json.JsonObject:
    """Return the defaults that are plain values, by the names of their arguments."""
    positional = arguments.posonlyargs + arguments.args
    with_default = positional[len(positional) - len(arguments.defaults) :]
    pairs: list[tuple[ast.arg, ast.expr | None]] = []
    pairs += zip(with_default, arguments.defaults, strict=True)
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    defaults: strict_json.JsonObject = {}
    for argument, value in pairs:
        if value is not None:
            with suppress(ValueError):  # computed: not known without running it
                defaults[argument.arg] = ast.literal_eval(value)
    return defaults


def source_closure(module: str) -> tuple[dict[str, Path], set[str]]:
    """Return, by name, the source files of a module and of the first-party modules that it imports,
    directly or through others, and the names of the installed packages that these import.

    Nothing is imported. First-party is what lies outside folders of installed packages, as in the
    user's repository or an editable install, and the module's own top-level package wherever it is.
    Imports inside functions count too; a module whose name is computed when it is imported cannot
    be seen. `torch` is among the packages if a module of this one is imported that computes with
    it.
    """
    files: dict[str, Path] = {}
    packages: set[str] = set()
    seen: set[str] = set()
    waiting = list(_with_parents(module))
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in COMPUTE:
            packages.add("torch")
        root = name.partition(".")[0]
        is_known = root in sys.stdlib_module_names or root == _THIS_PACKAGE
        path = None if is_known else source_file(name)
        if path is None:
            continue
        if root != module.partition(".")[0] and is_third_party(path):
            packages.add(root)
        else:
            files[name] = path
            waiting += _imported(name, path)
    return files, packages


def _with_parents(module: str) -> Iterator[str]:
    """Yield a dotted name and the packages around it, which run first when it is imported."""
    return accumulate(module.split("."), "{}.{}".format)


def _imported(module: str, path: Path) -> list[str]:
    """Return the names that a source file imports, with the packages around them; attributes of
    modules may be among them. A file that is not valid Python has none.
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
            with suppress(ImportError):  # a relative import beyond the top
                base = resolve_name("." * node.level + (node.module or ""), package)
                names.append(base)
                names += [f"{base}.{alias.name}" for alias in node.names]
    return [name for imported in names for name in _with_parents(imported)]


def libraries_behind(packages: Iterable[str]) -> tuple[str, ...]:
    """Return the names, in lower case, of the distributions whose versions decide the results of
    code that imports these packages: their own, torch if one of them requires it, and, beside
    torch, diffusers or transformers, all libraries through which these compute.
    """
    by_package = _distributions()
    names: set[str] = set()
    for package in packages:
        names.update(by_package.get(package, ()))
    requirements: list[str] = []
    for name in names:
        requirements += requires(name) or ()
    # as accelerate does; an optional requirement does not count
    if any(re.match(r"torch\b(?!.*extra)", line) for line in requirements):
        names.update(by_package.get("torch", ()))
    libraries = {name.lower() for name in names}
    if libraries & {"torch", "diffusers", "transformers"}:  # code computes with these through them
        libraries |= {"torch", "torchvision", "diffusers", "transformers", "numpy", "pillow"}
    return tuple(sorted(libraries))


def is_installed(path: Path) -> bool:
    """Tell whether a path lies in the folders of this interpreter: its library and what is
    installed there.
    """
    return any(path.is_relative_to(folder) for folder in _INSTALLED)


def is_third_party(path: Path) -> bool:
    """Tell whether a file belongs to an interpreter's library or to an installed package, of this
    environment or another one.
    """
    return bool({"site-packages", "dist-packages"} & set(path.parts)) or is_installed(path)


def user_import_paths() -> list[str]:
    """Return the entries of `sys.path` that a worker needs to find the modules that this process
    finds.
    """
    entries = [Path(entry).absolute() for entry in sys.path if not entry.endswith(".zip")]
    return [str(entry) for entry in entries if not is_installed(entry) and entry != _SCRIPTS]


def find_user_modules(config: Path | None, *folders: Path) -> None:
    """Let specs such as `my_editor:Mine` name modules in the folders of the user, in whichever
    folder a command is called.

    They are added to the end of the import path in this order: the folder of the config (without
    one, the working folder); its parent, if that folder is called `benchmarks`; and `folders`,
    which are pytest's root folder and the working folder. Without pytest, its root folder is taken
    to be the nearest one with a file by which pytest knows it.
    """
    config_folder = Path.cwd() if config is None else config.absolute().parent
    above = [config_folder.parent] if config_folder.name == "benchmarks" else []
    if not folders:
        around = (config_folder, *config_folder.parents)
        roots = [folder for folder in around if _is_root(folder)]
        folders = (*roots[:1], Path.cwd())
    for folder in [config_folder] + above + list(folders):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


def _is_root(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _ROOT_FILES)


def loaded_code() -> dict[str, str]:
    """Return the SHA-256 of the first-party modules that this process has imported, by file.

    A path that is not UTF-8, which no message and no record could hold, is written as a `file:`
    URI.
    """
    digests = {}
    for name, module in sys.modules.copy().items():  # another thread may import
        file = str(getattr(module, "__file__", None) or "")
        if name.startswith(("__", _THIS_PACKAGE)) or not _is_first_party(file):
            continue
        path = Path(file)
        if path.is_file():
            has_surrogates = any("\ud800" <= letter <= "\udfff" for letter in file)
            written = path.absolute().as_uri() if has_surrogates else str(path.absolute())
            digests[written] = digest(path)
    return digests


@cache  # thousands of modules, looked at again whenever one more is imported
def _is_first_party(file: str) -> bool:
    return not is_third_party(Path(file))


def require_code(code: Mapping[str, str]) -> None:
    """Raise `SetupError` unless the modules of a class, by name, have the source here that they
    have elsewhere.
    """
    for name, sha256 in code.items():
        path = source_file(name)
        if path is None or not is_unchanged({str(path): sha256}):
            difference = f"{path}: another source" if path else f"module {name}: no source file"
            raise errors.SetupError(
                f"{difference} on {socket.gethostname()}, expected that of {name} where the run "
                "started"
            )


def is_unchanged(code: Mapping[str, str]) -> bool:
    """Tell whether files (as `loaded_code` names them) still have the content of these SHA-256
    digests.
    """
    try:
        return all(digest(_path_of(written)) == sha256 for written, sha256 in code.items())
    except OSError:
        return False


def _path_of(written: str) -> Path:
    if not written.startswith(_URI):
        return Path(written)
    return Path(os.fsdecode(unquote_to_bytes(written.removeprefix(_URI))))
