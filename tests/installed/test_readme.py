"""The README's two lines, in a fresh clone and an environment that holds nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.everyday

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
LINES = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
INSTALL = "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e"


def test_the_readme_has_two_lines_that_do_everything():
    before = README.partition("\n## Your model\n")[0]
    assert [line in before for line in LINES] == [True, True]
    assert LINES[0] == f"{INSTALL} . && .venv/bin/pytest benchmarks"
    assert LINES[1].startswith(f"{INSTALL} '.[test]' && .venv/bin/pytest tests ")


def test_ci_runs_the_words_of_the_readmes_test_command():
    words = LINES[1].rpartition(".venv/bin/")[2]
    assert f" {words} --cpu-budget" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.full
@pytest.mark.usefixtures("needs_git")
def test_both_lines_work_as_they_stand_in_a_bare_environment(tmp_path):
    """Costly: both lines install all that the package needs, the first runs the whole demo.

    CI runs the tests that are only collected here. pip reads the user's own settings, such as an
    index that is near.
    """
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    try:
        demo, collected = (
            run_line(clone, line) for line in (LINES[0], f"{LINES[1]} --collect-only -q")
        )
    finally:
        shutil.rmtree(tmp_path)  # pytest would keep gigabytes
    assert "imgedit: PASS: overall 9." in demo
    assert re.search(r"^\d+/\d+ tests collected", collected, re.MULTILINE)


def run_line(clone: Path, line: str) -> str:
    """What a line prints; it has to end well."""
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=clone,
        env={"HOME": str(Path.home()), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
