"""`latest` on command lines: the newest run of all pairs where runs are compared or planned by, and
the newest run where one run is shown.
"""

from __future__ import annotations

import json
import os

import pytest
from documents import a_run, an_item

from pytest_imgedit.cli.main import main
from pytest_imgedit.report.read import as_baseline
from pytest_imgedit.store.baselines import write_baseline

PAIRS = 12
OPTIONS = {
    "suite": {},
    "editor": {"seed": 0, "seeds": 1, "batch_size": 1},
    "judge": {"gpus_per_replica": 1},
    "workers": {"gpus_per_worker": 1},
    "gates": {},
    "run": {"stage": "all"},
}
BOTH = ("latest", "latest")
NOTE = "imgedit: latest: r2; passed over 2 newer runs: r4 (suite other), r3 (1 of 12 pairs)\n"


def finish(store, order, level, pairs=PAIRS, suite="s"):
    """Write the results of a run over the first pairs of a suite."""
    items = [
        an_item(
            f"p{pair}",
            "social" if pair % 2 else "physics",
            level + pair % 3 / 10 + order * pair / 100,
            source=f"ab/{pair:064x}.png",
            blob=f"{order:032x}{pair:032x}",
        )
        for pair in range(pairs)
    ]
    results = a_run(
        run={"id": f"r{order}", "options": OPTIONS},
        suite={"name": suite, "sha256": suite.encode().hex().ljust(64, "0"), "pairs": PAIRS},
        selection={"selected": pairs, "whole": PAIRS, "skipped": 0},
        items=items,
    )
    path = store / "runs" / f"r{order}" / "results.json"
    path.parent.mkdir(parents=True)
    path.write_text(results.to_json())
    os.utime(path, ns=(order, order))
    return path


@pytest.fixture
def imgedit(tmp_path, monkeypatch, capsys):
    """Call `imgedit` with two whole runs, then one of a pair, then one of another suite: (exit
    code, stdout, stderr).
    """
    monkeypatch.chdir(tmp_path)
    store = tmp_path / ".imgedit"
    first = finish(store, 1, 4.0)
    finish(store, 2, 5.0)
    finish(store, 3, 6.0, pairs=1)
    finish(store, 4, 7.0, suite="other")
    (store / "blobs").mkdir()
    folder = tmp_path / "benchmarks" / "baselines"
    write_baseline(folder, as_baseline(first).model_copy(update={"name": "main"}))
    (tmp_path / "people.csv").write_text("id,score\np0,1\np1,2\np2,3\n")

    def call(*arguments):
        code = main([*arguments])
        return code, *capsys.readouterr()

    return call


COMPARED = {
    "compare": (("compare", "main", "latest"), "r2: editor identity, run r2"),
    "before": (("compare", "latest", "r1"), "rose|fell"),
    "leaderboard": (("leaderboard", "r1", "latest"), "r2"),
    "reference": (("leaderboard", "r1", "--reference=latest"), "r2"),
    "trend": (("trend", "r1", "latest"), "r2"),
    "plan": (("plan", "latest", "--before=main"), "by run r2"),
    "plan-before": (("plan", "r1", "--before=latest"), "by run r1"),
}


@pytest.mark.parametrize(("arguments", "shown"), COMPARED.values(), ids=COMPARED)
def test_latest_is_the_newest_run_of_all_pairs_of_the_other_runs_suite(imgedit, arguments, shown):
    code, out, err = imgedit(*arguments)
    assert (code in (0, 1), err) == (True, NOTE)
    assert {"r3", "r4"}.isdisjoint(out.split())
    assert any(text in out for text in shown.split("|"))


@pytest.mark.parametrize(
    "arguments", [("plan", "latest"), ("agreement", "latest", "people.csv"), ("compare", *BOTH)]
)
def test_without_another_run_latest_is_the_newest_run_of_all_pairs_of_any_suite(
    imgedit, tmp_path, arguments
):
    for order in (5, 6):
        finish(tmp_path / ".imgedit", order, 6.0, pairs=2)
    code, _, err = imgedit(*arguments)
    note = "latest: r4; passed over 2 newer runs: r6 (2 of 12 pairs), r5 (2 of 12 pairs)"
    assert (code, err) == (0, f"imgedit: {note}\n")


def test_a_document_holds_no_note(imgedit):
    code, out, err = imgedit("compare", "main", "latest", "--json")
    assert (code, json.loads(out)["comparison"]["run"], err) == (0, "r1", NOTE)


@pytest.mark.parametrize("arguments", [("report", "latest"), ("export", "latest", "edits")])
def test_what_shows_one_run_shows_the_newest(imgedit, tmp_path, arguments):
    finish(tmp_path / ".imgedit", 5, 6.0, pairs=1)
    _, out, err = imgedit(*arguments)
    assert "runs/r5/" in out or "of run r5" in out
    assert err == ""


def test_a_run_is_compared_with_the_newest_run_of_all_pairs(bench):
    options = ("-q", "--imgedit-editor=oracle", "--imgedit-judge=reference")
    suite = "--imgedit-suite=scenes:n=1"
    for further in ((suite,), (suite, "-k", "physics"), ("--imgedit-suite=scenes:n=2",)):
        assert bench.run(*options, *further).ret == 0
    whole = min(
        (bench.path / ".imgedit" / "runs").iterdir(), key=lambda run: run.stat().st_mtime_ns
    )
    for further in (("-k", "social"), ()):
        result = bench.run(*options[1:], suite, "--imgedit-compare=latest", *further)
        assert result.ret == 0
        result.stdout.fnmatch_lines([f"imgedit: latest: {whole.name}; passed over * newer run*"])
        assert bench.results["comparison"]["run"] == whole.name
