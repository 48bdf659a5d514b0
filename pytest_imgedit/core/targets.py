"""Classes named by a path such as `package.module:Class`, which are imported on use."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pytest_imgedit.core.errors import SetupError

#: How a class of the user is constructed.
CONSTRUCTOR = "def __init__(self, *, device)"


@dataclass(frozen=True, slots=True)
class Target:
    """The class that a worker builds: `module:attribute`, and one positional argument."""

    module: str
    attribute: str
    argument: str | None = None

    @classmethod
    def parse(cls, path: str, argument: str | None = None) -> Target:
        """Return the target `module:attribute`; without a colon, its attribute is empty."""
        module, _, attribute = path.partition(":")
        return cls(module, attribute, argument)

    @classmethod
    def of(cls, worker: type[Any], argument: str | None = None) -> Target:
        """Return the target that a class is."""
        return cls(worker.__module__, worker.__qualname__, argument)

    @property
    def is_custom(self) -> bool:
        """Whether this class is outside this package."""
        return not self.module.startswith("pytest_imgedit.")

    def load(self) -> Any:
        """Import the module and return the attribute."""
        return getattr(import_module(self.module), self.attribute)

    def build(self, device: str, params: Mapping[str, Any]) -> Any:
        """Return an instance of the class, which is imported; raise `SetupError` if its signature
        does not take the arguments.
        """
        cls = self.load()
        arguments = () if self.argument is None else (self.argument,)
        try:
            inspect.signature(cls).bind(*arguments, device=device, **params)
        except TypeError as error:
            expected = f", expected {CONSTRUCTOR}" if "'device'" in str(error) else ""
            raise SetupError(f"{self.module}:{self.attribute}: {error}{expected}") from None
        return cls(*arguments, device=device, **params)
