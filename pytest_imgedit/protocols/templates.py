"""Templates and formulas of protocols: Jinja2 in a sandbox, with a bound on the work of each."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

import jinja2
import jinja2.meta
from jinja2 import nodes
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pytest_imgedit.core import errors
from pytest_imgedit.core.text import one_line, shorten

#: The most characters and elements of one value.
MAX_SIZE = 100_000
#: The most characters, elements and loop steps of one rendering, all values together.
MAX_WORK = 500_000
#: The same of all renderings and formulas by which a protocol is tried out.
MAX_TRIAL = 10_000_000
#: The most elements of `range`.
MAX_RANGE = 10_000
#: The most bits of a whole number.
MAX_BITS = 4_096
#: The most characters of a text that is formatted.
_MOST_OF_FORMAT = 1_000
#: The most characters of JSON for one character of a text, as in `\u0000`.
_JSON_GROWTH = 6
#: A width or precision of such a text that is too long, or an argument.
_LONG_WIDTH = re.compile(r"\*|\d{4}")
#: Statements that are refused: each could repeat a text without a bound.
_REFUSED = {
    nodes.Macro: "macro",
    nodes.CallBlock: "call",
    nodes.FilterBlock: "filter",
    nodes.AssignBlock: "set … endset",
    nodes.Block: "block",
}
#: Filters that give the same for the same, in time that `MAX_WORK` bounds.
FILTERS = (
    "abs",
    "capitalize",
    "count",
    "d",
    "default",
    "first",
    "float",
    "format",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "max",
    "min",
    "replace",
    "reverse",
    "round",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "wordcount",
)
#: Methods of texts and tables that may be called.
_METHODS = (
    "upper",
    "lower",
    "strip",
    "lstrip",
    "rstrip",
    "title",
    "capitalize",
    "startswith",
    "endswith",
    "removeprefix",
    "removesuffix",
    "find",
    "count",
    "split",
    "splitlines",
    "replace",
    "join",
    "get",
    "keys",
    "values",
    "items",
    "index",
)


@dataclass
class _Budget:
    """The characters, elements and loop steps that are left."""

    left: int


#: The budget of the rendering or evaluation that is under way.
_work: ContextVar[_Budget] = ContextVar("work")
#: The budget of the trial of a protocol, if it is being tried out.
_trial: ContextVar[_Budget] = ContextVar("trial")


class TooMuch(ValueError):
    """A template or formula that takes more than it may."""


def trial() -> AbstractContextManager[None]:
    """Bound the work of all that is rendered and evaluated inside, by `MAX_TRIAL`."""
    return _bounded(_trial, MAX_TRIAL)


@contextmanager
def _bounded(budget: ContextVar[_Budget], most: int) -> Iterator[None]:
    """Let a budget be `most` inside, and what it was before at the end."""
    token = budget.set(_Budget(most))
    try:
        yield
    finally:
        budget.reset(token)


def _charge(amount: int) -> None:
    """Take work from the budgets; raise `TooMuch` if one is spent, or for more than `MAX_SIZE`."""
    if amount > MAX_SIZE:
        raise TooMuch(f"a value has over {MAX_SIZE} characters or elements")
    work = _work.get(_Budget(MAX_WORK))
    work.left -= amount
    if work.left < 0:
        raise TooMuch(f"over {MAX_WORK} steps and characters in all")
    trial_work = _trial.get(None)
    if trial_work is not None:
        trial_work.left -= amount
        if trial_work.left < 0:
            raise TooMuch(f"over {MAX_TRIAL} steps and characters for all categories")


def _checked(value: Any) -> Any:
    """Return a value, an iterator as a list, after its size with all that it holds is charged.

    Raises `TooMuch`, and `TypeError` for what is no text, number, list or table. An undefined value
    and `None` are let through.
    """
    if isinstance(value, Iterator):
        value = [item for item, _ in zip(value, range(MAX_SIZE + 1), strict=False)]
    size = 0
    waiting = [value]
    while waiting:
        part = waiting.pop()
        size += 1
        if isinstance(part, str):
            size += len(part)
        elif isinstance(part, bool | int):
            if part.bit_length() > MAX_BITS:
                raise TooMuch(f"a whole number has over {MAX_BITS} bits")
            size += part.bit_length() // 64
        elif isinstance(part, list | tuple):
            size += len(part)
            waiting += part[: MAX_SIZE + 1]
        elif isinstance(part, Mapping):
            size += len(part)
            waiting += part.keys()
            waiting += part.values()
        elif not isinstance(part, float | jinja2.Undefined | type(None)):
            if not _is_view(part):
                raise TypeError(f"unsafe: a {type(part).__name__} is no text, number or list")
            waiting.append(list(part))
        if size > MAX_SIZE:
            break
    _charge(size)
    return value


def _is_view(value: Any) -> bool:
    """Tell whether a value is what `keys`, `values` or `items` of a table returns."""
    return isinstance(value, type({}.keys()) | type({}.values()) | type({}.items()))


def _range(*arguments: int) -> list[int]:
    """Return the numbers of a `range`; raise `TooMuch` for more than `MAX_RANGE`."""
    numbers = range(*arguments)
    if len(numbers) > MAX_RANGE:
        raise TooMuch(f"Range too big, expected up to {MAX_RANGE} elements")
    return list(numbers)


def _steps(value: Any) -> list[Any]:
    """Return what a loop goes through, as a list."""
    return list(_checked(value))


def _joined(parts: Sequence[Any]) -> str:
    """Return the text that `~` makes of its parts."""
    return "".join(str(_checked(part)) for part in _checked(parts))


def _check_replacing(text: Any, old: Any, new: Any, *_: Any) -> None:
    """Charge the most characters that `replace` can return."""
    replaced = str(text)
    growth = replaced.count(str(old)) * len(str(new))
    _charge(len(replaced) + growth)


def _check_joining(parts: Sequence[Any], separator: Any = "", *_: Any) -> None:
    """Charge the separators of `join`; its parts are charged elsewhere."""
    _charge(len(parts) * len(str(separator)))


def _check_indenting(text: Any, width: Any = 4, *_: Any, **__: Any) -> None:
    """Charge the indentation of all lines; `width` is a number of blanks, or a text."""
    lines = str(text).count("\n") + 1
    indentation = width if isinstance(width, int) else len(str(width))
    _charge(lines * indentation)


def _check_formatting(text: Any, *_: Any, **__: Any) -> None:
    """Raise `TooMuch` for a width that is long or an argument, and for a long text."""
    template = str(text)
    if _LONG_WIDTH.search(template) or len(template) > _MOST_OF_FORMAT:
        raise TooMuch(f"a format of {len(template)} characters or of a long width")


def _check_json(value: Any, **options: Any) -> None:
    """Charge the most characters of a value's JSON; raise `TooMuch` for options such as an
    indentation.
    """
    if options:
        raise TooMuch("tojson takes no argument")
    _charge(_JSON_GROWTH * len(str(value)))


_CHECKS: dict[str, Callable[..., None]] = {
    "replace": _check_replacing,
    "join": _check_joining,
    "indent": _check_indenting,
    "format": _check_formatting,
    "tojson": _check_json,
}


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox, in which every value is counted, and only deterministic filters are
    known.
    """

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=False,
            optimized=False,
            finalize=_checked,
        )
        self.globals = {"range": _range, "sqrt": math.sqrt, "min": min, "max": max}
        # the names with a blank are not those of a template
        self.filters = {name: self.filters[name] for name in FILTERS}
        self.filters |= {" steps": _steps, " joined": _joined, " checked": _checked}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > MAX_SIZE:
            raise TooMuch(f"a template of {len(source)} characters, expected {MAX_SIZE} or fewer")
        return super()._parse(source, name, filename)

    def _generate(self, source: nodes.Template, *arguments: Any, **named: Any) -> str:
        return super()._generate(self._prepared(source), *arguments, **named)

    def _prepared(self, tree: nodes.Template) -> nodes.Template:
        """Return a template in which the steps of loops and the size of assignments are counted.

        Raises `TemplateSyntaxError` for what has no bound, and for an unknown filter.
        """
        for kind, tag in _REFUSED.items():
            for refused in tree.find_all(kind):
                raise jinja2.TemplateSyntaxError(
                    f"{tag!r} is not known to protocols, expected if, for and set", refused.lineno
                )
        for node in tree.find_all(nodes.Filter):
            if node.name not in self.filters:
                raise jinja2.TemplateSyntaxError(
                    f"no filter {shorten(node.name, 40)!r} is known to protocols, "
                    f"expected one of: {', '.join(FILTERS)}",
                    node.lineno,
                )
        for loop in tree.find_all(nodes.For):
            if loop.recursive:
                raise jinja2.TemplateSyntaxError(
                    "a recursive loop is not known to protocols", loop.lineno
                )
            loop.iter = _through(loop.iter, " steps")
        for assigned in tree.find_all(nodes.Assign):
            assigned.node = _through(assigned.node, " checked")
        _without_concat(tree)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator of `intercepted_binops`; raises `TooMuch` before it makes a large
        value.
        """
        _checked(left)  # charged before anything is made of it
        _checked(right)
        if isinstance(left, str) and operator == "%":
            _check_formatting(left)
        if operator == "*":
            for text, times in ((left, right), (right, left)):
                if isinstance(text, str | list | tuple) and isinstance(times, int):
                    _charge(len(text) * max(0, times))
        are_whole = isinstance(left, int) and isinstance(right, int)
        if operator == "**" and are_whole and left.bit_length() * abs(right) > MAX_BITS:
            raise TooMuch(f"a power of over {MAX_BITS} bits")
        return _checked(super().call_binop(context, operator, left, right))

    def call(self, context: Context, obj: Any, *arguments: Any, **named: Any) -> Any:
        """Call a function of `globals`, one of `_METHODS`, or a method of `loop`, and count what it
        gets and returns.

        Raises `SecurityError` for anything else, and `TooMuch`. Jinja2 refuses an undefined value.
        """
        name = getattr(obj, "__name__", "")
        owner = getattr(obj, "__self__", None)
        is_method = isinstance(owner, str | list | tuple | Mapping) and name in _METHODS
        is_known = is_method or isinstance(owner, LoopContext)
        if not (is_known or isinstance(obj, jinja2.Undefined) or obj in self.globals.values()):
            raise jinja2.exceptions.SecurityError(
                f"the function {shorten(str(name), 40)!r} is not known to protocols"
            )
        for argument in arguments:
            _checked(argument)
        for argument in named.values():
            _checked(argument)
        if is_method:
            _checked(owner)
            if name == "join":
                parts = _checked(*arguments)
                _check_joining(parts, owner)
                arguments = (parts,)
            elif name == "replace":
                _check_replacing(owner, *arguments)
        return _checked(super().call(context, obj, *arguments, **named))


def _check_numbers(name: str, arguments: Iterable[Any]) -> None:
    """Raise `TooMuch` for a large number as an argument of the filter `name`."""
    for argument in arguments:
        if isinstance(argument, int) and abs(argument) > MAX_SIZE:
            raise TooMuch(f"{name} of {shorten(str(argument), 40)}")


def _filtered(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that counts what it gets and returns, and refuses large numbers as its
    arguments; but not a large default.
    """
    check = _CHECKS.get(name)
    passed = getattr(function, "jinja_pass_arg", None)  # what Jinja2 passes before the arguments

    def apply(*arguments: Any, **named: Any) -> Any:
        first = 0 if passed is None else 1
        counted = [_checked(argument) for argument in arguments[first:]]
        if name not in ("d", "default"):
            _check_numbers(name, counted[1:])
            _check_numbers(name, named.values())
        if check is not None:
            check(*counted, **named)
        return _checked(function(*arguments[:first], *counted, **named))

    if passed is not None:
        apply.jinja_pass_arg = passed  # type: ignore[attr-defined]
    return apply


def _through(node: nodes.Node, name: str) -> nodes.Filter:
    """Return a node that applies the filter `name` to another."""
    return nodes.Filter(cast("nodes.Expr", node), name, [], [], None, None, lineno=node.lineno)


def _without_concat(tree: nodes.Node) -> None:
    """Replace each `~` in a tree by a filter that counts."""
    for parent in [tree, *tree.find_all(nodes.Node)]:
        for field, value in parent.iter_fields():
            if isinstance(value, nodes.Concat):
                setattr(parent, field, _counted_concat(value))
            elif isinstance(value, list):
                for position, child in enumerate(value):
                    if isinstance(child, nodes.Concat):
                        value[position] = _counted_concat(child)


def _counted_concat(node: nodes.Concat) -> nodes.Filter:
    return _through(nodes.List(node.nodes, lineno=node.lineno), " joined")


_ENVIRONMENT = _Environment()
for _name in FILTERS:
    _ENVIRONMENT.filters[_name] = _filtered(_name, _ENVIRONMENT.filters[_name])
_template = cache(_ENVIRONMENT.from_string)
_formula: Callable[[str], Callable[..., Any]] = cache(
    partial(_ENVIRONMENT.compile_expression, undefined_to_none=False)
)


def render(text: str, values: Mapping[str, Any]) -> str:
    """Return what a template renders; raises what it raises, and `TooMuch` for one that takes more
    than `MAX_WORK` or makes more than `MAX_SIZE`.
    """
    size = 0
    pieces = []
    with _bounded(_work, MAX_WORK):
        for piece in _template(text).generate(values):
            size += len(piece)
            if size > MAX_SIZE:
                raise TooMuch(f"it renders over {MAX_SIZE} characters")
            pieces.append(piece)
    return "".join(pieces)


def evaluate(formula: str, numbers: Mapping[str, float]) -> float:
    """Return what a formula makes of numbers; raise `ReplyError` if it fails, or makes no
    number.
    """
    try:
        with _bounded(_work, MAX_WORK):
            return float(_formula(formula)(**numbers))
    except Exception as error:  # a formula can raise anything
        raise errors.ReplyError(
            f"score formula {shorten(formula, 100)!r} failed: {shorten(one_line(error), 300)}"
        ) from error


def names_in(formulas: Sequence[str]) -> set[str]:
    """Return the names that formulas use and do not define themselves."""
    text = " ".join(f"{{{{ {formula} }}}}" for formula in formulas)
    return jinja2.meta.find_undeclared_variables(_ENVIRONMENT.parse(text))
