"""The versions of this package and of installed ones; standard library only, since other
interpreters run it.
"""

from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.1.0"


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {package: _version(package) for package in packages}
    return {package: number for package, number in found.items() if number is not None}


@cache  # it parses a file
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
