"""What a run is to do, resolved once: models, hardware, identities, and the work that the store
does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.environments import key
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import ComputedIn, EditorInfo, GateResult, JudgeInfo
from pytest_imgedit.core.sanitize import counted
from pytest_imgedit.kinds.base import Model, Role
from pytest_imgedit.kinds.identity import Identity, identify
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.kinds.requirements import Where
from pytest_imgedit.protocols.rubric import Rubric, load_rubric
from pytest_imgedit.run.blocks import Blocks
from pytest_imgedit.run.edit import batch_lines, stored_edit
from pytest_imgedit.run.forecast import expected_lines, known_peaks, missing_lines
from pytest_imgedit.run.placement import Peak, settle
from pytest_imgedit.run.pools import Launcher, is_remote, python_of
from pytest_imgedit.run.score import Scorer, verdict_recipe
from pytest_imgedit.run.work import Seeds, SelectedShard, Work, hand_over, make_works, missing_edits
from pytest_imgedit.stats.comparison import Computed, environment_differences
from pytest_imgedit.stats.gates import Selection, allowed_pairs
from pytest_imgedit.store.baselines import (
    Baseline,
    content_sha256,
    refuse,
    unlike_items,
    unlike_judges,
    unlike_losses,
)
from pytest_imgedit.store.journal import Journal
from pytest_imgedit.store.store import Store
from pytest_imgedit.suites.base import Suite
from pytest_imgedit.workers.hardware import Hardware


@dataclass(frozen=True)
class Models:
    """The editor and the judge of a run, resolved from their specs; no judge in a run that only
    edits.
    """

    editor: Model
    judge: Model | None

    @classmethod
    def of(cls, settings: Settings) -> Models:
        """Resolve the specs; raises `UsageError`, with its place in the config, for one that names
        nothing.
        """
        is_judged = settings.run.stage != "edit" or not settings.judge.scores
        return cls(resolve("editor", settings), resolve("judge", settings) if is_judged else None)

    def __iter__(self) -> Any:
        return iter([self.editor] if self.judge is None else [self.editor, self.judge])


def resolve(role: Role, settings: Settings) -> Model:
    """Resolve the spec of the editor or the judge, and its batch size of edits; raises `UsageError`
    with its place.
    """
    section = settings.editor if role == "editor" else settings.judge
    gpus = settings.workers.gpus_per_worker if role == "editor" else settings.judge.gpus_per_replica
    try:
        model = make_model(role, section.spec, section.params, gpus)
    except UsageError as error:
        raise UsageError(f"{settings.place(role, 'spec')}{error}") from None
    if role == "judge":
        return model
    size = settings.editor.batch_size
    if size == "auto":
        size = model.usual_batch if gpus == 1 else 1
    return replace(model, batch_size=size)


@dataclass(frozen=True)
class Request:
    """What is asked of a run: checked settings, models, and the selected pairs of a suite, or of
    one `shard` of them.

    `resting` gates are those over pairs that are not in the `selection`, which counts the pairs of
    all shards.
    """

    settings: Settings
    models: Models
    suite: Suite
    pairs: Sequence[EditPair]
    selection: Selection
    resting: Sequence[GateResult] = ()
    baseline: Baseline | None = None
    shard: SelectedShard | None = None


@dataclass(frozen=True)
class RunPlan:
    """All that a run needs to know; `models` are settled for its hardware, `works` have what the
    store has.

    A run that only edits has no `judge` and no `scorer`. `blocks` are there for one that ends as
    soon as its gates are decided. `peaks` is what earlier runs tell of the GPU memory of the
    models.
    """

    request: Request
    store: Store
    hardware: Hardware
    models: Mapping[Role, Model]
    editor: Identity
    judge: Identity | None
    rubric: Rubric
    works: tuple[Work, ...]
    scorer: Scorer | None
    blocks: Blocks | None = None
    peaks: Mapping[Role, Peak] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        return self.request.settings

    @property
    def identities(self) -> dict[Role, Identity]:
        """What identifies the models, by role."""
        if self.judge is None:
            return {"editor": self.editor}
        return {"editor": self.editor, "judge": self.judge}

    @property
    def suite(self) -> Suite:
        return self.request.suite


def make_plan(
    request: Request, store: Store, launcher: Launcher, note: Callable[[str], None]
) -> RunPlan:
    """Plan a run; `note` is told what the user should know before anything starts.

    Raises `UsageError` if the run could only fail, or if the baseline is of other verdicts.
    """
    settings = request.settings
    _introduce(request, store, note)
    editor, works = _plan_edits(request, store, launcher, note)
    rubric = load_rubric(settings.judge.rubric, settings.rubrics)
    judge = None
    if request.models.judge is not None and settings.run.stage != "edit":
        judge = _identify_judge(request.models.judge, request, store, launcher, note, works)
    scorer = (
        None if judge is None else Scorer(settings.judge, judge, rubric, store, settings.redactor)
    )
    if request.baseline is not None and judge is not None:
        _refuse_baseline(request, editor, judge, works)
    models: dict[Role, Model] = {
        "editor": settle(request.models.editor, len(works), launcher.hardware)
    }
    if request.models.judge is not None:
        models["judge"] = request.models.judge
    if settings.gates.until == "decided":
        blocks = Blocks(settings.gates, works, request.baseline)
    else:
        blocks = None
    identities: dict[Role, Identity] = (
        {"editor": editor} if judge is None else {"editor": editor, "judge": judge}
    )
    if launcher.hardware.has_gpus:
        peaks = known_peaks(settings, identities, request.suite, store)
    else:
        peaks = {}
    return RunPlan(
        request,
        store,
        launcher.hardware,
        models,
        editor,
        judge,
        rubric,
        works,
        scorer,
        blocks,
        peaks,
    )


def _introduce(request: Request, store: Store, note: Callable[[str], None]) -> None:
    """Say how much there is to do, what its gates are about to show, and what is wrong with the
    store.
    """
    if request.shard is not None:
        whole = counted(len(request.shard.pairs), "pair")
        note(
            f"plan: {len(request.pairs)} of {whole}, shard {request.shard.shard}; imgedit merge "
            "decides the gates"
        )
    else:
        note(f"plan: {counted(len(request.pairs), 'pair')}")
        for line in expected_lines(request.settings, request.suite, request.pairs, store):
            note(line)
    for journal in (store.edits, store.verdicts):
        if journal.torn:
            note(f"warning: {journal.path}: dropped a torn last line")


def _plan_edits(
    request: Request, store: Store, launcher: Launcher, note: Callable[[str], None]
) -> tuple[Identity, tuple[Work, ...]]:
    """Identify the editor and list its work, with the edits that the store has."""
    settings, suite, stage = request.settings, request.suite, request.settings.run.stage
    model = request.models.editor
    candidates = _candidates(model, settings, store, launcher, note)
    editor = candidates[-1]
    works = tuple(
        make_works(
            suite, request.pairs, Seeds(settings.editor.seeds, settings.editor.seed), editor, store
        )
    )
    judge = None if stage == "edit" else request.models.judge
    selected = request.pairs if request.shard is None else request.shard.pairs
    allowed = allowed_pairs(settings.gates.max_errors, len(selected))
    for line in (*suite.remarks, *missing_lines(model, judge, works, allowed)):
        note(line)
    if len(candidates) > 1:
        contents: dict[str, Identity] = {}
        for candidate in candidates:
            hand_over(works, candidate)
            contents |= {work.content: candidate for work in works}
        editor = _newest(store.edits, contents) or editor
        hand_over(works, editor)
    for work in works:
        if work.error is None and (not settings.run.fresh or stage in ("score", "report")):
            work.edit = stored_edit(work, editor, store, settings.run.reuse)
    if stage not in ("score", "report"):
        for line in batch_lines(model, works):
            note(line)
        return editor, works
    if not is_remote(settings) and not any(work.edit for work in works):
        raise UsageError(
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


def _identify_judge(
    model: Model,
    request: Request,
    store: Store,
    launcher: Launcher,
    note: Callable[[str], None],
    works: Sequence[Work],
) -> Identity:
    settings = request.settings
    candidates = _candidates(model, settings, store, launcher, note)
    if len(candidates) == 1:
        return candidates[0]
    rubric, edited = (
        load_rubric(settings.judge.rubric, settings.rubrics),
        [work for work in works if work.edit],
    )
    contents = {
        key(verdict_recipe(judge, rubric, work)): judge for judge in candidates for work in edited
    }
    return _newest(store.verdicts, contents) or candidates[-1]


def _candidates(
    model: Model, settings: Settings, store: Store, launcher: Launcher, note: Callable[[str], None]
) -> list[Identity]:
    """Find what identifies a model where its workers compute; several if nobody can tell.

    A report connects to no host, so what hosts have is taken from the newest record that one of
    these made.
    """
    if model.checkpoint is not None:
        note(f"fingerprint: {model.role} {model.spec} (weights are read once, then remembered)")
    if launcher.hosts is not None or model.is_served or not is_remote(settings):
        return [launcher.identify(model, store.fingerprints)]
    on_cpu = identify(model, store.fingerprints, Where(device="cpu"))
    if settings.workers.gpus == "none":
        return [on_cpu]
    return [on_cpu, identify(model, store.fingerprints, Where(device="cuda"))]


def _newest(journal: Journal[Any], contents: Mapping[str, Identity]) -> Identity | None:
    """Of editors or judges by what they would make, return the one of the newest record, in the
    environment of that.
    """
    for record in reversed(journal.records.values()):
        if record.content in contents:
            return replace(contents[record.content], here=record.environment)
    return None


def _refuse_baseline(
    request: Request, editor: Identity, judge: Identity, works: Sequence[Work]
) -> None:
    """Raise `UsageError` if the run would be of other verdicts than its baseline."""
    baseline, settings = request.baseline, request.settings
    assert baseline is not None
    asked: dict[str, tuple[str, list[int]]] = {}
    for work in works:
        asked.setdefault(work.pair.id, (content_sha256(work.asked), []))[1].append(work.seed)
    told = {"fingerprint": judge.fingerprint, "spec": judge.model.spec}
    reason = unlike_judges(baseline, told, settings.editor.seeds)
    if settings.gates.max_drop:
        reason = reason or unlike_losses(baseline, editor.lossy)
    refuse(
        baseline,
        reason or unlike_items(baseline, [(name, *content) for name, content in asked.items()]),
    )
    is_elsewhere = settings.gates.environment == "any" or is_remote(settings)
    if settings.run.stage == "all" and missing_edits(works) and not is_elsewhere:
        _refuse_elsewhere(baseline, editor, judge)


def _refuse_elsewhere(baseline: Baseline, editor: Identity, judge: Identity) -> None:
    """Raise `UsageError` if what is to be computed would be so in another environment, where that
    was ruled out.
    """
    here = Computed(
        EditorInfo(
            spec="",
            dtype=editor.recipe.get("dtype"),
            batch_sizes=(editor.model.batch_size,) if editor.model.pads_batches else (),
        ),
        JudgeInfo(spec="", dtype=judge.recipe.get("dtype"), decoder=judge.recipe.get("decoder")),
        {
            "editor": ComputedIn(**editor.here.model_dump(), edits=1, verdicts=0),
            "judge": ComputedIn(**judge.here.model_dump(), edits=0, verdicts=1),
        },
    )
    if found := environment_differences(baseline, here):
        refuse(
            baseline,
            f'computed in another environment (gates.environment="same"): {"; ".join(found)}',
        )


def ask_servers(plan: RunPlan) -> None:
    """Raise `UsageError` for a server that there is work for and that cannot be reached or refuses
    its key.
    """
    settings, run, scorer = plan.settings, plan.settings.run, plan.scorer
    if run.stage == "report":
        return
    missing = missing_edits(plan.works)
    edited = [work for work in plan.works if work.error is None and work.edit is not None]
    is_judging = scorer is not None and bool(
        missing
        or run.fresh
        or settings.tries_judge
        or settings.judge.repeats
        or any(scorer.stored_verdict(work, run.reuse) is None for work in edited)
    )
    has_work: dict[Role, bool] = {"editor": bool(missing), "judge": is_judging}
    for role, model in plan.models.items():
        if has_work[role] and python_of(settings, role) is None:
            model.reach()
