"""The settings of a LoRA adapter as PEFT stores them: which layers it has, of which ranks, and how
it is scaled.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_imgedit.core import errors, strict_json
from pytest_imgedit.core.text import shorten

#: Ways to start a training that change the base's weights, which the adapter then goes with.
_CHANGED_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
#: Settings of PEFT with which more or other than plain LoRA was trained, and what to write.
_REFUSED_SETTINGS = {
    "modules_to_save": "whole modules that were trained",
    "trainable_token_indices": "trained tokens",
    "layer_replication": "layers that repeat",
    "target_parameters": "adapted parameters that are no layers",
    "lora_bias": "a bias of the adapter",
    "use_qalora": "QALoRA",
    "use_dora": "DoRA",
    "alora_invocation_tokens": "activated LoRA",
    "megatron_config": "parallel linear layers",
    "arrow_config": "a router of adapters",
    "velora_config": "VeLoRA",
    "use_bdlora": "block-diagonal LoRA",
}


@dataclass(frozen=True)
class Targets:
    """Which layers PEFT adapts: names that equal one of a list, or end with a dot and it; or names
    of which a regular expression matches all.
    """

    included: str | tuple[str, ...]
    excluded: str | tuple[str, ...] = ()

    def has(self, layer: str) -> bool:
        """Tell whether PEFT adapts a layer of this name."""
        return _is_named(self.included, layer) and not _is_named(self.excluded, layer)


def _is_named(names: str | tuple[str, ...], layer: str) -> bool:
    if isinstance(names, str):
        return re.fullmatch(names, layer) is not None
    return f".{layer}".endswith(tuple(f".{name}" for name in names))


@dataclass(frozen=True)
class Settings:
    """What decides the scale of an adapter's layers, as PEFT has it, and which layers there are.

    Patterns give other ranks and alphas by regular expressions of names. `targets` is `None` where
    the layers cannot be told.
    """

    r: int
    lora_alpha: float
    rank_pattern: Mapping[str, int] = field(default_factory=dict)
    alpha_pattern: Mapping[str, float] = field(default_factory=dict)
    use_rslora: bool = False
    targets: Targets | None = None

    def rank_of(self, layer: str) -> int:
        """Return the rank of a layer."""
        return int(_by_pattern(self.rank_pattern, layer, self.r))

    def scale_of(self, layer: str) -> float:
        """Return the factor of B A in a layer: alpha / r, or with rsLoRA alpha / sqrt(r)."""
        rank = self.rank_of(layer)
        alpha = float(_by_pattern(self.alpha_pattern, layer, self.lora_alpha))
        return alpha / (math.sqrt(rank) if self.use_rslora else rank)

    @property
    def deciding(self) -> strict_json.JsonObject:
        """The settings as they are in the key."""
        return {
            "r": self.r,
            "lora_alpha": self.lora_alpha,
            "rank_pattern": dict(self.rank_pattern),
            "alpha_pattern": dict(self.alpha_pattern),
            "use_rslora": self.use_rslora,
        }


def _by_pattern(patterns: Mapping[str, Any], layer: str, default: Any) -> Any:
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", layer):
            return value
    return default


def parse(path: Path, told: Mapping[str, Any]) -> Settings:
    """Return the settings that a file tells; raise `UsageError` for one that is not plain LoRA."""
    kind = told.get("peft_type", "LORA")
    if kind != "LORA":
        raise errors.UsageError(f"{path}: peft_type is {kind!r:.40}, expected 'LORA'")
    for name, meaning in _REFUSED_SETTINGS.items():
        if told.get(name):
            raise errors.UsageError(
                f"{path}: {name} is {shorten(repr(told[name]), 100)}: {meaning}, expected LoRA "
                "alone: merge it into the base and save that as a checkpoint"
            )
    if told.get("bias", "none") != "none":
        raise errors.UsageError(
            f"{path}: bias is {told['bias']!r:.40}: trained biases, expected 'none': merge it into "
            "the base and save that as a checkpoint"
        )
    start = told.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGED_BASE):
        raise errors.UsageError(
            f"{path}: init_lora_weights is {start!r:.40}, which changed the base's weights: save "
            "it with path_initial_model_for_weight_conversion"
        )
    settings = Settings(
        r=told.get("r", 8),
        lora_alpha=told.get("lora_alpha", 8),
        rank_pattern=told.get("rank_pattern") or {},
        alpha_pattern=told.get("alpha_pattern") or {},
        use_rslora=bool(told.get("use_rslora")),
        targets=_targets(told),
    )
    _require_numbers(path, settings)
    return settings


def _targets(told: Mapping[str, Any]) -> Targets | None:
    """Return which layers a config tells PEFT to adapt; `None` if its names alone do not tell."""
    included, excluded = told.get("target_modules"), told.get("exclude_modules") or ()
    if told.get("layers_to_transform") not in (None, []):
        return None
    try:
        return Targets(_names(included), _names(excluded))
    except (TypeError, re.error):
        return None


def _names(told: Any) -> str | tuple[str, ...]:
    """Return names of layers or their pattern; raise `TypeError` or `re.error` for other things."""
    if isinstance(told, str):
        return re.compile(told).pattern
    names = tuple(told)
    if not all(isinstance(name, str) for name in names):
        raise TypeError("not a list of names")
    return names


def _require_numbers(path: Path, settings: Settings) -> None:
    """Raise `UsageError` for a rank that is no positive integer, an alpha that is no number, and
    for a pattern that is no regular expression.
    """
    patterns = (settings.rank_pattern, settings.alpha_pattern)
    if not all(isinstance(pattern, dict) for pattern in patterns):
        raise errors.UsageError(f"{path}: rank_pattern and alpha_pattern, expected tables")
    for rank in (settings.r, *settings.rank_pattern.values()):
        if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
            raise errors.UsageError(f"{path}: rank {rank!r:.40}, expected a positive integer")
    for alpha in (settings.lora_alpha, *settings.alpha_pattern.values()):
        is_number = isinstance(alpha, int | float) and not isinstance(alpha, bool)
        if not is_number or not math.isfinite(alpha):
            raise errors.UsageError(f"{path}: alpha {alpha!r:.40}, expected a number")
    for pattern in (*settings.rank_pattern, *settings.alpha_pattern):
        try:
            re.compile(pattern)
        except re.error as error:
            raise errors.UsageError(
                f"{path}: {pattern!r:.80}: {error}, expected a regular expression"
            ) from None
