"""Where results are computed: library versions, device, processor; and which results count as made
here.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from pytest_imgedit.core.versions import versions_of

Reuse = Literal["exact", "compatible", "any"]
#: Seconds in which an interpreter must have told the versions of its packages.
ANSWER = 15
_SCRIPT = """
import json, sys
sys.path += [path for path in {paths!r} if path not in sys.path]
from pytest_imgedit.core.versions import versions_of
print(json.dumps(versions_of({names!r})))
"""


class Environment(BaseModel):
    """Where a record was computed. `None` stands for what is not known before something was
    computed.

    `device` is `cpu`, `cuda`, or `server` for what computes elsewhere; `gpu` the product;
    `versions` those of the libraries that computed; `processor` the class that prepared images for
    a judge; `compiled` says whether an editor's networks, or what a judge computes between matrix
    products, were; `threads` in how many threads a CPU computed, by which sums are split and so
    rounded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    device: Literal["cpu", "cuda", "server"]
    gpu: str | None = None
    versions: dict[str, str]
    processor: str | None = None
    compiled: bool | None = None
    threads: int | None = None

    @property
    def digest(self) -> str:
        """Twelve hex digits that name this environment in results."""
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()[
            :12
        ]

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(self.versions.items()))
        return f"{self.device}{f' {self.gpu}' if self.gpu else ''}: {versions}"

    def differences(self, here: Environment) -> list[str]:
        """Say in what this environment differs from `here`, such as `torch 2.12.1 there, 2.13.0
        here`.
        """
        found = [
            f"{name} {self.versions.get(name, 'absent')} there, "
            f"{here.versions.get(name, 'absent')} here"
            for name in sorted({*self.versions, *here.versions})
            if self.versions.get(name) != here.versions.get(name)
        ]
        for name in ("device", "gpu", "processor", "compiled", "threads"):
            was, now = getattr(self, name), getattr(here, name)
            if was != now and None not in (was, now):
                found.append(f"{name} {was} there, {now} here")
        return found

    def serves(self, here: Environment, policy: Reuse) -> bool:
        """Tell whether a record that was computed in this environment may be reused `here`.

        `exact` wants no difference, `compatible` the same device kind, the same libraries and of
        each the same major and minor version, `any` nothing.
        """
        if policy == "any":
            return True
        if policy == "exact":
            return not self.differences(here)
        return self.device == here.device and alike(self.versions, here.versions)


def _minor(versions: dict[str, str]) -> dict[str, list[str]]:
    return {name: version.partition("+")[0].split(".")[:2] for name, version in versions.items()}


@cache
def ask_versions(
    python: str, names: tuple[str, ...], paths: tuple[str, ...] = (), patience: float = ANSWER
) -> dict[str, str]:
    """Start an interpreter and have it tell the versions of packages, those in further `paths`
    included.

    Raises `ValueError` or `subprocess.SubprocessError` if it does not within `patience` seconds.
    """
    # In a session of its own, below a shell, so that whatever the interpreter is, it ends and
    # touches nothing here.
    script = _SCRIPT.format(names=list(names), paths=list(paths))
    command = ["/bin/sh", "-c", '"$0" "$@"; exit $?', python, "-c", script]
    asked = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        found: dict[str, str] = json.loads(asked.communicate(timeout=patience)[0])
    finally:
        with suppress(OSError):
            os.killpg(asked.pid, signal.SIGKILL)
        asked.wait()
    return found


def versions_in(python: str | None, names: Sequence[str]) -> dict[str, str]:
    """Return the versions of packages in an interpreter (`None`: this one), as far as they are
    installed there.

    One that cannot tell has none, so that nothing stored counts as made there; its workers will say
    what is wrong.
    """
    if python in (None, sys.executable) or not names:
        return versions_of(names)
    try:
        return dict(ask_versions(str(python), tuple(names)))
    except (ValueError, subprocess.SubprocessError):
        return {}


def alike(one: dict[str, str], other: dict[str, str]) -> bool:
    """Tell whether two interpreters have the same packages, of each the same major and minor
    version.
    """
    return _minor(one) == _minor(other)


def key(recipe: Mapping[str, Any], environment: Environment | None = None) -> str:
    """Hash a recipe, and the environment where it counts; recipes must be plain JSON values."""
    parts = [recipe] if environment is None else [recipe, environment.model_dump()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
