"""Worker processes on this machine, each with a keeper, spoken to with execnet."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

import execnet

from pytest_imgedit.registry import user_import_paths
from pytest_imgedit.workers import keeper
from pytest_imgedit.workers.base import ENDED, Message, NotStarted, Slot, Worker

if TYPE_CHECKING:
    import queue
    from pathlib import Path

#: What every worker is told: unbuffered output for the log, no progress bars, no telemetry.
ENVIRONMENT = ("PYTHONUNBUFFERED=1", "TQDM_DISABLE=1", "HF_HUB_DISABLE_TELEMETRY=1", "DO_NOT_TRACK=1")
_SERVE = """
import sys
sys.path += [path for path in {paths!r} if path not in sys.path]
try:
    from pytest_imgedit.workers.process import serve
except ImportError as error:
    print(f"{{sys.executable}} cannot run workers: {{error}}", file=sys.stderr, flush=True)
else:
    serve(channel)
"""


class LocalExecutor:
    """Starts workers with their own interpreter and GPUs; what they print passes through files in `folder`."""

    def __init__(self, folder: Path, python: str | None) -> None:
        self.folder = folder
        self.python = python or sys.executable
        self.group = execnet.Group()

    def start(self, slot: Slot, events: queue.Queue[tuple[Worker, Message]]) -> Worker:
        path = self.folder.absolute() / f".{slot.name}.out"
        path.touch()
        output = path.open("rb")
        keeping = [sys.executable, "-I", "-S", keeper.__file__, str(path)]
        environment = [f"CUDA_VISIBLE_DEVICES={','.join(slot.gpus)}", *ENVIRONMENT]
        command = shlex.join([*keeping, "env", *environment, self.python])
        try:
            gateway = self.group.makegateway(f"popen//python={command}")
            channel = gateway.remote_exec(_SERVE.format(paths=user_import_paths()))
        except (EOFError, OSError) as error:
            with output:
                words = _lines(output, final=True) or [str(error)]
            raise NotStarted(f"{slot.name}: {self.python} does not start as a worker: {words[-1]}") from None
        finally:
            path.unlink()  # both sides have it open: nothing is left of it, however this process ends
        worker = Worker(slot, _Gateway(gateway, channel, output))
        channel.setcallback(lambda message: events.put((worker, message)), endmarker=ENDED)
        return worker


class _Gateway:
    def __init__(self, gateway: Any, channel: Any, output: BinaryIO) -> None:
        self.gateway, self.channel, self._output = gateway, channel, output

    def send(self, message: Message) -> None:
        self.channel.send(message)

    def output(self, final: bool = False) -> list[str]:
        return _lines(self._output, final)

    def terminate(self) -> None:
        self.gateway._io.popen.terminate()

    def close(self) -> None:
        process = self.gateway._io.popen
        self.terminate()
        try:
            process.wait(timeout=keeper.GRACE + 5)
        except subprocess.TimeoutExpired:  # the keeper itself hangs, or was stopped
            process.kill()
            process.wait()
        self.gateway.exit()


def _lines(file: BinaryIO, final: bool) -> list[str]:
    """Read the lines that were added to a file; a line without its end is left for later unless this is final."""
    data = file.read()
    if not final and not data.endswith(b"\n"):
        whole = data.rfind(b"\n") + 1
        file.seek(whole - len(data), os.SEEK_CUR)
        data = data[:whole]
    return [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
