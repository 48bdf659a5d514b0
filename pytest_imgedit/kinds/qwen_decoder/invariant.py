"""Decoding in which a reply depends on its own prompt alone, bit by bit, and not on what is judged
beside it.

Kernels for matrix products and reductions are chosen by shape, and other kernels round otherwise:
in bfloat16 the logits of one prompt move by up to a few tenths with the prompts beside it. Here all
shapes are fixed. Pictures are encoded in calls of always as many patches, prompts are read in
buckets of always as many tokens, both filled up, and replies are written in always as many rows
with always the same room for keys. Inside such a shape a row of a matrix product does not depend on
what the other rows hold, nor on its place.

That holds for kernels that tile all rows alike. Where it does not (the CPU, float32, and experts on
GPUs without a grouped kernel, which multiply as many rows at a time as an expert happens to get),
each prompt is read and each reply written by itself.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch

from pytest_imgedit.kinds.qwen_decoder.decoding import Decoded, Prompt, write_greedily
from pytest_imgedit.kinds.qwen_decoder.packed import PackedDecoder, Prefill, Rows
from pytest_imgedit.kinds.qwen_decoder.pictures import PictureEncoder

#: Replies that are written at a time, and tokens of a bucket, the fastest first. The largest bucket
#: holds eight prompts with two pictures of a megapixel and 576 tokens of text each.
SHAPES = ((64, 20992), (32, 20992), (16, 20992), (8, 10496), (4, 5248))
#: Memory in bytes that reading a token takes beside its keys, values and features: 6.4 GiB for a
#: bucket of Qwen3-VL-30B-A3B. Remembered pictures, and what libraries take, come on top.
TOKEN_BYTES = 320 * 2**10
FURTHER_BYTES = 2 * 2**30
#: The room for keys and values is a multiple of this many tokens, by the prompt's own length alone.
ROOM = 1024
#: Prompts are followed by any text up to a multiple of this many tokens, which they do not see: few
#: lengths leave attention to faster kernels, which have to be prepared for each.
MULTIPLE = 64
#: Tokens of the prompts that fill a bucket up; attention in longer ones would take its time.
FILLER_TOKENS = 2048


class InvariantDecoder:
    """Decodes greedily with the model and the attention of a packed decoder, in fixed shapes."""

    def __init__(self, packed: PackedDecoder) -> None:
        self.packed = packed
        self.ends = packed.ends
        self._memory: Room | None = None
        self._rows: Rows | None = None
        self.separate()
        if _tiles_alike(packed.model):
            self.tiles_alike = True
            memory = torch.cuda.get_device_properties(packed.model.device).total_memory
            spare = memory - sum(parameter.nbytes for parameter in packed.model.parameters())
            self._memory = Room(spare, _bytes_a_token(packed.model))
            self.rows, self.bucket = self._memory.shape()

    def separate(self) -> None:
        """Read each prompt and write each reply by itself from now on."""
        self.tiles_alike = False
        self.rows = 1  # one reply at a time
        self.bucket = 0  # no prompt beside another
        self._memory = None
        self._rows = None
        self.forget_pictures()

    def forget_pictures(self) -> None:
        """Encode every picture anew."""
        self._encoder = PictureEncoder(self.packed)

    @torch.inference_mode()
    def decode(
        self, prompts: Sequence[Prompt], max_new_tokens: int, keep_logits: bool = False
    ) -> Decoded:
        """See `Decoder`."""
        positions_by_room: dict[int, list[int]] = defaultdict(list)
        for position, prompt in enumerate(prompts):
            blocks = _quotient_up(len(prompt.tokens) + max_new_tokens, ROOM)
            positions_by_room[blocks * ROOM].append(position)
        if max_new_tokens == 1:  # takes neither a row nor room, so that all may share buckets
            positions_by_room = {0: list(range(len(prompts)))}
        tokens: dict[int, list[int]] = {}
        logits: dict[int, torch.Tensor] = {}
        for room, positions in sorted(positions_by_room.items()):
            group_size = self._rows_with(room) if room else len(positions)
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
        encoded = self._encoder.encode(prompts) if self.tiles_alike else []
        for bucket in self._buckets(prompts):
            pictures = chain.from_iterable(encoded[len(first_logits) :][: len(bucket)])
            features = [torch.cat(layer) for layer in zip(*pictures, strict=True)]
            prefill, bucket_logits = self.packed.read_apart(
                self._filled(bucket), [len(prompt.tokens) for prompt in bucket], features
            )
            if max_new_tokens > 1:
                self._rows_of(room, prefill).load(len(first_logits), prefill, bucket)
            first_logits += bucket_logits

        def follow(chosen: torch.Tensor) -> torch.Tensor:
            assert self._rows is not None
            return self._rows.follow(chosen)[: len(prompts)]

        logits = torch.cat(first_logits)  # (B, V)
        return write_greedily(logits, follow, self.ends, max_new_tokens, keep_logits)

    def _rows_with(self, room: int) -> int:
        """Return how many rows with this room for keys there are: fewer if they are long."""
        if self._memory is None:
            return self.rows
        return min(self.rows, self._memory.rows(room, self.bucket))

    def _rows_of(self, room: int, prefill: Prefill) -> Rows:
        """Return rows with this room for keys: the present ones if theirs is the same, else new
        ones for the layers and heads of a prefill.
        """
        if self._rows is not None and self._rows.capacity == room:
            return self._rows
        self._rows = None  # its memory is free before the next takes its own
        keys = [self._empty(layer, room) for layer in prefill.keys]
        values = [self._empty(layer, room) for layer in prefill.values]
        count = len(keys[0])
        positions, filled = torch.zeros(2, count, dtype=torch.long, device=keys[0].device)
        self._rows = Rows(self.packed, keys, values, positions, filled)
        if positions.is_cuda:  # a step of no reply, so that all steps of replies are recorded
            self._rows.follow(self._rows.tokens)
        return self._rows

    def _empty(self, layer: torch.Tensor, room: int) -> torch.Tensor:
        """Return zeros (rows, heads, room, D) like the keys or values (T, heads, D) of a layer."""
        _, heads, width = layer.shape
        return layer.new_zeros(self._rows_with(room), heads, room, width)

    def _buckets(self, prompts: Sequence[Prompt]) -> Iterator[list[Prompt]]:
        """Yield prompts, at least one, in order and in buckets; one that is larger than a bucket is
        alone in its own.
        """
        bucket: list[Prompt] = []
        for prompt in prompts:
            if bucket and _tokens([*bucket, prompt]) > self.bucket:
                yield bucket
                bucket = []
            bucket.append(prompt)
        yield bucket

    def _filled(self, bucket: Sequence[Prompt]) -> list[Prompt]:
        """Return the prompts of a bucket, each with any text after it up to a multiple of
        `MULTIPLE`, and prompts of any text that fill it up to its fixed size, or to the smallest
        multiple that holds it; the bucket as it is if sizes do not matter.
        """
        if not self.tiles_alike:
            return list(bucket)
        used = _tokens(bucket)
        left = _quotient_up(used, self.bucket) * self.bucket - used
        counts = [FILLER_TOKENS] * (left // FILLER_TOKENS) + [left % FILLER_TOKENS]
        filled = [
            prompt.followed_by([0] * (_padded(prompt) - len(prompt.tokens))) for prompt in bucket
        ]
        for count in filter(None, counts):
            nothing = torch.zeros(count, dtype=torch.long)
            filled.append(Prompt(nothing, torch.arange(count).expand(3, -1), pictures=()))
        return filled


def _padded(prompt: Prompt) -> int:
    """Return the number of tokens of a prompt in a bucket."""
    return _quotient_up(len(prompt.tokens), MULTIPLE) * MULTIPLE


def _tokens(prompts: Sequence[Prompt]) -> int:
    return sum(map(_padded, prompts))


@dataclass(frozen=True)
class Room:
    """The GPU memory beside the weights, and the bytes that a prompt's token takes up.

    What is free at the moment does not count: shapes are those of the GPU and model.
    """

    spare: int
    bytes_a_token: int

    def shape(self) -> tuple[int, int]:
        """Return the rows and tokens: the first of `SHAPES` whose rows have room for three times
        `ROOM` tokens, or the last. Raise `ValueError` if nothing is to spare.
        """
        if self.spare < 0:
            raise ValueError("the model does not fit")
        for rows, tokens in SHAPES:
            if self.rows(3 * ROOM, tokens) >= rows:
                return rows, tokens
        return SHAPES[-1]

    def rows(self, room: int, tokens: int) -> int:
        """Return how many rows with `room` fit beside a bucket of `tokens`, at least one."""
        of_bucket = (self.bytes_a_token + TOKEN_BYTES) * tokens
        left = self.spare - of_bucket - FURTHER_BYTES
        return max(1, left // (self.bytes_a_token * room))


def _bytes_a_token(model: Any) -> int:
    """Return the bytes of a token's keys and values in all layers, and of the features of pictures
    that it gets.
    """
    text = getattr(model.config, "text_config", model.config)
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    values: int = 2 * text.num_hidden_layers * text.num_key_value_heads * head
    deep = getattr(model.config.vision_config, "deepstack_visual_indexes", None) or ()
    values += (1 + len(deep)) * text.hidden_size
    return values * int(model.dtype.itemsize)


def _quotient_up(number: int, divisor: int) -> int:
    return -(-number // divisor)


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
