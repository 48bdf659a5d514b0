"""What the speed scripts share: run the harness in a folder, scratch space, the machine's speed,
PSNR, tables, JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from pytest_imgedit.core.provenance import versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ITEMS = Path(__file__).parent.parent / "benchmarks" / "test_image_edit.py"


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all scripts take."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--tiny", action="store_true", help="tiny models on whatever there is, to try the script"
    )
    made.add_argument("--json", type=Path, help="write the figures here")
    made.add_argument(
        "--models",
        type=Path,
        help="folder of checkpoints, kept and used again (default: made anew)",
    )
    return made


@contextmanager
def scratch(options: argparse.Namespace) -> Iterator[Path]:
    """A folder for stores and suites; checkpoints go to `models` in it, or to where `--models`
    says.
    """
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="imgedit-", dir=memory if memory.is_dir() else None
    ) as name:
        options.models = options.models or Path(name, "models")
        yield Path(name)


def evaluate(folder: Path, *arguments: str, timeout: float = 3600) -> dict[str, Any]:
    """Run pytest with the plugin in a folder; return results.json with pytest's wall time as
    `wall_s`.

    Whether items pass does not count: random models make no sense.
    """
    started = time.perf_counter()
    return finished(start(folder, *arguments), folder, started, timeout)


def start(
    folder: Path, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start pytest with the plugin in a folder, with other variables if `env` is given."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ITEMS, folder)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--tb=no",
        *arguments,
    ]
    if not _installed():
        command[4:4] = ["-p", "pytest_imgedit.plugin.hooks"]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)


def finished(
    process: subprocess.Popen[str], folder: Path, started: float, timeout: float = 3600
) -> dict[str, Any]:
    """Wait for a run that began at a time; return its results.json with pytest's wall time as
    `wall_s`.
    """
    output, _ = process.communicate(timeout=timeout)
    wall = time.perf_counter() - started
    if process.returncode not in (0, 1):
        raise SystemExit(f"pytest ended with {process.returncode}:\n{output[-3000:]}")
    runs = sorted(
        (folder / ".imgedit" / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns
    )
    document: dict[str, Any] = json.loads((runs[-1] / "results.json").read_text("utf-8"))
    return {**document, "wall_s": wall}


def _installed() -> bool:
    from importlib.metadata import entry_points

    return any(
        point.value == "pytest_imgedit.plugin.hooks" for point in entry_points(group="pytest11")
    )


def matmul_tflops() -> float | None:
    """Measure bfloat16 matrix products of 8192³ on the GPU in TFLOP/s; `None` without one."""
    if not torch.cuda.is_available():
        return None
    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds = clock(lambda: left @ right, 20)
    return 2 * 8192**3 / seconds / 1e12


def clock(function: Callable[[], object], times: int = 1) -> float:
    """Return the mean seconds of a call after one call to warm up."""
    wait: Callable[[], object] = (
        torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    )
    function()
    wait()
    started = time.perf_counter()
    for _ in range(times):
        function()
    wait()
    return (time.perf_counter() - started) / times


def psnr(first: Path, second: Path) -> float | None:
    """Peak signal-to-noise ratio of two image files in dB; `None` if they are equal."""
    one, other = (np.asarray(Image.open(path), dtype=np.float64) for path in (first, second))
    error = float(((one - other) ** 2).mean())
    return None if error == 0 else 10 * float(np.log10(255**2 / error))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table."""
    cells = [
        [f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row]
        for row in (head, *rows)
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(),
            flush=True,
        )


def finish(options: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Write the figures with date, machine and versions, if `--json` was given."""
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    gpus = torch.cuda.device_count()
    head = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine,
        "gpus": gpus,
        "versions": versions(),
    }
    if options.json:
        options.json.write_text(json.dumps({**head, "tiny": options.tiny, **figures}, indent=1))
