"""Judges without a model: one that measures against the reference, and none at all."""

from __future__ import annotations

from pytest_imgedit.models.kinds import Model
from pytest_imgedit.models.parameters import Parameters


class Reference(Model):
    """Measures how near an edit is to the reference."""

    role = "judge"
    name = "reference"
    loads = "pytest_imgedit.judges.reference:ReferenceJudge"
    has_weights = False
    measures = True
    needs_reference = True


class NoJudge(Model):
    """Stands for no judge: a run with it ends with its edits."""

    role = "judge"
    name = "none"
    loads = ""
    Params = Parameters
    has_weights = False
    scores = False
