"""What a Qwen-VL judge decodes and what comes out, and the plain way: padded, with transformers'
`generate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch.nn.utils.rnn import pad_sequence


@dataclass(frozen=True)
class Picture:
    """One image of a prompt: its patches, `pixels` (patches, values) in a `grid` (3,) of time,
    height and width. Pictures with the same `key` are the same.
    """

    key: bytes
    pixels: torch.Tensor
    grid: torch.Tensor


@dataclass(frozen=True)
class Prompt:
    """One prompt on the CPU: `tokens` (L,), their `positions` (3, L) in time, height and width, and
    its images in the order of their tokens.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    pictures: tuple[Picture, ...]

    def followed_by(self, tokens: Sequence[int]) -> Prompt:
        """Return this prompt with `tokens`, the beginning of its reply, appended."""
        start = int(self.positions.max()) + 1
        positions = torch.arange(start, start + len(tokens)).expand(3, -1)
        return replace(
            self,
            tokens=torch.cat([self.tokens, torch.tensor(tokens, dtype=self.tokens.dtype)]),
            positions=torch.cat([self.positions, positions], dim=1),
        )


@dataclass(frozen=True)
class Decoded:
    """The replies to a batch of prompts: `tokens` up to the end token, and the `logits` (steps, V)
    that chose them, an empty list unless they are kept.

    A reply without an end token is `cut`.
    """

    tokens: list[list[int]]
    cut: list[bool]
    logits: list[torch.Tensor]

    @classmethod
    def of(
        cls, rows: Iterable[Sequence[int]], ends: set[int], logits: Sequence[torch.Tensor]
    ) -> Decoded:
        """Return the replies in `rows`, which are not empty, without what follows the first end
        token of each.
        """
        tokens = []
        for row in rows:
            stop = next((n for n, token in enumerate(row, 1) if token in ends), len(row))
            tokens.append(list(row[:stop]))
        return cls(tokens, [reply[-1] not in ends for reply in tokens], list(logits))


class Decoder(Protocol):
    """Decodes a batch greedily."""

    def decode(
        self, prompts: Sequence[Prompt], max_new_tokens: int, keep_logits: bool = False
    ) -> Decoded:
        """Return the continuation of each prompt by the most probable token at each step, at most
        `max_new_tokens` long, and its logits if `keep_logits`.
        """


class PaddedDecoder:
    """Prompts padded on the left to one length, and transformers' `generate`: any attention, any
    number of GPUs.

    If it is `invariant`, each prompt is decoded alone, so that its reply does not depend on others.
    """

    def __init__(self, model: Any, pad_token: int, invariant: bool = False) -> None:
        self.model = model
        self.pad_token = pad_token
        self.invariant = invariant
        self.ends = end_tokens(model)

    def inputs(self, prompts: Sequence[Prompt]) -> dict[str, torch.Tensor]:
        """Return the arguments of the model's forward for a batch."""
        rows = [prompt.tokens for prompt in prompts]
        tokens = pad_sequence(
            rows, batch_first=True, padding_value=self.pad_token, padding_side="left"
        )
        inputs = {
            "input_ids": tokens,
            "attention_mask": pad_sequence(
                [torch.ones_like(row) for row in rows], batch_first=True, padding_side="left"
            ),
            "mm_token_type_ids": (tokens == self.model.config.image_token_id).int(),
        }
        pictures = [picture for prompt in prompts for picture in prompt.pictures]
        if pictures:
            inputs["pixel_values"] = torch.cat([picture.pixels for picture in pictures])
            inputs["image_grid_thw"] = torch.stack([picture.grid for picture in pictures])
        return {name: tensor.to(self.model.device) for name, tensor in inputs.items()}

    @torch.inference_mode()
    def decode(
        self, prompts: Sequence[Prompt], max_new_tokens: int, keep_logits: bool = False
    ) -> Decoded:
        """See `Decoder`."""
        if self.invariant and len(prompts) > 1:
            alone = [self.decode([prompt], max_new_tokens, keep_logits) for prompt in prompts]
            joined = Decoded([], [], [])
            for reply in alone:
                joined.tokens.extend(reply.tokens)
                joined.cut.extend(reply.cut)
                joined.logits.extend(reply.logits)
            return joined
        inputs = self.inputs(prompts)
        output = self.model.generate(
            **inputs,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            num_beams=1,
            temperature=None,
            top_p=None,
            top_k=None,
            repetition_penalty=1.0,
            return_dict_in_generate=True,
            output_logits=keep_logits,
        )
        new = output.sequences[:, inputs["input_ids"].shape[1] :].tolist()
        logits = torch.stack(output.logits).float().unbind(1) if keep_logits else ()
        return Decoded.of(new, self.ends, logits)


def write_greedily(
    logits: torch.Tensor,
    follow: Callable[[torch.Tensor], torch.Tensor],
    ends: set[int],
    max_new_tokens: int,
    keep_logits: bool,
) -> Decoded:
    """Return replies written side by side, until each has an end token or all have
    `max_new_tokens`, at least 1.

    `logits` (B, V) are those of the first tokens; `follow` takes the chosen tokens (B,) and returns
    the logits (B, V) of the next ones.
    """
    steps: list[list[int]] = []
    step_logits: list[torch.Tensor] = []
    unfinished = set(range(len(logits)))
    while True:
        chosen = logits.argmax(-1)
        steps.append(chosen.tolist())
        if keep_logits:
            step_logits.append(logits.clone())
        unfinished -= {row for row, token in enumerate(steps[-1]) if token in ends}
        if not unfinished or len(steps) == max_new_tokens:
            return Decoded.of(
                zip(*steps, strict=True),
                ends,
                torch.stack(step_logits).unbind(1) if step_logits else (),
            )
        logits = follow(chosen)


def end_tokens(model: Any) -> set[int]:
    """Return the tokens that end a reply; none if the model's generation config names none."""
    ends = model.generation_config.eos_token_id
    return {ends} if isinstance(ends, int) else set(ends or ())
