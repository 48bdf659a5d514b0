"""Decoding in which a reply depends on its own prompt alone, bit by bit, whatever is judged beside
it.

Kernels for matrix products and reductions are chosen by shape, and other kernels round otherwise:
in bfloat16 the logits of one prompt move by up to a few tenths with the prompts beside it. Here all
shapes are fixed. Prompts are read in buckets that are filled up to always the same numbers of
tokens and patches, and replies are written in always as many rows with always the same room for
keys. Inside such a shape a row of a matrix product does not depend on what the other rows hold, nor
on its place.

That holds for kernels that tile all rows alike. Where it does not (the CPU, float32, and experts on
GPUs without a grouped kernel, which multiply as many rows at a time as an expert happens to get),
each prompt is read and each reply written by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from pytest_imgedit.kinds.qwen_decoder.decoding import Decoded, Prompt, write_greedily
from pytest_imgedit.kinds.qwen_decoder.graphs import Recorded
from pytest_imgedit.kinds.qwen_decoder.packed import PackedDecoder, Prefill

GIB = 2**30
#: Replies that are written at a time, and image tokens and tokens of text of a bucket, by the least
#: memory in bytes that a GPU has beside the weights. What is free at the moment does not count:
#: shapes are those of the GPU and model. The largest bucket holds eight prompts with two pictures
#: of a megapixel and 640 tokens of text each.
SHAPES = ((32 * GIB, 16, 16384, 5120), (12 * GIB, 8, 8192, 2560), (0, 4, 4096, 1280))
#: Keys and values have room for a multiple of so many tokens, which depends on a prompt's own
#: length.
ROOM = 1024
#: Patches of the pictures that fill a bucket up; attention in larger ones would take its time.
FILLER_PATCHES = 4096


class InvariantDecoder:
    """Decodes greedily with the model and the attention of a packed decoder, in fixed shapes."""

    def __init__(self, packed: PackedDecoder) -> None:
        self.packed = packed
        self.ends = packed.ends
        self.tiles_alike = _tiles_alike(packed.model)
        room = _room(packed.model) if self.tiles_alike else 0
        self.rows, *self.bucket = next(shape for least, *shape in SHAPES if room >= least)
        self._rows: _Rows | None = None

    @torch.inference_mode()
    def decode(
        self, prompts: Sequence[Prompt], max_new_tokens: int, keep_logits: bool = False
    ) -> Decoded:
        """See `Decoder`."""
        tokens: dict[int, list[int]] = {}
        logits: dict[int, torch.Tensor] = {}
        only_read = (
            max_new_tokens == 1
        )  # takes neither a row nor room, so all of it may share buckets
        rooms = [
            0 if only_read else -(-(len(one.tokens) + max_new_tokens) // ROOM) * ROOM
            for one in prompts
        ]
        count = self.rows if self.tiles_alike else 1
        if only_read:
            count = len(prompts)
        for room in sorted(set(rooms)):
            places = [place for place, own in enumerate(rooms) if own == room]
            for start in range(0, len(places), count):
                group = places[start : start + count]
                written, kept = self._write(
                    [prompts[place] for place in group], room, max_new_tokens, keep_logits
                )
                tokens |= dict(zip(group, written, strict=True))
                logits |= dict(zip(group, kept, strict=False))
        order = range(len(prompts))
        return Decoded.of(
            [tokens[n] for n in order], self.ends, [logits[n] for n in order] if keep_logits else ()
        )

    def _write(
        self, prompts: Sequence[Prompt], room: int, most: int, keep_logits: bool
    ) -> tuple[list[list[int]], list[torch.Tensor]]:
        """Read prompts, no more than there are rows if they get replies of several tokens, and
        write these.
        """
        first: list[torch.Tensor] = []
        for bucket in (
            self._buckets(prompts) if self.tiles_alike else [[prompt] for prompt in prompts]
        ):
            filled = [*bucket, *self._filler(bucket)] if self.tiles_alike else bucket
            prefill, scores = self.packed.read_apart(filled)
            for place, prompt in enumerate(bucket):
                if most > 1:
                    self._rows_for(room, prefill).load(len(first), prefill, place, prompt)
                first.append(scores[place])
        logits = torch.cat(first)  # (rows, V)

        def follow(chosen: torch.Tensor) -> torch.Tensor:
            assert self._rows is not None
            return self._rows.follow(chosen)[: len(prompts)]

        return write_greedily(logits, follow, self.ends, most, keep_logits)

    def _rows_for(self, room: int, prefill: Prefill) -> _Rows:
        if self._rows is None or self._rows.room != room:
            self._rows = None  # its memory is free before the next takes its own
            self._rows = _Rows(self.packed, room, self.rows if self.tiles_alike else 1, prefill)
        return self._rows

    def _size(self, prompt: Prompt) -> tuple[int, int]:
        """Tokens of images and tokens of text of a prompt."""
        images = int((prompt.tokens == self.packed.image_token).sum())
        return images, len(prompt.tokens) - images

    def _times(self, prompt: Prompt) -> int:
        """How many times the usual size a prompt's bucket has, which the prompt alone decides."""
        return max(
            1, *(-(-own // most) for own, most in zip(self._size(prompt), self.bucket, strict=True))
        )

    def _buckets(self, prompts: Sequence[Prompt]) -> Iterator[list[Prompt]]:
        """Divide prompts, in order, into buckets; one that is larger than a bucket has one of its
        own.
        """
        bucket: list[Prompt] = []
        images, text = 0, 0
        for prompt in prompts:
            own = self._size(prompt)
            full = images + own[0] > self.bucket[0] or text + own[1] > self.bucket[1]
            if bucket and (full or self._times(prompt) > 1 or self._times(bucket[-1]) > 1):
                yield bucket
                bucket, images, text = [], 0, 0
            bucket.append(prompt)
            images, text = images + own[0], text + own[1]
        if bucket:
            yield bucket

    def _filler(self, bucket: Sequence[Prompt]) -> list[Prompt]:
        """Return a prompt that fills a bucket up to its fixed size: pictures of zeros, and any
        text.
        """
        times, model = self._times(bucket[0]), self.packed.model
        sizes = [self._size(prompt) for prompt in bucket]
        images = times * self.bucket[0] - sum(own for own, _ in sizes)
        text = times * self.bucket[1] - sum(own for _, own in sizes)
        if not images and not text:
            return []
        vision = model.config.vision_config
        merge = int(vision.spatial_merge_size)
        grids = torch.tensor(list(_grids(images, merge)), dtype=torch.long).reshape(-1, 3)
        width = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
        pixels = torch.zeros(images * merge**2, width, dtype=model.dtype, device=model.device)
        tokens = torch.tensor([self.packed.image_token] * images + [0] * text)
        return [Prompt(tokens, torch.arange(images + text).expand(3, -1), pixels, grids)]


def _room(model: Any) -> int:
    """Bytes of memory that the GPU of a model has beside its weights."""
    total = torch.cuda.get_device_properties(model.device).total_memory
    return int(total - sum(parameter.nbytes for parameter in model.parameters()))


def _tiles_alike(model: Any) -> bool:
    """Tell whether this model's kernels on this device give a row the same values wherever it
    stands.
    """
    if model.device.type != "cuda" or model.dtype not in (torch.bfloat16, torch.float16):
        return False
    text = getattr(model.config, "text_config", model.config)
    has_experts = bool(getattr(text, "num_experts", 0))
    return not has_experts or torch.cuda.get_device_capability(model.device) >= (9, 0)


def _grids(images: int, merge: int) -> Iterator[tuple[int, int, int]]:
    """Sizes in patches (time, height, width) of pictures that have so many tokens together."""
    most = FILLER_PATCHES // merge**2
    for start in range(0, images, most):
        yield 1, merge, merge * min(most, images - start)


class _Rows:
    """Keys and values of replies side by side, (rows, heads, room, D) a layer, and one step of
    writing all of them.

    Shapes and memory stay the same for good, so that a step is recorded as a CUDA graph once.
    """

    def __init__(self, packed: PackedDecoder, room: int, count: int, prefill: Prefill) -> None:
        self.packed, self.room = packed, room

        def empty(like: torch.Tensor) -> torch.Tensor:
            _, heads, size = like.shape
            return torch.zeros(count, heads, room, size, dtype=like.dtype, device=like.device)

        self.keys = [empty(key) for key in prefill.keys]
        self.values = [empty(value) for value in prefill.values]
        device = self.keys[0].device
        self.rows, self.columns = (
            torch.arange(count, device=device),
            torch.arange(room, device=device),
        )
        self.tokens, self.positions, self.filled = (torch.zeros_like(self.rows) for _ in range(3))
        self._step = Recorded(packed)
        self._is_new = True

    def load(self, row: int, prefill: Prefill, place: int, prompt: Prompt) -> None:
        """Have a row go on after a prompt that was read, at its `place` among others."""
        start, count = prefill.starts[place], prefill.lengths[place]
        for own, read in ((self.keys, prefill.keys), (self.values, prefill.values)):
            for layer, tensor in zip(own, read, strict=True):
                layer[row, :, :count] = tensor[start : start + count].transpose(0, 1)
        self.positions[row] = int(prompt.positions.max()) + 1
        self.filled[row] = len(prompt.tokens)

    def follow(self, chosen: torch.Tensor) -> torch.Tensor:
        """Write the chosen tokens (up to rows,); the logits (rows, V) of the next hold until the
        next call.
        """
        self.tokens[: len(chosen)] = chosen
        if self._is_new and chosen.is_cuda:
            # What is recorded must have run once; the step that counts writes over it.
            self._advance()
            self.positions -= 1
            self.filled -= 1
            self._step.record(self._advance)
        self._is_new = False
        return self._step(self._advance)

    def _advance(self) -> torch.Tensor:
        logits = self.packed.follow(self.tokens, self.positions, self)
        self.positions += 1
        self.filled += 1
        return logits

    def attend(
        self, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        keys, values = self.keys[module.layer_idx], self.values[module.layer_idx]
        last = self.filled.clamp(
            max=self.room - 1
        )  # rows without a reply would run out of the room
        keys[self.rows, :, last], values[self.rows, :, last] = key, value
        mask = (self.columns <= last[:, None])[:, None, None]
        grouped = query.reshape(len(query), keys.shape[1], -1, query.shape[-1])
        return scaled_dot_product_attention(
            grouped, keys, values, attn_mask=mask, scale=scale
        ).flatten(1, 2)
