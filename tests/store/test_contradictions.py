"""A document that says something twice, and not alike, is refused: on reading, and on saving."""

from __future__ import annotations

import json
import subprocess

import pytest
from documents import a_run, an_item

from pytest_imgedit.core.errors import StoreError, UsageError
from pytest_imgedit.core.repetitions import values_of
from pytest_imgedit.core.results import ComputedIn, ItemError
from pytest_imgedit.report.read import as_baseline, read_results
from pytest_imgedit.store.baselines import digest_of, make_baseline, write_baseline

PLACE = ComputedIn(device="cpu", versions={"torch": "2"}, edits=0, verdicts=0)
DIGEST = PLACE.bare.digest


def a_full_run(**scores):
    """Results with an error, a pair that was not needed, tags, and an environment."""
    failed = ItemError("score", "unreadable_reply", "no number")
    unneeded = ItemError("edit", "not_needed", "every gate was decided before")
    edit = {"environment": DIGEST}
    items = [
        an_item("p1", "physics", scores.get("p1", 8.0), tags=("water",), edit=edit),
        an_item("p2", "physics", scores.get("p2", 6.0), difficulty="hard", edit=edit),
        an_item("s1", "social", scores.get("s1", 2.0), edit=edit),
        an_item("s2", "social", None, error=failed, edit=edit),
        an_item("s3", "social", None, error=unneeded, edit=edit),
    ]
    run = a_run(items=items[:4])
    # `a_run` makes tables of all its items; pairs that were not needed count in none
    return run.model_copy(
        update={
            "items": tuple(items),
            "suite": run.suite.model_copy(update={"pairs": 5}),
            "selection": run.selection.model_copy(update={"selected": 5, "whole": 5}),
            "environments": {DIGEST: PLACE.model_copy(update={"edits": 5, "verdicts": 0})},
        }
    )


def put(document, place, value):
    part = document
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value


BASELINE = [
    (("overall",), 9.5, "overall: 9.5, its items: "),
    (("categories", "physics", "mean"), 10.0, "categories.physics.mean: 10.0, its items: 7.0"),
    (("categories", "physics", "n"), 3, "categories.physics.n: 3, its items: 2"),
    (("categories", "physics", "scored"), 1, "categories.physics.scored: 1, its items: 2"),
    (("categories", "causal"), {"n": 1, "scored": 0, "mean": None}, "categories.causal: there"),
    (("items", 0, "score"), 2.0, "items.0 (p1).score: 2.0, its status and its seeds: 8.0"),
    (("items", 0, "seeds", 0, "score"), 2.0, "items.0 (p1).score: 8.0, "),
    (("items", 0, "status"), "judge_error", "items.0 (p1).score: 8.0, "),
    (("items", 3, "status"), "scored", "items.3 (s2).status: scored, its score: none"),
    (("items", 0, "category"), "social", "categories.physics.n: 2, its items: 1"),
    (("items", 0, "missing"), ["realism"], "items.0 (p1).values: 'realism', which is missing too"),
    (("seeds",), 2, "items.0 (p1).seeds: 1, the seeds of the baseline: 2"),
    (("not_needed",), 0, "not_needed: 0, its items: 1"),
    (("environments", DIGEST, "edits"), 7, "environments: edits: 7, its items: 5"),
    (("environments", DIGEST, "verdicts"), 7, "environments: verdicts: 7, its items: 3"),
    (("environments", DIGEST, "versions"), {}, f"environments.{DIGEST}: {DIGEST}, its digest: "),
    # what a baseline says once is in its digest
    (("items", 0, "values"), {"realism": 1.0}, "digest: "),
    (("items", 0, "sha256"), "0" * 64, "digest: "),
    (("judge", "spec"), "other", "digest: "),
    (("finished",), "later", "digest: "),
    (("digest",), None, "digest: none, its content: "),
]


@pytest.fixture
def saved(tmp_path):
    run = a_full_run()
    places = {DIGEST: PLACE.model_copy(update={"edits": 5, "verdicts": 3})}
    baseline = make_baseline(run.model_copy(update={"environments": places}), "main")
    return write_baseline(tmp_path, baseline)


@pytest.mark.parametrize(("place", "value", "line"), BASELINE)
def test_each_number_of_a_baseline_that_is_stated_twice_is_compared(saved, place, value, line):
    document = json.loads(saved.read_text())
    put(document, place, value)
    saved.write_text(json.dumps(document))
    with pytest.raises(UsageError) as caught:
        as_baseline(saved)
    assert str(caught.value).startswith(f"{saved}: contradicts itself: {line}")
    assert "merged by hand or by git?" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value", "line"), [row for row in BASELINE if row[2] != "digest: "]
)
def test_a_new_digest_hides_no_contradiction(saved, place, value, line):
    document = json.loads(saved.read_text())
    put(document, place, value)
    if place != ("digest",):
        saved.write_text(json.dumps({**document, "digest": digest_of(document)}))
        with pytest.raises(UsageError, match="contradicts itself"):
            as_baseline(saved)


def test_the_layout_of_a_baseline_does_not_count(saved):
    was = as_baseline(saved)
    document = json.loads(saved.read_text())
    for text in (
        json.dumps(document, indent=4, sort_keys=True),
        json.dumps(document, ensure_ascii=False).replace("\n", "\r\n"),
        "\ufeff" + saved.read_text(),
    ):
        saved.write_text(text)
        assert as_baseline(saved) == was


RESULTS = [
    (("overall", "macro", "mean"), 9.5, "overall.macro.mean: 9.5, "),
    (("overall", "micro", "mean"), 9.5, "overall.micro.mean: 9.5, "),
    (("overall", "macro", "ci95"), [1.0, 2.0], "overall.macro.ci95: "),
    (("categories", "physics", "n"), 7, "categories.physics.n: 7, "),
    (("categories", "physics", "mean"), 9.5, "categories.physics.mean: 9.5, "),
    (("categories", "physics", "std"), 9.5, "categories.physics.std: 9.5, "),
    (("categories", "physics", "se"), 9.5, "categories.physics.se: 9.5, "),
    (("measures", "score", "rows", "tag=water", "mean"), 1.0, "measures.score.rows.tag=water.mean"),
    (("measures", "realism", "rows", "physics", "mean"), 1.0, "measures.realism.rows.physics.mean"),
    (("measures", "realism", "rows", "physics", "scored"), 1, "measures.realism.rows.physics."),
    (("measures", "realism", "rows", "social", "errors"), 0, "measures.realism.rows.social.errors"),
    (("measures", "realism", "rows", "physics", "median"), 1.0, "measures.realism.rows.physics.me"),
    (("measures", "realism", "micro", "max"), 9.0, "measures.realism.micro.max: 9.0, "),
    (("measures", "realism", "micro", "clusters"), 9, "measures.realism.micro.clusters: 9, "),
    (("items", 0, "score"), 2.0, "items.0 (p1).score: 2.0, its seeds: 8.0"),
    (("items", 0, "seeds", 0, "verdict", "score"), 2.0, "items.0 (p1).score: 8.0, its seeds: 2.0"),
    (("items", 0, "aspects", "realism"), 2.0, "items.0 (p1).realism: 2.0, its seeds: 7.0"),
    (("items", 0, "aspects"), {}, "items.0 (p1).realism: none, its seeds: 7.0"),
    (("items", 3, "status"), "edit_error", "items.3 (s2).status: edit_error, its seeds: judge_"),
    (("items", 3, "error"), None, "items.3 (s2).error: none, "),
    (("items", 0, "missing"), ["m"], "items.0 (p1).further without values: "),
    (("run", "options", "editor", "seeds"), 3, "items.0 (p1).seeds: 1, "),
    (("selection", "selected"), 4, "selection.selected: 4, its list of pairs: 5"),
    (("selection", "whole"), 3, "selection.whole: 3, "),
    (("run", "stopped_by"), "Ctrl-C", "run.stopped_by: Ctrl-C, "),
    (("run", "trials_left"), 2, "run.trials_left: 2, "),
    (("gates", 0, "value"), 0, "gates.max_errors overall: value: 0"),
    (("gates", 0, "limit"), 5, "gates.max_errors overall: limit: 5"),
    (("gates", 0, "state"), "PASS", "gates.max_errors overall: PASS, 1 of its items without"),
    (("environments", DIGEST, "edits"), 7, f"environments.{DIGEST}.edits: 7, its items: 5"),
    (("environments", DIGEST, "device"), "cuda", f"environments.{DIGEST}: {DIGEST}, its digest: "),
]


def test_the_edited_source_is_one_of_the_sources(tmp_path):
    path = tmp_path / "results.json"
    further = (f"cd/{'cd' * 32}.png",)
    for place in (2, 3):
        item = an_item("p1", further=further, edited_source=place)
        path.write_text(json.dumps(a_run(items=[item]).model_dump(mode="json")))
        if place == 2:
            assert read_results(path).items[0].edited_source == 2
    with pytest.raises(UsageError, match=r"items.0 \(p1\).edited_source: 3, its sources: 2"):
        read_results(path)


def test_no_repetition_has_no_values():
    assert values_of("psnr", False, []) == {}


def test_a_score_table_without_its_overall_row_is_refused(tmp_path):
    path = tmp_path / "results.json"
    document = a_full_run().model_dump(mode="json")
    del document["measures"]["score"]["rows"]["overall"]
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"contradicts itself: measures.score.rows.overall"):
        read_results(path)


@pytest.mark.parametrize(("place", "value", "line"), RESULTS)
def test_each_number_of_results_that_is_stated_twice_is_compared(tmp_path, place, value, line):
    path = tmp_path / "results.json"
    document = a_full_run().model_dump(mode="json")
    path.write_text(json.dumps(document))
    assert read_results(path).items
    put(document, place, value)
    path.write_text(json.dumps(document))
    for read in (read_results, as_baseline):
        with pytest.raises(UsageError) as caught:
            read(path)
        assert f"{path}: contradicts itself: " in str(caught.value)
        assert line in str(caught.value)
        assert "\n" not in str(caught.value)


def test_what_contradicts_itself_is_not_saved(tmp_path):
    baseline = make_baseline(a_run(), "main").model_copy(update={"overall": 9.5})
    with pytest.raises(StoreError, match=r"main.json: contradicts itself: .*: it is not saved"):
        write_baseline(tmp_path, baseline)
    assert not list(tmp_path.iterdir())


# Two branches that saved a baseline


def git(folder, *command, ok=(0,)):
    done = subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@x", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "GIT_EDITOR": "true"},
        check=False,
    )
    assert done.returncode in ok, done.stderr
    return done.returncode


def saved_by(folder, run, **scores):
    items = [an_item(f"p{n}", score=scores.get(f"p{n}", 5.0)) for n in range(10, 30)]
    made = a_run(items=items, run={"id": run})
    return write_baseline(folder, make_baseline(made, "main"))


@pytest.fixture
def branches(tmp_path, needs_git):
    """A repository in which `ours` and `theirs` saved the baseline of the first commit anew."""
    git(tmp_path, "init", "-q", "-b", "base")
    for branch, scores in (
        ("base", {}),
        ("theirs", {"p12": 3.0, "p20": 9.0}),
        ("ours", {"p27": 10.0}),
    ):
        if branch != "base":
            git(tmp_path, "checkout", "-q", "-b", branch, "base")
        path = saved_by(tmp_path, branch, **scores)
        git(tmp_path, "add", "main.json")
        git(tmp_path, "commit", "-q", "-m", branch)
    return path


def shows(path, ref):
    text = subprocess.run(
        ["git", "show", f"{ref}:main.json"], cwd=path.parent, capture_output=True, check=True
    ).stdout
    (path.parent / "side.json").write_bytes(text)
    return as_baseline(path.parent / "side.json")


@pytest.mark.parametrize("attribute", ["", "*.json -merge\n"])
@pytest.mark.parametrize(
    "command",
    [
        ("merge", "theirs"),
        ("merge", "-X", "ours", "theirs"),
        ("merge", "-X", "theirs", "theirs"),
        ("merge", "-X", "patience", "theirs"),
        ("rebase", "theirs"),
        ("rebase", "-X", "ours", "theirs"),
        ("rebase", "-X", "theirs", "theirs"),
        ("cherry-pick", "theirs"),
        ("cherry-pick", "-X", "theirs", "theirs"),
    ],
    ids=" ".join,
)
@pytest.mark.everyday
def test_what_git_makes_of_two_saves_is_a_conflict_or_refused_or_one_of_them(
    branches, command, attribute
):
    (branches.parent / ".git" / "info" / "attributes").write_text(attribute)
    sides = [shows(branches, "ours"), shows(branches, "theirs")]
    is_conflict = git(branches.parent, *command, ok=(0, 1)) == 1
    if not attribute and "-X" not in command:
        assert is_conflict
    if attribute:  # git takes the whole file of one side
        assert as_baseline(branches) in sides
        return
    with pytest.raises(UsageError, match=r"conflict markers of git|contradicts itself"):
        as_baseline(branches)


@pytest.mark.parametrize("side", ["--ours", "--theirs", "--union"])
def test_hunks_that_are_resolved_one_by_one_are_refused(branches, side):
    folder = branches.parent
    for ref in ("base", "ours", "theirs"):
        shows(branches, ref)
        (folder / "side.json").rename(folder / ref)
    subprocess.run(["git", "merge-file", side, "ours", "base", "theirs"], cwd=folder, check=True)
    branches.write_text((folder / "ours").read_text())
    with pytest.raises(UsageError):
        as_baseline(branches)
