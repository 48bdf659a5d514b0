"""What workers on other hosts computed counts as computed there, and is taken up by later runs."""

from __future__ import annotations

import json
import sys
from functools import partial

import pytest
from local_hosts import LocalHosts
from model_server import ModelServer
from PIL import Image

from pytest_imgedit.core.environments import ask_versions
from pytest_imgedit.store.journal import Journal, ModelRecord
from pytest_imgedit.workers.hosts import Agent

SUITE = (
    "--imgedit-suite=scenes",
    "--imgedit-set=editor.num_inference_steps=1",
    "--imgedit-editor=scenes",
)
RAY = "--imgedit-executor=ray"
MODELS = (*SUITE, "--imgedit-judge=scenes", "--imgedit-limit=2")
OWN = (
    "--imgedit-suite=scenes",
    "--imgedit-editor=fakes:Slow",
    "--imgedit-judge=fakes:Constant",
    "--imgedit-limit=1",
)


@pytest.fixture(scope="module")
def server():
    with ModelServer() as server:
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def hosts(monkeypatch):
    """Have the executor `ray` find a host that is this machine."""
    monkeypatch.setattr("pytest_imgedit.workers.ray.RayHosts", LocalHosts)


@pytest.fixture
def older(tmp_path):
    """A folder that makes an interpreter, with it in PYTHONPATH, one of an older Pillow."""
    described = tmp_path / "older" / "pillow-11.0.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: pillow\nVersion: 11.0.0\n")
    return described.parent


@pytest.fixture
def with_older(bench, older, monkeypatch):
    """Run pytest in this process, with an older Pillow in all that it starts."""

    def run(*arguments):
        with monkeypatch.context() as patch:
            patch.setenv("PYTHONPATH", str(older))
            ask_versions.cache_clear()
            result = bench.run_with_workers(*arguments)
        ask_versions.cache_clear()
        return result

    return run


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
    return {
        name: (item["score"], item["seeds"][0]["edit"]["blob"])
        for name, item in bench.items.items()
    }


def cached(bench):
    return bench.timing["edits_cached"], bench.timing["verdicts_cached"]


@pytest.mark.full
def test_what_hosts_without_gpus_computed_counts_as_that_and_is_taken_up(bench):
    there = (*MODELS, RAY)
    bench.run_with_workers(*there)
    expected = outcome(bench)
    models = Journal(
        bench.path / ".imgedit" / "models.jsonl", ModelRecord, reads_only=True
    ).records.values()
    assert [model.recipe["dtype"] for model in models] == ["float32", "float32"]
    for options in (
        there,
        (*there, "--imgedit-stage=score"),
        (*there, "--imgedit-stage=report"),
        MODELS,
    ):
        bench.run_with_workers(*options)
        assert (bench.timing["edits_cached"], bench.timing["verdicts_cached"]) == (10, 10), options
        assert outcome(bench) == expected
    assert (bench.stored_edits(), bench.records("verdicts")) == (10, 10)


@pytest.mark.full
def test_versions_are_those_of_the_hosts(bench, with_older):
    with_older(*OWN, RAY)
    (made,) = [one for one in bench.results["environments"].values() if one["edits"]]
    assert made["versions"]["pillow"] == "11.0.0"
    with_older(*OWN, RAY)
    assert cached(bench) == (5, 5)
    with_older(*OWN, RAY, "--imgedit-reuse=exact")
    assert cached(bench) == (5, 5)
    bench.run_with_workers(*OWN)  # here is another Pillow
    assert cached(bench) == (0, 0)
    with_older(*OWN, RAY, "--imgedit-fresh")
    bench.run_with_workers(*OWN, RAY, "--imgedit-stage=report")
    assert cached(bench) == (5, 5)
    assert {one["versions"]["pillow"] for one in bench.results["environments"].values()} == {
        "11.0.0"
    }
    assert bench.results["reuse"]["edits"] == 0


@pytest.fixture
def older_editor(bench, older):
    """The option that has hosts edit with an interpreter of an older Pillow."""
    python = bench.path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={older} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return f"--imgedit-set=workers.editor_python='{python}'"


def test_versions_are_those_of_the_interpreter_that_a_role_names(bench, older_editor):
    for found in ((0, 0), (5, 5)):
        bench.run_with_workers(*OWN, RAY, older_editor)
        assert cached(bench) == found
    assert {
        one["versions"]["pillow"] == "11.0.0" for one in bench.results["environments"].values()
    } == {True, False}


@pytest.mark.full
def test_a_server_is_asked_from_here_whatever_hosts_have(server, bench, older_editor):
    server.reset()
    judge = f"--imgedit-judge=openai:{server.url}#scenes"
    there = (
        "--imgedit-suite=scenes",
        "--imgedit-editor=oracle",
        judge,
        "--imgedit-limit=1",
        RAY,
        older_editor,
    )
    for found in ((0, 0), (5, 5)):
        bench.run_with_workers(*there)
        assert cached(bench) == found
    assert len(server.asked) == 5 + 1  # one tries the server


@pytest.mark.full
def test_served_edits_that_hosts_without_gpus_judged_are_reported(server, bench):
    server.reset()
    editor = f"--imgedit-editor=openai-images:{server.url}#scenes"
    there = ("--imgedit-suite=scenes", editor, "--imgedit-judge=scenes", "--imgedit-limit=1", RAY)
    bench.run_with_workers(*there)
    expected = outcome(bench)
    bench.run_with_workers(*there, "--imgedit-stage=report")
    assert cached(bench) == (5, 5)
    assert outcome(bench) == expected


@pytest.mark.full
def test_a_report_of_hosts_finds_what_is_beside_a_pair_that_failed(bench):
    for name in "ab":
        Image.new("RGB", (64, 64), "white").save(bench.path / f"{name}.png")
    pairs = [
        {"id": f"p-{name}", "category": "x", "instruction": "x", "image": f"{name}.png"}
        for name in "abc"
    ]
    (bench.path / "suite.json").write_text(json.dumps(pairs))
    there = (
        *SUITE[1:],
        "--imgedit-suite=suite.json",
        "--imgedit-judge=fakes:Constant",
        "--imgedit-max-errors=1",
    )
    there = (*there, RAY)
    for options, found in (((), (0, 0)), (("--imgedit-stage=report",), (2, 2))):
        bench.run_with_workers(*there, *options)
        assert cached(bench) == found
        assert bench.error_kinds == {"p-c": "bad_image"}


@pytest.mark.full
def test_calls_on_hosts_without_gpus_are_taken_up(bench, calls):
    models = ("--imgedit-suite=scenes", "--imgedit-editor=scenes", "--imgedit-judge=scenes")
    for _ in range(2):
        bench.run_with_workers("test_own.py", *models, RAY).assert_outcomes(passed=1)
        assert (bench.records("edits"), bench.records("verdicts"), bench.records("models")) == (
            1,
            1,
            2,
        )


@pytest.mark.full
def test_calls_take_from_the_store_what_the_hosts_have_computed_alone(bench, calls, with_older):
    on_host = partial(with_older, RAY)
    for run, records in (
        (bench.run_with_workers, 1),
        (on_host, 2),
        (on_host, 2),
        (bench.run_with_workers, 2),
    ):
        run("test_own.py", *OWN).assert_outcomes(passed=1)
        assert (bench.records("edits"), bench.records("verdicts")) == (records, records), run


def test_a_call_that_hosts_refuse_fails_and_leaves_no_connection(bench):
    (bench.path / "test_image_edit.py").unlink()
    (bench.path / "test_own.py").write_text(
        "import pytest\n"
        "from PIL import Image\n"
        "from pytest_imgedit import EditFailed\n"
        "def test_own(edit_workers):\n"
        "    for _ in range(2):\n"
        "        with pytest.raises(EditFailed, match='did not tell the versions'):\n"
        "            edit_workers.edit(Image.new('RGB', (64, 64)), 'x')\n"
        "        assert 'launcher' not in vars(edit_workers._answer.__self__.workers)\n"
    )
    refused = (RAY, "--imgedit-set=workers.editor_python='/bin/false'")
    bench.run_with_workers("test_own.py", *OWN, *refused).assert_outcomes(passed=1)


OWN_EDITOR = """
from PIL import ImageOps

class Editor:
    def __init__(self, *, device, table=""):
        pass

    def edit(self, request):
        return ImageOps.solarize(request.source)
"""


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda own, _: own.write_text(OWN_EDITOR + "# changed\n"),
            "*own.py: another source on *, expected that of own *",
        ),
        (
            lambda _, table: table.unlink(missing_ok=True),
            "levels.txt on *: no such file, expected SHA-256 *",
        ),
    ],
    ids=["another source", "no file"],
)
@pytest.mark.everyday_for("another source")
def test_a_host_with_other_code_or_files_is_refused(bench, monkeypatch, change, line):
    own, table = bench.path / "own.py", bench.path / "levels.txt"
    own.write_text(OWN_EDITOR)
    table.write_text("1 2 3")

    class OtherHost(Agent):
        def start(self, *arguments):
            change(own, table)
            super().start(*arguments)

    monkeypatch.setattr("local_hosts.Agent", OtherHost)
    options = (
        "--imgedit-editor=own:Editor",
        "--imgedit-set=editor.table=levels.txt",
        "--imgedit-limit=1",
    )
    result = bench.run_with_workers(RAY, *options)
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: {line}"])
    assert bench.stored_edits() == 0
