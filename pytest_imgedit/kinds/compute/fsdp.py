"""Loads a diffusers pipeline over the ranks of a process group: FSDP2, or context parallelism."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import init_empty_weights
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, distribute_tensor

from pytest_imgedit.core.errors import SetupError
from pytest_imgedit.kinds import checkpoint_files
from pytest_imgedit.kinds.compute import numerics, tensor_checks
from pytest_imgedit.kinds.compute.pipeline import load_pipeline

if TYPE_CHECKING:
    from pytest_imgedit.kinds.diffusers_parameters import ShardParameters

_NETWORKS: tuple[str, ...] = ("transformer", "unet")


def load_sharded(
    folder: Path,
    device: torch.device,
    dtype: torch.dtype,
    shard: ShardParameters,
    prepare: Callable[[Any], None] = lambda pipeline: None,
    *,
    variant: str | None = None,
    rank0_reads: bool = True,
    **components: Any,
) -> Any:
    """Load a pipeline over the ranks of the default process group; all ranks call this together.

    With the strategy `"context"` every rank loads all of the pipeline, and computes a part of every
    image. Otherwise rank 0 reads the weights of what is sharded and passes them on, tensor by
    tensor, so that other ranks hold one whole tensor at a time; without `rank0_reads` every rank
    reads them. What is not sharded, such as the VAE, is whole on every rank. `prepare` may change
    the pipeline before it is sharded. `variant` is as `load_pipeline` takes it. `components` are
    used as they are, in place of those in the folder; networks with the strategy `"context"` alone.
    Raise `SetupError` for a pipeline that cannot be sharded.
    """
    if shard.strategy == "context":
        pipeline = load_pipeline(folder, str(device), dtype, variant=variant, **components)
        prepare(pipeline)
        _split_context(pipeline)
        return pipeline
    used = checkpoint_files.used_variant(folder, checkpoint_files.Layout.PIPELINE, variant)
    classes = _sharded_classes(folder, shard)
    empty = {name: _empty(cls, folder / name) for name, cls in classes.items()}
    pipeline = load_pipeline(folder, "cpu", dtype, variant=variant, **empty, **components)
    prepare(pipeline)
    for name, component in pipeline.components.items():
        if isinstance(component, torch.nn.Module) and name not in empty:
            component.to(device)
    for name, cls in classes.items():
        weights = _read(cls, folder / name, dtype, used, rank0_reads)
        _wrap(empty[name], device, shard, _take_dtypes(empty[name], weights, rank0_reads))
        _fill(empty[name], weights, device, shard.cpu_offload, rank0_reads)
    # The pipeline moves its inputs to the rank's device, wherever its parameters lie.
    device_of_rank = property(lambda self: device)
    pipeline.__class__ = type(
        type(pipeline).__name__,
        (type(pipeline),),
        {"_execution_device": device_of_rank, "device": device_of_rank},
    )
    return pipeline


def _sharded_classes(folder: Path, shard: ShardParameters) -> dict[str, Any]:
    """Return the classes of the components to shard, by name: of denoising networks, and of text
    encoders unless these are replicated. Raise `SetupError` if there is no denoising network.
    """
    index = json.loads((folder / "model_index.json").read_text("utf-8"))
    prefixes = _NETWORKS
    if shard.text_encoder != "replicate":
        prefixes += ("text_encoder",)
    classes: dict[str, Any] = {}
    for name, value in index.items():
        if not name.startswith(prefixes) or not isinstance(value, list):
            continue
        library = value[0]
        if library in ("diffusers", "transformers"):
            classes[name] = getattr(importlib.import_module(library), value[1])
    if not any(name.startswith(_NETWORKS) for name in classes):
        raise SetupError(
            f"editor.shard: {index.get('_class_name')} has no network that can be sharded"
        )
    return classes


def _empty(cls: Any, folder: Path) -> Any:
    """Return the model of a folder's config, with parameters that have no memory yet; its buffers
    are real.
    """
    with init_empty_weights():
        if hasattr(cls, "load_config"):  # of diffusers
            model = cls.from_config(cls.load_config(folder))
        else:
            model = cls._from_config(cls.config_class.from_pretrained(folder))
    return model.eval().requires_grad_(False)


def _read(
    cls: Any, folder: Path, dtype: torch.dtype, variant: str | None, rank0_reads: bool
) -> dict[str, torch.Tensor] | None:
    """Return a model's tensors by name, or `None` on a rank that does not read; raise `SetupError`
    if they do not fit the model's config.
    """
    if rank0_reads and dist.get_rank() != 0:
        return None
    is_transformers = cls.__module__.startswith("transformers.")
    options = {"use_safetensors": True, "trust_remote_code": False} if is_transformers else {}
    with tensor_checks.whole_checkpoints():
        model = cls.from_pretrained(
            folder,
            dtype=dtype,
            variant=variant if checkpoint_files.has_variant(folder, variant) else None,
            **options,
        )
        return dict(model.state_dict())


def _take_dtypes(
    model: Any, weights: dict[str, torch.Tensor] | None, rank0_reads: bool
) -> set[torch.nn.Parameter]:
    """Give an empty model the dtypes in which its tensors were read, on all ranks alike.

    Return the parameters of another dtype than most, such as those of modules that stay in float32:
    a shard has one dtype, so these stay whole on every rank.
    """
    dtypes = {name: tensor.dtype for name, tensor in (weights or {}).items()}
    if rank0_reads:
        shared = [dtypes]
        dist.broadcast_object_list(shared, 0)
        [dtypes] = shared
    parameters: list[torch.nn.Parameter] = []
    sizes = Counter[torch.dtype]()
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(dtypes[name])
            parameters.append(parameter)
            sizes[parameter.dtype] += parameter.numel()
    [(usual_dtype, _)] = sizes.most_common(1)
    return {parameter for parameter in parameters if parameter.dtype != usual_dtype}


def _wrap(
    model: Any, device: torch.device, shard: ShardParameters, whole: set[torch.nn.Parameter]
) -> None:
    """Shard a model except for the parameters `whole`: first each block that is repeated or must
    not be split, as a unit of its own, then the rest.
    """
    offload_policy = OffloadPolicy()
    if shard.cpu_offload:
        offload_policy = CPUOffloadPolicy(pin_memory=device.type == "cuda")
    options: dict[str, Any] = {
        "mesh": init_device_mesh(device.type, (dist.get_world_size(),)),
        "reshard_after_forward": shard.strategy == "full",
        "mp_policy": MixedPrecisionPolicy(
            numerics.DTYPES.get(shard.param_dtype), numerics.DTYPES.get(shard.reduce_dtype)
        ),
        "offload_policy": offload_policy,
        "ignored_params": whole,
    }
    block_names = set(getattr(model, "_no_split_modules", None) or ())
    block_names.update(getattr(model, "_repeated_blocks", None) or ())
    for module in reversed(list(model.modules())):  # what is inside a block comes before it
        if type(module).__name__ in block_names:
            fully_shard(module, **options)
    fully_shard(model, **options)


def _fill(
    model: Any,
    weights: dict[str, torch.Tensor] | None,
    device: torch.device,
    cpu_offload: bool,
    rank0_reads: bool,
) -> None:
    """Give a sharded model memory and its `weights`, which are taken out of the dictionary one by
    one; it is `None` on ranks that do not read. With `cpu_offload` shards stay in host memory.
    """
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.to_empty(device=torch.device("cpu") if cpu_offload else device)
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])  # most are in no checkpoint
    # One tensor after the other, so that one at a time is whole on a GPU.
    for name, target in model.state_dict().items():
        if weights is None:
            values = torch.empty(target.shape, dtype=target.dtype, device=device)
        else:
            values = weights.pop(name).to(device)
        if rank0_reads:
            dist.broadcast(values, 0)
        if isinstance(target, DTensor):
            values = distribute_tensor(
                values, target.device_mesh, target.placements, src_data_rank=None
            ).to_local()
            target = target.to_local()
        target.copy_(values)
    if cpu_offload:
        _move_unsharded(model, device)


def _move_unsharded(model: Any, device: torch.device) -> None:
    """Move whole parameters and buffers to a device, and leave shards where they are."""
    for parameter in model.parameters():
        if not isinstance(parameter, DTensor):
            parameter.data = parameter.data.to(device)
    for module in model.modules():
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else buffer.to(device)


def _split_context(pipeline: Any) -> None:
    """Have each rank compute a part of every image; raise `SetupError` if the pipeline's network
    cannot be split so.
    """
    from diffusers import ContextParallelConfig

    network: Any = next(
        (getattr(pipeline, name) for name in _NETWORKS if hasattr(pipeline, name)), None
    )
    try:
        network.enable_parallelism(
            config=ContextParallelConfig(
                ulysses_degree=dist.get_world_size(), ulysses_anything=True
            )
        )
    except (AttributeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise SetupError(f"editor.shard.strategy: {type(error).__name__}: {error}") from error
