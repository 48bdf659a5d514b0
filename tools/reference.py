"""Writes what the pages of `docs/` take from code: each part between `<!-- from code: NAME -->` and
`<!-- end -->`, and docs/results.schema.json.

python -m tools.reference

What a setting, a parameter or an attribute means is said in the code, below its declaration.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grimp

from pytest_imgedit.cli.main import COMMANDS
from pytest_imgedit.config.options import OPTIONS
from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.results import Results
from pytest_imgedit.kinds.base import CheckpointModel, Metric, Model, Parameters
from pytest_imgedit.kinds.pipeline_arguments import ADAPTERS, Adapter, call_signature
from pytest_imgedit.kinds.registry import BUILTIN, CUSTOM, kind_at
from pytest_imgedit.plugin import fixtures, hookspecs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import ModuleType

    from pydantic.fields import FieldInfo

    from pytest_imgedit.cli.main import Command
    from pytest_imgedit.config.options import Option

DOCS = Path(__file__).parent.parent / "docs"
SCHEMA = DOCS / "results.schema.json"
SECTIONS = ("suite", "editor", "judge", "gates", "workers", "run")
_PLACE = re.compile(
    r"(?P<start><!-- from code: (?P<name>[^\n]+) -->\n)(.*?)(?P<end><!-- end -->)", re.DOTALL
)
_PAGE_NAME = re.compile(r"`docs/([\w-]+\.md)`")
Row = tuple[str, ...]


# Markdown


def table(header: Row, rows: Iterable[Row]) -> str:
    """Render a table; in a text, `docs/PAGE.md` becomes a link."""
    lines = [header, ("---",) * len(header)]
    lines += rows
    text = ""
    for line in lines:
        cells = [cell.replace("|", "\\|") for cell in line]
        text += f"| {' | '.join(cells)} |\n"
    return _PAGE_NAME.sub(r"[`\1`](\1)", text)


def written(value: Any) -> str:
    """Write a default as TOML would have it."""
    if value in (None, [], {}, ()):
        return ""
    return f"`{json.dumps(str(value) if isinstance(value, Path) else value)}`"


def default_of(field: FieldInfo) -> str:
    """Write the default of a field."""
    return written(field.get_default(call_default_factory=True))


def paragraphs(docstring: str | None) -> str:
    """Return a docstring without its examples, each paragraph in one line."""
    text = inspect.cleandoc(docstring or "").split("\n>>>")[0].strip()
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def in_a_cell(docstring: str | None) -> str:
    """Return a docstring without its examples in one line."""
    return paragraphs(docstring).replace("\n\n", " ")


def sentence(text: str) -> str:
    """Make a sentence of a line of help."""
    return f"{text[0].upper()}{text[1:]}."


# Attributes


@cache
def definition(model: type) -> ast.ClassDef:
    """Return the definition of a class."""
    [node] = ast.parse(inspect.getsource(model)).body
    assert isinstance(node, ast.ClassDef)
    return node


def meanings(model: type) -> dict[str, str]:
    """Return the texts below the fields of a class and of its bases in this package."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not base.__module__.startswith("pytest_imgedit."):
            continue
        body = definition(base).body
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                match text:
                    case ast.Expr(value=ast.Constant(value=str(words))):
                        texts[field.target.id] = " ".join(words.split())
    return texts


# Settings and options


def settings() -> Iterator[tuple[str, FieldInfo, str]]:
    """Return the key, the field and the meaning of each setting."""
    for section in SECTIONS:
        model: Any = Settings.model_fields[section].annotation
        texts = meanings(model)
        for name, field in model.model_fields.items():
            yield f"{section}.{name}", field, texts.get(name, "")


def key_of(option: Option) -> str:
    """Return the key that an option sets; one without a key of its own names a model."""
    return option.toml or f"{option.name}.spec"


def options() -> str:
    """One row an option of pytest."""
    known = {key: (field, text) for key, field, text in settings()}
    rows = []
    for option in OPTIONS:
        key = key_of(option)
        field, text = known.get(key, (None, ""))
        has_key = field and (not key.startswith("run.") or key == "run.reuse")
        flag = option.flag if option.kind == "flag" else f"{option.flag}={option.metavar}"
        shown_key = f"`{key}`" if has_key else ""
        default = default_of(field) if field else ""
        rows.append((f"`{flag}`", shown_key, default, text or sentence(option.help)))
    return table(("option", "key", "default", "meaning"), rows)


def keys() -> str:
    """One row a key that has no option."""
    by_option = set(map(key_of, OPTIONS))
    rows = [
        (f"`{key}`", default_of(field), text)
        for key, field, text in settings()
        if key not in by_option and not key.startswith("run.")
    ]
    return table(("key", "default", "meaning"), rows)


# Kinds


def kinds(role: Any) -> str:
    """One row a kind of a role."""
    rows: list[Row] = []
    for name, path in BUILTIN[role].items():
        kind = kind_at(role, name, path)
        spec = f"`{name}:{kind.takes}`" if kind.takes else f"`{name}`"
        meaning = in_a_cell(kind.__doc__)
        if issubclass(kind, Metric):
            better = "lower" if kind.measure.lower_is_better else "higher"
            rows.append((spec, meaning, kind.measure.range, better, parameter_names(kind.Params)))
        else:
            rows.append((spec, meaning))
    header: Row = ("spec", "what it is")
    custom: Row = ("`package.module:Class`", in_a_cell(CUSTOM[role].__doc__))
    if role == "metric":
        header += ("scale", "better", "parameters")
        custom += ("no fixed scale", "higher", "")
    rows.append(custom)
    return table(header, rows)


def parameter_names(params: type[Parameters] | None) -> str:
    """List the names of parameters."""
    return ", ".join(f"`{name}`" for name in params.model_fields) if params else ""


def parameters(role: Any, name: str) -> str:
    """One row a parameter of a kind."""
    params = kind_at(role, name, BUILTIN[role][name]).Params
    assert params is not None
    section = f"metrics.{name}" if role == "metric" else role
    return table(("key", "default", "meaning"), parameter_rows(params, section))


def parameter_rows(params: type[Parameters], section: str) -> Iterator[Row]:
    """Key, default and meaning of each parameter; those of a table follow it."""
    for name, field in params.model_fields.items():
        inner = field.annotation
        is_table = isinstance(inner, type) and issubclass(inner, Parameters)
        default = "" if is_table else default_of(field) or "none"
        yield f"`{section}.{name}`", default, field.description or ""
        if is_table:
            yield from parameter_rows(inner, f"{section}.{name}")  # type: ignore[arg-type]


def attributes() -> str:
    """One row an attribute that a kind may set."""
    rows = []
    for base in (Model, CheckpointModel, Metric):
        texts = meanings(base)
        for node in definition(base).body:
            if isinstance(node, ast.AnnAssign) and "ClassVar" in ast.unparse(node.annotation):
                name = ast.unparse(node.target)
                default = f"`{ast.unparse(node.value)}`" if node.value else ""
                rows.append((f"`{name}`", default, texts.get(name, "")))
    return table(("attribute", "default", "meaning"), rows)


def methods() -> str:
    """One row a public method or property of a `Model`."""
    rows = []
    for node in definition(Model).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            arguments = ", ".join(argument.arg for argument in node.args.args[1:])
            call = node.name if "property" in decorators else f"{node.name}({arguments})"
            rows.append((f"`{call}`", in_a_cell(ast.get_docstring(node))))
    return table(("method", "what it does"), rows)


def pipelines() -> str:
    """One row a pipeline of the installed diffusers."""
    header: Row = ("pipeline", "sources", "go to", "prompt", "size of the edit")
    header += ("guidance", "negative prompt", "compiled by default")
    rows = [pipeline(name, ADAPTERS[name]) for name in sorted(ADAPTERS)]
    return table(header, rows)


def pipeline(name: str, adapter: Adapter) -> Row:
    """The row of a pipeline."""
    call = call_signature(name)
    defaults = {} if call is None else call.defaults
    guidance = [
        f"`{key}` {value:g}"
        for key, value in defaults.items()
        if ("guidance_scale" in key or key == "true_cfg_scale") and isinstance(value, int | float)
    ]
    negative = "–"
    if call is not None and "negative_prompt" in call.annotations:
        negative = "the pipeline's own"
        if "true_cfg_scale" in call.annotations:
            negative = '`" "` while `true_cfg_scale` > 1'
    most = "any number" if adapter.max_sources is None else "one"
    sources = f"{most}: {adapter.one_because}" if adapter.one_because else most
    is_list = adapter.listed or adapter.max_sources is None
    argument = f"`{adapter.image}`" + (", a list" if is_list else "")
    prompt = f"instruction, `{adapter.wrapping}`" if adapter.wrapping else "instruction"
    scales = ", ".join(guidance) or "–"
    compiled = "yes" if adapter.compiles else "no"
    return (f"`{name}`", sources, argument, prompt, adapter.size, scales, negative, compiled)


# Fixtures, hooks and commands


def fixture_rows() -> str:
    """One row a fixture."""
    rows = []
    for name, value in vars(fixtures).items():
        marker = getattr(value, "_fixture_function_marker", None)
        if marker is not None:
            function = value._get_wrapped_function()
            rows.append((f"`{name}`", marker.scope, in_a_cell(function.__doc__)))
    return table(("fixture", "scope", "what it is"), rows)


def functions_of(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Return the functions that a module defines."""
    for name, value in vars(module).items():
        if inspect.isfunction(value) and value.__module__ == module.__name__:
            yield name, value


def hooks() -> str:
    """One row a hook."""
    rows = []
    for name, function in functions_of(hookspecs):
        arguments = ", ".join(
            f"`{argument}`" for argument in inspect.signature(function).parameters
        )
        rows.append((f"`{name}`", arguments, in_a_cell(function.__doc__)))
    return table(("hook", "arguments", "when it is called"), rows)


def commands() -> str:
    """A part for each command."""
    return "\n".join(map(command_part, COMMANDS))


def command_part(command: Command) -> str:
    """What a command does, its arguments, and what its exit code 1 means."""
    words = ["imgedit", command.name]
    words += [name_in_usage(name, options) for name, options in command.arguments.items()]
    usage = " ".join(filter(None, words))
    failure = f" Exit code 1: {command.failure}." if command.failure else ""
    rows = [
        (f"`{shown_argument(name, options)}`", str(options["help"]))
        for name, options in command.arguments.items()
    ]
    text = f"### `{usage}`\n\n{sentence(command.summary)}{failure}\n"
    return f"{text}\n{table(('argument', 'meaning'), rows)}" if rows else text


def shown_argument(name: str, options: Mapping[str, Any]) -> str:
    """Write an argument with what it takes."""
    if "choices" in options:
        return f"{name} {'|'.join(options['choices'])}"
    metavar = str(options.get("metavar", ""))
    return f"{name} {metavar}".strip() if name.startswith("-") else metavar


def name_in_usage(name: str, options: Mapping[str, Any]) -> str:
    """Write an argument as usage lines have it; options that may be left out are not shown."""
    if name.startswith("-"):
        return shown_argument(name, options) if options.get("required") else ""
    shown = shown_argument(name, options)
    ways = {"?": f"[{shown}]", "*": f"[{shown} …]", "+": f"{shown} …"}
    return ways.get(options.get("nargs", ""), shown)


# Results


def results() -> str:
    """A part for each object of results.json, beginning with the document."""
    schema = Results.model_json_schema(mode="serialization")
    parts = {"Results": schema}
    parts |= schema["$defs"]
    return "\n".join(object_part(name, part) for name, part in parts.items())


def object_part(name: str, schema: Mapping[str, Any]) -> str:
    """What an object of results.json is, and its fields."""
    rows = [
        (f"`{field}`", type_of(value), json_default(value))
        for field, value in schema["properties"].items()
    ]
    return f"### {name}\n\n{paragraphs(schema['description'])}\n\n" + table(
        ("field", "type", "default"), rows
    )


def json_default(field: Mapping[str, Any]) -> str:
    """Write the default of a field that has one; one of a composed value is empty."""
    return f"`{json.dumps(field['default'])}`" if "default" in field else ""


def type_of(schema: Mapping[str, Any]) -> str:
    """Describe the values that a field takes."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(type_of, schema["anyOf"]))
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "prefixItems" in schema:
        return f"[{', '.join(map(type_of, schema['prefixItems']))}]"
    if schema.get("type") == "array":
        return f"list of {type_of(schema['items'])}"
    by_name = [schema.get("additionalProperties")]
    by_name += schema.get("patternProperties", {}).values()
    for values in filter(None, by_name):
        return f"object of {type_of(values)}" if values is not True else "object"
    return str(schema.get("type", "any"))


# Imports


@cache
def import_graph() -> grimp.ImportGraph:
    """Return who imports whom in this package, imports for type checkers alone included."""
    return grimp.build_graph("pytest_imgedit", cache_dir=None, exclude_type_checking_imports=False)


def levels(package: str) -> str:
    """One row a level of a package, the highest first."""
    by_level: dict[int, list[str]] = {}
    for module, level in level_of_modules(f"pytest_imgedit.{package}").items():
        by_level.setdefault(level, []).append(f"`{module.rpartition('.')[2]}`")
    rows = [
        (str(level), ", ".join(sorted(modules)))
        for level, modules in sorted(by_level.items(), reverse=True)
    ]
    return table(("level", f"modules of `{package}/`"), rows)


def level_of_modules(package: str) -> dict[str, int]:
    """Return for each module of a package how many modules its longest chain of imports has.

    Imports of other packages do not count. Raises `ValueError` if modules import in a circle.
    """
    graph = import_graph()
    modules = graph.find_children(package)
    imported = {
        module: graph.find_modules_directly_imported_by(module) & modules for module in modules
    }
    try:
        lowest_first = list(TopologicalSorter(imported).static_order())
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise ValueError(f"{package} has no levels: imports in a circle, {circle}") from None
    level_of: dict[str, int] = {}
    for module in lowest_first:
        level_of[module] = 1 + max((level_of[below] for below in imported[module]), default=0)
    return level_of


PARTS: Mapping[str, Callable[..., str]] = {
    "options": options,
    "keys": keys,
    "kinds": kinds,
    "parameters": parameters,
    "attributes": attributes,
    "methods": methods,
    "pipelines": pipelines,
    "fixtures": fixture_rows,
    "hooks": hooks,
    "commands": commands,
    "levels": levels,
    "results": results,
}


def page_paths() -> list[Path]:
    """Return the pages that take something from code."""
    return [path for path in sorted(DOCS.rglob("*.md")) if _PLACE.search(path.read_text())]


def pages() -> dict[Path, str]:
    """Return the pages that take something from code, and the schema, as they must be."""

    def filled(place: re.Match[str]) -> str:
        name, *arguments = place["name"].split()
        return f"{place['start']}{PARTS[name](*arguments)}{place['end']}"

    texts = {path: _PLACE.sub(filled, path.read_text()) for path in page_paths()}
    schema = Results.model_json_schema(mode="serialization")
    texts[SCHEMA] = json.dumps(schema, ensure_ascii=False, indent=1) + "\n"
    return texts


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
