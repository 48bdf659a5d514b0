"""The README's commands, in a fresh clone and a fresh environment."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.everyday

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()


def block_with(command: str) -> str:
    """The README's block of shell commands that holds a line."""
    return next(
        block
        for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
        if f"{command}\n" in block
    )


def test_ci_runs_the_readmes_test_command():
    command = block_with("pip install -c constraints.txt -e '.[test]'").splitlines()[-1]
    assert command.startswith("pytest tests ")
    assert f"{command} --cpu-budget" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.full
def test_the_first_commands_work_as_they_stand(tmp_path):
    """Costly: two installations of all that the package needs. CI runs the whole benchmark, and the
    tests that are only collected here.
    """
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VIRTUAL_ENV", "PYTHONPATH")
    }
    environment["PIP_NO_COMPILE"] = "1"  # what is imported is compiled then
    script = (
        "export PYTEST_ADDOPTS='--imgedit-limit=2'\n"
        + block_with("pytest benchmarks")
        + "export PYTEST_ADDOPTS='--collect-only -q'\n"
        + block_with("pip install -c constraints.txt -e '.[test]'")
    )
    done = subprocess.run(
        ["bash", "-ec", script],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "imgedit: PASS: overall 9." in done.stdout
    assert re.search(r"\d{4}/\d{4} tests collected", done.stdout)
