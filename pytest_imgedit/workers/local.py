"""Worker processes on this machine, started and spoken to with execnet."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import execnet

from pytest_imgedit.errors import UsageError
from pytest_imgedit.registry import user_import_paths
from pytest_imgedit.workers.base import ENDED, Message, Slot, Worker

if TYPE_CHECKING:
    import queue
    from collections.abc import Sequence
    from pathlib import Path

# SIGINT is the controller's business: a worker that ignores it can finish its job while the run is drained.
_LAUNCH = """trap "" INT; exec 2>>"$0"; exec "$@" """
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
    """Starts workers with their own interpreter and GPUs; what they print goes to files in `folder`."""

    def __init__(self, folder: Path, python: str | None) -> None:
        self.folder = folder
        self.python = python or sys.executable
        self.group = execnet.Group()
        self._read: dict[str, int] = {}

    def _output_file(self, slot: Slot) -> Path:
        return self.folder.absolute() / f".{slot.name}.out"

    def start(self, slot: Slot, events: queue.Queue[tuple[Worker, Message]]) -> Worker:
        environment = [f"CUDA_VISIBLE_DEVICES={','.join(slot.gpus)}", "PYTHONUNBUFFERED=1", "TQDM_DISABLE=1"]
        command = ["/bin/sh", "-c", _LAUNCH, str(self._output_file(slot)), "env", *environment, self.python]
        try:
            gateway = self.group.makegateway(f"popen//python={shlex.join(command)}")
            channel = gateway.remote_exec(_SERVE.format(paths=user_import_paths()))
        except (EOFError, OSError) as error:
            words = self.output(slot, final=True) or [str(error)]
            self.forget([slot])
            raise UsageError(f"{slot.name}: {self.python} does not start as a worker: {words[-1]}") from None
        worker = Worker(slot, _Gateway(gateway, channel))
        channel.setcallback(lambda message: events.put((worker, message)), endmarker=ENDED)
        return worker

    def output(self, slot: Slot, final: bool = False) -> list[str]:
        path, start = self._output_file(slot), self._read.get(slot.name, 0)
        if not path.exists() or path.stat().st_size == start:
            return []
        with path.open("rb") as file:
            file.seek(start)
            data = file.read()
        if not final:
            data = data[: data.rfind(b"\n") + 1]
        self._read[slot.name] = start + len(data)
        return [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]

    def forget(self, slots: Sequence[Slot]) -> None:
        """Remove the output files, whose lines the run's log holds by now."""
        for slot in slots:
            self._output_file(slot).unlink(missing_ok=True)


class _Gateway:
    def __init__(self, gateway: Any, channel: Any) -> None:
        self.gateway, self.channel = gateway, channel

    def send(self, message: Message) -> None:
        self.channel.send(message)

    def terminate(self) -> None:
        self.gateway._io.popen.terminate()

    def close(self) -> None:
        process = self.gateway._io.popen
        self.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.gateway.exit()
