"""A large base64 suite under pytest-xdist: time of a run of one item with `-n 2`, as a multiple of
that without `-n`.

    python perf/suite_parsing.py [--rows 270] [--megabytes 2]

The file is parsed once a run, by whichever process needs it first.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

ITEM = Path(__file__).parent.parent / "pytest_imgedit" / "benchmark" / "test_image_edit.py"
CATEGORIES = ("物理", "环境", "社会", "因果", "指代")


def write_suite(path: Path, rows: int, megabytes: float) -> None:
    """Write rows whose images are of so many megabytes of base64 each; only the first is one that
    is read.
    """
    Image.effect_noise((64, 64), 60).save(path.parent / "a.png")
    image = base64.b64encode((path.parent / "a.png").read_bytes()).decode()
    padding = base64.b64encode(random.Random(0).randbytes(int(megabytes * 750_000))).decode()
    with path.open("w", encoding="utf-8") as file:
        file.write("[\n")
        for number in range(rows):
            row = {
                "id": f"{number:05d}",
                "subset": CATEGORIES[number % 5],
                "edit_instruction_en": f"edit number {number}",
                "src_img_b64": image if number == 0 else padding,
            }
            file.write(
                json.dumps(row, ensure_ascii=False) + ("\n" if number == rows - 1 else ",\n")
            )
        file.write("]\n")


def run(folder: Path, *more: str) -> float:
    """Time a run of one item, in seconds."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-k",
        "00000",
        "--imgedit-suite=pairs.json",
        "--imgedit-fresh",
    ]
    started = time.perf_counter()
    subprocess.run(
        [*command, "--imgedit-editor=identity", "--imgedit-judge=none", *more],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=270)
    parser.add_argument("--megabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_image_edit.py").write_text(ITEM.read_text())
        write_suite(folder / "pairs.json", given.rows, given.megabytes)
        size = (folder / "pairs.json").stat().st_size / 1e6
        times: dict[str, list[float]] = {"plain": [], "-n 2": []}
        for _ in range(given.rounds):
            times["plain"].append(run(folder))
            times["-n 2"].append(run(folder, "-n", "2"))
    plain, xdist = (min(values) for values in times.values())
    print(
        f"{size:.0f} MB, one item: {plain:.2f} s, with -n 2 {xdist:.2f} s, {xdist / plain:.2f} "
        "times as long"
    )


if __name__ == "__main__":
    main()
