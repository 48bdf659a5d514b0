"""Evaluation of instruction-based image editing models as a pytest plugin.

Everything that users write against is here: what editors, judges and suites are given and return, what fixtures hand
out, and the errors to raise.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_imgedit.editors.base import Editor, EditRequest
    from pytest_imgedit.errors import ImageError, OutputError, ReplyError, SetupError, UsageError
    from pytest_imgedit.images import Base64Image, FileImage
    from pytest_imgedit.judges.base import Answer, Judge, Question
    from pytest_imgedit.pairs import (
        Edit,
        EditPair,
        ImageSource,
        ItemError,
        ItemFailed,
        ItemResult,
        SeedResult,
        Verdict,
    )
    from pytest_imgedit.services import EditFailed, EditWorkers, RewardModel
    from pytest_imgedit.stages.results import Run
    from pytest_imgedit.suites.base import SuiteLoader

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Base64Image",
    "Edit",
    "EditFailed",
    "EditPair",
    "EditRequest",
    "EditWorkers",
    "Editor",
    "FileImage",
    "ImageError",
    "ImageSource",
    "ItemError",
    "ItemFailed",
    "ItemResult",
    "Judge",
    "OutputError",
    "Question",
    "ReplyError",
    "RewardModel",
    "Run",
    "SeedResult",
    "SetupError",
    "SuiteLoader",
    "UsageError",
    "Verdict",
]

_MODULES = {
    "editors.base": ("EditRequest", "Editor"),
    "errors": ("ImageError", "OutputError", "ReplyError", "SetupError", "UsageError"),
    "images": ("Base64Image", "FileImage"),
    "judges.base": ("Answer", "Judge", "Question"),
    "pairs": ("Edit", "EditPair", "ImageSource", "ItemError", "ItemFailed", "ItemResult", "SeedResult", "Verdict"),
    "services": ("EditFailed", "EditWorkers", "RewardModel"),
    "stages.results": ("Run",),
    "suites.base": ("SuiteLoader",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


if not TYPE_CHECKING:  # a type checker is to find names that do not exist

    def __getattr__(name: str) -> object:
        """Import a public name on first use, so that importing the plugin stays cheap."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """List the public names, those not imported yet too."""
    return [*globals(), *__all__]
