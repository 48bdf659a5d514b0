"""The first line of `imgedit compare`: how the overall mean moved, and what the gates say."""

from __future__ import annotations

import pytest
from documents import UNGATED, a_baseline, baseline_item

from pytest_imgedit.cli.compare import compare_runs
from pytest_imgedit.store.baselines import write_baseline

PAIRS = 16
UNCOPIED = {name: value for name, value in UNGATED.items() if name != "html"}
LONG = "a-measure-with-a-name-as-long-as-somebody-likes-to-give-to-it-and-then-some"
MEASURES = {
    "lpips": {"scale": (0.0, 1.0), "lower_is_better": True},
    LONG: {"scale": (0.0, None)},
}


@pytest.fixture
def verdict(tmp_path, monkeypatch):
    """The first line of a comparison of two runs whose pairs differ by `moved(pair)`."""
    monkeypatch.chdir(tmp_path)

    def first_line(moved, *, scored=True, measure=None, pairs=PAIRS, **gates):
        paths = []
        for name, move in (("old", lambda pair: 0.0), ("new", moved)):
            items = [
                baseline_item(
                    f"p{pair}",
                    round(5 + pair % 3 / 10 + move(pair), 6) if scored else None,
                    "social" if pair % 2 else "physics",
                    source=f"ab/{pair:064x}.png",
                    status="scored" if scored else "edited" if measure else "judge_error",
                    values={} if measure is None else {measure: 0.5 + move(pair)},
                )
                for pair in range(pairs)
            ]
            measures = {} if measure is None else {measure: MEASURES[measure]}
            run = a_baseline(*items, name=name, run=name, measures=measures)
            paths.append(str(write_baseline(tmp_path, run)))
        _, text, code = compare_runs(paths, out=tmp_path, **{**UNGATED, **gates})
        line = text.splitlines()[0]
        assert len(line) <= 80
        return line, code

    return first_line


@pytest.mark.parametrize(
    ("moved", "line"),
    [
        (lambda pair: 0.2 + pair % 4 / 100, "overall 5.31, was 5.09: +0.21, shown to be better"),
        (lambda pair: -2 - pair % 4 / 100, "overall 3.08, was 5.09: -2.01, shown to be worse"),
        (lambda pair: pair % 4 - 1.5, "overall 5.09, was 5.09: +0.00, not told apart"),
        (lambda pair: 0.0, "overall 5.09, was 5.09: +0.00, no pair differs"),
    ],
)
def test_the_first_line_is_the_verdict_without_gates_too(verdict, moved, line):
    assert verdict(moved) == (line, 0)


def test_one_pair_of_a_category_tells_nothing(verdict):
    assert verdict(lambda pair: 0.2, pairs=2)[0].endswith(": +0.20, too few pairs to tell")


@pytest.mark.parametrize(
    ("measure", "moved", "line"),
    [
        ("lpips", 0.1, "lpips@overall 0.615, was 0.500: +0.115, shown to be worse"),
        ("lpips", -0.1, "lpips@overall 0.415, was 0.500: -0.085, shown to be better"),
        (LONG, 0.1, f"{LONG[:35]} 0.615, was 0.500: +0.115, shown to be better"),
    ],
)
def test_runs_without_scores_are_told_by_their_first_measure(verdict, measure, moved, line):
    found, _ = verdict(lambda pair: moved + pair % 4 / 100, scored=False, measure=measure)
    assert found == line


def test_runs_whose_pairs_all_failed_alike_have_nothing_in_common(verdict):
    assert verdict(lambda pair: 0.0, scored=False) == ("no pair has a value on both sides", 0)


@pytest.mark.parametrize(
    ("moved", "gates", "head", "code"),
    [
        (lambda pair: 0.2 + pair % 4 / 100, {}, "PASS: overall 5.31, was 5.09: +0.21", 0),
        (lambda pair: -2 - pair % 4 / 100, {}, "FAIL: overall 3.08, was 5.09: -2.01", 1),
        (
            lambda pair: pair % 4 - 1.5,
            {},
            "INCONCLUSIVE (warning): overall 5.09, was 5.09: +0.00",
            0,
        ),
        (
            lambda pair: pair % 4 - 1.5,
            {"inconclusive": "fail"},
            "INCONCLUSIVE: overall 5.09, was 5.09: +0.00",
            1,
        ),
    ],
)
def test_gates_come_first(verdict, moved, gates, head, code):
    assert verdict(moved, max_drop=["overall:0"], **gates) == (head, code)


LORAS = [{"path": "/out/last/a.safetensors", "weight": 0.8, "scale": None}]


def files(digest):
    return {"/out/last/a.safetensors": digest * 12}


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        pytest.param(
            {},
            {"params": {"loras": LORAS, "scheduler": {"shift": 3}}, "files": files("a")},
            ["loras – → last/a.safetensors×0.8", "scheduler.shift – → 3"],
            id="parameters",
        ),
        pytest.param(
            {"params": {"loras": LORAS}, "files": files("a"), "recipe": "1" * 64},
            {"params": {"loras": LORAS}, "files": files("b"), "recipe": "2" * 64},
            [f"loras last/a.safetensors@{'a' * 12}×0.8 → last/a.safetensors@{'b' * 12}×0.8"],
            id="content",
        ),
        pytest.param(
            {"fingerprint": "a" * 64},
            {"fingerprint": "b" * 64, "params": {"variant": "fp16"}},
            ["variant – → fp16", f"fingerprint {'a' * 12} → {'b' * 12}"],
            id="variant",
        ),
        pytest.param(
            {"recipe": "a" * 64},
            {"recipe": "b" * 64},
            [f"recipe {'a' * 12} → {'b' * 12}"],
            id="recipe",
        ),
        pytest.param({"params": {"n": 4}}, {"params": {"n": 4}}, [], id="equal"),
        pytest.param({"params": {"n": 4}}, {"spec": "f"}, [], id="other editors"),
    ],
)
def test_what_differs_between_two_editors_is_said(tmp_path, before, now, says):
    paths = []
    for name, editor in (("old", before), ("new", now)):
        run = a_baseline(
            baseline_item("p", 5.0), name=name, run=name, editor={"spec": "e", **editor}
        )
        paths.append(str(write_baseline(tmp_path, run)))
    page = tmp_path / "page.html"
    document, text, _ = compare_runs(paths, html=page, out=tmp_path, **UNCOPIED)
    assert document["models"] == {"editor": says, "judge": []}
    line = f"editor: {', '.join(says)}"
    assert text.splitlines().count(line) == bool(says)
    assert page.read_text("utf-8").count(f">{line}<") == bool(says)
