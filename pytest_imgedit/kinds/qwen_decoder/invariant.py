"""Decoding in which a reply depends on its own prompt alone, bit by bit, and not on what is judged
beside it.

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

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from pytest_imgedit.kinds.qwen_decoder.decoding import Decoded, Prompt, write_greedily
from pytest_imgedit.kinds.qwen_decoder.packed import PackedDecoder, Prefill, Rows

GIB = 2**30
#: Replies that are written at a time, and image tokens and tokens of text of a bucket, by the least
#: memory in bytes that a GPU has beside the weights. What is free at the moment does not count:
#: shapes are those of the GPU and model. The largest bucket holds eight prompts with two pictures
#: of a megapixel and 640 tokens of text each.
SHAPES = ((32 * GIB, 16, 16384, 5120), (12 * GIB, 8, 8192, 2560), (0, 4, 4096, 1280))
#: The room for keys and values is a multiple of this many tokens, by the prompt's own length alone.
ROOM = 1024
#: Patches of the pictures that fill a bucket up; attention in larger ones would take its time.
FILLER_PATCHES = 4096


class InvariantDecoder:
    """Decodes greedily with the model and the attention of a packed decoder, in fixed shapes."""

    def __init__(self, packed: PackedDecoder) -> None:
        self.packed = packed
        self.ends = packed.ends
        self.tiles_alike = _tiles_alike(packed.model)
        self.rows = 1  # one reply at a time
        self.bucket = (0, 0)  # no prompt beside another
        if self.tiles_alike:
            memory = torch.cuda.get_device_properties(packed.model.device).total_memory
            spare = memory - sum(parameter.nbytes for parameter in packed.model.parameters())
            self.rows, image_tokens, text_tokens = _shape(spare)
            self.bucket = (image_tokens, text_tokens)
        self._rows: Rows | None = None

    @torch.inference_mode()
    def decode(
        self, prompts: Sequence[Prompt], max_new_tokens: int, keep_logits: bool = False
    ) -> Decoded:
        """See `Decoder`."""
        positions_by_room: dict[int, list[int]] = defaultdict(list)
        for position, prompt in enumerate(prompts):
            blocks = _quotient_up(len(prompt.tokens) + max_new_tokens, ROOM)
            positions_by_room[blocks * ROOM].append(position)
        group_size = self.rows
        if max_new_tokens == 1:  # takes neither a row nor room, so that all may share buckets
            positions_by_room = {0: list(range(len(prompts)))}
            group_size = len(prompts)
        tokens: dict[int, list[int]] = {}
        logits: dict[int, torch.Tensor] = {}
        for room, positions in sorted(positions_by_room.items()):
            for start in range(0, len(positions), group_size):
                group = positions[start : start + group_size]
                decoded = self._write(
                    [prompts[position] for position in group], room, max_new_tokens, keep_logits
                )
                tokens |= dict(zip(group, decoded.tokens, strict=True))
                if keep_logits:
                    logits |= dict(zip(group, decoded.logits, strict=True))
        in_order = [tokens[position] for position in sorted(tokens)]
        return Decoded.of(in_order, self.ends, [logits[position] for position in sorted(logits)])

    def _write(
        self, prompts: Sequence[Prompt], room: int, max_new_tokens: int, keep_logits: bool
    ) -> Decoded:
        """Return the replies to prompts, written in rows with this `room`.

        There must be a row for each prompt, unless replies have one token: these take no row.
        """
        first_logits: list[torch.Tensor] = []
        for bucket in self._buckets(prompts):
            prefill, bucket_logits = self.packed.read_apart(bucket + self._filler(bucket))
            for index, prompt in enumerate(bucket):
                if max_new_tokens > 1:
                    row = len(first_logits)
                    self._rows_of(room, prefill).load(row, prefill, index, prompt)
                first_logits.append(bucket_logits[index])

        def follow(chosen: torch.Tensor) -> torch.Tensor:
            assert self._rows is not None
            return self._rows.follow(chosen)[: len(prompts)]

        logits = torch.cat(first_logits)  # (B, V)
        return write_greedily(logits, follow, self.ends, max_new_tokens, keep_logits)

    def _rows_of(self, room: int, prefill: Prefill) -> Rows:
        """Return rows with this room for keys: the present ones if theirs is the same, else new
        ones for the layers and heads of a prefill.
        """
        if self._rows is not None and self._rows.capacity == room:
            return self._rows
        self._rows = None  # its memory is free before the next takes its own
        keys = [self._empty(layer, room) for layer in prefill.keys]
        values = [self._empty(layer, room) for layer in prefill.values]
        positions, filled = torch.zeros(2, self.rows, dtype=torch.long, device=keys[0].device)
        self._rows = Rows(self.packed, keys, values, positions, filled)
        if positions.is_cuda:  # a step of no reply, so that all steps of replies are recorded
            self._rows.follow(self._rows.tokens)
        return self._rows

    def _empty(self, layer: torch.Tensor, room: int) -> torch.Tensor:
        """Return zeros (rows, heads, room, D) like the keys or values (T, heads, D) of a layer."""
        _, heads, width = layer.shape
        return layer.new_zeros(self.rows, heads, room, width)

    def _size(self, prompts: Sequence[Prompt]) -> tuple[int, int]:
        """Return the numbers of image tokens and of tokens of text in prompts."""
        tokens = torch.cat([prompt.tokens for prompt in prompts])
        images = int((tokens == self.packed.image_token).sum())
        return images, len(tokens) - images

    def _buckets(self, prompts: Sequence[Prompt]) -> Iterator[list[Prompt]]:
        """Yield prompts, at least one, in order and in buckets; one that is larger than a bucket is
        alone in its own.
        """
        most_images, most_text = self.bucket
        bucket: list[Prompt] = []
        for prompt in prompts:
            images, text = self._size(bucket + [prompt])
            if bucket and (images > most_images or text > most_text):
                yield bucket
                bucket = []
            bucket.append(prompt)
        yield bucket

    def _filler(self, bucket: Sequence[Prompt]) -> list[Prompt]:
        """Return the prompt, of pictures of zeros and any text, that fills a bucket up to its fixed
        size; none if the bucket is full, or if sizes do not matter.

        If one prompt alone is larger, the size is the smallest multiple that holds it.
        """
        if not self.tiles_alike:
            return []
        used_images, used_text = self._size(bucket)
        most_images, most_text = self.bucket
        times = max(1, _quotient_up(used_images, most_images), _quotient_up(used_text, most_text))
        images = times * most_images - used_images
        text = times * most_text - used_text
        if not images and not text:
            return []
        return [_filler_prompt(self.packed.model, self.packed.image_token, images, text)]


def _shape(spare: int) -> tuple[int, int, int]:
    """Return the rows, image tokens and tokens of text for a GPU with this memory to spare; raise
    `ValueError` if that is negative.
    """
    for least, rows, image_tokens, text_tokens in SHAPES:
        if spare >= least:
            return rows, image_tokens, text_tokens
    raise ValueError("the model does not fit")


def _quotient_up(number: int, divisor: int) -> int:
    return -(-number // divisor)


def _filler_prompt(model: Any, image_token: int, images: int, text: int) -> Prompt:
    """Return a prompt of `images` image tokens, in pictures of zeros, and `text` tokens of text."""
    vision = model.config.vision_config
    merge = int(vision.spatial_merge_size)
    # The model merges squares of `merge` x `merge` patches into one image token; a picture here is
    # one square high.
    most = FILLER_PATCHES // merge**2  # image tokens of a picture
    grids = [(1, merge, merge * min(most, images - done)) for done in range(0, images, most)]
    width = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    return Prompt(
        torch.tensor([image_token] * images + [0] * text),
        torch.arange(images + text).expand(3, -1),
        torch.zeros(images * merge**2, width, dtype=model.dtype, device=model.device),
        torch.tensor(grids, dtype=torch.long).reshape(-1, 3),
    )


def _tiles_alike(model: Any) -> bool:
    """Tell whether this model's kernels on its device give a row the same values wherever it
    stands: in half precision on a GPU, with experts from Hopper on, whose grouped kernel they need.
    """
    if model.device.type != "cuda" or model.dtype not in (torch.bfloat16, torch.float16):
        return False
    text = getattr(model.config, "text_config", model.config)
    if not getattr(text, "num_experts", 0):
        return True
    return torch.cuda.get_device_capability(model.device) >= (9, 0)
