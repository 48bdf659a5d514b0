"""Classes of the user's own, as the spec `package.module:Class` names them: nothing is known but their source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_imgedit.core.targets import Target
from pytest_imgedit.models.kinds import Model, Role


@dataclass(frozen=True)
class _OwnClass(Model):
    @property
    def target(self) -> Target:
        return Target.parse(self.spec)


class OwnEditor(_OwnClass):
    """An editor of the user's own."""

    role = "editor"
    name = "class"


class OwnJudge(_OwnClass):
    """A judge of the user's own."""

    role = "judge"
    name = "class"


def of_class(role: Role, spec: str, params: Mapping[str, Any], gpus: int) -> Model:
    """Return the editor or judge whose class a spec names."""
    kind = OwnEditor if role == "editor" else OwnJudge
    return kind(spec, None, dict(params), gpus)
