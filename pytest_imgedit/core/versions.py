"""Versions of installed packages; imports nothing but the standard library, since other interpreters run it."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Versions of packages, as far as they are installed."""
    found = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
