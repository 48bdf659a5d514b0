"""Which models can be judges, and which of them the packed decoder covers; read from config.json,
without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.files import read_object
from pytest_imgedit.core.strict_json import JsonObject

#: Architectures whose attention the packed decoder computes as transformers does.
PACKED = (
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration",
)


def read_config(folder: Path) -> JsonObject:
    """Read a judge's config.json; raises `UsageError` unless it is that of a vision-language model
    of Qwen's kind.
    """
    path = folder / "config.json"
    config = read_object(path, "the config of a transformers model")
    if not (isinstance(config.get("architectures"), list) and config["architectures"]):
        raise UsageError(f"{path}: no 'architectures', expected the config of a transformers model")
    for name in ("vision_config", "image_token_id"):
        if name not in config:
            raise UsageError(
                f"{path}: {config['architectures'][0]} has no {name!r}, expected a Qwen-VL model "
                "as the judge qwen-vl"
            )
    return config


def unpackable(config: Mapping[str, Any]) -> str:
    """Say why the packed decoder would compute a model wrongly; empty if it would not."""
    architecture = config["architectures"][0]
    if architecture not in PACKED:
        return f"{architecture} is not one of {', '.join(PACKED)}"
    text = config.get("text_config") or config
    kinds = set(text.get("layer_types") or ()) - {"full_attention"}
    if kinds:
        return f"it has layers of {', '.join(sorted(kinds))}"
    if text.get("use_sliding_window"):
        return "it attends through a sliding window"
    return ""
