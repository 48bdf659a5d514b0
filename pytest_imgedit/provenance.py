"""Where results come from: versions of packages, the machine, and the commit of the working folder."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

PACKAGES = ("pytest-imgedit", "pytest", "torch", "torchvision", "diffusers", "transformers", "pillow", "numpy")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide results, as far as they are installed."""
    return {"python": platform.python_version(), **versions_of(PACKAGES)}


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Versions of packages, as far as they are installed."""
    found = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def machine(gpus: Iterable[str]) -> dict[str, Any]:
    """Describe the machine without naming it; `gpus` are the products of those that are used."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "gpus": list(gpus),
    }


def commit() -> dict[str, Any] | None:
    """Return `sha`, `branch` and `dirty` of the git repository that holds the working folder; `None` without one."""
    sha, status = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    if sha is None or status is None:
        return None
    return {"sha": sha, "branch": _git("rev-parse", "--abbrev-ref", "HEAD"), "dirty": bool(status)}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
