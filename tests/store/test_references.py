"""What a reference means: a place, an id, a name, `latest`, a baseline or a run of one name."""

from __future__ import annotations

import json
import os

import pytest
from documents import a_baseline, a_run, baseline_item

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.report.read import as_baseline, read_either
from pytest_imgedit.store.baselines import write_baseline
from pytest_imgedit.store.references import find_either, find_run


def finish_run(out, run_id, name, order):
    """Write the results of a run into a store, as the `order`-th that finished."""
    path = out / "runs" / run_id / "results.json"
    path.parent.mkdir(parents=True)
    results = a_run(run={"id": run_id, "name": name})
    path.write_text(json.dumps(results.model_dump(mode="json")))
    os.utime(path, ns=(order, order))
    return path


@pytest.fixture
def out(tmp_path, monkeypatch):
    """A store of three runs, two of which are named `night`, and the last has no name."""
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "store"
    for order, (run_id, name) in enumerate([("r1", "night"), ("r2", "night"), ("r3", "")], 1):
        finish_run(store, run_id, name, order)
    return store


@pytest.fixture
def baselines(tmp_path):
    """A folder with the baseline `main`."""
    folder = tmp_path / "baselines"
    write_baseline(folder, a_baseline(baseline_item("a", 5.0)))
    return folder


@pytest.mark.parametrize(
    ("reference", "run_id"),
    [
        pytest.param("night", "r2", id="the newest of a name"),
        pytest.param("r1", "r1", id="an id"),
        pytest.param("latest", "r3", id="latest"),
        pytest.param("store/runs/r1", "r1", id="a folder"),
        pytest.param("store/runs/r1/results.json", "r1", id="a path"),
    ],
)
def test_a_reference_means_the_same_run_wherever_it_is_given(out, baselines, reference, run_id):
    expected = out / "runs" / run_id / "results.json"
    assert find_run(reference, out).absolute() == expected
    assert find_either(reference, out, baselines).absolute() == expected
    assert read_either(reference, out, baselines).run == run_id


def test_a_baseline_comes_before_a_run_of_its_name_and_an_id_before_both(out, baselines):
    path = finish_run(out, "r4", "main", 4)
    assert find_either("main", out, baselines) == baselines / "main.json"
    assert read_either("main", out, baselines).items[0].id == "a"
    assert find_run("main", out) == path
    write_baseline(baselines, a_baseline(baseline_item("a", 5.0), name="r1"))
    assert find_either("r1", out, baselines) == out / "runs/r1/results.json"


def test_a_damaged_baseline_is_not_replaced_by_a_run_of_its_name(out, baselines):
    finish_run(out, "r4", "main", 4)
    (baselines / "main.json").write_text("{")
    with pytest.raises(UsageError, match="not valid JSON"):
        read_either("main", out, baselines)


def test_a_run_is_compared_under_its_name(out):
    assert as_baseline(find_run("night", out)).name == "night"
    assert as_baseline(find_run("latest", out)).name == "r3"


def test_a_damaged_run_hides_no_other_of_its_name(out):
    (out / "runs/r2/results.json").write_text("{")
    assert find_run("night", out) == out / "runs/r1/results.json"


def test_an_unknown_reference_is_told_what_there_is(out, baselines):
    with pytest.raises(UsageError) as error:
        find_run("nigth", out)
    assert str(error.value) == (
        "nigth: no such run, expected a path, latest, or one of the 3 ids in "
        f"{out}/runs or names: night; did you mean 'night'?"
    )
    with pytest.raises(UsageError) as error:
        find_either("nigth", out, baselines)
    assert str(error.value) == (
        "nigth: no such baseline or run, expected a path, latest, or a name or an id: "
        f"{baselines} has main, {out} has 3 runs, names: night; did you mean 'night'?"
    )
    (baselines / "main.json").unlink()
    with pytest.raises(UsageError, match=r"baselines has none \(--imgedit-save makes one\), "):
        find_either("main", out, baselines)
