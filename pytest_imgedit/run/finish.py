"""The results of a run that has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pytest_imgedit.core import provenance, redaction, results
from pytest_imgedit.core.files import digest
from pytest_imgedit.core.items import ItemResult
from pytest_imgedit.core.measures import OVERALL
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Results
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.protocols.protocol import Call, Protocol
from pytest_imgedit.run import seed_trial
from pytest_imgedit.run.assemble import RunFacts, assemble
from pytest_imgedit.run.duels import Duels
from pytest_imgedit.run.items import make_items
from pytest_imgedit.run.judge_repeats import describe_noise
from pytest_imgedit.run.judge_trials import Trials, control_trials
from pytest_imgedit.run.leaks import mark_leaks
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.stats.comparison import Computed
from pytest_imgedit.stats.duels import DuelFacts
from pytest_imgedit.workers.base import Worker

#: What has stopped a run that nothing else has.
BY_USER = "the user"


@dataclass(frozen=True, kw_only=True)
class EndedRun:
    """A run that has ended: complete, stopped by the user, or `stopped_by` something.

    `workers` are listed by stage, `additional_workers` by the name of the judge or metric. `trials`
    and `duels` are `None` if the run ended before them; `duels` also in a run without any. `hosts`
    are the other machines that computed.
    """

    plan: RunPlan
    timing: results.Timing
    workers: Sequence[tuple[results.Stage, Worker]]
    additional_workers: Sequence[tuple[str, Worker]]
    trials: Trials | None
    duels: Duels | None = None
    run_id: str
    started: datetime
    stopped_by: str
    hosts: Sequence[results.HostOrigin]


def make_results(ended: EndedRun) -> results.Results:
    """Make the results of a run; pairs that were not needed count in no table and no gate."""
    plan = ended.plan
    mark_leaks(plan.works, plan.store)
    expects_scores = plan.settings.run.stage != "edit"
    stopped_by = ended.stopped_by or BY_USER
    items = make_items(plan.works, expects_scores, stopped_by, plan.additional_scorers)
    return assemble(items, _facts(ended, items))


def _facts(ended: EndedRun, items: Sequence[results.Item]) -> RunFacts:
    """Return what is known of a run besides its items."""
    plan = ended.plan
    request = plan.request
    trials = ended.trials or Trials()
    protocol = _protocol(plan)
    calls: list[results.ProtocolCall] = []
    sees_change = True
    if protocol is not None:
        calls = [_protocol_call(call) for call in protocol.calls(request.suite.pairs[0])]
        sees_change = protocol.sees_change(request.suite.pairs)
    noise = None
    if trials.repeats:
        noise = describe_noise([work.judgement for work in plan.works], trials.repeats)
    return RunFacts(
        run=_run_info(ended, items),
        suite=_suite_info(plan),
        selection=_selection_info(plan),
        computed=Computed(_editor(plan), _judge(plan), _environments(plan)),
        further={scorer.name: _additional(scorer) for scorer in plan.additional_scorers},
        measures=_declared_measures(plan),
        gates=plan.settings.gates,
        expects_scores=plan.settings.run.stage != "edit",
        has_agreement=plan.settings.judge.scores,
        reuse=_reuse(plan),
        timing=_rounded(ended.timing),
        workers=_workers(ended),
        baseline=request.baseline,
        trials=control_trials(trials.controls),
        untried=trials.untried,
        duel=None if ended.duels is None else duel_facts(ended.duels, request.suite.pairs[0]),
        noise=noise,
        resting=request.resting,
        decided={} if plan.blocks is None else plan.blocks.decided,
        protocol=protocol,
        calls=calls,
        sees_change=sees_change,
    )


def duel_facts(duels: Duels, pair: EditPair) -> DuelFacts:
    """Return what is known of duels, with what was asked in them about a pair."""
    if duels.by_scores:
        return duels.facts
    calls = [_protocol_call(call) for call in duels.scorer.protocol.calls(pair)]
    return replace(duels.facts, calls=tuple(calls))


def _suite_info(plan: RunPlan) -> results.SuiteInfo:
    """Describe the suite; secrets in its texts are masked."""
    suite = plan.request.suite
    labels = {category: redaction.mask_shapes(label) for category, label in suite.labels.items()}
    return results.SuiteInfo(
        name=redaction.mask_shapes(suite.name),
        sha256=suite.sha256,
        pairs=len(suite.pairs),
        remarks=tuple(redaction.mask_shapes(remark) for remark in suite.remarks),
        labels=labels,
    )


def _selection_info(plan: RunPlan) -> results.SelectionInfo:
    """Count the selected and the skipped pairs, and list the pairs of all shards, if this run is
    one.
    """
    request = plan.request
    selected, whole = request.selection.counts(OVERALL)
    shard = None
    if request.shard is not None:
        shard = results.ShardInfo(
            index=request.shard.shard.index,
            count=request.shard.shard.count,
            ids=tuple(pair.id for pair in request.shard.pairs),
        )
    return results.SelectionInfo(
        selected=selected, whole=whole, skipped=request.selection.skipped, shard=shard
    )


def _declared_measures(plan: RunPlan) -> dict[str, results.Measure]:
    """Return the measures that the judges and metrics have declared."""
    measures: dict[str, results.Measure] = {}
    for scorer in plan.scorers:
        measures |= scorer.measures
    return measures


def _rounded(timing: results.Timing) -> results.Timing:
    """Round times to milliseconds."""
    rounded = {name: round(value, 3) for name, value in timing if value is not None}
    return timing.model_copy(update=rounded)


def _protocol(plan: RunPlan) -> Protocol | None:
    """Return the protocol that the judge follows, `None` for one that measures on its own."""
    if plan.scorer is None or plan.scorer.model.measures:
        return None
    return plan.scorer.protocol


def _protocol_call(call: Call) -> results.ProtocolCall:
    """Describe a call: the order of its texts and images, and how images are prepared for it."""
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


def _are_cut_off(items: Sequence[results.Item]) -> bool:
    """Tell whether the end of the run cut off an edit, or a verdict of any judge or metric."""
    for item in items:
        for seed in item.seeds:
            ends = [seed.error, *seed.further.values()]
            errors = [end for end in ends if isinstance(end, results.ItemError)]
            if any(error.kind == "interrupted" for error in errors):
                return True
    return False


def _run_info(ended: EndedRun, items: Sequence[results.Item]) -> results.RunInfo:
    """Describe a run: when and where it was, and its options.

    It is complete if nothing stopped it, it got to its trials, and neither they nor its items were
    cut off.
    """
    hardware = ended.plan.hardware
    trials = ended.trials
    duels_left = 0 if ended.duels is None else ended.duels.remaining
    is_complete = False
    if trials is not None and not ended.stopped_by:
        is_complete = not (trials.remaining or duels_left or _are_cut_off(items))
    return results.RunInfo(
        id=ended.run_id,
        name=ended.plan.settings.run.name or "",
        started=ended.started.isoformat(timespec="seconds"),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        status="complete" if is_complete else "incomplete",
        stopped_by=None if is_complete else ended.stopped_by or BY_USER,
        trials_left=0 if trials is None else trials.remaining,
        versions=provenance.versions(),
        machine=provenance.machine(gpu.product for gpu in hardware.gpus if not hardware.remote),
        hosts=tuple(ended.hosts),
        commit=provenance.commit(),
        options=_options(ended.plan),
    )


def _editor(plan: RunPlan) -> results.EditorInfo:
    """Describe the editor, and whether its edits were compiled, and in batches of which sizes."""
    edits = [work.edit for work in plan.works if work.edit is not None]
    batch_sizes: set[int] = set()
    if plan.editor.model.pads_batches:
        batch_sizes = {edit.batch_size for edit in edits}
    rewrites = plan.settings.editor.rewrites
    return results.EditorInfo(
        spec=redaction.mask_shapes(plan.settings.editor.spec),
        **plan.editor.told,
        compiled=_are_compiled(edits),
        lossy=plan.editor.lossy,
        rewrites=None if rewrites is None else digest(rewrites),
        seeds=seed_trial.result_of(plan.editor, plan.store),
        batch_sizes=tuple(sorted(batch_sizes)),
    )


def _are_compiled(edits: Sequence[results.Edit]) -> bool | None:
    """Tell whether a compiled network made the edits; `None` if it made only some of them."""
    compiled = {edit.compiled for edit in edits}
    if len(compiled) > 1:
        return None
    return compiled == {True}


def _judge(plan: RunPlan) -> results.JudgeInfo:
    if plan.scorer is None:
        return results.JudgeInfo(spec=redaction.mask_shapes(plan.settings.judge.spec))
    return results.JudgeInfo(**plan.scorer.facts)


def _additional(scorer: Scorer) -> results.FurtherInfo:
    """Describe an additional judge or a metric; `assemble` adds its agreement with the judge."""
    role: Literal["judge", "metric"] = "judge" if scorer.is_judge else "metric"
    return results.FurtherInfo(**scorer.facts, role=role, agreement=None)


def _environments(plan: RunPlan) -> dict[str, results.ComputedIn]:
    """Return where edits and verdicts were computed, by digest, with the number of each."""
    edits = Counter(work.edit.environment for work in plan.works if work.edit is not None)
    verdicts = Counter(work.verdict.environment for work in plan.works if work.verdict is not None)
    additional = Counter(
        judgement.verdict.environment
        for work in plan.works
        for judgement in work.additional_judgements.values()
        if judgement.verdict is not None
    )
    return {
        environment: results.ComputedIn(
            **plan.store.environments[environment].model_dump(),
            edits=edits[environment],
            verdicts=verdicts[environment],
            further=additional[environment],
        )
        for environment in dict.fromkeys(list(edits) + list(verdicts) + list(additional))
    }


def _reuse(plan: RunPlan) -> results.ReuseInfo:
    """Count edits and verdicts from other environments than that of this run, and name the
    differences.
    """
    edits = [work.edit.environment for work in plan.works if work.edit is not None]
    verdicts = [work.verdict.environment for work in plan.works if work.verdict is not None]
    unlike_edits = _differences(plan, plan.editor, edits)
    unlike_verdicts = [] if plan.judge is None else _differences(plan, plan.judge, verdicts)
    differences: dict[str, None] = {}
    for unlike in unlike_edits + unlike_verdicts:
        differences |= dict.fromkeys(unlike)
    return results.ReuseInfo(
        policy=plan.settings.run.reuse,
        edits=len(unlike_edits),
        verdicts=len(unlike_verdicts),
        differences=tuple(differences),
    )


def _differences(plan: RunPlan, identity: Identity, environments: Iterable[str]) -> list[list[str]]:
    """Return how environments, by their digests, differ from that of a model in this run, for each
    that does.
    """
    found: list[list[str]] = []
    for environment in environments:
        unlike = plan.store.environments[environment].differences(identity.here)
        if unlike:
            found.append(unlike)
    return found


def _workers(ended: EndedRun) -> list[results.WorkerInfo]:
    workers = [_worker(stage, worker) for stage, worker in ended.workers]
    for name, worker in ended.additional_workers:
        workers.append(_worker("score", worker, name))
    return workers


def _worker(stage: results.Stage, worker: Worker, further: str = "") -> results.WorkerInfo:
    """Describe a worker of a stage; `further` names its additional judge or metric, if any."""
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
        busy_s=round(worker.busy_s, 3),
        load_s=round(worker.load_s, 3),
        ready_s=round(worker.ready_s, 3),
    )


def _options(plan: RunPlan) -> results.Options:
    """Return the settings that repeat the run; each is listed by name, so that none is a secret."""
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
        gates=results.GateOptions(
            **settings.gates.model_dump(exclude={"baselines", "baseline_store"})
        ),
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
