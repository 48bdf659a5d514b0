"""Fewer passes over GPU memory in a Qwen-VL judge: chains of small operations become one kernel
each.

Half of the time of a large mixture-of-experts judge goes into such chains, not into matrix
products. The kernels come from `torch.compile`, which needs Triton and a C compiler; without them
the model stays as it is.
"""

import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch.nn.functional import silu
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from pytest_imgedit.kinds.compute.numerics import COMPILER_OPTIONS

EXPERTS = "imgedit_grouped_mm"
#: Functions of transformers' model code that are compiled in its place.
ROTARY = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_vision")


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate)·up (S, width), where `gate_up` (S, 2·width) holds gate, then up."""
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate) * up


def combine(rows: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return weighted sums (T, hidden) of each token's rows, added in float32: token t has the
    rows `indices[t]` of `rows` (S, hidden) with `weights[t]`, both of these (T, k).
    """
    total = rows[indices[:, 0]].float() * weights[:, :1].float()
    for rank in range(1, indices.shape[1]):
        total = total + rows[indices[:, rank]].float() * weights[:, rank : rank + 1].float()
    return total.to(rows.dtype)


def rms_norm(hidden: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Return `hidden` divided by its root mean square over the last dimension, in float32, and
    scaled by `weight` (arXiv 1910.07467).
    """
    wide = hidden.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    return weight * wide.to(hidden.dtype)


@cache
def _compiled(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return torch.compile(function, dynamic=True, options=COMPILER_OPTIONS)


def experts(
    module: Any, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Return the output (T, hidden) of a layer's experts, as transformers calls for it: `hidden`
    (T, hidden) goes to the k experts `chosen` (T, k), whose outputs have `weights` (T, k).

    It is what transformers' `grouped_mm` computes, without its passes for experts on other GPUs.
    """
    tokens, count = chosen.shape
    # Each token has a row for each of its experts; rows of one expert lie together.
    sorted_experts, order = chosen.flatten().sort()
    numbers = torch.arange(module.num_experts, device=chosen.device)
    ends = torch.searchsorted(sorted_experts, numbers, right=True).int()
    rows = hidden[order // count]
    rows = torch.nn.functional.grouped_mm(rows, module.gate_up_proj.transpose(-2, -1), offs=ends)
    rows = torch.nn.functional.grouped_mm(
        _compiled(swiglu)(rows), module.down_proj.transpose(-2, -1), offs=ends
    )
    indices = torch.empty_like(order)  # the inverse of `order`: where the rows of a token lie
    indices[order] = torch.arange(len(order), device=order.device)
    return _compiled(combine)(rows, indices.view(tokens, count), weights)


ALL_EXPERTS_FUNCTIONS.register(EXPERTS, experts)


@cache
@torch.inference_mode()
def compile_kernels(model_class: Any) -> bool:
    """Compile the kernels for a model class on small tensors, which takes seconds; tell whether
    that worked, and print to stderr why not.

    PyTorch compiles again where its switches, such as those of `set_deterministic`, have changed
    since. If it worked, the rotary embeddings of the class's module are replaced by compiled ones:
    a worker process has no other model.
    """
    code = sys.modules[model_class.__module__]
    rotary = {name: getattr(code, name) for name in ROTARY if hasattr(code, name)}

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    try:  # with 12 tokens, 8 experts a token, and 4 heads of 32 values
        indices = torch.arange(96, device="cuda").view(12, 8)
        _compiled(combine)(_compiled(swiglu)(draw(96, 64)), indices, draw(12, 8))
        _compiled(rms_norm)(draw(1, 12, 64), draw(64), 1e-6)
        _compiled(rms_norm)(draw(1, 12, 4, 32), draw(32), 1e-6)
        query = draw(1, 12, 4, 32).transpose(1, 2)
        key = draw(1, 12, 2, 32).transpose(1, 2)
        if "apply_rotary_pos_emb" in rotary:
            _compiled(rotary["apply_rotary_pos_emb"])(query, key, draw(1, 12, 32), draw(1, 12, 32))
        if "apply_rotary_pos_emb_vision" in rotary:
            cosines, sines = torch.randn(2, 12, 32, device="cuda")
            query, key, _ = draw(12, 3, 4, 32).permute(1, 0, 2, 3).unbind(0)
            _compiled(rotary["apply_rotary_pos_emb_vision"])(query, key, cosines, sines)
    except Exception as error:
        print(f"kernels are not fused: {type(error).__name__}: {error}"[:300], file=sys.stderr)
        return False
    for name, function in rotary.items():
        setattr(code, name, _compiled(function))
    return True


def fuse(model: Any) -> bool:
    """Have a model use the fused normalisation, rotary embeddings and, where it has experts with
    grouped products, what surrounds these; return `False`, with nothing changed, if the kernels do
    not compile.
    """
    if not compile_kernels(model.__class__):
        return False
    language = model.model.language_model
    for module in language.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = partial(_normalize, module)
    implementation = getattr(language.config, "_experts_implementation", None)
    if implementation == "grouped_mm" and hasattr(torch.nn.functional, "grouped_mm"):
        language.config._experts_implementation = EXPERTS
    return True


def _normalize(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    return _compiled(rms_norm)(hidden, module.weight, module.variance_epsilon)
