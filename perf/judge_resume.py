"""From the start of pytest to the first verdict, and to its end, where only a judge has work.

    python perf/judge_resume.py
    python perf/judge_resume.py --tiny

A run with the editor `identity` and a Qwen3-VL-30B-A3B of random weights stores all edits. Further
runs over the same store have nothing to edit: one puts the questions again, whose replies were not
readable, one sets another parameter of the judge, and one with `--imgedit-stage=score` does not
find the digests of the weights in the store, as with a judge that is new to it. No run asks again
for a reply, which random weights would need and a real judge does not. Times are seconds from the
start of pytest. The run's log tells of the judge's process, hooks in a conftest of the rest. All
have the bytecode of their modules, which an installed package has.
"""

from __future__ import annotations

import json
import os
import re
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from checkpoints import build, write_suite
from harness import finish, finished, parser, scratch, start, table

if TYPE_CHECKING:
    from pathlib import Path

#: Appends to `marks.jsonl` when each hook was first called, in seconds since the epoch.
CONFTEST = """
import json, time

seen = set()

def mark(event):
    if event not in seen:
        seen.add(event)
        with open("marks.jsonl", "a") as file:
            file.write(json.dumps([event, time.time()]) + "\\n")

def pytest_collection_finish(): mark("collected")
def pytest_imgedit_item_scored(): mark("first verdict")
def pytest_imgedit_run_finished(): mark("results and reports written")
"""
#: What the first line of the log matches that tells of an event.
LINES = {
    "plan begins": r"plan: ",
    "digests of the judge": r"fingerprint: judge ",
    "judge's process starts": r"judge-0 \(.*\): starting$",
    "judge has imported": r"judge-0 \(.*\): waiting to load$",
    "judge loads": r"judge-0 \(.*\): loading$",
    "judge has loaded": r"judge-0 \(.*\): pair-",
}
EVENTS = (
    "collected",
    *LINES,
    "first verdict",
    "results and reports written",
    "end of pytest",
)


def timeline(folder: Path, *arguments: str) -> dict[str, float]:
    """Run pytest in a folder; return the seconds from its start to each event."""
    marks = folder / "marks.jsonl"
    marks.unlink(missing_ok=True)
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    clock = time.perf_counter()
    began = time.time()
    document = finished(start(folder, *arguments, env=variables), folder, clock)
    marked = dict(map(json.loads, marks.read_text("utf-8").splitlines()))
    log = folder / ".imgedit" / "runs" / document["run"]["id"] / "run.log"
    seconds = {event: at - began for event, at in marked.items()}
    seconds |= logged(log.read_text("utf-8"), datetime.fromtimestamp(began))
    seconds["end of pytest"] = document["wall_s"]
    return {event: round(seconds[event], 2) for event in EVENTS if event in seconds}


def logged(log: str, began: datetime) -> dict[str, float]:
    """Return when a log first tells of each event, in seconds since it began; a run of less than a
    day is supposed.
    """
    waiting = dict(LINES)
    seconds: dict[str, float] = {}
    for line in log.splitlines():
        clock, _, text = line.partition(" ")
        for event, pattern in waiting.items():
            if re.match(pattern, text):
                at = datetime.strptime(clock, "%H:%M:%S.%f").time()
                passed = datetime.combine(began.date(), at) - began
                seconds[event] = (passed % timedelta(days=1)).total_seconds()
                del waiting[event]
                break
    return seconds


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--items", type=int, default=8)
    options = described.parse_args()
    side = 64 if options.tiny else 1024
    with scratch(options) as folder:
        judge = options.models / "judge"
        if not judge.exists():
            build(options.models, ["judge"], options.tiny)
        suite = write_suite(folder / "suite", [(side, side)] * options.items)
        (folder / "conftest.py").write_text(CONFTEST)

        def run(*further: str) -> dict[str, float]:
            seconds = timeline(
                folder,
                f"--imgedit-suite={suite}",
                "--imgedit-editor=identity",
                f"--imgedit-judge=qwen-vl:{judge}",
                "--imgedit-set=judge.reasks=0",
                *further,
            )
            print(*further, seconds, flush=True)
            return seconds

        runs = {"first run": run(), "asked again": run()}
        runs["other parameter"] = run("--imgedit-set=judge.max_new_tokens=17")
        (folder / ".imgedit" / "fingerprints.json").unlink()
        new = ("--imgedit-stage=score", "--imgedit-set=judge.max_new_tokens=18")
        runs["new to the store"] = run(*new)
    table(
        ("seconds until", *runs),
        [(event, *(run.get(event, "-") for run in runs.values())) for event in EVENTS],
    )
    finish(options, {"items": options.items, "seconds": runs})


if __name__ == "__main__":
    main()
