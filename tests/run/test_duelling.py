"""The edits of a run are put against those of another: what the judge is asked, and how gates and
results tell it.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from duel_judges import Knowing

if TYPE_CHECKING:
    from conftest import Bench

#: 10 pairs, and a judge that is asked about them.
SUITE = "--imgedit-suite=scenes:n=2"
KNOWING = "--imgedit-judge=duel_judges:Knowing"
AGAINST = ("--imgedit-compare=main", "--imgedit-duel")
UNTRIED = "--imgedit-set=judge.controls=false"
PAIRS = 10
#: Duels of a right edit against each of three controls, two in a category, in both orders.
OF_CONTROLS = 10 * 3 * 2


def save(bench: Bench, editor: str, *more: str, judge: str = KNOWING, name: str = "main") -> None:
    """Save a run of an editor as a baseline with its edits."""
    options = (f"--imgedit-save={name}", "--imgedit-save-edits", UNTRIED)
    bench.run(SUITE, judge, f"--imgedit-editor={editor}", *options, *more)
    assert (bench.path / f"benchmarks/baselines/{name}.json").exists()
    Knowing.asked.clear()


def duel(bench: Bench, editor: str, *more: str, judge: str = KNOWING) -> pytest.RunResult:
    """Put the edits of an editor against those of the baseline `main`."""
    return bench.run(SUITE, judge, f"--imgedit-editor={editor}", *AGAINST, *more)


def gates(bench: Bench) -> dict[str, str]:
    """Return the states of the gates on duels by kind."""
    kinds = ("min_win", "duel_controls")
    return {gate["kind"]: gate["state"] for gate in bench.results["gates"] if gate["kind"] in kinds}


def overall(bench: Bench, measure: str = "score") -> dict[str, Any]:
    """Return the row of a measure over all pairs."""
    row: dict[str, Any] = bench.results["duel"]["measures"][measure]["overall"]
    return row


def votes(bench: Bench) -> list[dict[str, Any]]:
    """Return the votes of all pairs."""
    pairs = bench.results["duel"]["pairs"].values()
    return [vote for pair in pairs for seed in pair["seeds"] for vote in seed["votes"]]


def test_a_better_editor_wins_in_both_orders(bench: Bench) -> None:
    save(bench, "blend")
    result = duel(bench, "oracle")
    assert overall(bench)["share"] == 1.0
    assert bench.results["duel"]["disagreement"]["score"]["share"] == 0.0
    assert gates(bench) == {"min_win": "PASS", "duel_controls": "PASS"}
    assert [vote["first"] for vote in votes(bench)[:2]] == ["now", "before"]
    assert all(vote["values"] == {"score": 1.0} for vote in votes(bench))
    assert "is nearer" in votes(bench)[0]["replies"]["duel"]
    plan = "10 duels against main, protocol duel@strict, in both orders: 20 questions, and"
    lines = [
        f"imgedit: plan: {plan} {OF_CONTROLS} of the judge's trial; 0 in the store",
        "imgedit: PASS: wins 1.00 of 10 duels against main*",
    ]
    result.stdout.fnmatch_lines(lines)
    assert result.ret == 0


def test_a_worse_editor_fails(bench: Bench) -> None:
    save(bench, "blend")
    result = duel(bench, "identity", "--imgedit-set=gates.max_near_copies=1", UNTRIED)
    assert overall(bench)["share"] == 0.0
    assert gates(bench)["min_win"] == "FAIL"
    assert result.ret == 1


def test_each_vote_is_asked_once_whichever_run_needs_it(bench: Bench) -> None:
    save(bench, "blend")
    duel(bench, "oracle", UNTRIED)
    assert Knowing.asked["duel"] == 2 * PAIRS

    Knowing.asked.clear()
    duel(bench, "damaged", UNTRIED)
    assert Knowing.asked["duel"] == 2 * PAIRS, "another run asks its own questions only"
    share = overall(bench)["share"]

    save(bench, "damaged", name="other")
    against = ("--imgedit-compare=other", "--imgedit-duel")
    bench.run(SUITE, KNOWING, "--imgedit-editor=blend", *against, UNTRIED)
    assert Knowing.asked["duel"] == 0, "the same two edits, whichever of them is the older"
    assert bench.results["timing"]["votes_cached"] == 2 * PAIRS
    assert overall(bench)["share"] == pytest.approx(1 - share)


def test_what_a_run_has_asked_before_it_is_killed_is_not_asked_again(bench: Bench) -> None:
    save(bench, "blend")
    duel(bench, "oracle", UNTRIED)
    journal = bench.path / ".imgedit" / "verdicts.jsonl"
    records = journal.read_text().splitlines(keepends=True)
    assert sum('"second"' in record for record in records) == 2 * PAIRS
    journal.write_text("".join(records[:-10]))
    Knowing.asked.clear()
    result = duel(bench, "oracle", UNTRIED)
    assert Knowing.asked["duel"] == bench.results["timing"]["votes"] == 10
    result.stdout.fnmatch_lines(["*, in both orders: 10 questions; 10 in the store"])
    assert overall(bench)["share"] == 1.0


def test_equal_edits_count_half_and_are_not_asked_about(bench: Bench) -> None:
    save(bench, "oracle")
    result = duel(bench, "oracle")
    assert Knowing.asked["duel"] == OF_CONTROLS
    assert bench.results["duel"]["identical"] == PAIRS
    assert overall(bench)["share"] == 0.5
    assert gates(bench) == {"min_win": "PASS", "duel_controls": "PASS"}
    result.stdout.fnmatch_lines(["*10 of 10 pairs are identical*"])
    assert result.ret == 0


@pytest.mark.parametrize(
    ("judge", "line"),
    [
        ("First", "*INVALID *the judge prefers the first of any two edits*"),
        ("Worse", "*INVALID *the judge prefers blend, identity, shuffled to a right edit*"),
        ("Mumbling", "*INVALID *the judge answered none of 60 duels of controls*"),
    ],
    ids=["first", "worse", "mumbling"],
)
@pytest.mark.everyday_for("first")
def test_a_judge_that_cannot_choose_makes_the_run_invalid(
    bench: Bench, judge: str, line: str
) -> None:
    save(bench, "blend", judge=f"--imgedit-judge=duel_judges:{judge}")
    result = duel(bench, "oracle", judge=f"--imgedit-judge=duel_judges:{judge}")
    assert gates(bench)["duel_controls"] == "INVALID"
    result.stdout.fnmatch_lines([line])
    assert result.ret == 1


@pytest.mark.full
def test_an_unreadable_vote_is_an_error_after_its_reasks(bench: Bench) -> None:
    judge = "--imgedit-judge=duel_judges:Mumbling"
    save(bench, "blend", judge=judge)
    result = duel(bench, "oracle", "--imgedit-set=judge.reasks=1", UNTRIED, judge=judge)
    assert bench.results["duel"]["errors"] == PAIRS
    assert Knowing.asked["duel"] == 2 * 2 * PAIRS
    assert {vote["error"]["kind"] for vote in votes(bench)} == {"unreadable_reply"}
    assert all(vote["error"]["reply"] for vote in votes(bench))
    assert gates(bench) == {"min_win": "INVALID"}
    result.stdout.fnmatch_lines(
        ["  INVALID *no duel with all its votes in this run: 'better' is *"]
    )


@pytest.mark.full
def test_a_vote_that_is_readable_after_a_reminder_counts(bench: Bench) -> None:
    judge = "--imgedit-judge=duel_judges:Relenting"
    save(bench, "blend", judge=judge)
    duel(bench, "oracle", UNTRIED, judge=judge)
    assert bench.results["duel"]["errors"] == 0
    assert overall(bench)["share"] == 1.0


def test_a_judge_that_measures_duels_by_its_scores(bench: Bench) -> None:
    reference = "--imgedit-judge=reference"
    save(bench, "blend", judge=reference)
    result = duel(bench, "oracle", judge=reference)
    found = bench.results["duel"]
    assert found["by_scores"] is True
    assert found["protocol"] is None
    assert found["first"] == {} == found["disagreement"]
    assert overall(bench)["share"] == 1.0
    before, now = votes(bench)[0]["scores"]
    assert now > before
    assert gates(bench) == {"min_win": "PASS", "duel_controls": "PASS"}
    result.stdout.fnmatch_lines(["*by the difference of the judge's two scores*"])
    assert result.ret == 0


@pytest.mark.full
def test_the_embedded_judge_duels_by_its_scores(bench: Bench) -> None:
    options = ("--imgedit-suite=scenes:n=2", UNTRIED)
    saving = ("--imgedit-save=main", "--imgedit-save-edits")
    bench.run_with_workers(*options, "--imgedit-editor=identity", *saving)
    result = bench.run_with_workers(*options, "--imgedit-editor=oracle", *AGAINST)
    assert bench.results["duel"]["by_scores"] is True
    assert overall(bench)["share"] == 1.0
    result.stdout.fnmatch_lines(["*plan: 10 duels against main, by the difference of *"])


@pytest.mark.full
def test_a_judge_of_ones_own_that_scores_is_known_by_its_scores(bench: Bench) -> None:
    judge = "--imgedit-judge=blind_judges:Good"
    truth = "--imgedit-set=judge.truth=scenes:n=2"
    save(bench, "blend", truth, judge=judge)
    duel(bench, "oracle", truth, UNTRIED, judge=judge)
    assert bench.results["duel"]["by_scores"] is True
    assert overall(bench)["share"] == 1.0


def test_a_baseline_of_another_judge_can_be_put_against(bench: Bench) -> None:
    save(bench, "blend", judge="--imgedit-judge=reference")
    result = duel(bench, "oracle", UNTRIED)
    assert overall(bench)["share"] == 1.0
    assert bench.results["comparison"] is None
    result.stdout.fnmatch_lines(["*scores are not compared with main: another judge: reference *"])
    assert result.ret == 0

    result = duel(bench, "oracle", UNTRIED, "--imgedit-max-drop=overall:0")
    assert result.ret == 4


@pytest.mark.full
def test_several_dimensions_are_asked_apart_and_each_can_be_gated(bench: Bench) -> None:
    save(bench, "blend")
    result = duel(
        bench,
        "oracle",
        "--imgedit-set=judge.duel_protocol=duel-aspects",
        "--imgedit-min-win=preservation@overall:0.4",
        "--imgedit-min-win=overall:0.5",
        UNTRIED,
    )
    assert Knowing.asked["duel"] == 3 * 2 * PAIRS
    assert list(bench.results["duel"]["measures"]) == [
        "score",
        "instruction",
        "quality",
        "preservation",
    ]
    assert overall(bench, "quality")["share"] == 1.0
    result.stdout.fnmatch_lines(["  PASS *min_win preservation@overall:0.4: *"])
    assert result.ret == 0


@pytest.mark.full
def test_each_seed_has_a_duel_and_a_selection_is_enough(bench: Bench) -> None:
    save(bench, "blend", "--imgedit-seeds=2")
    duel(bench, "oracle", "--imgedit-seeds=2", "-k", "physics", UNTRIED)
    pairs = bench.results["duel"]["pairs"]
    assert len(pairs) == 5
    assert all(len(pair["seeds"]) == 2 for pair in pairs.values())
    assert gates(bench)["min_win"] == "INCONCLUSIVE", "five sources cannot fail it"


def test_a_baseline_without_its_edits_is_refused_before_the_first_edit(bench: Bench) -> None:
    save(bench, "blend")
    shutil.rmtree(bench.path / "benchmarks/baselines/edits")
    shutil.rmtree(bench.path / ".imgedit")
    bench.refuses(
        "--imgedit-duel: baseline main has no edits: those of 10 of 10 pairs are in none of *; "
        "expected a baseline saved with --imgedit-save-edits, or a run of this store",
        *(SUITE, KNOWING, "--imgedit-editor=oracle", *AGAINST),
    )


@pytest.mark.full
def test_a_baseline_whose_edits_are_elsewhere_is_read_there(bench: Bench) -> None:
    save(bench, "blend")
    shutil.rmtree(bench.path / ".imgedit")
    duel(bench, "oracle", UNTRIED)
    assert overall(bench)["share"] == 1.0


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--imgedit-duel",), "--imgedit-duel: nothing to duel with, expected --imgedit-compare*"),
        (("--imgedit-min-win=overall:0.5",), "--imgedit-min-win: no duels to win, expected *"),
        (
            (*AGAINST, "--imgedit-until=decided"),
            "--imgedit-until=decided: not with --imgedit-duel*",
        ),
        ((*AGAINST, "--imgedit-shard=1/2"), "--imgedit-shard=1/2: not with --imgedit-duel: *"),
        ((*AGAINST, "--imgedit-min-win=overall:2"), "--imgedit-min-win: overall:*0 to 1*"),
        ((*AGAINST, "--imgedit-min-win=beauty@overall:0.5"), "*unknown measure 'beauty' *"),
        ((*AGAINST, "--imgedit-set=judge.duel_protocol=aspects"), "*it judges one edit*"),
    ],
    ids=["alone", "no-duel", "until", "shard", "share", "measure", "protocol"],
)
@pytest.mark.everyday_for("alone", "until")
def test_a_duel_that_cannot_be_is_refused_in_one_line(
    bench: Bench, options: tuple[str, ...], line: str
) -> None:
    bench.refuses(line, SUITE, KNOWING, "--imgedit-editor=oracle", *options)


@pytest.mark.full
def test_names_and_order_of_what_is_put_against_each_other_move_nothing(bench: Bench) -> None:
    """It costs over 5 CPU seconds, as two runs ask about all edits and controls."""
    save(bench, "blend")
    duel(bench, "oracle", "--imgedit-name=zebra")
    first = bench.results["duel"]
    shutil.copytree(bench.path / "benchmarks/baselines", bench.path / "aardvark")
    options = ("--imgedit-compare=aardvark/main.json", "--imgedit-duel", "--imgedit-fresh")
    workers = "--imgedit-set=workers.cpu_workers=3"
    bench.run(SUITE, KNOWING, "--imgedit-editor=oracle", "--imgedit-name=a", *options, workers)
    second = bench.results["duel"]
    for part in ("measures", "disagreement", "first", "controls", "identical"):
        assert second[part] == first[part]


def test_a_baseline_that_keeps_no_edits_for_its_duels_is_said(bench: Bench) -> None:
    (bench.path / "imgedit.toml").write_text('[gates]\ncompare = "main"\nduel = true\n')
    options = (SUITE, KNOWING, "--imgedit-editor=blend", UNTRIED)
    result = bench.run(*options, "--imgedit-save=main")
    result.stdout.fnmatch_lines(["*warning: --imgedit-save=main keeps no edits, and duels *"])
    assert result.ret == 0
