"""What differs between two runs that differ in one thing: it is named first, what follows from it
is below, and nothing else is there.
"""

from __future__ import annotations

from typing import Any

import pytest
from documents import a_run, an_item

from pytest_imgedit.core.environments import Environment
from pytest_imgedit.core.results import (
    ItemError,
    ProtocolCall,
    ProtocolRow,
    ProtocolTable,
    PublishedRow,
    Results,
)
from pytest_imgedit.report.causes import Cause, Side, causes_of
from pytest_imgedit.report.published_causes import published_causes, unstated, value_of

OTHER = "cd" * 32
NAMES = ("p1", "p2", "s1", "s2")
UNREADABLE = ItemError("score", "unreadable_reply", "no number")
REFUSED = ItemError("score", "refused", "a content filter")
CALL = ProtocolCall(
    name="",
    order=("text", "source", "edited"),
    codec="png",
    quality=None,
    max_side=None,
    at_source_size=False,
    detail="",
)
TABLE = ProtocolTable(name="aspects@strict", calls=(CALL,), rows=(), published=(), totals="by pair")
EDITOR: dict[str, Any] = {
    "spec": "diffusers:MODEL",
    "fingerprint": "1" * 64,
    "params": {"steps": 50},
    "dtype": "bfloat16",
    "recipe": "2" * 64,
}
JUDGE: dict[str, Any] = {
    "spec": "openai:https://a.example/v1#first",
    "fingerprint": "3" * 64,
    "params": {"max_pixels": 1048576},
    "recipe": "4" * 64,
    "protocol": "aspects",
    "variant": "strict",
    "protocol_sha256": "5" * 64,
    "returned": {"first-2026": 4},
}
JUDGED_BY = {"rounds": 1, "repeats": 0, "differing": 0, "failed": 0}


def items(names: tuple[str, ...] = NAMES, **changes: Any) -> list[Any]:
    """Pairs of two categories, all of them scored."""
    return [
        an_item(name, "physics" if name[0] == "p" else "social", 5.0, **changes) for name in names
    ]


def computed(stage: str, probe: str) -> dict[str, Any]:
    """The environment of the edits or the verdicts of four pairs, by its digest."""
    place = Environment(device="cuda", gpu="GPU", versions={"torch": "2"}, probe=probe)
    counts = {"edits": 0, "verdicts": 0, stage: 4}
    return {place.digest: {**place.model_dump(), **counts}}


def a_side(
    editor: dict[str, Any] | None = None, judge: dict[str, Any] | None = None, **changes: Any
) -> Side:
    """A run of four pairs with a served judge; `options` are those of editor and judge."""
    options = changes.pop("options", {})
    places = changes.pop("environments", {**computed("edits", "e1"), **computed("verdicts", "v1")})
    run: Results = a_run(
        editor={**EDITOR, **(editor or {})},
        judge={**JUDGE, "canary": {**JUDGED_BY, "models": ["first-2026 fp1"]}, **(judge or {})},
        environments=places,
        **{"protocol": TABLE, "items": items(), "suite": SUITE, **changes},
    )
    of_run = run.run.options
    given = of_run.model_copy(
        update={
            "editor": of_run.editor.model_copy(update=options.get("editor", {})),
            "judge": {"reasks": 2, **options.get("judge", {})},
        }
    )
    whole = run.model_copy(update={"run": run.run.model_copy(update={"options": given})})
    return Side.of(whole)


SUITE = {"name": "s", "sha256": "0" * 64, "pairs": 4}
PROBED = {**computed("edits", "e2"), **computed("verdicts", "v1")}
JUDGED = {**computed("edits", "e1"), **computed("verdicts", "v2")}
DIFFERENCES = {
    "judge": (
        {
            "judge": {
                "spec": "openai:https://a.example/v1#second",
                "fingerprint": "6" * 64,
                "recipe": "7" * 64,
                "params": {},
                "returned": {"second-2026": 4},
                "canary": {**JUDGED_BY, "models": ["second-2026 fp2"]},
            },
            "environments": JUDGED,
        },
        "judge: openai:https://a.example/v1#first → openai:https://a.example/v1#second",
        (
            "judge parameter max_pixels 1048576 → –",
            "judge weights or code: fingerprint 333333333333 → 666666666666",
            "judge probe: v1 → v2",
            "answering model: first-2026 → second-2026",
            "system fingerprint: first-2026 fp1 → second-2026 fp2",
        ),
    ),
    "judge behind one name": (
        {
            "judge": {
                "returned": {"first-2027": 4},
                "canary": {**JUDGED_BY, "models": ["first-2027 fp3"]},
            }
        },
        "answering model: first-2026 → first-2027",
        ("system fingerprint: first-2026 fp1 → first-2027 fp3",),
    ),
    "protocol variant": (
        {"judge": {"variant": "compat", "protocol_sha256": "8" * 64}},
        "protocol variant: strict → compat",
        ("protocol version, by the digest of its prompts: 555555555555 → 888888888888",),
    ),
    "protocol version": (
        {"judge": {"protocol_sha256": "8" * 64}},
        "protocol version, by the digest of its prompts: 555555555555 → 888888888888",
        (),
    ),
    "image size sent by the judge": (
        {"judge": {"params": {"max_pixels": 262144}, "recipe": "7" * 64}},
        "judge parameter max_pixels 1048576 → 262144",
        (),
    ),
    "image size sent by the protocol": (
        {
            "judge": {"protocol_sha256": "8" * 64},
            "protocol": TABLE.model_copy(
                update={"calls": (CALL.model_copy(update={"max_side": 512}),)}
            ),
        },
        "images sent to the judge: png, of any size → png, up to 512 px a side",
        ("protocol version, by the digest of its prompts: 555555555555 → 888888888888",),
    ),
    "attempts": (
        {"options": {"judge": {"reasks": 0}}},
        "attempts after an unreadable reply: 2 → 0",
        (),
    ),
    "seed": (
        {"options": {"editor": {"seed": 7}}, "items": items(blob=OTHER)},
        "base seed: 0 → 7",
        ("edits: 4 of 4 are other images",),
    ),
    "rewrites": (
        {
            "editor": {"rewrites": "9" * 64},
            "items": items(rewritten="let it rain", blob=OTHER),
        },
        "rewritten instructions: none → 999999999999",
        (
            "instructions sent to the editor: others for 4 of 4 pairs",
            "edits: 4 of 4 are other images",
        ),
    ),
    "steps": (
        {"editor": {"params": {"steps": 8}, "recipe": "7" * 64}, "items": items(blob=OTHER)},
        "editor parameter steps 50 → 8",
        ("edits: 4 of 4 are other images",),
    ),
    "refusals": (
        {
            "items": [
                *items(NAMES[:3]),
                an_item("s2", "social", None, error=REFUSED, status="refused"),
            ]
        },
        "refused pairs: 0 → 1 (s2)",
        (),
    ),
    "unreadable replies": (
        {"items": [*items(NAMES[:3]), an_item("s2", "social", None, error=UNREADABLE)]},
        "pairs with an unreadable reply: 0 → 1 (s2)",
        (),
    ),
    "missing pairs": ({"items": items(NAMES[:2])}, "pairs missing in B: 2 (s1, s2)", ()),
    "content": (
        {
            "suite": {**SUITE, "sha256": "b" * 64},
            "items": [*items(NAMES[:3]), an_item("s2", "social", 5.0, instruction="let it snow")],
        },
        "suite: s (000000000000) → s (bbbbbbbbbbbb)",
        ("content of pairs: the instruction, description or reference of 1 of 4 (s2)",),
    ),
    "table rule": (
        {"protocol": TABLE.model_copy(update={"totals": "by category"})},
        "table rule: by pair → by category",
        (),
    ),
    "precision": (
        {
            "editor": {
                "params": {"steps": 50, "dtype": "float16"},
                "dtype": "float16",
                "recipe": "7" * 64,
            },
            "items": items(blob=OTHER),
            "environments": PROBED,
        },
        "editor parameter dtype – → float16",
        (
            "editor precision: bfloat16 → float16",
            "editor probe: e1 → e2",
            "edits: 4 of 4 are other images",
        ),
    ),
}


def test_equal_runs_have_no_cause():
    assert causes_of(a_side(), a_side()) == []


@pytest.mark.parametrize("name", DIFFERENCES)
def test_one_thing_is_named_first_with_what_follows_from_it_alone(name):
    changes, line, consequences = DIFFERENCES[name]
    assert causes_of(a_side(), a_side(**changes)) == [Cause(line, consequences)]


def test_another_gpu_is_a_cause_from_which_probes_and_edits_follow():
    moved = Environment(device="cuda", gpu="OTHER", versions={"torch": "3"}, probe="e3")
    places = {moved.digest: {**moved.model_dump(), "edits": 4, "verdicts": 0}}
    (version, gpu) = causes_of(
        a_side(),
        a_side(items=items(blob=OTHER), environments={**computed("verdicts", "v1"), **places}),
    )
    assert version == Cause("editor environment: torch 2 there, 3 here")
    assert gpu == Cause(
        "editor environment: gpu GPU there, OTHER here",
        ("editor probe: e1 → e3", "edits: 4 of 4 are other images"),
    )


def test_what_another_judge_loads_follows_from_it():
    other = {"spec": "other", "fingerprint": None, "recipe": None, "decoder": "packed"}
    (cause,) = causes_of(a_side(judge={"decoder": "plain"}), a_side(judge=other))
    assert cause == Cause(
        "judge: openai:https://a.example/v1#first → other",
        ("judge decoder plain there, packed here",),
    )


def test_two_things_that_differ_have_a_cause_each():
    both = a_side(
        options={"editor": {"seed": 7}}, judge={"params": {"max_pixels": 262144, "top_p": 1}}
    )
    assert [cause.line for cause in causes_of(a_side(), both)] == [
        "base seed: 0 → 7",
        "judge parameter max_pixels 1048576 → 262144",
        "judge parameter top_p – → 1",
    ]


def test_another_spec_of_the_same_model_is_no_cause():
    copied = {"spec": "diffusers:/a/copy/of/MODEL"}
    assert causes_of(a_side(), a_side(copied)) == []
    (cause,) = causes_of(a_side(), a_side({**copied, "fingerprint": None, "recipe": None}))
    assert cause.line == "editor: diffusers:MODEL → diffusers:/a/copy/of/MODEL"


def test_another_server_of_one_model_is_named_as_such():
    other = {"spec": "openai:https://b.example/v1#first", "fingerprint": None, "recipe": None}
    (cause,) = causes_of(a_side(), a_side(judge=other))
    assert cause.line.startswith("judge server: openai:https://a.example/v1#first → ")


def test_what_a_baseline_does_not_keep_is_no_difference():
    baseline = Side.of(a_side().kept)
    changed = a_side(
        options={"editor": {"seed": 7}}, protocol=TABLE.model_copy(update={"totals": "by category"})
    )
    assert causes_of(baseline, changed) == []
    assert {"base seed", "table rule"} <= set(baseline.unstated)
    assert changed.unstated == ()


def test_a_published_row_is_compared_by_what_it_states():
    row = PublishedRow(
        row="score",
        model="Model",
        value=7.5,
        pairs=606,
        source="a paper",
        date="2026-03",
        judge="not stated",
        rewriting="by an LLM",
    )
    shown = ProtocolRow(name="score", n=4, value=6.25, ci95=None, scale=(0, 10), decimals=2)
    run = a_side(protocol=TABLE.model_copy(update={"rows": (shown,)})).results
    assert run is not None
    assert [cause.line for cause in published_causes(run, "gedit", row)] == [
        "pairs: 4 → 606",
        "rewritten instructions: none → by an LLM",
        "protocol: aspects → gedit",
    ]
    assert unstated(row)[:4] == ("judge", "provider", "order", "sampling")
    assert "weights" in unstated(row)
    assert value_of(run, "aspects", row) == 6.25
    assert value_of(run, "gedit", row) is None
    stated = row.model_copy(update={"judge": "First", "model": "Other", "pairs": 4})
    assert [cause.line for cause in published_causes(run, "aspects", stated)] == [
        "editor: diffusers:MODEL → Other",
        "rewritten instructions: none → by an LLM",
    ]
