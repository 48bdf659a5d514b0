"""A folder of a user of the installed package: of that which `IMGEDIT_INSTALLED_PYTHON` has, or
else of this one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from in_process import WITHOUT_OTHERS, run_with_threads
from PIL import Image

TEMPLATE = Path(__file__).parent / "repository"
PYTHON = os.environ.get("IMGEDIT_INSTALLED_PYTHON", sys.executable)


@dataclass
class Outcome:
    """How one call of pytest or imgedit ended: exit code, output, and the pairs that were edited,
    in order.
    """

    code: int
    output: str
    edited: list[str]

    @property
    def last(self) -> str:
        """The verdict: the last line that the plugin printed."""
        return next(
            (line for line in reversed(self.output.splitlines()) if line.startswith("imgedit: ")),
            "",
        )

    def counts(self) -> dict[str, int]:
        """The counts of pytest's last line, such as `{"passed": 6}`."""
        words = self.output.strip().splitlines()[-1].strip("= ").replace(",", "").split()
        return {word: int(before) for before, word in pairwise(words) if before.isdigit()}


class Repository:
    """A folder in which commands of the installed package are called as a user calls them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("PYTEST", "GITHUB", "COV"))
            },
            "EDITED": str(path / "edited.txt"),
            "PYTEST_ADDOPTS": " ".join(WITHOUT_OTHERS),
            "COLUMNS": "100",
            "HF_HUB_OFFLINE": "1",
            "PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def call(self, *command: str, cwd: str = ".") -> Outcome:
        """Run a command to its end."""
        (self.path / "edited.txt").unlink(missing_ok=True)
        result = subprocess.run(
            command,
            cwd=self.path / cwd,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )
        return Outcome(result.returncode, result.stdout, self.edited())

    def edited(self) -> list[str]:
        """The pairs that the last call has edited, in order."""
        path = self.path / "edited.txt"
        return sorted(path.read_text().splitlines()) if path.exists() else []

    def pytest(self, *arguments: str, cwd: str = ".") -> Outcome:
        """Run pytest in the order in which items are collected."""
        return self.call(PYTHON, "-m", "pytest", "-p", "no:randomly", *arguments, cwd=cwd)

    def results(self) -> dict[str, Any]:
        """The results document of the latest run."""
        runs = sorted(
            self.path.glob("**/runs/*/results.json"), key=lambda path: path.stat().st_mtime_ns
        )
        document: dict[str, Any] = json.loads(runs[-1].read_text())
        return document

    def junit(self, name: str = "junit.xml") -> dict[str, str]:
        """Outcome of each test case of a JUnit report by `classname::name`."""
        cases = ElementTree.parse(self.path / name).iter("testcase")
        return {
            f"{case.get('classname')}::{case.get('name')}": next(
                (child.tag for child in case if child.tag in ("failure", "error", "skipped")),
                "passed",
            )
            for case in cases
        }


def fill_repository(folder: Path) -> None:
    """Copy the template of a user's repository into a folder, with its six photographs."""
    shutil.copytree(TEMPLATE, folder, dirs_exist_ok=True)
    for line in (folder / "data" / "pairs.jsonl").read_text().splitlines():
        Image.effect_noise((48, 40), 60).convert("RGB").save(
            folder / "data" / json.loads(line)["image"]
        )


class RepositoryHere(Repository):
    """The same, with pytest in the test's own process and threads for workers."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(pytester.path)
        self.pytester = pytester
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        for name in set(os.environ) - set(self.environment):
            monkeypatch.delenv(name)

    def pytest(self, *arguments: str, cwd: str = ".") -> Outcome:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.path / cwd)
            (self.path / "edited.txt").unlink(missing_ok=True)
            result = run_with_threads(self.pytester, *arguments)
        return Outcome(
            int(result.ret), "\n".join([*result.errlines, *result.outlines]), self.edited()
        )


def has(module: str) -> bool:
    """Tell whether the interpreter under test has a module."""
    if module not in _KNOWN:
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        _KNOWN[module] = subprocess.run([PYTHON, "-c", code], check=False).returncode == 0
    return _KNOWN[module]


_KNOWN: dict[str, bool] = {}
