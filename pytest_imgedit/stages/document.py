"""The results of a run that has ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pytest_imgedit import provenance
from pytest_imgedit.core.results import (
    Comparison,
    ComputedIn,
    Controls,
    EditorInfo,
    GateOptions,
    GateResult,
    HostOrigin,
    Item,
    JudgeInfo,
    ModelOptions,
    Noise,
    Options,
    Results,
    ReuseInfo,
    RunInfo,
    RunOptions,
    SelectionInfo,
    SuiteInfo,
    Timing,
    Usage,
    WorkerInfo,
)
from pytest_imgedit.redaction import mask_secrets
from pytest_imgedit.stages import results
from pytest_imgedit.stages.controls import controls_gate, describe_controls
from pytest_imgedit.stages.repeats import describe_noise
from pytest_imgedit.stats import coverage, gates
from pytest_imgedit.stats.collapse import max_collapsed, moves_between
from pytest_imgedit.stats.comparison import compare, differences, environment_differences
from pytest_imgedit.stats.sequential import at_the_end
from pytest_imgedit.store.baselines import reduced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_imgedit.config import Settings
    from pytest_imgedit.core.results import Stage
    from pytest_imgedit.environments import Environment
    from pytest_imgedit.models.identity import Identity
    from pytest_imgedit.stages.plan import Work
    from pytest_imgedit.stages.trials import Trials
    from pytest_imgedit.stats.selection import Selection
    from pytest_imgedit.store.baselines import Baseline
    from pytest_imgedit.suites.base import Suite
    from pytest_imgedit.workers.base import Worker


@dataclass(frozen=True, kw_only=True)
class Finished:
    """All that a run leaves when it ends.

    There is no `judge` in a run that only edits, and there are no `trials` in one that did not get that far;
    `stopped_by` counts if it is incomplete. `gpus` are the products of those that were used, `hosts` tells of hosts
    that computed in place of this machine, `environments` where edits and verdicts were computed, by digest. `decided`
    holds the gates, by kind and field, that were decided before the end; pairs that were not needed for that are in no
    table and no gate. `resting` gates are those over pairs that are not in the `selection`.
    """

    run_id: str
    started: datetime
    settings: Settings
    suite: Suite
    selection: Selection
    plan: Sequence[Work]
    editor: Identity
    judge: Identity | None
    rubric_sha256: str
    usage: Usage | None
    trials: Trials | None
    timing: Timing
    workers: Sequence[tuple[Stage, Worker]]
    gpus: Sequence[str]
    hosts: Sequence[HostOrigin]
    environments: Mapping[str, Environment]
    baseline: Baseline | None
    stopped_by: str
    decided: Mapping[tuple[str, str], GateResult]
    resting: Sequence[GateResult]

    @property
    def scores_expected(self) -> bool:
        """Whether the run was to score its edits."""
        return self.settings.run.stage != "edit"


@dataclass(frozen=True)
class Computed:
    """Where a run was computed, as far as that is compared with a baseline."""

    editor: EditorInfo
    judge: JudgeInfo
    environments: Mapping[str, ComputedIn]


def make_results(run: Finished) -> Results:
    """Make the results of a run that ends now."""
    items = results.make_items(run.plan, run.scores_expected, run.stopped_by)
    needed = [item for item in items if item.status != "not_needed"]
    categories, overall = results.summarize_items(needed)
    computed = Computed(_editor(run), _judge(run), _environments(run))
    controls, noise = _tried(run, items)
    found, comparison = _decide(run, items, computed)
    return Results(
        run=_run_info(run, items),
        suite=SuiteInfo(
            name=run.suite.name, sha256=run.suite.sha256, pairs=len(run.suite.pairs), remarks=run.suite.remarks
        ),
        selection=SelectionInfo(
            selected=sum(run.selection.selected.values()),
            whole=sum(run.selection.whole.values()),
            skipped=run.selection.skipped,
        ),
        editor=computed.editor,
        judge=computed.judge,
        environments=dict(computed.environments),
        reuse=_reuse(run),
        timing=_rounded(run.timing),
        workers=tuple(_worker(stage, worker) for stage, worker in run.workers),
        categories=categories,
        overall=overall,
        gates=(*found, *([] if controls is None else [controls_gate(controls)])),
        comparison=comparison,
        controls=controls,
        noise=noise,
        items=tuple(items),
    )


def _tried(run: Finished, items: Sequence[Item]) -> tuple[Controls | None, Noise | None]:
    """Describe how the judge scored edits of known worth, and how far its scores move by themselves."""
    if run.trials is None:
        return None, None
    own = {item.id: item.score for item in items if item.score is not None}
    alpha = run.settings.gates.alpha
    controls = describe_controls(run.trials.controls, own, alpha) if run.trials.controls else None
    return controls, describe_noise(run.plan, run.trials.repeats) if run.trials.repeats else None


def _decide(run: Finished, items: Sequence[Item], computed: Computed) -> tuple[list[GateResult], Comparison | None]:
    """Decide all gates on scores and differences."""
    settings = run.settings.gates
    rest, needed = at_the_end(settings), [item for item in items if item.status != "not_needed"]
    scores, errors = results.observe(needed), results.count_errors(items)
    found = [coverage.coverage(settings, scores, errors, run.scores_expected)]
    if run.scores_expected:
        found += [run.decided.get((gate.kind, gate.field), gate) for gate in gates.fail_under(rest, scores)]
    comparison = None
    if run.baseline is not None:
        comparison, drops = _compare(run, run.baseline, needed, len(items) - len(needed), computed)
        found += drops
    return [*coverage.against_near_copies(settings, found, needed), *run.resting], comparison


def _compare(
    run: Finished, baseline: Baseline, items: Sequence[Item], unneeded: int, computed: Computed
) -> tuple[Comparison, list[GateResult]]:
    """Compare the items with a baseline, and decide the gates on that; so many pairs were `unneeded`."""
    settings, now = run.settings.gates, [reduced(item) for item in items]
    moved = differences(baseline.items, now)
    drops = gates.max_drop(at_the_end(settings), moved, baseline.name)
    drops = [run.decided.get((gate.kind, gate.field), gate) for gate in drops]
    tail, collapsed = max_collapsed(settings, moves_between(baseline.items, now), baseline.name)
    if unneeded:
        tail = replace(tail, why=f"{tail.why} ({unneeded} more were not looked at)")
    unlike = environment_differences(baseline, computed)
    *drops, tail = coverage.against_environment(settings, [*drops, tail], unlike)
    comparison = compare(baseline, now, settings.alpha, drops, unlike, collapsed)
    found = [*drops, tail]
    if settings.min_coverage:
        found.append(coverage.baseline_coverage(settings, moved, len(baseline.items), baseline.name))
    return comparison, found


def _run_info(run: Finished, items: Sequence[Item]) -> RunInfo:
    left = 0 if run.trials is None else run.trials.left
    cut_off = any(seed.error is not None and seed.error.kind == "interrupted" for i in items for seed in i.seeds)
    is_complete = not cut_off and run.trials is not None and not left
    return RunInfo(
        id=run.run_id,
        started=run.started.isoformat(timespec="seconds"),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        status="complete" if is_complete else "incomplete",
        stopped_by=None if is_complete else run.stopped_by,
        trials_left=left,
        versions=provenance.versions(),
        machine=provenance.machine(run.gpus),
        hosts=tuple(run.hosts),
        commit=provenance.commit(),
        options=_options(run.settings),
    )


def _editor(run: Finished) -> EditorInfo:
    made = {work.edit.compiled for work in run.plan if work.edit is not None}
    return EditorInfo(
        spec=run.settings.editor.spec,
        fingerprint=run.editor.fingerprint,
        commit=run.editor.commit,
        params=mask_secrets(run.editor.params),
        dtype=run.editor.recipe.get("dtype"),
        compiled=made == {True} if len(made) < 2 else None,
        lossy=tuple(run.editor.model.lossy),
    )


def _judge(run: Finished) -> JudgeInfo:
    """Describe the judge; `decoder` is known of models that workers load."""
    judge, spec = run.judge, run.settings.judge.spec
    if judge is None:
        return JudgeInfo(spec=spec)
    measures = judge.model.measures
    return JudgeInfo(
        spec=spec,
        fingerprint=judge.fingerprint,
        commit=judge.commit,
        params=mask_secrets(judge.params),
        dtype=judge.recipe.get("dtype"),
        decoder=judge.recipe.get("decoder"),
        usage=run.usage,
        rubric=None if measures else run.settings.judge.rubric,
        rubric_sha256=None if measures else run.rubric_sha256,
    )


def _environments(run: Finished) -> dict[str, ComputedIn]:
    """Describe where the run's edits and verdicts were computed, by digest, with how many of each."""
    edits = Counter(work.edit.environment for work in run.plan if work.edit is not None)
    verdicts = Counter(work.verdict.environment for work in run.plan if work.verdict is not None)
    return {
        digest: ComputedIn(**run.environments[digest].model_dump(), edits=edits[digest], verdicts=verdicts[digest])
        for digest in dict.fromkeys([*edits, *verdicts])
    }


def _reuse(run: Finished) -> ReuseInfo:
    """Count the edits and verdicts that were computed in another environment than that of this run, and say which."""
    counts = {"edits": 0, "verdicts": 0}
    differences: dict[str, None] = {}
    edits = [work.edit for work in run.plan if work.edit is not None]
    verdicts = [work.verdict for work in run.plan if work.verdict is not None]
    for name, identity, made in (("edits", run.editor, edits), ("verdicts", run.judge, verdicts)):
        for digest, count in Counter(one.environment for one in made).items():
            unlike = [] if identity is None else run.environments[digest].differences(identity.here)
            counts[name] += count if unlike else 0
            differences |= dict.fromkeys(unlike)
    return ReuseInfo(policy=run.settings.run.reuse, **counts, differences=tuple(differences))


def _rounded(timing: Timing) -> Timing:
    """Round times and shares to milliseconds, so that the document can be read."""
    rounded = {name: round(value, 3) for name, value in timing if value is not None}
    return timing.model_copy(update=rounded)


def _worker(stage: Stage, worker: Worker) -> WorkerInfo:
    return WorkerInfo(
        name=worker.slot.name,
        device=worker.slot.label,
        stage=stage,
        jobs=worker.jobs_done,
        busy_s=round(worker.busy_s, 3),
        load_s=round(worker.load_s, 3),
        ready_s=round(worker.ready_s, 3),
    )


def _options(settings: Settings) -> Options:
    """Return the settings that a reader needs in order to repeat the run: named ones only, so never a secret."""
    return Options(
        suite=settings.suite.model_dump(include={"spec", "language", "limit", "min_score"}),
        editor=ModelOptions(seeds=settings.editor.seeds, shard=settings.editor.params.get("shard")),
        judge=settings.judge.model_dump(
            include={"rubric", "reasks", "batch_size", "gpus_per_replica", "controls", "repeats"}
        ),
        workers=settings.workers.model_dump(include={"gpus", "gpus_per_worker", "executor", "cpu_workers"}),
        gates=GateOptions(**settings.gates.model_dump(exclude={"baselines"})),
        run=RunOptions(stage=settings.run.stage, fresh=settings.run.fresh, reuse=settings.run.reuse),
    )
