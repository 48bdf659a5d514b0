"""The results document of a run: what results.json holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pytest_imgedit import provenance
from pytest_imgedit.redaction import mask_secrets
from pytest_imgedit.stages import results
from pytest_imgedit.stages.controls import controls_document, controls_gate
from pytest_imgedit.stages.placement import all_gpus
from pytest_imgedit.stages.repeats import noise_document
from pytest_imgedit.stats import coverage, gates
from pytest_imgedit.stats.collapse import max_collapsed, moves_between
from pytest_imgedit.stats.comparison import compare, differences, environment_differences
from pytest_imgedit.stats.sequential import at_the_end

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_imgedit.config import Settings
    from pytest_imgedit.environments import Environment
    from pytest_imgedit.models.identity import Identity
    from pytest_imgedit.pairs import ItemResult
    from pytest_imgedit.stages.plan import Work
    from pytest_imgedit.stages.trials import Trials
    from pytest_imgedit.stats.selection import Selection
    from pytest_imgedit.suites.base import Suite
    from pytest_imgedit.workers.base import Worker

SCHEMA = "imgedit.results/1"


@dataclass
class Timing:
    """Wall times in seconds and counts, as in results.json.

    `edit_s` includes `load_s`, up to the first editor that is loaded. `swap_s` is from the last edit to the first
    judge that is loaded, `first_verdict_s` to the first verdict, `score_s` from the loaded judge to the last verdict;
    where scoring runs beside editing, `swaps` is 0 and `score_s` what it takes after the last edit. The shares say
    how much of each stage, from its first loaded worker on, its GPUs computed.
    """

    edit_s: float = 0.0
    load_s: float = 0.0
    swap_s: float = 0.0
    first_verdict_s: float = 0.0
    score_s: float = 0.0
    trials_s: float = 0.0
    swaps: int = 0
    edits: int = 0
    verdicts: int = 0
    edits_cached: int = 0
    verdicts_cached: int = 0
    edit_gpu_busy: float | None = None
    score_gpu_busy: float | None = None


@dataclass(frozen=True)
class Subject:
    """What was evaluated by what; no `judge` in a run that only edits.

    `compiled` says whether compiled networks made the edits, `None` if only some; `usage` holds the tokens and the cost
    of a judge behind a server. `hosts` tells of the hosts that computed in place of this one, `environments` where
    edits and verdicts were computed, by digest.
    """

    suite: Suite
    editor: Identity
    compiled: bool | None
    judge: Identity | None
    usage: dict[str, float | None] | None
    rubric_sha256: str
    hosts: Sequence[dict[str, Any]]
    environments: Mapping[str, Environment]


def make_document(
    run_id: str,
    started: datetime,
    settings: Settings,
    subject: Subject,
    timing: Timing,
    workers: Sequence[tuple[str, Worker]],
    plan: Sequence[Work],
    trials: Trials | None,
    items: Sequence[ItemResult],
    baseline: dict[str, Any] | None,
    stopped_by: str,
    decided: Mapping[tuple[str, str], gates.GateResult],
    selection: Selection,
    resting: Sequence[gates.GateResult],
) -> dict[str, Any]:
    """Make the `imgedit.results/1` document of a run that ends now; `stopped_by` counts if it is incomplete.

    `trials` are `None` in a run that did not get that far. `decided` holds the gates, by kind and field, that were
    decided before the end; pairs that were not needed for that are in no table and no gate. `resting` gates are those
    over pairs that are not in the `selection`.
    """
    works = {work.pair.id: work for work in plan}
    sources = {name: work.source.sha256 if work.source else name for name, work in works.items()}
    needed = [item for item in items if item.status != "not_needed"]
    categories, macro, micro = results.summarize_items(needed, sources)
    complete = not any(seed.error is not None and seed.error.kind == "interrupted" for i in items for seed in i.seeds)
    complete = complete and trials is not None and not trials.left
    suite, models, environments = subject.suite, _models(settings, subject), _environments(subject, plan)
    documents = [results.item_document(item, works[item.id]) for item in items]
    tried: dict[str, Any] = {}
    own = {item.id: item.score for item in items if item.score is not None}
    if trials is not None and trials.controls:
        tried["controls"] = controls_document(trials.controls, own, settings.gates.alpha)
    if trials is not None and trials.repeats:
        tried["noise"] = noise_document(plan, trials.repeats)
    scores, scores_expected = results.observe(needed, sources), settings.run.stage != "edit"
    rest, compared = at_the_end(settings.gates), [one for one in documents if one["status"] != "not_needed"]
    found = [coverage.coverage(settings.gates, scores, results.count_errors(items), scores_expected)]
    if scores_expected:
        found += [decided.get((gate.kind, gate.field), gate) for gate in gates.fail_under(rest, scores)]
    if baseline is not None:
        moved = differences(baseline["items"], compared)
        drops = gates.max_drop(rest, moved, baseline["name"])
        drops = [decided.get((gate.kind, gate.field), gate) for gate in drops]
        unlike = environment_differences(baseline, {**models, "environments": environments})
        tail, collapsed = max_collapsed(settings.gates, moves_between(baseline["items"], compared), baseline["name"])
        if len(compared) < len(items):
            tail = replace(tail, why=f"{tail.why} ({len(items) - len(compared)} more were not looked at)")
        *drops, tail = coverage.against_environment(settings.gates, [*drops, tail], unlike)
        tried["comparison"] = {
            **compare(baseline, compared, settings.gates.alpha, drops, unlike),
            "collapsed": collapsed,
        }
        found += [*drops, tail]
        if settings.gates.min_coverage:
            found.append(coverage.baseline_coverage(settings.gates, moved, len(baseline["items"]), baseline["name"]))
    found = [*coverage.against_near_copies(settings.gates, found, compared), *resting]
    if "controls" in tried:
        found.append(controls_gate(tried["controls"]))
    return {
        "schema": SCHEMA,
        "run": {
            "id": run_id,
            "started": started.isoformat(timespec="seconds"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "status": "complete" if complete else "incomplete",
            "stopped_by": None if complete else stopped_by,
            "trials_left": 0 if trials is None else trials.left,
            "versions": provenance.versions(),
            "machine": provenance.machine(gpu["product"] for gpu in all_gpus(settings)),
            "hosts": list(subject.hosts),
            "commit": provenance.commit(),
            "options": _options(settings),
        },
        "suite": {"name": suite.name, "sha256": suite.sha256, "pairs": len(suite.pairs), "remarks": suite.remarks},
        "selection": {
            "selected": sum(selection.selected.values()),
            "whole": sum(selection.whole.values()),
            "skipped": selection.skipped,
        },
        **models,
        "environments": environments,
        "reuse": _reuse(settings, subject, plan),
        "timing": {name: None if value is None else round(value, 3) for name, value in vars(timing).items()},
        "workers": [_worker_document(stage, worker) for stage, worker in workers],
        "categories": {name: summary.to_dict() for name, summary in categories.items()},
        "overall": {"macro": macro.to_dict(), "micro": micro.to_dict()},
        "gates": [gate.to_dict() for gate in found],
        **tried,
        "items": documents,
    }


def _models(settings: Settings, subject: Subject) -> dict[str, Any]:
    """Describe the editor and the judge; `dtype` and `decoder` are known of models that workers load."""
    editor, judge = subject.editor, subject.judge
    measures = judge is not None and judge.model.measures
    return {
        "editor": {
            "spec": settings.editor.spec,
            "fingerprint": editor.fingerprint,
            "commit": editor.commit,
            "params": mask_secrets(editor.params),
            "dtype": editor.recipe.get("dtype"),
            "compiled": subject.compiled,
            "lossy": editor.model.lossy,
        },
        "judge": {
            "spec": settings.judge.spec,
            "fingerprint": judge and judge.fingerprint,
            "commit": judge and judge.commit,
            "params": mask_secrets(judge.params) if judge else {},
            "dtype": judge and judge.recipe.get("dtype"),
            "decoder": judge and judge.recipe.get("decoder"),
            "usage": subject.usage,
            "rubric": None if measures or judge is None else settings.judge.rubric,
            "rubric_sha256": None if measures or judge is None else subject.rubric_sha256,
        },
    }


def _environments(subject: Subject, plan: Sequence[Work]) -> dict[str, Any]:
    """Describe where the run's edits and verdicts were computed, by digest, with how many of each."""
    edits = Counter(work.edit.environment for work in plan if work.edit is not None)
    verdicts = Counter(work.verdict.environment for work in plan if work.verdict is not None)
    return {
        digest: {**subject.environments[digest].model_dump(), "edits": edits[digest], "verdicts": verdicts[digest]}
        for digest in dict.fromkeys([*edits, *verdicts])
    }


def _reuse(settings: Settings, subject: Subject, plan: Sequence[Work]) -> dict[str, Any]:
    """Count the edits and verdicts that were computed in another environment than that of this run, and say which."""
    found: dict[str, Any] = {"policy": settings.run.reuse, "edits": 0, "verdicts": 0, "differences": []}
    differences: dict[str, None] = {}
    for name, identity in (("edit", subject.editor), ("verdict", subject.judge)):
        made = [getattr(work, name) for work in plan if getattr(work, name) is not None]
        for digest, count in Counter(one.environment for one in made).items():
            unlike = [] if identity is None else subject.environments[digest].differences(identity.here)
            found[f"{name}s"] += count if unlike else 0
            differences |= dict.fromkeys(unlike)
    return {**found, "differences": list(differences)}


def _worker_document(stage: str, worker: Worker) -> dict[str, Any]:
    return {
        "name": worker.slot.name,
        "device": worker.slot.label,
        "stage": stage,
        "jobs": worker.jobs_done,
        "busy_s": round(worker.busy_s, 3),
        "load_s": round(worker.load_s, 3),
        "ready_s": round(worker.ready_s, 3),
    }


def _options(settings: Settings) -> dict[str, Any]:
    """Return the settings that a reader needs in order to repeat the run: named ones only, so never a secret."""
    return {
        "suite": settings.suite.model_dump(include={"spec", "language", "limit", "min_score"}),
        "editor": {"seeds": settings.editor.seeds, "shard": settings.editor.params.get("shard")},
        "judge": settings.judge.model_dump(
            include={"rubric", "reasks", "batch_size", "gpus_per_replica", "controls", "repeats"}
        ),
        "workers": settings.workers.model_dump(include={"gpus", "gpus_per_worker", "executor", "cpu_workers"}),
        "gates": settings.gates.model_dump(exclude={"baselines"}),
        "run": settings.run.model_dump(include={"stage", "fresh", "reuse"}),
    }
