"""What a diffusers pipeline takes, read from its source without importing diffusers."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_imgedit.errors import UsageError
from pytest_imgedit.registry import parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Arguments of the editor itself; all others go to the pipeline's call.
OWN = ("dtype", "deterministic")
#: Arguments that the harness sets for every pair.
SET_BY_HARNESS = (
    "image",
    "input_images",
    "prompt",
    "generator",
    "output_type",
    "return_dict",
    "num_images_per_prompt",
)
IMAGE_NAMES = ("image", "input_images")


def check_arguments(model: str, params: Mapping[str, Any]) -> str | None:
    """Return the first of `params` that the pipeline of a local checkpoint does not take, else `None`.

    What cannot be known without loading (a hub id that is not here, a pipeline class of unknown source) is
    left to the worker. Raises `UsageError` for a folder without `model_index.json` and for a pipeline that
    takes no image.
    """
    name = pipeline_class(model)
    accepted = call_parameters(name) if name else None
    if accepted is None:
        return None
    if not accepted & set(IMAGE_NAMES):
        raise UsageError(f"editor diffusers:{model}: {name} takes no image, expected an image editing pipeline")
    return next((key for key in params if key not in OWN and (key not in accepted or key in SET_BY_HARNESS)), None)


def pipeline_class(model: str) -> str | None:
    """Read the pipeline's class name from `model_index.json`, if the model is on this machine."""
    index = Path(model) / "model_index.json"
    if not Path(model).is_dir():
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(model, "model_index.json")
        if not isinstance(cached, str):
            return None
        index = Path(cached)
    try:
        return str(json.loads(index.read_text("utf-8"))["_class_name"])
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"editor diffusers:{model}: no readable model_index.json, expected a diffusers checkpoint"
        ) from error


@cache
def call_parameters(name: str) -> frozenset[str] | None:
    """Return the parameter names of a diffusers pipeline's `__call__`, or `None` if its source is not found."""
    spec = find_spec("diffusers")
    if spec is None or spec.origin is None:
        return None
    for path in sorted(Path(spec.origin).parent.glob("pipelines/**/*.py")):
        if f"class {name}(" in path.read_text("utf-8"):
            found = parameters(path, name, "__call__")
            return None if found is None else frozenset(found[0])
    return None
