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
    """Where a record was computed. `None` is a value that is unknown before the first computation.

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
        """Return what differs from `here`, a text each such as `torch 2.12.1 there, 2.13.0 here`.

        A value that is unknown in one of the environments is no difference. Probes are compared by
        `has_other_probe`. With `shared`, the packages that both of two models import, a package
        that only one environment has is a difference only if it is one of them.
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
        """Return whether a model computes something else in this environment than `here`, although
        device and GPU are of the same type.

        An unknown probe is no other one. GPUs of other types round differently anyway.
        """
        is_same_type = (self.device, self.gpu) == (here.device, here.gpu)
        return is_same_type and None not in (self.probe, here.probe) and self.probe != here.probe

    def serves(self, here: Environment, policy: Reuse) -> bool:
        """Return whether a record that was computed in this environment may be reused `here`.

        `exact` requires that there is no difference and no other probe. `compatible` requires the
        same `device` and the same libraries in the same major and minor versions. `any` requires
        nothing.
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
    """Return the versions of those packages that another interpreter has, or that lie in `paths`.

    Raises `ValueError` if it reports none, such as one that does not exist, and
    `subprocess.SubprocessError` if it does not end within `patience` seconds.
    """
    script = _SCRIPT.format(names=list(names), paths=list(paths))
    # The shell leads a process group and waits, so that an interpreter that hangs can be killed
    # with everything that it started.
    with subprocess.Popen(
        ["/bin/sh", "-c", '"$0" "$@"; exit $?', python, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=patience)
            return dict(json.loads(output))
        finally:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)


def versions_in(python: str | None, names: Sequence[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed in an interpreter (`None`: this
    one).

    The result is empty for an interpreter that does not report them. Then no stored record counts
    as computed there, and its workers will raise the error.
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
    """Return the major and minor number of each version; what follows a `+` names a build."""
    return {name: version.partition("+")[0].split(".")[:2] for name, version in versions.items()}


def key(recipe: Mapping[str, Any], environment: Environment | None = None) -> str:
    """Return the SHA-256 in hex of a recipe of plain JSON values, and of its environment if that is
    given.
    """
    parts = [recipe] if environment is None else [recipe, environment.model_dump()]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
