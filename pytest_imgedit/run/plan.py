"""What a run is to do, resolved once: models, hardware, identities, and the work that is not
stored, at once or in blocks; and what earlier runs of the store let expect.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, get_args

from pytest_imgedit.config.settings import GatesSettings, Settings
from pytest_imgedit.core import environments, errors
from pytest_imgedit.core.measures import OVERALL, SCORE, SCORE_ONLY, Field, groups_of
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import (
    ComputedIn,
    EditorInfo,
    GateResult,
    JudgeInfo,
    Measure,
    Results,
    Timing,
)
from pytest_imgedit.core.sanitize import counted, did_you_mean, first_of
from pytest_imgedit.kinds.base import ROLES, Model, Role, Where
from pytest_imgedit.kinds.identity import Identity, identify
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.report.read import read_results
from pytest_imgedit.run import edit, placement, pools, score
from pytest_imgedit.run.bill import Billing, editor_line, with_known_tokens
from pytest_imgedit.run.further import FurtherScorer
from pytest_imgedit.run.item_results import make_items
from pytest_imgedit.run.preflight import declared_measures
from pytest_imgedit.run.stored_replies import doubts, replies_to
from pytest_imgedit.run.trials import Trials, plan_trials
from pytest_imgedit.run.work import (
    SelectedShard,
    Work,
    by_pair,
    hand_over,
    make_works,
    missing_edits,
)
from pytest_imgedit.stats import comparison, planning, sequential
from pytest_imgedit.stats.alike import largest_alike
from pytest_imgedit.stats.gates import (
    MeanGate,
    Observation,
    Selection,
    allowed_pairs,
    costly_categories,
    describe_rule,
    estimate_group,
    foresee,
    observe,
)
from pytest_imgedit.store.baselines import (
    Baseline,
    PairContent,
    content_sha256,
    reduced,
    refuse,
    unlike_further,
    unlike_items,
    unlike_judges,
    unlike_losses,
)
from pytest_imgedit.store.journal import Journal
from pytest_imgedit.store.store import Store, finished_runs
from pytest_imgedit.suites.base import Suite
from pytest_imgedit.workers.hardware import Hardware

#: How many earlier runs are read, the newest first.
RUNS = 10
#: A standard deviation of a pair's score in points, before a first run tells it.
ASSUMED_SPREAD = 2.5
#: Share of the pairs in the first block if models swap, as the cost of a swap is not known yet.
FIRST_SHARE = 0.2
#: Share of the time of editing that all swaps together may take.
SWAP_SHARE = 0.05


def resolve_models(settings: Settings) -> dict[Role, Model]:
    """Resolve the specs of the editor and, unless the run only edits, of the judge.

    Raises `UsageError`, with its location, for a spec that names nothing.
    """
    is_judged = settings.run.stage != "edit" or not settings.judge.scores
    roles = ROLES if is_judged else ROLES[:1]
    return {role: resolve(role, settings) for role in roles}


def resolve_further(settings: Settings) -> dict[str, Model]:
    """Resolve the specs of the further judges and the metrics, by name.

    Raises `UsageError`, with its location, for a spec that names nothing that scores.
    """
    if not settings.scores_further:
        return {}
    models = {
        name: resolve(further.role, further.settings, further.section)
        for name, further in settings.further.items()
    }
    for name, model in models.items():
        if not model.scores:
            raise errors.UsageError(f"judge {name!r}: {model.spec!r} scores nothing, name one")
    return models


def resolve(role: Role, settings: Settings, section_name: str = "") -> Model:
    """Resolve the spec of the editor, a judge or a metric, and the batch size of edits.

    Raises `UsageError` with the location of the spec, in the section of this name of a config.
    """
    section = settings.editor if role == "editor" else settings.judge
    gpus = settings.workers.gpus_per_worker if role == "editor" else settings.judge.gpus_per_replica
    try:
        model = make_model(role, section.spec, section.params, gpus)
    except errors.UsageError as error:
        name = section_name or role
        meant = [key for key in section.params if did_you_mean(key, ["spec"])]
        near = f"; did you mean 'spec' by {meant[0]!r}?" if meant else ""
        location = settings.place(name, meant[0] if meant else "spec")
        raise errors.UsageError(f"{location}{error}{near}") from None
    if role != "editor":
        return model
    size = settings.editor.batch_size
    usual = model.usual_batch if gpus == 1 else 1
    return replace(model, batch_size=usual if size == "auto" else size)


@dataclass(frozen=True)
class Request:
    """What a run is to do: checked settings, models, and the selected pairs of a suite, or one
    `shard` of them.

    `resting` gates concern pairs outside the `selection`, which counts the pairs of all shards.
    `further` are the further judges and the metrics by name.
    """

    settings: Settings
    models: Mapping[Role, Model]
    suite: Suite
    pairs: Sequence[EditPair]
    selection: Selection
    resting: Sequence[GateResult] = ()
    baseline: Baseline | None = None
    shard: SelectedShard | None = None
    further: Mapping[str, Model] = field(default_factory=dict)


class Blocks:
    """Hands out a plan block by block, and decides the gates on means after each."""

    def __init__(
        self, gates: GatesSettings, plan: Sequence[Work], baseline: Baseline | None
    ) -> None:
        self.baseline = baseline
        self.works = by_pair(plan)
        self.parts = sequential.in_parts(
            [
                sequential.PlannedPair(
                    pair,
                    works[0].source.sha256 if works[0].source else pair,
                    works[0].pair.category,
                )
                for pair, works in self.works.items()
            ]
        )
        self.seen = self._looked = 0
        self._scores = sequential.Looks("fail_under", gates, self.parts)
        self._drops = sequential.Looks(
            "max_drop", gates, self.parts, "" if baseline is None else baseline.name
        )
        self._gates = len(gates.fail_under) + len(gates.max_drop)

    @property
    def is_over(self) -> bool:
        """Whether every gate is decided, or every pair was seen."""
        return self.seen == len(self.parts) or len(self.decided) == self._gates

    def take(self, workers: int | None, timing: Timing) -> list[Work]:
        """Return the works of the next block.

        If both models stay loaded, the block keeps the `workers` busy. If they swap (`None`), it is
        so large that all swaps together take at most `SWAP_SHARE` of the time of editing, by the
        `timing` of those so far.
        """
        count = len(self.parts)
        remaining = count - self.seen
        if workers is not None:
            size = workers * count / len(self.works)
        elif not timing.swaps:
            size = FIRST_SHARE * count
        else:
            swap = (timing.load_s + timing.swap_s) / timing.swaps
            editing = (timing.edit_s - timing.load_s) / self.seen * count
            swaps = int(SWAP_SHARE * editing / swap) if swap else remaining
            size = remaining / max(1, swaps - timing.swaps)
        block = self.parts[self.seen :][: math.ceil(size)]
        self.seen += len(block)
        works = [work for pair in chain(*block) for work in self.works[pair.id]]
        timing.edits_cached += sum(work.edit is not None for work in works)
        return works

    def look(self) -> str:
        """Decide the gates by the blocks so far; return a line about it."""
        for number in range(self._looked, self.seen):
            pairs = [pair.id for pair in self.parts[number]]  # drawn by source
            items = make_items([work for pair in pairs for work in self.works[pair]], True, "")
            scores = [Observation(item.category, item.id, item.score) for item in items]
            self._scores.see(number, dict(zip(pairs, scores, strict=True)))
            if self.baseline is not None:
                now = [reduced(item) for item in items]
                paired = comparison.PairedItems(self.baseline, now, SCORE_ONLY)
                compared = (item.id for item in paired.compared)
                self._drops.see(number, dict(zip(compared, paired.differences[SCORE], strict=True)))
        self._looked = self.seen
        return (
            f"{sum(map(len, self.parts[: self.seen]))} of {len(self.works)} pairs seen, "
            f"{len(self.decided)} of {self._gates} gates decided"
        )

    @property
    def decided(self) -> dict[tuple[str, str], GateResult]:
        """The gates that are decided, by kind and field."""
        return {
            (looks.kind, field): gate
            for looks in (self._scores, self._drops)
            for field, gate in looks.decided.items()
        }

    def leave_out(self, pairs: Iterable[EditPair]) -> list[EditPair]:
        """Mark the work that was not needed; return the pairs that were."""
        for pair in chain(*self.parts[self.seen :]):
            for work in self.works[pair.id]:
                work.fail("edit", "not_needed", "every gate was decided before")
        seen = {pair.id for pair in chain(*self.parts[: self.seen])}
        return [pair for pair in pairs if pair.id in seen]


@dataclass(frozen=True)
class RunPlan:
    """All that a run needs; `models` are settled for its hardware, `works` hold stored edits.

    A run that only edits has no `judge` and no `scorer`. A run that ends as soon as its gates are
    decided has `blocks`. `peaks` is the GPU memory that the models took in earlier runs.
    """

    request: Request
    store: Store
    hardware: Hardware
    models: Mapping[Role, Model]
    editor: Identity
    judge: Identity | None
    works: tuple[Work, ...]
    scorer: score.Scorer | None
    blocks: Blocks | None = None
    further: tuple[FurtherScorer, ...] = ()
    peaks: Mapping[Role, placement.Peak] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        return self.request.settings

    @property
    def identities(self) -> dict[Role, Identity]:
        """What identifies the models, by role."""
        return {
            identity.model.role: identity
            for identity in (self.editor, self.judge)
            if identity is not None
        }


def make_plan(
    request: Request, store: Store, launcher: pools.Launcher, note: Callable[[str], None]
) -> RunPlan:
    """Plan a run; `note` takes lines that the user should see before anything starts.

    Raises `UsageError` if the run could only fail, or if its verdicts could not be compared with
    the baseline.
    """
    settings = request.settings
    _introduce(request, store, note)
    editor, works = _plan_edits(request, store, launcher, note)
    for line in _hindered_lines(request, works):
        note(f"plan: {line}")
    judge = scorer = blocks = None
    if "judge" in request.models and settings.run.stage != "edit":
        model = request.models["judge"]
        judge = _identify_scorer(model, settings, store, launcher, note, works)
        scorer = score.Scorer(settings, judge, store)
        if settings.tries_judge and judge.model.blind_to_words:
            note(
                f"warning: judge {judge.model.spec} is not tried with other instructions: "
                f"{judge.model.blind_to_words}"
            )
        if not settings.run.fresh:
            for line in doubts(replies_to(scorer, works), scorer.protocol.variant):
                note(f"plan: {line}")
        if request.baseline is not None:
            _refuse_baseline(request.baseline, settings, editor, judge, works)
    further = tuple(_further_scorers(request, store, launcher, note, works))
    if request.baseline is not None:
        known = {each.name: each.scorer.facts for each in further}
        refuse(request.baseline, unlike_further(request.baseline, known))
    hardware = launcher.hardware
    settled = placement.settle(request.models["editor"], hardware)
    if settled.warm_up_line and missing_edits(works):
        note(f"plan: {settled.warm_up_line}")
    models = {**request.models, "editor": settled}
    if settings.gates.until == "decided":
        blocks = Blocks(settings.gates, works, request.baseline)
    plan = RunPlan(request, store, hardware, models, editor, judge, works, scorer, blocks, further)
    for line in _bill_lines(plan):
        note(line)
    if not hardware.has_gpus:
        return plan
    return replace(plan, peaks=known_peaks(settings, plan.identities, request.suite, store))


def _further_scorers(
    request: Request,
    store: Store,
    launcher: pools.Launcher,
    note: Callable[[str], None],
    works: Sequence[Work],
) -> Iterator[FurtherScorer]:
    """Identify the further judges and the metrics.

    Raises `UsageError` for one that needs a reference image, if no pair has one.
    """
    tables = request.settings.further
    for name, model in request.further.items():
        if model.needs_reference and not any(work.reference for work in works):
            raise errors.UsageError(
                f"{model.role} {name!r}: no pair has a reference image, with which it compares"
            )
        settings = tables[name].settings
        identity = _identify_scorer(model, settings, store, launcher, note, works)
        yield FurtherScorer(name, score.Scorer(settings, identity, store))


def _bill_lines(plan: RunPlan) -> Iterator[str]:
    """Say what a served editor and each judge that is paid by tokens will be asked."""
    request, run, store = plan.request, plan.settings.run, plan.store
    if plan.editor.model.is_served and run.stage in ("all", "edit"):
        yield editor_line(plan.editor, store, plan.works)
    if run.stage == "report":
        return
    billing = Billing(run, may_end_early=plan.blocks is not None)
    scored = [(each.title, each.scorer, each.scorable(plan.works)) for each in plan.further]
    if plan.scorer is not None:
        scored.insert(0, ("judge", plan.scorer, list(plan.works)))
    for title, scorer, works in scored:
        prices = scorer.judge.model.requirements.prices
        if prices is None:
            continue
        trials = Trials()
        if scorer is plan.scorer:
            trials = plan_trials(
                scorer,
                plan.settings,
                request.suite,
                pairs=request.pairs,
                own=works,
                shard=request.shard,
                makes=False,
            )
        bill = billing.bill(scorer, works, trials)
        earlier = _newest_runs(request.suite, store) if bill.highest else ()
        yield with_known_tokens(bill, scorer, earlier).line(title, prices)


def _sample_line(request: Request, store: Store) -> str:
    """Say what a sample of a benchmark can detect, by the newest run of the same benchmark and
    judge, or else by a standard deviation that is assumed.
    """
    clusters = len({pair.source for pair in request.pairs if isinstance(pair.source, Hashable)})
    clusters = clusters or len(request.pairs)
    spread, origin = ASSUMED_SPREAD, "which is assumed"
    for run in _newest_runs(request.suite, store):
        if run.judge.spec == request.settings.judge.spec and run.overall.micro.std:
            spread, origin = run.overall.micro.std, f"as in run {run.run.id}"
            break
    if clusters < 2:
        return f"plan: a sample of {counted(len(request.pairs), 'pair')}"
    effect = planning.mde(spread / math.sqrt(clusters), clusters - 1, 0.05)
    return (
        f"plan: a sample of {counted(len(request.pairs), 'pair')}; with a standard deviation of "
        f"{spread:.1f} points, {origin}, a mean that is {effect:.2f} off is detected in 80% of runs"
    )


def _introduce(request: Request, store: Store, note: Callable[[str], None]) -> None:
    """Note how much there is to do, what the gates can show, and what is wrong with the store."""
    if request.shard is not None:
        note(
            f"plan: {len(request.pairs)} of {counted(len(request.shard.pairs), 'pair')}, shard "
            f"{request.shard.shard}; imgedit merge decides the gates"
        )
    else:
        is_sample = "per_category=" in request.suite.name
        note(
            _sample_line(request, store)
            if is_sample
            else f"plan: {counted(len(request.pairs), 'pair')}"
        )
        for line in _expected_lines(request, store):
            note(line)
    if store.warning:
        note(f"warning: {store.warning}")
    for journal in (store.edits, store.verdicts):
        if journal.torn:
            note(f"warning: {journal.path}: dropped a torn last line")


def _expected_lines(request: Request, store: Store) -> Iterator[str]:
    """Yield a line per gate on a mean: what it asks for, and what its pairs can detect, by the
    newest run of the suite that tells, or else by the spread in the baseline.
    """
    gates, pairs = request.settings.gates, request.pairs
    kinds: tuple[tuple[MeanGate, dict[str, float]], ...] = (
        ("fail_under", gates.fail_under),
        ("max_drop", gates.max_drop),
    )
    if not any(limits for _, limits in kinds):
        return
    measures = declared_measures(request.settings, request.models["judge"], request.further)
    earlier = [
        results
        for results in _newest_runs(request.suite, store)
        if results.judge.spec == request.settings.judge.spec
    ]
    for kind, limits in kinds:
        for name, limit in limits.items():
            field = Field.parse(name)
            ids = {pair.id for pair in pairs if field.group in groups_of(pair)}
            alpha = sequential.at_the_end(gates).alpha_of(kind) / len(limits)
            expected = planning.expected_mde(kind, name, alpha, len(ids), earlier)
            if expected is None and request.baseline is not None:
                expected = _mde_by_baseline(kind, alpha, ids, request.baseline, field)
            measure = measures.get(field.measure, Measure())
            gate = f"plan: {kind} {name}:{limit:g} {describe_rule(kind, name, limit, measure)}"
            pairs_of_it = counted(len(ids), "pair")
            if expected is None:
                yield f"{gate}; what {pairs_of_it} can detect is not known before a first run"
            else:
                mde, origin = expected
                change = planning.detectable(kind, mde, measure, limit)
                yield f"{gate}; {pairs_of_it} can detect {change} (estimated from {origin})"


def _hindered_lines(request: Request, works: Sequence[Work]) -> Iterator[str]:
    """Yield a line per gate on a mean that no score of the planned pairs could fail, and one about
    small categories, which cost gates on `overall` much.
    """
    if request.shard is not None or request.settings.run.stage == "edit":
        return
    pairs = {
        work.pair.id: Observation(
            work.pair.category,
            work.source.sha256 if work.source else work.pair.id,
            0.0,
            groups=groups_of(work.pair),
        )
        for work in works
    }
    gates = sequential.at_the_end(request.settings.gates)
    planned = [*pairs.values()]
    fields = [(kind, name) for kind in get_args(MeanGate) for name in getattr(gates, kind)]
    for kind, name in fields:
        if line := foresee(kind, gates, Field.parse(name).group, planned):
            yield f"{kind} {line}"
    is_macro = any(Field.parse(name).group == OVERALL for _, name in fields)
    if is_macro and (line := costly_categories(planned)):
        yield line


def _mde_by_baseline(
    kind: MeanGate, alpha: float, ids: Collection[str], baseline: Baseline, field: Field
) -> tuple[float, str] | None:
    """Return the MDE by the spread of the baseline's values, as if the runs were independent, in
    which case the variance of a difference is twice that of a score.
    """
    items = [item for item in baseline.items if item.id in ids]
    values = estimate_group(field.group, observe(items, field.measure, Measure()))
    mde = None if values is None else values.mde(alpha)
    if mde is None:
        return None
    return math.sqrt(2) * mde if kind == "max_drop" else mde, baseline.name


def _plan_edits(
    request: Request, store: Store, launcher: pools.Launcher, note: Callable[[str], None]
) -> tuple[Identity, tuple[Work, ...]]:
    """Identify the editor and list its work, with the stored edits."""
    settings, suite, stage = request.settings, request.suite, request.settings.run.stage
    model = request.models["editor"]
    candidates = _candidates(model, settings, store, launcher, note)
    editor = candidates[-1]
    works = tuple(
        make_works(
            request.pairs,
            suite.pairs,
            editor,
            store,
            settings.editor.seeds,
            settings.editor.seed,
        )
    )
    selected = request.pairs if request.shard is None else request.shard.pairs
    allowed = allowed_pairs(settings.gates.max_errors, len(selected))
    judge = None if stage == "edit" else request.models.get("judge")
    for line in (*suite.remarks, *_missing_lines(model, judge, suite.pairs, works, allowed)):
        note(line)
    for line in _alike_lines(works):
        note(line)
    if len(candidates) > 1:
        contents: dict[str, Identity] = {}
        for candidate in candidates:
            hand_over(works, candidate)
            contents |= {work.content: candidate for work in works}
        editor = _of_newest_record(store.edits, contents) or editor
        hand_over(works, editor)
    only_stored = stage in ("score", "report")
    for work in works:
        if work.error is None and (only_stored or not settings.run.fresh):
            work.edit = edit.stored_edit(work, editor, store, settings.run.reuse)
    for line in edit.probe_lines(works, store):
        note(line)
    if not only_stored:
        for line in edit.batch_lines(model, works):
            note(line)
        return editor, works
    if not pools.is_remote(settings) and not any(work.edit for work in works):
        raise errors.UsageError(
            f"--imgedit-stage={stage}: {store.folder} has no edit of these pairs by this editor, "
            "make them with --imgedit-stage=edit"
        )
    for work in missing_edits(works):
        work.fail(
            "edit",
            "not_edited",
            f"the store has no edit of this pair, and stage {stage!r} makes none",
        )
    return editor, works


def _missing_lines(
    editor: Model,
    judge: Model | None,
    suite_pairs: Sequence[EditPair],
    works: Sequence[Work],
    allowed: int,
) -> Iterator[str]:
    """Yield one line for each thing that pairs lack; those pairs will end in an error.

    Raises `UsageError` if a run could only fail: if all pairs lack a finished image or a reference,
    or if images of more pairs than are `allowed` to fail cannot be read.
    """
    broken = [work for work in works if work.error and work.error.kind == "bad_image"]
    without = [work for work in works if work.error and work.error.kind == "no_edit"]
    bare = [work for work in works if work.error is None and work.reference is None]
    problems: list[tuple[str, list[Work], object]] = []
    if broken and broken[0].error is not None:
        reason = broken[0].error.message
        problems.append(("a source or reference that cannot be read", broken, reason))
    if without and (finished := editor.finished_images(suite_pairs)):
        problems.append((f"no finished image for {editor.spec}", without, finished.summary))
    if judge is not None and judge.needs_reference:
        problems.append(
            (f"no reference image, which judge {judge.name!r} needs", bare, "name another judge")
        )
    if editor.shown_reference is not None:
        problems.append(
            (f"no reference image, which editor {editor.name!r} needs", bare, "name another editor")
        )
    pairs = len({work.pair.id for work in works})
    for what, affected, advice in problems:
        names = list(dict.fromkeys(_name(work.pair, affected is broken) for work in affected))
        if not names:
            continue
        line = f"{len(names)} of {pairs} pairs have {what} ({first_of(names)}); {advice}"
        if affected is broken and len(names) > allowed:
            raise errors.UsageError(f"{line}; fix them, or raise --imgedit-max-errors")
        if affected is not broken and len(names) == pairs:
            raise errors.UsageError(line)
        yield f"warning: {line}"


def _alike_lines(works: Sequence[Work]) -> Iterator[str]:
    """Yield a line if finished images of pairs with different sources are one and the same file."""
    alike = largest_alike(
        (work.pair.id, work.source.sha256, work.recipe["image"])
        for work in works
        if work.source is not None and "image" in work.recipe
    )
    if alike is not None:
        yield f"warning: {alike}"


def _name(pair: EditPair, with_row: bool) -> str:
    return f"{pair.id} in {pair.row}" if with_row and pair.row else pair.id


def known_peaks(
    settings: Settings, models: Mapping[Role, Identity], suite: Suite, store: Store
) -> dict[Role, placement.Peak]:
    """Return the peak memory of workers of these models, by the newest runs of the store.

    A run counts if it is of the whole suite, and its model has the same weights, parameters, GPUs
    per worker, and setting of the batch size.
    """
    peaks: dict[Role, placement.Peak] = {}
    for results in _newest_runs(suite, store):
        if results.selection.selected < results.selection.whole:
            continue
        for role, identity in models.items():
            peak = _peak_of(role, results, settings, identity)
            if peak is not None:
                peaks.setdefault(role, peak)
    return peaks


def _peak_of(
    role: Role, results: Results, settings: Settings, identity: Identity
) -> placement.Peak | None:
    model = results.editor if role == "editor" else results.judge
    options = results.run.options
    if role == "judge":
        before = (options.judge.get("batch_size"), options.judge.get("gpus_per_replica"))
        now = (settings.judge.batch_size, settings.judge.gpus_per_replica)
    else:
        before = (options.editor.batch_size, options.workers.get("gpus_per_worker"))
        now = (identity.model.batch_size, settings.workers.gpus_per_worker)
    known = identity.told
    if before != now or (model.fingerprint, model.params) != (
        known["fingerprint"],
        known["params"],
    ):
        return None
    stage = "edit" if role == "editor" else "score"
    used = [
        worker
        for worker in results.workers
        if worker.stage == stage and not worker.further and worker.gpu_peak is not None
    ]
    if not used:
        return None
    # A worker that ran out of memory has ended with a smaller batch size.
    planned = 1 if before[0] == "auto" else int(str(before[0]))
    return placement.Peak(
        gpu=max(worker.gpu_peak or 0 for worker in used),
        host=max(worker.host_peak or 0 for worker in used),
        run=results.run.id,
        batch_size=max(planned, *(worker.batch_size for worker in used)),
    )


def _newest_runs(suite: Suite, store: Store) -> Iterator[Results]:
    for path in finished_runs(store.folder)[: -RUNS - 1 : -1]:
        with suppress(errors.UsageError, OSError):
            results = read_results(path)
            if _benchmark(results.suite.name) == _benchmark(suite.name):
                yield results


def _benchmark(suite: str) -> str:
    """Return the name of a suite without its query, which draws a sample of it."""
    return suite.partition("?")[0]


def _identify_scorer(
    model: Model,
    settings: Settings,
    store: Store,
    launcher: pools.Launcher,
    note: Callable[[str], None],
    works: Sequence[Work],
) -> Identity:
    candidates = _candidates(model, settings, store, launcher, note)
    if len(candidates) == 1:
        return candidates[0]
    scorers = [score.Scorer(settings, judge, store) for judge in candidates]
    contents = {
        environments.key(score.reply_recipe(scorer.judge, ask)): scorer.judge
        for scorer in scorers
        for work in works
        if work.edit
        for ask in scorer.asks(work)
    }
    return _of_newest_record(store.verdicts, contents) or candidates[-1]


def _candidates(
    model: Model,
    settings: Settings,
    store: Store,
    launcher: pools.Launcher,
    note: Callable[[str], None],
) -> list[Identity]:
    """Find what identifies a model where its workers compute, or all that may.

    A report connects to no host, so that it takes what hosts have from the newest record. Where a
    run starts no worker of a model and has no GPU, its results may come from a machine with GPUs.
    """
    if model.checkpoint is not None:
        note(f"fingerprint: {model.role} {model.spec} (weights are read once, then remembered)")
    if launcher.hosts is not None or model.is_served:
        return [launcher.identify(model, store.fingerprints)]
    if pools.is_remote(settings):
        on_cpu = identify(model, store.fingerprints, Where(device="cpu"))
        if settings.workers.gpus == "none":
            return [on_cpu]
        return [on_cpu, identify(model, store.fingerprints, Where(device="cuda"))]
    here = launcher.identify(model, store.fingerprints)
    stages = ("score", "report") if model.role == "editor" else ("report",)
    if settings.run.stage not in stages or launcher.hardware.has_gpus:
        return [here]
    python = pools.python_of(settings, model.role)
    return [identify(model, store.fingerprints, Where(device="cuda", python=python)), here]


def _of_newest_record(journal: Journal[Any], contents: Mapping[str, Identity]) -> Identity | None:
    """Return the identity of the newest record with one of the contents, in its environment."""
    for record in reversed(journal.records.values()):
        if record.content in contents:
            return replace(contents[record.content], here=record.environment)
    return None


def _content(works: Sequence[Work]) -> PairContent:
    """Return what the pair of works consists of, as baselines keep it."""
    _, _, *others, source, reference = inputs = works[0].inputs
    return PairContent(
        works[0].pair.category,
        source,
        content_sha256(inputs),
        tuple(work.seed for work in works),
        is_plain=not (any(others) or reference),
    )


def _refuse_baseline(
    baseline: Baseline,
    settings: Settings,
    editor: Identity,
    judge: Identity,
    works: Sequence[Work],
) -> None:
    """Raise `UsageError` if the verdicts of the run could not be compared with the baseline."""
    reason = unlike_judges(
        baseline,
        {"fingerprint": judge.fingerprint, "spec": judge.model.spec},
        settings.editor.seeds,
    )
    if settings.gates.max_drop:
        reason = reason or unlike_losses(baseline, editor.lossy)
    items = {pair: _content(group) for pair, group in by_pair(works).items()}
    changed = unlike_items(baseline, items)
    if changed:
        changed += "; save a new baseline by --imgedit-save"
    refuse(baseline, reason or changed)
    if (
        settings.run.stage == "all"
        and missing_edits(works)
        and not (settings.gates.environment == "any" or pools.is_remote(settings))
    ):
        _refuse_elsewhere(baseline, editor, judge)


def _refuse_elsewhere(baseline: Baseline, editor: Identity, judge: Identity) -> None:
    """Raise `UsageError` if the run would compute in another environment than its baseline."""
    here = comparison.Computed(
        EditorInfo(
            spec=editor.model.spec,
            recipe=editor.digest,
            dtype=editor.recipe.get("dtype"),
            batch_sizes=(editor.model.batch_size,) if editor.model.pads_batches else (),
        ),
        JudgeInfo(
            spec=judge.model.spec,
            recipe=judge.digest,
            dtype=judge.recipe.get("dtype"),
            decoder=judge.recipe.get("decoder"),
        ),
        {
            "editor": ComputedIn(**editor.here.model_dump(), edits=1, verdicts=0),
            "judge": ComputedIn(**judge.here.model_dump(), edits=0, verdicts=1),
        },
    )
    if differences := comparison.environment_differences(baseline, here):
        refuse(
            baseline,
            f'computed in another environment (gates.environment="same"): {"; ".join(differences)}',
        )


def ask_servers(plan: RunPlan) -> None:
    """Raise `UsageError` if a server with work to do cannot be reached or refuses its key."""
    settings, run, scorer = plan.settings, plan.settings.run, plan.scorer
    if run.stage == "report":
        return
    missing = missing_edits(plan.works)
    edited = [work for work in plan.works if work.error is None and work.edit is not None]

    def has_questions(scorer: score.Scorer, works: Sequence[Work]) -> bool:
        if missing or run.fresh:
            return True
        return any(scorer.stored_verdict(work, run.reuse) is None for work in works)

    is_judging = scorer is not None and (
        settings.tries_judge or settings.judge.repeats > 0 or has_questions(scorer, edited)
    )
    asked = {"editor": bool(missing), "judge": is_judging}
    models = [model for role, model in plan.models.items() if asked[role]]
    models += [
        further.model
        for further in plan.further
        if has_questions(further.scorer, further.take(edited))
    ]
    for model in models:
        if pools.python_of(settings, model.role) is None:
            model.reach()
