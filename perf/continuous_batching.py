"""The decoders of the judge beside transformers' continuous batching, `generate_batch`: items a
second, and whether a reply depends on what is decoded beside it.

    python perf/continuous_batching.py
    python perf/continuous_batching.py --tiny

One Qwen3-VL-30B-A3B of random weights reads the prompts of the protocol `aspects` about two 1024²
pictures, and writes as many new tokens each way. `generate_batch` takes token ids alone, no pixels
and no embeddings, so the same work is given in two ways:

- `text`: random tokens of text are where a picture's tokens would be, each way.
- `pictures`: prompts with their pictures, each way. For `generate_batch`, hooks of this script put
  embeddings, features of pictures and positions in the place of ids that stand for them; the vision
  tower's time counts.

Continuous batching has a process of its own, with transformers' defaults and its attention `sdpa`,
which transformers leaves for flash attention where that is installed. `sdpa` computes the
attention of each token of a step to what any of the step's requests has read, and masks what
belongs to others, so that its work grows with the requests at a time. If it fails or does not end
in time, its error is the result. Then some texts of uneven length (`--uneven`) are decoded alone,
alone again, and in batches of 2 to all at different places: how many replies have other tokens than
alone, and how many have other tokens or other log-probabilities of them, bit by bit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from checkpoints import build
from harness import finish, parser, scratch, table
from invariance import UNEVEN, questions

from pytest_imgedit.core.text import one_line
from pytest_imgedit.kinds.qwen_decoder.decoding import Prompt
from pytest_imgedit.kinds.qwen_vl import QwenVLJudge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OURS = ("packed", "invariant")
#: What the table of rates shows of each.
RATES = ("together", "items", "items_s", "as_invariant")
#: Prompts that go through the vision tower at a time for `generate_batch`.
PICTURED = 8
#: What continuous batching is told of a CPU: the tokens of a step, and the share of the memory that
#: it may take. On a GPU it finds that out.
CPU_LIMITS = {"max_batch_tokens": 1024, "max_memory_percent": 0.02}


@dataclass(frozen=True)
class Reply:
    """The tokens of a reply and their log-probabilities."""

    tokens: list[int]
    logprobs: list[float]


class Fed:
    """Prompts with pictures as token ids.

    Each token from the first picture on has an id of its own, from the size of the vocabulary on;
    hooks on the model put what it stands for in its place. All prompts must be as much shorter in
    positions than in tokens.
    """

    def __init__(self, model: Any, prompts: Sequence[Prompt]) -> None:
        self.model = model
        self.prompts = prompts
        self.first_id = int(model.config.text_config.vocab_size)
        image = model.config.image_token_id
        starts = [int((prompt.tokens == image).nonzero()[0]) for prompt in prompts]
        tails = [prompt.tokens[start:] for prompt, start in zip(prompts, starts, strict=True)]
        self.tokens = torch.cat(tails).to(model.device)
        self.is_image = self.tokens == image
        self.number = self.is_image.cumsum(0) - 1
        self.positions = torch.cat(
            [prompt.positions[:, start:] for prompt, start in zip(prompts, starts, strict=True)], 1
        ).to(model.device)
        self.ids: list[list[int]] = []
        used = self.first_id
        for prompt, start, tail in zip(prompts, starts, tails, strict=True):
            self.ids.append([*prompt.tokens[:start].tolist(), *range(used, used + len(tail))])
            used += len(tail)
        self.latest_start = max(starts)
        shifts = {int(prompt.positions.max()) + 1 - len(prompt.tokens) for prompt in prompts}
        (self.shift,) = shifts
        self.embedded = torch.empty(0)
        self.deep: list[torch.Tensor] = []
        self.rows = torch.empty(0)

    def __enter__(self) -> Fed:
        body = self.model.model
        self.hooks = [
            body.register_forward_pre_hook(self._take_ids, with_kwargs=True),
            body.language_model.register_forward_pre_hook(self._feed, with_kwargs=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()

    @torch.inference_mode()
    def look(self) -> None:
        """Run the pictures of all prompts through the vision tower."""
        body = self.model.model
        self.embedded = body.get_input_embeddings()(self.tokens)
        pictures = []
        deep = []
        for at in range(0, len(self.prompts), PICTURED):
            some = self.prompts[at : at + PICTURED]
            shown = [picture for prompt in some for picture in prompt.pictures]
            pixels = torch.cat([picture.pixels for picture in shown]).to(self.model.device)
            grids = torch.stack([picture.grid for picture in shown]).to(self.model.device)
            features = body.get_image_features(pixels, grids)
            pictures.append(joined(features.pooler_output))
            deep.append([joined(layer) for layer in features.deepstack_features])
        self.embedded[self.is_image] = torch.cat(pictures).to(self.embedded.dtype)
        self.deep = [torch.cat(layers) for layers in zip(*deep, strict=True)]
        wait()  # `generate_batch` has a thread, and perhaps a stream, of its own

    def _take_ids(self, _: Any, given: Any, options: dict[str, Any]) -> Any:
        self.rows = options["input_ids"] - self.first_id
        options["input_ids"] = options["input_ids"].clamp(max=self.first_id - 1)
        return given, options

    def _feed(self, _: Any, given: Any, options: dict[str, Any]) -> Any:
        is_fed = self.rows >= 0
        rows = self.rows[is_fed]
        tokens = options["position_ids"].long()  # (1, T)
        is_new = ~is_fed & (tokens >= self.latest_start)
        positions = torch.where(is_new, tokens + self.shift, tokens).repeat(3, 1, 1)
        positions[:, is_fed] = self.positions[:, rows]
        options["position_ids"] = torch.cat([tokens[None], positions])
        embedded = options["inputs_embeds"].clone()
        embedded[is_fed] = self.embedded[rows]
        options["inputs_embeds"] = embedded
        is_image = torch.zeros_like(is_fed)
        is_image[is_fed] = self.is_image[rows]
        numbers = self.number[self.rows[is_image]]
        if len(numbers):
            options["visual_pos_masks"] = is_image
            options["deepstack_visual_embeds"] = [layer[numbers] for layer in self.deep]
        return given, options


def joined(features: Any) -> torch.Tensor:
    """Return as one tensor what some releases of transformers split by image."""
    return features if isinstance(features, torch.Tensor) else torch.cat(list(features))


def texts(prompts: Sequence[Prompt], tokenizer: Any, image: int) -> list[Prompt]:
    """Return prompts with random tokens of text where those of pictures are."""
    special = set(tokenizer.all_special_ids)
    words = torch.tensor([token for token in range(len(tokenizer)) if token not in special])
    generator = torch.Generator().manual_seed(0)
    made = []
    for prompt in prompts:
        drawn = words[torch.randint(len(words), prompt.tokens.shape, generator=generator)]
        tokens = torch.where(prompt.tokens == image, drawn, prompt.tokens)
        positions = torch.arange(len(tokens)).expand(3, -1)
        made.append(Prompt(tokens, positions, ()))
    return made


def prompts_of(judge: QwenVLJudge, job: dict[str, Any], items: int) -> dict[str, list[Prompt]]:
    """Return so many prompts with pictures and of text, and those of uneven text."""
    scale = 16 if job["tiny"] else 1
    side = 1024 // scale
    sizes = tuple((width // scale, height // scale) for width, height in UNEVEN)
    pictures = [judge.preprocess(asked) for asked in questions(items, ((side, side),))]
    uneven = [judge.preprocess(asked) for asked in questions(job["uneven"], sizes)]
    tokenizer = judge.processor.tokenizer
    image = judge.model.config.image_token_id
    return {
        "pictures": pictures,
        "text": texts(pictures, tokenizer, image),
        "uneven": texts(uneven, tokenizer, image),
    }


def company(of: Callable[[list[int]], list[Reply]], count: int) -> dict[str, int]:
    """Count replies to `count` prompts in batches that are not those alone; `of` decodes those at
    places.

    Batches of each size begin at different places, so that each prompt stands at several of each.
    """
    alone = [of([place])[0] for place in range(count)]
    again = [of([place])[0] for place in range(count)]
    found = Counter(compared=0, tokens=0, logprobs=0, again=sum(map(Reply.__ne__, again, alone)))
    for size in range(2, count + 1):
        places = [(3 * size + step) % count for step in range(size)]
        for place, reply in zip(places, of(places), strict=True):
            found["compared"] += 1
            found["tokens"] += reply.tokens != alone[place].tokens
            found["logprobs"] += reply != alone[place]
    return dict(found)


def note_attention(config: Any, seen: list[str], *_: object) -> None:
    """Add the attention in use to those `seen`, if it is new."""
    if config._attn_implementation not in seen:
        seen.append(config._attn_implementation)


def wait() -> float:
    """Return the time when the GPU has done its work."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def continuous(job: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> None:
    """Measure continuous batching; runs in a process of its own. `report` takes the figures so far
    after each of them.
    """
    from transformers import ContinuousBatchingConfig, GenerationConfig

    began = time.perf_counter()
    judge = QwenVLJudge(
        job["judge"], device=DEVICE, attention=job["attention"], deterministic=False
    )
    rates: list[dict[str, Any]] = []
    attention: list[str] = []
    figures: dict[str, Any] = {
        "load_s": time.perf_counter() - began,
        "rates": rates,
        "attention": attention,
    }
    model = judge.model
    model.model.language_model.register_forward_pre_hook(
        partial(note_attention, model.config.text_config, attention)
    )
    prompts = prompts_of(judge, job, job["fewer"])
    limits: dict[str, Any] = {} if DEVICE == "cuda" else CPU_LIMITS

    def decode(
        ids: list[list[int]], new_tokens: int = job["new_tokens"], logprobs: bool = False
    ) -> list[Reply]:
        greedy = GenerationConfig(
            max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        config = ContinuousBatchingConfig(return_logprobs=logprobs, **limits)
        found = model.generate_batch(
            ids, generation_config=greedy, continuous_batching_config=config
        ).values()
        for output in found:
            if output.error:
                raise RuntimeError(output.error)
        if len(found) < len(ids):
            raise RuntimeError(f"{len(found)} of {len(ids)} requests were answered")
        return [Reply(list(output.generated_tokens), list(output.logprobs)) for output in found]

    def rate(kind: str, together: int, run: Callable[[int, int], list[Reply]]) -> None:
        run(0, min(together, PICTURED))
        found: dict[str, Any] = {"input": kind, "together": together}
        for _ in range(job["rounds"]):
            replies = []
            started = wait()
            for at in range(0, job["fewer"], together):
                replies += run(at, min(at + together, job["fewer"]))
            found["items_s"] = len(replies) / (wait() - started)
            print(found, flush=True)
            rates.append({**found, "replies": [reply.tokens for reply in replies]})
            report(figures)

    ids = [prompt.tokens.tolist() for prompt in prompts["text"]]
    uneven = [prompt.tokens.tolist() for prompt in prompts["uneven"]]

    def decode_text(start: int, stop: int) -> list[Reply]:
        return decode(ids[start:stop])

    def decode_pictures(start: int, stop: int) -> list[Reply]:
        with Fed(model, prompts["pictures"][start:stop]) as fed:
            fed.look()
            return decode(fed.ids)

    few, *more = job["together"]
    rate("text", few, decode_text)
    rate("pictures", few, decode_pictures)
    started = wait()
    decode([ids[0][:8]], new_tokens=1)
    figures["call_s"] = wait() - started
    figures["company"] = company(
        lambda places: decode([uneven[place] for place in places], logprobs=True), len(uneven)
    )
    report(figures)
    for together in more:
        rate("text", together, decode_text)


def run_continuous(job: dict[str, Any], folder: Path, timeout: float) -> dict[str, Any]:
    """Return the figures of continuous batching, with an `error` if it failed or took longer than
    `timeout` seconds, loading included.
    """
    job_file, out_file = folder / "job.json", folder / "figures.json"
    job_file.write_text(json.dumps(job))
    error = None
    command = [sys.executable, __file__, "--continuous", str(job_file), str(out_file)]
    try:
        code = subprocess.run(command, timeout=timeout).returncode
        if code:
            error = f"the process ended with {code}"
    except subprocess.TimeoutExpired:
        error = f"it took more than {timeout:g} s"
    figures: dict[str, Any] = json.loads(out_file.read_text()) if out_file.exists() else {}
    return figures if error is None else {"error": error, **figures}


def alone(job_file: Path, out_file: Path) -> None:
    """Measure continuous batching by a job file and write what was found, also after an error."""
    last: dict[str, Any] = {}

    def report(figures: dict[str, Any]) -> None:
        last.update(figures)
        part = out_file.with_suffix(".part")
        part.write_text(json.dumps(last))
        part.replace(out_file)

    try:
        continuous(json.loads(job_file.read_text()), report)
    except Exception as error:
        report({"error": f"{type(error).__name__}: {one_line(error)}"})


def ours(job: dict[str, Any]) -> dict[str, Any]:
    """Measure our decoders, in batches as the harness has them."""
    judge = QwenVLJudge(job["judge"], device=DEVICE)
    invariant: Any = judge.decoder
    decoders = {"packed": invariant.packed, "invariant": invariant}
    for decoder in decoders.values():
        decoder.ends = set()
    prompts = prompts_of(judge, job, job["items"])
    figures: dict[str, Any] = {name: {"rates": []} for name in decoders}
    figures["prompt_tokens"] = sum(len(prompt.tokens) for prompt in prompts["text"]) / job["items"]

    def decode(decoder: Any, some: Sequence[Prompt]) -> list[list[int]]:
        replies = []
        for at in range(0, len(some), judge.batch_size):
            replies += decoder.decode(some[at : at + judge.batch_size], job["new_tokens"]).tokens
        return replies

    def logprobs(decoder: Any, places: list[int]) -> list[Reply]:
        some = [prompts["uneven"][place] for place in places]
        found = decoder.decode(some, job["new_tokens"], keep_logits=True)
        replies = []
        for tokens, logits in zip(found.tokens, found.logits, strict=True):
            chosen = torch.tensor(tokens, device=logits.device)[:, None]
            replies.append(Reply(tokens, logits.log_softmax(-1).gather(1, chosen)[:, 0].tolist()))
        return replies

    for kind in ("pictures", "text"):
        for name, decoder in decoders.items():
            decode(decoder, prompts[kind][: judge.batch_size])
            for _ in range(job["rounds"]):
                started = wait()
                replies = decode(decoder, prompts[kind])
                rate = len(replies) / (wait() - started)
                found = {"input": kind, "together": judge.batch_size, "items_s": rate}
                figures[name]["rates"].append({**found, "replies": replies})
    for name, decoder in decoders.items():
        figures[name]["company"] = company(partial(logprobs, decoder), job["uneven"])
    return figures


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--items", type=int, default=96)
    described.add_argument("--new-tokens", type=int, default=16)
    described.add_argument(
        "--uneven", type=int, default=17, help="texts that are decoded alone and in company"
    )
    described.add_argument("--rounds", type=int, default=2, help="the fastest one counts")
    described.add_argument(
        "--fewer", type=int, default=32, help="items of them for continuous batching's rate"
    )
    described.add_argument(
        "--together",
        type=int,
        nargs="+",
        default=[8, 32],
        help="requests that `generate_batch` is given at a time; pictures the first number only",
    )
    described.add_argument(
        "--timeout", type=float, default=240, help="seconds for continuous batching, with loading"
    )
    described.add_argument(
        "--attention",
        choices=("sdpa", "eager", "flash_attention_2", "flash_attention_3"),
        default="sdpa",
        help="continuous batching's attention",
    )
    described.add_argument(
        "--continuous", type=Path, nargs=2, metavar="FILE", help=argparse.SUPPRESS
    )
    options = described.parse_args()
    if options.continuous:
        alone(*options.continuous)
        return
    items = min(options.items, 4) if options.tiny else options.items
    with scratch(options) as folder:
        if not (options.models / "judge").exists():
            build(options.models, ["judge"], options.tiny)
        job = {
            "judge": str(options.models / "judge"),
            "items": items,
            "fewer": min(options.fewer, items),
            "together": options.together,
            "uneven": min(options.uneven, 4) if options.tiny else options.uneven,
            "new_tokens": options.new_tokens,
            "rounds": 1 if options.tiny else options.rounds,
            "attention": options.attention,
            "tiny": options.tiny,
        }
        figures: dict[str, Any] = {**job, "continuous": {}}
        figures["continuous"] = run_continuous(job, folder, options.timeout)
        finish(options, figures)
        figures.update(ours(job))
    rates, companies = [], []
    expected = {row["input"]: row["replies"] for row in figures["invariant"]["rates"]}
    for way in ("continuous", *OURS):
        for row in figures[way].get("rates", ()):
            replies = row.pop("replies")
            pairs = zip(replies, expected[row["input"]], strict=False)
            row["items"] = len(replies)
            row["as_invariant"] = sum(reply == other for reply, other in pairs)
            rates.append((row["input"], way, *(row[name] for name in RATES)))
        if "company" in figures[way]:
            companies.append((way, *figures[way]["company"].values()))
    finish(options, figures)
    table(("input", "decoder", "at a time", "items", "items/s", "as invariant"), sorted(rates))
    table(("decoder", "compared", "other tokens", "other logprobs", "alone again"), companies)
    found = figures["continuous"]
    print("attention of continuous batching:", ", ".join(found.get("attention", ())) or "-")
    if "call_s" in found:
        print(f"a call of generate_batch for one token after eight: {found['call_s']:.3g} s")
    if "error" in found:
        print("continuous batching failed:", found["error"])


if __name__ == "__main__":
    main()
