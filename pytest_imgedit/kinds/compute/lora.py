"""LoRA adapters on a loaded pipeline (arXiv 2106.09685): all of their tensors are used, or the
editor is refused.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open

from pytest_imgedit.core.errors import SetupError, is_out_of_memory
from pytest_imgedit.core.sanitize import shorten

if TYPE_CHECKING:
    from pytest_imgedit.kinds.diffusers import LoraParameters

#: What diffusers only warns of when an adapter does not fit the networks.
_MISFITS = ("unexpected keys", "missing keys")


class _Warnings(logging.Handler):
    """Keeps what diffusers warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def take_loras(pipeline: Any, loras: Sequence[LoraParameters]) -> None:
    """Have a pipeline use these adapters, in place of those that it had; the base's weights stay as
    they are.

    Raises `SetupError` for one that the
    pipeline cannot load, and for one with tensors that fit none of its networks.
    """
    if not loras and not getattr(pipeline, "_imgedit_loras", False):
        return
    kind = type(pipeline).__name__
    if not hasattr(pipeline, "load_lora_weights"):
        raise SetupError(f"editor.loras: {kind} takes no LoRA adapters")
    if importlib.util.find_spec("peft") is None:
        raise SetupError("editor.loras: the package peft is not installed: pip install peft")
    if getattr(pipeline, "_imgedit_loras", False):
        pipeline.unload_lora_weights()
    names = [lora.name or f"lora_{number}" for number, lora in enumerate(loras)]
    for name, lora in zip(names, loras, strict=True):
        _load(pipeline, name, Path(lora.path))
    if names:
        pipeline.set_adapters(names, [lora.weight for lora in loras])
    pipeline._imgedit_loras = bool(names)


def _load(pipeline: Any, name: str, path: Path) -> None:
    heard, log = _Warnings(), logging.getLogger("diffusers")
    level = log.level
    log.addHandler(heard)
    log.setLevel(logging.WARNING)  # whatever the environment says
    try:
        pipeline.load_lora_weights(
            str(path.parent), weight_name=path.name, adapter_name=name, use_safetensors=True
        )
    except Exception as error:
        if is_out_of_memory(error):
            raise
        reason = shorten(" ".join(str(error).split()), 300)
        raise SetupError(f"editor.loras: {path}: {type(error).__name__}: {reason}") from error
    finally:
        log.removeHandler(heard)
        log.setLevel(level)
    misfit = next((text for text in heard.texts if any(words in text for words in _MISFITS)), None)
    if misfit is not None:
        raise SetupError(f"editor.loras: {path}: {' '.join(misfit.split())[:300]}")
    used = {adapter for adapters in pipeline.get_list_adapters().values() for adapter in adapters}
    if name not in used:
        raise SetupError(
            f"editor.loras: {path}: none of its tensors fits a network of {type(pipeline).__name__}"
        )
    _require_all_used(pipeline, name, path)


def _require_all_used(pipeline: Any, name: str, path: Path) -> None:
    """Raise `SetupError` if a file in diffusers' or PEFT's format has more tensors than the
    networks took of it.

    Other formats are converted while they load, so that their tensors cannot be counted.
    """
    with safe_open(path, "pt") as file:
        keys = [key for key in file.keys() if not key.endswith("alpha")]  # noqa: SIM118
    if not all(".lora_A." in key or ".lora_B." in key for key in keys):
        return
    networks = [one for one in pipeline.components.values() if isinstance(one, torch.nn.Module)]
    used = sum(
        f".{name}." in key and "lora_" in key
        for network in networks
        for key, _ in network.named_parameters()
    )
    if used < len(keys):
        strange = [key for key in keys if key.partition(".")[0] not in pipeline.components] or keys
        found = f"{len(keys) - used} of {len(keys)} tensors fit no network"
        raise SetupError(f"editor.loras: {path}: {found}, such as {sorted(strange)[0]}")
