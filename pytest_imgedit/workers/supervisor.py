"""Keeps one worker process: nothing of its process group outlives the worker, or the controller.

The controller runs this file as a script, `python supervisor.py LOG SECONDS COMMAND…`, once for
each worker, and the command becomes the worker. A worker cannot do this for itself: it may hang in
native code, be stopped, or have children of its own. The script imports nothing of the package, so
that it starts in milliseconds.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from typing import NoReturn

#: Seconds between asking a worker's process group to end (SIGTERM) and ending it (SIGKILL).
GRACE = 5.0
#: The signal that a worker sends to its supervisor once its interpreter runs.
UP = signal.SIGUSR1
#: The most seconds between looks whether the controller has ended, which no signal tells for sure.
INTERVAL = 1.0
#: The variable with the process id of the supervisor.
SUPERVISOR = "IMGEDIT_SUPERVISOR"
_WATCHED = {signal.SIGCHLD, signal.SIGTERM, UP}
_PR_SET_PDEATHSIG = 1


def main(log: str, patience: float, command: list[str]) -> int:
    """Run a command in a new process group, with errors appended to the file `log`; end what is
    left of the group; return the command's exit status, 128 + N after signal N.

    A command that has not sent `UP` after `patience` seconds is ended, and so is any when the
    controller ends or this process gets SIGTERM.
    """
    # The controller's end goes unseen by a process that is stopped. The signal also comes when only
    # the thread ends that started this process: SIGCONT does no harm then, and comes again.
    _signal_at_parents_end(signal.SIGCONT)
    controller = os.getppid()
    supervisor = os.getpid()
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 2)
    os.setsid()  # what ends the controller's process group shall not end this process too
    # Ctrl-C is the controller's business: a worker that ignores it can finish its job while the run
    # is drained.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    worker = os.fork()
    if worker == 0:
        _become(command, supervisor)
    with suppress(OSError):  # it may have done so itself, and be another program by now
        os.setpgid(worker, worker)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)  # so that the controller and the worker alone hold the ends of their pipes
    os.dup2(null, 1)
    _watch(worker, controller, patience)
    with suppress(OSError):
        os.killpg(worker, signal.SIGKILL)
    _, status = os.waitpid(worker, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _watch(worker: int, controller: int, patience: float) -> None:
    """Return once the worker or the controller has ended, or the worker was asked to end: because
    SIGTERM came, or because it has not sent `UP` within `patience` seconds.
    """
    deadline = time.monotonic() + patience
    is_up = False
    while not _ended(worker) and os.getppid() == controller:
        until_deadline = max(0.0, deadline - time.monotonic())
        wait = INTERVAL if is_up else min(INTERVAL, until_deadline)
        received = signal.sigtimedwait(_WATCHED, wait)
        if received is not None and received.si_signo == UP:
            is_up = True
        is_late = not is_up and time.monotonic() > deadline
        if is_late:
            print(
                f"no answer within {patience:g} s (workers.load_timeout)",
                file=sys.stderr,
                flush=True,
            )
        if is_late or (received is not None and received.si_signo == signal.SIGTERM):
            _ask_to_end(worker)
            return


def _become(command: list[str], supervisor: int) -> NoReturn:
    """Turn this process into the worker, which dies with its supervisor; exit with status 127, as
    shells do, if the command does not start or the supervisor has ended.
    """
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
    _signal_at_parents_end(signal.SIGKILL)
    try:
        if os.getppid() == supervisor:
            os.execvpe(command[0], command, {**os.environ, SUPERVISOR: str(supervisor)})
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(127)


def _signal_at_parents_end(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent thread ends, and again for each
    thread that then takes its place; do nothing on systems other than Linux.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _ended(worker: int) -> bool:
    """Tell whether the worker has ended; it stays unreaped, so that nobody else can get its
    number.
    """
    return os.waitid(os.P_PID, worker, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _ask_to_end(worker: int) -> None:
    """Send the worker's process group SIGTERM, and wait up to `GRACE` seconds for the worker to
    end.
    """
    with suppress(OSError):
        os.killpg(worker, signal.SIGTERM)
        os.killpg(worker, signal.SIGCONT)  # a stopped process hears nothing else
    end = time.monotonic() + GRACE
    while not _ended(worker):
        remaining = end - time.monotonic()
        if remaining <= 0:
            return
        signal.sigtimedwait({signal.SIGCHLD}, remaining)  # whichever child it is: look again


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
