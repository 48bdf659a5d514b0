"""What the source of a user's class says of one of its attributes, before any worker imports it."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_imgedit.core.text import shorten
from pytest_imgedit.kinds import user_code
from pytest_imgedit.kinds.method_checks import Function, bindings

#: Characters of a line that a message shows.
_MOST_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Statement:
    """What sets an attribute: its `file:line`, its text, and the expression that it assigns; `None`
    for anything but an assignment to the name alone in the class body.
    """

    place: str
    text: str
    value: ast.expr | None = None


def statement_of(paths: Iterable[Path], class_name: str, name: str) -> Statement | None:
    """Return what gives an attribute to a class or to one of its bases, as far as these source
    files define them; `None` if nothing does.

    What sets it on an instance, or on the class from outside, comes before any class body.
    """
    in_body: Statement | None = None
    for path, class_node in user_code.with_bases(paths, class_name):
        text = path.read_text("utf-8")
        for attribute in _set_elsewhere(ast.parse(text), class_node, name):
            return _of_line(path, text, attribute.lineno)
        if in_body is None:
            in_body = _in_body(path, text, class_node, name)
    return in_body


def _in_body(path: Path, text: str, class_node: ast.ClassDef, name: str) -> Statement | None:
    """Return the last statement of a class body that binds a name; an annotation binds none."""
    for statement in reversed(class_node.body):
        found = _of_line(path, text, statement.lineno)
        if isinstance(statement, Function | ast.ClassDef):
            if statement.name == name:
                return found
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and _is_alone(statement, name):
            if statement.value is not None:
                shown = f"{name} = {ast.unparse(statement.value)}"
                return Statement(found.place, shorten(shown, _MOST_SHOWN), statement.value)
        elif bindings(statement, name):
            return Statement(found.place, f"{name} in {found.text!r}")
    return None


def _is_alone(statement: ast.Assign | ast.AnnAssign, name: str) -> bool:
    """Tell whether a statement assigns its whole value to a name."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _set_elsewhere(
    tree: ast.Module, class_node: ast.ClassDef, name: str
) -> Iterator[ast.Attribute]:
    """Yield where the methods of a class set an attribute, as in `self.max_sources = 3`, and where
    its module does so by the name of the class.
    """
    yield from _stores(tree, class_node.name, name)
    for method in class_node.body:
        if isinstance(method, Function) and not _is_static(method):
            for argument in (method.args.posonlyargs + method.args.args)[:1]:
                yield from _stores(method, argument.arg, name)


def _is_static(method: Function) -> bool:
    return any(ast.unparse(decorator) == "staticmethod" for decorator in method.decorator_list)


def _stores(scope: ast.AST, owner: str, name: str) -> Iterator[ast.Attribute]:
    """Yield the attributes `owner.name` that are assigned to inside a scope."""
    nodes = list(ast.walk(scope))
    without_value = [
        node.target for node in nodes if isinstance(node, ast.AnnAssign) and node.value is None
    ]
    for node in nodes:
        if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)):
            continue
        is_of_owner = isinstance(node.value, ast.Name) and node.value.id == owner
        if is_of_owner and node.attr == name and node not in without_value:
            yield node


def _of_line(path: Path, text: str, line: int) -> Statement:
    """Return the statement that a line of a file begins."""
    written = text.split("\n")[line - 1].strip()  # as Python counts lines
    return Statement(f"{path}:{line}", shorten(written, _MOST_SHOWN))
