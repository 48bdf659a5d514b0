"""The provenance of results: versions of packages, the machine, and the commit of the working
folder.
"""

import os
import platform
import subprocess
from collections.abc import Iterable

from pytest_imgedit.core.results import Commit, Machine
from pytest_imgedit.core.versions import versions_of

PACKAGES = (
    "pytest-imgedit",
    "pytest",
    "torch",
    "torchvision",
    "diffusers",
    "transformers",
    "pillow",
    "numpy",
)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that influence results."""
    return {"python": platform.python_version(), **versions_of(PACKAGES)}


def machine(gpus: Iterable[str]) -> Machine:
    """Return the machine without its name; `gpus` are the products of the GPUs in use."""
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        cpus=os.cpu_count(),
        gpus=tuple(gpus),
    )


def commit() -> Commit | None:
    """Return the commit of the working folder's git repository, and whether tracked files differ
    from it; `None` without git or a commit.
    """
    sha = git("rev-parse", "HEAD")
    status = git("status", "--porcelain", "--untracked-files=no")
    if sha is None or status is None:
        return None
    return Commit(sha=sha, branch=git("rev-parse", "--abbrev-ref", "HEAD"), dirty=bool(status))


def git(*arguments: str) -> str | None:
    """Return the output of a git command for the working folder; `None` if it fails, or takes more
    than 10 seconds.
    """
    try:
        return subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
