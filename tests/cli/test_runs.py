"""`imgedit runs`: which parameters tell its rows apart."""

from __future__ import annotations

import os

import pytest
from documents import a_run

from pytest_imgedit.cli.runs import list_runs


@pytest.fixture
def shown(tmp_path):
    """The header and the last cells of the list of runs with such editors, judges and seeds."""

    def listed(*runs, suites=()):
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
                editor={"spec": "my_editor:Mine", "params": editor},
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
            ["strength=0.5", "strength=default"],
            id="editor",
        ),
        pytest.param([(HALF, {}, 0), (HALF, {}, 7)], ["seed=0", "seed=7"], id="seed"),
        pytest.param([(HALF, {}, 0), (HALF, {"spec": "k"}, 0)], ["judge=j", "judge=k"], id="judge"),
        pytest.param(
            [(HALF, {"params": {"temperature": 0.1}}, 0), (HALF, {}, 0)],
            ["judge.temperature=0.1", "judge.temperature=default"],
            id="parameter of the judge",
        ),
        pytest.param(
            [({**HALF, "adapter": "lora"}, {}, 0), (HALF, {}, 1), (DEFAULT, {}, 1)],
            [
                "strength=0.5 adapter=lora seed=0",
                "strength=0.5 adapter=default seed=1",
                "strength=default adapter=default seed=1",
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
    assert (first, second) == (f"prompt={'a' * 40}… (100 characters)", "prompt=default")
