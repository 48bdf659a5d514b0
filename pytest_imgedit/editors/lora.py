"""LoRA adapters on a loaded pipeline (arXiv 2106.09685): all of their tensors are used, or the editor is refused."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_imgedit.errors import SetupError, is_out_of_memory
from pytest_imgedit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What diffusers only warns of when an adapter does not fit the networks.
_MISFITS = ("unexpected keys", "missing keys")


class _Warnings(logging.Handler):
    """Keeps what diffusers warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def take_loras(pipeline: Any, loras: Sequence[Mapping[str, Any]]) -> None:
    """Have a pipeline use these adapters, in place of those that it had; the base's weights stay as they are.

    Each has `path`, a file of safetensors, `weight`, and perhaps a `name`. Raises `SetupError` for one that the
    pipeline cannot load, and for one with tensors that fit none of its networks.
    """
    if not loras and not getattr(pipeline, "_imgedit_loras", False):
        return
    kind = type(pipeline).__name__
    if not hasattr(pipeline, "load_lora_weights"):
        raise SetupError(f"editor.loras: {kind} takes no LoRA adapters")
    if importlib.util.find_spec("peft") is None:
        raise SetupError("editor.loras: the package peft is not installed: pip install pytest-imgedit[lora]")
    if getattr(pipeline, "_imgedit_loras", False):
        pipeline.unload_lora_weights()
    names = [str(lora.get("name") or f"lora_{number}") for number, lora in enumerate(loras)]
    for name, lora in zip(names, loras, strict=True):
        _load(pipeline, name, Path(lora["path"]))
    if names:
        pipeline.set_adapters(names, [float(lora.get("weight", 1.0)) for lora in loras])
    pipeline._imgedit_loras = bool(names)


def _load(pipeline: Any, name: str, path: Path) -> None:
    heard, log = _Warnings(), logging.getLogger("diffusers")
    log.addHandler(heard)
    try:
        pipeline.load_lora_weights(str(path.parent), weight_name=path.name, adapter_name=name, use_safetensors=True)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise SetupError(f"editor.loras: {path}: {type(error).__name__}: {one_line(error)}") from error
    finally:
        log.removeHandler(heard)
    misfit = next((text for text in heard.texts if any(words in text for words in _MISFITS)), None)
    if misfit is not None:
        raise SetupError(f"editor.loras: {path}: {' '.join(misfit.split())[:300]}")
    used = {adapter for adapters in pipeline.get_list_adapters().values() for adapter in adapters}
    if name not in used:
        raise SetupError(f"editor.loras: {path}: none of its tensors fits a network of {type(pipeline).__name__}")
