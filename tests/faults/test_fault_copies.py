"""A copy of a report that cannot be written takes no verdict, item, gate or baseline with it."""

from __future__ import annotations

import errno
import json
import os
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest
from devices import device

from pytest_imgedit.report import html, markdown

RUN = ("--imgedit-limit=1", "--imgedit-editor=noise", "--imgedit-judge=fakes:Constant")
#: Nothing here is about what editors or judges do.
PLAIN = ("--imgedit-set=gates.max_near_copies=1.0", "--imgedit-set=judge.controls=false")


@pytest.fixture
def full(monkeypatch):
    """Call it with the end of a path: what is written there finds no space from then on."""

    def fill(end: str) -> None:
        sync = os.fsync

        def fsync(descriptor: int) -> None:
            name = Path(f"/proc/self/fd/{descriptor}").readlink().name
            if name.removesuffix(".partial").endswith(end):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)

    return fill


def lines_of(result: pytest.RunResult) -> list[str]:
    """The lines of a run that ended with exit code 1, and without a traceback."""
    assert result.ret == 1, result.stdout
    text = f"{result.stdout}{result.stderr}"
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    return result.outlines


def failures(path: Path) -> dict[str, str]:
    """What failed in a JUnit file, by name."""
    found = {}
    for case in ElementTree.parse(path).iter("testcase"):
        if (failure := case.find("failure")) is not None:
            found[f"{case.get('classname')}::{case.get('name')}"] = failure.get("message")
    return found


@pytest.mark.parametrize("old", ["whole and old", None], ids=["old", "new"])
@pytest.mark.parametrize("kind", ["json", "md", "html"])
@pytest.mark.everyday_for("json-old", "md-new", "html-new")
def test_the_verdict_comes_first_then_a_line_of_the_copy(bench, full, kind, old):
    copy = bench.path / f"copy.{kind}"
    if old is not None:
        copy.write_text(old)
    full(copy.name)
    options = (f"--imgedit-{kind}=copy.{kind}", "--imgedit-save=main", "--junitxml=junit.xml")
    lines = lines_of(bench.run(*RUN, *PLAIN, *options))
    _, verdict = (n for n, line in enumerate(lines) if line.startswith("imgedit: PASS"))
    saved = next(n for n, line in enumerate(lines) if line.startswith("baseline: "))
    told = next(n for n, line in enumerate(lines) if line.startswith("imgedit: FAIL: copy."))
    assert "overall" in "\n".join(lines[:verdict])
    assert verdict < saved < told
    assert "No space left on device (" in lines[told]
    assert " MiB free); the run's reports are in " in lines[told]
    assert json.loads((bench.path / "benchmarks/baselines/main.json").read_text())["items"]
    assert bench.results["run"]["status"] == "complete"
    assert (copy.read_text() if copy.exists() else None) == old
    assert not list(bench.path.rglob("*.partial"))
    (name, message), *others = failures(bench.path / "junit.xml").items()
    assert (name, others) == ("imgedit.run::complete", [])
    assert message.startswith(f"copy.{kind}: No space left on device")
    assert "5 passed" in lines[-1]


def test_other_copies_are_written_beside_one_that_is_not(bench, full):
    full("copy.md")
    copies = [f"--imgedit-{kind}=copy.{kind}" for kind in ("json", "md", "html")]
    lines = lines_of(bench.run(*RUN, *PLAIN, *copies))
    assert [line for line in lines if line.startswith("imgedit: FAIL: ")] == [
        next(line for line in lines if line.startswith("imgedit: FAIL: copy.md: "))
    ]
    assert json.loads((bench.path / "copy.json").read_text())["schema"].startswith(
        "imgedit.results"
    )
    assert "</html>" in (bench.path / "copy.html").read_text()
    assert list((bench.path / "copy_files").iterdir())


def test_copies_and_the_summary_are_those_of_the_store_and_rendered_once(bench, monkeypatch):
    made = Counter()
    for module in (html, markdown):

        def counted(*arguments, module=module, render=module.render):
            made[module.__name__.rpartition(".")[2]] += 1
            return render(*arguments)

        monkeypatch.setattr(module, "render", counted)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(bench.path / "summary"))
    copies = [f"--imgedit-{kind}=copy.{kind}" for kind in ("json", "md", "html")]
    assert bench.run(*RUN, *PLAIN, *copies, "--imgedit-html-embed").ret == 0
    assert made == {"html": 1, "markdown": 1}
    [folder] = (bench.path / ".imgedit/runs").iterdir()
    for kind, name in (("json", "results"), ("md", "report"), ("html", "report")):
        written = (folder / f"{name}.{kind}").read_bytes()
        assert (bench.path / f"copy.{kind}").read_bytes() == written
    assert (bench.path / "summary").read_bytes() == (folder / "report.md").read_bytes() + b"\n"


def test_a_device_that_is_full_is_a_copy_that_cannot_be_written(bench):
    path = device("full", bench.path)
    lines = lines_of(bench.run(*RUN, *PLAIN, f"--imgedit-json={path}"))
    assert any(line.startswith(f"imgedit: FAIL: {path}: No space left") for line in lines)
    assert path.is_char_device()


def test_thumbnails_of_a_copy_that_cannot_be_written_are_told_too(bench):
    """The folder of the thumbnails becomes a file during the run, after it was looked at."""
    (bench.path / "conftest.py").write_text(
        "from pathlib import Path\n\n\n"
        "def pytest_imgedit_report_section(results):\n"
        "    Path('copy_files').write_text('')\n"
    )
    lines = lines_of(bench.run(*RUN, *PLAIN, "--imgedit-html=copy.html"))
    assert any(line.startswith("imgedit: FAIL: copy.html: ") for line in lines)
    assert not (bench.path / "copy.html").exists()


def test_a_run_that_fails_says_so_beside_its_copy(bench, full):
    full("copy.json")
    lines = lines_of(
        bench.run(*RUN, *PLAIN, "--imgedit-json=copy.json", "--imgedit-fail-under=overall:9.9")
    )
    assert any(line.startswith("imgedit: INCONCLUSIVE: overall") for line in lines)
    assert any(line.startswith("imgedit: FAIL: copy.json: No space") for line in lines)


@pytest.mark.full
def test_under_xdist_too(bench):
    path = device("full", bench.path)
    result = bench.run_subprocess(
        *(*RUN, *PLAIN, f"--imgedit-md={path}", "-n", "2", "--junitxml=junit.xml")
    )
    lines = lines_of(result)
    assert any(line.startswith(f"imgedit: FAIL: {path}: No space left") for line in lines)
    assert any(line.startswith("imgedit: PASS") for line in lines)
    assert "imgedit.run::complete" in failures(bench.path / "junit.xml")


def test_on_github_the_copy_is_an_error_and_its_summary_is_harmless(bench, full, monkeypatch):
    """A summary that nobody reads is not waited for."""
    os.mkfifo(bench.path / "summary")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(bench.path / "summary"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    full("copy.json")
    lines = lines_of(bench.run(*RUN, *PLAIN, "--imgedit-json=copy.json"))
    assert any(line.startswith("::error title=imgedit::copy.json: No space") for line in lines)
