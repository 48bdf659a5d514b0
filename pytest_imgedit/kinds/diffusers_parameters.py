"""What the editor `diffusers` takes."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from pytest_imgedit.kinds.base import ComputeParameters, Dtype, Parameters, indifferent


class ShardParameters(Parameters):
    """How the GPUs of one worker share the editor; see `compute/fsdp.py`."""

    strategy: Literal["full", "grad_op", "context", "none"] = Field(
        default="full",
        description='`"full"`: each GPU keeps its part of every block and gathers one block at a '
        'time; `"grad_op"`: parts until the first edit, whole blocks from then on; `"context"`: '
        'each GPU has all weights and a part of the sequence; `"none"`: whole components on each '
        "GPU",
    )
    cpu_offload: bool = Field(default=False, description="parts stay in host memory")
    param_dtype: Dtype = Field(
        default="auto",
        description="number format of the computation, if it differs from the stored one",
    )
    reduce_dtype: Dtype = Field(
        default="auto", description="number format of gradients, for training"
    )
    text_encoder: Literal["shard", "replicate"] = Field(
        default="shard", description='`"replicate"`: the whole text encoder on every GPU'
    )


class LoraParameters(Parameters):
    """One entry of `editor.loras`."""

    path: str = Field(
        min_length=1, description="a file of safetensors, or the folder of one adapter"
    )
    weight: float = Field(default=1.0, allow_inf_nan=False, description="how strongly it counts")
    name: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9_-]{1,64}$", description="a name for messages"
    )


class DiffusersParameters(ComputeParameters):
    """What the editor `diffusers` takes; every other key goes to the pipeline's call."""

    model_config = ConfigDict(extra="allow", strict=True)

    variant: str | None = indifferent(
        None,
        pattern=r"^\w+$",
        description='which weights of a checkpoint that stores several, such as `"fp16"`; found by '
        "itself where it is the only one",
    )
    single_file: str | None = Field(
        default=None,
        min_length=1,
        description="a file of safetensors or GGUF whose weights take the place of those in the "
        "pipeline's folder (GGUF: extra `gguf`)",
    )
    compile: Literal["auto", "if possible"] | bool = Field(
        default="auto",
        description='compile the transformer blocks; `"auto"`: of models of at least 2 GiB on one '
        "GPU, of the pipelines whose compiled edits are equal in every process; "
        '`"if possible"`: no error where it cannot be done',
    )
    attention_backend: str | None = Field(
        default=None, description='one of diffusers\' attention backends, such as `"_native_cudnn"`'
    )
    quantize: Literal["fp8"] | None = Field(
        default=None,
        description='`"fp8"`: linear layers in float8 (needs torchao: the extra `fp8`), faster '
        "with loss",
    )
    offload: Literal["auto", "none", "model", "group"] = indifferent(
        "auto",
        description='weights stay in host memory, and only the component (`"model"`) or block '
        '(`"group"`) at work is on the GPU; `"auto"` takes `"group"` where a GPU cannot hold the '
        'editor, `"none"` never',
    )
    area: int | None = Field(
        default=None,
        ge=4096,
        description="pixels of an edit at its source's aspect ratio, instead of the model's "
        "default",
    )
    loras: list[LoraParameters] = Field(
        default_factory=list,
        examples=['[{path = "a.safetensors"}]'],
        description='LoRA adapters: `[{path = "a.safetensors", weight = 0.8}]` (extra `lora`)',
    )
    scheduler: dict[str, Any] = Field(
        default_factory=dict,
        examples=['{class = "EulerDiscreteScheduler"}'],
        description="a scheduler of diffusers, laid over the model's own configuration, such as "
        "`{use_dynamic_shifting = false, shift = 3.0}`; `class` names another class than the "
        'model\'s own, `"none"` stands for None',
    )
    shard: ShardParameters = indifferent(
        ShardParameters(),
        description="with `--imgedit-gpus-per-worker=K`, how K GPUs share one editor",
    )
