"""Options of commands that ask a judge: which one, its config and settings, and its GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pytest_imgedit.config.options import assign
from pytest_imgedit.config.settings import read_tables
from pytest_imgedit.core import errors
from pytest_imgedit.kinds.user_code import find_user_modules

_NAMES = {"assigned": "set"}


@dataclass(frozen=True)
class JudgeOptions:
    """The spec of a judge, a config that names one, keys that are set, and GPUs; each may be
    missing.
    """

    judge: str | None
    config: Path | None
    assigned: Sequence[str]
    gpus: str | None

    @classmethod
    def take(cls, options: dict[str, Any]) -> "JudgeOptions":
        """Take these out of all options of a command."""
        return cls(**{field.name: options.pop(field.name) for field in fields(cls)})

    def refuse_without(self, switch: str, without: str) -> None:
        """Raise `UsageError` if one is given where there is nothing that asks a judge: `without`
        says so, and `switch` is the option that asks.
        """
        for field in fields(self):
            if getattr(self, field.name):
                name = _NAMES.get(field.name, field.name)
                raise errors.UsageError(f"--{name}: {without}, expected {switch} too")

    def tables(self, out: Path) -> dict[str, Any]:
        """Return the tables of the config with these options, for a store; raise `UsageError` for a
        config that cannot be read.
        """
        find_user_modules(self.config)
        raw = read_tables(self.config)
        assign(raw, self.assigned, "--set")
        raw["run"]["out"] = out
        if self.gpus is not None:
            raw.setdefault("workers", {})["gpus"] = self.gpus
        if self.judge is not None:
            raw.setdefault("judge", {})["spec"] = self.judge
        return raw
