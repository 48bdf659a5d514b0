"""Parameters of the built-in models, checked before anything loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_imgedit.editors.base import check_params
from pytest_imgedit.editors.pipelines import OWN, check_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_imgedit.registry import Target


#: How much of its size a first block's change may be for the others to be skipped, where nothing else is said.
STEP_CACHE_THRESHOLD = 0.08


class ModelParams(BaseModel):
    """What every model takes; see `numerics.py`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    deterministic: bool = True


class DiffusersParams(ModelParams):
    """What the editor `diffusers` takes beside the arguments of the pipeline's call."""

    compile: Literal["auto"] | bool = "auto"
    attention_backend: str | None = None
    quantize: Literal["fp8"] | None = None
    step_cache: Literal["first_block"] | None = None
    step_cache_threshold: float = Field(default=STEP_CACHE_THRESHOLD, gt=0, lt=1)
    offload: Literal["auto", "none", "model"] = "auto"


class QwenVLParams(ModelParams):
    """What the judge `qwen-vl` takes."""

    max_new_tokens: int = Field(default=128, ge=1)
    max_pixels: int = Field(default=1_048_576, ge=1024)
    scoring: Literal["greedy", "expected"] = "greedy"
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2", "flash_attention_3", "flex_attention"] = "auto"


def find_problem(target: Target, params: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first parameter that an editor or judge cannot take, with the reason; `None` if all are right.

    Raises `UsageError` if a checkpoint is not what the editor or judge needs.
    """
    if target.kind == "qwen-vl":
        return _validate(QwenVLParams, params)
    if target.kind == "diffusers":
        own = {name: value for name, value in params.items() if name in OWN}
        return _validate(DiffusersParams, own) or check_arguments(target.argument or "", params)
    return check_params(target, params)


def _validate(model: type[BaseModel], params: Mapping[str, Any]) -> tuple[str, str] | None:
    try:
        model.model_validate(dict(params))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        unknown = first["type"] == "extra_forbidden"
        return name, "no such argument is taken" if unknown else f"{first['msg']}, found {params[name]!r}"
    return None
