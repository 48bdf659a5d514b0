"""Commands take the config that pytest's ini key names in the files that pytest reads."""

from __future__ import annotations

import pytest

from pytest_imgedit.cli.comparable import baseline_store, baselines_folder
from pytest_imgedit.config.ini_file import configs_here
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.report import outputs

KEY = "imgedit_config = nightly/own.toml\n"
TOML = 'imgedit_config = "nightly/own.toml"\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Stand in a folder that has a config under a name of the user's."""
    (tmp_path / "nightly").mkdir()
    (tmp_path / "nightly" / "pairs.jsonl").write_text("")
    (tmp_path / "nightly" / "own.toml").write_text(
        "[suite]\nspec = 'pairs.jsonl'\n[gates]\nbaselines = 'old'\nbaseline_store = 'edits'\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names():
    return [config.path.name for config in configs_here()]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", f"[pytest]\n{KEY}"),
        (".pytest.ini", f"[pytest]\naddopts = -q\n  --strict-markers\n{KEY}"),
        ("pytest.ini", "[pytest]\nimgedit_config: nightly/own.toml\nlog_format = %(message)s\n"),
        ("tox.ini", f"[tox]\nenvlist = py\n[pytest]\n{KEY}"),
        ("setup.cfg", f"[metadata]\nname = a\n[tool:pytest]\n{KEY}"),
        ("pytest.toml", f"[pytest]\n{TOML}"),
        (".pytest.toml", f"[pytest]\n{TOML}"),
        ("pyproject.toml", f"[tool.pytest.ini_options]\n{TOML}"),
        ("pyproject.toml", f"[tool.pytest]\n{TOML}"),
    ],
)
def test_the_config_of_the_ini_key_is_that_of_commands(folder, name, text):
    (folder / name).write_text(text)
    assert names() == ["own.toml"]
    assert str(baselines_folder()) == "nightly/old"
    assert str(baseline_store()) == "nightly/edits"
    assert [path.name for path in outputs.inputs(folder / "none")] == ["pairs.jsonl"]


def test_other_configs_come_after_it(folder):
    (folder / "pytest.ini").write_text(f"[pytest]\n{KEY}")
    (folder / "imgedit.toml").write_text("[gates]\nbaselines = 'other'\n")
    assert names() == ["own.toml", "imgedit.toml"]
    assert str(baselines_folder()) == "nightly/old"


@pytest.mark.parametrize(
    ("first", "text"),
    [
        ("pytest.ini", ""),
        (".pytest.ini", "[pytest]\naddopts = -q\n"),
        ("pytest.toml", ""),
        ("pyproject.toml", "[tool.pytest.ini_options]\naddopts = '-q'\n"),
        ("pytest.ini", "[pytest]\nimgedit_config =\n"),
    ],
)
def test_only_the_file_that_configures_pytest_counts(folder, first, text):
    (folder / "tox.ini").write_text(f"[pytest]\n{KEY}")
    assert names() == ["own.toml"]
    (folder / first).write_text(text)
    assert names() == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "[project]\nname = 'a'\n"),
        ("pyproject.toml", "tool = 3\n"),
        ("pyproject.toml", "[tool]\npytest = 3\n"),
        ("tox.ini", "[tox]\nenvlist = py\n"),
        ("setup.cfg", f"[pytest]\n{KEY}"),
        ("tox.ini", f"no section\n[pytest]\n{KEY}"),
    ],
)
def test_a_file_without_a_section_of_pytest_names_none(folder, name, text):
    (folder / name).write_text(text)
    assert names() == []


def test_a_config_that_is_named_and_not_there_is_refused(folder):
    (folder / "pytest.ini").write_text("[pytest]\nimgedit_config = nowhere.toml\n")
    with pytest.raises(UsageError, match=r"nowhere\.toml"):
        baselines_folder()
