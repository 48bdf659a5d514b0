"""`imgedit trend` and `imgedit plan`, and what a run's plan says: what a store of runs tells."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from documents import ended_early
from folders import fill
from in_process import run_in

from pytest_imgedit.cli.main import main
from pytest_imgedit.report.read import as_baseline
from pytest_imgedit.store.baselines import write_baseline
from pytest_imgedit.workers import editing

pytestmark = pytest.mark.everyday

MODELS = (
    "--imgedit-editor=fakes:Checkpoint",
    "--imgedit-judge=fakes:Reads",
    "--imgedit-set=judge.controls=false",
)
LEVELS = (6.0, 6.0, 6.0, 5.2, 5.2)


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """A folder with a run a night, of which the last two are worse, saved as baselines."""
    folder = fill(tmp_path_factory.mktemp("nights"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(editing, "change", lambda source, edited: 50.0)  # most of a run's time
        for night, level in enumerate(LEVELS):
            of_night = (f"editor.night={night}", f"editor.level={level}")
            checkpoint = (f"--imgedit-set={value}" for value in of_night)
            code, printed = run_in(
                folder, *MODELS, *checkpoint, "--imgedit-seeds=2", f"--imgedit-save=night{night}"
            )
            assert code == 0, printed
    return folder


@pytest.fixture
def imgedit(nights, monkeypatch, capsys):
    """Call `imgedit` in that folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(nights)

    def call(*arguments):
        return main(arguments), *capsys.readouterr()

    return call


def test_a_series_that_has_fallen_says_where(imgedit):
    """Costly as the first to use the runs of this module, five of 50 pairs."""
    code, out, _ = imgedit("trend", *(f"night{n}" for n in range(5)))
    assert code == 1
    lines = out.splitlines()
    assert lines[0] == "Trend of 5 runs, 50 pairs, judge fakes:Reads"
    assert re.match(r"FAIL: overall.* fell at night3", lines[-1])
    rows = {line.split()[0]: line for line in lines if line.startswith("night")}
    assert [("fell: " in rows[f"night{n}"]) for n in range(5)] == [False, False, False, True, True]
    assert all(row.count("●") == 1 for row in rows.values())


def test_the_newest_runs_of_the_store_are_a_series(imgedit, tmp_path):
    page = tmp_path / "deep" / "trend.html"
    code, out, _ = imgedit("trend", "--last=9", f"--html={page}")
    assert code == 1
    assert "Trend of 5 runs" in out
    html = page.read_text()
    assert html.count("<tr>") == 6
    assert "FAIL: overall" in html
    code, out, _ = imgedit("trend", "--last=2", "--json")
    document = json.loads(out)
    assert (code, len(document["runs"]), document["worse"]) == (0, 2, {})
    assert document["runs"][0]["evidence"]["overall"] == 1


def test_a_series_without_a_fall_passes(imgedit):
    code, out, _ = imgedit("trend", "night0", "night1", "night2")
    assert (code, out.splitlines()[-1]) == (
        0,
        "PASS: no measure is shown to have got worse in 2 looks",
    )


def test_a_checkpoint_may_be_looked_at_every_night(imgedit, nights, tmp_path):
    baselines = nights / "benchmarks" / "baselines"
    for copy in range(8):
        night = as_baseline(baselines / "night1.json")
        write_baseline(tmp_path, night.model_copy(update={"name": f"again{copy}"}))
    again = [str(tmp_path / f"again{copy}.json") for copy in range(8)]
    code, out, _ = imgedit("trend", "night0", "night1", *again, "--json")
    document = json.loads(out)
    assert code == 0
    once, *others = [run["evidence"]["overall"] for run in document["runs"][1:]]
    assert max(others) < once + 0.1  # looks without news dilute what there is
    assert document["notes"][1] == (
        "The edits of 400 items are those of an earlier run, and no further evidence"
    )


def test_runs_that_ended_early_are_no_part_of_a_series(imgedit, nights, tmp_path):
    night = as_baseline(nights / "benchmarks" / "baselines" / "night1.json")
    early = write_baseline(tmp_path, ended_early(night, 40))
    code, _, err = imgedit("trend", "night0", str(early))
    assert code == 4
    assert "ended early (--imgedit-until=decided), expected runs with all their pairs" in err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(
            ["trend"],
            "expected two or more runs or baselines, oldest first, or --last=N",
            id="none",
        ),
        pytest.param(["trend", "night0"], "a trend takes two or more runs, found 1 *", id="one"),
        pytest.param(["trend", "--last=1"], "--last=1: expected 2 or more", id="last"),
        pytest.param(
            ["trend", "--last=3", "--alpha=2"], "--alpha=2: expected a number *", id="alpha"
        ),
        pytest.param(
            ["trend", "--last=3", "--measure=scor"],
            "--measure=scor: * has no such measure, expected one of: score*did you mean*",
            id="measure",
        ),
        pytest.param(["trend", "night0", "gone"], "gone: no such baseline or run*", id="gone"),
        pytest.param(
            ["plan", "--power=0.3"], "expected a RUN to go by, or --spread=SD, *", id="plan"
        ),
        pytest.param(
            ["plan", "latest", "--power=0"], "--power=0: expected a number over 0", id="power"
        ),
        pytest.param(
            ["plan", "--spread=-1", "--power=1"],
            "--spread=-1.0: expected a number over 0*",
            id="spread",
        ),
        pytest.param(
            ["plan", "--spread=nan", "--power=1"],
            "--spread=nan: expected a number over 0*",
            id="nan",
        ),
        pytest.param(
            ["plan", "latest", "--power=1", "--alpha=0"],
            "--alpha=0: expected a number *",
            id="plan-alpha",
        ),
        pytest.param(
            ["plan", "latest", "--power=1", "--gate=x"],
            "--gate: unknown field 'x', expected one of: overall, *",
            id="gate",
        ),
        pytest.param(
            ["plan", "latest", "--power=1", "--before=latest"],
            "*no spread seen in 50 pairs*",
            id="same",
        ),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(imgedit, arguments, line):
    code, out, err = imgedit(*arguments)
    assert (code, out) == (4, "")
    pytest.LineMatcher(err.splitlines()).fnmatch_lines([f"imgedit: {line}"])
    assert err.count("\n") == 1


def test_a_run_tells_how_many_pairs_its_gates_need(imgedit):
    code, out, _ = imgedit(
        "plan", "latest", "--power=0.3", "--gate=overall", "--gate=physics", "--json"
    )
    assert code == 0
    rows = {(row["gate"], row["seeds"]): row for row in json.loads(out)["rows"]}
    one, two, four = (rows["fail_under overall", seeds] for seeds in (1, 2, 4))
    assert one["pairs"] > two["pairs"] > four["pairs"] > 100
    assert one["mde"] > two["mde"] > 0.3
    assert two["edits"] == 2 * two["pairs"]
    assert two["hours"] > 0
    assert rows["fail_under physics", 2]["pairs_now"] == 10
    assert rows["max_drop overall, if seeds alone differ", 2]["pairs"] < 60
    code, out, _ = imgedit("plan", "latest", "--before=night0", "--power=0.3")
    assert code == 0
    assert out.splitlines()[0].endswith(
        "at alpha 0.05 over 1 gate, by run " + out.split("by run ")[1].split("\n")[0]
    )
    assert "max_drop overall" in out


def test_without_a_size_a_plan_says_what_the_pairs_at_hand_can_decide(imgedit):
    code, out, _ = imgedit("plan", "latest", "--gate=overall", "--gate=physics")
    assert code == 0
    pytest.LineMatcher(out.splitlines()).fnmatch_lines(
        [
            "in 80% of runs at alpha 0.05 over 2 gates, by run *:",
            "fail_under overall: 50 pairs can detect a mean about 0.* under the limit",
            "fail_under physics: 10 pairs can detect a mean about *",
        ]
    )
    code, out, _ = imgedit("plan", "latest", "--before=night0", "--json")
    (row,) = json.loads(out)["rows"]
    assert (row["gate"], row["pairs_now"]) == ("max_drop overall", 50)
    assert 0 < row["mde"] < 1
    assert imgedit("plan", "--spread=2")[::2] == (
        4,
        "imgedit: --spread=2: says nothing of pairs at hand, expected --power=MDE too\n",
    )


def test_a_stated_spread_is_enough_to_plan(imgedit):
    code, out, _ = imgedit("plan", "--spread=2", "--power=0.3", "--json")
    (row,) = json.loads(out)["rows"]
    assert (code, row["hours"]) == (0, None)
    assert 270 <= row["pairs"] <= 280  # (1.645 + 0.842)²·(2/0.3)² = 275


@pytest.mark.full
def test_the_plan_of_a_run_says_what_its_gates_are_about_to_show(nights, tmp_path):
    folder = shutil.copytree(nights, tmp_path / "nights")
    gates = (
        "--imgedit-fail-under=overall:3",
        "--imgedit-compare=night0",
        "--imgedit-max-drop=overall:1",
    )
    other = ("--imgedit-set=editor.night=9", "--imgedit-seeds=2")
    said = [
        pytest.LineMatcher(run_in(folder, *MODELS, *other, *gates)[1].splitlines())
        for _ in range(2)
    ]
    said[0].fnmatch_lines(
        [
            "imgedit: plan: fail_under overall:3 fails if the mean score (0 to 10) of all "
            "pairs is shown to be under 3; 50 pairs can detect a mean of about 2.* (estimated from run *)",
            "imgedit: plan: max_drop overall:1 fails if the mean score (0 to 10) of all pairs "
            "is shown to have fallen by more than 1; 50 pairs can detect a drop of about 1.* "
            "(estimated from night0)",
        ]
    )
    said[1].fnmatch_lines(
        [
            "imgedit: plan: max_drop overall:1 *; 50 pairs can detect a drop of about 1.* (estimated from run *)"
        ]
    )
