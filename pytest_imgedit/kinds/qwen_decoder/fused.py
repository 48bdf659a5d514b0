"""Fewer passes over GPU memory in a Qwen-VL judge: chains of small operations become one kernel
each.

Half of the time of a large mixture-of-experts judge goes into such chains, not into matrix
products. The kernels come from `torch.compile`, which needs Triton and a C compiler; without them
the model stays as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch._dynamo import mark_dynamic
from torch.nn.functional import silu
from transformers.activations import GELUTanh
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from pytest_imgedit.kinds.compute.numerics import COMPILER_OPTIONS

EXPERTS = "imgedit_grouped_mm"
#: Functions of transformers' model code that are compiled in its place.
ROTARY = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_vision")
BYTE_VALUES = 256
#: Tokens that kernels are compiled on: enough for their configuration to be that for many.
TOKENS = 2048


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate)·up (S, width), where `gate_up` (S, 2·width) holds gate, then up."""
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate) * up


def spread(hidden: torch.Tensor, order: torch.Tensor, count: int) -> torch.Tensor:
    """Return rows (S, hidden) of `hidden` (T, hidden), each of which has `count` rows, in an
    `order` (S,).
    """
    return hidden[order // count]


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
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled for the widths that it meets, and for any number of tokens: those
    dimensions that `compile_kernels` marked. Kernels that compute with widths that they do not know
    take up to ten times as long.
    """
    return torch.compile(function, dynamic=False, options=COMPILER_OPTIONS)


def experts(
    module: Any, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Return the output (T, hidden) of a layer's experts, as transformers calls for it: `hidden`
    (T, hidden) goes to the k experts `chosen` (T, k), whose outputs have `weights` (T, k).

    It is what transformers' `grouped_mm` computes, without its passes for experts on other GPUs.
    """
    tokens, count = chosen.shape
    # Each token has a row for each of its experts; rows of one expert lie together.
    numbers = torch.arange(module.num_experts, device=chosen.device)
    if module.num_experts <= BYTE_VALUES:  # sorting has a pass for each byte
        chosen, numbers = chosen.to(torch.uint8), numbers.to(torch.uint8)
    sorted_experts, order = chosen.flatten().sort()
    ends = torch.searchsorted(sorted_experts, numbers, right=True).int()
    rows = _compiled(spread)(hidden, order, count)
    rows = torch.nn.functional.grouped_mm(rows, module.gate_up_proj.transpose(-2, -1), offs=ends)
    rows = torch.nn.functional.grouped_mm(
        _compiled(swiglu)(rows), module.down_proj.transpose(-2, -1), offs=ends
    )
    indices = torch.empty_like(order)  # the inverse of `order`: where the rows of a token lie
    indices[order] = torch.arange(len(order), device=order.device)
    combined: torch.Tensor = _compiled(combine)(rows, indices.view(tokens, count), weights)
    return combined


ALL_EXPERTS_FUNCTIONS.register(EXPERTS, experts)


class Widths(NamedTuple):
    """The sizes of a model's tensors that the kernels are compiled for; `experts` are 0, 0 for a
    model without: how many a token has, and their width.
    """

    hidden: int
    head: int
    heads: tuple[int, int]
    epsilon: float
    experts: tuple[int, int]
    vision_head: int
    vision_heads: int

    @classmethod
    def of(cls, config: Any) -> Widths:
        """Return those of a model's config."""
        text = config.text_config
        vision = config.vision_config
        experts = (0, 0)
        if getattr(text, "num_experts", 0):
            experts = (text.num_experts_per_tok, text.moe_intermediate_size)
        return cls(
            text.hidden_size,
            getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
            (text.num_attention_heads, text.num_key_value_heads),
            text.rms_norm_eps,
            experts,
            vision.hidden_size // vision.num_heads,
            vision.num_heads,
        )


@cache
def compiling(model_class: Any, widths: Widths, device: str = "cuda") -> Future[bool]:
    """Begin to compile the kernels for models of a class and of these widths, which takes seconds,
    in a thread; return whether that works.

    The compiler holds on to PyTorch's global settings, such as the default dtype, which loading a
    model changes for a while: it must be done by then.
    """
    thread = ThreadPoolExecutor(1)
    future = thread.submit(compile_kernels, model_class, widths, device)
    thread.shutdown(wait=False)
    return future


def compile_kernels(model_class: Any, widths: Widths, device: str) -> bool:
    """Compile the kernels for models of a class and of these widths on few tokens; tell whether
    that worked, and print to stderr why not.

    If it worked, the rotary embeddings of the class's module are replaced by compiled ones: a
    worker process has no other model. PyTorch compiles again where its switches, such as those of
    `set_deterministic`, have changed since.
    """
    code = sys.modules[model_class.__module__]
    rotary = {name: getattr(code, name) for name in ROTARY if hasattr(code, name)}
    try:
        with torch.inference_mode():
            _call_all(rotary, widths, device)
    except Exception as error:
        print(f"kernels are not fused: {type(error).__name__}: {error}"[:300], file=sys.stderr)
        return False
    for name, function in rotary.items():
        setattr(code, name, _compiled(function))
    return True


def _call_all(rotary: Mapping[str, Callable[..., Any]], widths: Widths, device: str) -> None:
    """Call each function, compiled, with tensors whose widths and strides are those of a model."""

    def ones(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.ones(sizes, dtype=dtype, device=device)

    with torch.inference_mode(False):  # as weights are
        weights = [ones(widths.hidden), ones(widths.head)]
    for weight in weights:
        _compiled(rms_norm)(_any(0, ones(TOKENS, len(weight))), weight, widths.epsilon)
    count, width = widths.experts
    if count:
        rows = TOKENS * count
        _compiled(swiglu)(_any(0, ones(rows, 2 * width)))
        order = ones(rows, dtype=torch.long)
        indices = ones(TOKENS, count, dtype=torch.long)
        _compiled(spread)(_any(0, ones(TOKENS, widths.hidden)), _any(0, order), count)
        _compiled(combine)(
            _any(0, ones(rows, widths.hidden)), _any(0, indices), _any(0, ones(TOKENS, count))
        )
    if "apply_rotary_pos_emb" in rotary:
        turned = [ones(1, TOKENS, heads, widths.head).transpose(1, 2) for heads in widths.heads]
        angles = [ones(1, TOKENS, widths.head) for _ in range(2)]
        _compiled(rotary["apply_rotary_pos_emb"])(
            *(_any(2, tensor) for tensor in turned), *(_any(1, tensor) for tensor in angles)
        )
    if "apply_rotary_pos_emb_vision" in rotary:
        all_heads = ones(TOKENS, 3, widths.vision_heads, widths.vision_head)
        query, key, _ = all_heads.permute(1, 0, 2, 3).unbind(0)
        angles = [ones(TOKENS, widths.vision_head, dtype=torch.float32) for _ in range(2)]
        _compiled(rotary["apply_rotary_pos_emb_vision"])(
            *(_any(0, tensor) for tensor in (query, key, *angles))
        )


def _any(dimension: int, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor, whose kernels are compiled for any size of a dimension."""
    mark_dynamic(tensor, dimension)
    return tensor


def fuse(model: Any) -> None:
    """Have a model, for which kernels are compiled, use them for normalisation and, where it has
    experts with grouped products, for what surrounds these.
    """
    language = model.model.language_model
    for module in language.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = partial(_normalize, module.weight.data, module.variance_epsilon)
    patches = model.model.visual.patch_embed
    patches.forward = partial(_embed_patches, patches.proj)
    for block in model.model.visual.blocks:
        if _takes_gelu(block.mlp):
            block.mlp.forward = partial(_feed_forward, block.mlp.linear_fc1, block.mlp.linear_fc2)
    implementation = getattr(language.config, "_experts_implementation", None)
    if implementation == "grouped_mm" and hasattr(torch.nn.functional, "grouped_mm"):
        language.config._experts_implementation = EXPERTS


def _normalize(weight: torch.Tensor, epsilon: float, hidden: torch.Tensor) -> torch.Tensor:
    rows: torch.Tensor = _compiled(rms_norm)(hidden.view(-1, len(weight)), weight, epsilon)
    return rows.view(hidden.shape)


def _takes_gelu(network: Any) -> bool:
    """Tell whether the first product of a vision layer's network can take its GELU. The function
    for that is not public, and nothing public replaces it: a release may lack it.
    """
    return (
        hasattr(torch, "_addmm_activation")
        and hasattr(network, "linear_fc1")
        and isinstance(network.act_fn, GELUTanh)
    )


def _feed_forward(first: Any, second: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Return what a vision layer's network with one inner layer makes of `hidden` (T, hidden): the
    product takes GELU, approximated by tanh, of its sums before it rounds and writes them.
    """
    inner = torch._addmm_activation(first.bias, hidden, first.weight.t(), use_gelu=True)
    output: torch.Tensor = second(inner)
    return output


def _embed_patches(convolution: Any, patches: torch.Tensor) -> torch.Tensor:
    """Return embedded patches (T, hidden) of patches (T, values): the convolution has one place in
    each, so that it is a matrix product, which is 30 times as fast.
    """
    weight = convolution.weight.flatten(1)
    return torch.nn.functional.linear(patches.to(weight.dtype), weight, convolution.bias)
