"""What a diffusers pipeline takes, read from its source without importing diffusers."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_imgedit.core.errors import SettingError, SetupError, UsageError
from pytest_imgedit.core.files import read_object
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.adapters import ADAPTERS, why_refused
from pytest_imgedit.kinds.checkpoint_files import Layout
from pytest_imgedit.kinds.hub import pinned, split_id
from pytest_imgedit.kinds.parameters import without_defaults
from pytest_imgedit.kinds.source import Signature, signature, source_file

#: Arguments that the harness sets for every pair.
SET_BY_HARNESS = (
    *("image", "images", "input_images", "prompt"),
    *("generator", "output_type", "return_dict", "num_images_per_prompt"),
)


def check_arguments(model: str, params: Mapping[str, Any], call: Mapping[str, Any]) -> None:
    """Raise `SettingError` for the first of `params` that the pipeline of a checkpoint does not
    take as it is.

    `call` are those of them that go to the pipeline's call. What cannot be known without loading (a
    hub id that is not here) is left to the worker. Raises `UsageError` for a folder without
    `model_index.json`, for a pipeline that is no instruction editor, and for one that the installed
    diffusers lacks.
    """
    steps = params.get("num_inference_steps")
    if isinstance(steps, int) and steps < 1:
        raise SettingError("num_inference_steps", f"found {steps}, expected a count of at least 1")
    name = pipeline_class(model)
    if name is None:
        return
    taken = call_signature(name)
    if taken is not None and name not in ADAPTERS:
        raise UsageError(f"editor diffusers:{model}: {why_refused(name)}")
    if taken is None:
        raise UsageError(
            f"editor diffusers:{model}: {name} is not in diffusers {version('diffusers')}"
        )
    lone = {"width", "height"} & set(params)
    if len(lone) == 1 and {"width", "height"} <= set(taken.annotations):
        (given,) = lone
        raise SettingError(
            given, f"expected editor.{'height' if given == 'width' else 'width'} beside it"
        )
    if "area" in params and not (
        {"width", "height"} <= set(taken.annotations) or ADAPTERS[name].scales
    ):
        raise SettingError("area", f"{name} takes no size")
    if problem := taken.problem(call, SET_BY_HARNESS):
        raise SettingError(*problem)


def given_by_harness(defaults: Mapping[str, Any], params: Mapping[str, Any]) -> JsonObject:
    """Return the arguments that every call gets where `params` do not name them; `defaults` are
    those of the call.

    A pipeline with true classifier-free guidance runs it only if it gets a negative prompt, so that
    is `" "`.
    """
    if {"true_cfg_scale", "negative_prompt"} <= defaults.keys():
        scale = params.get("true_cfg_scale", defaults["true_cfg_scale"])
        if isinstance(scale, int | float) and scale > 1:
            return {"negative_prompt": " "}
    return {}


def pipeline_class(model: str) -> str | None:
    """Read the pipeline's class name from `model_index.json`, if the model is on this machine."""
    index = Path(pinned(model, Layout.PIPELINE) or model) / "model_index.json"
    if not index.parent.is_dir():
        from huggingface_hub import try_to_load_from_cache

        repository, revision = split_id(model)
        cached = try_to_load_from_cache(repository, "model_index.json", revision=revision)
        if not isinstance(cached, str):
            return None
        index = Path(cached)
    name = read_object(index, "a diffusers checkpoint").get("_class_name")
    if not isinstance(name, str):
        raise UsageError(
            f"{index}: _class_name is {name!r}, expected the name of a diffusers pipeline"
        )
    return name


@cache
def attention_backends() -> frozenset[str]:
    """Return the names of diffusers' attention backends, read from its source; none where that is
    not found.
    """
    path = source_file("diffusers.models.attention_dispatch")
    tree = ast.parse(path.read_text("utf-8")) if path else ast.Module([], [])
    classes = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "AttentionBackendName"
    ]
    values = [line.value for node in classes for line in node.body if isinstance(line, ast.Assign)]
    return frozenset(
        value.value
        for value in values
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    )


@cache
def call_signature(name: str) -> Signature | None:
    """Return the signature of a diffusers pipeline's call; `None` if its source is not found.

    Some pipelines take `**kwargs` for old names; only what they list counts.
    """
    spec = find_spec("diffusers")
    if spec is None or spec.origin is None:
        return None
    for path in sorted(Path(spec.origin).parent.glob("pipelines/**/*.py")):
        if f"class {name}(" in path.read_text("utf-8"):
            found = signature(path, name, "__call__")
            if found is None:
                return None
            return Signature(found.annotations, False, found.defaults)
    return None


def call_arguments(pipeline: Any, call: JsonObject) -> JsonObject:
    """Return the arguments of every call: the user's, and what the harness gives beside them.

    Raises `SetupError` for an argument that the pipeline does not take.
    """
    accepted = inspect.signature(pipeline.__call__).parameters
    kind = type(pipeline).__name__
    for key in call:
        if key not in accepted or key in SET_BY_HARNESS:
            raise SetupError(f"editor.{key}: {kind} takes no such argument")
    defaults = {name: parameter.default for name, parameter in accepted.items()}
    return {**given_by_harness(defaults, call), **call}


def without_call_defaults(model: str, params: JsonObject) -> JsonObject:
    """Leave out arguments that the pipeline's call has by default, or that the harness gives it
    anyway.
    """
    name = pipeline_class(model)
    call = call_signature(name) if name else None
    if name is None or call is None:
        return params
    # The harness gives some arguments itself, so that a default that is written out is another
    # call.
    apart = ADAPTERS[name].given if name in ADAPTERS else frozenset()
    defaults = {key: value for key, value in call.defaults.items() if key not in apart}
    return without_defaults(params, {**defaults, **given_by_harness(call.defaults, params)})
