"""Duels in JUnit: test cases of their gates, and properties of pairs and of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from duels import a_run_with_duel, make_duel

from pytest_imgedit.core.items import ItemResult
from pytest_imgedit.core.results import GateResult
from pytest_imgedit.plugin.junit import gate_reports, item_properties, run_properties


def properties_of(name, run):
    item = next(item for item in run.items if item.id == name)
    result = ItemResult.of(item, None, Path("store"), Path("report.html"))
    return dict(item_properties(result, run.comparison, run.duel))


@pytest.mark.parametrize(("name", "share"), [("won", 1.0), ("turned", 0.5), ("failed", None)])
def test_a_pair_has_the_share_of_its_duels_by_measure(name, share):
    run = a_run_with_duel(make_duel(names=("score", "quality")))
    properties = properties_of(name, run)
    assert properties.get("imgedit_duel") == share
    assert properties.get("imgedit_duel.quality") == share


def test_a_pair_without_a_duel_has_no_share():
    run = a_run_with_duel()
    assert "imgedit_duel" not in properties_of("won", run.model_copy(update={"duel": None}))


def test_the_run_has_the_share_of_each_category_and_measure():
    properties = dict(run_properties(a_run_with_duel(make_duel(names=("score", "quality")))))
    assert properties["imgedit_duel[score@overall]"] == 0.5
    assert properties["imgedit_duel[quality@social]"] == 0.25


def test_gates_of_duels_are_test_cases():
    gates = [
        GateResult("overall", "min_win", 0.5, 0.31, "FAIL", "overall 0.31 < 0.5"),
        GateResult("judge", "duel_controls", None, None, "PASS", "prefers the better edits"),
    ]
    run = a_run_with_duel(gates=gates)
    reports = [(report.nodeid, report.outcome) for report in gate_reports(run)]
    assert reports == [
        ("imgedit.gates::min_win[overall]", "failed"),
        ("imgedit.gates::duel_controls[judge]", "passed"),
    ]
