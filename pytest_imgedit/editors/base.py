"""What an editor is, and how a spec becomes one."""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pytest_imgedit.errors import SetupError, UsageError
from pytest_imgedit.files import is_folder
from pytest_imgedit.registry import resolve, signature, source_file
from pytest_imgedit.scenes import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from PIL import Image

    from pytest_imgedit.registry import Target

BUILTIN = {
    "blank": "pytest_imgedit.editors.controls:Blank",
    "diffusers": "pytest_imgedit.editors.diffusers:DiffusersEditor",
    "folder": "pytest_imgedit.editors.folder:FolderEditor",
    "identity": "pytest_imgedit.editors.controls:Identity",
    "noise": "pytest_imgedit.editors.controls:Noise",
    "openai-images": "pytest_imgedit.editors.openai_images:OpenAIImagesEditor",
    "oracle": "pytest_imgedit.editors.controls:Reference",
    "scenes": "pytest_imgedit.editors.diffusers:DiffusersEditor",
    "shuffled": "pytest_imgedit.editors.controls:Reference",
}
#: Controls that are given a reference image: the pair's own, or that of the next pair in its category.
SHOWN_REFERENCE = {"oracle": "own", "shuffled": "other"}
NEEDS_ARGUMENT = {"diffusers": "MODEL", "folder": "DIR or folder:DIR?PATTERN", "openai-images": "URL#MODEL"}
#: Parameters of a spec that hold where the user gives no others.
DEFAULT_PARAMS: Mapping[str, Mapping[str, Any]] = {
    "scenes": {"num_inference_steps": 20, "guidance_scale": 1.0, "image_guidance_scale": 1.0}
}


@dataclass(frozen=True)
class EditRequest:
    """What an editor is asked for: RGB source of shape (H, W, 3), instruction, and a seed in [0, 2**63).

    `reference` is there for the controls `oracle` and `shuffled`, and as the finished image for `folder`, only.
    """

    pair_id: str
    category: str
    instruction: str
    source: Image.Image
    seed: int
    reference: Image.Image | None = None


class Editor(Protocol):
    """Built once a worker as `Class(argument, device=…, **params)`; the argument only if the spec has one.

    `device` is `"cpu"`, `"cuda"`, or `"balanced"` (spread over all GPUs that the worker sees). An editor may have a
    method `self_check()`, which a worker calls once after building it: `SetupError` from it ends the run. The global
    generators of Python, numpy and torch are seeded with the request's seed before every edit.
    """

    def edit(self, request: EditRequest) -> Image.Image:
        """Return the edited image. What it raises becomes the error of this pair alone."""


def resolve_editor(spec: str) -> Target:
    """Find the class behind an editor's spec without importing it; raise `UsageError` if there is none."""
    target = resolve("editor", spec, BUILTIN, lambda name: guess_scheme(name, "diffusers", "openai-images"))
    require_argument(target, "editor", NEEDS_ARGUMENT)
    return replace(target, kind="diffusers", argument=str(WEIGHTS / "editor")) if spec == "scenes" else target


def guess_scheme(spec: str, local: str, served: str) -> str:
    """Guess what a spec without a scheme was meant to be: a checkpoint or hub id, or the name of a served model."""
    if "/" in spec or is_folder(Path(spec)):
        return f"; did you mean '{local}:{spec}'?"
    return f"; did you mean '{served}:URL#{spec}'?" if any(char.isdigit() for char in spec) else ""


def require_argument(target: Target, role: str, needs: Mapping[str, str]) -> None:
    """Raise `UsageError` if a spec lacks the argument that it needs, or has one that it cannot take."""
    if target.kind in needs and not target.argument:
        raise UsageError(f"{role} {target.kind!r} needs an argument, expected {target.kind}:{needs[target.kind]}")
    if not target.is_own and target.kind not in needs and target.argument is not None:
        raise UsageError(f"{role} {target.kind!r} takes no argument, found {target.argument!r}")


def check_params(target: Target, params: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first parameter that the class does not take as it is, with the reason, read from its source."""
    path = source_file(target.module)
    found = signature(path, target.attribute, "__init__") if path else None
    if found is None:
        return None
    first = next(iter(found.annotations), "")
    return found.problem(params, reserved={"device"} if target.argument is None else {"device", first})


def build(target: Target, device: str, params: Mapping[str, Any]) -> Any:
    """Import and construct an editor or judge; raise `SetupError` if it refuses its parameters."""
    cls = target.load()
    arguments = () if target.argument is None else (target.argument,)
    try:
        inspect.signature(cls).bind(*arguments, device=device, **params)
    except TypeError as error:
        raise SetupError(f"{target.module}:{target.attribute}: {error}") from None
    return cls(*arguments, device=device, **params)


def job_seed(seed: int, pair_id: str) -> int:
    """Derive the generator's seed of a pair from (seed, pair id) alone: 63 bits of their SHA-256."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{pair_id}".encode()).digest()[:8], "big") >> 1
