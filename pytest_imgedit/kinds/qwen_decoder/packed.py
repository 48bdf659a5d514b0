"""Greedy decoding of a batch of Qwen-VL prompts without padding: they lie end to end in one
sequence.

Against transformers' `generate` this saves the padding and its mask, which keeps attention off its
fast kernels, the loop over images in the vision tower, and all but one computation of the words
that every prompt of the batch starts with. Prompts see nothing of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from pytest_imgedit.kinds.qwen_decoder.decoding import Decoded, Prompt, end_tokens, write_greedily
from pytest_imgedit.kinds.qwen_decoder.graphs import Recorded

#: Vision towers hand all images of a batch at once to attention functions with "flash" in their
#: name.
NAME = "imgedit_flash_packed"
#: Shorter common beginnings are not worth the detour.
MIN_COMMON = 16


class PackedDecoder:
    """Decodes greedily with a Qwen2.5-VL, Qwen3-VL or Qwen3-VL-MoE model, whose attention functions
    it replaces.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.image_token = model, model.config.image_token_id
        for part in (model.model.visual, model.model.language_model):
            part.config._attn_implementation = NAME
        _mark_windows(model.model.visual)
        self.ends = end_tokens(model)
        self.records_steps = True  # until a GPU cannot do it

    @torch.inference_mode()
    def decode(
        self, prompts: Sequence[Prompt], max_new_tokens: int, keep_logits: bool = False
    ) -> Decoded:
        """See `Decoder`."""
        prefill = Prefill(
            [prompt.tokens for prompt in prompts], self.image_token, self.model.device
        )
        hidden = self._read(prompts, prefill)
        following = (
            torch.stack([prompt.positions.max() for prompt in prompts]).to(hidden.device) + 1
        )
        logits = self.model.lm_head(hidden[prefill.last]).float()  # (B, V)
        step: _Step | None = None

        def follow(chosen: torch.Tensor) -> torch.Tensor:
            nonlocal step
            step = step or _Step(self, _Cache(prefill, max_new_tokens), following)
            return step(chosen)

        replies, kept = write_greedily(logits, follow, self.ends, max_new_tokens, keep_logits)
        return Decoded.of(replies, self.ends, kept)

    def read_apart(self, prompts: Sequence[Prompt]) -> tuple[Prefill, list[torch.Tensor]]:
        """Read prompts that share no beginning; return their keys and values, and the logits (1, V)
        after each.

        Several are read by kernels whose shapes depend on the sums of their tokens and patches
        alone.
        """
        prefill = Prefill(
            [prompt.tokens for prompt in prompts], self.image_token, self.model.device, shares=False
        )
        visual = self.model.model.visual.config
        visual.imgedit_apart = len(prompts) > 1
        try:
            hidden = self._read(prompts, prefill)
        finally:
            visual.imgedit_apart = False
        return prefill, [
            self.model.lm_head(hidden[last : last + 1]).float() for last in prefill.last.tolist()
        ]

    def _read(self, prompts: Sequence[Prompt], prefill: Prefill) -> torch.Tensor:
        """Run all prompts through the model; return the last hidden states (T, hidden)."""
        body, device = self.model.model, self.model.device
        tokens = prefill.tokens
        embedded = body.get_input_embeddings()(tokens)
        extra: dict[str, Any] = {}
        shown = [prompt for prompt in prompts if len(prompt.pixels)]
        if shown:
            pixels = torch.cat([prompt.pixels.to(device, non_blocking=True) for prompt in shown])
            grids = torch.cat([prompt.grids for prompt in shown])
            seen = body.get_image_features(pixels, grids.to(device))
            places = tokens == self.image_token
            embedded[places] = _whole(seen.pooler_output).to(embedded.dtype)
            deep = getattr(seen, "deepstack_features", None)
            if deep is not None:
                deep = [_whole(one) for one in deep]
                extra = {"visual_pos_masks": places[None], "deepstack_visual_embeds": deep}
        positions = prefill.pack([prompt.positions.T for prompt in prompts]).T
        return self._run(embedded, positions.to(device), prefill, **extra)

    def follow(self, tokens: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        """Run one token (B,) of each prompt at its position (B,); return the logits (B, V) of the
        next.
        """
        hidden = self._run(
            self.model.model.get_input_embeddings()(tokens), positions.expand(3, -1), cache
        )
        logits: torch.Tensor = self.model.lm_head(hidden).float()
        return logits

    def _run(
        self, embedded: torch.Tensor, positions: torch.Tensor, attention: Any, **extra: Any
    ) -> torch.Tensor:
        output = self.model.model.language_model(
            inputs_embeds=embedded[None],
            position_ids=positions[:, None],
            use_cache=False,
            packed=attention,
            **extra,
        )
        hidden: torch.Tensor = output.last_hidden_state[0]
        return hidden


class _Step:
    """One step of decoding at a time, with its place among the steps."""

    def __init__(self, decoder: PackedDecoder, cache: _Cache, positions: torch.Tensor) -> None:
        self.decoder, self.cache, self.positions = decoder, cache, positions.clone()
        self.tokens = torch.zeros_like(positions)
        self._step = Recorded(decoder)
        self.done = 0

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """Follow the chosen tokens (B,); the logits (B, V) that come back hold until the next
        call.
        """
        self.tokens.copy_(tokens)
        self.done += 1
        if self.done == 2 and tokens.is_cuda:
            self._step.record(self._advance)
        return self._step(self._advance)

    def _advance(self) -> torch.Tensor:
        logits = self.decoder.follow(self.tokens, self.positions, self.cache)
        self.positions += 1
        self.cache.filled += 1
        return logits


class Prefill:
    """How prompts lie in one sequence, their common beginning once at its start, and attention over
    that.

    Keeps keys and values of each layer (T, heads, D) for decoding.
    """

    def __init__(
        self,
        prompts: Sequence[torch.Tensor],
        image_token: int,
        device: torch.device,
        shares: bool = True,
    ) -> None:
        self.common = _common(prompts, image_token) if shares else 0
        self.lengths = [
            len(prompt) - self.common for prompt in prompts
        ]  # of what is a prompt's own
        self.tokens = self.pack(prompts).to(device)
        own = [length for length in (self.common, *self.lengths) if length]
        seen = [self.common] * bool(self.common) + [self.common + length for length in self.lengths]
        self.bounds = Bounds.of(own, seen, device)
        if not shares and len(prompts) > 1:
            self.bounds = self.bounds.apart(sum(own))
        ends = torch.tensor(self.lengths).cumsum(0) + self.common
        self.last = (ends - 1).to(device)
        self.starts = [
            end - length for end, length in zip(ends.tolist(), self.lengths, strict=True)
        ]
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.gather = None
        if self.common:
            beginning = torch.arange(self.common)
            rows = [
                torch.cat([beginning, s + torch.arange(n)])
                for s, n in zip(self.starts, self.lengths, strict=True)
            ]
            self.gather = torch.cat([beginning, *rows]).to(device)

    def pack(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """Put what belongs to each prompt's tokens end to end, what belongs to the common beginning
        once.
        """
        return torch.cat([rows[0][: self.common], *(row[self.common :] for row in rows)])

    def attend(
        self, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        del module
        self.keys.append(key)
        self.values.append(value)
        if self.gather is not None:
            key, value = key[self.gather], value[self.gather]
        return attend(query, key, value, self.bounds, causal=True, scale=scale)


class _Cache:
    """Keys and values by prompt, (B, heads, capacity, D) a layer, with room for new tokens."""

    def __init__(self, prefill: Prefill, new: int) -> None:
        device = prefill.tokens.device
        lengths = torch.tensor(prefill.lengths)
        starts = lengths.cumsum(0) - lengths + prefill.common
        capacity = (
            -(-(prefill.common + int(lengths.max()) + new) // 64) * 64
        )  # kernels like even strides
        columns = torch.arange(capacity)
        own = (columns - prefill.common).clamp(min=0)[None] + starts[:, None]
        places = (
            torch.where(columns < prefill.common, columns, own)
            .clamp(max=len(prefill.tokens) - 1)
            .to(device)
        )
        self.keys = [key[places].transpose(1, 2).contiguous() for key in prefill.keys]
        self.values = [value[places].transpose(1, 2).contiguous() for value in prefill.values]
        prefill.keys.clear()
        prefill.values.clear()
        self.rows, self.columns = torch.arange(len(lengths), device=device), columns.to(device)
        self.filled = (lengths + prefill.common).to(device)

    def attend(
        self, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        keys, values = self.keys[module.layer_idx], self.values[module.layer_idx]
        keys[self.rows, :, self.filled], values[self.rows, :, self.filled] = key, value
        mask = (self.columns <= self.filled[:, None])[:, None, None]
        # The heads that share keys take the place of several queries, so that no key is repeated in
        # memory.
        grouped = query.reshape(len(query), keys.shape[1], -1, query.shape[-1])
        return scaled_dot_product_attention(
            grouped, keys, values, attn_mask=mask, scale=scale
        ).flatten(1, 2)


@dataclass(frozen=True)
class Bounds:
    """Where sequences begin and end, as sums of their `queries` and `keys` from 0 on (sequences +
    1,), int32.

    `longest` has the most queries and keys of one; `alike` says that all have the same number, of
    keys too.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    longest: tuple[int, int]
    alike: bool

    @classmethod
    def of(cls, own: Sequence[int], seen: Sequence[int], device: torch.device) -> Bounds:
        """Make bounds from the number of queries (`own`) and keys (`seen`) of each sequence."""
        queries, keys = (
            torch.tensor([0, *counts]).cumsum(0).to(device, torch.int32) for counts in (own, seen)
        )
        return cls(queries, keys, (max(own), max(seen)), len({*own, *seen}) == 1)

    def apart(self, most: int) -> Bounds:
        """These bounds without their lengths: kernels are then chosen by the `most` that one could
        have alone.
        """
        return Bounds(self.queries, self.keys, (most, most), False)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: Bounds,
    causal: bool,
    scale: float,
) -> torch.Tensor:
    """Attention inside each of several sequences: `query` (Tq, heads, D), `key` and `value` (Tk,
    key heads, D).

    A sequence with fewer queries than keys asks with its last tokens. Returns (Tq, heads, D).
    """
    if bounds.alike:
        query, key, value = (
            one.reshape(-1, bounds.longest[0], *one.shape[1:]).transpose(1, 2)
            for one in (query, key, value)
        )
        shared = query.shape[1] != key.shape[1]
        output = scaled_dot_product_attention(
            query, key, value, is_causal=causal, scale=scale, enable_gqa=shared
        )
        return output.transpose(1, 2).flatten(0, 1)
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        return _varlen(query, key, value, bounds, causal, scale)
    counts = [sums.diff().tolist() for sums in (bounds.queries, bounds.keys, bounds.keys)]
    parts = [torch.split(one, own) for one, own in zip((query, key, value), counts, strict=True)]
    return torch.cat([_attend_one(q, k, v, causal, scale) for q, k, v in zip(*parts, strict=True)])


def _varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: Bounds,
    causal: bool,
    scale: float,
) -> torch.Tensor:
    """All sequences in one kernel."""
    from torch.nn.attention import varlen

    function: Any = varlen.varlen_attn
    shared = {"enable_gqa": True} if "enable_gqa" in signature(function).parameters else {}
    window = (-1, 0) if causal else (-1, -1)
    output: torch.Tensor = function(
        query,
        key,
        value,
        bounds.queries,
        bounds.keys,
        *bounds.longest,
        scale=scale,
        window_size=window,
        **shared,
    )
    return output


def _attend_one(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool, scale: float
) -> torch.Tensor:
    mask = None
    if causal:
        mask = torch.ones(len(query), len(key), dtype=torch.bool, device=query.device).tril(
            len(key) - len(query)
        )
    query, key, value = (one.transpose(0, 1)[None] for one in (query, key, value))
    output = scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
    )
    return output[0].transpose(0, 1)


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **given: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls: tensors (1, heads, T, D), `packed` for language and `cu_seq_lens_q`
    for vision.

    A tower that goes from image to image gives neither.
    """
    del attention_mask
    packed: Prefill | _Cache | None = given.get("packed")
    cu_seq_lens_q: torch.Tensor | None = given.get("cu_seq_lens_q")
    query, key, value = (one[0].transpose(0, 1) for one in (query, key, value))
    if packed is not None:
        return packed.attend(module, query, key, value, scaling)[None], None
    total = len(query)
    if cu_seq_lens_q is None:
        bounds = Bounds.of([total], [total], query.device)
    else:  # known without asking the GPU, which would wait for it in every layer
        longest = int(given["max_length_q"])
        alike = longest * (len(cu_seq_lens_q) - 1) == total
        bounds = Bounds(cu_seq_lens_q, cu_seq_lens_q, (longest, longest), alike)
        if getattr(module.config, "imgedit_apart", False):
            bounds = bounds.apart(getattr(module, "imgedit_window", total))
    return attend(query, key, value, bounds, causal=False, scale=scaling)[None], None


ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)


def _mark_windows(visual: Any) -> None:
    """Tell the layers of a vision tower that attend inside windows (Qwen2.5-VL) how many patches
    one holds at most.
    """
    whole = getattr(visual.config, "fullatt_block_indexes", None)
    if whole is not None:
        side = visual.config.window_size // visual.config.patch_size
        for index, block in enumerate(visual.blocks):
            if index not in whole:
                block.attn.imgedit_window = side * side


def _common(prompts: Sequence[torch.Tensor], image_token: int) -> int:
    """Count the tokens that all prompts start with, up to the first image, and leave each prompt
    one of its own.
    """
    first = prompts[0]
    end = min(len(prompt) for prompt in prompts) - 1
    if len(prompts) == 1 or end < MIN_COMMON:
        return 0
    same = torch.stack([prompt[:end] == first[:end] for prompt in prompts]).all(0) & (
        first[:end] != image_token
    )
    count = int(same.long().cumprod(0).sum())
    if count >= MIN_COMMON:
        return count
    return 0


def _whole(features: Any) -> torch.Tensor:
    """One tensor of what some releases of transformers give as one tensor, and others split by
    image.
    """
    if isinstance(features, torch.Tensor):
        return features
    return torch.cat(list(features))
