"""Where the project lives is said in one file, and everything else agrees with it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tools import publication
from tools.publication import Publication, files, texts

ROOT = Path(__file__).parent.parent.parent
ACME = Publication(owner="acme", maintainers="eval", contact="us@acme.dev", on_pypi=True)


@pytest.mark.parametrize("path", list(files()), ids=lambda path: str(path.relative_to(ROOT)))
def test_file_says_what_the_publication_says(path):
    assert texts()[path] == path.read_text("utf-8"), "run python -m tools.publication"


def test_owner_is_named_nowhere_else():
    owner = publication.publication().owner
    found = subprocess.run(
        ["git", "grep", "--name-only", "-w", owner], cwd=ROOT, capture_output=True, text=True
    )
    if found.returncode > 1:
        pytest.skip("this is no clone")
    known = {str(path.relative_to(ROOT)) for path in files()}
    assert set(found.stdout.split()) <= known | {"publication.toml"}
    for path in files():
        assert owner not in ACME.applied_to(path.read_text("utf-8")), path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://github.com/old/pytest-imgedit/blob/main/x", "see https://github.com/acme/pytest-imgedit/blob/main/x"),
        ("* @old/maintainers\n", "* @acme/eval\n"),
        ("write to <a.b@old.org>.", "write to <us@acme.dev>."),
        ("pip install git+https://github.com/old/pytest-imgedit\n", "pip install pytest-imgedit\n"),
        ("https://github.com/old/other stays", "https://github.com/old/other stays"),
        ("uses: actions/checkout@v7", "uses: actions/checkout@v7"),
    ],
)  # fmt: skip
def test_each_mention_is_replaced(text, expected):
    assert ACME.applied_to(text) == expected


def test_without_an_index_the_package_is_installed_from_the_repository():
    here = Publication(owner="acme", maintainers="eval", contact="us@acme.dev", on_pypi=False)
    command = "pip install git+https://github.com/acme/pytest-imgedit"
    assert here.applied_to("pip install pytest-imgedit") == command


def test_the_citation_has_the_version_of_the_package():
    from pytest_imgedit.core.versions import __version__

    [version] = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert version == __version__
