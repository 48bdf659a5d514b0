"""What batch-invariant judging costs, and whether it holds: one item alone, in batches of 2 to 17,
at every place.

    python perf/invariance.py
    python perf/invariance.py --tiny

First a small judge in float32, whose experts have no kernel that a CUDA graph can hold, and one
whose recording is made to fail must answer as they do without graphs. Then a Qwen2.5-VL-7B
(`dense`) and a Qwen3-VL-30B-A3B (`judge`) of random weights on one GPU judge the same items (two
1024² pictures, the protocol `aspects`) with `judge.batch_invariant` and without, in turns, both in
batches of `--batch`; then each looks at what follows the 1 of all grades of a batch, as expected
grades have to where that may be a 10. For the equality, items of uneven pictures and texts are
judged alone and in batches, and the logits of every step and the expected grades are compared bit
by bit.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from checkpoints import build, picture
from harness import finish, parser, scratch, table

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.requests import Answer, Question
from pytest_imgedit.kinds.qwen_decoder.decoding import Decoded
from pytest_imgedit.kinds.qwen_decoder.logprob_scoring import find_places
from pytest_imgedit.kinds.qwen_vl import QwenVLJudge
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.workers.editing import free_memory

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_imgedit.kinds.qwen_decoder.decoding import Prompt

UNEVEN = ((1024, 1024), (768, 1024), (512, 512), (1024, 640), (896, 896))


def questions(count: int, sides: tuple[tuple[int, int], ...]) -> list[Question]:
    """Questions by the protocol `aspects` about pictures of these sizes in turn, with texts of
    different lengths.
    """
    from pytest_imgedit.core.images import Base64Image
    from pytest_imgedit.core.pairs import EditPair

    protocol = load_protocol(Settings())

    def question(number: int) -> Question:
        size = sides[number % len(sides)]
        pair = EditPair(
            f"p{number}", "physics", "make it snow, softly " * (1 + number % 7), Base64Image("")
        )
        call = protocol.calls(pair)[0]
        return Question(
            pair.id,
            pair.category,
            pair.instruction,
            {"source": picture(2 * number, *size), "edited": picture(2 * number + 1, *size)},
            call.system,
            call.parts,
            call.grammar.names,
        )

    with ThreadPoolExecutor() as threads:
        return list(threads.map(question, range(count)))


def seconds(decoder: Any, prompts: list[Prompt], new_tokens: int, batch: int) -> float:
    """Seconds that a decoder takes for prompts in batches of so many."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    started = time.perf_counter()
    for start in range(0, len(prompts), batch):
        decoder.decode(prompts[start : start + batch], new_tokens)
    return time.perf_counter() - started


def differing(of: Callable[[list[int]], list[torch.Tensor]], count: int) -> tuple[int, int, float]:
    """Compute values of items alone and in batches; return how many were compared, how many
    differed, by how much.

    `of` computes those at places. Batches of 2 to `count` begin at different places, so that each
    item stands at several of each.
    """
    alone = [of([place])[0] for place in range(count)]
    compared, unequal, largest = 0, 0, 0.0
    for size in range(2, count + 1):
        places = [(3 * size + step) % count for step in range(size)]
        for place, values in zip(places, of(places), strict=True):
            steps = min(len(values), len(alone[place]))
            difference = float((values[:steps] - alone[place][:steps]).abs().max())
            compared += 1
            unequal += len(values) != len(alone[place]) or difference > 0
            largest = max(largest, difference)
    return compared, unequal, largest


class Unsure:
    """Replies of 7 by a judge that might as well have begun each grade with a 1, so that it looks
    at what follows.
    """

    def __init__(self, judge: QwenVLJudge, aspects: Sequence[str]) -> None:
        tokenizer = judge.processor.tokenizer
        self.judge, self.words = judge, "\n".join(f"{aspect}: 7" for aspect in aspects)
        self.reply = tokenizer.encode(self.words, add_special_tokens=False)
        self.logits = torch.zeros(
            len(self.reply), judge.model.config.text_config.vocab_size, device=judge.model.device
        )
        for place in find_places(tokenizer, self.reply, aspects):
            for grade in "17":
                self.logits[place.step, place.encode(tokenizer, grade)[0]] = 30.0

    def grades(self, asked: Sequence[Question], prompts: Sequence[Prompt]) -> list[torch.Tensor]:
        """Expected grades of each question."""
        count = len(prompts)
        decoded = Decoded([self.reply] * count, [False] * count, [self.logits] * count)
        answers = self.judge._expect([Answer(self.words)] * count, asked, prompts, decoded)
        return [
            torch.tensor(list((answer.expected or {}).values()), dtype=torch.float64)
            for answer in answers
        ]

    def looks(self, asked: Sequence[Question], prompts: Sequence[Prompt]) -> tuple[int, float]:
        """Looks for the expected grades of questions, and the seconds that they take."""
        looks, decode = [], self.judge.decoder.decode

        def counted(several: Any, *options: Any, **further: Any) -> Decoded:
            looks.append(len(several))
            return decode(several, *options, **further)

        with patch.object(self.judge.decoder, "decode", counted):
            self.grades(asked, prompts)  # compiles what is new
            looks.clear()
            started = time.perf_counter()
            self.grades(asked, prompts)
        return sum(looks), time.perf_counter() - started


def without_graphs(folder: Path, dtype: str, fails: bool) -> dict[str, Any]:
    """Whether a small judge answers as without CUDA graphs; `fails` makes their recording fail."""
    judge = QwenVLJudge(
        str(folder), device="cuda" if torch.cuda.is_available() else "cpu", dtype=dtype
    )
    judge.max_new_tokens = 8
    prompts = [judge.preprocess(question) for question in questions(5, ((96, 96), (64, 96)))]
    packed = judge.decoder.packed  # type: ignore[attr-defined]
    packed.records_steps = False
    expected = judge.decoder.decode(prompts, 8, keep_logits=True)
    eager = packed.decode(prompts, 8)
    packed.records_steps = True
    judge.decoder._rows = None  # type: ignore[attr-defined]
    refusal = RuntimeError("operation not permitted when stream is capturing (forced)")
    with patch.object(torch.cuda, "graph", side_effect=refusal) if fails else nullcontext():
        found = judge.decoder.decode(prompts, 8, keep_logits=True)
        again = packed.decode(prompts, 8)
    same = all(
        torch.equal(one, other) for one, other in zip(found.logits, expected.logits, strict=True)
    )
    return {
        "dtype": dtype,
        "forced": fails,
        "tokens_equal": found.tokens == expected.tokens and again.tokens == eager.tokens,
        "logits_equal": same,
        "records_steps": packed.records_steps,
    }


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Rates of a judge's two decoders, and whether what they give an item depends on what is beside
    it.
    """
    began = time.perf_counter()
    judge = QwenVLJudge(
        str(folder), device="cuda" if torch.cuda.is_available() else "cpu", scoring="expected"
    )
    invariant: Any = judge.decoder
    decoders = {"invariant": invariant, "packed": invariant.packed}
    items, side = (6, 64) if options.tiny else (options.items, 1024)
    asked = questions(items, ((side, side),))
    prompts = [judge.preprocess(question) for question in asked]
    for decoder in decoders.values():
        decoder.decode(prompts[: options.batch], options.new_tokens)
    rates: dict[str, list[float]] = {name: [] for name in decoders}
    for _ in range(options.rounds):
        for name, decoder in decoders.items():
            rates[name].append(items / seconds(decoder, prompts, options.new_tokens, options.batch))
    figures: dict[str, Any] = {"items_s": {name: max(found) for name, found in rates.items()}}
    figures["cost"] = figures["items_s"]["packed"] / figures["items_s"]["invariant"]
    print(f"{time.perf_counter() - began:.0f} s", folder.name, figures, flush=True)
    sizes = tuple((w // 16, h // 16) for w, h in UNEVEN) if options.tiny else UNEVEN
    others = questions(17, sizes)
    uneven = [judge.preprocess(question) for question in others]
    unsure = Unsure(judge, asked[0].aspects)

    def grades(places: list[int]) -> list[torch.Tensor]:
        return unsure.grades(
            [others[place] for place in places], [uneven[place] for place in places]
        )

    for name, decoder in decoders.items():
        judge.decoder = decoder

        def logits(places: list[int], decoder: Any = decoder) -> list[torch.Tensor]:
            found = decoder.decode(
                [uneven[place] for place in places], options.new_tokens, keep_logits=True
            )
            return [
                one[: len(tokens)] for one, tokens in zip(found.logits, found.tokens, strict=True)
            ]

        looks, spent = unsure.looks(asked[: options.batch], prompts[: options.batch])
        figures[name] = {"looks": looks, "looks_s": looks / spent, "logits": differing(logits, 17)}
        print(f"{time.perf_counter() - began:.0f} s", folder.name, name, figures, flush=True)
        figures[name]["grades"] = differing(grades, 17)
    print(f"{time.perf_counter() - began:.0f} s", folder.name, figures, flush=True)
    return figures


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--items", type=int, default=64)
    described.add_argument("--new-tokens", type=int, default=16)
    described.add_argument("--rounds", type=int, default=2)
    described.add_argument(
        "--batch", type=int, default=32, help="GPUs of 80 GB have room for about 8 without buckets"
    )
    described.add_argument(
        "--judges", nargs="+", default=["dense", "judge"], choices=["dense", "judge"]
    )
    options = described.parse_args()
    figures: dict[str, Any] = {
        name: getattr(options, name) for name in ("items", "new_tokens", "batch")
    }
    with scratch(options) as folder:
        small = folder / "small"
        build(small, ["judge"], True)
        figures["graphs"] = [
            without_graphs(small / "judge", dtype, fails)
            for dtype, fails in (("bfloat16", False), ("bfloat16", True), ("float32", False))
        ]
        for row in figures["graphs"]:
            print(row, flush=True)
        finish(options, figures)
        for name in options.judges:
            if not (options.models / name).exists():
                build(options.models, [name], options.tiny)
            figures[name] = measure(options.models / name, options)
            free_memory()
            finish(options, figures)
    rows = [
        (
            name,
            decoder,
            figures[name]["items_s"][decoder],
            figures[name][decoder]["looks_s"],
            what,
            *found,
        )
        for name in options.judges
        for decoder in ("invariant", "packed")
        for what in ("logits", "grades")
        for found in [figures[name][decoder][what]]
    ]
    table(
        (
            "judge",
            "decoder",
            "items/s",
            "looks/s",
            "what",
            "compared",
            "unequal",
            "largest difference",
        ),
        rows,
    )


if __name__ == "__main__":
    main()
