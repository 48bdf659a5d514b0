"""One worker process a GPU against a thread a GPU in one process, on jobs of uneven length.

    python perf/scaling.py
    python perf/scaling.py --tiny

Edits of Qwen-Image-Edit at full size, the longest of which takes about ten times as long as the
shortest, since sources and their number of steps differ. Linear is the mean edit of the harness's
run times the edits, over the GPUs, from when each of them was loaded; the threads take every fourth
pair each (round robin over the GPUs), start together, and are measured against the same mean.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from harness import evaluate, finish, parser, scratch, table

from checkpoints import write_suite  # isort: skip
from PIL import Image


def threads(job: dict[str, Any]) -> dict[str, Any]:
    """Edit with a pipeline and a thread a GPU, pairs dealt out beforehand."""
    from drawn import Uneven, steps

    places = job["places"]
    editors = []
    for place in places:
        if place != "cpu":
            torch.cuda.set_device(place)
        editors.append(Uneven(device=place, tiny=job["tiny"], **job["call"]))
    seconds: list[float] = []

    def work(number: int) -> None:
        if places[number] != "cpu":
            torch.cuda.set_device(places[number])
        pipeline = editors[number].pipeline
        for item in job["items"][number :: len(places)]:
            image = Image.open(item).convert("RGB")
            started = time.perf_counter()
            call = {**editors[number].call, "num_inference_steps": steps(image.size)}
            pipeline(image, "Change it", generator=torch.Generator("cpu").manual_seed(0), **call)
            seconds.append(time.perf_counter() - started)

    running = [threading.Thread(target=work, args=(number,)) for number in range(len(places))]
    started = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return {"wall_s": time.perf_counter() - started, "seconds": seconds}


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--jobs", type=int, default=26)
    described.add_argument(
        "--threads", type=Path, help="do a job file in threads, and nothing else"
    )
    options = described.parse_args()
    if options.threads:
        print(json.dumps(threads(json.loads(options.threads.read_text()))))
        return
    gpus = torch.cuda.device_count()
    places = [f"cuda:{number}" for number in range(gpus)] or ["cpu", "cpu"]
    jobs = 6 if options.tiny else options.jobs
    largest = 64 if options.tiny else 1024
    sides = [
        int(largest * (0.25 + 0.75 * ((number * 7) % jobs) / (jobs - 1))) // 8 * 8
        for number in range(jobs)
    ]
    call = {"true_cfg_scale": 4.0, **({"height": 64, "width": 64} if options.tiny else {})}
    with scratch(options) as folder:
        suite = write_suite(folder / "suite", [(side, side) for side in sides])
        for name in ("checkpoints.py", "drawn.py"):
            shutil.copy(Path(__file__).parent / name, folder)
        document = evaluate(
            folder,
            f"--imgedit-suite={suite}",
            "--imgedit-editor=drawn:Uneven",
            "--imgedit-stage=edit",
            f"--imgedit-set=editor.tiny={str(options.tiny).lower()}",
            *(f"--imgedit-set=editor.{key}={value}" for key, value in call.items()),
            f"--imgedit-set=workers.load_concurrency={len(places)}",
            f"--imgedit-set=workers.cpu_workers={len(places)}",
        )
        seconds = [
            item["seeds"][0]["edit"]["seconds"]
            for item in document["items"]
            if item["seeds"][0]["edit"]
        ]
        if len(seconds) < jobs:
            raise SystemExit(
                str([item["error"] for item in document["items"] if item["error"]][:1])
            )
        mean = sum(seconds) / jobs
        end = document["timing"]["edit_s"]
        available = sum(end - worker["ready_s"] for worker in document["workers"])
        ours = jobs * mean / available
        figures: dict[str, Any] = {
            "places": places,
            "edit_seconds": seconds,
            "workers": document["workers"],
            "edit_s": end,
            "gpu_busy": document["timing"]["edit_gpu_busy"],
            "processes_of_linear": ours,
        }
        finish(options, figures)
        job = folder / "job.json"
        images = [str(suite.parent / f"{number}.png") for number in range(jobs)]
        job.write_text(
            json.dumps({"places": places, "items": images, "call": call, "tiny": options.tiny})
        )
        done = subprocess.run(
            [sys.executable, __file__, "--threads", job], stdout=subprocess.PIPE, check=True
        )
        plain = json.loads(done.stdout.splitlines()[-1])
    theirs = jobs * mean / (len(places) * plain["wall_s"])
    rows = [
        ("processes, free worker takes the next", jobs, available / len(places), ours),
        ("threads, dealt out beforehand", jobs, plain["wall_s"], theirs),
    ]
    print(
        f"{len(places)} x {places[0]}: edits of {min(seconds):.2f} to {max(seconds):.2f} s, mean "
        f"{mean:.2f} s"
    )
    table(("way", "edits", "seconds", "of linear"), rows)
    figures["threads_of_linear"] = theirs
    figures["threads_wall_s"], figures["threads_edit_seconds"] = plain["wall_s"], plain["seconds"]
    finish(options, figures)


if __name__ == "__main__":
    main()
