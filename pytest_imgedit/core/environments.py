"""Environments of results (library versions, device, processor), and which of them may serve
another environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from pytest_imgedit.core.versions import versions_of

Reuse = Literal["exact", "compatible", "any"]
#: Seconds within which an interpreter must report the versions of its packages.
ANSWER = 15
_SCRIPT = """
import json, sys
sys.path += [path for path in {paths!r} if path not in sys.path]
from pytest_imgedit.core.versions import versions_of
print(json.dumps(versions_of({names!r})))
"""


class Environment(BaseModel):
    """Where a record was computed. `None` stands for a value that is unknown before the first
    computation.

    `device` is `cpu`, `cuda`, or `server` for a model behind a server. `gpu` is the product name,
    `versions` those of the libraries that computed, `processor` the class that prepared images for
    a judge. `compiled` says whether an editor's networks, or a judge's operations between matrix
    products, were compiled. `threads` is the number of CPU threads, which decides how sums are
    split and rounded. `probe` is the digest of what the loaded model makes of a fixed request:
    workers with other probes compute other edits or verdicts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    device: Literal["cpu", "cuda", "server"]
    gpu: str | None = None
    versions: dict[str, str]
    processor: str | None = None
    compiled: bool | None = None
    threads: int | None = None
    probe: str | None = None

    @property
    def digest(self) -> str:
        """Twelve hex digits that name this environment in results."""
        return key(self.model_dump())[:12]

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(self.versions.items()))
        device = f"{self.device} {self.gpu}" if self.gpu else self.device
        return f"{device}: {versions}"

    def differences(self, here: Environment, shared: Collection[str] | None = None) -> list[str]:
        """List the differences of this environment from `here`, such as `torch 2.12.1 there, 2.13.0
        here`; those of the probes, which belong to a model, are told by `has_other_probe`.

        If two models computed, a package that one environment does not have is a difference only if
        it is among the `shared` ones, which both models import.
        """
        packages = self.versions.keys() | here.versions.keys()
        if shared is not None:
            in_both = self.versions.keys() & here.versions.keys()
            packages = in_both | (packages & set(shared))
        values: list[tuple[str, Any, Any]] = []
        for name in sorted(packages):
            was = self.versions.get(name, "absent")
            values.append((name, was, here.versions.get(name, "absent")))
        for name in ("device", "gpu", "processor", "compiled", "threads"):
            values.append((name, getattr(self, name), getattr(here, name)))
        return [
            f"{name} {was} there, {now} here"
            for name, was, now in values
            if was != now and None not in (was, now)
        ]

    def has_other_probe(self, here: Environment) -> bool:
        """Tell whether one model computes otherwise in this environment than `here`, although both
        are of one type of GPU.

        What is unknown is no difference, and neither are other types of GPU, which round otherwise.
        """
        is_one_type = (self.device, self.gpu) == (here.device, here.gpu)
        return is_one_type and None not in (self.probe, here.probe) and self.probe != here.probe

    def serves(self, here: Environment, policy: Reuse) -> bool:
        """Return whether a record that was computed in this environment may be reused `here`.

        `exact` requires that there is no difference and no other probe, `compatible` the same kind
        of device and the same libraries in the same major and minor versions, `any` nothing.
        """
        if policy == "any":
            return True
        if policy == "exact":
            return not (self.differences(here) or self.has_other_probe(here))
        return self.device == here.device and alike(self.versions, here.versions)


@cache
def ask_versions(
    python: str, names: tuple[str, ...], paths: tuple[str, ...] = (), patience: float = ANSWER
) -> dict[str, str]:
    """Return the versions of packages in another interpreter, including packages in further
    `paths`.

    Raises `ValueError` or `subprocess.SubprocessError` if it does not report them within `patience`
    seconds.
    """
    script = _SCRIPT.format(names=list(names), paths=list(paths))
    # In a process group of its own, so that an interpreter that hangs can be killed.
    with subprocess.Popen(
        ["/bin/sh", "-c", '"$0" "$@"; exit $?', python, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            return dict(json.loads(process.communicate(timeout=patience)[0]))
        finally:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)


def versions_in(python: str | None, names: Sequence[str]) -> dict[str, str]:
    """Return the versions of packages that are installed in an interpreter (`None`: this one).

    If it does not report them, there are none: no stored record counts as computed there, and its
    workers will raise the error.
    """
    if python in (None, sys.executable) or not names:
        return versions_of(names)
    try:
        return dict(ask_versions(str(python), tuple(names)))
    except (ValueError, subprocess.SubprocessError):
        return {}


def alike(first: dict[str, str], second: dict[str, str]) -> bool:
    """Return whether two interpreters have the same packages in the same major and minor
    versions.
    """
    return _minor(first) == _minor(second)


def _minor(versions: dict[str, str]) -> dict[str, list[str]]:
    return {name: version.partition("+")[0].split(".")[:2] for name, version in versions.items()}


def key(recipe: Mapping[str, Any], environment: Environment | None = None) -> str:
    """Hash a recipe, and its environment if that is given; recipes must be plain JSON values."""
    parts = [recipe] if environment is None else [recipe, environment.model_dump()]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
