"""A LoRA adapter in PEFT's format, merged into a loaded judge."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from pytest_imgedit.core.errors import SetupError, is_out_of_memory
from pytest_imgedit.core.sanitize import one_line


def merge(model: Any, folder: Path) -> Any:
    """Return a model with an adapter added to its weights, which then has the modules that it had
    without.

    Raises `SetupError` for an adapter that peft cannot load, and for one with tensors that fit
    nothing in the model.
    """
    if importlib.util.find_spec("peft") is None:
        raise SetupError("judge.adapter: the package peft is not installed: pip install peft")
    from peft import PeftConfig, PeftModel

    try:
        tuned = PeftModel(model, PeftConfig.from_pretrained(folder), "default")
        found = tuned.load_adapter(str(folder), "default", use_safetensors=True)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise SetupError(
            f"judge.adapter: {folder}: {type(error).__name__}: {one_line(error)}"
        ) from error
    missing = [name for name in found.missing_keys if "lora_" in name]
    for what, names in (("unexpected", found.unexpected_keys), ("missing", missing)):
        if names:
            raise SetupError(
                f"judge.adapter: {folder}: {len(names)} {what} tensors, such as {sorted(names)[0]}"
            )
    return tuned.merge_and_unload()
