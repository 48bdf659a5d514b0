"""Worker processes on this machine, each with a keeper, spoken to with execnet."""

from __future__ import annotations

import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import execnet

from pytest_imgedit.registry import user_import_paths
from pytest_imgedit.workers import keeper
from pytest_imgedit.workers.base import ENDED, Message, NotStarted, Slot, Worker

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_imgedit.redaction import Redactor

#: What every worker is told: unbuffered output for the log, no progress bars, no telemetry.
ENVIRONMENT = ("PYTHONUNBUFFERED=1", "TQDM_DISABLE=1", "HF_HUB_DISABLE_TELEMETRY=1", "DO_NOT_TRACK=1")
_SERVE = """
import os, sys
os.kill(int(os.environ[{keeper!r}]), {up})
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
    """Starts workers with their own interpreter and GPUs; what they print passes through files in `folder`.

    An interpreter has `patience` seconds to come up. What is passed on of its output holds no secrets.
    """

    def __init__(self, folder: Path, python: str | None, patience: float, redactor: Redactor) -> None:
        self.folder, self.patience, self.redactor = folder, patience, redactor
        self.python = python or sys.executable
        self.group = execnet.Group()

    def start(self, slot: Slot, events: queue.Queue[tuple[Worker, Message]]) -> Worker:
        path = self.folder.absolute() / f".{slot.name}.out"
        try:
            path.touch()
            output = _Output(path.open("rb"), self.redactor)
        except OSError as error:
            raise NotStarted(f"{path}: {error.strerror}") from None
        keeping = [sys.executable, "-I", "-S", keeper.__file__, str(path), str(self.patience)]
        environment = [f"CUDA_VISIBLE_DEVICES={','.join(slot.gpus)}", *ENVIRONMENT]
        spec = execnet.XSpec("popen")
        spec.python = shlex.join([*keeping, "env", *environment, self.python])
        try:
            gateway = self.group.makegateway(spec)
            serve = _SERVE.format(keeper=keeper.KEEPER, up=int(keeper.UP), paths=user_import_paths())
            connection = _Gateway(gateway, gateway.remote_exec(serve), output)
        except (EOFError, OSError, execnet.RemoteError) as error:
            words = output.lines(final=True) or [str(error)]
            raise NotStarted(f"{slot.name}: {self.python} does not start as a worker: {words[-1]}") from None
        finally:
            path.unlink(missing_ok=True)  # both sides have it open: nothing is left of it, however this process ends
        worker = Worker(slot, connection)
        connection.listen(lambda message: events.put((worker, message)))
        return worker


class _Gateway:
    def __init__(self, gateway: Any, channel: Any, output: _Output) -> None:
        self.gateway, self.channel, self.output = gateway, channel, output
        self.process: subprocess.Popen[bytes] = gateway._io.popen
        self.pid: int = channel.receive()["pid"]
        self._outbox: queue.Queue[Message | None] = queue.Queue()
        threading.Thread(target=self._send_all, daemon=True).start()

    def listen(self, hear: Any) -> None:
        self.channel.setcallback(hear, endmarker=ENDED)

    def send(self, message: Message) -> None:
        """Send in a thread: a process that is stopped does not read, and a pipe holds less than an image."""
        self._outbox.put(message)

    def _send_all(self) -> None:
        with suppress(OSError):  # the process is gone: its ENDED says so
            while (message := self._outbox.get()) is not None:
                self.channel.send(message)

    def lines(self, final: bool = False) -> list[str]:
        return self.output.lines(final)

    def alive(self) -> bool:
        return self.process.poll() is None

    def terminate(self) -> None:
        self.process.terminate()

    def close(self) -> str:
        self._outbox.put(None)
        if self.channel.isclosed():  # it is ending: let it, so that how it ended is its own doing
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=1)
        self.terminate()
        try:
            self.process.wait(timeout=keeper.GRACE + 5)
        except subprocess.TimeoutExpired:  # the keeper itself was stopped
            self.process.kill()
            self.process.wait()
        if self.process.returncode < 0:  # the keeper was killed, so that nobody has ended the worker's children
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        self.gateway.exit()
        return _how(self.process.returncode)


def _how(code: int) -> str:
    """Say how a worker ended, from its keeper's exit status."""
    if code < 0:
        return "its keeper was killed"
    return signal.Signals(code - 128).name if code - 128 in set(signal.Signals) else f"exit status {code}"


class _Output:
    """The end of a file that a process writes."""

    def __init__(self, file: BinaryIO, redactor: Redactor) -> None:
        self.file, self.redactor = file, redactor

    def lines(self, final: bool) -> list[str]:
        """Read the lines that were added; a line without its end is left for later unless this is final."""
        data = self.file.read()
        if not final and not data.endswith(b"\n"):
            whole = data.rfind(b"\n") + 1
            self.file.seek(whole - len(data), os.SEEK_CUR)
            data = data[:whole]
        text = self.redactor.text(data.decode("utf-8", "replace"))
        return [line for line in text.splitlines() if line.strip()]
