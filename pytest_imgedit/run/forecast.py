"""Estimates of a run before it starts: what its gates can detect, what it costs and how much memory
it takes, by earlier runs in the store.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import get_args

from pytest_imgedit.config.settings import RunSettings, Settings
from pytest_imgedit.core import errors
from pytest_imgedit.core.measures import OVERALL, WIN, Field, groups_of
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Measure, Results
from pytest_imgedit.core.text import counted
from pytest_imgedit.kinds.base import Model, Role
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.report.read import read_results
from pytest_imgedit.run import placement, pools
from pytest_imgedit.run.costs import Bill, Billing, duel_questions, editor_line, with_known_tokens
from pytest_imgedit.run.duels import Duelling, plan_duels
from pytest_imgedit.run.first_edits import FirstEdits, plan_first_edits
from pytest_imgedit.run.judge_trials import Trials, plan_trials
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.planned_works import takes_sources_of
from pytest_imgedit.run.request import Request
from pytest_imgedit.run.settings_checks import declared_measures
from pytest_imgedit.run.work import FIRST, Work, missing_edits, source_of
from pytest_imgedit.stats import planning, sequential
from pytest_imgedit.stats.gate_limits import MeanGate
from pytest_imgedit.stats.gate_values import (
    Observation,
    costly_categories,
    describe_rule,
    estimate_group,
    foresee,
    observe,
)
from pytest_imgedit.store.baselines import Baseline
from pytest_imgedit.store.store import Store, finished_runs
from pytest_imgedit.suites.base import Suite

#: How many earlier runs are read, the newest first.
RUNS = 10
#: Standard deviation of a pair's score in points, before a first run tells it.
ASSUMED_SPREAD = 2.5
#: Significance level of the effect that a sample of a benchmark can detect.
SAMPLE_ALPHA = 0.05


def request_lines(request: Request, store: Store) -> Iterator[str]:
    """Yield lines about how much there is to do, and what the gates can show; for a shard, whose
    gates are decided later, only the former.
    """
    count = counted(len(request.pairs), "pair")
    if request.shard is not None:
        whole = counted(len(request.shard.pairs), "pair")
        yield (
            f"plan: {len(request.pairs)} of {whole}, shard {request.shard.shard}; imgedit merge "
            "decides the gates"
        )
        return
    if "per_category=" in request.suite.name:
        yield _sample_line(request, store)
    else:
        yield f"plan: {count}"
    yield from _gate_lines(request, store)


def plan_lines(plan: RunPlan) -> Iterator[str]:
    """Yield a line per gate on a mean that the planned pairs cannot fail, one about categories too
    small for gates on `overall`, and the bills; for a shard or edits alone, only the bills.
    """
    if plan.request.shard is None and plan.settings.run.stage != "edit":
        yield from _hindered_lines(plan)
    if plan.duelling is not None:
        yield duel_line(plan.duelling, plan.settings.run, partial(planned_trials, plan))
    yield from _bill_lines(plan)


def known_peaks(
    settings: Settings, models: Mapping[Role, Identity], suite: Suite, store: Store
) -> dict[Role, placement.Peak]:
    """Return the peak memory of workers of these models, by the newest runs of the store.

    A run counts if it is of the whole suite, has edited a pair of as many sources as any that the
    editor takes now, and its model has the same weights, parameters, GPUs per worker, and setting
    of the batch size.
    """
    editor = models["editor"].model
    counts = [len(pair.sources) for pair in suite.pairs if takes_sources_of(editor, pair)]
    most_sources = max(counts, default=1)
    peaks: dict[Role, placement.Peak] = {}
    for results in newest_runs(suite, store):
        if results.selection.selected < results.selection.whole:
            continue
        if _most_sources(results) < most_sources:
            continue
        for role, identity in models.items():
            if role not in peaks and is_same_model(role, results, settings, identity):
                peak = _peak_of(role, results)
                if peak is not None:
                    peaks[role] = peak
    return peaks


def _most_sources(results: Results) -> int:
    """Return the most source images that an edit of a run was made of."""
    counts = [edit.sources for item in results.items for edit in item.edits]
    return max(counts, default=1)


def is_same_model(role: Role, results: Results, settings: Settings, identity: Identity) -> bool:
    """Tell whether a run had the same weights, parameters, GPUs per worker and batch size."""
    model = results.editor if role == "editor" else results.judge
    if model.fingerprint != identity.told["fingerprint"]:
        return False
    if model.params != identity.told["params"]:
        return False
    options = results.run.options
    if role == "judge":
        return (
            options.judge.get("batch_size") == settings.judge.batch_size
            and options.judge.get("gpus_per_replica") == settings.judge.gpus_per_replica
        )
    return (
        options.editor.batch_size == identity.model.batch_size
        and options.workers.get("gpus_per_worker") == settings.workers.gpus_per_worker
    )


def _peak_of(role: Role, results: Results) -> placement.Peak | None:
    """Return the peak memory of a model's workers in a run; `None` if they took no GPU."""
    stage = "edit" if role == "editor" else "score"
    workers = [
        worker
        for worker in results.workers
        if worker.stage == stage and not worker.further and worker.gpu_peak is not None
    ]
    if not workers:
        return None
    options = results.run.options
    requested: object = options.editor.batch_size
    if role == "judge":
        requested = options.judge.get("batch_size")
    # A worker that ran out of memory has ended with a smaller batch size.
    planned = 1 if requested == "auto" else int(str(requested))
    largest = max(worker.batch_size for worker in workers)
    return placement.Peak(
        gpu=max(worker.gpu_peak or 0 for worker in workers),
        host=max(worker.host_peak or 0 for worker in workers),
        run=results.run.id,
        batch_size=max(planned, largest),
    )


def newest_runs(suite: Suite, store: Store) -> Iterator[Results]:
    """Yield the readable runs of a benchmark among the `RUNS` newest of a store, newest first."""
    newest = finished_runs(store.folder)[-RUNS:]
    for path in reversed(newest):
        with suppress(errors.UsageError, OSError):
            results = read_results(path)
            if _benchmark(results.suite.name) == _benchmark(suite.name):
                yield results


def _benchmark(suite: str) -> str:
    """Return the name of a suite without its query, which draws a sample of it."""
    return suite.partition("?")[0]


def _sample_line(request: Request, store: Store) -> str:
    """Say what a sample of a benchmark can detect, by the standard deviation of an earlier run or
    an assumed one; of a single source, only its size.
    """
    count = counted(len(request.pairs), "pair")
    sources = {pair.source for pair in request.pairs if isinstance(pair.source, Hashable)}
    clusters = len(sources) or len(request.pairs)
    if clusters < 2:
        return f"plan: a sample of {count}"
    spread, origin = _known_spread(request, store)
    error = spread / math.sqrt(clusters)
    effect = planning.mde(error, clusters - 1, SAMPLE_ALPHA)
    return (
        f"plan: a sample of {count}; with a standard deviation of {spread:.1f} points, {origin}, "
        f"a mean that is {effect:.2f} off is detected in 80% of runs"
    )


def _known_spread(request: Request, store: Store) -> tuple[float, str]:
    """Return the standard deviation of scores in points, and where it is from: the newest run of
    the same benchmark and judge, or else an assumption.
    """
    for run in newest_runs(request.suite, store):
        spread = run.overall.micro.std
        if run.judge.spec == request.settings.judge.spec and spread:
            return spread, f"as in run {run.run.id}"
    return ASSUMED_SPREAD, "which is assumed"


def _gate_lines(request: Request, store: Store) -> Iterator[str]:
    """Yield a line per gate on a mean: what it asks for, and what its pairs can detect, by the
    newest run of the suite that tells, or else by the spread in the baseline. Nothing is said to be
    detected by pairs that something keeps from failing the gate.
    """
    gates = request.settings.gates
    kinds: dict[MeanGate, dict[str, float]] = {
        "fail_under": gates.fail_under,
        "max_drop": gates.max_drop,
        "min_win": gates.min_win,
    }
    if not any(kinds.values()):
        return
    measures = declared_measures(request.settings, request.models["judge"], request.additional)
    earlier = [
        results
        for results in newest_runs(request.suite, store)
        if results.judge.spec == request.settings.judge.spec
    ]
    planned = [_observation(pair, str(hash(source_of(pair)))) for pair in request.pairs]
    for kind, limits in kinds.items():
        alpha = sequential.at_the_end(gates).alpha_of(kind) / max(1, len(limits))
        for name, limit in limits.items():
            field = Field.parse(name)
            measure = WIN if kind == "min_win" else measures.get(field.measure, Measure())
            ids = {pair.id for pair in request.pairs if field.group in groups_of(pair)}
            rule = describe_rule(kind, name, limit, measure)
            gate = f"plan: {kind} {name}:{limit:g} {rule}"
            if foresee(kind, sequential.at_the_end(gates), field.group, planned):
                yield gate
                continue
            count = counted(len(ids), "pair")
            expected = planning.expected_mde(kind, name, alpha, len(ids), earlier)
            if expected is None and request.baseline is not None and kind != "min_win":
                expected = _mde_by_baseline(kind, alpha, ids, request.baseline, field)
            if expected is None:
                yield f"{gate}; what {count} can detect is not known before a first run"
                continue
            mde, origin = expected
            change = planning.detectable(kind, mde, measure, limit)
            yield f"{gate}; {count} can detect {change} (estimated from {origin})"


def _mde_by_baseline(
    kind: MeanGate, alpha: float, ids: Collection[str], baseline: Baseline, field: Field
) -> tuple[float, str] | None:
    """Return the MDE by the spread of the baseline's values, and the baseline's name; `None` if it
    has too few values.

    Both runs are taken as independent: the variance of a difference is twice that of a score.
    """
    items = [item for item in baseline.items if item.id in ids]
    values = estimate_group(field.group, observe(items, field.measure, Measure()))
    if values is None:
        return None
    mde = values.mde(alpha)
    if mde is None:
        return None
    if kind == "max_drop":
        mde *= math.sqrt(2)
    return mde, baseline.name


def _hindered_lines(plan: RunPlan) -> Iterator[str]:
    """Yield a line per gate on a mean that the planned pairs cannot fail, and one about categories
    of few sources, if a gate is on `overall`.
    """
    gates = sequential.at_the_end(plan.settings.gates)
    pairs = {work.pair.id: _planned_observation(work) for work in plan.works}
    planned = list(pairs.values())
    groups: set[str] = set()
    for kind in get_args(MeanGate):
        for name in getattr(gates, kind):
            group = Field.parse(name).group
            groups.add(group)
            line = foresee(kind, gates, group, planned)
            if line:
                yield f"plan: {kind} {line}"
    if OVERALL in groups:
        line = costly_categories(planned)
        if line:
            yield f"plan: {line}"


def _planned_observation(work: Work) -> Observation:
    """Return the observation of a pair that is not scored yet."""
    source = work.pair.id if work.source is None else work.source.sha256
    return _observation(work.pair, source)


def _observation(pair: EditPair, source: str) -> Observation:
    return Observation(pair.category, source, 0.0, groups=groups_of(pair))


def with_bills(plan: RunPlan) -> RunPlan:
    """Return a plan with what its scorers will be asked, and with the first edits of a served
    editor.
    """
    missing = missing_edits(plan.works)
    first_edits = FirstEdits()
    if first_requests(plan, plan.editor.model):
        first_edits = plan_first_edits(plan.editor, plan.store, missing)
    bills: dict[str, Bill] = {}
    if plan.settings.run.stage == "report":
        return replace(plan, first_edits=first_edits)
    billing = Billing(plan.settings.run, may_end_early=plan.blocks is not None)
    for scorer in plan.scorers:
        if not scorer.model.is_served and scorer.model.requirements.prices is None:
            continue
        works: Sequence[Work] = plan.works
        trials = Trials()
        duels = None
        if scorer.name == FIRST:
            trials = planned_trials(plan)
            if plan.duelling is not None:
                duels = plan_duels(plan.duelling, trials)
        else:
            works = scorer.scorable(plan.works)
        tries = first_requests(plan, scorer.model)
        bills[scorer.name] = billing.bill(scorer, works, trials, tries, duels)
    return replace(plan, bills=bills, first_edits=first_edits)


def duel_line(duelling: Duelling, run: RunSettings, plan_of_trials: Callable[[], Trials]) -> str:
    """Say how edits are put against those of another run; of a judge that is asked about two edits,
    and whose questions no bill counts, also how many these are, with those of its trials.
    """
    is_billed = duelling.alone.model.requirements.prices is not None
    duels = plan_duels(duelling, Trials() if is_billed else plan_of_trials())
    asked = f"protocol {duels.scorer.protocol.label}, in both orders"
    if duels.by_scores:
        asked = "by the difference of the judge's scores"
    name = duels.opponent.baseline.name
    line = f"plan: {counted(len(duels.bouts), 'duel')} against {name}, {asked}"
    if is_billed or duels.by_scores or run.stage == "report":
        return line
    return f"{line}: {duel_questions(duels, run)}"


def first_requests(plan: RunPlan, model: Model) -> int:
    """Return how many requests the servers of a model get before the first edit: none if its
    workers have an interpreter of their own.
    """
    return model.first_requests if pools.python_of(plan.settings, model.role) is None else 0


def _bill_lines(plan: RunPlan) -> Iterator[str]:
    """Yield a line per served editor, and per judge with prices, about what they will be asked; and
    one per judge whose protocol asks each question several times.
    """
    if plan.editor.model.is_served and plan.settings.run.stage in ("all", "edit"):
        stored = sum(work.edit is not None for work in plan.works)
        yield editor_line(len(missing_edits(plan.works)), plan.first_edits, stored)
    for scorer in plan.scorers:
        attempts = 1 if scorer.model.measures else scorer.protocol.attempts
        if attempts > 1:
            yield (
                f"plan: {scorer.title}: {scorer.protocol.label} asks each question {attempts} "
                f"times, as the authors' script does: the bill is {attempts} times that of strict "
                "without re-asks"
            )
        prices = scorer.model.requirements.prices
        if prices is None or scorer.name not in plan.bills:
            continue
        bill = plan.bills[scorer.name]
        if bill.highest:
            earlier = newest_runs(plan.request.suite, plan.store)
            bill = with_known_tokens(bill, scorer, earlier)
        yield bill.line(scorer.title, prices)


def planned_trials(plan: RunPlan) -> Trials:
    """Return the trials of the judge; edits that the store lacks are not made for them."""
    assert plan.scorer is not None
    return plan_trials(
        plan.scorer,
        plan.settings,
        plan.request.suite,
        pairs=plan.request.pairs,
        run_works=plan.works,
        shard=plan.request.shard,
        makes_edits=False,
    )
