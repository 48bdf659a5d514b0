"""CPU seconds of the start of the embedded editor and judge, with and without the packages that
they never use.

    python perf/start_up.py
    python perf/start_up.py --tiny

Each row is a fresh process that imports, or that loads the model as a worker does; user and system
time, the least of several. The controller's row is a run that collects its items and starts
nothing.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import TYPE_CHECKING

from harness import ITEMS, finish, parser, scratch, table

if TYPE_CHECKING:
    from pathlib import Path

LOAD = """
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.workers.process import hide
model = make_model({role!r}, "scenes", {{}})
if {hides}:
    hide(model.requirements.unused_packages)
model.target.build("cpu", model.worker_params)
"""
ROWS = {
    "import torch": "import torch",
    "import torch, diffusers": "import torch, diffusers",
    "editor, with all packages": LOAD.format(role="editor", hides=False),
    "editor": LOAD.format(role="editor", hides=True),
    "judge, with all packages": LOAD.format(role="judge", hides=False),
    "judge": LOAD.format(role="judge", hides=True),
}


def cpu_seconds(command: list[str], folder: Path) -> float:
    """User and system time of a command and its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    options = parser(__doc__).parse_args()
    times = 1 if options.tiny else 3
    collects = ["-m", "pytest", "-q", "--collect-only", "--imgedit-suite=scenes:n=10", str(ITEMS)]
    commands = {name: ["-c", code] for name, code in ROWS.items()} | {
        "controller, collecting": collects
    }
    with scratch(options) as folder:
        figures = {
            name: min(cpu_seconds([sys.executable, *command], folder) for _ in range(times))
            for name, command in commands.items()
        }
    table(("start", "CPU s"), list(figures.items()))
    finish(options, {"cpu_seconds": figures})


if __name__ == "__main__":
    main()
