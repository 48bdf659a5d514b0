"""Gates on pairs without a score, on the baseline's pairs, and on its environment."""

from __future__ import annotations

import pytest

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.stats.decision import against_environment, baseline_coverage, coverage
from pytest_imgedit.stats.gate_rules import max_drop
from pytest_imgedit.stats.gate_values import Observation, allowed_pairs


def scores(*values):
    return [Observation("physics", str(place), value) for place, value in enumerate(values)]


@pytest.mark.parametrize(
    ("allowed", "state"),
    [(0, "FAIL"), (1, "PASS"), (0.25, "PASS"), (0.2, "FAIL")],
    ids=["0", "1", "25%", "20%"],
)
def test_coverage_counts_errors_and_bounds_the_score(allowed, state):
    gate = coverage(GatesSettings(max_errors=allowed), scores(8.0, 6.0, 4.0, None), errors=1)
    assert gate.state == state
    assert gate.why.startswith("1 of 4 pairs without a score, ")
    assert gate.why.endswith("(with theirs, overall would be between 4.50 and 7.00)")


def test_a_run_without_any_score_is_invalid_however_many_errors_are_allowed():
    assert (
        coverage(GatesSettings(max_errors=1.0), scores(None, None, None), errors=3).state
        == "INVALID"
    )


def test_fraction_of_errors_is_rounded_down():
    assert allowed_pairs(0.1, 50) == 5
    assert allowed_pairs(0.1, 59) == 5
    assert allowed_pairs(3, 50) == 3


@pytest.mark.parametrize(("asked", "state"), [(0.5, "PASS"), (0.75, "PASS"), (0.8, "FAIL")])
def test_pairs_of_the_baseline_that_are_compared(asked, state):
    gate = baseline_coverage(
        GatesSettings(min_coverage=asked), scores(0.0, 0.0, 0.0, None), 4, "main"
    )
    assert (gate.state, gate.value) == (state, 0.75)
    assert gate.why == f"3 of the 4 pairs of main compared, {asked:.0%} asked for"


@pytest.mark.parametrize(
    ("environment", "differences", "state"),
    [
        ("same", ["edits: torch 2.12.0 instead of 2.13.0"], "INVALID"),
        ("same", [], "FAIL"),
        ("any", ["x"], "FAIL"),
    ],
)
def test_another_environment_is_refused_where_that_is_asked_for(environment, differences, state):
    settings = GatesSettings(max_drop={"physics": 0}, environment=environment)
    found = max_drop(settings, {"score": scores(-1.0, -2.0, -1.5, -1.0, -1.0, -2.0)}, "main")
    (gate,) = against_environment(settings, found, differences)
    assert gate.state == state
    assert state == "FAIL" or gate.why.startswith(
        f"computed in other environments (gates.environment): {differences[0]}"
    )
