"""What the harness itself costs: time and peak memory of a run in which editor and judge do nothing.

    python benchmarks/speed/overhead.py --pairs 10000
    python benchmarks/speed/overhead.py --tiny

Writes a JSONL suite of small base64 images to a temporary folder, runs pytest over it with the editor
`identity` and a constant judge, then runs it again over the finished store, and prints (and with `--json`
writes) wall time and the peak resident memory of the controller.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

JUDGE = """
from pytest_imgedit import Answer

class Constant:
    batch_size = 32
    def __init__(self, *, device): pass
    def answer(self, questions): return [Answer(score=5.0) for _ in questions]
"""
MEASURE = """
import json, resource, sys, time
import pytest
started = time.perf_counter()
code = pytest.main(sys.argv[1:])
usage = resource.getrusage(resource.RUSAGE_SELF)
report = {"exit": int(code), "seconds": time.perf_counter() - started, "peak_mb": usage.ru_maxrss / 1024}
open("measured.json", "w").write(json.dumps(report))
"""


def write_suite(path: Path, pairs: int) -> None:
    """Write `pairs` rows, each with an image of its own."""
    with path.open("w") as file:
        for number in range(pairs):
            buffer = io.BytesIO()
            Image.new("RGB", (64, 64), (number % 256, number // 256 % 256, number // 65536)).save(buffer, "PNG")
            row = {
                "id": f"pair-{number:06d}",
                "category": ("physics", "environment", "social", "causal", "referential")[number % 5],
                "instruction": f"change number {number}",
                "image_b64": base64.b64encode(buffer.getvalue()).decode(),
            }
            file.write(json.dumps(row) + "\n")


def measure(folder: Path) -> dict[str, float]:
    """Run the benchmark once in a process of its own."""
    options = ["--imgedit-suite=pairs.jsonl", "--imgedit-editor=identity", "--imgedit-judge=constant:Constant", "-q"]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--tiny", action="store_true", help="100 pairs")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    pairs = 100 if options.tiny else options.pairs
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "constant.py").write_text(JUDGE)
        source = Path(__file__).parent.parent / "test_image_edit.py"
        (folder / "test_image_edit.py").write_text(source.read_text())
        for count in (10, pairs):
            write_suite(folder / "pairs.jsonl", count)
            figures[f"{count} pairs"] = measure(folder)
        figures[f"{pairs} pairs again"] = measure(folder)
    print(f"{'run':<20}{'seconds':>9}{'edit s':>9}{'score s':>9}{'peak MB':>9}")
    for run, row in figures.items():
        print(f"{run:<20}{row['seconds']:>9.1f}{row['edit_s']:>9.1f}{row['score_s']:>9.1f}{row['peak_mb']:>9.0f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
