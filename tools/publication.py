"""Writes where the project lives, and how it is installed, into every file that says so:
`python -m tools.publication`.

`publication.toml` is the one place to change. A test fails where a file says something else.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Files that may name the project's address, its maintainers or its contact.
PATTERNS = ("*.md", "*.toml", "*.yml", "*.cff", ".github/**/*", "docs/**/*.md", "packages/*/*.md")
SOURCE = ROOT / "publication.toml"
_ADDRESS = re.compile(r"(?<=https://github\.com/)[\w-]+(?=/pytest-imgedit\b)")
_MAINTAINERS = re.compile(r"(?<![\w.])@[\w-]+/[\w-]+$", re.MULTILINE)
_CONTACT = re.compile(r"(?<=<)[\w.+-]+@[\w.-]+(?=>)")
_INSTALLATION = re.compile(
    r"^pip install (?:git\+https://github\.com/[\w-]+/)?pytest-imgedit$", re.MULTILINE
)


@dataclass(frozen=True)
class Publication:
    """What `publication.toml` says."""

    owner: str
    maintainers: str
    contact: str
    on_pypi: bool

    @property
    def repository(self) -> str:
        return f"https://github.com/{self.owner}/pytest-imgedit"

    @property
    def installation(self) -> str:
        """The command that installs the package where it is published."""
        source = "pytest-imgedit" if self.on_pypi else f"git+{self.repository}"
        return f"pip install {source}"

    def applied_to(self, text: str) -> str:
        """Return a text with the address, maintainers, contact and command of this publication."""
        text = _INSTALLATION.sub(self.installation, text)
        text = _ADDRESS.sub(self.owner, text)
        text = _MAINTAINERS.sub(f"@{self.owner}/{self.maintainers}", text)
        return _CONTACT.sub(self.contact, text)


def publication() -> Publication:
    """Read `publication.toml`. Raises `TypeError` for a key that is missing or unknown."""
    return Publication(**tomllib.loads(SOURCE.read_text("utf-8")))


def files() -> Iterator[Path]:
    """Yield the files that may name what `publication.toml` holds; it is not one of them."""
    found = {path for pattern in PATTERNS for path in ROOT.glob(pattern) if path.is_file()}
    yield from sorted(found - {SOURCE})


def texts() -> dict[Path, str]:
    """Return each of these files as it must be."""
    here = publication()
    return {path: here.applied_to(path.read_text("utf-8")) for path in files()}


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text, "utf-8")
