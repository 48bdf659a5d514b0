"""Hosts that are reached over ssh, with execnet: `ssh=user@host//python=/opt/venv/bin/python//gpus=0-3`."""

from __future__ import annotations

import shlex
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import execnet

from pytest_imgedit.errors import UsageError
from pytest_imgedit.text import one_line
from pytest_imgedit.workers import over_ssh
from pytest_imgedit.workers.base import NotStarted
from pytest_imgedit.workers.hosts import Host, Hosts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KEYS = ("ssh", "popen", "python", "gpus", "ssh_config")
#: Seconds until a host must have answered.
PATIENCE = 60.0
_SERVE = """
import sys
try:
    from pytest_imgedit.workers.agent import serve
except ImportError as error:
    channel.send({{"op": "refused", "message": f"{{sys.executable}} cannot run workers: {{error}}"}})
else:
    serve(channel, {gpus!r})
"""


def parse_host(text: str) -> execnet.XSpec:
    """Read the spec of a host; raises `UsageError` for one that names no way there, or says what is not known."""
    expected = "expected ssh=[user@]host//python=…//gpus=…//ssh_config=…//env:NAME=value, or popen"
    try:
        spec = execnet.XSpec(text)
    except (AttributeError, ValueError, IndexError) as error:
        raise UsageError(f"workers.hosts: {text!r}: {one_line(error)}, {expected}") from None
    said = {name: value for name, value in vars(spec).items() if name not in ("_spec", "env")}
    unknown = next((name for name in said if name not in KEYS), None)
    if unknown is not None or ("ssh" in said) == ("popen" in said) or True in (said.get("ssh"), said.get("python")):
        raise UsageError(f"workers.hosts: {text!r}{f': unknown key {unknown!r}' if unknown else ''}, {expected}")
    return spec


class SshHosts(Hosts):
    """Hosts over ssh, and `popen`; `gpus` is what they use where their specs say nothing, logs go to `folder`.

    Connects to all at once; raises `UsageError` in one line for the first that cannot be had.
    """

    def __init__(self, texts: Sequence[str], gpus: str, folder: Path) -> None:
        self.specs = {host_name(spec): spec for spec in map(parse_host, texts)}
        self.gpus, self.folder = gpus, folder
        self._gateways: list[Any] = []
        super().__init__(list(self.specs))

    def connect(self, name: str) -> Host:
        spec = self.specs[name]
        log = self.folder.absolute() / f".{name}-{len(self._gateways)}.ssh"
        log.touch()
        python = spec.python or ("python3" if spec.ssh else sys.executable)
        environment = [f"{key}={value}" for key, value in spec.env.items()]
        command = ["env", *environment, python] if environment else [python]
        way = ["--", "ssh", *_options(spec), *shlex.split(spec.ssh), "--"] if spec.ssh else ["--", "--"]
        local = execnet.XSpec("popen")
        local.python = shlex.join([sys.executable, "-I", "-S", over_ssh.__file__, str(log), *way, *command])
        try:
            gateway = execnet.Group().makegateway(local)
            self._gateways.append(gateway)
            channel = gateway.remote_exec(_SERVE.format(gpus=spec.gpus or self.gpus))
            host = Host(name, channel.send)
            channel.setcallback(host.hear, endmarker=None)
            host.greet(PATIENCE)
        except (EOFError, OSError, execnet.RemoteError, AssertionError) as error:
            said = log.read_text("utf-8", "replace").strip().splitlines() or [one_line(error)]
            raise NotStarted(f"host {name}: {said[-1]}") from None
        except NotStarted as error:
            said = log.read_text("utf-8", "replace").strip().splitlines()
            raise NotStarted(f"{error}{f': {said[-1]}' if said else ''}") from None
        finally:
            log.unlink(missing_ok=True)
        return host

    def close(self) -> None:
        super().close()
        for gateway in self._gateways:
            with suppress(OSError):
                gateway._io.popen.terminate()
            threading.Thread(target=gateway.exit, daemon=True).start()


def host_name(spec: execnet.XSpec) -> str:
    """Return the name under which the run knows a host."""
    return "localhost" if spec.popen else shlex.split(spec.ssh)[-1].rpartition("@")[2]


def _options(spec: Any) -> list[str]:
    alive = ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]
    return ["-T", "-C", "-o", "BatchMode=yes", *alive, *(["-F", spec.ssh_config] if spec.ssh_config else [])]
