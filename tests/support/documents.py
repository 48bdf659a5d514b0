"""Results and baselines that are made up, for tests of what is read from them."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pytest_imgedit.core.repetitions import status_of
from pytest_imgedit.core.results import (
    Edit,
    GateResult,
    Item,
    ItemError,
    Measure,
    Results,
    SeedResult,
    Verdict,
)
from pytest_imgedit.stats.decision import FAILED, measures_of, summarize_items
from pytest_imgedit.store.baselines import SCHEMA, Baseline, BaselineItem, digest_of, means_of

#: What the items of these runs are measured by beside the score.
MEASURES = {"realism": Measure(scale=(0.0, 10.0), is_main=True)}
MACHINE = {"system": "Linux", "architecture": "x86_64", "cpus": 2, "gpus": []}


def an_item(
    name: str, category: str = "physics", score: float | None = 5.0, **changes: Any
) -> Item:
    """A pair with one seed, which ended in the error `changes["error"]` if there is one."""
    error: ItemError | None = changes.get("error")
    aspects = changes.pop("aspects", {} if score is None else {"realism": 7.0})
    verdict = None if score is None else Verdict({"": changes.pop("reply", "")}, aspects, score)
    edit = Edit(
        changes.pop("blob", "ab" * 32),
        1.0,
        "edit-0",
        signature=changes.pop("signature", ""),
        **changes.pop("edit", {}),
    )
    seeds = (SeedResult(0, edit, verdict, error),)
    given = {
        "instruction": "make it rain",
        "source": f"ab/{'ab' * 32}.png",
        "status": status_of(seeds, needs_verdict=True),
        **changes,
    }
    return Item(id=name, category=category, score=score, aspects=aspects, seeds=seeds, **given)


def a_run(**changes: Any) -> Results:
    """Results of four pairs, one of which has no score; `changes` are sections, options of the
    gates, and `declared`, the measures beside the score.
    """
    gate_options = changes.pop("gate_options", {})
    run = {
        "id": "r1",
        "started": "s",
        "finished": "f",
        "status": "complete",
        "versions": {"torch": "2"},
        "machine": MACHINE,
        "options": {
            "suite": {},
            "editor": {"seed": 0, "seeds": 1, "batch_size": 1},
            "judge": {},
            "workers": {},
            "gates": gate_options,
            "run": {"stage": "all"},
        },
        **changes.pop("run", {}),
    }
    error = ItemError("score", "unreadable_reply", "no number")
    items = changes.pop(
        "items",
        [
            an_item("p1", "physics", 8.0),
            an_item("p2", "physics", 6.0),
            an_item("s1", "social", 2.0),
            an_item("s2", "social", None, error=error),
        ],
    )
    declared = changes.pop("declared", MEASURES)
    failed = sum(item.status in FAILED for item in items)
    categories, overall, measured = summarize_items(items, measures_of(items, declared))
    document = {
        "run": run,
        "suite": {"name": "s", "sha256": "0" * 64, "pairs": len(items)},
        "selection": {"selected": len(items), "whole": len(items), "skipped": 0},
        "editor": {"spec": "identity", "fingerprint": "0" * 64},
        "judge": {
            "spec": "j",
            "protocol": "aspects",
            "variant": "strict",
            "protocol_sha256": "0" * 64,
        },
        "environments": {},
        "reuse": {"policy": "compatible"},
        "timing": {"edit_s": 1.0, "score_s": 2.0, "swaps": 1, "edits": 4, "verdicts": 3},
        "workers": [],
        "categories": categories,
        "overall": overall,
        "gates": [
            GateResult(
                "overall",
                "max_errors",
                0,
                failed,
                "FAIL" if failed else "PASS",
                f"{failed} of {len(items)} pairs without a score, 0 allowed",
            )
        ],
        "measures": measured,
        "items": items,
        **changes,
    }
    return Results.model_validate(document)


def content_of(name: str) -> str:
    """The digest of what was asked about a pair of `baseline_item`."""
    return hashlib.sha256(name.encode()).hexdigest()


def baseline_item(
    name: str, score: Any, category: str = "physics", **changes: Any
) -> dict[str, Any]:
    """One pair of a baseline with one seed."""
    return {
        "id": name,
        "category": category,
        "sha256": content_of(name),
        "source": None,
        "status": "judge_error" if score is None else "scored",
        "score": score,
        "seeds": [{"seed": 0, "score": score, "edit": "ab" * 32}],
        **changes,
    }


def a_baseline_item(
    name: str, score: Any, category: str = "physics", **changes: Any
) -> BaselineItem:
    """One pair of a baseline as it is read."""
    row = baseline_item(name, score, category, **changes)
    return TypeAdapter(BaselineItem).validate_python(row)


def baseline_document(*items: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A baseline as its file holds it; it says nothing twice that is not alike, unless `changes`
    do, or an item is none.
    """
    overall, categories = None, {}
    with suppress(ValidationError):
        overall, categories = means_of(TypeAdapter(list[BaselineItem]).validate_python(items))
    document = {
        "schema": SCHEMA,
        "name": "main",
        "run": "r1",
        "finished": "2026-01-02T00:00:00+00:00",
        "commit": None,
        "editor": {"spec": "e"},
        "judge": {
            "spec": "j",
            "params": {},
            "protocol": "aspects",
            "variant": "strict",
            "protocol_sha256": "0" * 64,
            "fingerprint": "1" * 64,
        },
        "seeds": 1,
        "overall": overall,
        "categories": {name: dict(row) for name, row in categories.items()},
        "items": list(items),
        **changes,
    }
    return {"digest": digest_of(document), **document}


def a_baseline(*items: dict[str, Any], **changes: Any) -> Baseline:
    """A baseline as it is read."""
    document = baseline_document(*items, **changes)
    del document["digest"]
    return Baseline.model_validate(document)


def ended_early(baseline: Baseline, pairs: int) -> Baseline:
    """The baseline of a run that ended before its first `pairs` pairs were needed."""
    unneeded = [
        replace(
            item,
            status="not_needed",
            score=None,
            seeds=tuple(replace(seed, score=None, edit=None) for seed in item.seeds),
        )
        for item in baseline.items[:pairs]
    ]
    items = (*unneeded, *baseline.items[pairs:])
    overall, categories = means_of(items)
    return baseline.model_copy(
        update={
            "items": items,
            "not_needed": pairs,
            "overall": overall,
            "categories": categories,
            "environments": {},
        }
    )


#: What `imgedit compare` is called with, without options.
UNGATED: dict[str, Any] = {
    "max_drop": [],
    "max_collapsed": None,
    "alpha": 0.05,
    "margin": 0.5,
    "inconclusive": "warn",
    "html": None,
    "duel": False,
    "min_win": [],
    "judge": None,
    "config": None,
    "assigned": [],
    "gpus": None,
}
