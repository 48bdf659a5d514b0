"""The judge of runs that only edit."""

from __future__ import annotations

from pytest_imgedit.core.errors import SetupError


class NoJudge:
    """Stands for no judge: a run with it ends with its edits, and nothing ever asks it."""

    def __init__(self, *, device: str) -> None:
        del device
        raise SetupError("judge 'none' scores nothing, name another one")
