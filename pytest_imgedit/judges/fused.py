"""Fewer passes over GPU memory in a Qwen-VL judge: chains of small operations become one kernel each.

Half of the time of a large mixture-of-experts judge goes into such chains, not into matrix products. The kernels come
from `torch.compile`, which needs Triton and a C compiler; without them the model stays as it is.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import torch
from torch.nn.functional import silu
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

EXPERTS = "imgedit_grouped_mm"


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """(S, 2·width) → (S, width)."""
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate) * up


def combine(rows: torch.Tensor, places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted sums of each token's rows: `rows` (S, hidden), `places` and `weights` (T, k) → (T, hidden)."""
    return (rows[places].float() * weights[..., None].float()).sum(1).to(rows.dtype)


@cache
def _compiled(function: Any) -> Any:
    return torch.compile(function, dynamic=True)


def experts(module: Any, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What transformers calls for a layer's experts: `hidden` (T, hidden), `chosen` and `weights` (T, k).

    As transformers' own `grouped_mm`, without passes for experts on other GPUs.
    """
    tokens, count = chosen.shape
    order = chosen.flatten().argsort()
    counts = torch.bincount(chosen.flatten(), minlength=module.num_experts)
    ends = counts.cumsum(0, dtype=torch.int32)
    rows = hidden[order // count]
    rows = torch.nn.functional.grouped_mm(rows, module.gate_up_proj.transpose(-2, -1), offs=ends)
    rows = torch.nn.functional.grouped_mm(_compiled(swiglu)(rows), module.down_proj.transpose(-2, -1), offs=ends)
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device)
    combined: torch.Tensor = _compiled(combine)(rows, places.view(tokens, count), weights)
    return combined


ALL_EXPERTS_FUNCTIONS.register(EXPERTS, experts)


@cache
def compiles() -> bool:
    """Tell whether kernels can be compiled here, by compiling those of the experts; seconds at the first call."""
    try:
        rows = torch.randn(64, 32, device="cuda", dtype=torch.bfloat16)
        places = torch.arange(64, device="cuda").view(32, 2)
        _compiled(combine)(_compiled(swiglu)(rows), places, torch.rand(32, 2, device="cuda", dtype=torch.bfloat16))
    except Exception as error:
        print(f"kernels are not fused: {type(error).__name__}: {error}"[:300], file=sys.stderr)
        return False
    return True


def fuse(model: Any) -> None:
    """Fuse normalisation, rotary embeddings and what surrounds the experts' products, where that can be compiled."""
    if not compiles():
        return
    language = model.model.language_model
    for module in language.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.compile(dynamic=True)
    for part in (language, model.model.visual):
        code = sys.modules[type(part).__module__]
        for name in ("apply_rotary_pos_emb", "apply_rotary_pos_emb_vision"):
            if hasattr(code, name):  # the module's own function; this process has no other model
                setattr(code, name, _compiled(getattr(code, name)))
    grouped = getattr(language.config, "_experts_implementation", None) == "grouped_mm"
    if grouped and hasattr(torch.nn.functional, "grouped_mm"):
        language.config._experts_implementation = EXPERTS
