"""What a run is to do, resolved once: models, hardware, identities, and the work that is not
stored, at once or in blocks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core import environments
from pytest_imgedit.kinds.base import Model, Role, Where
from pytest_imgedit.kinds.identity import Identity, identify
from pytest_imgedit.run import edit, placement, pools
from pytest_imgedit.run.blocks import Blocks
from pytest_imgedit.run.costs import Bill
from pytest_imgedit.run.duels import Duelling, make_duelling
from pytest_imgedit.run.first_edits import FirstEdits
from pytest_imgedit.run.planned_works import hand_over, make_works
from pytest_imgedit.run.questions import reply_recipe
from pytest_imgedit.run.request import Request
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.work import (
    FIRST,
    Judgement,
    Work,
    missing_edits,
)
from pytest_imgedit.store.journal import Journal
from pytest_imgedit.store.store import Store
from pytest_imgedit.workers.hardware import Hardware


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """All that a run needs; `models` are settled for its hardware, `works` hold stored edits.

    The first of the `scorers` is the judge that decides the items; a run without a `judge` has
    additional ones alone. A run whose edits are put against others has `duelling`. A run that ends
    as soon as its gates are decided has `blocks`. `peaks` is the GPU memory that the models took in
    earlier runs. `bills` say by name what scorers will be asked: those behind servers, and those
    with prices. A served editor makes `first_edits` before those of the works.
    """

    request: Request
    store: Store
    hardware: Hardware
    models: Mapping[Role, Model]
    editor: Identity
    judge: Identity | None
    works: tuple[Work, ...]
    scorers: tuple[Scorer, ...]
    duelling: Duelling | None = None
    blocks: Blocks | None = None
    peaks: Mapping[Role, placement.Peak] = field(default_factory=dict)
    bills: Mapping[str, Bill] = field(default_factory=dict)
    first_edits: FirstEdits = field(default_factory=FirstEdits)

    @property
    def settings(self) -> Settings:
        return self.request.settings

    @property
    def scorer(self) -> Scorer | None:
        """The judge that decides the items; `None` for a run without one."""
        if self.scorers and self.scorers[0].name == FIRST:
            return self.scorers[0]
        return None

    @property
    def additional_scorers(self) -> list[Scorer]:
        """The additional judges, and the metrics."""
        return [scorer for scorer in self.scorers if scorer.name != FIRST]

    @property
    def identities(self) -> dict[Role, Identity]:
        """What identifies the models, by role."""
        identities: dict[Role, Identity] = {"editor": self.editor}
        if self.judge is not None:
            identities["judge"] = self.judge
        return identities


def make_plan(
    request: Request,
    store: Store,
    launcher: pools.Launcher,
    note: Callable[[str], None],
    start_ahead: Callable[[int], None] = lambda jobs: None,
) -> RunPlan:
    """Plan a run; `note` takes a line before weights are read, which may take minutes. Where that
    is all that the judge waits for, `start_ahead` takes the number of edits before its are read.

    `plan_checks` tells whether the plan can succeed, `forecast` what it will cost.
    """
    settings = request.settings
    planner = Planner(settings, store, launcher, note)
    editor, works = planner.plan_edits(request)
    judge = blocks = duelling = None
    scorers: list[Scorer] = []
    if "judge" in request.models and settings.run.stage != "edit":
        edits = sum(work.edit is not None for work in works)
        if edits and settings.run.stage != "report" and not missing_edits(works):
            start_ahead(edits)
        judge = planner.identify_judge(request.models["judge"], settings, works)
        scorers.append(Scorer(settings, judge, store))
        if request.opponent is not None:
            duelling = make_duelling(settings, works, request.opponent, scorers[0])
    for name, model in request.additional.items():
        own_settings = settings.additional_scorers[name].settings
        identity = planner.identify_judge(model, own_settings, works)
        scorers.append(Scorer(own_settings, identity, store, name))
    if settings.gates.until == "decided":
        blocks = Blocks(settings.gates, works, request.baseline)
    settled = placement.settle(request.models["editor"], launcher.hardware)
    return RunPlan(
        request=request,
        store=store,
        hardware=launcher.hardware,
        models={**request.models, "editor": settled},
        editor=editor,
        judge=judge,
        works=works,
        scorers=tuple(scorers),
        duelling=duelling,
        blocks=blocks,
    )


@dataclass(frozen=True)
class Planner:
    """Identifies the models of a run, and lists its work with what the store has of it."""

    settings: Settings
    store: Store
    launcher: pools.Launcher
    note: Callable[[str], None]

    def plan_edits(self, request: Request) -> tuple[Identity, tuple[Work, ...]]:
        """Identify the editor and list its work, with the stored edits unless they are to be made
        afresh. In a stage that makes no edits, works without one end in an error.
        """
        settings = self.settings
        stage = settings.run.stage
        candidates = self._candidates(request.models["editor"], settings)
        editor = candidates[-1]
        works = make_works(
            request.pairs,
            request.suite.pairs,
            editor,
            self.store,
            repetitions=settings.editor.seeds,
            base_seed=settings.editor.seed,
        )
        if len(candidates) > 1:
            editor = self._editor_of_stored_edits(candidates, works) or editor
            hand_over(works, editor)
        makes_edits = stage in ("all", "edit")
        if not (makes_edits and settings.run.fresh):
            for work in works:
                if work.error is None:
                    work.edit = edit.stored_edit(work, editor, self.store, settings.run.reuse)
        if not makes_edits:
            for work in missing_edits(works):
                work.fail(
                    "not_edited",
                    f"the store has no edit of this pair, and stage {stage!r} makes none",
                )
        return editor, tuple(works)

    def identify_judge(self, model: Model, settings: Settings, works: Sequence[Work]) -> Identity:
        """Identify a judge or a metric, which has `settings` of its own.

        Of several candidates it is the one with the newest stored reply about the `works`.
        """
        candidates = self._candidates(model, settings)
        if len(candidates) == 1:
            return candidates[0]
        edited = [work for work in works if work.edit]
        identity_by_content: dict[str, Identity] = {}
        for judge in candidates:
            scorer = Scorer(settings, judge, self.store)
            for work in edited:
                for ask in scorer.asks(Judgement(work)):
                    identity_by_content[environments.key(reply_recipe(judge, ask))] = judge
        return _of_newest_record(self.store.verdicts, identity_by_content) or candidates[-1]

    def _candidates(self, model: Model, settings: Settings) -> list[Identity]:
        """Return the identities that a model may have in stored results; the last one is that of a
        model without any.

        There are two where no worker of the model will be started and its results may come from a
        machine with GPUs: in a report, which connects to no host, and in a run without a GPU.
        """
        if model.checkpoint is not None:
            self.note(
                f"fingerprint: {model.role} {model.spec} (weights are read once, then remembered)"
            )
        cache = self.store.fingerprints
        if self.launcher.hosts is not None or model.is_served:
            return [self.launcher.identify(model, cache)]
        if pools.is_remote(settings):
            on_cpu = identify(model, cache, Where(device="cpu"))
            if settings.workers.gpus == "none":
                return [on_cpu]
            return [on_cpu, identify(model, cache, Where(device="cuda"))]
        here = self.launcher.identify(model, cache)
        stages = ("score", "report") if model.role == "editor" else ("report",)
        if settings.run.stage not in stages or self.launcher.hardware.has_gpus:
            return [here]
        python = pools.python_of(settings, model.role)
        return [identify(model, cache, Where(device="cuda", python=python)), here]

    def _editor_of_stored_edits(
        self, candidates: Sequence[Identity], works: Sequence[Work]
    ) -> Identity | None:
        """Return the candidate that made the newest stored edit of these works, `None` if none has
        made one. The works are handed over to the last candidate.
        """
        identity_by_content: dict[str, Identity] = {}
        for candidate in candidates:
            hand_over(works, candidate)
            for work in works:
                identity_by_content[work.content] = candidate
        return _of_newest_record(self.store.edits, identity_by_content)


def _of_newest_record(
    journal: Journal[Any], identity_by_content: Mapping[str, Identity]
) -> Identity | None:
    """Return the identity of the newest record with one of the contents, in the environment of the
    record; `None` if no record has one.
    """
    for record in reversed(journal.records.values()):
        if record.content in identity_by_content:
            return replace(identity_by_content[record.content], here=record.environment)
    return None
