"""What the source of a user's class says about its methods, before any worker imports it."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pytest_imgedit.core.text import shorten

#: By these an object may have methods that its class does not define.
_DYNAMIC = {"__dict__", "__getattr__", "__getattribute__", "setattr", "vars"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class ClassSource:
    """A class at the top level of the module `path`, and its bases there, in the order of lookup.

    `is_whole` says that nothing else can give it methods, such as a base of another module, a
    decorator or a metaclass.
    """

    path: Path
    tree: ast.Module
    classes: Sequence[ast.ClassDef]
    is_whole: bool

    @classmethod
    def read(cls, path: Path, name: str) -> Self | None:
        """Return a class with its bases, read from a module's source; `None` unless exactly one
        `class` statement binds its name there.
        """
        tree = ast.parse(path.read_bytes())
        defined = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        classes: list[ast.ClassDef] = []
        is_whole = not _DYNAMIC & set(_names_in(tree))
        waiting = [name]
        while waiting:
            base = waiting.pop(0)
            if base not in defined or len(bindings(tree, base)) > 1:
                is_whole = is_whole and base == "object"
                continue
            node = defined[base]
            is_whole = is_whole and not (node.decorator_list or node.keywords)
            if node not in classes:
                classes.append(node)
            for item in node.bases:
                waiting.append(item.id if isinstance(item, ast.Name) else "")
        if not classes:
            return None
        return cls(path, tree, classes, is_whole)

    def method(self, name: str) -> Function | None:
        """Return the definition of a method; `None` if there is none, or if another statement, a
        decorator or an assignment may replace it.
        """
        if self._is_set(name):
            return None
        for node in self.classes:
            bound = bindings(node, name)
            if bound:
                first = bound[0]
                is_last_word = len(bound) == 1 and first in node.body
                if is_last_word and isinstance(first, Function) and not first.decorator_list:
                    return first
                return None
        return None

    def lacks(self, name: str) -> bool:
        """Tell whether the class certainly has no such method."""
        is_bound = any(bindings(node, name) for node in self.classes)
        return self.is_whole and not is_bound and not self._is_set(name)

    def place(self, node: ast.stmt | None = None) -> str:
        """Return `file:line` of a definition, by default that of the class."""
        return f"{self.path}:{(node or self.classes[0]).lineno}"

    def _is_set(self, name: str) -> bool:
        """Tell whether the module sets an attribute of this name, as in `self.edit = …`."""
        return any(
            isinstance(node, ast.Attribute)
            and node.attr == name
            and isinstance(node.ctx, ast.Store)
            for node in ast.walk(self.tree)
        )


def header(function: Function) -> str:
    """Return the first line of a function, as `def edit(self, request)`."""
    word = "def" if isinstance(function, ast.FunctionDef) else "async def"
    return shorten(f"{word} {function.name}({ast.unparse(function.args)})", 120)


def takes_one(function: Function) -> bool:
    """Tell whether a method can be called with one argument, and returns what it computes."""
    given = 2  # `self` and the argument
    arguments = function.args
    positional = len(arguments.posonlyargs) + len(arguments.args)
    required = positional - len(arguments.defaults)
    has_room = positional >= given or arguments.vararg is not None
    is_enough = required <= given and None not in arguments.kw_defaults
    return isinstance(function, ast.FunctionDef) and has_room and is_enough


def bindings(scope: ast.AST, name: str) -> list[ast.AST]:
    """Return the statements and names inside a scope that bind `name`."""
    return [node for node in ast.walk(scope) if node is not scope and _bound_by(node) == name]


def _bound_by(node: ast.AST) -> str | None:
    """Return the name that a node binds by itself; `None` if it binds none."""
    if isinstance(node, Function | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.alias):
        return node.asname or node.name
    return None


def _names_in(tree: ast.Module) -> Iterator[str]:
    """Yield the variables, attributes and functions that a module names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, Function):
            yield node.name
