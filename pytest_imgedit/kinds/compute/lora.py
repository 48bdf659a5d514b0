"""LoRA adapters (arXiv 2106.09685) on a loaded pipeline or judge: all of their tensors are used, or
the model is refused.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open

from pytest_imgedit.core import errors
from pytest_imgedit.core.text import one_line, shorten

if TYPE_CHECKING:
    from pytest_imgedit.kinds.diffusers_parameters import LoraParameters


def take_loras(pipeline: Any, loras: Sequence[LoraParameters]) -> None:
    """Have a pipeline use these adapters instead of those that it had; the base's weights stay as
    they are.

    Raise `SetupError` if the pipeline takes no adapters, if peft is not installed, or if an adapter
    cannot be loaded or has tensors that fit none of the pipeline's networks.
    """
    if not loras and not getattr(pipeline, "_imgedit_loras", False):
        return
    if not hasattr(pipeline, "load_lora_weights"):
        raise errors.SetupError(f"editor.loras: {type(pipeline).__name__} takes no LoRA adapters")
    _require_peft("editor.loras")
    if getattr(pipeline, "_imgedit_loras", False):
        pipeline.unload_lora_weights()
    names = [lora.name or f"lora_{number}" for number, lora in enumerate(loras)]
    for name, lora in zip(names, loras, strict=True):
        _load(pipeline, name, Path(lora.path))
    if names:
        pipeline.set_adapters(names, [lora.weight for lora in loras])
    pipeline._imgedit_loras = bool(names)


def _load(pipeline: Any, name: str, path: Path) -> None:
    """Load the adapter in a file as `name`; raise `SetupError` unless it fits the pipeline and all
    of it is used.
    """
    with _diffusers_warnings() as warnings:
        try:
            pipeline.load_lora_weights(
                str(path.parent), weight_name=path.name, adapter_name=name, use_safetensors=True
            )
        except Exception as error:
            if errors.is_out_of_memory(error):
                raise
            reason = shorten(" ".join(str(error).split()), 300)
            raise errors.SetupError(
                f"editor.loras: {path}: {type(error).__name__}: {reason}"
            ) from error
    for record in warnings:
        text = record.getMessage()
        # diffusers only warns of an adapter that does not fit the networks.
        if "unexpected keys" in text or "missing keys" in text:
            raise errors.SetupError(f"editor.loras: {path}: {' '.join(text.split())[:300]}")
    if not any(name in adapters for adapters in pipeline.get_list_adapters().values()):
        raise errors.SetupError(
            f"editor.loras: {path}: none of its tensors fits a network of {type(pipeline).__name__}"
        )
    _require_all_used(pipeline, name, path)


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


def _require_all_used(pipeline: Any, name: str, path: Path) -> None:
    """Raise `SetupError` if a file in diffusers' or PEFT's format has more tensors, scales left
    out, than the networks hold of the adapter `name`.

    Files in other formats pass: they are converted while they load, so that their tensors cannot be
    counted.
    """
    with safe_open(path, "pt") as file:
        keys = [key for key in file.keys() if not key.endswith("alpha")]  # noqa: SIM118
    if not all(".lora_A." in key or ".lora_B." in key for key in keys):
        return
    used = 0
    for network in pipeline.components.values():
        if isinstance(network, torch.nn.Module):
            used += sum(
                f".{name}." in key and "lora_" in key for key, _ in network.named_parameters()
            )
    if used < len(keys):
        components = pipeline.components
        unplaced = [key for key in keys if key.partition(".")[0] not in components] or keys
        raise errors.SetupError(
            f"editor.loras: {path}: {len(keys) - used} of {len(keys)} tensors fit no network, "
            f"such as {min(unplaced)}"
        )


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
