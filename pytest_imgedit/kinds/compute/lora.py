"""LoRA adapters (arXiv 2106.09685) on a loaded pipeline or judge: all of their tensors are used, or
the model is refused.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open

from pytest_imgedit.core import errors
from pytest_imgedit.core.text import one_line, shorten
from pytest_imgedit.kinds import adapter_files, adapter_settings

if TYPE_CHECKING:
    from pytest_imgedit.kinds.diffusers_parameters import LoraParameters


@dataclass(frozen=True)
class Part:
    """What an adapter adds to one component: `tensors` by PEFT's names, and PEFT's `settings`."""

    tensors: Mapping[str, torch.Tensor]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Adapter:
    """An adapter that was read and fits: its `parts` by component, its name and its weight."""

    path: Path
    name: str
    weight: float
    parts: Mapping[str, Part]


def read_loras(
    folder: Path, loras: Sequence[LoraParameters], variant: str | None = None
) -> list[Adapter]:
    """Read adapters for the pipeline in a folder, of which only headers are read; `variant` is as
    `checkpoint_files.used_variant` takes it.

    Raise `SetupError` if the pipeline's class takes no adapters, if peft is not installed, or if an
    adapter cannot be read or does not fit whole.
    """
    if not loras:
        return []
    import diffusers

    index = json.loads((folder / "model_index.json").read_text("utf-8"))
    kind = getattr(diffusers, index["_class_name"])
    bases = adapter_files.bases_of(folder, _changeable(kind), variant)
    for name, layers in bases.items():
        if layers is None:
            library, network = index[name]
            bases[name] = _described(folder / name, library, network)
    return _read_all(kind, bases, loras)


def take_loras(pipeline: Any, loras: Sequence[LoraParameters]) -> None:
    """Have a loaded pipeline use these adapters instead of those that it had; the base's weights
    stay as they are.

    Raise `SetupError` as `read_loras` and `use_loras` do.
    """
    components = {name: getattr(pipeline, name, None) for name in _changeable(type(pipeline))}
    bases = {
        name: _layers(name, network) for name, network in components.items() if network is not None
    }
    use_loras(pipeline, _read_all(type(pipeline), bases, loras))


def use_loras(pipeline: Any, adapters: Sequence[Adapter]) -> None:
    """Have a pipeline use adapters that were read instead of those that it had; raise `SetupError`
    if one cannot be loaded whole.
    """
    if getattr(pipeline, "_imgedit_loras", False):
        pipeline.unload_lora_weights()
    for adapter in adapters:
        _load(pipeline, adapter)
    if adapters:
        pipeline.set_adapters(
            [adapter.name for adapter in adapters], [adapter.weight for adapter in adapters]
        )
    pipeline._imgedit_loras = bool(adapters)


def _changeable(kind: type[Any]) -> list[str]:
    """Return the components of which a class of pipelines takes adapters."""
    return list(getattr(kind, "_lora_loadable_modules", ()))


def _described(folder: Path, library: str, kind: str) -> adapter_files.Bases:
    """Return the shapes of the weights of a network's layers by its config, without its weights,
    which are quantized or in a single file; `None` for a class of another library.
    """
    import diffusers
    import transformers

    with torch.device("meta"):
        if library == "diffusers":
            of_diffusers = getattr(diffusers, kind)
            config = dict(of_diffusers.load_config(folder))
            config.pop("quantization_config", None)
            return _shapes(folder.name, of_diffusers.from_config(config))
        if library == "transformers":
            of_transformers = getattr(transformers, kind)
            config = of_transformers.config_class.from_pretrained(folder)
            return _shapes(folder.name, of_transformers(config))
    return None


def _layers(component: str, network: Any) -> adapter_files.Bases:
    """Return the shapes of the weights of a loaded network's layers; `None` if it is quantized."""
    if getattr(network.config, "quantization_config", None) is not None:
        return None
    return _shapes(component, network)


def _shapes(component: str, network: torch.nn.Module) -> dict[str, adapter_files.Shape]:
    return {
        adapter_files.plain(
            name.removesuffix(".weight").removesuffix(".base_layer"), component
        ): tuple(weight.shape)
        for name, weight in network.named_parameters()
        if name.endswith(".weight") and ".lora_" not in name
    }


def _read_all(
    kind: type[Any], bases: Mapping[str, adapter_files.Bases], loras: Sequence[LoraParameters]
) -> list[Adapter]:
    """Read adapters for a class of pipelines whose components have these layers; raise `SetupError`
    as `read_loras` does.
    """
    if not loras:
        return []
    if not hasattr(kind, "load_lora_weights"):
        raise errors.SetupError(f"editor.loras: {kind.__name__} takes no LoRA adapters")
    _require_peft("editor.loras")
    return [_read(kind, bases, lora, f"lora_{number}") for number, lora in enumerate(loras)]


def _read(
    kind: type[Any], bases: Mapping[str, adapter_files.Bases], lora: LoraParameters, name: str
) -> Adapter:
    """Read an adapter and check that all of it fits; raise `SetupError` if it does not."""
    try:
        found = adapter_files.find(lora.path)
        tensors: Mapping[str, torch.Tensor] = _tensors(found)
        if adapter_files.needs_conversion(found, bases):
            tensors = _converted(kind, found)
        shapes = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
        placed = adapter_files.check(found, kind.__name__, shapes, bases, _changeable(kind))
    except errors.UsageError as error:
        raise errors.SetupError(f"editor.loras: {error}") from error
    parts = {
        component: _part(layers, tensors, found.settings_of(component))
        for component, layers in placed.items()
    }
    return Adapter(found.weights, lora.name or name, lora.weight, parts)


def _tensors(found: adapter_files.AdapterFile) -> dict[str, torch.Tensor]:
    with safe_open(found.weights, "pt") as file:
        return {name: file.get_tensor(name) for name in found.tensors}


def _converted(kind: type[Any], found: adapter_files.AdapterFile) -> dict[str, torch.Tensor]:
    """Return an adapter's tensors by the names of diffusers' modules, as its pipeline converts
    them; raise `UsageError` unless all of it is converted.
    """
    with _diffusers_warnings() as warnings:
        try:
            converted = kind.lora_state_dict(
                _convertible(kind, found),
                weight_name=found.weights.name,
                use_safetensors=True,
            )
        except Exception as error:
            if errors.is_out_of_memory(error):
                raise
            raise errors.UsageError(
                f"{found.weights}: its names cannot be converted for {kind.__name__}: "
                f"{_reason(error)}"
            ) from error
    for record in warnings:
        raise errors.UsageError(
            f"{found.weights}: its names cannot be converted whole for {kind.__name__}: "
            f"{shorten(' '.join(record.getMessage().split()), 300)}"
        )
    tensors, alphas = converted if isinstance(converted, tuple) else (converted, None)
    tensors = {**tensors, **{name: torch.as_tensor(a) for name, a in (alphas or {}).items()}}
    before, after = (
        adapter_files.outputs({name: tuple(shape) for name, shape in shapes.items()})
        for shapes in (found.tensors, {name: t.shape for name, t in tensors.items()})
    )
    if before != after:
        raise errors.UsageError(
            f"{found.weights}: converted for {kind.__name__}, {after} of its {before} outputs of "
            "layers are left"
        )
    return tensors


def _convertible(kind: type[Any], found: adapter_files.AdapterFile) -> Any:
    """Return what diffusers converts: an adapter's folder, or for FLUX.1 its tensors by kohya's
    names, as it does not know those of FLUX.1's authors.
    """
    from diffusers.loaders import FluxLoraLoaderMixin

    if not issubclass(kind, FluxLoraLoaderMixin):
        return str(found.weights.parent)
    tensors = {
        adapter_files.kohya_name(name) or name: tensor for name, tensor in _tensors(found).items()
    }
    for alpha in [name for name in tensors if re.search(r"final_layer.*\.alpha$", name)]:
        # diffusers drops these alphas, which scale the last layer
        layer = alpha.removesuffix(".alpha")
        rank = len(tensors[f"{layer}.lora_down.weight"])
        tensors[f"{layer}.lora_up.weight"] *= float(tensors.pop(alpha)) / rank
    return tensors


def _reason(error: Exception) -> str:
    """Return why a conversion failed: the error's text, else the line of source that raised it."""
    if str(error):
        return f"{type(error).__name__}: {one_line(error)}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {frame.line!r} in {frame.name}"


def _part(
    layers: Mapping[str, adapter_files.Layer],
    tensors: Mapping[str, torch.Tensor],
    settings: adapter_settings.Settings | None,
) -> Part:
    """Return what an adapter adds to one component, each layer with the alpha that gives its
    scale.
    """
    named: dict[str, torch.Tensor] = {}
    ranks: dict[str, int] = {}
    alphas: dict[str, float] = {}
    for name, layer in layers.items():
        assert layer.down is not None
        assert layer.up is not None
        down, up = tensors[layer.down], tensors[layer.up]
        rank = down.shape[0]
        scale = 1.0
        if layer.alpha is not None:
            scale = float(tensors[layer.alpha]) / rank
        elif settings is not None:
            scale = settings.scale_of(name)
        named[f"{name}.lora_A.weight"] = down.contiguous()
        named[f"{name}.lora_B.weight"] = up.contiguous()
        ranks[f"^{name}"] = rank
        alphas[f"^{name}"] = scale * rank
    first = next(iter(ranks))
    return Part(
        named,
        {
            "r": ranks[first],
            "lora_alpha": alphas[first],
            "rank_pattern": {name: rank for name, rank in ranks.items() if rank != ranks[first]},
            "alpha_pattern": {
                name: alpha for name, alpha in alphas.items() if alpha != alphas[first]
            },
            # of a list, PEFT takes names that end so too
            "target_modules": rf"(text_model\.)?({'|'.join(map(re.escape, sorted(layers)))})",
        },
    )


def _load(pipeline: Any, adapter: Adapter) -> None:
    """Load an adapter; raise `SetupError` unless all of it is used."""
    for component, part in adapter.parts.items():
        network = getattr(pipeline, component)
        with _diffusers_warnings() as warnings:
            try:
                _load_part(pipeline, component, adapter.name, part)
            except Exception as error:
                if errors.is_out_of_memory(error):
                    raise
                reason = shorten(" ".join(str(error).split()), 300)
                raise errors.SetupError(
                    f"editor.loras: {adapter.path}: {type(error).__name__}: {reason}"
                ) from error
        for record in warnings:
            text = record.getMessage()
            # diffusers only warns of an adapter that does not fit the networks.
            if "unexpected keys" in text or "missing keys" in text:
                raise errors.SetupError(
                    f"editor.loras: {adapter.path}: {' '.join(text.split())[:300]}"
                )
        used = sum(
            f".{adapter.name}." in key and "lora_" in key for key, _ in network.named_parameters()
        )
        if used != len(part.tensors):
            raise errors.SetupError(
                f"editor.loras: {adapter.path}: {len(part.tensors)} tensors of the {component}, "
                f"of which its layers took {used}"
            )


def _load_part(pipeline: Any, component: str, name: str, part: Part) -> None:
    """Add a part of an adapter to a component of a pipeline under the name of the adapter."""
    network = getattr(pipeline, component)
    if component.startswith("text_encoder"):
        start = f"{component}."
        inner = f"{start}text_model." if hasattr(network, "text_model") else start
        pipeline.load_lora_into_text_encoder(
            {inner + key: tensor for key, tensor in part.tensors.items()},
            network_alphas=None,
            text_encoder=network,
            prefix=component,
            adapter_name=name,
            metadata={start + key: value for key, value in part.settings.items()},
            _pipeline=pipeline,
            low_cpu_mem_usage=True,
        )
        return
    network.load_lora_adapter(
        dict(part.tensors),
        prefix=None,
        adapter_name=name,
        metadata=dict(part.settings),
        _pipeline=pipeline,
        low_cpu_mem_usage=True,
    )


@contextmanager
def _diffusers_warnings() -> Iterator[list[logging.LogRecord]]:
    """Yield a list that takes the warnings that diffusers logs meanwhile, at any level of its
    logger.
    """
    handler = BufferingHandler(sys.maxsize)
    handler.setLevel(logging.WARNING)
    log = logging.getLogger("diffusers")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    try:
        yield handler.buffer
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def merge_lora(model: Any, folder: Path) -> Any:
    """Return a loaded judge's model with an adapter in PEFT's format added to its weights; it has
    the same modules as without.

    Raise `SetupError` if peft is not installed, or if the adapter cannot be loaded, lacks tensors
    or has some that fit nothing in the model.
    """
    _require_peft("judge.adapter")
    from peft import PeftConfig, PeftModel

    try:
        tuned = PeftModel(model, PeftConfig.from_pretrained(folder), "default")
        loaded = tuned.load_adapter(str(folder), "default", use_safetensors=True)
    except Exception as error:
        if errors.is_out_of_memory(error):
            raise
        raise errors.SetupError(
            f"judge.adapter: {folder}: {type(error).__name__}: {one_line(error)}"
        ) from error
    missing = [name for name in loaded.missing_keys if "lora_" in name]
    for problem, names in (("unexpected", loaded.unexpected_keys), ("missing", missing)):
        if names:
            raise errors.SetupError(
                f"judge.adapter: {folder}: {len(names)} {problem} tensors, such as {min(names)}"
            )
    return tuned.merge_and_unload()


def _require_peft(option: str) -> None:
    if importlib.util.find_spec("peft") is None:
        raise errors.SetupError(f"{option}: the package peft is not installed: pip install peft")
