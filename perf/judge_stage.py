"""The score stage against the plain way to batch a judge: padding, batches of 4, transformers'
`generate`.

    python perf/judge_stage.py
    python perf/judge_stage.py --tiny
    python perf/judge_stage.py --models FOLDER --images 2 --server http://127.0.0.1:8000/v1#NAME

Both judge the same items (1024² pictures, the protocol `aspects`, and its prompt with the edit
alone) with one Qwen3-VL-30B-A3B of random weights on one GPU, and both write as many new tokens.
The harness's seconds are those of the score stage of a whole run, from the loaded judge to the last
verdict, its first batch and reading images included; the plain way's are those of its loop over the
same image files after a batch to warm up. A run before these, whose rate is shown by itself, leaves
its compiled kernels in the cache of PyTorch's compiler, as any run does.

With `--server`, the judge `openai:URL#NAME` judges the same items with two pictures: a server such
as vLLM's or SGLang's, which should serve the checkpoint `FOLDER/judge` on a GPU of the same kind.
Its seconds are those of the score stage of a run whose edits are there, after a run with other
pictures to warm the server up. An edit is its source mirrored, since servers compute a picture that
they have seen once. `--only-server` leaves out all else, for a machine with one GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from checkpoints import build, write_suite
from harness import evaluate, finish, matmul_tflops, parser, scratch, table

from pytest_imgedit.config.settings import Settings, SuiteSettings
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.suites.base import load_suite

BATCH = 4
#: A judge that is shown the edit alone.
ONE_IMAGE = """
from dataclasses import replace
from pytest_imgedit.kinds.qwen_vl import QwenVLJudge

class OneImage(QwenVLJudge):
    def preprocess(self, question):
        return super().preprocess(replace(question, parts=question.parts[2:]))
"""

#: An editor whose edits are as costly to judge as others, and not equal to the source.
MIRRORED = """
from PIL import ImageOps

class Mirrored:
    def __init__(self, *, device):
        pass

    def edit(self, request):
        return ImageOps.mirror(request.source)
"""


def plain_way(job: dict[str, Any]) -> dict[str, Any]:
    """Judge in batches of 4 as transformers documents it; runs in a process of its own."""
    import torch
    from PIL import Image
    from transformers import AutoModelForImageTextToText

    from pytest_imgedit.kinds.compute.qwen_inputs import AssembledProcessor
    from pytest_imgedit.kinds.qwen_vl import chatml

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32  # as the harness
    folder = Path(job["judge"])
    processor = AssembledProcessor.load(folder)
    processor.tokenizer.padding_side = "left"
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype, device_map=device)
    pixels = {"shortest_edge": 1024, "longest_edge": 96 * 96 if job["tiny"] else 1_048_576}

    def judge(items: list[dict[str, Any]]) -> int:
        images = [Image.open(path).convert("RGB") for item in items for path in item["images"]]
        prompts = [
            chatml(item["system"], [tuple(part) for part in item["parts"]]) for item in items
        ]
        inputs = processor(prompts, images, size=pixels).to(device)
        with torch.inference_mode():
            new = job["new_tokens"]
            model.generate(**inputs, max_new_tokens=new, min_new_tokens=new, do_sample=False)
        return int(inputs["attention_mask"].sum())

    judge(job["items"][:BATCH])
    started = time.perf_counter()
    tokens = sum(judge(job["items"][at : at + BATCH]) for at in range(0, len(job["items"]), BATCH))
    return {"seconds": time.perf_counter() - started, "tokens": tokens}


def item_flops(
    text: dict[str, Any], vision: dict[str, Any], tokens: float, patches: float
) -> float:
    """Floating point operations of one forward pass over a prompt: matrix products and attention,
    nothing else.
    """
    hidden, heads, width = text["hidden_size"], text["num_attention_heads"], text["head_dim"]
    keys, experts = (
        text["num_key_value_heads"],
        text["num_experts_per_tok"] * text["moe_intermediate_size"],
    )
    layer = hidden * width * (2 * heads + 2 * keys) + 3 * hidden * experts
    language = text["num_hidden_layers"] * (2 * layer * tokens + 2 * tokens**2 * heads * width)
    wide, depth = vision["hidden_size"], vision["depth"]
    block = 4 * wide**2 + 2 * wide * vision["intermediate_size"]
    count = patches / 4096
    seen = depth * (2 * block * patches + 4 * patches * (patches / max(count, 1)) * wide)
    return float(language + seen)


def plain_items(suite: Path, images: int) -> list[dict[str, Any]]:
    """Return prompts and image files as the harness has them."""
    protocol = load_protocol(Settings())
    items = []
    for number, pair in enumerate(load_suite(SuiteSettings(spec=str(suite))).pairs):
        call = protocol.calls(pair)[0]
        file = str(suite.parent / f"{number}.png")
        items.append(
            {
                "system": call.system,
                "parts": call.parts[2 * (2 - images) :],
                "images": [file] * images,
            }
        )
    return items


def served(folder: Path, suite: Path, server: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the items a second that a server `URL#NAME` judges of a suite, and its errors."""
    os.environ.setdefault("OPENAI_API_KEY", "none")
    items = len(load_suite(SuiteSettings(spec=str(suite))).pairs)
    side = 64 if options.tiny else 1024
    others = write_suite(folder / "others", [(side - 32, side)] * min(items, options.concurrency))

    def judged(pairs: Path) -> dict[str, Any]:
        common = (f"--imgedit-suite={pairs}", "--imgedit-editor=mirrored:Mirrored")
        evaluate(folder, *common, "--imgedit-stage=edit")
        return evaluate(
            folder,
            *common,
            f"--imgedit-judge=openai:{server}",
            f"--imgedit-set=judge.max_new_tokens={options.new_tokens}",
            f"--imgedit-set=judge.concurrency={options.concurrency}",
            "--imgedit-set=judge.reasks=0",
            "--imgedit-gpus=none",
            "--imgedit-stage=score",
        )

    judged(others)
    document = judged(suite)
    return {
        "items_s": items / document["timing"]["score_s"],
        "usage": document["judge"].get("usage"),
        "errors": sorted({item["error"]["kind"] for item in document["items"] if item["error"]}),
    }


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--items", type=int, default=96)
    described.add_argument(
        "--new-tokens", type=int, default=16, help="three lines of the protocol have about 16"
    )
    described.add_argument(
        "--images", type=int, nargs="+", choices=(1, 2), default=[1, 2], help="images of an item"
    )
    described.add_argument(
        "--plain", type=Path, help="do the plain way of a job file, and nothing else"
    )
    described.add_argument("--server", metavar="URL#NAME", help="a server to compare with")
    described.add_argument(
        "--concurrency", type=int, default=32, help="requests at a time to the server"
    )
    described.add_argument(
        "--only-server", action="store_true", help="measure the server and nothing else"
    )
    options = described.parse_args()
    if options.only_server and not options.server:
        described.error("--only-server needs --server")
    if options.plain:
        print(json.dumps(plain_way(json.loads(options.plain.read_text()))))
        return
    items = 8 if options.tiny else options.items
    side = 64 if options.tiny else 1024
    figures: dict[str, Any] = {"items": items, "new_tokens": options.new_tokens, "batch": BATCH}
    rows = []
    with scratch(options) as folder:
        suite = write_suite(folder / "suite", [(side, side)] * items)
        (folder / "one_image.py").write_text(ONE_IMAGE)
        (folder / "mirrored.py").write_text(MIRRORED)
        if options.server:
            figures["server"] = served(folder, suite, options.server, options)
            found = figures["server"]
            print(f"two images, server: {found['items_s']:.3g} items/s, errors: {found['errors']}")
            finish(options, figures)
        if options.only_server:
            return
        if not (options.models / "judge").exists():
            build(options.models, ["judge"], options.tiny)
        judge = options.models / "judge"
        config = json.loads((judge / "config.json").read_text())
        tflops = matmul_tflops()
        specs = {
            1: ["--imgedit-judge=one_image:OneImage", f"--imgedit-set=judge.model={judge}"],
            2: [f"--imgedit-judge=qwen-vl:{judge}"],
        }

        def judged(images: int) -> dict[str, Any]:
            return evaluate(
                folder,
                f"--imgedit-suite={suite}",
                "--imgedit-editor=mirrored:Mirrored",
                *specs[images],
                f"--imgedit-set=judge.max_new_tokens={options.new_tokens}",
                "--imgedit-set=judge.reasks=0",
                "--imgedit-set=workers.placement=swap",
                "--imgedit-fresh",
            )

        figures["first_run_items_s"] = items / judged(2)["timing"]["score_s"]
        for images in options.images:
            document = judged(images)
            job = folder / "job.json"
            prompts = plain_items(suite, images)
            job.write_text(
                json.dumps(
                    {
                        "judge": str(judge),
                        "items": prompts,
                        "new_tokens": options.new_tokens,
                        "tiny": options.tiny,
                    }
                )
            )
            done = subprocess.run(
                [sys.executable, __file__, "--plain", job], stdout=subprocess.PIPE, check=True
            )
            plain = json.loads(done.stdout.splitlines()[-1])
            ours, theirs = items / document["timing"]["score_s"], items / plain["seconds"]
            tokens = plain["tokens"] / items
            flops = item_flops(
                config["text_config"], config["vision_config"], tokens, images * (side / 16) ** 2
            )
            share = None if tflops is None else flops * ours / tflops / 1e12
            errors = {item["error"]["kind"] for item in document["items"] if item["error"]}
            figures[f"{images} images"] = {
                "harness_items_s": ours,
                "plain_items_s": theirs,
                "ratio": ours / theirs,
                "prompt_tokens": tokens,
                "tokens_s": ours * tokens,
                "tflop_per_item": flops / 1e12,
                "matmul_tflops": tflops,
                "share_of_floor": share,
                "errors": sorted(errors),
                "load_s": [
                    worker["load_s"] for worker in document["workers"] if worker["stage"] == "score"
                ],
            }
            shown = "-" if share is None else f"{share:.0%}"
            rows.append((images, tokens, theirs, ours, ours / theirs, ours * tokens, shown))
            finish(options, figures)
    table(
        (
            "images",
            "tokens",
            "plain items/s",
            "harness items/s",
            "ratio",
            "tokens/s",
            "share of floor",
        ),
        rows,
    )
    print(
        f"two images, nothing compiled by an earlier run: {figures['first_run_items_s']:.3g} "
        "items/s"
    )


if __name__ == "__main__":
    main()
