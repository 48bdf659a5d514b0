"""A judge on its own GPUs, beside the editors: with a driver that shows GPUs on which nothing is
computed.
"""

from __future__ import annotations

import pytest
from nvml_driver import show_gpus

HOOKS = """
def pytest_imgedit_item_edited(pair): open("order", "a").write(f"edited {pair.id}\\n")
def pytest_imgedit_item_scored(pair): open("order", "a").write(f"scored {pair.id}\\n")
"""
FAKES = ("--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant", "--imgedit-limit=4")


@pytest.fixture
def shown(bench, monkeypatch):
    show_gpus(monkeypatch, 4)
    (bench.path / "conftest.py").write_text(HOOKS)
    return bench


@pytest.mark.parametrize(
    ("gpus", "editors"),
    [
        ("auto", ["GPU 0", "GPU 1"]),
        pytest.param("0-3", ["GPU 0", "GPU 1"], marks=pytest.mark.full),
        pytest.param("1", ["GPU 1"], marks=pytest.mark.full),
    ],
)
def test_the_judge_scores_beside_the_editors_from_the_first_edit_on(shown, gpus, editors):
    result = shown.run(*FAKES, f"--imgedit-gpus={gpus}", "--imgedit-set=workers.judge_gpus='2-3'")
    result.assert_outcomes(passed=20)
    devices = {
        stage: sorted(w["device"] for w in shown.results["workers"] if w["stage"] == stage)
        for stage in ("edit", "score")
    }
    assert devices == {"edit": editors, "score": ["GPU 2", "GPU 3"]}
    assert shown.timing["swaps"] == 0
    order = (shown.path / "order").read_text().split("\n")
    last_edit = max(place for place, line in enumerate(order) if line.startswith("edited"))
    first_score = min(place for place, line in enumerate(order) if line.startswith("scored"))
    assert first_score < last_edit
    result.stdout.fnmatch_lines(["*(the judge on 2,3)*"])


@pytest.mark.full
def test_the_plan_says_why_models_are_where_they_are(shown):
    result = shown.run(*FAKES, "--imgedit-set=workers.judge_gpus='3'")
    result.stdout.fnmatch_lines(["*plan: *: side by side, workers.judge_gpus"])
    result = shown.run(*FAKES, "--imgedit-fresh", "--imgedit-set=workers.placement=swap")
    result.stdout.fnmatch_lines(["*plan: *: one after the other, workers.placement"])
    result = shown.run(*FAKES, "--imgedit-fresh")
    result.stdout.fnmatch_lines(["*plan: *: one after the other, whether both fit is not known"])


@pytest.mark.full
def test_a_second_run_says_how_long_it_takes_with_and_without_such_gpus(shown):
    shown.run(*FAKES)
    first = shown.results["run"]["id"]
    result = shown.run(*FAKES, "--imgedit-fresh", "--imgedit-set=workers.judge_gpus='3'")
    result.stdout.fnmatch_lines(
        [
            "*plan: editing and judging take about * s with workers.judge_gpus=3, as on all 4 GPUs "
            f"without it (by run {first}: an edit takes * s, a verdict * s)"
        ]
    )


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (("workers.judge_gpus='7'",), "workers.judge_gpus=7: no GPU 7, this machine shows *"),
        (("workers.judge_gpus='a'",), "workers.judge_gpus=a: 'a', expected a list such as *"),
        (
            ("workers.judge_gpus='2'", "workers.placement=swap"),
            "workers.judge_gpus: not with workers.placement='swap', the judge is beside the "
            "editors",
        ),
        (
            ("workers.judge_gpus='2'", "judge.spec='openai:http://localhost:1/v1#m'"),
            "workers.judge_gpus: judge openai:http://localhost:1/v1#m takes no GPU here, *",
        ),
        (
            ("workers.judge_gpus='2'", "workers.executor='ray'"),
            "workers.judge_gpus: on this machine only, expected the executor 'local'",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(shown, settings, line):
    result = shown.run(*FAKES[:1], *(f"--imgedit-set={setting}" for setting in settings))
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: {line}"])


def test_a_judge_that_has_all_gpus_is_refused(shown):
    result = shown.run(*FAKES, "--imgedit-gpus=2-3", "--imgedit-set=workers.judge_gpus='2-3'")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["ERROR: workers.judge_gpus=2-3: leaves the editor none of --imgedit-gpus=2-3"]
    )
