"""Worker processes on this machine, each with a supervisor, spoken to with execnet."""

from __future__ import annotations

import itertools
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import execnet

from pytest_imgedit.core import messages, redaction
from pytest_imgedit.core.text import FAR, one_line
from pytest_imgedit.kinds.user_code import user_import_paths
from pytest_imgedit.workers import base, supervisor

#: Characters that are kept of a line that a worker prints.
MAX_LINE = 4000
#: Seconds that a worker whose connection has ended has to exit by itself.
EXIT_GRACE = 1.0
#: Seconds that a supervisor has to end its worker; one that is stopped itself takes longer.
ENDING = supervisor.GRACE + 5
_NUMBERS = itertools.count()
#: Variables of every worker: unbuffered output for the log, no progress bars, no telemetry.
ENVIRONMENT = (
    "PYTHONUNBUFFERED=1",
    "TQDM_DISABLE=1",
    "HF_HUB_DISABLE_TELEMETRY=1",
    "DO_NOT_TRACK=1",
    "PYTHONIOENCODING=utf-8",  # execnet's first words are ASCII; the user's encoding may differ
)
#: Variables of a client that sends megabytes with each request: glibc keeps freed memory for the
#: next one, in place of returning it to the system and getting it back page by page.
OF_CLIENTS = ("MALLOC_MMAP_THRESHOLD_=33554432", "MALLOC_TRIM_THRESHOLD_=268435456")
#: How often a thread without a GPU looks whether the others are done before it sleeps
#: (docs/performance.md). libgomp's own 300,000 times keep a core from other processes, and so from
#: the very thread that is waited for.
SPIN_COUNT = 1000
#: By its path where it is there, since PATH may be empty.
_ENV = next((path for path in ("/usr/bin/env", "/bin/env") if os.access(path, os.X_OK)), "env")
_SERVE = """
import os, sys
os.kill(int(os.environ[{supervisor!r}]), {up})
channel.send({{"op": "up", "pid": os.getpid()}})
sys.path += [path for path in {paths!r} if path not in sys.path]
try:
    from pytest_imgedit.workers.process import serve
except ImportError as error:
    print(f"{{sys.executable}} cannot run workers: {{error}}", file=sys.stderr, flush=True)
    os._exit(1)
else:
    serve(channel)
"""


class LocalExecutor:
    """Starts workers with their own interpreter and GPUs; what they print passes through files in
    `folder`.

    Without a GPU a worker computes in `threads` threads, unless OMP_NUM_THREADS says otherwise.
    `environment` holds further variables, as `NAME=VALUE`. An interpreter has `patience` seconds to
    come up. Secrets are removed from its output. Workers may be started from several threads at
    once. They import from `paths` too, by default those of this process.
    """

    def __init__(
        self,
        folder: Path,
        python: str | None,
        patience: float,
        redactor: redaction.Redactor,
        *,
        threads: int,
        environment: Sequence[str] = (),
        paths: Sequence[str] | None = None,
    ) -> None:
        self.folder = folder
        self.patience = patience
        self.redactor = redactor
        self.threads = threads
        self.environment = environment
        self.python = python or sys.executable
        self.paths = user_import_paths() if paths is None else list(paths)
        #: Files of output, by which supervisors can be found before they answer, by slot.
        self._starting: dict[str, Path] = {}

    def abandon(self, slot: base.Slot) -> None:
        """Kill the supervisor of a slot that has not answered, and its worker, even if they are
        stopped; do nothing if the slot is not starting, or where there is no `/proc`.
        """
        path = self._starting.get(slot.name)
        if path is None:
            return
        for supervisor_pid in _children_of(os.getpid()):
            with suppress(OSError):
                arguments = Path(f"/proc/{supervisor_pid}/cmdline").read_bytes().split(b"\0")
                if os.fsencode(path) in arguments:
                    for worker_pid in _children_of(supervisor_pid):
                        with suppress(OSError):
                            os.killpg(worker_pid, signal.SIGKILL)
                    os.kill(supervisor_pid, signal.SIGKILL)

    def start(self, slot: base.Slot) -> _Gateway:
        """Start a worker and wait until it answers; raise `NotStarted` if it does not, or if its
        file of output cannot be made.
        """
        path = self.folder.absolute() / f".{slot.name}-{next(_NUMBERS)}.out"
        self._starting[slot.name] = path
        try:
            output = path.open("w+b")
        except OSError as error:
            raise base.NotStarted(f"{path}: {error.strerror}") from None
        spec = execnet.XSpec("popen")
        spec.python = shlex.join(self._command(slot, path))
        try:
            gateway = execnet.Group().makegateway(spec)
            channel = gateway.remote_exec(
                _SERVE.format(
                    supervisor=supervisor.SUPERVISOR, up=int(supervisor.UP), paths=self.paths
                )
            )
            return _Gateway(gateway, channel, output, self.redactor)
        except AssertionError:  # what it printed comes of what it was sent, sooner or later
            output.close()
            reason = "it does not answer as Python does"
        except (EOFError, OSError, execnet.RemoteError) as error:
            lines = _new_lines(output, self.redactor, final=True)
            reason = lines[-1] if lines else one_line(error)
        except RuntimeError as error:  # no more threads to listen to it
            self.abandon(slot)
            output.close()
            reason = one_line(error)
        finally:
            if self._starting.get(slot.name) == path:  # else another process has taken the slot
                del self._starting[slot.name]
            # Both sides have the file open and need no name for it any more; without one, nothing
            # is left of it, however this process ends.
            path.unlink(missing_ok=True)
        raise base.NotStarted(f"{slot.name}: {self.python} does not start as a worker: {reason}")

    def _command(self, slot: base.Slot, output: Path) -> list[str]:
        """Return the command of a worker, below its supervisor and with its environment."""
        command = [sys.executable, "-I", "-S", supervisor.__file__, str(output), str(self.patience)]
        command += [_ENV, f"CUDA_VISIBLE_DEVICES={','.join(slot.gpus)}"]
        command += [*ENVIRONMENT, *self.environment]
        if not slot.gpus:
            command += _openmp(self.threads)
        command.append(self.python)
        return command


def _openmp(threads: int) -> list[str]:
    """Return the variables, as `NAME=VALUE`, that set the threads of a worker without a GPU and how
    long they spin; what the user's environment sets is left out.
    """
    variables = {"OMP_NUM_THREADS": threads}
    if "OMP_WAIT_POLICY" not in os.environ:
        variables["GOMP_SPINCOUNT"] = SPIN_COUNT
    return [f"{name}={value}" for name, value in variables.items() if name not in os.environ]


def _children_of(pid: int) -> list[int]:
    """Return the ids of a process's children; none where `/proc` does not list them."""
    children: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children += [int(number) for number in path.read_text("ascii").split()]
    return children


class _Gateway:
    """The connection to a worker on this machine, as `base.Connection` says; raises `EOFError` or
    `execnet.RemoteError` if the worker does not say that it is up.

    `pid` is the worker's process, `process` its supervisor's; `output` is the file that holds what
    the worker prints.
    """

    def __init__(
        self, gateway: Any, channel: Any, output: BinaryIO, redactor: redaction.Redactor
    ) -> None:
        self.gateway = gateway
        self.channel = channel
        self.output = output
        self.redactor = redactor
        self.process: subprocess.Popen[bytes] = gateway._io.popen
        self.pid: int = channel.receive()["pid"]
        self._outbox: queue.Queue[messages.ToWorker | None] = queue.Queue()
        threading.Thread(target=self._send_all, daemon=True).start()

    def listen(self, hear: Callable[[messages.FromWorker], None]) -> None:
        self.channel.setcallback(hear, endmarker=base.ENDED)

    def send(self, message: messages.ToWorker) -> None:
        """Send in a thread: a process that is stopped does not read, and a pipe holds less than an
        image.
        """
        self._outbox.put(message)

    def _send_all(self) -> None:
        """Send messages until `None` is in the outbox; end the process if one cannot be sent."""
        try:
            for message in iter(self._outbox.get, None):
                self.channel.send(message)
        except Exception:  # the process is gone, or of no use if it cannot hear; ENDED says so
            self.terminate()

    def lines(self, final: bool = False) -> list[str]:
        return _new_lines(self.output, self.redactor, final)

    def alive(self) -> bool:
        return self.process.poll() is None

    def terminate(self) -> None:
        self.process.terminate()
        self.process.send_signal(signal.SIGCONT)  # a supervisor that is stopped hears nothing else

    def close(self) -> str:
        """End the process and return how it ended, as `base.Connection` says."""
        self._outbox.put(None)
        if self.channel.isclosed():  # it is ending by itself, and shall be reported so
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=EXIT_GRACE)
        self.terminate()
        try:
            self.process.wait(timeout=ENDING)
        except subprocess.TimeoutExpired:  # the supervisor itself was stopped
            self.process.kill()
            self.process.wait()
        # `exit` writes to the pipe, which a process that left the group may hold open and full.
        with suppress(RuntimeError):  # no more threads: it goes without
            threading.Thread(target=self.gateway.exit, daemon=True).start()
        code = self.process.returncode
        if code < 0:  # nobody has ended the worker's process group
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            return "its supervisor was killed"
        if code - 128 in set(signal.Signals):
            return signal.Signals(code - 128).name
        return f"exit status {code}"


def _new_lines(file: BinaryIO, redactor: redaction.Redactor, final: bool) -> list[str]:
    """Return the lines that a process has added to a file, without secrets, blank lines and what
    is over `MAX_LINE` characters; none if the file is closed.

    An unfinished line is left for later, unless the process is gone (`final`): then all is read,
    and the file is closed.
    """
    if file.closed:
        return []
    data = file.read()
    if final:
        file.close()
    elif not data.endswith(b"\n"):
        end_of_lines = data.rfind(b"\n") + 1
        file.seek(end_of_lines - len(data), os.SEEK_CUR)
        data = data[:end_of_lines]
    lines = data.decode("utf-8", "replace").splitlines()
    text = redactor.text("\n".join(line[:FAR] for line in lines))
    return [_cut(line) for line in text.splitlines() if line.strip()]


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"
