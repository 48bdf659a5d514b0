"""Two shards and a merge: the whole run in items, tables and gates; and shards that cannot be of
one run.
"""

from __future__ import annotations

import json
import re
import shutil

import pytest
from folders import CONFIG
from PIL import Image

from pytest_imgedit.cli.main import main
from pytest_imgedit.core.results import ComputedIn

PAINTED = (
    "--imgedit-suite=scenes:n=10",
    "--imgedit-editor=fakes:Checkpoint",
    "--imgedit-judge=fakes:Reads",
)
#: What a merged run shares with the whole run.
SAME = (
    "categories",
    "overall",
    "measures",
    "gates",
    "comparison",
    "controls",
    "suite",
    "selection",
    "editor",
    "judge",
    "reuse",
)


def shard(bench, index, *arguments, count=2):
    return bench.run(f"--imgedit-shard={index}/{count}", f"--imgedit-out=s{index}", *arguments)


@pytest.fixture
def merge(bench, capsys, monkeypatch):
    """Merge runs into the store `merged`; return the exit code, what was printed, and what was told
    of errors.
    """
    monkeypatch.chdir(bench.path)

    def run(*references, out="merged"):
        code = main(["merge", *references, "--out", out])
        printed = capsys.readouterr()
        return code, printed.out, printed.err.strip()

    return run


def comparable(document):
    """What decides: all but times, and which worker did it."""
    items = document["items"]
    for item in items:
        for seed in item["seeds"]:
            for part in ("edit", "verdict"):
                for name in ("seconds", "worker", "batch_size"):
                    (seed[part] or {}).pop(name, None)
    return {"items": items, **{name: document[name] for name in SAME}}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        pytest.param(
            ["--imgedit-fail-under=overall:3", "--imgedit-controls"],
            1,
            id="a judge that is not believed",
            marks=pytest.mark.full,
        ),
        pytest.param(["--imgedit-compare=main", "--imgedit-max-drop=overall:0.2"], 1, id="a drop"),
        pytest.param(
            ["--imgedit-compare=main", "--imgedit-max-drop=overall:3"],
            0,
            id="no drop",
            marks=pytest.mark.full,
        ),
        pytest.param(
            ["-k", "physics or social", "--imgedit-config=gates.toml"],
            0,
            id="a part, and gates that rest",
            marks=pytest.mark.full,
        ),
        pytest.param(["--imgedit-seeds=2"], 0, id="two seeds", marks=pytest.mark.full),
    ],
)
def test_two_shards_and_a_merge_are_the_whole_run(bench, merge, options, code):
    (bench.path / "gates.toml").write_text(
        f"{CONFIG}controls = false\n[gates]\nfail_under = {{ overall = 3, physics = 3 }}\nmargin "
        "= 5\n"
    )
    baseline = ("--imgedit-set=judge.controls=false", "--imgedit-set=editor.level=8")
    if "--imgedit-compare=main" in options:
        bench.run(*PAINTED, *baseline, "--imgedit-save=main", "--imgedit-out=before")
        options = [
            *options,
            "--imgedit-set=judge.controls=false",
            "--imgedit-set=gates.max_collapsed=50",
        ]
    whole = bench.run(*PAINTED, *options)
    assert whole.ret == code, whole.outlines
    results = bench.results
    for index in (1, 2):
        assert shard(bench, index, *PAINTED, *options).ret == 0
        gates = bench.document_of(f"s{index}")["gates"]
        assert {gate["state"] for gate in gates} == {"NOT SELECTED"}
    merged, printed, _ = merge("s1", "s2")
    document = bench.document_of("merged")
    assert comparable(document) == comparable(results)
    assert merged == code
    line = next(
        line
        for line in whole.outlines
        if line.startswith("imgedit: ") and line.split()[1].isupper()
    )
    assert line in printed.splitlines() or line[:60] in printed
    assert document["timing"]["edits"] == results["timing"]["edits"]


@pytest.mark.full
def test_shards_that_compare_with_latest_are_merged_against_the_run_that_was_latest_then(
    bench, merge
):
    few = (*PAINTED, "--imgedit-limit=2", "--imgedit-set=judge.controls=false")
    bench.run(*few, "--imgedit-set=editor.level=8", "--imgedit-out=s1")
    shutil.copytree(bench.path / "s1", bench.path / "s2")
    [earlier] = (bench.path / "s1" / "runs").iterdir()
    drop = ("--imgedit-compare=latest", "--imgedit-max-drop=overall:0.2")
    folders = []
    for index in (1, 2):
        assert shard(bench, index, *few, *drop).ret == 0
        [folder] = {*(bench.path / f"s{index}" / "runs").iterdir()} - {
            bench.path / f"s{index}" / "runs" / earlier.name
        }
        folders.append(str(folder))
    code, printed, _ = merge(*folders)
    comparison = bench.document_of("merged")["comparison"]
    assert (comparison["run"], comparison["rows"]["overall"]["n"]) == (earlier.name, 10)
    assert (code, "max_drop" in printed or "FAIL" in printed or "INCONCLUSIVE" in printed) == (
        1,
        True,
    )


@pytest.mark.parametrize(
    "xdist",
    [pytest.param([], id="plain"), pytest.param(["-n1"], id="xdist")],
)
@pytest.mark.full
def test_a_shard_without_pairs_is_a_run_that_can_be_merged(bench, merge, xdist):
    options = [*PAINTED, "--imgedit-limit=1", "-k", "physics or social", "--imgedit-controls"]
    whole = bench.run(*options)
    for index in (1, 2, 3, 4):
        result = shard(bench, index, *options, *xdist, count=4)
        assert result.ret == 0, result.outlines
    counts = [len(bench.document_of(f"s{index}")["items"]) for index in (1, 2, 3, 4)]
    assert (sum(counts), 0 in counts) == (2, True)
    code, _, _ = merge("s1", "s2", "s3", "s4")
    assert code == whole.ret
    assert comparable(bench.document_of("merged")) == comparable(bench.results)


def test_the_merged_store_is_whole(bench, merge):
    for index in (1, 2):
        shard(bench, index, *PAINTED, "--imgedit-limit=2")
    assert merge(*(f"s{index}" for index in (1, 2)))[0] == 0
    for index in (1, 2):
        shutil.rmtree(bench.path / f"s{index}")
    bench.run(*PAINTED, "--imgedit-limit=2", "--imgedit-out=merged", "--imgedit-stage=report")
    runs = sorted(
        (bench.path / "merged" / "runs").glob("*/results.json"),
        key=lambda path: path.stat().st_mtime_ns,
    )
    again = json.loads(runs[-1].read_text())
    assert again["timing"]["edits_cached"] == again["timing"]["verdicts_cached"] == 10
    page = (runs[0].parent / "report.html").read_text()
    blobs = [item["seeds"][0]["edit"]["blob"] for item in again["items"]]
    assert all(blob in page for blob in blobs)
    assert all(
        (bench.path / "merged" / "blobs" / blob[:2] / f"{blob}.png").is_file() for blob in blobs
    )


def test_a_shard_tells_of_its_items_only(bench, merge):
    for name in "abd":
        Image.new("RGB", (64, 64), "white").save(bench.path / f"{name}.png")
    rows = [
        {"id": name, "instruction": "x", "category": "x", "image": f"{name}.png"} for name in "abcd"
    ]
    (bench.path / "suite.json").write_text(json.dumps(rows))
    own = (
        "--imgedit-suite=suite.json",
        "--imgedit-editor=identity",
        "--imgedit-judge=fakes:Constant",
    )
    held = {}
    for index in (1, 2):
        result = shard(
            bench, index, *own, "--imgedit-max-errors=0.25", "--imgedit-fail-under=overall:9"
        )
        held[index] = [item["id"] for item in bench.document_of(f"s{index}")["items"]]
        assert result.ret == 0, result.outlines  # one of four may fail, and no gate is decided
        outcome = f"shard {index}/2: {len(held[index])} of 4 pairs, * scored"
        result.stdout.fnmatch_lines(
            [f"imgedit: NOT SELECTED: {outcome}", "imgedit merge decides the gates"]
        )
    assert sorted(held[1] + held[2]) == ["a", "b", "c", "d"]
    code, printed, _ = merge("s1", "s2")
    assert code == 1
    errors = next(
        gate for gate in bench.document_of("merged")["gates"] if gate["kind"] == "max_errors"
    )
    assert (errors["state"], errors["value"], errors["limit"]) == ("PASS", 1, 1)
    assert "overall 5.00 < 9" in printed
    raising = ("--imgedit-editor=fakes:Raises", "--imgedit-set=editor.on='a'", "-k", "not c")
    for index in (1, 2):  # of three pairs one fails, and none may
        assert shard(bench, index, *own, *raising).ret == int("a" in held[index])


@pytest.mark.full
def test_a_shard_under_xdist_has_the_same_items(bench):
    plain = shard(bench, 1, *PAINTED, "--imgedit-limit=2")
    bench.run_subprocess(
        "--imgedit-shard=1/2", "--imgedit-out=x1", *PAINTED, "--imgedit-limit=2", "-n", "2"
    )
    names = [item["id"] for item in bench.document_of("s1")["items"]]
    assert [item["id"] for item in bench.document_of("x1")["items"]] == names
    assert bench.document_of("x1")["selection"] == bench.document_of("s1")["selection"]
    plain.assert_outcomes(passed=len(names), deselected=10 - len(names))


@pytest.mark.full
def test_shards_that_are_not_of_one_run_are_refused(bench, merge):
    few = (*PAINTED, "--imgedit-limit=2", "--imgedit-set=judge.controls=false")
    for index in (1, 2):
        shard(bench, index, *few)
    refused = {
        "editor": ("--imgedit-set=editor.level=5",),
        "selection": ("-k", "not social"),
        "gates": ("--imgedit-fail-under=overall:1",),
        "seeds or batch size of the editor": ("--imgedit-seeds=2",),
        "judge": ("--imgedit-set=judge.spec=fakes:Constant",),
        "stage": ("--imgedit-stage=edit",),
    }
    for number, (fact, options) in enumerate(refused.items()):
        out = f"other{number}"
        bench.run("--imgedit-shard=2/2", f"--imgedit-out={out}", *few, *options)
        code, _, line = merge("s1", out)
        assert code == 4
        assert f": another {fact} than in s1/runs/" in line, line
    bench.run(*few)
    lines = {
        ("s1",): "imgedit: shards 2/2 are missing, expected all of the run",
        ("s1", "s1"): "is: expected each shard once",
        ("s1", ".imgedit"): "a run of all its pairs, expected one with --imgedit-shard=I/N",
        ("s1", "nowhere"): "nowhere: no such file, and nowhere has no finished run",
    }
    for references, line in lines.items():
        code, _, error = merge(*references)
        assert (code, line in error) == (4, True), error
    assert not (bench.path / "merged").exists()
    code, _, error = merge("s1", "s2", out="s1")
    assert (code, error) == (4, "imgedit: s1: is there already, expected a new or an empty folder")


def move_to_another_environment(store):
    """Change the results of a store's run to those of another version of Pillow."""
    (path,) = (store / "runs").glob("*/results.json")
    text = path.read_text()
    for digest, environment in json.loads(text)["environments"].items():
        environment["versions"]["pillow"] = "1.0"
        text = text.replace(digest, ComputedIn(**environment).bare.digest)
    path.write_text(re.sub(r'"pillow": ".*?"', '"pillow": "1.0"', text))


def test_results_of_unlike_environments_are_not_merged(bench, merge):
    for index in (1, 2):
        shard(bench, index, *PAINTED, "--imgedit-limit=2")
    move_to_another_environment(bench.path / "s2")
    code, _, error = merge("s1", "s2")
    assert code == 4
    assert "edits of another environment than in s1/runs/" in error
    assert "pillow 1.0 there, " in error


def test_the_shard_of_another_environment_is_compared_with_one_that_has_pairs(bench, merge):
    options = [*PAINTED, "--imgedit-limit=1", "-k", "physics or social"]
    for index in (1, 2, 3):
        shard(bench, index, *options, count=3)
    assert not bench.document_of("s2")["items"]
    move_to_another_environment(bench.path / "s3")
    code, _, error = merge("s2", "s1", "s3")
    assert code == 4
    assert error.startswith("imgedit: s3/runs/")
    assert ": edits of another environment than in s1/runs/" in error


def test_what_is_about_all_pairs_is_refused_with_a_shard(bench):
    gate = ("--imgedit-fail-under=overall:1", "--imgedit-shard=1/2")
    for option, name in (
        ("--imgedit-until=decided", "--imgedit-until=decided"),
        ("--imgedit-save=main", "--imgedit-save=main"),
        ("--imgedit-judge-repeats=2", "--imgedit-judge-repeats=2"),
    ):
        bench.refuses(
            f"--imgedit-shard=1/2: not with {name}, which is about all pairs", option, *gate
        )
    for text in ("0/2", "3/2", "1", "1/0", "a/b"):
        bench.refuses(
            f"--imgedit-shard: expected I/N with I from 1 to N, * found '{text}'",
            f"--imgedit-shard={text}",
        )
