"""Which environments count as alike, and how each part of one changes the key of a record."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_imgedit.core.environments import Environment, key
from pytest_imgedit.run.work import record_to_reuse

HERE = Environment(device="cpu", versions={"torch": "2.13.0", "diffusers": "0.42.1"})


@pytest.mark.parametrize(
    ("there", "serves"),
    [
        ({}, "exact compatible any"),
        (
            {"gpu": "NVIDIA H200"},
            "exact compatible any",
        ),  # not known here before something is computed
        ({"versions": {"torch": "2.13.1+cpu", "diffusers": "0.42.1"}}, "compatible any"),
        ({"versions": {"torch": "2.12.0", "diffusers": "0.42.1"}}, "any"),
        ({"versions": {"torch": "2.13.0"}}, "any"),
        ({"device": "cuda"}, "any"),
    ],
)
def test_what_may_be_reused_is_a_policy(there, serves):
    made = HERE.model_copy(update=there)
    assert [
        policy for policy in ("exact", "compatible", "any") if made.serves(HERE, policy)
    ] == serves.split()


def test_the_record_that_differs_least_is_reused_and_of_equals_the_newest():
    patch = HERE.model_copy(update={"versions": {**HERE.versions, "torch": "2.13.9"}})
    other = HERE.model_copy(update={"versions": {**HERE.versions, "torch": "2.1.0"}})

    def place(environments, policy, usable=lambda record: True):
        records = [
            SimpleNamespace(environment=environment, code={}) for environment in environments
        ]
        found = record_to_reuse(records, HERE, policy, usable)
        return next((place for place, record in enumerate(records) if record is found), None)

    assert place([HERE, patch, HERE, other], "compatible") == 2
    assert place([other, patch], "compatible") == 1
    assert place([other], "compatible") is None
    assert place([other, patch], "any") == 1
    assert place([other, patch], "any", lambda record: record.environment != patch) == 0
    assert patch.differences(HERE) == ["torch 2.13.9 there, 2.13.0 here"]


@pytest.mark.parametrize(
    "change", [{"gpu": "A100"}, {"compiled": True}, {"processor": "P"}, {"device": "cuda"}]
)
def test_each_part_of_the_environment_changes_the_key_of_a_record(change):
    assert key({"n": 1}, HERE) != key({"n": 1}, HERE.model_copy(update=change)) != key({"n": 1})
