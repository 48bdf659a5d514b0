"""What `served_judge.py --stubs` measures: the CPU of a run whose judge or editor is a server that
costs nothing, the most requests in flight, and memory.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil  # type: ignore[import-untyped]
from harness import finished, start
from headline import workers_of
from PIL import Image
from stub_server import Answered, read_logs

from pytest_imgedit.core.images import encode_png

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIDE = 1024
#: Seconds between looks at the processes of a run.
LOOK = 0.25
#: Seconds until a stub that was ended is there again.
AWAY = 3.0
#: Pictures that are drawn at a time.
DRAWN = 2


class Stubs:
    """Stub servers, each in a process of its own with a log of what it answered."""

    def __init__(self, folder: Path, number: int) -> None:
        folder.mkdir(parents=True)
        self.picture = folder / "picture.png"
        self.logs = [folder / f"{index}.log" for index in range(number)]
        self.ports = [_free_port() for _ in self.logs]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.ended: list[subprocess.Popen[bytes]] = []

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}/v1" for port in self.ports]

    def launch(self, index: int) -> None:
        """Start one of the stubs and wait until it listens."""
        script = str(Path(__file__).with_name("stub_server.py"))
        command = [sys.executable, script, f"--port={self.ports[index]}"]
        command += [f"--log={self.logs[index]}", f"--picture={self.picture}"]
        self.processes[index] = subprocess.Popen(command, stdin=subprocess.PIPE)
        while self.processes[index].poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[index])):
                return
            time.sleep(0.02)
        raise SystemExit(f"the stub at port {self.ports[index]} did not start")

    def replace(self, index: int) -> None:
        """End one of the stubs with SIGKILL and start it again at the same port after a while.

        It is not waited for yet: its CPU must not count as that of a run.
        """
        process = self.processes.pop(index)
        process.send_signal(signal.SIGKILL)
        self.ended.append(process)
        time.sleep(AWAY)
        self.launch(index)

    def count(self) -> int:
        """Return how many questions were answered."""
        return sum(path.read_bytes().count(b"\n") for path in self.logs)

    def take(self) -> list[Answered]:
        """Return what was answered, and forget it."""
        answers = read_logs(self.logs)
        for path in self.logs:
            os.truncate(path, 0)
        return answers


@contextmanager
def stubs(folder: Path, number: int, picture: bytes) -> Iterator[Stubs]:
    """Serve with a number of stubs, which answer an edit with one picture."""
    made = Stubs(folder, number)
    made.picture.write_bytes(picture)
    try:
        for index in range(number):
            made.logs[index].touch()
            made.launch(index)
        yield made
    finally:
        for process in made.processes.values():
            process.kill()
        for process in [*made.processes.values(), *made.ended]:
            process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def noise(number: int, megabytes: float, side: int) -> bytes:
    """Return the PNG of a picture of its own for each number: noise in as many rows as give the
    file about this size, and below it one colour.
    """
    rows = min(side, round(megabytes * 1e6 / (3 * side)))
    generator = np.random.default_rng(number)
    pixels = np.full((side, side, 3), number % 251, dtype=np.uint8)
    pixels[:rows] = generator.integers(0, 256, (rows, side, 3), dtype=np.uint8)
    return encode_png(Image.fromarray(pixels))


def write_suite(folder: Path, pairs: int, distinct: int, megabytes: float, side: int) -> Path:
    """Write a suite with finished edits in `finished/`; return its file.

    There are `distinct` pictures of each kind, which pairs use in turns: further names are links to
    the same files.
    """
    from concurrent.futures import ThreadPoolExecutor

    finished_edits = folder / "finished"
    finished_edits.mkdir(parents=True)

    def draw(number: int) -> None:
        (folder / f"{number:05}.png").write_bytes(noise(number, megabytes, side))

    with ThreadPoolExecutor(DRAWN) as pool:
        list(pool.map(draw, range(2 * distinct)))
    rows = []
    for index in range(pairs):
        source = f"{2 * (index % distinct):05}.png"
        edit = f"{2 * (index % distinct) + 1:05}.png"
        os.link(folder / edit, finished_edits / f"{index:05}.png")
        rows.append({"id": f"{index:05}", "image": source, "instruction": f"pair-{index:05}: snow"})
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def copy_store(edited: Path, folder: Path) -> None:
    """Copy a folder with a store; its pictures, which never change, are linked."""
    shutil.copytree(edited, folder, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    is_picture = Path(source).suffix in (".png", ".webp")
    copy: Callable[[str, str], object] = os.link if is_picture else shutil.copy2
    copy(source, target)


@dataclass
class Looks:
    """What was seen of a run's processes: how many questions were answered, the peak memory so far
    of the controller and of the worker that used most, in MiB, and the CPU seconds of all.
    """

    rows: list[tuple[int, float, float, float]] = field(default_factory=list)
    #: The most workers at a time.
    workers: int = 0

    def peak(self, answered: float) -> dict[str, float]:
        """Return the peaks at the first look after a number of answers, or at the last look."""
        late = [row for row in self.rows if row[0] >= answered]
        _, controller, worker, _ = [*late, self.rows[-1]][0]
        return {"controller_mib": controller, "worker_mib": worker}

    def questions_cpu_s(self, answered: int) -> float:
        """Return the questions a CPU second of all processes between a tenth and nine tenths of a
        number of answers: without start-up, plan, items and reports.
        """
        rows = [row for row in self.rows if answered / 10 <= row[0] <= answered * 9 / 10]
        if len(rows) < 2 or rows[-1][3] <= rows[0][3]:
            return 0.0
        return (rows[-1][0] - rows[0][0]) / (rows[-1][3] - rows[0][3])


@dataclass
class Measured:
    """A run: CPU seconds of all its processes, results.json with its wall time, what was answered,
    and what was seen of its processes.
    """

    cpu_s: float
    document: dict[str, Any]
    answers: list[Answered]
    looks: Looks

    @property
    def scored(self) -> int:
        """The number of pairs with a score."""
        return sum(item["score"] is not None for item in self.document["items"])


def measure(
    folder: Path,
    served: Stubs,
    checkout: Path,
    *arguments: str,
    replaced: tuple[int, int] | None = None,
) -> Measured:
    """Run pytest with the plugin of a checkout; `replaced` is the number of answers after which a
    stub is replaced, and the index of the stub.
    """
    served.take()
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OPENAI_API_KEY": "none"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    process = start(folder, *arguments, env=environment)
    looks, over = Looks(), threading.Event()
    threads = [threading.Thread(target=_look, args=(process.pid, served, looks, over))]
    if replaced:
        threads.append(threading.Thread(target=_replace, args=(served, replaced, over)))
    for thread in threads:
        thread.start()
    try:
        document = finished(process, folder, started)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(cpu, document, served.take(), looks)


def _look(pid: int, served: Stubs, looks: Looks, over: threading.Event) -> None:
    """Look at a run's processes until it is over."""
    peaks: dict[int, float] = {}
    while not over.wait(LOOK):
        answered = served.count()
        with suppress(psutil.Error, OSError):
            workers = [worker.pid for worker in workers_of(pid)]
            looks.workers = max(looks.workers, len(workers))
            for worker in workers:
                peaks[worker] = max(peaks.get(worker, 0), _peak_mib(worker))
            controller = _peak_mib(pid)
            if controller:
                worker = max(peaks.values(), default=0)
                looks.rows.append((answered, controller, worker, _cpu_seconds(pid)))


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and of those below it that run."""
    process = psutil.Process(pid)
    times = [member.cpu_times() for member in (process, *process.children(recursive=True))]
    return float(sum(member.user + member.system for member in times))


def _peak_mib(pid: int) -> float:
    """Return the most memory that a process has held so far."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _replace(served: Stubs, replaced: tuple[int, int], over: threading.Event) -> None:
    answers, index = replaced
    while not over.wait(0.02):
        if served.count() >= answers:
            served.replace(index)
            return
