"""Folders of users in which the installed package is used."""

from __future__ import annotations

import pytest
from required import require
from user_folder import Repository, fill_repository, has


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
    fill_repository(folder)
    return Repository(folder)
