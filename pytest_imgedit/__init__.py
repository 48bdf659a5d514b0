"""Evaluation of instruction-based image editing models as a pytest plugin.

Everything that users write against is here: what editors, judges and suites are given and return,
what fixtures hand out, and the errors to raise.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pytest_imgedit.core.errors import (
    EditFailed,
    ImageError,
    OutputError,
    ReplyError,
    SettingError,
    SetupError,
    UsageError,
)
from pytest_imgedit.core.versions import __version__

if TYPE_CHECKING:
    from pytest_imgedit.core.images import Base64Image, FileImage
    from pytest_imgedit.core.items import ItemFailed, ItemResult
    from pytest_imgedit.core.pairs import EditPair, ImageSource
    from pytest_imgedit.core.reply import Grammar
    from pytest_imgedit.core.requests import (
        Answer,
        Editor,
        EditRequest,
        Judge,
        Preparation,
        Question,
    )
    from pytest_imgedit.core.results import Edit, ItemError, Measure, Results, SeedResult, Verdict
    from pytest_imgedit.kinds.base import (
        CheckpointModel,
        Composition,
        ComputeParameters,
        FinishedImages,
        Memory,
        Metric,
        Model,
        Parameters,
        Requirements,
        Room,
        Site,
        Where,
        indifferent,
    )
    from pytest_imgedit.kinds.checkpoint_files import Layout
    from pytest_imgedit.protocols.protocol import Call, Protocol, Row, mean_row
    from pytest_imgedit.report.read import read_results
    from pytest_imgedit.run.finish import FinishedRun
    from pytest_imgedit.run.fixture_calls import EditWorkers, RewardModel
    from pytest_imgedit.run.session import open_models
    from pytest_imgedit.suites.base import SuiteLoader

__all__ = [
    "Answer",
    "Base64Image",
    "Call",
    "CheckpointModel",
    "Composition",
    "ComputeParameters",
    "Edit",
    "EditFailed",
    "EditPair",
    "EditRequest",
    "EditWorkers",
    "Editor",
    "FileImage",
    "FinishedImages",
    "FinishedRun",
    "Grammar",
    "ImageError",
    "ImageSource",
    "ItemError",
    "ItemFailed",
    "ItemResult",
    "Judge",
    "Layout",
    "Measure",
    "Memory",
    "Metric",
    "Model",
    "OutputError",
    "Parameters",
    "Preparation",
    "Protocol",
    "Question",
    "ReplyError",
    "Requirements",
    "Results",
    "RewardModel",
    "Room",
    "Row",
    "SeedResult",
    "SettingError",
    "SetupError",
    "Site",
    "SuiteLoader",
    "UsageError",
    "Verdict",
    "Where",
    "__version__",
    "indifferent",
    "mean_row",
    "open_models",
    "read_results",
]

_MODULES = {
    "core.items": ("ItemFailed", "ItemResult"),
    "core.reply": ("Grammar",),
    "core.requests": ("Answer", "EditRequest", "Editor", "Judge", "Preparation", "Question"),
    "core.results": ("Edit", "ItemError", "Measure", "Results", "SeedResult", "Verdict"),
    "core.images": ("Base64Image", "FileImage"),
    "kinds.base": (
        "CheckpointModel",
        "Composition",
        "ComputeParameters",
        "FinishedImages",
        "Memory",
        "Metric",
        "Model",
        "Parameters",
        "Requirements",
        "Room",
        "Site",
        "Where",
        "indifferent",
    ),
    "kinds.checkpoint_files": ("Layout",),
    "core.pairs": ("EditPair", "ImageSource"),
    "protocols.protocol": ("Call", "Protocol", "Row", "mean_row"),
    "report.read": ("read_results",),
    "run.fixture_calls": ("EditWorkers", "RewardModel"),
    "run.finish": ("FinishedRun",),
    "run.session": ("open_models",),
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
    return list(globals()) + __all__
