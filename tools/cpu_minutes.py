"""Runs a command and tells the CPU minutes of all processes that came of it; fails if they would be
more than allowed on the reference machine (`tools.machine_speed`).

    python -m tools.cpu_minutes 25 pytest tests -n 3

Processes that were killed, or whose parent ended before them, count too: this process adopts and
reaps them.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from contextlib import suppress

from tools.machine_speed import MachineSpeed

_PR_SET_CHILD_SUBREAPER = 36


def main(most_minutes: float, command: list[str]) -> int:
    """Return the command's exit status, or 1 if it passed and took too much."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    speed = MachineSpeed()
    speed.start()
    code = _run(command)
    speed.stop()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    here = (usage.ru_utime + usage.ru_stime) / 60
    minutes = here / speed.slowness
    print(
        f"{here:.1f} CPU minutes, {minutes:.1f} of a machine that is {speed.slowness:.2f} times as "
        f"fast, {most_minutes:g} allowed",
        flush=True,
    )
    if code:
        return code
    return int(minutes > most_minutes)


def _run(command: list[str]) -> int | None:
    """Return the command's exit status once it and all that came of it have ended."""
    process = subprocess.Popen(command)
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, 0 if code is None else os.WNOHANG))[0]:
            if ended[0] == process.pid:
                code = os.waitstatus_to_exitcode(ended[1])
    return code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
