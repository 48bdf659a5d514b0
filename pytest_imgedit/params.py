"""Parameters of the built-in models, checked before anything loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_imgedit.checkpoints import ADAPTER_FILES, tensor_bytes
from pytest_imgedit.editors.adapters import ADAPTERS
from pytest_imgedit.editors.base import check_params
from pytest_imgedit.editors.pipelines import (
    OWN,
    attention_backends,
    call_signature,
    check_arguments,
    given_by_harness,
    pipeline_class,
)
from pytest_imgedit.endpoints import API_KEY_ENV, CONCURRENCY, HOW_ASKED, RETRIES, TIMEOUT, parse_endpoint
from pytest_imgedit.errors import UsageError
from pytest_imgedit.redaction import is_secret
from pytest_imgedit.registry import signature, source_file
from pytest_imgedit.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_imgedit.registry import Target


#: How much of its size a first block's change may be for the others to be skipped, where nothing else is said.
STEP_CACHE_THRESHOLD = 0.08
#: What `editor.offload` may keep on a GPU, one at a time, of an editor whose weights are in host memory.
OFFLOADS = ("model", "group")


class ModelParams(BaseModel):
    """What every model takes; see `numerics.py`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    deterministic: bool = True


class ShardParams(BaseModel):
    """How the GPUs of one worker share the editor; see `editors/sharding.py`. `none` puts whole components on them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    strategy: Literal["full", "grad_op", "context", "none"] = "full"
    cpu_offload: bool = False
    param_dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    reduce_dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    text_encoder: Literal["shard", "replicate"] = "shard"


class LoraParams(BaseModel):
    """One entry of `editor.loras`: a file of safetensors, how strongly it counts, and a name for messages."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: str = Field(min_length=1)
    weight: float = Field(default=1.0, allow_inf_nan=False)
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]{1,64}$")


class DiffusersParams(ModelParams):
    """What the editor `diffusers` takes beside the arguments of the pipeline's call."""

    compile: Literal["auto"] | bool = "auto"
    attention_backend: str | None = None
    quantize: Literal["fp8"] | None = None
    step_cache: Literal["first_block"] | None = None
    step_cache_threshold: float = Field(default=STEP_CACHE_THRESHOLD, gt=0, lt=1)
    offload: Literal["auto", "none", "model", "group"] = "auto"
    area: int | None = Field(default=None, ge=4096)
    loras: list[LoraParams] = Field(default_factory=list)
    shard: ShardParams = Field(default_factory=ShardParams)


class QwenVLParams(ModelParams):
    """What the judge `qwen-vl` takes."""

    max_new_tokens: int = Field(default=128, ge=1)
    max_pixels: int = Field(default=1_048_576, ge=1024)
    scoring: Literal["greedy", "expected"] = "greedy"
    batch_invariant: bool = True
    adapter: str | None = None
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2", "flash_attention_3", "flex_attention"] = "auto"


class EndpointParams(BaseModel):
    """What every editor and judge behind a server takes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    api_key_env: str = API_KEY_ENV
    concurrency: int = Field(default=CONCURRENCY, ge=1, le=256)
    timeout: float = Field(default=TIMEOUT, gt=0, allow_inf_nan=False)
    retries: int = Field(default=RETRIES, ge=0)
    extra: dict[str, Any] = Field(default_factory=dict)


class OpenAIParams(EndpointParams):
    """What the judge `openai` takes; prices are in one currency for a million tokens."""

    max_new_tokens: int = Field(default=128, ge=1)
    max_pixels: int = Field(default=1_048_576, ge=1024)
    temperature: Literal["default"] | Annotated[float, Field(ge=0, le=2)] = 0.0
    token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    price_in: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    price_out: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class OpenAIImagesParams(EndpointParams):
    """What the editor `openai-images` takes."""

    size: str | None = None
    response_format: Literal["b64_json"] | None = None
    send_seed: bool = False


ENDPOINT_PARAMS: dict[str, type[BaseModel]] = {"openai": OpenAIParams, "openai-images": OpenAIImagesParams}


def find_problem(target: Target, params: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first parameter that an editor or judge cannot take, with the reason; `None` if all are right.

    Raises `UsageError` if a checkpoint or a URL is not what the editor or judge needs.
    """
    if target.kind in ENDPOINT_PARAMS:
        parse_endpoint(target.kind, target.argument or "")
        if secret := next((name for name in params if is_secret(name)), None):
            return secret, f"a key comes from the environment, from the variable that api_key_env names ({API_KEY_ENV})"
        return _validate(ENDPOINT_PARAMS[target.kind], params)
    if target.kind == "qwen-vl":
        return _validate(QwenVLParams, params) or _find_adapter(params.get("adapter"))
    if target.kind == "diffusers":
        own = {name: value for name, value in params.items() if name in OWN}
        problem = _validate(DiffusersParams, own) or _impossible(own) or _find_loras(own.get("loras", []))
        return problem or check_arguments(target.argument or "", params)
    return check_params(target, params)


def _find_loras(loras: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return the first LoRA file that is not there, is no safetensors, or whose name is given twice."""
    names = [lora["name"] for lora in loras if lora.get("name")]
    if len(set(names)) < len(names):
        return "loras", "a name is given twice"
    if len({lora["path"] for lora in loras}) < len(loras):
        return "loras", "a file is given twice"
    for lora in loras:
        if not lora["path"].endswith(".safetensors"):
            return "loras", f"{lora['path']}: weights that can run code when they load, expected safetensors"
        try:
            tensor_bytes(Path(lora["path"]))
        except UsageError as error:
            return "loras", str(error)
    return None


def _find_adapter(folder: str | None) -> tuple[str, str] | None:
    for name in ADAPTER_FILES if folder is not None else ():
        if not Path(str(folder), name).is_file():
            return "adapter", f"{folder}: no {name}, expected a folder with an adapter in PEFT's format"
    return None


def deciding(target: Target, params: Mapping[str, Any], dtype: str = "auto") -> dict[str, Any]:
    """Return the parameters that decide what a model computes: not defaults, nor where or how fast it does that.

    `dtype` is the one in which it computes, if that is known. The number of GPUs that share an editor counts where each
    computes a part of an image.
    """
    models: dict[str, type[BaseModel]] = {**ENDPOINT_PARAMS, "qwen-vl": QwenVLParams, "diffusers": DiffusersParams}
    model = models.get(target.kind)
    if model is None:
        return _without_defaults(params, _defaults_of_class(target))
    defaults = {name: field.get_default(call_default_factory=True) for name, field in model.model_fields.items()}
    params = {name: value for name, value in params.items() if name != "dtype"}  # counts as resolved for the device
    if target.kind == "diffusers":
        params = _without_call_defaults(target.argument or "", params)
    apart = HOW_ASKED if target.kind in ENDPOINT_PARAMS else ("offload", "shard")
    found = _without_defaults({name: value for name, value in params.items() if name not in apart}, defaults)
    if "loras" in found:  # what they are called in messages decides nothing
        found["loras"] = [{"path": lora["path"], "weight": lora.get("weight", 1)} for lora in found["loras"]]
    shard = params.get("shard", {}) if target.kind == "diffusers" else {}
    if shard.get("strategy") == "context":
        return {**found, "shard": {name: shard[name] for name in ("strategy", "ranks") if name in shard}}
    if shard.get("param_dtype", "auto") not in ("auto", dtype):
        return {**found, "shard": {"param_dtype": shard["param_dtype"]}}
    return found


def _without_defaults(params: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is written out although it holds anyway, also 4 for 4.0 but not 1 for true."""
    return {
        name: value
        for name, value in params.items()
        if name not in defaults
        or value != defaults[name]
        or isinstance(value, bool) != isinstance(defaults[name], bool)
    }


def _defaults_of_class(target: Target) -> Mapping[str, Any]:
    path = source_file(target.module)
    found = signature(path, target.attribute, "__init__") if path else None
    return {} if found is None else found.defaults


def _without_call_defaults(model: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out arguments that the pipeline's call has by default, or that the harness gives it anyway."""
    name = pipeline_class(model)
    call = call_signature(name) if name else None
    if name is None or call is None:
        return dict(params)
    # The harness gives some arguments itself, so that a default that is written out is another call.
    apart = ADAPTERS[name].given if name in ADAPTERS else frozenset()
    defaults = {key: value for key, value in call.defaults.items() if key not in apart}
    return _without_defaults(params, {**defaults, **given_by_harness(call.defaults, params)})


def _impossible(own: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first parameter that cannot do what it says, with the reason."""
    if "step_cache_threshold" in own and not own.get("step_cache"):
        return "step_cache_threshold", "it does nothing without editor.step_cache"
    shard = own.get("shard", {})
    strategy, further = shard.get("strategy"), [name for name in shard if name != "strategy"]
    if strategy in ("context", "none") and further:
        return f"shard.{further[0]}", f"it does nothing with the strategy {strategy!r}"
    if own.get("loras") and own.get("quantize"):
        return "loras", "not with editor.quantize"
    backend, known = own.get("attention_backend"), attention_backends()
    if backend is not None and known and backend not in known:
        return "attention_backend", f"found {backend!r}, expected one of {', '.join(sorted(known))}"
    return None


def _validate(model: type[BaseModel], params: Mapping[str, Any]) -> tuple[str, str] | None:
    try:
        model.model_validate(dict(params))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        inside = isinstance(params.get(name), dict)  # a table: what is wrong is one of its keys
        path = ".".join(map(str, first["loc"])) if inside else name
        if first["type"] == "extra_forbidden":
            if not inside:
                return path, f"no such argument is taken{did_you_mean(name, model.model_fields)}"
            table: Any = model.model_fields[name].annotation
            near = did_you_mean(str(first["loc"][-1]), table.model_fields)
            return path, f"no such key, expected one of {', '.join(table.model_fields)}{near}"
        if first["type"] == "model_type":
            return path, f"expected a table, found {first['input']!r}"
        ways = dict.fromkeys(one["msg"] for one in error.errors() if one["loc"][0] == name)
        return path, f"{' or '.join(ways)}, found {first['input']!r}"
    return None
