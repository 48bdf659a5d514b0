"""Classes of the user are found in the same folders wherever a command starts, and whatever it
is.
"""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

import pytest
from folders import TEST_FILE
from PIL import Image
from worker_threads import ThreadExecutor

from pytest_imgedit.cli.main import main
from pytest_imgedit.core import errors
from pytest_imgedit.kinds import registry
from pytest_imgedit.kinds.user_code import find_user_modules
from pytest_imgedit.run.session import open_models

#: Everything that a spec of a config can name in a module of the user.
CLASSES = """
from pytest_imgedit import Answer, Call, Grammar, Protocol, mean_row
from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.suites.base import load_suite

class Editor:
    def __init__(self, *, device): pass
    def edit(self, request): return request.source.rotate(180)

class Judge:
    def __init__(self, *, device): pass
    def answer(self, questions): return [Answer("1", score=0.5) for _ in questions]

class YesNo(Protocol):
    name = "yes-no"
    scale = (0.0, 1.0)
    def calls(self, pair):
        parts = (("text", pair.instruction), ("image", "source"), ("image", "edited"))
        return [Call("done", parts, Grammar("number", ("done",), self.scale, whole=True))]
    def item(self, pair, replies):
        return {"score": replies["done"]["done"]} if replies else {}
    def tables(self, items):
        return [mean_row("done", items, ["score"], self.scale)]

def suite(argument, settings):
    return load_suite(SuiteSettings(spec="scenes:n=1")).pairs
"""
CONFIG = """
[suite]
spec = "MODULE:suite"
[editor]
spec = "MODULE:Editor"
[judge]
spec = "MODULE:Judge"
protocol = "MODULE:YesNo"
[metrics.own]
spec = "MODULE:Judge"
"""
_NUMBERS = count()  # a module is imported once a process
HOMES = [".", "benchmarks"]
#: Where commands start in a folder with a repository in it.
STARTS = ["repository", "repository/benchmarks", "."]


@pytest.fixture
def repository(bench, monkeypatch):
    """A repository as `imgedit init` makes it, whose classes are to be put somewhere."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = bench.path / "repository"
    (folder / "benchmarks").mkdir(parents=True)
    for name in ("pytest.ini", "imgedit.toml", "test_image_edit.py"):
        (bench.path / name).unlink()
    (folder / "benchmarks" / "test_image_edit.py").write_text(TEST_FILE.read_text())
    return folder


def put_classes(folder: Path, home: str) -> None:
    """Write the config of a repository, and its module into the folder `home`."""
    module = f"own_{next(_NUMBERS)}"
    (folder / home).mkdir(exist_ok=True)
    (folder / home / f"{module}.py").write_text(CLASSES)
    config = folder / "benchmarks" / "imgedit.toml"
    config.write_text(CONFIG.replace("MODULE", module))


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("home", HOMES)
@pytest.mark.everyday_for(".-repository", ".-.", "benchmarks-.")
def test_pytest_finds_classes(repository, bench, monkeypatch, home, start):
    put_classes(repository, home)
    folder = bench.path / start
    monkeypatch.chdir(folder)
    benchmarks = os.path.relpath(repository / "benchmarks", folder)
    bench.run(benchmarks, "--import-mode=importlib").assert_outcomes(passed=5)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("home", HOMES)
def test_doctor_finds_classes(repository, bench, monkeypatch, capsys, home, start):
    put_classes(repository, home)
    monkeypatch.chdir(bench.path / start)
    code = main(["doctor", f"--config={repository / 'benchmarks/imgedit.toml'}"])
    assert (code, capsys.readouterr().out.splitlines()[-1]) == (0, "no problem found")


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("home", HOMES)
@pytest.mark.everyday_for(".-repository", "benchmarks-.")
def test_qualify_finds_classes(repository, bench, monkeypatch, capsys, home, start):
    monkeypatch.setattr("pytest_imgedit.workers.local.LocalExecutor", ThreadExecutor)
    put_classes(repository, home)
    monkeypatch.chdir(bench.path / start)
    code = main(["qualify", f"--config={repository / 'benchmarks/imgedit.toml'}"])
    assert (code, capsys.readouterr().out.splitlines()[-1].split(":")[0]) == (1, "INVALID")


def test_models_of_a_script_find_classes(repository, monkeypatch):
    monkeypatch.setattr("pytest_imgedit.workers.local.LocalExecutor", ThreadExecutor)
    put_classes(repository, ".")
    with open_models(repository / "benchmarks/imgedit.toml") as models:
        photo = Image.effect_noise((40, 30), 60).convert("RGB")
        assert models.edit_workers.edit(photo, "turn it") == photo.rotate(180)


@pytest.mark.full
def test_workers_of_xdist_find_classes(repository, bench, monkeypatch):
    put_classes(repository, ".")
    monkeypatch.chdir(repository / "benchmarks")
    bench.run(".", "-n", "1").assert_outcomes(passed=5)


@pytest.mark.parametrize(
    "marker", ["pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "setup.py", None]
)
def test_folders_are_those_of_config_repository_and_command(tmp_path, monkeypatch, marker):
    monkeypatch.setattr(sys, "path", [])
    config = tmp_path / "ci" / "evaluation" / "imgedit.toml"
    elsewhere = tmp_path / "elsewhere"
    config.parent.mkdir(parents=True)
    elsewhere.mkdir()
    if marker:
        (tmp_path / marker).touch()
    monkeypatch.chdir(elsewhere)
    find_user_modules(config)
    find_user_modules(config)
    roots = [tmp_path] if marker else []
    assert sys.path == list(map(str, [config.parent, *roots, elsewhere]))


def test_the_folder_of_the_config_comes_first_and_all_behind_what_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", ["/there/before"])
    monkeypatch.chdir(tmp_path)
    find_user_modules(Path("repository/benchmarks/imgedit.toml"), tmp_path / "root", tmp_path)
    parts = ("repository/benchmarks", "repository", "root", "")
    assert sys.path == ["/there/before", *(str(tmp_path / part) for part in parts)]


@pytest.mark.parametrize("role", ["editor", "judge", "metric", "protocol", "suite"])
@pytest.mark.parametrize("module", ["nowhere", "nowhere.below"])
def test_a_module_that_is_missing_names_the_folders(tmp_path, monkeypatch, role, module):
    monkeypatch.setattr(sys, "path", [*sys.path[-1:], f"{tmp_path}/a", f"{tmp_path}/b"])
    line = (
        f"{role} '{module}:Mine': no module '{module}' with a source file in .*{tmp_path}/a, "
        f"{tmp_path}/b; move it to one of these, or add its folder to PYTHONPATH$"
    )
    with pytest.raises(errors.UsageError, match=line):
        registry.resolve(role, f"{module}:Mine", {"known": "known:Known"})


@pytest.mark.parametrize(
    ("section", "role"),
    [
        ("editor", "editor"),
        ("judge", "judge"),
        ("judges.second", "judge"),
        ("metrics.own", "metric"),
    ],
)
def test_doctor_names_every_class_that_is_missing(repository, capsys, section, role):
    config = repository / "imgedit.toml"
    config.write_text(f"[suite]\nspec = 'scenes:n=1'\n[{section}]\nspec = 'nowhere_{role}:Mine'\n")
    assert main(["doctor", f"--config={config}"]) == 1
    [line] = [text for text in capsys.readouterr().out.splitlines() if text.startswith("problem")]
    assert line.startswith(f"problem: {config}:4: {role} 'nowhere_{role}:Mine': no module ")
    assert str(repository) in line
