"""A conftest that kills the run, by SIGKILL, at the point that `KILL_AT` names: `EVENT PATH-SUFFIX
NUMBER`.

Events: `open` (before a file is opened for writing), `rename` (before a file gets this name),
`mkdir`; `write` (before a record is written), `half` (after half of it), `sync` (before it is
synced), `synced` (after that); `before` and `after` a stage. Only paths in the store count.
"""

import os
import signal
import sys
from pathlib import Path

from pytest_imgedit.store.journal import Journal

EVENT, SUFFIX, NUMBER = os.environ["KILL_AT"].split()
left = int(NUMBER)
AUDITED = {"os.rename": "rename", "os.mkdir": "mkdir", "open": "open"}


def reach(event, path):
    global left
    if event == EVENT and str(path).endswith(SUFFIX) and ".imgedit" in str(path):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def audit(event, arguments):
    if event == "open" and not (
        isinstance(arguments[0], str) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    ):
        return
    if event in AUDITED:
        reach(AUDITED[event], os.fspath(arguments[1 if event == "os.rename" else 0]))


class Watched:
    """A journal's file."""

    def __init__(self, file, path):
        self.file, self.path = file, path

    def write(self, data):
        reach("write", self.path)
        if EVENT == "half":
            self.file.write(data[: len(data) // 2])
            reach("half", self.path)
            return len(data) // 2 + self.file.write(data[len(data) // 2 :])
        return self.file.write(data)

    def fileno(self):
        reach("sync", self.path)
        return self.file.fileno()

    def close(self):
        self.file.close()


open_path, append = Path.open, Journal.append


def open_watched(self, mode="r", *arguments, **options):
    file = open_path(self, mode, *arguments, **options)
    return Watched(file, self) if mode == "ab" and self.suffix == ".jsonl" else file


Path.open = open_watched


def append_and_reach(self, records):
    append(self, records)
    reach("synced", self.path)


Journal.append = append_and_reach
sys.addaudithook(audit)


def pytest_imgedit_before_stage(config, stage):
    reach("before", f".imgedit/{stage}")


def pytest_imgedit_after_stage(config, stage):
    reach("after", f".imgedit/{stage}")
