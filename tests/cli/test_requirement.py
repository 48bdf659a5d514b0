"""What `imgedit init` has CI install is the version at hand."""

from __future__ import annotations

import subprocess

import pytest

from pytest_imgedit.cli.ci import is_local, of_origin, with_extras
from pytest_imgedit.core.versions import __version__

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("origin", "line", "is_here"),
    [
        pytest.param(None, f"pytest-imgedit=={__version__}", False, id="index"),
        pytest.param(
            {"url": "https://example.org/a.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"pytest-imgedit @ git+https://example.org/a.git@{COMMIT}",
            False,
            id="git",
        ),
        pytest.param(
            {"url": "file:///home/me/a", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"pytest-imgedit @ git+file:///home/me/a@{COMMIT}",
            True,
            id="local-git",
        ),
        pytest.param(
            {"url": "https://example.org/a.whl", "archive_info": {}},
            "pytest-imgedit @ https://example.org/a.whl",
            False,
            id="wheel",
        ),
        pytest.param(
            {"url": "file:///tmp/a.whl", "archive_info": {}},
            "pytest-imgedit @ file:///tmp/a.whl",
            True,
            id="local-wheel",
        ),
        pytest.param(
            {"url": "file:///no/such", "dir_info": {"editable": True}},
            "pytest-imgedit @ file:///no/such",
            True,
            id="folder",
        ),
    ],
)
def test_requirement_says_where_the_package_came_from(origin, line, is_here):
    assert of_origin(origin) == line
    assert is_local(f"numpy\n{line}\nother @ file:///tmp/other\n") == is_here


@pytest.mark.usefixtures("needs_git")
@pytest.mark.parametrize(
    ("remote", "url"),
    [
        ("https://example.org/me/a.git", "git+https://example.org/me/a.git"),
        ("git@example.org:me/a.git", "git+ssh://git@example.org/me/a.git"),
    ],
)
def test_a_clone_is_its_remote_and_commit(tmp_path, remote, url):
    clone = tmp_path / "a clone"
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    subprocess.run(["git", "init", "-q", clone], check=True)
    subprocess.run(["git", "-C", clone, "remote", "add", "origin", remote], check=True)
    subprocess.run(
        ["git", "-C", clone, *identity, "commit", "-q", "--allow-empty", "-m", "x"], check=True
    )
    commit = subprocess.run(
        ["git", "-C", clone, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    origin = {"url": clone.as_uri(), "dir_info": {"editable": True}}
    expected = f"pytest-imgedit[openai] @ {url}@{commit.stdout.strip()}"
    assert of_origin(origin, "pytest-imgedit[openai]") == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pytest-imgedit==1.0\n", "pytest-imgedit[openai,lora]==1.0\n"),
        ("pytest-imgedit", "pytest-imgedit[openai,lora]"),
        (
            "# ours\r\n-c pins.txt\r\npytest-imgedit @ git+https://e.org/a@1  # fork\r\n",
            "# ours\r\n-c pins.txt\r\npytest-imgedit[openai,lora] @ git+https://e.org/a@1  # fork\r\n",
        ),
        ("pytest-imgedit[ray] >= 1; python_version > '3'", None),
        ("pytest-imgedit [lora]>=1", "pytest-imgedit[lora,openai]>=1"),
        ("pytest_imgedit\nnumpy\n", "pytest_imgedit[openai,lora]\nnumpy\n"),
        ("pytest-imgedit[lora, openai]==1\n", "pytest-imgedit[lora, openai]==1\n"),
        ("pytest-imgedit-more==1\n", "pytest-imgedit-more==1\n"),
        ("numpy\n# pytest-imgedit is installed by hand\n",) * 2,
        ("git+https://example.org/a\n", "git+https://example.org/a\n"),
    ],
)
def test_extras_are_added_to_the_line_of_this_package_alone(before, after):
    expected = after or before.replace("[ray]", "[ray,openai,lora]")
    assert with_extras(before, ["openai", "lora"]) == expected
    assert with_extras(expected, ["openai", "lora"]) == expected
