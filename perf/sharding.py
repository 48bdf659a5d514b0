"""An editor on several GPUs, and on a small one: memory, seconds a step and images, beside one GPU
that holds it all.

    python perf/sharding.py
    python perf/sharding.py --tiny

Qwen-Image-Edit of random weights at full size, 1024², classifier-free guidance 4; every way edits
the same two sources in a process of its own, of which the second is timed. Memory is what rank 0
had allocated after loading, and the most that it took from the GPU at any time. Differences are of
the second image to that of one GPU, in levels of 255 and as PSNR.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checkpoints import build, write_suite
from harness import finish, parser, psnr, scratch, table
from PIL import Image

from pytest_imgedit.kinds.compute.numerics import DTYPES

WAYS: dict[str, dict[str, Any]] = {
    "full": {"strategy": "full"},
    "grad_op": {"strategy": "grad_op"},
    "full, cpu_offload": {"strategy": "full", "cpu_offload": True},
    "context": {"strategy": "context"},
}
#: Ways of one GPU.
OFFLOADS = {"offload model": {"offload": "model"}, "offload group": {"offload": "group"}}
#: What the others are compared with.
ALONE = "one GPU"
#: Seconds after which a way has failed.
PATIENCE = 300


def edit(job: dict[str, Any]) -> dict[str, Any]:
    """Load and edit in one way; runs in a process of its own, which is rank 0 where there are
    several.
    """
    from pytest_imgedit.core.requests import EditRequest
    from pytest_imgedit.kinds.diffusers import DiffusersEditor
    from pytest_imgedit.kinds.sharded_editor import ShardedEditor

    cuda = torch.cuda.is_available()
    started = time.perf_counter()
    if job["shard"] is None:
        editor = DiffusersEditor(job["model"], device="cuda" if cuda else "cpu", **job["call"])
    else:
        device = "balanced" if cuda else "cpu"
        editor = ShardedEditor(
            job["model"], device=device, ranks=job["ranks"], shard=job["shard"], **job["call"]
        )
    loaded = time.perf_counter() - started
    held = torch.cuda.memory_allocated() / 2**30 if cuda else 0.0
    seconds = []
    for path in job["images"]:
        source = Image.open(path).convert("RGB")
        started = time.perf_counter()
        image = editor.edit(EditRequest("a", "b", "Change it", source, 0))
        seconds.append(time.perf_counter() - started)
    image.save(job["image"])
    most = torch.cuda.max_memory_reserved() / 2**30 if cuda else 0.0
    return {"load_s": loaded, "held_gib": held, "most_gib": most, "seconds": seconds}


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--steps", type=int, default=6)
    described.add_argument(
        "--ways",
        nargs="*",
        choices=[*WAYS, *OFFLOADS],
        help="default: all that this machine can do",
    )
    described.add_argument("--dtype", default="auto", choices=["auto", *DTYPES])
    described.add_argument("--run", type=Path, help="do a job file, and nothing else")
    options = described.parse_args()
    if options.run:
        print(json.dumps(edit(json.loads(options.run.read_text()))), flush=True)
        # As a worker ends: NCCL may not let the interpreter end while other ranks hold its groups.
        os._exit(0)
    ranks = max(2, torch.cuda.device_count())
    side, steps = (64, 2) if options.tiny else (1024, options.steps)
    possible = [name for name in WAYS if name != "context" or torch.cuda.is_available()]
    ways = options.ways or [*possible, *OFFLOADS]
    figures: dict[str, Any] = {"ranks": ranks, "steps": steps, "dtype": options.dtype}
    rows = []
    with scratch(options) as folder:
        if not (options.models / "editor").exists():
            build(options.models, ["editor"], options.tiny)
        suite = write_suite(folder / "suite", [(side, side)] * 2)
        size = {"height": side, "width": side} if options.tiny else {}
        call = {"num_inference_steps": steps, "true_cfg_scale": 4.0, "dtype": options.dtype, **size}
        for number, name in enumerate([ALONE, *ways]):
            shard = WAYS.get(name)
            image = folder / f"{number}.png"
            job = folder / "job.json"
            sources = [str(suite.parent / f"{n}.png") for n in range(2)]
            where = {
                "model": str(options.models / "editor"),
                "images": sources,
                "image": str(image),
            }
            job.write_text(
                json.dumps(
                    {
                        **where,
                        "ranks": ranks,
                        "shard": shard,
                        "call": {**call, **OFFLOADS.get(name, {})},
                    }
                )
            )
            command = [sys.executable, __file__, "--run", str(job)]
            try:
                done = subprocess.run(command, stdout=subprocess.PIPE, timeout=PATIENCE, check=True)
            except subprocess.SubprocessError as error:
                if name == ALONE:
                    raise
                figures[name] = {"failed": str(error)}
                rows.append((name, "failed", *[""] * 5))
                finish(options, figures)
                continue
            found = json.loads(done.stdout.splitlines()[-1])
            paths = folder / "0.png", image
            first, other = (np.asarray(Image.open(path), int) for path in paths)
            largest, noise = int(abs(first - other).max()), psnr(*paths)
            figures[name] = {**found, "largest_difference": largest, "psnr_db": noise}
            second = found["seconds"][-1] / steps
            shown = found["load_s"], found["held_gib"], found["most_gib"], second
            rows.append((name, *shown, largest, "same" if noise is None else noise))
            finish(options, figures)  # what there is, should a later way fail
    table(
        ("way", "load s", "GiB held", "GiB at most", "s a step", "largest difference", "PSNR dB"),
        rows,
    )


if __name__ == "__main__":
    main()
