"""What workers on other hosts computed counts as computed there, and is taken up by later runs."""

from __future__ import annotations

import json
import sys

import pytest
from folders import CONFIG
from model_server import ModelServer
from PIL import Image

from pytest_imgedit.store.journal import Journal
from pytest_imgedit.store.records import ModelRecord

SUITE = ("--imgedit-suite=scenes", "--imgedit-set=editor.num_inference_steps=1", "--imgedit-editor=scenes")
MODELS = (*SUITE, "--imgedit-judge=scenes", "--imgedit-limit=2")
OWN = ("--imgedit-suite=scenes", "--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant", "--imgedit-limit=1")


@pytest.fixture(scope="module")
def server():
    with ModelServer() as server:
        yield server
        server.shutdown()


@pytest.fixture
def hosts(bench):
    """Write a config with the specs of hosts and more lines of `[workers]`; return the option."""

    def write(*specs, more=""):
        (bench.path / "hosts.toml").write_text(f"{CONFIG}[workers]\nhosts = {json.dumps(specs)}\n{more}\n")
        return "--imgedit-config=hosts.toml"

    return write


@pytest.fixture
def older(tmp_path):
    """A folder that makes an interpreter, with it in PYTHONPATH, one of an older Pillow."""
    described = tmp_path / "older" / "pillow-11.0.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: pillow\nVersion: 11.0.0\n")
    return described.parent


@pytest.fixture
def calls(bench):
    """A test of the user's own, `test_own.py`, that edits an image and scores the edit."""
    (bench.path / "test_image_edit.py").unlink()
    (bench.path / "test_own.py").write_text(
        "from PIL import Image\n"
        "def test_own(edit_workers, reward_model):\n"
        "    photo = Image.new('RGB', (64, 64), 'white')\n"
        "    edited = edit_workers.edit(photo, 'make it snow')\n"
        "    reward_model.score(photo, edited, 'make it snow', 'environment')\n"
    )


def outcome(bench):
    return {name: (item["score"], item["seeds"][0]["edit"]["blob"]) for name, item in bench.items.items()}


def cached(bench):
    return bench.timing["edits_cached"], bench.timing["verdicts_cached"]


@pytest.mark.full
def test_what_hosts_without_gpus_computed_counts_as_that_and_is_taken_up(bench, hosts):
    there = (*MODELS, hosts("popen"))
    bench.run_subprocess(*there)
    expected = outcome(bench)
    models = Journal(bench.path / ".imgedit" / "models.jsonl", ModelRecord, reads_only=True).records.values()
    assert [model.recipe["dtype"] for model in models] == ["float32", "float32"]
    for options in (there, (*there, "--imgedit-stage=score"), (*there, "--imgedit-stage=report"), MODELS):
        bench.run_subprocess(*options)
        assert (bench.timing["edits_cached"], bench.timing["verdicts_cached"]) == (10, 10), options
        assert outcome(bench) == expected
    assert (bench.stored_edits(), bench.records("verdicts")) == (10, 10)


@pytest.mark.full
def test_versions_are_those_of_the_hosts(bench, hosts, older):
    there = (*OWN, hosts(f"popen//env:PYTHONPATH={older}"))
    bench.run_subprocess(*there)
    (made,) = [one for one in bench.results["environments"].values() if one["edits"]]
    assert made["versions"]["pillow"] == "11.0.0"
    bench.run_subprocess(*there)
    assert cached(bench) == (5, 5)
    bench.run_subprocess(*there, "--imgedit-reuse=exact")
    assert cached(bench) == (5, 5)
    bench.run_subprocess(*OWN)  # here is another Pillow
    assert cached(bench) == (0, 0)
    bench.run_subprocess(*there, "--imgedit-fresh")
    bench.run_subprocess(*there, "--imgedit-stage=report")
    assert cached(bench) == (5, 5)
    assert {one["versions"]["pillow"] for one in bench.results["environments"].values()} == {"11.0.0"}
    assert bench.results["reuse"]["edits"] == 0


def test_versions_are_those_of_the_interpreter_that_a_role_names(bench, hosts, older):
    python = bench.path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={older} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    there = (*OWN, hosts("popen", more=f'editor_python = "{python}"'))
    for found in ((0, 0), (5, 5)):
        bench.run_subprocess(*there)
        assert cached(bench) == found
    assert {one["versions"]["pillow"] == "11.0.0" for one in bench.results["environments"].values()} == {True, False}


@pytest.mark.full
def test_a_server_is_asked_from_here_whatever_hosts_have(server, bench, hosts, older):
    server.reset()
    judge = f"--imgedit-judge=openai:{server.url}#scenes"
    there = ("--imgedit-suite=scenes", "--imgedit-editor=oracle", judge, "--imgedit-limit=1")
    option = hosts(f"popen//env:PYTHONPATH={older}")
    for found in ((0, 0), (5, 5)):
        bench.run_subprocess(*there, option)
        assert cached(bench) == found
    assert len(server.asked) == 5


@pytest.mark.full
def test_served_edits_that_hosts_without_gpus_judged_are_reported(server, bench, hosts):
    server.reset()
    editor = f"--imgedit-editor=openai-images:{server.url}#scenes"
    there = ("--imgedit-suite=scenes", editor, "--imgedit-judge=scenes", "--imgedit-limit=1", hosts("popen"))
    bench.run_subprocess(*there)
    expected = outcome(bench)
    bench.run_subprocess(*there, "--imgedit-stage=report")
    assert cached(bench) == (5, 5)
    assert outcome(bench) == expected


@pytest.mark.full
def test_a_report_of_hosts_finds_what_is_beside_a_pair_that_failed(bench, hosts):
    for name in "ab":
        Image.new("RGB", (64, 64), "white").save(bench.path / f"{name}.png")
    pairs = [{"id": f"p-{name}", "category": "x", "instruction": "x", "image": f"{name}.png"} for name in "abc"]
    (bench.path / "suite.json").write_text(json.dumps(pairs))
    there = (*SUITE[1:], "--imgedit-suite=suite.json", "--imgedit-judge=fakes:Constant", "--imgedit-max-errors=1")
    there = (*there, hosts("popen"))
    for options, found in (((), (0, 0)), (("--imgedit-stage=report",), (2, 2))):
        bench.run_subprocess(*there, *options)
        assert cached(bench) == found
        assert bench.error_kinds == {"p-c": "bad_image"}


@pytest.mark.full
def test_calls_on_hosts_without_gpus_are_taken_up(bench, calls, hosts):
    models = ("--imgedit-suite=scenes", "--imgedit-editor=scenes", "--imgedit-judge=scenes")
    for _ in range(2):
        bench.run_subprocess("test_own.py", *models, hosts("popen")).assert_outcomes(passed=1)
        assert (bench.records("edits"), bench.records("verdicts"), bench.records("models")) == (1, 1, 2)


@pytest.mark.full
def test_calls_take_from_the_store_what_the_hosts_have_computed_alone(bench, calls, hosts, older):
    there = hosts(f"popen//env:PYTHONPATH={older}", more='gpus = "none"')
    for options, records in (((), 1), ((there,), 2), ((there,), 2), ((), 2)):
        bench.run_subprocess("test_own.py", *OWN, *options).assert_outcomes(passed=1)
        assert (bench.records("edits"), bench.records("verdicts")) == (records, records), options


def test_a_call_that_hosts_refuse_fails_and_leaves_no_connection(bench, hosts):
    (bench.path / "test_image_edit.py").unlink()
    (bench.path / "test_own.py").write_text(
        "import pytest\n"
        "from PIL import Image\n"
        "from pytest_imgedit import EditFailed\n"
        "def test_own(edit_workers):\n"
        "    for _ in range(2):\n"
        "        with pytest.raises(EditFailed, match='did not tell the versions'):\n"
        "            edit_workers.edit(Image.new('RGB', (64, 64)), 'x')\n"
        "        assert edit_workers._calls.workers._launcher is None\n"
    )
    refused = hosts("popen", more='editor_python = "/bin/false"')
    bench.run_subprocess("test_own.py", *OWN, refused).assert_outcomes(passed=1)
