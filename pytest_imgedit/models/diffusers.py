"""The editor `diffusers`: its parameters, and what the harness knows of it before it loads."""

from __future__ import annotations

import json
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, Field

from pytest_imgedit.core.errors import SettingError, UsageError
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.targets import Target
from pytest_imgedit.models.adapters import ADAPTERS
from pytest_imgedit.models.checkpoint_kinds import CheckpointModel
from pytest_imgedit.models.checkpoints import Layout, tensor_bytes
from pytest_imgedit.models.fingerprints import Digests
from pytest_imgedit.models.parameters import ComputeParameters, Dtype, Parameters, indifferent, without_defaults
from pytest_imgedit.models.pipelines import (
    attention_backends,
    call_signature,
    check_arguments,
    given_by_harness,
    pipeline_class,
)
from pytest_imgedit.models.places import GIB, Memory, Room, Site, Where, Workload

#: Compiling pays from so many denoising steps a worker on, for weights of so many bytes.
COMPILE_STEPS, COMPILE_BYTES = 300, 2 * GIB
#: Steps where the config names none.
USUAL_STEPS = 50
#: What attention backends that compute in fewer bits have in their names.
LOSSY_ATTENTION = ("sage", "int8", "fp8")
#: Packages of attention kernels, by what the names of backends that take them contain.
ATTENTION_KERNELS: dict[str, tuple[str, ...]] = {
    "flash": ("flash-attn", "flash-attn-3"),
    "sage": ("sageattention",),
    "xformers": ("xformers",),
    "aiter": ("aiter",),
    "hub": ("kernels",),
}


class ShardParameters(Parameters):
    """How the GPUs of one worker share the editor; see `editors/fsdp.py`."""

    strategy: Literal["full", "grad_op", "context", "none"] = Field(
        default="full",
        description='`"full"`: each GPU keeps its part of every block and gathers one block at a time; `"grad_op"`: '
        'parts until the first edit, whole blocks from then on; `"context"`: each GPU has all weights and a part of '
        'the sequence; `"none"`: whole components on each GPU',
    )
    cpu_offload: bool = Field(default=False, description="parts stay in host memory")
    param_dtype: Dtype = Field(default="auto", description="what blocks compute in, if not as they are stored")
    reduce_dtype: Dtype = Field(default="auto", description="number format of gradients, for those who train")
    text_encoder: Literal["shard", "replicate"] = Field(
        default="shard", description='`"replicate"`: the whole text encoder on every GPU'
    )


class LoraParameters(Parameters):
    """One entry of `editor.loras`."""

    path: str = Field(min_length=1, description="a file of safetensors")
    weight: float = Field(default=1.0, allow_inf_nan=False, description="how strongly it counts")
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]{1,64}$", description="a name for messages")


class DiffusersParameters(ComputeParameters):
    """What the editor `diffusers` takes; every other key goes to the pipeline's call."""

    model_config = ConfigDict(extra="allow", strict=True)

    compile: Literal["auto", "if possible"] | bool = Field(
        default="auto",
        description='compile the transformer blocks; `"auto"`: only for models of at least 2 GiB on one GPU, with at '
        'least 300 denoising steps planned per GPU; `"if possible"`: no error where it cannot be done',
    )
    attention_backend: str | None = Field(
        default=None, description='one of diffusers\' attention backends, such as `"_native_cudnn"`'
    )
    quantize: Literal["fp8"] | None = Field(
        default=None, description='`"fp8"`: linear layers in float8 (needs torchao: the extra `fp8`), faster with loss'
    )
    step_cache: Literal["first_block"] | None = Field(
        default=None,
        description='`"first_block"`: skip the further blocks of a step whose first block hardly changed, faster with '
        "loss",
    )
    step_cache_threshold: float = Field(
        default=0.08, gt=0, lt=1, description="share of its size by which the first block may change for that"
    )
    offload: Literal["auto", "none", "model", "group"] = indifferent(
        "auto",
        description='weights stay in host memory, and only the component (`"model"`) or block (`"group"`) at work is '
        'on the GPU; `"auto"` takes `"group"` where a GPU cannot hold the editor, `"none"` never',
    )
    area: int | None = Field(
        default=None,
        ge=4096,
        description="pixels of an edit at its source's aspect ratio, instead of the model's default",
    )
    loras: list[LoraParameters] = Field(
        default_factory=list, description='LoRA adapters: `[{path = "a.safetensors", weight = 0.8}]` (extra `lora`)'
    )
    shard: ShardParameters = indifferent(
        ShardParameters(), description="with `--imgedit-gpus-per-worker=K`, how K GPUs share one editor"
    )


class Diffusers(CheckpointModel):
    """A pipeline of diffusers that edits by instruction."""

    role = "editor"
    name = "diffusers"
    loads = "pytest_imgedit.editors.diffusers:DiffusersEditor"
    sharded: ClassVar[str] = "pytest_imgedit.editors.sharded_editor:ShardedEditor"
    layout = Layout.PIPELINE
    Params = DiffusersParameters
    offloads = ("model", "group")
    pads_batches = True
    names_files = ("loras",)
    libraries = ("torch", "torchvision", "diffusers", "transformers", "tokenizers", "pillow", "ftfy")

    @cached_property
    def options(self) -> DiffusersParameters:
        """The checked parameters."""
        return DiffusersParameters.check(dict(self.params))

    @property
    def is_sharded(self) -> bool:
        """Whether a worker's GPUs share the editor, each with a process of its own."""
        return self.gpus > 1 and self.options.shard.strategy != "none"

    @property
    def shares_cpu(self) -> bool:
        return self.is_sharded

    @property
    def target(self) -> Target:
        return Target.parse(self.sharded if self.is_sharded else self.loads, str(self.checkpoint.absolute()))

    @property
    def worker_params(self) -> JsonObject:
        params = dict(self.params)
        if self.is_sharded:
            return {**params, "ranks": self.gpus}
        params.pop("shard", None)
        return params

    def check(self, site: Site) -> None:
        shard = self.params.get("shard", {})
        if self.gpus > 1 and self._offload in self.offloads:
            raise SettingError("offload", "not with --imgedit-gpus-per-worker: editor.shard.cpu_offload does that")
        super().check(site)
        _check_loras(self.options.loras)
        self._check_options()
        check_arguments(self.argument or "", self.params, self.options.model_extra or {})
        self._check_batches()
        if "shard" in self.params and self.gpus == 1:
            raise SettingError("shard", "nothing to share, expected --imgedit-gpus-per-worker of 2 or more")
        strategy = self.options.shard.strategy
        if self.is_sharded and self.options.quantize:
            raise SettingError("quantize", "not with a sharded editor")
        if self.is_sharded and self.options.loras and strategy != "context":
            raise SettingError("loras", 'not with shards, expected editor.shard.strategy "context" or "none"')
        if self.gpus > 1 and strategy in ("context", "none") and "strategy" in shard and not site.may_have_gpus:
            raise SettingError("shard.strategy", f"{strategy!r} needs GPUs")
        if self.options.quantize and site.is_here and find_spec("torchao") is None:
            raise SettingError("quantize", "torchao is not installed, pip install torchao")

    def _check_batches(self) -> None:
        """Refuse batches of a pipeline that takes one source a call, or whose edits depend on the others of a call."""
        name = pipeline_class(self.argument or "") or ""
        adapter = ADAPTERS.get(name)
        if self.batch_size > 1 and self.is_sharded:
            raise SettingError("batch_size", f"found {self.batch_size}, but a sharded editor makes one edit a call")
        if self.batch_size > 1 and adapter is not None and not adapter.batches:
            raise SettingError("batch_size", f"found {self.batch_size}, but {name} {adapter.no_batches}")

    def _check_options(self) -> None:
        """Refuse what cannot do what it says."""
        options, given = self.options, self.params
        if "step_cache_threshold" in given and not options.step_cache:
            raise SettingError("step_cache_threshold", "it does nothing without editor.step_cache")
        further = [name for name in given.get("shard", {}) if name != "strategy"]
        if options.shard.strategy in ("context", "none") and further:
            reason = f"it does nothing with the strategy {options.shard.strategy!r}"
            raise SettingError(f"shard.{further[0]}", reason)
        if options.loras and options.quantize:
            raise SettingError("loras", "not with editor.quantize")
        backend, backends = options.attention_backend, attention_backends()
        if backend is not None and backends and backend not in backends:
            expected = ", ".join(sorted(backends))
            raise SettingError("attention_backend", f"found {backend!r}, expected one of {expected}")

    def deciding(self, dtype: str) -> JsonObject:
        """Return the parameters that decide; also the number of GPUs where each computes a part of an image."""
        params = DiffusersParameters.deciding(_without_call_defaults(self.argument or "", dict(self.params)))
        if "loras" in params:  # what they are called in messages decides nothing
            params["loras"] = [{"path": lora["path"], "weight": lora.get("weight", 1)} for lora in params["loras"]]
        if self.is_sharded and self.options.shard.strategy == "context":
            return {**params, "shard": {"strategy": "context", "ranks": self.gpus}}
        if self.is_sharded and self.options.shard.param_dtype not in ("auto", dtype):
            return {**params, "shard": {"param_dtype": self.options.shard.param_dtype}}
        return params

    def computed_by(self, where: Where, digests: Digests) -> JsonObject:
        further = super().computed_by(where, digests)
        adapter = ADAPTERS.get(pipeline_class(self.argument or "") or "")
        return further if adapter is None else {**further, "size": adapter.size}

    @property
    def packages(self) -> tuple[str, ...]:
        used = {"torchao": self.options.quantize, "peft": self.options.loras}
        return (*self.libraries, *(name for name, value in used.items() if value), *kernels(self._backend))

    @property
    def unused_packages(self) -> tuple[str, ...]:
        used = {"peft": self.options.loras, "scipy": _schedules_with_scipy(Path(self.argument or ""))}
        return tuple(name for name, value in used.items() if not value)

    @property
    def _backend(self) -> str:
        return self.options.attention_backend or ""

    def component_bytes(self) -> dict[str, int]:
        """Bytes of weights in memory by component, with those of LoRA adapters."""
        return super().component_bytes() | {lora.path: Path(lora.path).stat().st_size for lora in self.options.loras}

    def memory(self) -> Memory:
        if not self.is_sharded:
            return super().memory()
        if self.options.shard.cpu_offload:
            return Memory(None, self.weight_bytes)
        return Memory(self._held_by_ranks())

    def _held_by_ranks(self) -> int:
        """Bytes that the ranks hold together: a part each, all of it each, or with `"grad_op"` both."""
        shard, parts, ranks = self.options.shard, self.component_bytes(), self.gpus
        copies = {"full": 1, "grad_op": ranks + 1, "context": ranks}[shard.strategy]
        replicates = shard.text_encoder == "replicate"
        whole = sum(size for name, size in parts.items() if replicates and name.startswith("text_encoder"))
        return copies * (sum(parts.values()) - whole) + ranks * whole

    def hint(self, room: Room) -> str:
        shard = self.options.shard
        if self.gpus > 1 and shard.strategy not in ("full", "none"):
            return '; editor.shard.strategy="full" needs less'
        if shard.text_encoder == "replicate":
            return '; editor.shard.text_encoder="shard" needs less'
        if self._offload == "model":
            return '; editor.offload="group" needs least'
        if room.enough is None and self.gpus > 1:
            return '; editor.shard.strategy="full" with editor.shard.cpu_offload=true needs least'
        return super().hint(room)

    def settle(self, workload: Workload) -> Self:
        """Offload where a GPU cannot hold the editor; compile where that pays."""
        settled = super().settle(workload)
        options = settled.options
        if self.gpus > 1 or options.compile != "auto":
            return settled
        steps = workload.jobs * float(self.params.get("num_inference_steps", USUAL_STEPS))
        pays = steps >= COMPILE_STEPS and self.weight_bytes >= COMPILE_BYTES
        if pays and not options.step_cache and options.offload not in self.offloads:
            return settled.with_params(compile="if possible")
        return settled

    @property
    def lossy(self) -> list[str]:
        options = self.options
        named = [f"{name}={getattr(options, name)}" for name in ("quantize", "step_cache") if getattr(options, name)]
        if any(word in self._backend for word in LOSSY_ATTENTION):
            named.append(f"attention_backend={self._backend}")
        if options.step_cache:
            named.append(f"step_cache_threshold={options.step_cache_threshold}")
        return named


def _schedules_with_scipy(folder: Path) -> bool:
    """Tell whether the scheduler of a pipeline may need scipy; one that is not where others are may."""
    try:
        config = json.loads((folder / "scheduler" / "scheduler_config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return True
    name = str(config.get("_class_name"))
    return bool(config.get("use_beta_sigmas")) or name.startswith(("LMS", "DPMSolverSDE"))


def kernels(name: str) -> list[str]:
    """Names of the packages whose kernels an attention backend takes."""
    if "native" in name:
        return []
    return [package for part, packages in ATTENTION_KERNELS.items() if part in name for package in packages]


def _check_loras(loras: list[LoraParameters]) -> None:
    """Raise `SettingError` for a LoRA file that is not there or no safetensors, and for what is given twice."""
    names = [lora.name for lora in loras if lora.name]
    if len(set(names)) < len(names):
        raise SettingError("loras", "a name is given twice")
    if len({lora.path for lora in loras}) < len(loras):
        raise SettingError("loras", "a file is given twice")
    for lora in loras:
        if not lora.path.endswith(".safetensors"):
            raise SettingError("loras", f"{lora.path}: weights that can run code when they load, expected safetensors")
        try:
            tensor_bytes(Path(lora.path))
        except UsageError as error:
            raise SettingError("loras", str(error)) from None


def _without_call_defaults(model: str, params: JsonObject) -> JsonObject:
    """Leave out arguments that the pipeline's call has by default, or that the harness gives it anyway."""
    name = pipeline_class(model)
    call = call_signature(name) if name else None
    if name is None or call is None:
        return params
    # The harness gives some arguments itself, so that a default that is written out is another call.
    apart = ADAPTERS[name].given if name in ADAPTERS else frozenset()
    defaults = {key: value for key, value in call.defaults.items() if key not in apart}
    return without_defaults(params, {**defaults, **given_by_harness(call.defaults, params)})
