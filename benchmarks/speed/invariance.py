"""What batch-invariant judging costs, and whether it holds: one item alone, in batches of 2 to 17, at every place.

    python benchmarks/speed/invariance.py
    python benchmarks/speed/invariance.py --tiny

One Qwen3-VL-30B-A3B of random weights on one GPU judges the same items (two 1024² pictures, the rubric `aspects`) with
`judge.batch_invariant` and without, in turns, both in batches of `--batch`; then each looks at what follows the 1 of
all grades of a batch, as expected grades have to where that may be a 10. For the equality, items of uneven pictures
and texts are decoded alone and in batches, and the logits of every step are compared bit by bit. Then a small judge in
float32, whose experts have no kernel that a CUDA graph can hold, and one whose recording is made to fail must answer as
they do without graphs.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from checkpoints import build, picture
from harness import finish, parser, scratch, table

from pytest_imgedit.judges.base import Answer, Question
from pytest_imgedit.judges.decoding import Decoded
from pytest_imgedit.judges.expected import find_places
from pytest_imgedit.judges.qwen_vl import QwenVLJudge
from pytest_imgedit.rubrics.rubric import load_rubric

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_imgedit.judges.decoding import Prompt

UNEVEN = ((1024, 1024), (768, 1024), (512, 512), (1024, 640), (896, 896))


def questions(count: int, sides: tuple[tuple[int, int], ...]) -> list[Question]:
    """Questions by the rubric `aspects` about pictures of these sizes in turn, with texts of different lengths."""
    from pytest_imgedit.images import Base64Image
    from pytest_imgedit.pairs import EditPair

    rubric, asked = load_rubric("aspects", {}), []
    for number in range(count):
        size = sides[number % len(sides)]
        pair = EditPair(f"p{number}", "physics", "make it snow, softly " * (1 + number % 7), Base64Image(""))
        images = {"source": picture(number, *size), "edited": picture(number + 1, *size)}
        asked.append(Question(pair.id, pair.category, pair.instruction, images, *rubric.render(pair), rubric.aspects))
    return asked


def seconds(decoder: Any, prompts: list[Prompt], new_tokens: int, batch: int) -> float:
    """Seconds that a decoder takes for prompts in batches of so many."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    started = time.perf_counter()
    for start in range(0, len(prompts), batch):
        decoder.decode(prompts[start : start + batch], new_tokens)
    return time.perf_counter() - started


def differing(decoder: Any, prompts: list[Prompt], new_tokens: int) -> tuple[int, int, float]:
    """Decode prompts alone and in batches; return how many were compared, how many differed, and by how much at most.

    Batches of 2 to 17 begin at different places, so that each prompt stands at several of each.
    """
    alone = [decoder.decode([prompt], new_tokens, keep_logits=True) for prompt in prompts]
    compared, unequal, largest = 0, 0, 0.0
    for size in range(2, len(prompts) + 1):
        start = (3 * size) % len(prompts)
        places = [(start + step) % len(prompts) for step in range(size)]
        found = decoder.decode([prompts[place] for place in places], new_tokens, keep_logits=True)
        for place, tokens, logits in zip(places, found.tokens, found.logits, strict=True):
            count = min(len(tokens), len(alone[place].tokens[0]))
            difference = float((logits[:count] - alone[place].logits[0][:count]).abs().max())
            compared += 1
            unequal += tokens != alone[place].tokens[0] or difference > 0
            largest = max(largest, difference)
    return compared, unequal, largest


def unsure(judge: QwenVLJudge, asked: list[Question], prompts: list[Prompt]) -> tuple[int, float]:
    """Looks and seconds for the expected grades of replies of 7, each of which might as well have begun with a 1."""
    tokenizer = judge.processor.tokenizer
    words = "\n".join(f"{aspect}: 7" for aspect in asked[0].aspects)
    reply = tokenizer.encode(words, add_special_tokens=False)
    logits = torch.zeros(len(reply), judge.model.config.text_config.vocab_size, device=judge.model.device)
    for place in find_places(tokenizer, reply, asked[0].aspects):
        for grade in "17":
            logits[place.step, place.encode(tokenizer, grade)[0]] = 30.0
    count = len(prompts)
    decoded = Decoded([reply] * count, [False] * count, [logits] * count)
    looks, decode = [], judge.decoder.decode

    def counted(several: Any, *options: Any, **further: Any) -> Decoded:
        looks.append(len(several))
        return decode(several, *options, **further)

    with patch.object(judge.decoder, "decode", counted):
        judge._expect([Answer(words)] * count, asked, prompts, decoded)  # compiles what is new
        looks.clear()
        started = time.perf_counter()
        judge._expect([Answer(words)] * count, asked, prompts, decoded)
    return sum(looks), time.perf_counter() - started


def without_graphs(folder: Path, dtype: str, fails: bool) -> dict[str, Any]:
    """Whether a small judge answers as without CUDA graphs; `fails` makes their recording fail."""
    judge = QwenVLJudge(str(folder), device="cuda" if torch.cuda.is_available() else "cpu", dtype=dtype)
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
    same = all(torch.equal(one, other) for one, other in zip(found.logits, expected.logits, strict=True))
    return {
        "dtype": dtype,
        "forced": fails,
        "tokens_equal": found.tokens == expected.tokens and again.tokens == eager.tokens,
        "logits_equal": same,
        "records_steps": packed.records_steps,
    }


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--items", type=int, default=64)
    described.add_argument("--new-tokens", type=int, default=16)
    described.add_argument("--rounds", type=int, default=2)
    described.add_argument("--batch", type=int, default=32, help="GPUs of 80 GB have room for about 8 without buckets")
    options = described.parse_args()
    items = 6 if options.tiny else options.items
    figures: dict[str, Any] = {"items": items, "new_tokens": options.new_tokens, "batch": options.batch}
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
        if not (options.models / "judge").exists():
            build(options.models, ["judge"], options.tiny)
        judge = QwenVLJudge(str(options.models / "judge"), device="cuda" if torch.cuda.is_available() else "cpu")
        invariant: Any = judge.decoder
        side = 64 if options.tiny else 1024
        asked = questions(items, ((side, side),))
        prompts = [judge.preprocess(question) for question in asked]
        for decoder in (invariant, invariant.packed):
            decoder.decode(prompts[: options.batch], options.new_tokens)
        rates: dict[str, list[float]] = {"invariant": [], "packed": []}
        for _ in range(options.rounds):
            for name, decoder in (("invariant", invariant), ("packed", invariant.packed)):
                rates[name].append(items / seconds(decoder, prompts, options.new_tokens, options.batch))
        figures["items_s"] = {name: max(found) for name, found in rates.items()}
        figures["cost"] = figures["items_s"]["packed"] / figures["items_s"]["invariant"]
        print(figures["items_s"], "cost", figures["cost"], flush=True)
        figures["unsure"] = {}
        for name, decoder in (("invariant", invariant), ("packed", invariant.packed)):
            judge.decoder = decoder
            looks, spent = unsure(judge, asked[: options.batch], prompts[: options.batch])
            figures["unsure"][name] = {"looks": looks, "looks_s": looks / spent}
        print("expected grades", figures["unsure"], flush=True)
        finish(options, figures)
        sizes = tuple((w // 16, h // 16) for w, h in UNEVEN) if options.tiny else UNEVEN
        uneven = [judge.preprocess(question) for question in questions(17, sizes)]
        rows = []
        for name, decoder in (("invariant", invariant), ("packed", invariant.packed)):
            compared, unequal, largest = differing(decoder, uneven, options.new_tokens)
            figures[name] = {"compared": compared, "unequal": unequal, "largest_logit_difference": largest}
            rows.append((name, figures["items_s"][name], compared, unequal, largest))
        finish(options, figures)
    table(("decoder", "items/s", "compared", "unequal", "largest logit difference"), rows)


if __name__ == "__main__":
    main()
