"""Runs a command and tells the CPU minutes of all processes that came of it; fails if they are more
than allowed.

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

_PR_SET_CHILD_SUBREAPER = 36


def main(most_minutes: float, command: list[str]) -> int:
    """Return the command's exit status, or 1 if it passed and took too much."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    process = subprocess.Popen(command)
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, 0 if code is None else os.WNOHANG))[0]:
            if ended[0] == process.pid:
                code = os.waitstatus_to_exitcode(ended[1])
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes = (usage.ru_utime + usage.ru_stime) / 60
    print(f"{minutes:.1f} CPU minutes, {most_minutes:g} allowed", flush=True)
    if code:
        return code
    return int(minutes > most_minutes)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
