"""How CPU workers wait for their threads: the default run idle, beside four busy loops, and three
runs at a time.

    python perf/threads.py
    python perf/threads.py --tiny

PyTorch computes with OpenMP threads that spin before they sleep. A thread that spins keeps the
thread that it waits for from its core as soon as anything else runs. Each row is one
`GOMP_SPINCOUNT`, given to the whole run; 300000 is libgomp's own default, and `passive` is
`OMP_WAIT_POLICY=passive`. `--tiny` runs two pairs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness import evaluate, finish, parser, scratch, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUSY_LOOPS = 4
RUNS_AT_A_TIME = 3


@contextmanager
def busy_loops() -> Iterator[None]:
    """Keep the processor busy with other work."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_LOOPS)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def policy(name: str) -> dict[str, str]:
    """The environment of a row."""
    return {"OMP_WAIT_POLICY": "passive"} if name == "passive" else {"GOMP_SPINCOUNT": name}


def measure(folder: Path, name: str, asked: list[str]) -> dict[str, float]:
    """Wall seconds of the default run under one policy: `idle`, `busy`, and the slowest of three
    `at_a_time`.
    """
    for variable in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS"):
        os.environ.pop(variable, None)
    os.environ.update(policy(name))
    idle = evaluate(folder / "idle", *asked)["wall_s"]
    with busy_loops():
        busy = evaluate(folder / "busy", *asked)["wall_s"]
    with ThreadPoolExecutor(RUNS_AT_A_TIME) as threads:
        runs = threads.map(
            lambda number: evaluate(folder / f"run-{number}", *asked), range(RUNS_AT_A_TIME)
        )
        slowest = max(run["wall_s"] for run in runs)
    return {"idle": idle, "busy": busy, "at_a_time": slowest}


def main() -> None:
    described = parser(__doc__)
    described.add_argument(
        "--policies", nargs="*", default=["300000", "10000", "1000", "100", "passive"]
    )
    options = described.parse_args()
    asked = [
        "--imgedit-suite=scenes:n=10",
        "--imgedit-editor=scenes",
        "--imgedit-judge=scenes",
        "--imgedit-gpus=none",
    ]
    if options.tiny:
        asked += ["-k", "physics-0000 or social-0000"]
    figures = {}
    head = ("spins", "idle s", "beside four loops s", "slowest of three s", "busy to idle")
    with scratch(options) as folder:
        for name in options.policies:
            figures[name] = row = measure(folder / name, name, asked)
            table(head, [(name, *row.values(), row["busy"] / row["idle"])])
    finish(options, {"policies": figures})


if __name__ == "__main__":
    main()
