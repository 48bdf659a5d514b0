"""Relative paths in a config are relative to the config."""

from __future__ import annotations

import os

import pytest

from pytest_imgedit.config.toml_file import ConfigFile, configs_of, rebase_paths
from pytest_imgedit.core.errors import UsageError


@pytest.fixture
def inside(tmp_path, monkeypatch):
    """Stand in a folder beside the config's, which holds a checkpoint."""
    (tmp_path / "configs" / "models" / "mine").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "configs"


@pytest.mark.parametrize(
    ("section", "key", "value", "expected"),
    [
        ("suite", "spec", "data/pairs.json", "../configs/data/pairs.json"),
        ("suite", "spec", "pairs.csv", "../configs/pairs.csv"),
        ("suite", "spec", "../data/pairs.jsonl", "../data/pairs.jsonl"),
        ("suite", "spec", "risebench:data", "risebench:../configs/data"),
        ("suite", "spec", "scenes:n=5", "scenes:n=5"),
        ("suite", "spec", "/data/pairs.json", "/data/pairs.json"),
        ("suite", "root", "..", ".."),
        ("suite", "root", "images", "../configs/images"),
        ("editor", "spec", "folder:out?{id}.png", "folder:../configs/out?{id}.png"),
        ("editor", "spec", "diffusers:models/mine", "diffusers:../configs/models/mine"),
        ("editor", "spec", "diffusers:./models/absent", "diffusers:../configs/models/absent"),
        ("editor", "spec", "diffusers:Qwen/Qwen-Image-Edit", "diffusers:Qwen/Qwen-Image-Edit"),
        ("editor", "spec", "own.module:Class", "own.module:Class"),
        ("editor", "spec", "openai-images:http://a/b#c", "openai-images:http://a/b#c"),
        ("editor", "loras", [{"path": "a", "weight": 2}], [{"path": "../configs/a", "weight": 2}]),
        ("judge", "spec", "qwen-vl:../configs/models/mine", "qwen-vl:../configs/models/mine"),
        ("judge", "adapter", "lora", "../configs/lora"),
        ("protocols", "mine", {"file": "mine.toml"}, {"file": "../configs/mine.toml"}),
        ("gates", "baselines", "old", "../configs/old"),
        ("gates", "baseline_store", "edits", "../configs/edits"),
        ("gates", "compare", "main", "main"),
        ("gates", "compare", "old/main.json", "../configs/old/main.json"),
        ("workers", "judge_python", "python3", "python3"),
        ("workers", "judge_python", "env/bin/python", "../configs/env/bin/python"),
        ("workers", "gpus", 3, 3),
        ("suite", "spec", 3, 3),
    ],
)  # fmt: skip
def test_path_is_relative_to_the_config(inside, section, key, value, expected):
    given = {section: {key: value}}
    assert rebase_paths(given, inside) == {section: {key: expected}}
    assert given == {section: {key: value}}


def test_paths_stay_as_they_are_beside_the_config(inside, monkeypatch):
    monkeypatch.chdir(inside)
    tables = {"suite": {"spec": "pairs.json"}}
    assert rebase_paths(tables, inside) is tables


def test_a_table_of_pyproject_is_a_config_with_its_lines(inside):
    (inside / "pyproject.toml").write_text(
        '[project]\nname = "x"\n[tool.imgedit.suite]\nspec = "pairs.json"\n'
    )
    file = ConfigFile.read_project(inside / "pyproject.toml")
    assert file.tables == {"suite": {"spec": "../configs/pairs.json"}}
    assert file.place("suite", "spec").endswith("pyproject.toml:4: ")


@pytest.mark.parametrize("text", ["", "[tool.other]\na = 1\n", "[project]\nname = 'x'\n"])
def test_a_pyproject_without_the_table_is_no_config(inside, text):
    (inside / "pyproject.toml").write_text(text)
    assert configs_of(inside, inside) == {}


def test_a_table_of_pyproject_that_is_none_is_refused(inside):
    (inside / "pyproject.toml").write_text("[tool]\nimgedit = 3\n")
    with pytest.raises(UsageError, match=r"pyproject.toml: tool.imgedit is 3, expected a table"):
        configs_of(inside, inside)


def test_the_nearest_config_counts_beside_that_of_pyproject(inside):
    (inside / "pyproject.toml").write_text("[tool.imgedit.suite]\nlimit = 1\n")
    for name in ("imgedit.toml", "benchmarks/imgedit.toml", "a/b/benchmarks/imgedit.toml"):
        (inside / name).parent.mkdir(parents=True, exist_ok=True)
        (inside / name).write_text("[suite]\nlimit = 2\n")
    project = "[tool.imgedit] in pyproject.toml"
    for near, nearest in (
        (".", "imgedit.toml"),
        ("benchmarks", "benchmarks/imgedit.toml"),
        ("a", "imgedit.toml"),
        ("a/b", "a/b/benchmarks/imgedit.toml"),
        ("a/b/benchmarks", "a/b/benchmarks/imgedit.toml"),
        ("elsewhere/deep", "imgedit.toml"),
    ):
        assert list(configs_of(inside, inside / near)) == [project, str(inside / nearest)], near


def test_a_config_above_the_root_is_none_of_the_repository(inside):
    (inside / "imgedit.toml").write_text("[suite]\nlimit = 2\n")
    (inside / "root" / "benchmarks").mkdir(parents=True)
    assert configs_of(inside / "root", inside / "root" / "benchmarks") == {}


@pytest.mark.parametrize("name", ["imgedit.toml", "benchmarks/imgedit.toml", "pyproject.toml"])
@pytest.mark.parametrize("kind", ["broken-link", "fifo", "folder", "not-utf8"])
def test_a_config_that_cannot_be_read_is_never_passed_over(inside, name, kind):
    path = inside / name
    path.parent.mkdir(exist_ok=True)
    if kind == "broken-link":
        path.symlink_to("nowhere.toml")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"[suite]\nspec = '\xff'\n")
    with pytest.raises(UsageError, match=f"{path}: .*, expected a TOML file"):
        configs_of(inside, inside)
