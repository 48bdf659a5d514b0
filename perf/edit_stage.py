"""The edit stage against the bare pipeline, eager and compiled.

    python perf/edit_stage.py
    python perf/edit_stage.py --tiny

One GPU, Qwen-Image-Edit of random weights at full size, 1024², classifier-free guidance 4. The bare
pipeline makes the same calls one after the other in a process of its own, on images that are
decoded already; the harness's seconds are those of its edit stage without loading, with reading,
checking, encoding and storing. Neither side warms up first. The compiled runs are compared by the
median edit, since the first one compiles, and their images with the eager ones.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from checkpoints import build, write_suite
from harness import evaluate, finish, parser, psnr, scratch, table
from PIL import Image

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core.requests import job_seed
from pytest_imgedit.suites.base import load_suite

COMPILED = "--imgedit-set=editor.compile=true"
EAGER = "--imgedit-set=editor.compile=false"
VARIANTS = {
    "eager": ("eager", [EAGER]),
    "compiled": ("compiled", [COMPILED]),
    "cudnn": (
        "compiled, cuDNN attention",
        [COMPILED, "--imgedit-set=editor.attention_backend=_native_cudnn"],
    ),
    "fp8": ("compiled, fp8", [COMPILED, "--imgedit-set=editor.quantize=fp8"]),
}


def bare(job: dict[str, Any]) -> dict[str, Any]:
    """Make the calls of a job file with diffusers alone."""
    import torch

    from pytest_imgedit.kinds.diffusers import DiffusersEditor

    device = "cuda" if torch.cuda.is_available() else "cpu"
    pipeline = DiffusersEditor(job["editor"], device=device).pipeline
    seconds = []
    for item in job["items"]:
        image = Image.open(item["image"]).convert("RGB")
        generator = torch.Generator("cpu").manual_seed(item["seed"])
        started = time.perf_counter()
        pipeline(image, item["prompt"], negative_prompt=" ", generator=generator, **job["call"])
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds}


def edits(folder: Path, document: dict[str, Any]) -> dict[str, tuple[Path, float]]:
    """Return the file and the seconds of each edit by pair."""
    found = {}
    for item in document["items"]:
        edit = item["seeds"][0]["edit"]
        if edit is None:
            raise SystemExit(f"{item['id']}: {item['error']}")
        blob = edit["blob"]
        found[item["id"]] = (
            folder / ".imgedit" / "blobs" / blob[:2] / f"{blob}.png",
            edit["seconds"],
        )
    return found


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--jobs", type=int, default=6)
    described.add_argument("--steps", type=int, default=10)
    help_text = "what to compare with the first of them"
    described.add_argument(
        "--variants",
        nargs="*",
        choices=list(VARIANTS),
        default=["eager", "compiled"],
        help=help_text,
    )
    described.add_argument("--bare", type=Path, help="do the calls of a job file, and nothing else")
    options = described.parse_args()
    if options.bare:
        print(json.dumps(bare(json.loads(options.bare.read_text()))))
        return
    jobs, steps, side = (3, 2, 64) if options.tiny else (options.jobs, options.steps, 1024)
    size = {"height": side, "width": side} if options.tiny else {}
    with scratch(options) as folder:
        if not (options.models / "editor").exists():
            build(options.models, ["editor"], options.tiny)
        suite = write_suite(folder / "suite", [(side, side)] * jobs)
        call = {"num_inference_steps": steps, "true_cfg_scale": 4.0, **size}
        pairs = load_suite(SuiteSettings(spec=str(suite))).pairs
        items = [
            {
                "image": str(suite.parent / f"{n}.png"),
                "prompt": p.instruction,
                "seed": job_seed(p.seed, p.id),
            }
            for n, p in enumerate(pairs)
        ]
        (folder / "job.json").write_text(
            json.dumps({"editor": str(options.models / "editor"), "items": items, "call": call})
        )
        done = subprocess.run(
            [sys.executable, __file__, "--bare", folder / "job.json"],
            stdout=subprocess.PIPE,
            check=True,
        )
        own = json.loads(done.stdout.splitlines()[-1])["seconds"]
        figures: dict[str, Any] = {"jobs": jobs, "steps": steps, "bare_s": own}
        rows: list[tuple[Any, ...]] = [
            ("bare pipeline", sum(own), "", statistics.median(own), "", "")
        ]
        eager: dict[str, tuple[Path, float]] = {}
        for name, extra in (VARIANTS[key] for key in options.variants):
            document = evaluate(
                folder / name.replace(",", "").replace(" ", "-"),
                f"--imgedit-suite={suite}",
                f"--imgedit-editor=diffusers:{options.models / 'editor'}",
                "--imgedit-stage=edit",
                *(f"--imgedit-set=editor.{key}={value}" for key, value in call.items()),
                *extra,
            )
            timing = document["timing"]
            wall = timing["edit_s"] - timing["load_s"]
            made = edits(folder / name.replace(",", "").replace(" ", "-"), document)
            middle = statistics.median(seconds for _, seconds in made.values())
            eager = eager or made
            noise = [psnr(made[pair][0], eager[pair][0]) for pair in made]
            least = min((one for one in noise if one is not None), default=None)
            speedup = statistics.median(seconds for _, seconds in eager.values()) / middle
            figures[name] = {
                "wall_s": wall,
                "wall_to_bare": wall / sum(own),
                "edit_seconds": [seconds for _, seconds in made.values()],
                "steps_s": steps / middle,
                "speedup_to_eager": speedup,
                "psnr_to_eager_db": least,
                "gpu_busy": timing["edit_gpu_busy"],
                "load_s": timing["load_s"],
            }
            finish(options, figures)  # what there is, should a later variant fail
            rows.append(
                (name, wall, wall / sum(own), middle, speedup, "same" if least is None else least)
            )
    table(
        ("edit stage", "wall s", "to bare", "median edit s", "steps/s to eager", "least PSNR dB"),
        rows,
    )


if __name__ == "__main__":
    main()
