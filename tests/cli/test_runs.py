"""`imgedit runs`: which parameters tell its rows apart."""

from __future__ import annotations

import os

import pytest
from documents import a_run
from duels import a_run_with_duel, make_duel

from pytest_imgedit.cli.runs import list_runs
from pytest_imgedit.core.results import GateOptions
from pytest_imgedit.stats.duels import DuelFacts, describe


@pytest.fixture
def shown(tmp_path):
    """The header and the last cells of the list of runs with such editors, judges and seeds."""

    def listed(*runs, suites=(), files=None):
        for order, (editor, judge, seed) in enumerate(runs):
            options = {
                "suite": {},
                "editor": {"seed": seed, "seeds": 1, "batch_size": 1},
                "judge": {},
                "workers": {},
                "gates": {},
                "run": {},
            }
            name = suites[order] if suites else "s"
            results = a_run(
                run={"id": f"r{order}", "options": options},
                suite={"name": name, "sha256": "0" * 64, "pairs": 4},
                editor={
                    "spec": "my_editor:Mine",
                    "params": editor,
                    "files": files[order] if files else {},
                },
                judge={"spec": "j", **judge},
            )
            path = tmp_path / "runs" / f"r{order}" / "results.json"
            path.parent.mkdir(parents=True)
            path.write_text(results.to_json())
            os.utime(path, ns=(order, order))
        document, text, code = list_runs(tmp_path)
        assert (code, len(document["runs"])) == (0, len(runs))
        header, _, *rows = text.splitlines()
        return header.split()[-1], [row.partition("FAIL")[2].strip() for row in rows]

    return listed


HALF, DEFAULT = {"strength": 0.5}, {}


@pytest.mark.parametrize(
    ("runs", "cells"),
    [
        pytest.param(
            [(HALF, {}, 0), (DEFAULT, {}, 0)],
            ["strength=0.5", "strength=–"],
            id="editor",
        ),
        pytest.param([(HALF, {}, 0), (HALF, {}, 7)], ["seed=0", "seed=7"], id="seed"),
        pytest.param([(HALF, {}, 0), (HALF, {"spec": "k"}, 0)], ["judge=j", "judge=k"], id="judge"),
        pytest.param(
            [(HALF, {"params": {"temperature": 0.1}}, 0), (HALF, {}, 0)],
            ["judge.temperature=0.1", "judge.temperature=–"],
            id="parameter of the judge",
        ),
        pytest.param(
            [({**HALF, "adapter": "lora"}, {}, 0), (HALF, {}, 1), (DEFAULT, {}, 1)],
            [
                "strength=0.5 adapter=lora seed=0",
                "strength=0.5 adapter=– seed=1",
                "strength=– adapter=– seed=1",
            ],
            id="several",
        ),
    ],
)
def test_the_parameters_that_differ_are_shown(shown, runs, cells):
    assert shown(*runs) == ("parameters", cells)


@pytest.mark.parametrize(
    ("runs", "suites"),
    [
        pytest.param([(HALF, {}, 0), (HALF, {}, 0)], (), id="equal"),
        pytest.param([(HALF, {}, 0)], (), id="one"),
        pytest.param([(HALF, {}, 0), (DEFAULT, {}, 0)], ("s", "t"), id="suites"),
    ],
)
def test_what_does_not_tell_runs_apart_is_not_shown(shown, runs, suites):
    assert shown(*runs, suites=suites)[0] == "state"


def test_a_long_value_is_cut(shown):
    _, (first, second) = shown(({"prompt": "a" * 100}, {}, 0), (DEFAULT, {}, 0))
    assert (first, second) == (f"prompt={'a' * 40}… (100 characters)", "prompt=–")


LONG = "/data/lora-runs/2026-11/qwen-edit/rank-16"


def adapters(*names, weight=1, alpha=8):
    """Adapters below one long folder, as results record them."""
    scale = {"r": 8, "lora_alpha": alpha, "rank_pattern": {}, "use_rslora": False}
    return {
        "loras": [{"path": f"{LONG}/{name}", "weight": weight, "scale": scale} for name in names]
    }


@pytest.mark.parametrize(
    ("first", "second", "cells"),
    [
        pytest.param(
            adapters("checkpoint-100/a.safetensors"),
            adapters("checkpoint-200/a.safetensors", weight=0.8),
            ["loras=checkpoint-100/a.safetensors", "loras=checkpoint-200/a.safetensors×0.8"],
            id="adapter",
        ),
        pytest.param(
            adapters("x/a.safetensors"),
            adapters("x/a.safetensors", "x/b.safetensors"),
            ["loras=x/a.safetensors", "loras=x/a.safetensors+x/b.safetensors"],
            id="one more adapter",
        ),
        pytest.param(
            adapters("x/a.safetensors"),
            adapters("x/a.safetensors", alpha=16),
            [
                f"loras={LONG}/x/a.safetensors (scale.r 8, scale.lora_alpha {alpha})"
                for alpha in (8, 16)
            ],
            id="scale",
        ),
        pytest.param(
            {"scheduler": {"use_dynamic_shifting": False, "shift": 3}},
            {"scheduler": {"use_dynamic_shifting": False, "shift": 5, "sigmas": [1, 0.5]}},
            [
                "scheduler.shift=3 scheduler.sigmas=–",
                "scheduler.shift=5 scheduler.sigmas=[1, 0.5]",
            ],
            id="scheduler",
        ),
        pytest.param({}, {"variant": "fp16"}, ["variant=–", "variant=fp16"], id="variant"),
        pytest.param(
            {"prompt": "a" * 60 + "b"},
            {"prompt": "a" * 60 + "c"},
            [f"prompt={'a' * 60}b", f"prompt={'a' * 60}c"],
            id="the end of a long text",
        ),
    ],
)
def test_values_are_cut_before_nothing_that_differs(shown, first, second, cells):
    assert shown((first, {}, 0), (second, {}, 0)) == ("parameters", cells)


@pytest.mark.parametrize(
    ("params", "name", "cell"),
    [
        (adapters("last/a.safetensors"), "last/a.safetensors", "loras=last/a.safetensors@"),
        ({"single_file": f"{LONG}/m/q.gguf"}, "m/q.gguf", "single_file=m/q.gguf@"),
    ],
)
def test_a_file_that_was_overwritten_shows_by_its_content(shown, params, name, cell):
    one, two = "0123456789ab", "ba9876543210"
    contents = [{f"{LONG}/{name}": digest} for digest in (one, two)]
    _, cells = shown((params, {}, 0), (params, {}, 0), files=contents)
    assert cells == [f"{cell}{digest}" for digest in (one, two)]


def test_a_file_that_was_moved_is_the_same(shown):
    runs = [({"single_file": f"/{place}/m/q.gguf"}, {}, 0) for place in "ab"]
    contents = [{f"/{place}/m/q.gguf": "0123456789ab"} for place in "ab"]
    assert shown(*runs, files=contents)[0] == "state"


def test_runs_with_duels_have_a_column_of_the_share_that_they_win(tmp_path):
    pairs = make_duel().pairs
    facts = DuelFacts(name="main", run="r0", editor="e", by_scores=False, pairs=pairs)
    dueled = a_run_with_duel()
    dueled = dueled.model_copy(update={"duel": describe(facts, dueled.items, GateOptions())})
    runs = {"r1": dueled, "r2": a_run(run={"id": "r2"})}
    for name, results in runs.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "results.json").write_text(results.to_json())
    document, text, _ = list_runs(tmp_path)
    assert sorted(row["duels"] for row in document["runs"]) == ["", "0.46 of main"]
    assert "0.46 of main" in text
    assert text.split()[6:9] == ["overall", "duels", "state"]
    (tmp_path / "runs/r1/results.json").unlink()
    _, text, _ = list_runs(tmp_path)
    assert "duels" not in text
