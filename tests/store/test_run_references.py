"""What a reference means: a place, an id, a name, `latest`, a baseline or a run of one name."""

from __future__ import annotations

import json
import os

import pytest
from documents import a_baseline, a_run, an_item, baseline_item

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.report.read import as_baseline, read_either
from pytest_imgedit.store.baselines import write_baseline
from pytest_imgedit.store.run_references import find_either, find_run, find_whole

ALL = {"selected": 4, "whole": 4, "skipped": 0}
ONE_OF_FOUR = {**ALL, "selected": 1}
TWO_OF_FOUR = {**ALL, "selected": 2}
ENDED_EARLY = [an_item("p1"), an_item("p2"), an_item("p3"), an_item("p4", status="not_needed")]
EDITS_ONLY = {
    "suite": {},
    "editor": {"seed": 0, "seeds": 1, "batch_size": 1},
    "judge": {},
    "workers": {},
    "gates": {},
    "run": {"stage": "edit"},
}


def finish_run(out, run_id, name, order, run=None, **changes):
    """Write the results of a run into a store, as the `order`-th that finished."""
    path = out / "runs" / run_id / "results.json"
    path.parent.mkdir(parents=True)
    results = a_run(run={"id": run_id, "name": name, **(run or {})}, **changes)
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
    assert find_whole(reference, out) == find_either(reference, out, baselines)
    assert find_whole(reference, out).path.absolute() == expected
    assert find_whole(reference, out).note == ""
    assert read_either(reference, out, baselines)[0].run == run_id


def test_a_baseline_comes_before_a_run_of_its_name_and_an_id_before_both(out, baselines):
    path = finish_run(out, "r4", "main", 4)
    assert find_either("main", out, baselines) == (baselines / "main.json", "")
    assert read_either("main", out, baselines)[0].items[0].id == "a"
    assert find_run("main", out) == path
    write_baseline(baselines, a_baseline(baseline_item("a", 5.0), name="r1"))
    assert find_either("r1", out, baselines) == (out / "runs/r1/results.json", "")


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


#: What makes a run one of a part of a suite of four pairs, and how that is told.
PARTS = {
    "-k": ({"items": [an_item("p1")], "selection": ONE_OF_FOUR}, "1 of 4 pairs"),
    "limit": ({"items": [an_item("p1"), an_item("p2")], "selection": TWO_OF_FOUR}, "2 of 4 pairs"),
    "shard": ({"selection": {**ALL, "shard": {"index": 1, "count": 2, "ids": []}}}, "a shard"),
    "until": ({"items": ENDED_EARLY}, "3 of 4 pairs"),
    "stopped": ({"run": {"status": "incomplete", "stopped_by": "Ctrl-C"}}, "stopped"),
    "edit": ({"run": {"options": EDITS_ONLY}}, "not judged"),
}


@pytest.mark.parametrize(("changes", "told"), PARTS.values(), ids=PARTS)
def test_latest_passes_over_a_run_of_a_part(out, baselines, changes, told):
    finish_run(out, "r4", "", 4, **changes)
    expected = out / "runs/r3/results.json"
    note = f"latest: r3; passed over 1 newer run: r4 ({told})"
    assert find_whole("latest", out) == find_either("latest", out, baselines) == (expected, note)
    assert read_either("latest", out, baselines)[1].note == note
    assert find_run("latest", out) == out / "runs/r4/results.json"


def test_a_run_that_is_replaced_by_one_of_its_time_is_read_again(out):
    path = finish_run(out, "r4", "first", 4)
    assert find_run("first", out) == path
    path.unlink()
    path.parent.rmdir()
    assert finish_run(out, "r4", "second", 4) == path
    assert find_run("second", out) == path


def test_latest_is_of_the_suite_that_is_asked_for_and_names_the_first_that_it_passes_over(out):
    for order in range(4, 11):
        finish_run(
            out, f"r{order}", "", order, suite={"name": "other", "sha256": "1" * 64, "pairs": 4}
        )
    finish_run(out, "r11", "", 11, **PARTS["-k"][0])
    path = out / "runs/r3/results.json"
    note = (
        "latest: r3; passed over 8 newer runs: r11 (1 of 4 pairs), r10 (suite other), "
        "r9 (suite other), r8 (suite other), r7 (suite other) and 3 more"
    )
    for suite in (("s", "2" * 64), ("moved", "0" * 64), ("s", "0" * 64)):
        assert find_whole("latest", out, suite) == (path, note)
    assert find_whole("latest", out).path == out / "runs/r10/results.json"
    note = f"latest: r11 (suite s); no run of all pairs of the suite in {out}"
    assert find_whole("latest", out, ("gone", "2" * 64)) == (out / "runs/r11/results.json", note)


def test_latest_is_the_newest_run_where_none_is_whole(tmp_path):
    for order, (changes, _) in enumerate(PARTS.values()):
        finish_run(tmp_path, f"r{order}", "", order, **changes)
    note = f"latest: r5 (not judged); no run of all pairs of the suite in {tmp_path}"
    assert find_whole("latest", tmp_path) == (tmp_path / "runs/r5/results.json", note)


@pytest.mark.parametrize("text", ["{", "[]", '{"run": {"name": 1}, "suite": []}'])
def test_latest_is_no_older_run_where_the_newest_cannot_be_read(out, baselines, text):
    path = finish_run(out, "r4", "", 4)
    path.write_text(text)
    with pytest.raises(UsageError, match=r"r4/results\.json"):
        read_either("latest", out, baselines, ("s", "0" * 64))
