"""Has a judge alone decide which of two finished runs has the better edits."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, TextIO

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import errors
from pytest_imgedit.core.measures import count_groups
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Item, ItemError, Results
from pytest_imgedit.core.text import counted
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.run.costs import Billing
from pytest_imgedit.run.duels import Duelling, Duels, Opponent, make_duelling, plan_duels
from pytest_imgedit.run.finish import duel_facts
from pytest_imgedit.run.forecast import duel_line, first_requests
from pytest_imgedit.run.judge_alone import BoutRun, Prepared, ask_judge
from pytest_imgedit.run.judge_trials import Trials, plan_trials
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.planned_works import make_works
from pytest_imgedit.run.run import RunContext
from pytest_imgedit.run.session import Session
from pytest_imgedit.run.work import FIRST, Work
from pytest_imgedit.stats.duels import DuelFacts
from pytest_imgedit.store.baseline_edits import shown
from pytest_imgedit.store.blobs import Blobs
from pytest_imgedit.store.store import Store
from pytest_imgedit.suites.base import Suite


@dataclass(frozen=True)
class BlobImage:
    """An image that a finished run names by the `path` of its blob, in the first of `stores` that
    has it.
    """

    path: str
    stores: Sequence[Blobs] = field(compare=False, repr=False)

    def read(self) -> bytes:
        """Return the bytes; raise `ImageError` if no store has them whole."""
        data = self.found
        if data is None:
            raise errors.ImageError(f"blobs/{self.path}: gone or damaged")
        return data

    @property
    def found(self) -> bytes | None:
        """The bytes; `None` if no store has them whole."""
        name = PurePosixPath(self.path)
        every = (store.get(name.stem, name.suffix) for store in self.stores)
        return next((data for data in every if data is not None), None)


@dataclass(frozen=True)
class FinishedEdits:
    """The edits of a finished run, whose images are in one of `stores`; `option` asks for them.

    Pairs without a source, and those that were not needed, are left out: they have no edit.
    """

    results: Results
    stores: Sequence[Blobs]
    option: str = "--duel"

    @property
    def items(self) -> list[Item]:
        """The items of the pairs."""
        items = self.results.items
        return [item for item in items if item.source is not None and item.status != "not_needed"]

    def suite(self, _: SuiteSettings) -> Suite:
        """Return the pairs of the run as a suite, as far as results tell of them."""
        pairs = tuple(map(self._pair, self.items))
        suite = self.results.suite
        return Suite(name=suite.name, pairs=pairs, sha256=suite.sha256, counts=count_groups(pairs))

    def _pair(self, item: Item) -> EditPair:
        assert item.source is not None
        return EditPair(
            id=item.id,
            category=item.category,
            instruction=item.instruction,
            source=self._image(item.source),
            description=item.description,
            reference=None if item.reference is None else self._image(item.reference),
            reference_text=item.reference_text,
            tags=item.tags,
            difficulty=item.difficulty,
            own_category=self.results.suite.labels.get(item.category, ""),
            seed=item.seeds[0].seed,
            further=tuple(map(self._image, item.further)),
            edited_source=item.edited_source,
            rewritten=item.rewritten,
        )

    def _image(self, path: str) -> BlobImage:
        return BlobImage(path, self.stores)

    def require_images(self) -> None:
        """Raise `UsageError` if an image of a pair is in no store; each is read."""
        items = self.items
        lacking = [item.id for item in items if not all(map(self._has, _images_of(item)))]
        if lacking:
            places = ", ".join(shown(store.folder.parent) for store in self.stores)
            raise errors.UsageError(
                f"{self.option}: run {self.results.run.id} lacks images: those of {len(lacking)} "
                f"of {counted(len(items), 'pair')} are not in {places} (such as {lacking[0]}); "
                "expected its results.json in its store"
            )

    def _has(self, path: str) -> bool:
        name = PurePosixPath(path)
        return any(store.has(name.stem, name.suffix) for store in self.stores)

    def works_against(
        self, before: Opponent, pairs: Sequence[EditPair], editor: Identity, store: Store
    ) -> list[Work]:
        """Return those `works` whose pair and seed the other run has too."""
        seeds_before = {
            (item.id, seed.seed) for item in before.baseline.items for seed in item.seeds
        }
        works = self.works(pairs, editor, store)
        return [work for work in works if (work.pair.id, work.seed) in seeds_before]

    def works(self, pairs: Sequence[EditPair], editor: Identity, store: Store) -> list[Work]:
        """Return a work with its edit, or why it has none, for each pair and each of its seeds;
        images that the store lacks are put there.
        """
        ends = {(item.id, seed.seed): seed for item in self.items for seed in item.seeds}
        repetitions = self.results.run.options.editor.seeds
        works = []
        for work in make_works(pairs, pairs, editor, store, repetitions=repetitions):
            key = (work.pair.id, work.seed)
            if key not in ends:
                continue
            works.append(work)
            work.edit = ends[key].edit
            if work.edit is None:
                why = ends[key].error or ItemError("edit", "interrupted", "the run ended before it")
                work.edit_error = work.edit_error or why
            else:
                store.blobs.put(self._image(work.edit.blob_path).read(), durable=False)
        return works


def _images_of(item: Item) -> list[str]:
    """Return the paths of the blobs of all images of a pair, and of its edits."""
    images = [item.source, item.reference, *item.further]
    images += [edit.blob_path for edit in item.edits]
    return [path for path in images if path is not None]


@dataclass(frozen=True)
class DecidedDuels:
    """The duels of two finished runs, and what is known of the judge: fields of `JudgeInfo`.

    `gave_scores` says that a judge of the user's own answered with scores in place of choices.
    """

    facts: DuelFacts
    judge: dict[str, Any]
    gave_scores: bool


def control_edits(plan: RunPlan, duelling: Duelling, makes_edits: bool = True) -> Trials:
    """Return the trials of the judge, whose edits are put against each other; those that the store
    lacks are made, unless `makes_edits` is false.
    """
    return plan_trials(
        duelling.alone,
        plan.settings,
        plan.request.suite,
        pairs=plan.request.pairs,
        run_works=duelling.works,
        makes_edits=makes_edits,
    )


def have_decided(
    session: Session, now: FinishedEdits, before: Opponent, file: TextIO
) -> DecidedDuels:
    """Have the judge of a session, whose suite is that of `now`, decide which edits are better;
    `file` takes the plan and the progress.

    Votes are kept in the store, where runs with duels find them. Raises `UsageError` for wrong
    settings, for a judge that cannot be reached or fails alike each time, and for runs that have no
    seed in common.
    """
    session.check_duels()
    run = ask_judge(session, file, lambda plan: _prepare(session, plan, now, before))
    duels = run.bouts
    assert duels is not None
    verdicts = [judgement.verdict for judgement in duels.judgements]
    return DecidedDuels(
        facts=duel_facts(duels, run.plan.request.suite.pairs[0]),
        judge=duels.scorer.facts,
        gave_scores=not duels.by_scores
        and any(verdict is not None and verdict.measured for verdict in verdicts),
    )


def _prepare(
    session: Session, plan: RunPlan, now: FinishedEdits, before: Opponent
) -> Prepared[BoutRun[Duels]]:
    """Return a run without works, which only decides duels, with its bill."""
    assert plan.scorer is not None
    works = now.works_against(before, plan.request.pairs, plan.editor, session.store)
    if not works:
        raise errors.UsageError(
            f"--duel: {before.baseline.name} and {now.results.run.id} have no seed in common, "
            "expected edits of the same pairs and seeds"
        )
    duelling = make_duelling(session.settings, works, before, plan.scorer)
    if has_measured(now.results, session.settings.judge.spec):
        duelling = replace(duelling, pairwise=None)
    plan = _with_bill(replace(plan, duelling=duelling))
    return Prepared(plan, _plan_lines(plan), _duel_run)


def _duel_run(plan: RunPlan, context: RunContext) -> BoutRun[Duels]:
    """Return the run of a plan, for which the edits of the judge's controls are made."""
    assert plan.duelling is not None
    duels = plan_duels(plan.duelling, control_edits(plan, plan.duelling))
    duels.keep_edits()
    return BoutRun(plan, context, duels)


def has_measured(results: Results, judge: str) -> bool:
    """Tell whether a judge of this spec is known to measure, by the scores that it gave in a run
    whose judge it was.
    """
    if results.judge.spec != judge:
        return False
    verdicts = [seed.verdict for item in results.items for seed in item.seeds]
    return any(verdict is not None and verdict.measured for verdict in verdicts)


def _with_bill(plan: RunPlan) -> RunPlan:
    """Return a plan with what its judge will be asked, if that has a price or is behind a
    server.
    """
    duelling = plan.duelling
    assert duelling is not None
    model = duelling.alone.model
    if not model.is_served and model.requirements.prices is None:
        return plan
    duels = plan_duels(duelling, control_edits(plan, duelling, makes_edits=False))
    billing = Billing(plan.settings.run)
    bill = billing.bill(duelling.alone, (), Trials(), first_requests(plan, model), duels)
    return replace(plan, bills={FIRST: bill})


def _plan_lines(plan: RunPlan) -> list[str]:
    """Return a line on the duels, and for a judge with a bill one on what it will be asked."""
    assert plan.duelling is not None
    trials = partial(control_edits, plan, plan.duelling, makes_edits=False)
    lines = [duel_line(plan.duelling, plan.settings.run, trials)]
    scorer = plan.duelling.alone
    if FIRST in plan.bills:
        prices = scorer.model.requirements.prices or (0.0, 0.0)
        lines.append(plan.bills[FIRST].line(scorer.title, prices))
    return lines
