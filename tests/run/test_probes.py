"""Probes: what a loaded model makes of a fixed request is compared with other workers, with what is
stored, with a baseline and between shards.
"""

from __future__ import annotations

import json

import pytest
from run_world import World

from pytest_imgedit.cli.main import main
from pytest_imgedit.kinds import diffusers
from pytest_imgedit.kinds.base import GIB
from pytest_imgedit.workers.gpus import Gpu
from pytest_imgedit.workers.hardware import Hardware, HostHardware

EDITOR = """
import fcntl
import time
from pathlib import Path

HERE = Path(__file__).parent


def next_probe(name):
    path = HERE / name
    with (HERE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers load at the same time
        first, _, rest = path.read_text().partition(" ")
        if rest:
            path.write_text(rest)
    return first


class Editor:
    def __init__(self, *, device, level=1):
        self.level = level

    def self_check(self):
        return next_probe("editor.txt")

    def edit(self, request):
        while " " in (HERE / "editor.txt").read_text():  # another worker is still to load
            time.sleep(0.01)
        if (HERE / "slow").exists():  # so that its probe is known before all edits are made
            time.sleep(2)
        (HERE / "edited.txt").open("a").write(request.pair_id + " ")
        return request.source.rotate(90 * self.level)


class Judge:
    def __init__(self, *, device):
        pass

    def self_check(self):
        return next_probe("judge.txt")

    def answer(self, questions):
        from pytest_imgedit import Answer

        return [Answer("", score=7.0) for _ in questions]
"""
FEW = (
    "--imgedit-editor=probed:Editor",
    "--imgedit-judge=probed:Judge",
    "--imgedit-limit=1",
    "--imgedit-set=judge.controls=false",
)
SAME = "--imgedit-set=gates.environment='same'"
EXACT = "--imgedit-reuse=exact"


@pytest.fixture
def probed(bench):
    """A benchmark of five pairs, whose models have the probes of `editor.txt` and `judge.txt`, one
    after the other.
    """
    (bench.path / "probed.py").write_text(EDITOR)
    computes(bench)
    return bench


def computes(bench, editor="aaaa", judge="1111"):
    """Set the probes of models that load from now on."""
    (bench.path / "editor.txt").write_text(editor)
    (bench.path / "judge.txt").write_text(judge)
    (bench.path / "edited.txt").write_text("")


def edited(bench):
    """The number of edits since the probes were set."""
    return len((bench.path / "edited.txt").read_text().split())


def lines_with(result, text):
    return [line for line in result.outlines + result.errlines if text in line]


def test_the_probe_is_in_results_by_worker_and_environment_and_in_records(probed):
    assert probed.run(*FEW).ret == 0
    found = probed.results
    assert {(each["stage"], each["probe"]) for each in found["workers"]} == {
        ("edit", "aaaa"),
        ("score", "1111"),
    }
    assert {
        (each["probe"], bool(each["edits"]), bool(each["verdicts"]))
        for each in found["environments"].values()
    } == {("aaaa", True, False), ("1111", False, True)}
    records = (probed.path / ".imgedit" / "edits.jsonl").read_text()
    assert records.count('"probe": "aaaa"') == 5


def test_a_worker_that_computes_otherwise_ends_the_run_and_what_is_stored_stays(probed):
    computes(probed, editor="aaaa bbbb")
    (probed.path / "slow").touch()
    result = probed.run(*FEW, "--imgedit-set=workers.cpu_workers=2")
    (probed.path / "slow").unlink()
    assert result.ret == 4
    (line,) = lines_with(result, "compute otherwise")
    assert "has probe aaaa" in line
    assert "has probe bbbb" in line
    made = edited(probed)
    computes(probed)
    assert probed.run(*FEW).ret == 0
    assert probed.timing["edits_cached"] + probed.timing["edits"] == 5
    assert probed.timing["edits_cached"] <= made


def test_two_workers_that_compute_alike_run(probed):
    assert probed.run(*FEW, "--imgedit-set=workers.cpu_workers=2").ret == 0
    assert edited(probed) == 5


def test_a_model_without_a_probe_is_compared_with_nothing(probed):
    path = probed.path / "probed.py"
    path.write_text(EDITOR.replace('return next_probe("editor.txt")', "return None"))
    assert probed.run(*FEW).ret == 0
    assert [each["probe"] for each in probed.results["workers"]] == [None, "1111"]


@pytest.mark.parametrize(
    ("policy", "made", "word"), [("compatible", 4, "reused"), ("exact", 5, "made again")]
)
@pytest.mark.everyday_for("compatible-4-reused")
def test_stored_edits_of_another_probe_are_told_and_made_again_if_exact(probed, policy, made, word):
    probed.run(*FEW, "-k", "physics")
    computes(probed, editor="bbbb")
    result = probed.run(*FEW, f"--imgedit-reuse={policy}")
    assert result.ret == 0
    assert edited(probed) == made
    (line,) = lines_with(result, "another probe than the editor")
    assert "1 stored edit with" in line
    assert word in line
    assert probed.timing["edits"] == made
    assert probed.timing["edits_cached"] == 5 - made
    assert len(probed.results["items"]) == 5


@pytest.mark.parametrize(("policy", "asked"), [("compatible", 4), ("exact", 5)])
@pytest.mark.everyday_for("compatible-4")
def test_stored_verdicts_of_another_probe_likewise(probed, policy, asked):
    probed.run(*FEW, "-k", "physics")
    computes(probed, judge="2222")
    result = probed.run(*FEW, f"--imgedit-reuse={policy}")
    assert result.ret == 0
    assert lines_with(result, "1 stored verdict with another probe than the judge")
    assert probed.timing["verdicts"] == asked
    assert probed.timing["verdicts_cached"] == 5 - asked


def test_where_nothing_loads_nothing_is_asked(probed):
    probed.run(*FEW)
    computes(probed, editor="bbbb", judge="2222")
    for stage in ("all", "score", "report"):
        result = probed.run(*FEW, f"--imgedit-stage={stage}", EXACT)
        assert result.ret == 0
        assert not lines_with(result, " probe ")
    assert edited(probed) == 0


def test_the_plan_tells_of_stored_edits_with_two_probes(probed):
    probed.run(*FEW, "-k", "physics")
    computes(probed, editor="bbbb")
    probed.run(*FEW)
    result = probed.run(*FEW)
    (line,) = lines_with(result, "in unlike ways")
    assert "1 edit of probe aaaa" in line
    assert "4 edits of probe bbbb" in line


def compared(bench, *options):
    gate = ("--imgedit-max-drop=overall:9", "--imgedit-set=gates.inconclusive=warn")
    return bench.run(*FEW, "--imgedit-compare=main", *gate, *options)


@pytest.fixture
def saved(probed):
    """A benchmark with a baseline, and an empty store."""
    assert probed.run(*FEW, "--imgedit-save=main", "--imgedit-out=before").ret == 0
    return probed


def test_a_baseline_of_another_probe_is_refused_before_the_first_edit(saved):
    computes(saved, editor="bbbb")
    result = compared(saved, SAME)
    assert result.ret == 4
    (line,) = lines_with(result, "edits: probe aaaa there, bbbb here")
    assert 'gates.environment="same"' in line
    assert edited(saved) == 0


def test_a_baseline_of_another_probe_is_named_where_any_environment_will_do(saved):
    computes(saved, editor="bbbb")
    assert compared(saved).ret == 0
    assert saved.results["comparison"]["environment"] == [
        "edits: probe aaaa there, bbbb here (CPU)"
    ]


def test_a_judge_of_another_probe_is_refused_likewise(saved):
    computes(saved, judge="2222")
    result = compared(saved, SAME)
    assert result.ret == 4
    assert lines_with(result, "verdicts: probe 1111 there, 2222 here")


def test_no_word_is_said_of_the_probe_of_another_checkpoint(saved):
    computes(saved, editor="bbbb")
    result = compared(saved, SAME, "--imgedit-set=editor.level=2")
    assert result.ret == 0
    assert saved.results["comparison"]["environment"] == []
    assert not lines_with(result, " probe ")


@pytest.mark.parametrize("policy", ["compatible", "exact"])
def test_shards_of_unlike_probes_are_told_or_refused_if_exact(probed, policy, capsys, monkeypatch):
    monkeypatch.chdir(probed.path)
    for index, probe in ((1, "aaaa"), (2, "bbbb")):
        computes(probed, editor=probe)
        shard = (f"--imgedit-shard={index}/2", f"--imgedit-out=s{index}")
        assert probed.run(*FEW, *shard, f"--imgedit-reuse={policy}").ret == 0
    capsys.readouterr()
    code = main(["merge", "s1", "s2", "--out", "merged"])
    printed = capsys.readouterr()
    text = "edits: probe bbbb there, aaaa here (CPU)"
    if policy == "exact":
        assert code == 4
        assert text in printed.err
        return
    assert code == 0
    assert f"warning: shard 2/2: {text}" in printed.out
    document = json.loads(next((probed.path / "merged/runs").glob("*/results.json")).read_text())
    assert {place["probe"] for place in document["environments"].values()} == {
        "aaaa",
        "bbbb",
        "1111",
    }


def gpus(count):
    names = tuple(str(number) for number in range(count))
    known = tuple(
        Gpu(name=name, product="H100", free_gib=80.0, total_gib=80.0, holders="123")
        for name in names
    )
    return Hardware((HostHardware(gpus=names, known=known, memory=900 * GIB),))


@pytest.fixture
def world(tmp_path, tiny, monkeypatch):
    """A world whose editor is compiled on a GPU, as far as its size goes."""
    monkeypatch.setattr(diffusers, "COMPILE_BYTES", 0)
    return World(tmp_path, editor={"spec": f"diffusers:{tiny('qwen-image-edit')}"})


def keys(plan):
    return {work.pair.id: work.content for work in plan.works}


def test_an_edit_has_one_key_and_is_compiled_however_much_there_is_to_edit(world):
    world.hardware = gpus(1)
    whole = world.plan()
    world.hardware = gpus(4)
    many = world.plan()
    assert keys(many) == keys(whole)
    world.pairs = world.pairs[:1]
    one = world.plan()
    assert keys(one).items() < keys(whole).items()
    assert [plan.models["editor"].options.compile for plan in (whole, many, one)] == [
        "if possible"
    ] * 3
    assert [note for note in world.told.notes if "the editor is compiled, which takes" in note]


@pytest.mark.parametrize("stage", ["score", "report"])
def test_a_machine_without_gpus_finds_edits_that_one_with_gpus_made(world, stage):
    world.hardware = gpus(2)
    assert world.run().timing.edits == 4
    world.hardware = gpus(0)
    run = world.run(run={"stage": stage})
    assert (run.timing.edits, run.timing.edits_cached) == (0, 4)
    assert [work.error for work in run.plan.works] == [None] * 4
    assert keys(run.plan) == keys(world.plan(run={"stage": stage}))


def test_a_machine_without_gpus_makes_edits_of_its_own(world):
    world.hardware = gpus(1)
    world.run()
    world.hardware = gpus(0)
    assert world.run().timing.edits == 4  # in float32


@pytest.mark.full
def test_an_edit_has_one_key_and_one_image_in_every_run(bench, tiny):
    """Loads a tiny pipeline seven times, ten seconds of CPU time: whose images are the point."""
    options = (
        f"--imgedit-editor=diffusers:{tiny('instruct-pix2pix')}",
        "--imgedit-stage=edit",
        "--imgedit-limit=1",
        "--imgedit-set=editor.num_inference_steps=2",
        "--imgedit-set=editor.area=4096",
    )
    ways = {
        "whole": (),
        "one": ("-k", "physics"),
        "shard1": ("--imgedit-shard=1/2",),
        "shard2": ("--imgedit-shard=2/2",),
        "workers": ("--imgedit-set=workers.cpu_workers=2",),
    }
    edits: dict[str, set[tuple[str, str]]] = {}
    for name, way in ways.items():
        assert bench.run(*options, *way, f"--imgedit-out={name}").ret == 0
        for item in bench.document_of(name)["items"]:
            edit = item["seeds"][0]["edit"]
            edits.setdefault(item["id"], set()).add((edit["key"], edit["blob"]))
    assert len(edits) == 5
    assert all(len(found) == 1 for found in edits.values())
