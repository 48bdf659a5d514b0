"""From the last edit to the first verdict, and what other ways to change models take.

    python perf/swap.py --models /a/folder/on/disk
    python perf/swap.py --tiny

One GPU, Qwen-Image-Edit (58 GB) and Qwen3-VL-30B-A3B (62 GB) of random weights at full size. The
harness keeps both, and then swaps, with the system's file cache emptied before that run so that it
has to read ahead. Beside it, in processes of their own: the judge loaded by transformers straight
to the GPU, from the file cache and with the cache emptied, and moved with `.to("cpu")` and back
with `.to("cuda")`. Emptying the cache takes root; else, and with `--tiny`, that is skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkpoints import build, write_suite
from harness import evaluate, finish, parser, scratch, table

if TYPE_CHECKING:
    from collections.abc import Callable


def empty_file_cache() -> bool:
    """Have the system forget what it read from disks; tell whether it did."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def load(folder: str, move: bool) -> dict[str, float]:
    """Load a judge as transformers does, and move it to the host and back."""
    import torch
    from transformers import AutoModelForImageTextToText

    gpu = torch.cuda.is_available()
    wait: Callable[[], object] = torch.cuda.synchronize if gpu else lambda: None
    torch.zeros(1, device="cuda" if gpu else "cpu")
    marks = [time.perf_counter()]
    model = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.bfloat16, device_map="cuda" if gpu else "cpu"
    )
    wait()
    marks.append(time.perf_counter())
    for device in ("cpu", "cuda" if gpu else "cpu") if move else ():
        model.to(device)
        wait()
        marks.append(time.perf_counter())
    names = ("from_pretrained", "to_cpu", "to_cuda")
    return {
        name: after - before for name, before, after in zip(names, marks, marks[1:], strict=False)
    }


def alone(folder: Path, *options: str) -> dict[str, float]:
    """Run `load` in a process of its own."""
    command = [sys.executable, __file__, "--load", str(folder), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--jobs", type=int, default=8)
    described.add_argument("--steps", type=int, default=5)
    described.add_argument("--load", help="load a judge, and nothing else")
    described.add_argument("--move", action="store_true")
    options = described.parse_args()
    if options.load:
        print(json.dumps(load(options.load, options.move)))
        return
    jobs, steps, side = (4, 2, 64) if options.tiny else (options.jobs, options.steps, 1024)
    call = {"num_inference_steps": steps, "true_cfg_scale": 4.0, "tiny": str(options.tiny).lower()}
    call |= {"height": 64, "width": 64} if options.tiny else {}
    figures: dict[str, Any] = {}
    rows: list[tuple[Any, ...]] = []
    with scratch(options) as folder:
        judge = options.models / "judge"
        if not judge.exists():
            build(options.models, ["judge"], options.tiny)
        size = sum(path.stat().st_size for path in judge.glob("*.safetensors")) / 1e9
        suite = write_suite(folder / "suite", [(side, side)] * jobs)
        for name in ("checkpoints.py", "drawn.py"):
            shutil.copy(Path(__file__).parent / name, folder)

        def run(*extra: str) -> dict[str, Any]:
            return evaluate(
                folder,
                f"--imgedit-suite={suite}",
                "--imgedit-editor=drawn:Drawn",
                f"--imgedit-judge=qwen-vl:{judge}",
                *(f"--imgedit-set=editor.{key}={value}" for key, value in call.items()),
                "--imgedit-set=judge.max_new_tokens=16",
                "--imgedit-set=judge.reasks=0",
                "--imgedit-fresh",
                *extra,
            )

        first = run(f"--imgedit-set=workers.placement={'auto' if options.tiny else 'resident'}")
        figures["first"] = first["timing"]
        name = f"harness, both stay (swaps: {first['timing']['swaps']}): last edit to last verdict"
        rows.append((name, first["timing"]["score_s"], ""))
        figures["cache_emptied"] = not options.tiny and empty_file_cache()
        # Without a GPU the first run has swapped.
        swapped = first if options.tiny else run("--imgedit-set=workers.placement=swap")
        timing = swapped["timing"]
        worker = next(w for w in swapped["workers"] if w["stage"] == "score")
        figures["swap"] = {
            **timing,
            "judge_load_s": worker["load_s"],
            "load_gb_s": size / worker["load_s"],
        }
        rows.append(
            ("harness: last edit to judge loaded", timing["swap_s"], size / worker["load_s"])
        )
        rows.append(
            (
                f"harness: last edit to first verdict (swaps: {timing['swaps']})",
                timing["first_verdict_s"],
                "",
            )
        )
        finish(options, figures)
        warm = alone(judge, "--move")
        figures["transformers"] = warm
        rows.append(
            (
                "transformers to GPU, from file cache",
                warm["from_pretrained"],
                size / warm["from_pretrained"],
            )
        )
        rows.append(
            ('.to("cpu") and .to("cuda")', warm["to_cpu"] + warm["to_cuda"], size / warm["to_cuda"])
        )
        if figures["cache_emptied"] and empty_file_cache():
            cold = alone(judge)["from_pretrained"]
            figures["cold_s"] = cold
            rows.append(("transformers to GPU, file cache emptied", cold, size / cold))
    print(f"judge of {size:.1f} GB")
    table(("way", "seconds", "GB/s"), rows)
    finish(options, figures)


if __name__ == "__main__":
    main()
