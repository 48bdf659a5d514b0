"""The results of a run that has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core import provenance, redaction, results, sanitize
from pytest_imgedit.core.files import digest
from pytest_imgedit.core.items import ItemResult
from pytest_imgedit.core.measures import OVERALL
from pytest_imgedit.core.results import Results
from pytest_imgedit.kinds.folder import has_finished_edits
from pytest_imgedit.protocols.protocol import Call, Protocol, Row
from pytest_imgedit.run import seed_trial
from pytest_imgedit.run.further import FurtherScorer
from pytest_imgedit.run.item_results import make_items
from pytest_imgedit.run.leaks import mark_leaks
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.trials import Trials, control_trials, describe_noise
from pytest_imgedit.stats import estimates
from pytest_imgedit.stats.agreement import describe_agreement
from pytest_imgedit.stats.comparison import Computed
from pytest_imgedit.stats.controls import describe_controls
from pytest_imgedit.stats.decision import (
    Evidence,
    decide,
    left_to_merge,
    measures_of,
    summarize_items,
)
from pytest_imgedit.workers.base import Worker


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended: complete, or `stopped_by` someone or something.

    `workers` are listed by stage, `further_workers` by the name of the judge or metric; `trials` is
    `None` if the run ended before them. `hosts` are the other machines that computed.
    """

    plan: RunPlan
    timing: results.Timing
    workers: Sequence[tuple[results.Stage, Worker]]
    further_workers: Sequence[tuple[str, Worker]]
    trials: Trials | None
    run_id: str
    started: datetime
    stopped_by: str
    hosts: Sequence[results.HostOrigin]


def make_results(ended: EndedRun) -> results.Results:
    """Make the results of a run; pairs that were not needed count in no table and no gate."""
    plan, request = ended.plan, ended.plan.request
    expects_scores = plan.settings.run.stage != "edit"
    mark_leaks(plan.works, plan.store)
    items = make_items(plan.works, expects_scores, ended.stopped_by, plan.further)
    computed = Computed(_editor(plan), _judge(plan), _environments(plan))
    trials = ended.trials or Trials()
    controls = noise = None
    if trials.controls:
        controls = describe_controls(
            control_trials(trials.controls),
            {item.id: item.score for item in items if item.score is not None},
            plan.settings.gates.alpha,
            trials.untried,
        )
    if trials.repeats:
        noise = describe_noise(plan.works, trials.repeats)
    declared = {} if plan.scorer is None else dict(plan.scorer.measures)
    for further in plan.further:
        declared |= further.measures
    measures = measures_of(items, declared)
    evidence = Evidence(
        items,
        computed,
        plan.settings.gates,
        measures,
        expects_scores,
        request.baseline,
        controls,
        request.resting,
        {} if plan.blocks is None else plan.blocks.decided,
        has_finished_edits(computed.editor.spec),
    )
    gates, comparison = decide(evidence)
    selected, whole = request.selection.counts(OVERALL)
    shard_info = None
    if request.shard is not None:
        gates = left_to_merge(gates, plan.settings.gates, len(request.shard.pairs))
        shard_info = results.ShardInfo(
            index=request.shard.shard.index,
            count=request.shard.shard.count,
            ids=tuple(pair.id for pair in request.shard.pairs),
        )
    categories, overall, measured = summarize_items(evidence.needed, measures)
    estimates.forget_shares()
    return results.Results(
        run=_run_info(ended, items),
        suite=results.SuiteInfo(
            name=redaction.mask_shapes(request.suite.name),
            sha256=request.suite.sha256,
            pairs=len(request.suite.pairs),
            remarks=tuple(map(redaction.mask_shapes, request.suite.remarks)),
            labels={
                category: redaction.mask_shapes(label)
                for category, label in request.suite.labels.items()
            },
        ),
        selection=results.SelectionInfo(
            selected=selected,
            whole=whole,
            skipped=request.selection.skipped,
            shard=shard_info,
        ),
        editor=computed.editor,
        judge=computed.judge,
        further={
            further.name: _further(further, plan.settings, evidence.needed)
            for further in plan.further
        },
        environments=dict(computed.environments),
        reuse=_reuse(plan),
        timing=ended.timing.model_copy(
            update={name: round(value, 3) for name, value in ended.timing if value is not None}
        ),
        workers=(
            *(_worker(stage, worker) for stage, worker in ended.workers),
            *(_worker("score", worker, name) for name, worker in ended.further_workers),
        ),
        categories=categories,
        overall=overall,
        measures=measured,
        gates=gates,
        comparison=comparison,
        controls=controls,
        noise=noise,
        protocol=_protocol(plan, evidence.needed),
        items=tuple(items),
    )


def _protocol(plan: RunPlan, items: Sequence[results.Item]) -> results.ProtocolTable | None:
    if plan.scorer is None or plan.scorer.judge.model.measures:
        return None
    protocol = plan.scorer.protocol
    pairs = plan.request.suite.pairs
    calls = [_protocol_call(call) for call in protocol.calls(pairs[0])]
    return protocol_table(protocol, items, calls, protocol.sees_change(pairs))


def _protocol_call(call: Call) -> results.ProtocolCall:
    preparation = call.preparation
    return results.ProtocolCall(
        name=call.name,
        order=tuple(text if kind == "image" else "text" for kind, text in call.parts),
        codec=preparation.codec,
        quality=preparation.quality if preparation.codec == "jpeg" else None,
        max_side=preparation.max_side,
        at_source_size=preparation.at_source_size,
        detail=preparation.detail,
    )


def protocol_table(
    protocol: Protocol,
    items: Iterable[results.Item],
    calls: Sequence[results.ProtocolCall],
    sees_change: bool,
) -> results.ProtocolTable:
    """Make the protocol's own tables of a run."""
    counted = [item for item in items if item.is_judged]
    touched = sum(len(verdict.touched) for item in counted for verdict in item.verdicts)
    rows: tuple[results.ProtocolRow, ...] = ()
    problem = ""
    try:
        rows = tuple(_protocol_row(row) for row in protocol.tables(counted) if row.values)
    except Exception as error:  # a class of a user can raise anything
        problem = f"its tables failed: {type(error).__name__}: {sanitize.one_line(error)}"
    return results.ProtocolTable(
        name=protocol.label,
        calls=tuple(calls),
        rows=rows,
        totals=protocol.totals,
        problem=problem,
        published=protocol.published,
        touched=touched + sum(item.status == "dropped" for item in counted),
        sees_change=sees_change,
    )


def _protocol_row(row: Row) -> results.ProtocolRow:
    estimate = estimates.estimate(row.values, row.sources, row.groups or None)
    return results.ProtocolRow(
        name=row.name,
        n=len(row.values),
        value=estimate.mean,
        ci95=estimate.bounded_interval(*row.scale),
        scale=row.scale,
        decimals=row.decimals,
        is_detail=row.is_detail,
    )


def _run_info(ended: EndedRun, items: Sequence[results.Item]) -> results.RunInfo:
    hardware, trials = ended.plan.hardware, ended.trials
    is_cut_off = any(
        isinstance(end, results.ItemError) and end.kind == "interrupted"
        for item in items
        for seed in item.seeds
        for end in (seed.error, *seed.further.values())
    )
    is_complete = trials is not None and not (is_cut_off or trials.remaining)
    return results.RunInfo(
        id=ended.run_id,
        name=ended.plan.settings.run.name or "",
        started=ended.started.isoformat(timespec="seconds"),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        status="complete" if is_complete else "incomplete",
        stopped_by=None if is_complete else ended.stopped_by,
        trials_left=0 if trials is None else trials.remaining,
        versions=provenance.versions(),
        machine=provenance.machine(gpu.product for gpu in hardware.gpus if not hardware.remote),
        hosts=tuple(ended.hosts),
        commit=provenance.commit(),
        options=_options(ended.plan),
    )


def _editor(plan: RunPlan) -> results.EditorInfo:
    edits = [work.edit for work in plan.works if work.edit is not None]
    compiled = {edit.compiled for edit in edits}
    rewrites = plan.settings.editor.rewrites
    return results.EditorInfo(
        spec=redaction.mask_shapes(plan.settings.editor.spec),
        **plan.editor.told,
        compiled=compiled == {True} if len(compiled) < 2 else None,
        lossy=plan.editor.lossy,
        rewrites=None if rewrites is None else digest(rewrites),
        seeds=seed_trial.result_of(plan.editor, plan.store),
        batch_sizes=tuple(
            sorted({edit.batch_size for edit in edits if plan.editor.model.pads_batches})
        ),
    )


def _judge(plan: RunPlan) -> results.JudgeInfo:
    if plan.scorer is None:
        return results.JudgeInfo(spec=redaction.mask_shapes(plan.settings.judge.spec))
    return results.JudgeInfo(**plan.scorer.facts)


def _further(
    further: FurtherScorer, settings: Settings, items: Sequence[results.Item]
) -> results.FurtherInfo:
    is_judge = further.model.role == "judge"
    measure = next(iter(further.measures))
    return results.FurtherInfo(
        **further.scorer.facts,
        role="judge" if is_judge else "metric",
        agreement=describe_agreement(items, measure, is_judge) if settings.judge.scores else None,
    )


def _environments(plan: RunPlan) -> dict[str, results.ComputedIn]:
    """Return where edits and verdicts were computed, by digest, with the number of each."""
    edits = Counter(work.edit.environment for work in plan.works if work.edit is not None)
    verdicts = Counter(work.verdict.environment for work in plan.works if work.verdict is not None)
    further = Counter(
        scored.verdict.environment
        for work in plan.works
        for scored in work.scored.values()
        if scored.verdict is not None
    )
    return {
        digest: results.ComputedIn(
            **plan.store.environments[digest].model_dump(),
            edits=edits[digest],
            verdicts=verdicts[digest],
            further=further[digest],
        )
        for digest in dict.fromkeys([*edits, *verdicts, *further])
    }


def _reuse(plan: RunPlan) -> results.ReuseInfo:
    """Count edits and verdicts from other environments than that of this run, and name the
    differences.
    """
    counts: Counter[str] = Counter(edits=0, verdicts=0)
    differences: dict[str, None] = {}
    for name, identity, output in (
        *(("edits", plan.editor, work.edit) for work in plan.works),
        *(("verdicts", plan.judge, work.verdict) for work in plan.works),
    ):
        if output is not None and identity is not None:
            unlike = plan.store.environments[output.environment].differences(identity.here)
            counts[name] += bool(unlike)
            differences |= dict.fromkeys(unlike)
    return results.ReuseInfo(
        policy=plan.settings.run.reuse, **counts, differences=tuple(differences)
    )


def _worker(stage: results.Stage, worker: Worker, further: str = "") -> results.WorkerInfo:
    return results.WorkerInfo(
        further=further,
        name=worker.slot.name,
        device=worker.slot.label,
        stage=stage,
        jobs=worker.jobs_done,
        batch_size=worker.batch_size,
        probe=None if worker.environment is None else worker.environment.probe,
        gpu_peak=worker.memory["gpu"] if worker.memory else None,
        host_peak=worker.memory["host"] if worker.memory else None,
        **{name: round(getattr(worker, name), 3) for name in ("busy_s", "load_s", "ready_s")},
    )


def _options(plan: RunPlan) -> results.Options:
    """Return the settings that repeat the run; they are listed by name, so never a secret."""
    settings = plan.settings
    return results.Options(
        suite=redaction.mask_secrets(
            settings.suite.model_dump(include={"spec", "language", "limit", "min_score"})
        ),
        editor=results.ModelOptions(
            **settings.editor.model_dump(include={"seed", "seeds"}),
            batch_size=plan.editor.model.batch_size,
            shard=settings.editor.params.get("shard"),
        ),
        judge=settings.judge.model_dump(
            include={
                "protocol",
                "variant",
                "reasks",
                "batch_size",
                "gpus_per_replica",
                "controls",
                "repeats",
            }
        ),
        workers=settings.workers.model_dump(
            include={"gpus", "gpus_per_worker", "executor", "cpu_workers"}
        ),
        gates=results.GateOptions(**settings.gates.model_dump(exclude={"baselines"})),
        run=results.RunOptions(
            stage=settings.run.stage, fresh=settings.run.fresh, reuse=settings.run.reuse
        ),
    )


@dataclass
class FinishedRun:
    """A finished run: `items` by pair id as tests see them, and its `results`."""

    items: Mapping[str, ItemResult]
    results: Results

    @classmethod
    def of(cls, document: Results, min_score: float | None, store: Path) -> FinishedRun:
        """Make a run from its results; `store` is the folder of the store that holds its images."""
        report = store / "runs" / document.run.id / "report.html"
        return cls(
            {item.id: ItemResult.of(item, min_score, store, report) for item in document.items},
            document,
        )
