"""What the harness itself costs: runs in which editor and judge do next to nothing, and pytest
without any run.

    python perf/overhead.py --pairs 10000
    python perf/overhead.py --tiny

Edits 1,000 pairs with editors that sleep for 1, 10 and 100 ms on four workers, and compares with
the rate at which four such editors could go; starts pytest on a project that does not use the
plugin, with and without it, in turns. Before that it writes a JSONL suite of small base64 images,
runs pytest over it with the editor `identity` and a constant judge, and again over the finished
store: wall time, and the peak resident memory of the controller.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

JUDGE = """
import time
from pytest_imgedit import Answer

class Constant:
    batch_size = 32
    def __init__(self, *, device): pass
    def answer(self, questions): return [Answer(score=5.0) for _ in questions]

class Sleeps:
    def __init__(self, *, device, milliseconds: int): self.seconds = milliseconds / 1000
    def edit(self, request):
        time.sleep(self.seconds)
        return request.source
"""
MEASURE = """
import json, resource, sys, time
import pytest
started = time.perf_counter()
code = pytest.main(sys.argv[1:])
usage = resource.getrusage(resource.RUSAGE_SELF)
seconds = time.perf_counter() - started
report = {"exit": int(code), "seconds": seconds, "peak_mb": usage.ru_maxrss / 1024}
open("measured.json", "w").write(json.dumps(report))
"""


def write_suite(path: Path, pairs: int) -> None:
    """Write `pairs` rows, each with an image of its own."""
    with path.open("w") as file:
        for number in range(pairs):
            buffer = io.BytesIO()
            Image.new("RGB", (64, 64), (number % 256, number // 256 % 256, number // 65536)).save(
                buffer, "PNG"
            )
            row = {
                "id": f"pair-{number:06d}",
                "category": ("physics", "environment", "social", "causal", "referential")[
                    number % 5
                ],
                "instruction": f"change number {number}",
                "image_b64": base64.b64encode(buffer.getvalue()).decode(),
            }
            file.write(json.dumps(row) + "\n")


def measure(folder: Path) -> dict[str, float]:
    """Run the benchmark once in a process of its own."""
    options = [
        "--imgedit-suite=pairs.jsonl",
        "--imgedit-editor=identity",
        "--imgedit-judge=constant:Constant",
        "-q",
    ]
    subprocess.run(
        [sys.executable, "-c", MEASURE, *options, "-p", "no:cacheprovider"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    report: dict[str, float] = json.loads((folder / "measured.json").read_text())
    latest = max((folder / ".imgedit" / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    timing = json.loads((latest / "results.json").read_text())["timing"]
    return {**report, "edit_s": timing["edit_s"], "score_s": timing["score_s"]}


def rate(folder: Path, milliseconds: int, workers: int) -> dict[str, float]:
    """Edit all pairs with an editor that sleeps; return edits a second from the first loaded worker
    on.
    """
    options = [
        "--imgedit-suite=pairs.jsonl",
        "--imgedit-editor=constant:Sleeps",
        "--imgedit-stage=edit",
        "-q",
    ]
    settings = [
        f"--imgedit-set=editor.milliseconds={milliseconds}",
        f"--imgedit-set=workers.cpu_workers={workers}",
    ]
    command = [sys.executable, "-m", "pytest", *options, *settings, "-p", "no:cacheprovider"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    latest = max((folder / ".imgedit" / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    timing = json.loads((latest / "results.json").read_text())["timing"]
    reached, ideal = (
        timing["edits"] / (timing["edit_s"] - timing["load_s"]),
        workers * 1000 / milliseconds,
    )
    return {"edits_s": reached, "ideal_s": ideal, "share": reached / ideal}


def start_up(folder: Path, times: int) -> dict[str, float]:
    """Time pytest on one empty test, with the plugin and with `-p no:imgedit`, in turns; medians in
    milliseconds.
    """
    (folder / "test_nothing.py").write_text("def test_nothing(): pass\n")
    seconds: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(times):
        for name, options in (("with", []), ("without", ["-p", "no:imgedit"])):
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "test_nothing.py",
                "-p",
                "no:cacheprovider",
                *options,
            ]
            started = time.perf_counter()
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - started)
    found = {name: 1000 * statistics.median(values) for name, values in seconds.items()}
    differences = [1000 * (a - b) for a, b in zip(seconds["with"], seconds["without"], strict=True)]
    return {**found, "difference": statistics.median(differences)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--tiny", action="store_true", help="100 pairs")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    pairs = 100 if options.tiny else options.pairs
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "constant.py").write_text(JUDGE)
        source = Path(__file__).parent.parent / "benchmarks" / "test_image_edit.py"
        (folder / "test_image_edit.py").write_text(source.read_text())
        for count in (10, pairs):
            write_suite(folder / "pairs.jsonl", count)
            figures[f"{count} pairs"] = measure(folder)
        figures[f"{pairs} pairs again"] = measure(folder)
        write_suite(folder / "pairs.jsonl", 20 if options.tiny else 1000)
        rates = {f"{ms} ms": rate(folder, ms, 4) for ms in (1, 10, 100)}
        starts = start_up(folder, 2 if options.tiny else 25)
    print(f"{'run':<20}{'seconds':>9}{'edit s':>9}{'score s':>9}{'peak MB':>9}")
    for run, row in figures.items():
        print(
            f"{run:<20}{row['seconds']:>9.1f}{row['edit_s']:>9.1f}{row['score_s']:>9.1f}{row['peak_mb']:>9.0f}"
        )
    print(f"\n{'editor sleeps':<20}{'edits/s':>9}{'ideal':>9}{'share':>9}")
    for name, row in rates.items():
        print(f"{name:<20}{row['edits_s']:>9.0f}{row['ideal_s']:>9.0f}{row['share']:>9.0%}")
    print(
        f"\nstart of pytest: {starts['with']:.0f} ms, with -p no:imgedit {starts['without']:.0f} "
        "ms, ",
        end="",
    )
    print(f"difference {starts['difference']:.1f} ms")
    if options.json:
        options.json.write_text(
            json.dumps({"runs": figures, "rates": rates, "start_up_ms": starts}, indent=1)
        )


if __name__ == "__main__":
    main()
