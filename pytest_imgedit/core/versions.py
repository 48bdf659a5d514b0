"""The versions of this package and of installed ones; standard library only, since other
interpreters run it.
"""

from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.1.0"


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    versions = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions
