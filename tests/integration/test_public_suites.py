"""Public benchmarks in miniature, from the folder that people have to the tables that the authors
print.
"""

from __future__ import annotations

import pytest
from miniatures import ANY_VERSION, MAKE

JUDGE = "--imgedit-judge=miniatures:Judge"


@pytest.fixture
def made(bench):
    def make(name, **changes):
        folder = bench.path / name
        folder.mkdir()
        MAKE[name](folder, **changes)
        return f"--imgedit-suite={name}:{name}"

    return make


def rows(bench):
    """The rows of the protocol's tables by name."""
    return {row["name"]: row["value"] for row in bench.results["protocol"]["rows"]}


@pytest.mark.parametrize("variant", ["strict", "compat"])
@pytest.mark.parametrize(
    ("name", "pairs", "calls", "expected"),
    [
        ("gedit", 11, 22, {"score": 4.0, "SC": 4.0, "PQ": 4.0, "score, intersection": 4.0}),
        ("imgedit", 9, 9, {"score, over groups": 4.0, "score, over items": 4.0}),
        (
            "kris",
            20,
            60,
            {"Overall": 100 * (60 * 3 + 10 * 2) / 70 / 4, "Temporal Prediction": 75.0},
        ),
        ("risebench", 8, 21, {"Logical score": 5.0, "Causal score": 4.0, "Overall accuracy %": 25}),
    ],
)
def test_miniature_runs_by_its_own_protocol(bench, made, name, pairs, calls, expected, variant):
    result = bench.run(
        made(name),
        "--imgedit-editor=fakes:Slow",
        "--imgedit-set=editor.delay=0",
        JUDGE,
        ANY_VERSION,
        f"--imgedit-variant={variant}",
        "-v",
    )
    assert result.ret == 0, result.outlines[-20:]
    assert bench.results["judge"]["protocol"] == name
    assert (len(bench.items), bench.records("verdicts")) == (pairs, calls)
    found = rows(bench)
    assert {key: pytest.approx(found[key]) for key in expected} == {
        key: pytest.approx(value) for key, value in expected.items()
    }
    result.stdout.fnmatch_lines([f"protocol {name}@{variant}"])
