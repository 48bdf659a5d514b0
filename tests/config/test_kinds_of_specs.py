"""Which parameters of a config count for the model that the command line names."""

from __future__ import annotations

import pytest

from pytest_imgedit.plugin.command_line import _kind


@pytest.mark.parametrize(
    ("role", "spec", "kind"),
    [
        ("editor", "diffusers:mine", "diffusers"),
        ("editor", "diffusers:/checkpoints/step-4000", "diffusers"),
        ("editor", "scenes", "scenes"),
        ("editor", "folder:out?{id}.png", "folder"),
        ("editor", "own.module:Class", "own.module:Class"),
        ("judge", "openai:http://localhost:8000/v1#m", "openai"),
        ("judge", "own:Judge", "own:Judge"),
    ],
)
def test_kind_of_a_spec(role, spec, kind):
    assert _kind(role, spec) == kind
