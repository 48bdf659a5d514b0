"""The headline command at full size: editors on two or more GPUs, one of which is killed, one swap,
the judge, a resume.

    python perf/headline.py
    python perf/headline.py --gpus 0-3 --compile true
    python perf/headline.py --tiny

GPUs of 80 GB, Qwen-Image-Edit (58 GB) and Qwen3-VL-30B-A3B (62 GB) of random weights at full
size, `--jobs` pairs of 1024². While the first edits are made, the process of one editor is killed.
The same command then runs again, and has nothing left to do. Caches of compilers are empty at
first. With `--tiny`, two workers on the CPU.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]
from checkpoints import build, write_suite
from harness import evaluate, finish, finished, parser, scratch, start, table

if TYPE_CHECKING:
    import subprocess


def workers_of(pid: int) -> list[psutil.Process]:
    """The worker processes of a run, not their supervisors."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            command = " ".join(child.cmdline())
        except psutil.Error:
            continue
        if "sys.stdin.readline" in command and "supervisor.py" not in command:
            found.append(child)
    return found


def kill_an_editor(run: subprocess.Popen[str], journal: Path) -> None:
    """Wait for the first stored edit, and kill the worker that has computed most: an editor."""
    while not (journal.exists() and journal.stat().st_size):
        if run.poll() is not None:
            return
        time.sleep(0.05)
    busy = {worker: sum(worker.cpu_times()[:2]) for worker in workers_of(run.pid)}
    max(busy, key=lambda worker: busy[worker]).kill()


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--jobs", type=int, default=12)
    described.add_argument("--steps", type=int, default=8)
    described.add_argument("--gpus", default="0-1", help="as --imgedit-gpus has them")
    described.add_argument("--compile", choices=("auto", "true", "false"), default="auto")
    options = described.parse_args()
    side = 64 if options.tiny else 1024
    call = {"num_inference_steps": 40 if options.tiny else options.steps, "true_cfg_scale": 4.0}
    call |= {"height": side, "width": side} if options.tiny else {}
    gpus: tuple[str, ...] = (
        ("--imgedit-gpus=none", "--imgedit-set=workers.cpu_workers=2")
        if options.tiny
        else (f"--imgedit-gpus={options.gpus}",)
    )
    if options.compile != "auto":
        gpus += (f"--imgedit-set=editor.compile={options.compile}",)
    with scratch(options) as folder:
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            os.environ[name] = str(folder / name.lower())
        if not (options.models / "judge").exists():
            build(options.models, ["editor", "judge"], options.tiny)
        (folder / "run").mkdir()
        shutil.copy(Path(__file__).parent / "random_grades.py", folder / "run")
        asked = [
            f"--imgedit-suite={write_suite(folder / 'suite', [(side, side)] * options.jobs)}",
            f"--imgedit-editor=diffusers:{options.models / 'editor'}",
            "--imgedit-judge=random_grades:RandomGrades",
            f"--imgedit-set=judge.model={options.models / 'judge'}",
            "--imgedit-set=judge.max_new_tokens=16",
            "--imgedit-set=gates.max_near_copies=1.0",
            *(f"--imgedit-set=editor.{key}={value}" for key, value in call.items()),
            *gpus,
        ]
        started = time.perf_counter()
        process = start(folder / "run", *asked)
        kill_an_editor(process, folder / "run" / ".imgedit" / "edits.jsonl")
        first = finished(process, folder / "run", started)
        again = evaluate(folder / "run", *asked)
    rows: list[tuple[Any, ...]] = [
        (
            worker["name"],
            worker["device"],
            worker["stage"],
            worker["jobs"],
            worker["load_s"],
            worker["busy_s"],
            worker["probe"],
        )
        for worker in first["workers"]
    ]
    table(("worker", "device", "stage", "done", "load s", "busy s", "probe"), rows)
    print("edits compiled:", first["editor"]["compiled"])
    figures = {
        name: {"wall_s": run["wall_s"], **run["timing"]}
        for name, run in (("first", first), ("again", again))
    }
    columns = (
        "wall_s",
        "edits",
        "edits_cached",
        "verdicts",
        "verdicts_cached",
        "swaps",
        "swap_s",
        "first_verdict_s",
    )
    table(
        ("run", *columns),
        [(name, *(timing.get(key) for key in columns)) for name, timing in figures.items()],
    )
    print("without a score:", sum(item["score"] is None for item in first["items"]))
    finish(options, {**figures, "workers": first["workers"]})


if __name__ == "__main__":
    main()
