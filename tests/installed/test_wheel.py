"""The installed plugin in a user's repository: ways to call pytest that meet an installation, and
other plugins.
"""

from __future__ import annotations

import re

import pytest
from user_folder import PYTHON

pytestmark = pytest.mark.everyday

BAGS = ["bags-0", "bags-1", "bags-2"]
ALL = [*BAGS, "shoes-0", "shoes-1", "shoes-2"]
LOW = "--imgedit-set=judge.low=bags-1"  # this pair fails


@pytest.mark.parametrize(
    ("arguments", "edited", "passed"),
    [
        ((), ALL, 11),
        (("--imgedit", "tests"), ALL, 7),
        (("-k", "bags"), BAGS, 6),
        (("--import-mode=importlib", "benchmarks"), ALL, 10),
        (("--pyargs", "pytest_imgedit.benchmark"), ALL, 6),
        (("-n", "2", "--dist=worksteal", "benchmarks"), ALL, 10),
    ],
)
@pytest.mark.everyday_for("arguments0-edited0-11")
def test_idiom_edits_what_is_selected_and_passes(repository, arguments, edited, passed):
    """Costly: each is a process with the embedded models, and so are the workers of xdist."""
    outcome = repository.pytest(*arguments)
    assert (outcome.code, outcome.edited) == (0, edited), outcome.output
    assert re.search(rf"\b{passed} passed", outcome.output), outcome.output
    assert "warning" not in outcome.output.lower()
    assert outcome.last.startswith("imgedit: PASS: ")


def test_types_are_installed(repository):
    code = "from importlib.resources import files; print(*files('pytest_imgedit').glob('py.typed'))"
    assert repository.call(PYTHON, "-c", code).output.strip().endswith("py.typed")


def test_rerunfailures(repository, needs):
    needs("pytest_rerunfailures")
    outcome = repository.pytest("benchmarks/test_image_edit.py", "--reruns=2", LOW)
    assert (outcome.code, outcome.counts()) == (1, {"failed": 1, "passed": 5, "rerun": 2})
    assert outcome.edited == ALL


def test_randomly(repository, needs):
    needs("pytest_randomly")
    outcome = repository.call("pytest", "benchmarks", "-p", "randomly", "-p", "no:cacheprovider")
    assert (outcome.code, outcome.edited) == (0, ALL), outcome.output


def test_split(repository, needs):
    needs("pytest_split")
    parts = [
        repository.pytest("benchmarks/test_image_edit.py", "--splits=2", f"--group={group}").edited
        for group in (1, 2)
    ]
    assert sorted(parts[0] + parts[1]) == ALL
    assert all(parts)


def test_repeat(repository, needs):
    needs("pytest_repeat")
    outcome = repository.pytest("benchmarks/test_image_edit.py", "--count=2")
    assert (outcome.code, outcome.edited) == (0, ALL), outcome.output
    assert outcome.counts() == {"passed": 12}


def test_html(repository, needs):
    needs("pytest_html")
    outcome = repository.pytest("benchmarks", "--html=page.html", "--self-contained-html", LOW)
    assert outcome.code == 1
    page = (repository.path / "page.html").read_text()
    assert "min_score 1" in page
    assert "Traceback" not in page


def test_cov(repository, needs):
    needs("pytest_cov")
    outcome = repository.pytest(
        "benchmarks", "--cov=own_models", "--cov-fail-under=0", "-W", "default"
    )
    assert (outcome.code, outcome.edited) == (0, ALL), outcome.output


@pytest.mark.full
def test_main_called_twice_in_one_process(repository):
    code = (
        "import pytest, sys\n"
        "always = ['-q', 'benchmarks', '-p', 'no:randomly', '-k']\n"
        "codes = [int(pytest.main([*always, name])) for name in ('bags', 'shoes')]\n"
        "sys.exit(codes != [0, 0])"
    )
    outcome = repository.call(PYTHON, "-c", code)
    assert (outcome.code, outcome.edited) == (0, ALL), outcome.output


def test_switched_off(repository):
    outcome = repository.pytest("tests", "-p", "no:imgedit", "-o", "addopts=")
    assert outcome.code == 0, outcome.output
