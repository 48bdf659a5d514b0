"""Folders of users in which the installed package is used."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image
from required import require
from user_folder import Repository, has

TEMPLATE = Path(__file__).parent / "template"
collect_ignore = ["template"]  # its tests are run in copies of it


@pytest.fixture
def needs():
    """Skip a test unless the interpreter under test has a plugin."""

    def check(module: str) -> None:
        require(has(module), f"{module} (pip install -r tests/installed/requirements.txt)")

    return check


@pytest.fixture
def empty(tmp_path) -> Repository:
    """An empty folder."""
    return Repository(tmp_path)


@pytest.fixture
def repository(tmp_path) -> Repository:
    """A copy of the template repository, with its six photographs."""
    folder = tmp_path / "repository"
    shutil.copytree(TEMPLATE, folder)
    for line in (folder / "data" / "pairs.jsonl").read_text().splitlines():
        Image.effect_noise((48, 40), 60).convert("RGB").save(folder / "data" / json.loads(line)["image"])
    return Repository(folder)
