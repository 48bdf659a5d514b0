"""Sessions of nox, without the commands that they run."""

from __future__ import annotations

import importlib.util
import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Session:
    """Notes commands instead of running them."""

    posargs = ()

    def __init__(self):
        self.commands = []

    def run(self, *command, **_):
        self.commands.append(command)

    def chdir(self, _):
        return nullcontext()


@pytest.fixture(scope="module")
def sessions():
    """The module of sessions, loaded where nobody has activated the environment."""
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/usr/bin:/bin")
        spec.loader.exec_module(module)
        yield module


@pytest.mark.parametrize("name", ["lint", "quick", "lock", "everyday", "coverage", "full"])
def test_sessions_find_their_programs_without_an_activated_environment(sessions, name):
    session = Session()
    getattr(sessions, name)(session)
    programs = {command[0] for command in session.commands}
    assert programs
    assert [program for program in programs if shutil.which(program) is None] == []


def test_everyday_is_the_readmes_test_command(sessions):
    words = re.search(r"\.venv/bin/(pytest tests .*)$", (ROOT / "README.md").read_text(), re.M)
    assert " ".join(sessions.EVERYDAY) == words[1]
