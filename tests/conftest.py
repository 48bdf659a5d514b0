"""Fixtures for all tests: tiny checkpoints, and a benchmark folder in which pytest runs as a user
runs it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import torchvision_ops
from folders import fill
from in_process import WITHOUT_OTHERS, run_here, run_with_threads
from required import require
from tiers import (  # noqa: F401 - hooks
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_runtest_call,
    pytest_runtest_protocol,
)
from waiting import PATIENCE, wait_until

import pytest_imgedit.run.session  # noqa: F401 - else pytester forgets it after each run in this process, numpy and all
from pytest_imgedit.kinds.change import change
from pytest_imgedit.suites.scenes import SceneImage
from pytest_imgedit.workers import editing
from pytest_imgedit.workers.local import SPIN_COUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from PIL import Image

if find_spec("hypothesis"):
    import hypothesis

    hypothesis.settings.register_profile(
        "no deadline", deadline=None
    )  # other load is to fail no test
    hypothesis.settings.load_profile("no deadline")
if sys.prefix != sys.base_prefix:  # tests run as where nobody has activated the environment
    SCRIPTS = Path(sys.executable).parent
    os.environ["PATH"] = os.pathsep.join(
        folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder) != SCRIPTS
    )
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # threads of tests that run side by side are in each other's way
os.environ.setdefault("GOMP_SPINCOUNT", str(SPIN_COUNT))
for transport in ("httpcore2", "httpcore"):  # imported by the client of servers as it connects
    if find_spec(transport):  # else pytester forgets it, and the client its exceptions
        import_module(transport)
if find_spec("torchvision"):
    torchvision_ops.install()
collect_ignore = ["support"]

CHROMIUM: dict[str, Any] = {
    "executable_path": "/usr/bin/chromium",
    "args": ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
}
PHOTOGRAPHS = Path(__file__).parent / "data" / "step1x"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Build a tiny checkpoint by its name in one of the modules of tiny checkpoints, once a
    session.
    """
    import tiny_flux2
    import tiny_models
    import tiny_pipelines

    builders = {**tiny_models.BUILDERS, **tiny_flux2.BUILDERS, **tiny_pipelines.BUILDERS}
    root, built = tmp_path_factory.mktemp("tiny"), {}

    def build(name: str) -> Path:
        if name not in built:
            builders[name](root / name)
            built[name] = root / name
        return built[name]

    return build


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of five real photographs: three causal pairs, and two logical ones, which have a
    reference image.
    """
    folder = tmp_path_factory.mktemp("photographs")
    rows = []
    for number, line in enumerate((PHOTOGRAPHS / "pairs.jsonl").read_text().splitlines()):
        pair, category = json.loads(line), "causal" if number < 3 else "logical"
        shutil.copy(PHOTOGRAPHS / pair["image"], folder / pair["image"])
        right = (
            {"reference_text": "as it was asked"} if number < 3 else {"reference": pair["image"]}
        )
        row = {"id": f"{category}-{number}", "category": category, "image": pair["image"]}
        rows.append({**row, "instruction": pair["instruction_en"], **right})
    (folder / "pairs.json").write_text(json.dumps(rows))
    return folder / "pairs.json"


@pytest.fixture(scope="session")
def pytorch() -> None:
    """Import PyTorch and diffusers once: threads for workers cannot import them, and transformers,
    at once, and a second import of PyTorch in a process, after pytester has forgotten the first one,
    is a `SystemError`.
    """
    import torch._dynamo  # noqa: F401
    from diffusers import DiffusionPipeline  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def computed_once() -> Iterator[None]:
    """Draw each scene, and measure the change of each edit, once a session: seconds of a run over
    fifty pairs, and always the same.
    """
    changes: dict[tuple[str, str], float] = {}

    def measured_once(source: Image.Image, edited: Image.Image) -> float:
        key = signature(source), signature(edited)
        if key not in changes:
            changes[key] = change(source, edited)
        return changes[key]

    def signature(image: Image.Image) -> str:
        return hashlib.sha256(repr(image.size).encode() + image.tobytes()).hexdigest()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SceneImage, "read", functools.cache(SceneImage.read))
        patch.setattr(editing, "change", measured_once)
        yield


def _changed_at(path: Path) -> int:
    return path.stat().st_mtime_ns  # the ids of runs of one second are in no order


class Bench:
    """A folder with the benchmark file and `fakes.py`, in which pytest runs as a user runs it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        fill(self.path)

    def run(self, *arguments: str) -> pytest.RunResult:
        """Run pytest to its end in this process, with threads for worker processes."""
        return run_with_threads(self.pytester, *arguments)

    def run_with_workers(self, *arguments: str) -> pytest.RunResult:
        """Run pytest to its end in this process, with worker processes."""
        return run_here(self.pytester, *arguments)

    def run_subprocess(self, *arguments: str) -> pytest.RunResult:
        """Run pytest to its end in a process of its own, with worker processes."""
        return self.pytester.runpytest_subprocess(*arguments, timeout=240)

    def refuses(self, line: str, *arguments: str) -> None:
        """Check that pytest exits 4 with one line that matches, and makes no store."""
        result = self.pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)
        assert result.ret == 4
        assert len([text for text in result.errlines if text.strip()]) == 1, result.errlines
        result.stderr.fnmatch_lines([f"ERROR: {line}"])
        assert not (self.path / ".imgedit").exists()

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start pytest in a process group of its own, for tests that interfere with it."""
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=self.path,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @staticmethod
    def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
        """All descendants of a process."""
        return psutil.Process(process.pid).children(recursive=True)

    @staticmethod
    def interrupt(process: subprocess.Popen[str]) -> None:
        """Press Ctrl-C: the whole process group gets SIGINT."""
        os.killpg(process.pid, signal.SIGINT)

    @property
    def runs(self) -> list[Path]:
        """Folders of all runs, oldest first."""
        return sorted(
            (self.path / ".imgedit" / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns
        )

    @property
    def results(self) -> dict[str, Any]:
        """The results document of the latest run."""
        document: dict[str, Any] = json.loads((self.runs[-1] / "results.json").read_text())
        return document

    def document_of(self, out: str) -> dict[str, Any]:
        """The results document of the only run in another store."""
        (path,) = (self.path / out / "runs").glob("*/results.json")
        document: dict[str, Any] = json.loads(path.read_text())
        return document

    @property
    def items(self) -> dict[str, Any]:
        """The items of the latest run by id."""
        return {item["id"]: item for item in self.results["items"]}

    @property
    def error_kinds(self) -> dict[str, str]:
        """The kind of error of each pair of the latest run that has one."""
        return {name: item["error"]["kind"] for name, item in self.items.items() if item["error"]}

    @property
    def timing(self) -> dict[str, Any]:
        timing: dict[str, Any] = self.results["timing"]
        return timing

    def records(self, journal: str) -> int:
        """How many whole records the journal `edits` or `verdicts` holds."""
        path = self.path / ".imgedit" / f"{journal}.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def stored_edits(self) -> int:
        return self.records("edits")

    def log_says(self, text: str) -> bool:
        """Tell whether the latest run's log holds a text."""
        logs = list((self.path / ".imgedit" / "runs").glob("*/run.log"))
        return bool(logs) and text in max(logs, key=_changed_at).read_text()

    @staticmethod
    def wait_for(condition: Callable[[], bool]) -> None:
        """Wait until something is true of the running benchmark."""
        wait_until(condition)

    @staticmethod
    def finish(process: subprocess.Popen[str]) -> str:
        """Wait for the end of a run, and return what it wrote."""
        return process.communicate(timeout=PATIENCE)[0]


@pytest.fixture
def bench(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A benchmark folder."""
    for name in ("GITHUB_STEP_SUMMARY", "CUDA_VISIBLE_DEVICES", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(WITHOUT_OTHERS))
    monkeypatch.setenv("COLUMNS", "600")
    return Bench(pytester)


@pytest.fixture
def needs_git() -> None:
    """Skip a test where git is not installed."""
    require(shutil.which("git"), "git (apt-get install git)")


@pytest.fixture
def needs_git_lfs() -> None:
    """Skip a test where Git LFS is not installed."""
    require(shutil.which("git-lfs"), "Git LFS (apt-get install git-lfs)")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, once a module: while Playwright is open, nothing else in the process can run an event
    loop.
    """
    require(Path(CHROMIUM["executable_path"]).exists(), "Chromium (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(**CHROMIUM)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page of 1200x900; `problems` are errors, dialogs and requests to any network.

    `until` waits for a condition in JavaScript: Playwright's own way needs an `eval` that the
    report does not allow.
    """
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.problems = []
    page.until = lambda condition: wait_until(lambda: page.evaluate(condition))
    page.on(
        "console",
        lambda message: page.problems.append(message.text) if message.type == "error" else None,
    )
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("dialog", lambda dialog: (page.problems.append("a dialog opened"), dialog.dismiss()))
    page.on(
        "request",
        lambda request: (
            page.problems.append(request.url) if request.url.startswith("http") else None
        ),
    )
    yield page
    page.close()
