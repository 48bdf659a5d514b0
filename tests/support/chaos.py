"""Kills a random worker process again and again during a run, and checks that nothing is lost or
done twice.

`python tests/support/chaos.py --pairs 300 --workers 4 --seconds 60` runs it at full length; the
tests run a short one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).parent


def run(
    folder: Path, pairs: int, workers: int, seconds: float, interval: float, delay: float
) -> dict[str, Any]:
    """Run the benchmark in `folder` while workers are killed; return figures, or fail by an
    assertion.
    """
    for source in (HERE / "fakes.py", HERE.parents[1] / "benchmarks" / "test_image_edit.py"):
        (folder / source.name).write_text(source.read_text())
    command = [
        *(
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--imgedit-suite=scenes:n={pairs // 5}",
        ),
        *(
            "--imgedit-editor=fakes:Slow",
            f"--imgedit-set=editor.delay={delay}",
            "--imgedit-judge=fakes:Constant",
        ),
        *(f"--imgedit-set=workers.cpu_workers={workers}", f"--imgedit-max-errors={pairs}"),
    ]
    started = time.monotonic()
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        killed = _kill_workers(process, random.Random(0), seconds, interval)
        assert process.wait(timeout=600) == 0, (folder / "output.txt").read_text()
    took = time.monotonic() - started
    items = _results(folder)["items"]
    edits, verdicts = _records(folder, "edits"), _records(folder, "verdicts")
    assert len(items) == len({item["id"] for item in items}) == pairs
    statuses = Counter(item["status"] for item in items)
    assert set(statuses) <= {"scored", "edit_error", "judge_error"}
    assert len(edits) == len(set(edits)), "an edit that was stored was made again"
    assert len(verdicts) == len(set(verdicts)), "a verdict that was stored was asked for again"
    assert len(edits) == pairs - statuses["edit_error"]
    assert len(verdicts) == statuses["scored"]
    if statuses["scored"] == pairs:
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        timing = _results(folder)["timing"]
        assert (timing["edits"], timing["verdicts"], timing["edits_cached"]) == (0, 0, pairs)
    kinds = Counter(item["error"]["kind"] for item in items if item["error"])
    return {
        "pairs": pairs,
        "killed": killed,
        "seconds": round(took, 1),
        **statuses,
        "errors": dict(kinds),
    }


def _kill_workers(
    process: subprocess.Popen[bytes], choice: random.Random, seconds: float, interval: float
) -> int:
    """Kill one process below pytest, a worker or its supervisor, each `interval`; return how many
    were killed.
    """
    end, killed = time.monotonic() + seconds, 0
    while time.monotonic() < end and process.poll() is None:
        time.sleep(interval)
        try:
            children = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            break
        if children:
            os.kill(choice.choice(children).pid, 9)
            killed += 1
    return killed


def _results(folder: Path) -> dict[str, Any]:
    latest = max((folder / ".imgedit" / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    document: dict[str, Any] = json.loads((latest / "results.json").read_text())
    return document


def _records(folder: Path, name: str) -> list[str]:
    lines = (folder / ".imgedit" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line.partition("\t")[0])["key"] for line in lines]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--interval", type=float, default=2)
    parser.add_argument("--delay", type=float, default=0.8)
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(run(Path(name), **vars(parser.parse_args())), indent=1))
