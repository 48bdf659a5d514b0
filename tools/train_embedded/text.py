"""The tokenizers of both embedded models, and the token ids of a pair."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.images import Base64Image
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.kinds.compute.qwen_inputs import IMAGE
from pytest_imgedit.kinds.qwen_vl import chatml
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.protocols.toml_protocol import TomlProtocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


CHAT = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    IMAGE,
    "<|video_pad|>",
]
GRADES = [f" {grade}" for grade in range(11)]
#: Most tokens of an instruction for the editor, and of what follows the second image for the judge.
PROMPT_TOKENS, TAIL_TOKENS = 24, 120


def byte_level_bpe(texts: Iterable[str], vocabulary: int, special: list[str]) -> Tokenizer:
    """Train a byte-level BPE tokenizer."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return bpe


def editor_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Build the editor's tokenizer from instructions."""
    bpe = byte_level_bpe(texts, 1000, ["<|pad|>", "<|end|>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        model_max_length=PROMPT_TOKENS,
    )


def aspects() -> TomlProtocol:
    """Return the default protocol, which the embedded judge is taught."""
    protocol = load_protocol(Settings())
    assert isinstance(protocol, TomlProtocol)
    return protocol


def aspects_of(protocol: TomlProtocol) -> tuple[str, ...]:
    """Return the names of the grades that a reply to the first call holds."""
    return protocol.definition.calls[0].reply.names


def judge_tokenizer(texts: Iterable[str], protocol: TomlProtocol) -> PreTrainedTokenizerFast:
    """Build the judge's tokenizer: each fixed line of the protocol is one token, and so is each
    grade.
    """
    bpe = byte_level_bpe(texts, 1500, CHAT)
    names = [f"{aspect}:" for aspect in aspects_of(protocol)]
    lines = [line for line in fixed_lines(protocol) if line not in names]
    bpe.add_tokens([AddedToken(text, normalized=False) for text in (*names, *lines, *GRADES)])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )


def fixed_lines(protocol: TomlProtocol) -> list[str]:
    """Return the lines of a protocol's prompts that are the same for all pairs of a category."""
    lines: dict[str, None] = {}
    for category in protocol.definition.categories:
        bare = EditPair("id", category, "\x01", Base64Image(""))
        full = replace(bare, description="\x01", reference_text="\x01")
        for pair in (bare, full):
            call = protocol.calls(pair)[0]
            texts = [call.system, *(text for kind, text in call.parts if kind == "text")]
            lines.update(
                dict.fromkeys(
                    line for text in texts for line in text.splitlines() if len(line) > 12
                )
            )
            lines.update(
                {line.partition("\x01")[0]: None for text in texts for line in text.splitlines()}
            )
    return [line for line in lines if len(line) > 12 and "\x01" not in line]


def reply(grades: Iterable[int], protocol: TomlProtocol) -> str:
    """Write a reply in the protocol's form; grades from 0 to 10."""
    return "\n".join(
        f"{aspect}: {grade}" for aspect, grade in zip(aspects_of(protocol), grades, strict=True)
    )


class Texts:
    """Both tokenizers, and what they make of a pair."""

    def __init__(self, editor: PreTrainedTokenizerFast, judge: PreTrainedTokenizerFast) -> None:
        self.editor, self.judge = editor, judge

    @classmethod
    def train(cls, pairs: Iterable[EditPair]) -> Texts:
        """Train both tokenizers on the texts of pairs."""
        every = list(pairs)
        instructions = [pair.instruction for pair in every]
        texts = [
            text
            for pair in every
            for text in (pair.instruction, pair.description, pair.reference_text)
        ]
        return cls(editor_tokenizer(instructions), judge_tokenizer(texts, aspects()))

    @classmethod
    def load(cls, folder: Path) -> Texts:
        """Load what `save` wrote."""
        return cls(
            *(
                PreTrainedTokenizerFast.from_pretrained(folder / name)
                for name in ("editor", "judge")
            )
        )

    def save(self, folder: Path) -> None:
        """Write both tokenizers to a folder."""
        self.editor.save_pretrained(folder / "editor")
        self.judge.save_pretrained(folder / "judge")

    @cached_property
    def protocol(self) -> TomlProtocol:
        return aspects()

    @cached_property
    def image_token(self) -> int:
        token = self.judge.convert_tokens_to_ids(IMAGE)
        assert isinstance(token, int)
        return token

    @cached_property
    def head(self) -> tuple[list[int], list[int]]:
        """Token ids before the first image of the judge's prompt, and between its images: the same
        for all pairs.
        """
        before, between, _ = self._split(EditPair("id", "default", "", Base64Image("")))
        return before, between

    def prompt(self, pair: EditPair) -> str:
        """Return what the judge is asked about a pair, in ChatML."""
        call = self.protocol.calls(pair)[0]
        return chatml(call.system, call.parts)

    def _split(self, pair: EditPair) -> tuple[list[int], list[int], list[int]]:
        ids: list[int] = self.judge(self.prompt(pair))["input_ids"]
        first = ids.index(self.image_token)
        second = ids.index(self.image_token, first + 1)
        return ids[:first], ids[first + 1 : second], ids[second + 1 :]

    def encode(self, pair: EditPair) -> dict[str, torch.Tensor]:
        """Return `prompt` (PROMPT_TOKENS,) for the editor, `tail` (TAIL_TOKENS,) for the judge, and
        `tail_length`.

        The tail is what follows the second image of the judge's prompt, padded on the right.
        Raises `ValueError` for a pair whose texts are longer than that.
        """
        before, between, tail = self._split(pair)
        prompt = self.editor(pair.instruction, padding="max_length")["input_ids"]
        if (before, between) != self.head or len(tail) > TAIL_TOKENS or len(prompt) > PROMPT_TOKENS:
            raise ValueError(
                f"texts of {pair.instruction!r} do not fit: {len(prompt)} and {len(tail)} tokens"
            )
        padded = tail + [self.judge.pad_token_id] * (TAIL_TOKENS - len(tail))
        return {
            "prompt": torch.tensor(prompt, dtype=torch.int32),
            "tail": torch.tensor(padded, dtype=torch.int32),
            "tail_length": torch.tensor(len(tail)),
        }
