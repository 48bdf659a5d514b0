"""The version of this package and of installed ones; standard library alone, since other
interpreters run it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.1.0"


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Versions of packages, as far as they are installed."""
    found = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
