"""Baselines: what is kept of a run, how it is read back, and what makes two runs unlike."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from documents import (
    a_baseline,
    a_baseline_item,
    a_run,
    an_item,
    baseline_document,
    baseline_item,
)
from hypothesis import given
from hypothesis import strategies as st

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.measures import SCORE_ONLY
from pytest_imgedit.core.results import GateOptions, ItemError
from pytest_imgedit.report.read import as_baseline
from pytest_imgedit.stats.comparison import (
    Computed,
    PairedItems,
    compare,
    environment_differences,
)
from pytest_imgedit.stats.decision import Evidence, decide
from pytest_imgedit.stats.outcome import outcome
from pytest_imgedit.store.baselines import (
    make_baseline,
    reduced,
    unlike_items,
    unlike_judges,
    unlike_losses,
    write_baseline,
)


def test_a_baseline_is_one_item_a_line_and_read_back_as_it_was(tmp_path):
    saved = a_baseline(baseline_item("a", 7.5), baseline_item("b", None, "自定义"))
    path = write_baseline(tmp_path / "deep", saved)
    lines = path.read_text().splitlines()
    assert [json.loads(line.rstrip(","))["category"] for line in lines if '"sha256"' in line] == [
        "physics",
        "自定义",
    ]
    assert as_baseline(path) == saved


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "empty file, expected a baseline or a results.json: "),
        ("{\n}}", ":2: not valid JSON: "),
        ("[]", "schema none, expected 'imgedit.baseline/5' or "),
        ('{"schema": "imgedit.baseline/4"}', "schema imgedit.baseline/4, expected "),
        ('{"schema": "x", "schema": "y"}', "key 'schema' occurs twice"),
        ('{"schema": NaN}', "NaN is not a JSON number"),
        ('{"schema": "imgedit.results/3"}', "not a whole results document: run: Field required"),
        (
            json.dumps(baseline_document(baseline_item("a", 11))),
            "items.0.score: Input should be less than or equal to 10",
        ),
        (json.dumps(baseline_document(baseline_item("a", True))), "items.0.score: "),
        (
            json.dumps(baseline_document(baseline_item("a", 1), baseline_item("a", 2))),
            "items: id 'a' occurs twice",
        ),
        (json.dumps(baseline_document(name="\x1b[31mred")), "name: String should match pattern"),
        (
            json.dumps(baseline_document(commit={"sha": 5})),
            "commit.sha: Input should be a valid string",
        ),
        (
            json.dumps(
                baseline_document(
                    {**baseline_item("a", 1), "seeds": [{"seed": 0, "edit": "../../x"}]}
                )
            ),
            "items.0.seeds.0.edit: String should match pattern",
        ),
        (json.dumps(baseline_document(seeds="1")), "seeds: Input should be a valid integer"),
        (
            json.dumps({**baseline_document(), "judge": None}),
            "judge: Input should be a valid dictionary or instance of JudgeInfo",
        ),
    ],
)
def test_a_damaged_baseline_is_named_in_one_line(tmp_path, text, line):
    (tmp_path / "main.json").write_text(text)
    with pytest.raises(UsageError) as error:
        as_baseline(tmp_path / "main.json")
    assert str(error.value).startswith(str(tmp_path / "main.json"))
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["schema", "items", "judge", "name", "seeds", "id"]), inner
            )
        ),
    )
)
@pytest.mark.everyday
def test_whatever_stands_in_a_baseline_it_is_read_or_refused(tmp_path_factory, value):
    folder = tmp_path_factory.mktemp("b")
    document = (
        {**baseline_document(baseline_item("a", 1)), **value} if isinstance(value, dict) else value
    )
    (folder / "main.json").write_text(json.dumps(document))
    refused = ""
    try:
        as_baseline(folder / "main.json")
    except UsageError as error:
        refused = str(error)
    assert "\n" not in refused
    assert not refused or refused.startswith(str(folder))


@pytest.mark.parametrize(
    ("judge", "seeds", "reason"),
    [
        ({"spec": "other", "fingerprint": "2" * 64}, 1, "another judge: j there, other here"),
        ({"spec": "other", "fingerprint": "1" * 64}, 1, None),  # the same judge under another path
        (
            {"params": {"scoring": "expected"}},
            1,
            'another set of judge parameters: {} there, {"scoring": "expected"} here',
        ),
        ({"protocol": "mine"}, 1, "another protocol: aspects there, mine here"),
        (
            {"protocol_sha256": "2" * 64},
            1,
            "another content of the protocol: 000000000000… there, 222222222222… here",
        ),
        (
            {"spec": "j", "fingerprint": "2" * 64},
            1,
            "another judge's weights or code: 111111111111… there, 222222222222… here",
        ),
        ({}, 2, "another number of seeds: 1 there, 2 here"),
        ({"spec": "j"}, 1, None),
    ],
)
def test_verdicts_of_another_judge_are_not_compared(judge, seeds, reason):
    assert unlike_judges(a_baseline(), judge, seeds) == reason


CHANGES = {
    "category": ({"category": "social"}, "the category of 1 of 2 pairs has changed (a)"),
    "image": (
        {"source": "ab/" + "b" * 64 + ".png"},
        "the source image of 1 of 2 pairs has changed (a)",
    ),
    "another image": (
        {"further": ("ab/" + "b" * 64 + ".png",)},
        "the number of source images of 1 of 2 pairs has changed (a)",
    ),
    "edited image": ({"edited_source": 2}, "the edited source of 1 of 2 pairs has changed (a)"),
    "instruction": ({"is_plain": True}, "the instruction of 1 of 2 pairs has changed (a)"),
    "text": ({}, "the instruction, description or reference of 1 of 2 pairs has changed (a)"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_has_changed_of_a_pair_is_named(what):
    known = a_baseline(baseline_item("a", 1), baseline_item("b", 2))
    changes, line = CHANGES[what]
    here = {**known.contents, "a": replace(known.contents["a"], sha256="x", **changes)}
    assert unlike_items(known, here) == line


BLOB, FIRST, SECOND, OTHER = (
    "/".join((two, two * 32 + ".png")) for two in ("cc", "cd", "ce", "cf")
)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"further": (OTHER, SECOND)}, "source image 1"),
        ({"source": OTHER}, "source image 2"),
        ({"further": (FIRST, OTHER)}, "source image 3"),
        ({"further": (OTHER, FIRST)}, "source image 1"),
        ({"further": (FIRST,)}, "the number of source images"),
        ({"source": FIRST, "further": (BLOB, SECOND), "edited_source": 1}, "the edited source"),
    ],
)
def test_a_further_source_that_has_changed_is_named_from_the_saved_baseline(
    tmp_path, changes, part
):
    shown = {"source": BLOB, "further": (FIRST, SECOND), "edited_source": 2}
    saved = a_run(items=[an_item("a", **shown), an_item("b")])
    known = as_baseline(write_baseline(tmp_path, make_baseline(saved, "main")))
    assert unlike_items(known, make_baseline(saved, "now").contents) is None
    changed = a_run(items=[an_item("a", **{**shown, **changes})])
    line = f"{part} of 1 of 1 pairs has changed (a)"
    assert unlike_items(known, make_baseline(changed, "now").contents) == line


def test_pairs_of_another_content_are_counted_by_what_has_changed():
    names = "abcdefgh"
    known = a_baseline(*(baseline_item(name, 1) for name in names))
    contents = known.contents
    assert unlike_items(known, {"b": contents["b"]}) is None
    assert unlike_items(known, {**contents, "z": contents["a"]}) == "1 of 9 pairs are not in it (z)"
    changed = {name: replace(contents[name], sha256="x", is_plain=True) for name in names[:6]}
    moved = {"h": replace(contents["h"], sha256="x", category="social")}
    assert unlike_items(known, {**contents, **changed, **moved}) == (
        "the instruction of 6 of 8 pairs has changed (a, b, c, d, e and 1 more), the category of 1 "
        "of 8 pairs has changed (h)"
    )
    assert unlike_items(known, {"a": replace(contents["a"], seeds=(3,))}) == (
        "pair 'a' was edited with seeds [0], here with [3]"
    )


def items(*rows):
    return [a_baseline_item(*row) for row in rows]


def test_differences_are_paired_by_id_and_bounded_where_a_score_is_missing():
    before = a_baseline(*(baseline_item(*row) for row in (("a", 4.0), ("b", None), ("c", 9.0))))
    paired = PairedItems(before, items(("c", None), ("a", 6.5), ("b", 3)), SCORE_ONLY)
    differences = paired.differences["score"]
    assert [(pair.value, pair.lowest, pair.highest) for pair in differences] == [
        (None, -9, 1),
        (2.5, 2.5, 2.5),
        (None, -7, 3),
    ]


def test_a_pair_without_a_score_for_the_same_reason_on_both_sides_is_left_out():
    before = a_baseline(
        baseline_item("a", 4.0, status="scored"),
        baseline_item("b", None, status="edit_error"),
        baseline_item("c", None, status="judge_error"),
        baseline_item("d", None),
    )
    now = [
        *items(("a", 4.0)),
        *(a_baseline_item(name, None, status="edit_error") for name in "bcd"),
    ]
    paired = PairedItems(before, now, SCORE_ONLY)
    assert [item.id for item in paired.failed_alike] == ["b"]
    assert [move.pair for move in paired.moves] == ["a", "c", "d"]
    assert len(paired.differences["score"]) == 3
    assert compare(paired, 0.05).failed_alike == {"b": "edit_error"}


@pytest.mark.parametrize(
    ("status", "state"), [("edit_error", "PASS"), ("judge_error", "INCONCLUSIVE")]
)
def test_one_pair_that_always_fails_does_not_leave_equal_pairs_inconclusive(status, state):
    failed = ItemError("edit", "model_error", "RuntimeError: boom")
    now = [an_item(f"p{number:03}") for number in range(99)]
    now.append(an_item("p999", score=None, error=failed, status="edit_error"))
    was = [reduced(item) for item in now]
    was[-1] = replace(was[-1], status=status)
    before = a_baseline().model_copy(update={"items": tuple(was)})
    settings = GateOptions(max_errors=1, max_drop={"overall": 0.0})
    computed = Computed(before.editor, before.judge, {})
    gates, comparison, _ = decide(
        Evidence(items=now, computed=computed, settings=settings, baseline=before)
    )
    assert {gate.kind: gate.state for gate in gates} == {
        "max_errors": "PASS",
        "max_drop": state,
        "max_collapsed": state,
    }
    found = outcome(a_run(items=now, gates=gates, comparison=comparison))
    named = "1 pair without a score there and here: p999 (edit_error)"
    assert (named in found.notes) == (status == "edit_error")


def test_scores_that_differ_by_rounding_only_did_not_move():
    before = a_baseline(baseline_item("a", round(80**0.5, 6)))
    paired = PairedItems(before, [reduced(an_item("a", score=80**0.5))], SCORE_ONLY)
    (difference,) = paired.differences["score"]
    assert difference.value == 0


def test_comparison_by_hand():
    social = [(f"s{n}", 5.0, "social") for n in range(6)]
    before = a_baseline(
        *(baseline_item(*row) for row in [*((f"p{n}", 8.0) for n in range(6)), *social])
    )
    now = items(*((f"p{n}", 6.0 - n / 10) for n in range(6)), *social)
    found = compare(PairedItems(before, now, SCORE_ONLY), 0.05)
    physics, social, overall = (found.rows[name] for name in ("physics", "social", "overall"))
    assert (physics.n, physics.before, physics.now) == (6, 8.0, pytest.approx(5.75))
    assert physics.difference == pytest.approx(-2.25)
    assert physics.p == pytest.approx(
        3 / 64
    )  # six signs alike; the smallest of three p values counts thrice
    assert (physics.finding, social.finding, overall.finding) == ("fell", "same", "fell")
    assert overall.difference == pytest.approx(-1.125)
    assert [pair.id for pair in found.fell] == ["p5", "p4", "p3", "p2", "p1"]
    assert found.rose == ()
    expected = {"before": 8.0, "difference": -2.0, "edits": ("ab" * 32,), "alike": True}
    assert found.pairs["p0"].model_dump() == expected


def test_gates_do_not_mix_editors_made_faster_with_loss():
    plain, fast = a_baseline(), a_baseline(editor={"spec": "x", "lossy": ["quantize=fp8"]})
    assert unlike_losses(plain, []) is None
    assert "by nothing there, by quantize=fp8 here" in unlike_losses(plain, ["quantize=fp8"])
    assert unlike_losses(fast, ["quantize=fp8"]) is None


def computed(
    gpu="NVIDIA H200",
    torch="2.13.0",
    dtype="bfloat16",
    decoder="packed",
    batch_sizes=(8,),
    threads=None,
):
    environment = {"device": "cuda", "gpu": gpu, "versions": {"torch": torch}, "threads": threads}
    return a_baseline(
        editor={"spec": "e", "dtype": dtype, "batch_sizes": batch_sizes},
        judge={"spec": "j", "dtype": dtype, "decoder": decoder},
        environments={"e": {**environment, "edits": 3, "verdicts": 3}},
    )


@pytest.mark.parametrize(
    ("now", "found"),
    [
        pytest.param(computed(), [], id="same"),
        pytest.param(
            computed(torch="2.14.0"),
            ["edits: torch 2.13.0 there, 2.14.0 here", "verdicts: torch 2.13.0 there, 2.14.0 here"],
            id="version",
        ),
        pytest.param(
            computed(gpu="NVIDIA H100"),
            [
                "edits: gpu NVIDIA H200 there, NVIDIA H100 here",
                "verdicts: gpu NVIDIA H200 there, NVIDIA H100 here",
            ],
            id="gpu",
        ),
        pytest.param(
            computed(dtype="float16"),
            [
                "edits: dtype bfloat16 there, float16 here",
                "verdicts: dtype bfloat16 there, float16 here",
            ],
            id="dtype",
        ),
        pytest.param(
            computed(decoder="padded"),
            ["verdicts: decoder packed there, padded here"],
            id="decoder",
        ),
        pytest.param(
            computed(batch_sizes=(1, 8)),
            ["edits: batch size 8 there, 1 and 8 here"],
            id="batch-sizes",
        ),
        pytest.param(computed(batch_sizes=()), [], id="batch-sizes-unknown"),
        pytest.param(computed(threads=2), [], id="threads-unknown"),
        pytest.param(computed(dtype=None, decoder=None), [], id="unknown"),
    ],
)
def test_what_two_runs_were_computed_with_is_compared(now, found):
    assert environment_differences(computed(), now) == found


NUMPY = {"numpy": "2.4.6", "pillow": "12.1"}
PILLOW = {"pillow": "12.1"}


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        pytest.param(("identity", NUMPY), ("mine:Editor", PILLOW), [], id="control and class"),
        pytest.param(("mine:Editor", PILLOW), ("folder:DIR", NUMPY), [], id="class and folder"),
        pytest.param(("mine:A", PILLOW), ("mine:B", NUMPY), [], id="two classes"),
        pytest.param(("gone:DIR", PILLOW), ("identity", NUMPY), [], id="unknown kind"),
        pytest.param(
            ("scenes", {"torch": "2.13.0", **PILLOW}), ("identity", NUMPY), [], id="two kinds"
        ),
        pytest.param(
            ("mine:Editor", {"numpy": "1.0", **PILLOW}),
            ("identity", {**NUMPY, "scipy": "1.17"}),
            ["numpy 1.0 there, 2.4.6 here"],
            id="package of both",
        ),
        pytest.param(
            ("identity", PILLOW),
            ("oracle", NUMPY),
            ["numpy absent there, 2.4.6 here"],
            id="control",
        ),
        pytest.param(
            ("folder:A", NUMPY), ("folder:B", PILLOW), ["numpy 2.4.6 there, absent here"], id="kind"
        ),
        pytest.param(
            ("diffusers:A", {"torch": "2.13.0"}),
            ("scenes", {"torch": "2.13.0", "tokenizers": "0.22", "numpy": "2.4.6"}),
            ["tokenizers absent there, 0.22 here"],
            id="declared by two kinds",
        ),
    ],
)
def test_a_package_is_absent_only_where_the_model_imports_it(before, now, found):
    sides = [
        a_baseline(
            editor={"spec": spec},
            environments={"e": {"device": "cpu", "versions": versions, "edits": 3, "verdicts": 0}},
        )
        for spec, versions in (before, now)
    ]
    assert environment_differences(*sides) == [f"edits: {text}" for text in found]


def test_a_package_of_one_model_that_is_gone_is_a_difference():
    sides = [
        a_baseline(
            editor={"spec": "mine:Editor", "recipe": "0" * 64},
            environments={"e": {"device": "cpu", "versions": versions, "edits": 3, "verdicts": 0}},
        )
        for versions in (PILLOW, NUMPY)
    ]
    assert environment_differences(*sides) == ["edits: numpy absent there, 2.4.6 here"]


def test_the_number_of_threads_of_a_cpu_is_compared():
    two, four = computed(threads=2), computed(threads=4)
    assert environment_differences(two, four) == [
        f"{what}: threads 2 there, 4 here" for what in ("edits", "verdicts")
    ]
