"""The version at hand as a line of a requirements file, so that CI installs the same one."""

from __future__ import annotations

import json
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pytest_imgedit.core.provenance import git
from pytest_imgedit.core.versions import __version__

NAME = "pytest-imgedit"


class Requirement(NamedTuple):
    """A line for pip, and whether only this machine can install from it."""

    line: str
    is_local: bool


def requirement(extra: str = "") -> Requirement:
    """Return what installs this version of the package again, with an extra if one is named."""
    origin = distribution(NAME).read_text("direct_url.json")
    return of_origin(json.loads(origin) if origin else None, f"{NAME}[{extra}]" if extra else NAME)


def of_origin(origin: Any, name: str = NAME) -> Requirement:
    """Return the requirement for a `direct_url.json` (PEP 610), or for `None`, which is what an
    index leaves.
    """
    if origin is None:
        return Requirement(f"{name}=={__version__}", is_local=False)
    url: str = origin["url"]
    is_local = url.startswith("file:")
    if version_control := origin.get("vcs_info"):
        return Requirement(
            f"{name} @ {version_control['vcs']}+{url}@{version_control['commit_id']}", is_local
        )
    if "dir_info" in origin and (remote := _remote(Path(unquote(urlsplit(url).path)))):
        return Requirement(f"{name} @ {remote}", is_local=False)
    return Requirement(f"{name} @ {url}", is_local)


def _remote(folder: Path) -> str | None:
    """Return the URL of the remote of a clone, with the commit that is checked out, as pip takes
    it.
    """
    remote = git("-C", str(folder), "remote", "get-url", "origin")
    commit = git("-C", str(folder), "rev-parse", "HEAD")
    if not remote or not commit or remote.startswith(("/", ".", "file:")):
        return None
    if "://" not in remote:  # user@host:path, as for ssh
        remote = "ssh://" + remote.replace(":", "/", 1)
    return f"git+{remote}@{commit}"
