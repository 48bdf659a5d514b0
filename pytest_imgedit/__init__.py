"""Evaluation of instruction-based image editing models as a pytest plugin."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_imgedit.editors.base import EditRequest
    from pytest_imgedit.images import Base64Image, FileImage
    from pytest_imgedit.judges.base import Answer, Question
    from pytest_imgedit.pairs import Edit, EditPair, ItemError, ItemResult, Verdict

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Base64Image",
    "Edit",
    "EditPair",
    "EditRequest",
    "FileImage",
    "ItemError",
    "ItemResult",
    "Question",
    "Verdict",
]

_HOME = {
    "Answer": "judges.base",
    "Base64Image": "images",
    "Edit": "pairs",
    "EditPair": "pairs",
    "EditRequest": "editors.base",
    "FileImage": "images",
    "ItemError": "pairs",
    "ItemResult": "pairs",
    "Question": "judges.base",
    "Verdict": "pairs",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that importing the plugin stays cheap."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
