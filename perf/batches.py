"""Several edits a call: edits a second in batches of 1, 2, 4 and 8, and how far images differ from single ones.

    python perf/batches.py
    python perf/batches.py --embedded
    python perf/batches.py --tiny

One GPU, Qwen-Image-Edit of random weights at full size, 1024², classifier-free guidance 4; with `--embedded`, the
embedded editor on the CPU. Every size is a run of the harness on the same pairs; seconds are those of its edit stage
from the loaded editor on. The last run leaves the size to `editor.batch_size = "auto"`, which measures first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from checkpoints import build, write_suite
from edit_stage import edits
from harness import evaluate, finish, parser, psnr, scratch, table
from PIL import Image

SIZES = ("1", "2", "4", "8", "auto")


def farthest(made: dict[str, tuple[Path, float]], alone: dict[str, tuple[Path, float]]) -> tuple[float | None, int]:
    """Return the least PSNR in dB of all images (`None` if all are equal), and the largest difference of 255."""
    noise = [psnr(made[pair][0], alone[pair][0]) for pair in made]
    pixels = [[np.asarray(Image.open(which[pair][0]), dtype=int) for which in (made, alone)] for pair in made]
    return min((one for one in noise if one is not None), default=None), max(
        int(np.abs(one - other).max()) for one, other in pixels
    )


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--jobs", type=int, default=16)
    described.add_argument("--steps", type=int, default=4)
    described.add_argument("--embedded", action="store_true", help="the embedded editor on the CPU, 20 steps")
    described.add_argument("--sizes", nargs="*", default=SIZES)
    options = described.parse_args()
    side = 64 if options.tiny else 1024
    with scratch(options) as folder:
        if options.embedded:
            asked = ["--imgedit-suite=scenes", "--imgedit-editor=scenes", "--imgedit-gpus=none"]
        else:
            if not (options.models / "editor").exists():
                build(options.models, ["editor"], options.tiny)
            size = {"height": side, "width": side} if options.tiny else {}
            call = {"num_inference_steps": options.steps, "true_cfg_scale": 4.0, **size}
            asked = [
                f"--imgedit-suite={write_suite(folder / 'suite', [(side, side)] * options.jobs)}",
                f"--imgedit-editor=diffusers:{options.models / 'editor'}",
                "--imgedit-set=editor.compile=false",
                *(f"--imgedit-set=editor.{key}={value}" for key, value in call.items()),
            ]
        figures: dict[str, Any] = {}
        rows: list[tuple[Any, ...]] = []
        alone: dict[str, tuple[Path, float]] = {}
        for count in options.sizes:
            document = evaluate(
                folder / "runs",  # one store, so that weights are hashed once
                *asked,
                "--imgedit-stage=edit",
                "--imgedit-fresh",
                f"--imgedit-set=editor.batch_size={count}",
            )
            timing, (worker,) = document["timing"], document["workers"]
            rate = timing["edits"] / (timing["edit_s"] - timing["load_s"])
            made = edits(folder / "runs", document)
            alone = alone or made
            least, largest = farthest(made, alone)
            gib = None if worker["gpu_peak"] is None else worker["gpu_peak"] / 2**30
            first = next(iter(figures.values()), {"edits_s": rate})
            figures[count] = {
                "batch_size": worker["batch_size"],
                "edits_s": rate,
                "to_single": rate / first["edits_s"],
                "load_s": timing["load_s"],
                "edit_s": timing["edit_s"],
                "gpu_peak_gib": gib,
                "psnr_db": least,
                "largest_of_255": largest,
            }
            finish(options, figures)  # what there is, should a later size fail
            rows.append((count, worker["batch_size"], rate, rate / first["edits_s"], timing["load_s"], gib, largest))
    table(("asked for", "edits a call", "edits/s", "to single", "load s", "GPU GiB", "largest of 255"), rows)


if __name__ == "__main__":
    main()
