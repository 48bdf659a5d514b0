"""Hosts that are reached over ssh, with execnet: `ssh=user@host//python=/opt/venv/bin/python//gpus=0-3`."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import execnet

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.patience import within
from pytest_imgedit.core.redaction import mask_variables
from pytest_imgedit.core.sanitize import one_line
from pytest_imgedit.workers.base import NotStarted
from pytest_imgedit.workers.remote import ssh_exec
from pytest_imgedit.workers.remote.hosts import Host, Hosts

KEYS = ("ssh", "popen", "python", "gpus", "ssh_config")
#: Seconds until a host must have answered.
PATIENCE = 60.0
#: Seconds in which an agent that is let go tidies up.
FAREWELL = 3.0
_NUMBERS = itertools.count()
_NAME = re.compile(r"[\w.:\[\]%-]+")
_SERVE = """
import os, sys
os.environ.update(channel.receive())
try:
    from pytest_imgedit.workers.remote.agent import serve
except ImportError as error:
    channel.send({{"op": "refused", "message": f"{{sys.executable}} cannot run workers: {{error}}"}})
else:
    serve(channel, {gpus!r})
"""


def parse_host(text: str) -> execnet.XSpec:
    """Read the spec of a host; raises `UsageError` for one that names no way there, or says what is not known."""
    expected = "expected ssh=[user@]host//python=…//gpus=…//ssh_config=…//env:NAME=value, or popen"
    shown = repr(mask_variables(text))
    try:
        spec = execnet.XSpec(text)
    except (AttributeError, ValueError, IndexError) as error:
        raise UsageError(f"workers.hosts: {shown}: {one_line(error)}, {expected}") from None
    said = {name: value for name, value in vars(spec).items() if name not in ("_spec", "env")}
    unknown = next((name for name in said if name not in KEYS), None)
    if unknown is not None or ("ssh" in said) == ("popen" in said):
        raise UsageError(f"workers.hosts: {shown}{f': unknown key {unknown!r}' if unknown else ''}, {expected}")
    empty = next((name for name, value in said.items() if name != "popen" and value in (True, "")), None)
    if empty is not None:
        raise UsageError(f"workers.hosts: {shown}: {empty} says nothing, {expected}")
    try:
        sound = _NAME.fullmatch(host_name(spec))
    except ValueError as error:  # a quote that does not end
        raise UsageError(f"workers.hosts: {shown}: {one_line(error)}, {expected}") from None
    if not sound:
        raise UsageError(f"workers.hosts: {shown}: no name of a host, {expected}")
    return spec


class SshHosts(Hosts):
    """Hosts over ssh, and `popen`; `gpus` is what they use where their specs say nothing, logs go to `folder`.

    Connects to all at once; raises `UsageError` in one line for the first that cannot be had.
    """

    def __init__(self, texts: Sequence[str], gpus: str, folder: Path) -> None:
        super().__init__()
        self.specs = {host_name(spec): spec for spec in map(parse_host, texts)}
        self.gpus, self.folder = gpus, folder
        self._links: list[_Link] = []
        self.connect_all(list(self.specs))

    def connect(self, name: str) -> Host:
        spec = self.specs[name]
        log = self.folder.absolute() / f".{name}-{next(_NUMBERS)}.ssh"
        log.touch()
        python = spec.python or ("python3" if spec.ssh else sys.executable)
        way = ["--", "ssh", *_options(spec), *shlex.split(spec.ssh), "--"] if spec.ssh else ["--", "--"]
        local = execnet.XSpec("popen")
        local.python = shlex.join([sys.executable, "-I", "-S", ssh_exec.__file__, str(log), *way, python])
        link = _Link(name, local, log)
        self._links.append(link)
        try:
            channel = link.open().remote_exec(_SERVE.format(gpus=spec.gpus or self.gpus))
            channel.send(dict(spec.env))  # not on a command line, which others on both machines can read
            host = Host(name, channel.send)
            channel.setcallback(host.hear, endmarker=None)
            host.greet(PATIENCE)
        except (NotStarted, EOFError, OSError, execnet.RemoteError, AssertionError) as error:
            link.close()
            said = link.last_words()
            if isinstance(error, NotStarted):
                raise NotStarted(f"{error}{f': {said}' if said else ''}") from None
            raise NotStarted(f"host {name}: {said or one_line(error)}") from None
        finally:
            log.unlink(missing_ok=True)
        return host

    def close(self) -> None:
        super().close()
        with ThreadPoolExecutor(max(1, len(self._links))) as threads:
            list(threads.map(_Link.close, self._links))


class _Link:
    """The process through which a host is reached, opened within `PATIENCE` seconds."""

    def __init__(self, name: str, spec: execnet.XSpec, log: Path) -> None:
        self.name, self.spec, self.log = name, spec, log
        self._gateway: Any = None

    def open(self) -> Any:
        """Return the execnet gateway; raises `NotStarted` for a host that stays silent, else what execnet raises."""
        try:
            self._gateway = within(PATIENCE, lambda: execnet.Group().makegateway(self.spec))
        except TimeoutError:
            raise NotStarted(f"host {self.name}: no answer within {PATIENCE:g} s") from None
        return self._gateway

    def last_words(self) -> str:
        """Return the last line that came from the other side, beside execnet's messages."""
        lines = self._lines()[1:]
        return lines[-1] if lines else ""

    def _lines(self) -> list[str]:
        return self.log.read_text("utf-8", "replace").strip().splitlines() if self.log.exists() else []

    def close(self) -> None:
        """Have the other side end, and end the process if it does not, also one that never answered."""
        if self._gateway is not None:
            process: subprocess.Popen[bytes] = self._gateway._io.popen
            threading.Thread(target=self._gateway.exit, daemon=True).start()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=FAREWELL)
            process.terminate()
        elif (first := self._lines()[:1]) and first[0].isdigit():
            with suppress(OSError):
                os.killpg(int(first[0]), signal.SIGKILL)


def host_name(spec: execnet.XSpec) -> str:
    """Return the name under which the run knows a host."""
    return "localhost" if spec.popen else shlex.split(spec.ssh)[-1].rpartition("@")[2]


def _options(spec: Any) -> list[str]:
    alive = ["-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]
    return ["-T", "-C", "-o", "BatchMode=yes", *alive, *(["-F", spec.ssh_config] if spec.ssh_config else [])]
