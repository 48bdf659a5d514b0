"""Imports at the first use, for modules that import PyTorch: collecting tests imports none of it."""

from importlib import import_module
from typing import Any


class Later:
    """Stands for a module, which is imported when one of its names is first read.

    Names are patched in the module itself: `monkeypatch.setattr("package.module.name", value)`.
    """

    __slots__ = ("_module",)

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if _is_asked_by_pytest(name):
            raise AttributeError(name)
        return getattr(import_module(self._module), name)


def _is_asked_by_pytest(name: str) -> bool:
    """Tell whether pytest asks all that it finds in a test file for this name."""
    return name == "_mock_name" or name.startswith("__")
