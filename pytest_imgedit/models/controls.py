"""Editors of known quality, as specs name them; the classes are in `editors/controls.py`."""

from __future__ import annotations

from pytest_imgedit.models.kinds import Model
from pytest_imgedit.models.parameters import Parameters


class Control(Model):
    """An editor without weights."""

    role = "editor"
    has_weights = False
    Params = Parameters


class Identity(Control):
    """Returns the source."""

    name = "identity"
    loads = "pytest_imgedit.editors.controls:Identity"


class Oracle(Control):
    """Returns the pair's own reference."""

    name = "oracle"
    loads = "pytest_imgedit.editors.controls:Reference"
    shown_reference = "own"


class Shuffled(Control):
    """Returns the reference of the next pair in its category."""

    name = "shuffled"
    loads = "pytest_imgedit.editors.controls:Reference"
    shown_reference = "next"


class Blank(Control):
    """Returns a grey image."""

    name = "blank"
    loads = "pytest_imgedit.editors.controls:Blank"
    may_be_blank = True


class Noise(Control):
    """Returns noise."""

    name = "noise"
    loads = "pytest_imgedit.editors.controls:Noise"
