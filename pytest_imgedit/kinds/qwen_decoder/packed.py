"""Greedy decoding of a batch of Qwen-VL prompts without padding: they lie end to end in one
sequence.

Against transformers' `generate` this saves the padding and its mask, which keeps attention off its
fast kernels, the loop over images in the vision tower, and all but one computation of the words
that every prompt of the batch starts with. Prompts see nothing of each other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import groupby
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from pytest_imgedit.core import errors
from pytest_imgedit.core.text import one_line
from pytest_imgedit.kinds.qwen_decoder.decoding import (
    Decoded,
    Picture,
    Prompt,
    end_tokens,
    write_greedily,
)

#: Vision towers hand all images of a batch at once to attention functions with "flash" in their
#: name.
NAME = "imgedit_flash_packed"
#: Shorter common beginnings are not worth the detour.
MIN_COMMON = 16
#: Sequences of a multiple of this many tokens or patches, such as pictures of 1024×1024, 1344×768
#: and 1152×896 pixels, are attended to by cuDNN, which takes half to two thirds of the time. It
#: takes 40 ms to prepare for each length, so that others are left to a kernel for any.
DENSE_MULTIPLE = 64
#: Sequences of one length that are attended to in one call, each number of which is prepared for.
MOST_TOGETHER = 4
#: Rows of keys have a multiple of this many columns: kernels are faster with even strides.
COLUMNS = 64


class PackedDecoder:
    """Decodes greedily with a Qwen2.5-VL, Qwen3-VL or Qwen3-VL-MoE model, whose attention functions
    it replaces.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.image_token = model.config.image_token_id
        visual = model.model.visual
        visual.config._attn_implementation = NAME
        model.model.language_model.config._attn_implementation = NAME
        # Layers of a vision tower that attend inside windows (Qwen2.5-VL) are told how many patches
        # one holds at most.
        every_block = range(len(visual.blocks))
        without_windows = getattr(visual.config, "fullatt_block_indexes", every_block)
        for index in set(every_block) - set(without_windows):
            side = visual.config.window_size // visual.config.patch_size
            visual.blocks[index].attn.imgedit_window = side * side
        if hasattr(model.model.language_model, "_deepstack_process"):
            model.model.language_model._deepstack_process = _add_at
        self.ends = end_tokens(model)
        self.records_steps = True  # until a GPU cannot do it

    @torch.inference_mode()
    def decode(
        self, prompts: Sequence[Prompt], max_new_tokens: int, keep_logits: bool = False
    ) -> Decoded:
        """See `Decoder`."""
        prefill = Prefill(prompts, self.image_token, self.model.device, shares=True)
        hidden = self._read(prompts, prefill)
        rows: Rows | None = None

        def follow(chosen: torch.Tensor) -> torch.Tensor:
            nonlocal rows
            if rows is None:
                positions = torch.stack([prompt.positions.max() for prompt in prompts]) + 1
                rows = prefill.rows(self, max_new_tokens, positions.to(chosen.device))
            return rows.follow(chosen)

        logits = self.model.lm_head(hidden[prefill.last]).float()  # (B, V)
        return write_greedily(logits, follow, self.ends, max_new_tokens, keep_logits)

    def read_apart(
        self,
        prompts: Sequence[Prompt],
        lengths: Sequence[int],
        features: Sequence[torch.Tensor] = (),
    ) -> tuple[Prefill, list[torch.Tensor]]:
        """Read prompts that share no beginning; return their keys and values, and the logits (1, V)
        after the first `lengths` tokens of those that count, which come first.

        The shapes of the kernels that read several prompts depend only on the sum of their tokens,
        or on those of one prompt. `features` are those of their pictures, if they have been encoded
        before.
        """
        prefill = Prefill(
            prompts, self.image_token, self.model.device, shares=False, count=len(lengths)
        )
        hidden = self._read(prompts, prefill, features)
        ends = [start + length for start, length in zip(prefill.starts, lengths, strict=False)]
        return prefill, [self.model.lm_head(hidden[end - 1 : end]).float() for end in ends]

    def features(
        self,
        pictures: Sequence[Picture],
        patches: Sequence[int] | None = None,
        **places: torch.Tensor,
    ) -> list[torch.Tensor]:
        """Return the features (image tokens, hidden) of pictures, end to end: those in place of
        embedded tokens, then those for the first layers.

        With `patches`, those of the pictures that count, which come first, the shapes of all
        kernels depend only on the sum of the patches of all pictures, or on those of one picture.
        `places` are what the tower makes of the pictures' grids, if that is known: it would wait
        for the GPU.
        """
        body = self.model.model
        device = self.model.device
        pixels = torch.cat([picture.pixels.to(device, non_blocking=True) for picture in pictures])
        grids = torch.stack([picture.grid for picture in pictures])
        body.visual.config.imgedit_patches = patches
        try:
            features = body.get_image_features(
                pixels, grids if places else grids.to(device), **places
            )
        finally:
            body.visual.config.imgedit_patches = None
        deep = getattr(features, "deepstack_features", None) or []
        return [_joined(features.pooler_output), *map(_joined, deep)]

    def _read(
        self, prompts: Sequence[Prompt], prefill: Prefill, features: Sequence[torch.Tensor] = ()
    ) -> torch.Tensor:
        """Run all prompts, with their images, through the model; return the last hidden states
        (T, hidden), and leave keys and values in `prefill`.
        """
        device = self.model.device
        embedded = self.model.model.get_input_embeddings()(prefill.tokens)
        extra: dict[str, Any] = {}
        pictures = [picture for prompt in prompts for picture in prompt.pictures]
        if pictures:
            in_place, *deep = features or self.features(pictures)
            embedded[prefill.images] = in_place.to(embedded.dtype)
            if deep:
                extra["visual_pos_masks"] = prefill.images
                extra["deepstack_visual_embeds"] = deep
        positions = moved(prefill.pack([prompt.positions.T for prompt in prompts]).T, device)
        return self._run(embedded, positions, prefill, **extra)

    def follow(self, tokens: torch.Tensor, positions: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Run one token (B,) of each row at its position (B,); return the logits (B, V) of the next
        tokens, and leave keys and values in `rows`.
        """
        embedded = self.model.model.get_input_embeddings()(tokens)
        hidden = self._run(embedded, positions.expand(3, -1), rows)
        logits: torch.Tensor = self.model.lm_head(hidden).float()
        return logits

    def _run(
        self,
        embedded: torch.Tensor,
        positions: torch.Tensor,
        attention: Prefill | Rows,
        **extra: Any,
    ) -> torch.Tensor:
        """Return the last hidden states (T, hidden) of a packed sequence of embedded tokens (T,
        hidden) at `positions` (3, T); `extra` goes to the language model.
        """
        output = self.model.model.language_model(
            inputs_embeds=embedded[None],
            position_ids=positions[:, None],
            use_cache=False,
            packed=attention,
            **extra,
        )
        hidden: torch.Tensor = output.last_hidden_state[0]
        return hidden


class Prefill:
    """How prompts lie in one sequence, and attention over that; if it `shares`, their common
    beginning is there once, at the start.

    Keeps keys and values of each layer (T, heads, D) for decoding. `starts` and `last` are where
    each prompt's own tokens begin and end in the sequence.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        image_token: int,
        device: torch.device,
        *,
        shares: bool,
        count: int = 0,
    ) -> None:
        tokens = [prompt.tokens for prompt in prompts]
        self.common = _common(tokens, image_token) if shares else 0
        #: Tokens of each prompt after the common beginning.
        self.lengths = [len(row) - self.common for row in tokens]
        packed = self.pack(tokens)
        self.tokens = moved(packed, device)
        self.images = moved((packed == image_token).nonzero()[:, 0], device)
        queries = list(self.lengths)
        keys = [self.common + length for length in self.lengths]
        if self.common:
            queries.insert(0, self.common)
            keys.insert(0, self.common)
        bounds = Bounds.of(queries, keys, device)
        self.is_apart = not shares and len(prompts) > 1
        self.bounds = bounds.apart(sum(queries)) if self.is_apart else bounds
        self.count = count
        ends = torch.tensor(self.lengths).cumsum(0) + self.common
        self.last = moved(ends - 1, device)
        self.starts: list[int] = (ends - torch.tensor(self.lengths)).tolist()
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        #: Where keys and values are when each prompt has the common beginning to itself.
        self.gather: torch.Tensor | None = None
        if self.common:
            numbers = torch.arange(len(self.tokens), device=device)
            beginning = numbers[: self.common]
            parts = [beginning]
            for prompt in numbers[self.common :].split(self.lengths):
                parts += [beginning, prompt]
            self.gather = torch.cat(parts)

    def pack(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return what all prompts have for each token end to end, for the common beginning once."""
        return torch.cat([rows[0][: self.common]] + [row[self.common :] for row in rows])

    def attend(
        self, _: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Return the next layer's causal attention (T, heads, D) inside each prompt, and keep its
        keys and values.
        """
        self.keys.append(key)
        self.values.append(value)
        lengths = self.lengths[: self.count]
        if self.is_apart and _has_fast_dense(query, lengths):
            return _attend_each(query, key, value, lengths, causal=True, scale=scale)
        if self.gather is not None:
            key = key[self.gather]
            value = value[self.gather]
        return attend(query, key, value, self.bounds, causal=True, scale=scale)

    def rows(self, decoder: PackedDecoder, new_tokens: int, positions: torch.Tensor) -> Rows:
        """Return rows with the keys and values of each prompt and room for new tokens, and drop
        them here; `positions` (B,) are those of the first new tokens.
        """
        lengths, starts = torch.tensor([self.lengths, self.starts])
        longest = self.common + int(lengths.max()) + new_tokens
        columns = torch.arange(-(-longest // COLUMNS) * COLUMNS)  # rounded up
        # Where the sequence has what goes into each column: the common beginning, then the prompt.
        # Columns after that get what lies behind the prompt; they are masked until overwritten.
        after_common = (columns - self.common).clamp(min=0) + starts[:, None]
        sources = torch.where(columns < self.common, columns, after_common)
        sources = sources.clamp(max=len(self.tokens) - 1).to(self.tokens.device)
        keys = [layer[sources].transpose(1, 2).contiguous() for layer in self.keys]
        values = [layer[sources].transpose(1, 2).contiguous() for layer in self.values]
        self.keys.clear()
        self.values.clear()
        return Rows(decoder, keys, values, positions, (lengths + self.common).to(positions.device))


class Rows:
    """Keys and values of replies side by side, (rows, heads, capacity, D) a layer, and one step of
    writing all of them.

    `positions` (rows,) are those of the next tokens, `filled` (rows,) the columns that keys and
    values take up.

    A step is thousands of small kernels that take longer to start than to run. Shapes and memory
    stay the same for good, so that a GPU can record the step as a CUDA graph and replay it. Where
    that cannot be done, steps of this decoder run as they are from then on: a grouped matrix
    product of experts without a kernel of its own asks the GPU for sizes, which no graph can hold.
    That is so in float32 anywhere, and in bfloat16 on GPUs before Hopper.
    """

    def __init__(
        self,
        decoder: PackedDecoder,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
        positions: torch.Tensor,
        filled: torch.Tensor,
    ) -> None:
        self.decoder = decoder
        self.keys = keys
        self.values = values
        self.positions = positions
        self.filled = filled
        self.tokens = torch.zeros_like(positions)
        self.capacity = keys[0].shape[2]
        self.numbers = torch.arange(len(positions), device=positions.device)
        self.columns = torch.arange(self.capacity, device=positions.device)
        self._steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._logits = torch.empty(0)
        self._mask = torch.empty(0)

    def load(self, first: int, prefill: Prefill, prompts: Sequence[Prompt]) -> None:
        """Have the rows from `first` on go on after prompts, which come first in a prefill that
        shares no beginning; there, any text may follow each of them.
        """
        device = self.positions.device
        row = first
        for start, count, length in _runs(prefill.lengths[: len(prompts)], len(prompts)):
            inside = slice(start, start + count * length)
            for layers, read in ((self.keys, prefill.keys), (self.values, prefill.values)):
                for layer, tensor in zip(layers, read, strict=True):
                    in_rows = tensor[inside].unflatten(0, (count, length))[:, : self.capacity]
                    layer[row : row + count, :, :length] = in_rows.transpose(1, 2)
            row += count
        positions = torch.stack([prompt.positions.max() for prompt in prompts]) + 1
        loaded = slice(first, first + len(prompts))
        self.positions[loaded] = moved(positions, device)
        lengths = torch.tensor([len(prompt.tokens) for prompt in prompts])
        self.filled[loaded] = moved(lengths, device)

    def follow(self, chosen: torch.Tensor) -> torch.Tensor:
        """Append the chosen tokens, one to each row or to the first rows; return the logits (rows,
        V) of the next ones, which the next call overwrites.

        The second step is recorded: the first one has made all kernels ready.
        """
        self.tokens[: len(chosen)] = chosen
        self._steps += 1
        if self._steps == 2 and chosen.is_cuda and self.decoder.records_steps:
            self._record()
        if self._graph is not None:
            self._graph.replay()
        else:
            self._logits = self._advance()
        return self._logits

    def _record(self) -> None:
        """Record the step, without taking it; if that fails for another reason than memory, have
        the decoder take steps as they are from then on.
        """
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads prepare images meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._logits = self._advance()
        except RuntimeError as error:
            if errors.is_out_of_memory(error):
                raise
            torch.cuda.synchronize()
            self.decoder.records_steps = False
            print(
                f"steps are not recorded as a CUDA graph: {one_line(error)}"[:300],
                file=sys.stderr,
            )
        else:
            self._graph = graph

    def _advance(self) -> torch.Tensor:
        self._mask = (self.columns <= self.filled[:, None])[:, None, None]
        logits = self.decoder.follow(self.tokens, self.positions, self)
        self.positions += 1
        self.filled += 1
        self.filled.clamp_(max=self.capacity - 1)  # rows without a reply would run out of columns
        return logits

    def attend(
        self, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Return a layer's attention (rows, heads, D) of one token a row over that row, and write
        the token's key and value into it.
        """
        keys = self.keys[module.layer_idx]
        values = self.values[module.layer_idx]
        keys[self.numbers, :, self.filled] = key
        values[self.numbers, :, self.filled] = value
        # Heads that share keys are passed as several queries of one head, so that no key is
        # repeated in memory.
        grouped = query.reshape(len(query), keys.shape[1], -1, query.shape[-1])
        return scaled_dot_product_attention(
            grouped, keys, values, attn_mask=self._mask, scale=scale
        ).flatten(1, 2)


@dataclass(frozen=True)
class Bounds:
    """Where sequences begin and end, as cumulative sums of their numbers of `queries` and `keys`
    from 0 on, (sequences + 1,) in int32.

    `longest` holds the most queries and the most keys of a sequence; `alike` says that all
    sequences have the same number of both.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    longest: tuple[int, int]
    alike: bool

    @classmethod
    def of(cls, queries: Sequence[int], keys: Sequence[int], device: torch.device) -> Bounds:
        """Return the bounds of sequences with these numbers of queries and keys."""
        return cls(
            _sums(queries, device),
            _sums(keys, device),
            longest=(max(queries), max(keys)),
            alike=len(set(queries) | set(keys)) == 1,
        )

    def apart(self, most: int) -> Bounds:
        """Return these bounds with `longest` replaced by the `most` that a single sequence could
        have, so that no sequence's length decides which kernels are chosen.
        """
        return Bounds(self.queries, self.keys, (most, most), False)


def _sums(counts: Sequence[int], device: torch.device) -> torch.Tensor:
    """Return the cumulative sums of counts from 0 on, (counts + 1,) in int32."""
    return moved(torch.tensor([0, *counts]).cumsum(0).int(), device)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: Bounds,
    *,
    causal: bool,
    scale: float,
) -> torch.Tensor:
    """Return the attention (Tq, heads, D) inside each of several sequences, of `query` (Tq, heads,
    D) to `key` and `value` (Tk, key heads, D).

    The queries of a sequence with fewer queries than keys are those of its last tokens.
    """
    if bounds.alike:
        length, _ = bounds.longest
        return _attend_alike(query, key, value, length, causal=causal, scale=scale)
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        return _varlen(query, key, value, bounds, causal=causal, scale=scale)
    query_lengths = bounds.queries.diff().tolist()
    key_lengths = bounds.keys.diff().tolist()
    sequences = zip(
        query.split(query_lengths), key.split(key_lengths), value.split(key_lengths), strict=True
    )
    return torch.cat([_attend_one(*sequence, causal=causal, scale=scale) for sequence in sequences])


def _attend_alike(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    length: int,
    *,
    causal: bool,
    scale: float,
) -> torch.Tensor:
    """Do what `attend` does for sequences of one `length`, as a batch."""
    query = query.unflatten(0, (-1, length)).transpose(1, 2)
    key = key.unflatten(0, (-1, length)).transpose(1, 2)
    value = value.unflatten(0, (-1, length)).transpose(1, 2)
    output = scaled_dot_product_attention(
        query,
        key,
        value,
        is_causal=causal,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return output.transpose(1, 2).flatten(0, 1)


def _varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: Bounds,
    *,
    causal: bool,
    scale: float,
) -> torch.Tensor:
    """Do what `attend` does in one kernel, in half precision on a GPU."""
    from torch.nn.attention import varlen

    function: Any = varlen.varlen_attn
    shared = {"enable_gqa": True} if "enable_gqa" in signature(function).parameters else {}
    most_queries, most_keys = bounds.longest
    output: torch.Tensor = function(
        query,
        key,
        value,
        bounds.queries,
        bounds.keys,
        most_queries,
        most_keys,
        scale=scale,
        window_size=(-1, 0) if causal else (-1, -1),
        **shared,
    )
    return output


def _attend_one(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, causal: bool, scale: float
) -> torch.Tensor:
    """Do what `attend` does for one sequence."""
    mask = None
    if causal:
        mask = torch.ones(len(query), len(key), dtype=torch.bool, device=query.device).tril(
            len(key) - len(query)
        )
    query, key, value = (tensor.transpose(0, 1)[None] for tensor in (query, key, value))
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
    *,
    scaling: float,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Return the attention (1, T, heads, D), as transformers calls for it, of tensors (1, heads, T,
    D), and no attention weights.

    The options hold `packed` for language and `cu_seq_lens_q` for vision; a vision tower that goes
    from image to image passes neither.
    """
    packed: Prefill | Rows | None = options.get("packed")
    sums: torch.Tensor | None = options.get("cu_seq_lens_q")
    query, key, value = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    if packed is not None:
        return packed.attend(module, query, key, value, scaling)[None], None
    total = len(query)
    patches: Sequence[int] | None = getattr(module.config, "imgedit_patches", None)
    if patches is not None:
        window = getattr(module, "imgedit_window", None)
        if window is None and _has_fast_dense(query, patches):
            return _attend_each(query, key, value, patches, causal=False, scale=scaling)[None], None
        longest = window or total
        assert sums is not None, "pictures of one call go through the tower together"
        bounds = Bounds(sums, sums, (longest, longest), alike=False)
    elif sums is None:
        bounds = Bounds.of([total], [total], query.device)
    else:  # known without asking the GPU, which would wait for it in every layer
        longest = int(options["max_length_q"])
        bounds = Bounds(sums, sums, (longest, longest), alike=longest * (len(sums) - 1) == total)
    return attend(query, key, value, bounds, causal=False, scale=scaling)[None], None


def _has_fast_dense(query: torch.Tensor, lengths: Sequence[int]) -> bool:
    """Tell whether cuDNN's attention is there for sequences of these lengths, and faster than that
    for any lengths: in half precision on Hopper and later.
    """
    return (
        all(length % DENSE_MULTIPLE == 0 for length in lengths)
        and query.is_cuda
        and query.dtype in (torch.bfloat16, torch.float16)
        and torch.backends.cuda.cudnn_sdp_enabled()
        and torch.cuda.get_device_capability(query.device) >= (9, 0)
    )


def _attend_each(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    lengths: Sequence[int],
    *,
    causal: bool,
    scale: float,
) -> torch.Tensor:
    """Return the attention (T, heads, D) inside each of several sequences that come first; zeros
    for what comes after them.

    Sequences of one length that follow each other go together: the kernel is chosen by the length
    alone, and computes each of them by itself.
    """
    outputs = []
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        for start, count, length in _runs(lengths):
            inside = slice(start, start + count * length)
            outputs.append(
                _attend_alike(
                    query[inside], key[inside], value[inside], length, causal=causal, scale=scale
                )
            )
    unused = len(query) - sum(lengths)
    if unused:
        outputs.append(query.new_zeros(unused, *query.shape[1:]))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _runs(lengths: Sequence[int], together: int = MOST_TOGETHER) -> Iterator[tuple[int, int, int]]:
    """Yield where a run of sequences of one length starts, which lie end to end, how many it has,
    and their length. There are 1, 2, 4, … sequences in a run, at most `together`.
    """
    start = 0
    for length, group in groupby(lengths):
        left = len(list(group))
        while left:
            count = min(together, 1 << left.bit_length() - 1)
            yield start, count, length
            start += count * length
            left -= count


ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)


def _common(prompts: Sequence[torch.Tensor], image_token: int) -> int:
    """Return how many tokens all prompts start with, up to the first image, leaving at least one of
    each; 0 if that is fewer than `MIN_COMMON`, or for a single prompt.
    """
    if len(prompts) == 1:
        return 0
    end = min(len(prompt) for prompt in prompts) - 1
    starts = torch.stack([prompt[:end] for prompt in prompts])
    is_common = (starts == starts[0]).all(0) & (starts[0] != image_token)
    count = int(is_common.long().cumprod(0).sum())
    return count if count >= MIN_COMMON else 0


def _add_at(hidden: torch.Tensor, places: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    """Return hidden states (1, T, hidden) with features (P, hidden) added at places (P,)."""
    added = hidden.clone()
    added[0, places] += features.to(hidden.dtype)
    return added


def moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor on a device, without waiting for what the GPU still has to do."""
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def _joined(features: Any) -> torch.Tensor:
    """Return as one tensor what some releases of transformers split by image, and others do not."""
    return features if isinstance(features, torch.Tensor) else torch.cat(list(features))
