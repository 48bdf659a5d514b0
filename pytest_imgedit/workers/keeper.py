"""Keeps one worker process: nothing of its process group outlives the worker, or the controller.

The controller runs this file as a script, `python keeper.py LOG COMMAND…`, once for each worker, and the command
becomes the worker. A worker cannot do this for itself: it may hang in native code, be stopped, or have children of
its own. The script imports nothing of the package, so that it starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

#: Seconds between asking a worker's process group to end (SIGTERM) and ending it (SIGKILL).
GRACE = 5.0
_WATCHED = {signal.SIGCHLD, signal.SIGTERM}
_PR_SET_PDEATHSIG = 1


def main(log: str, command: list[str]) -> int:
    """Run a command in a process group of its own, with errors going to the file `log`; return its exit status."""
    controller, keeper = os.getppid(), os.getpid()
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 2)
    # Ctrl-C is the controller's business: a worker that ignores it can finish its job while the run is drained.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    worker = os.fork()
    if worker == 0:
        _become(command, keeper)
    os.setpgid(worker, worker)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)  # so that the controller and the worker alone hold the ends of their pipes
    os.dup2(nothing, 1)
    while not _ended(worker) and os.getppid() == controller:
        received = signal.sigtimedwait(_WATCHED, 1.0)
        if received is not None and received.si_signo == signal.SIGTERM:
            _ask_to_end(worker)
            break
    os.killpg(worker, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    return code if code >= 0 else 128 - code


def _become(command: list[str], keeper: int) -> None:
    """Turn this process into the worker, which dies with its keeper."""
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        if os.getppid() == keeper:
            os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(127)


def _ended(worker: int) -> bool:
    """Tell whether the worker has ended; it stays unreaped, so that nobody else can get its number."""
    return os.waitid(os.P_PID, worker, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _ask_to_end(worker: int) -> None:
    os.killpg(worker, signal.SIGTERM)
    os.killpg(worker, signal.SIGCONT)  # a stopped process hears nothing else
    end = time.monotonic() + GRACE
    while not _ended(worker) and (left := end - time.monotonic()) > 0:
        signal.sigtimedwait({signal.SIGCHLD}, left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
