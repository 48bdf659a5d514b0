"""Has a judge alone compare the edits that people chose between, without a run."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TextIO

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import errors, images, results
from pytest_imgedit.core.choices import Choice, Choices
from pytest_imgedit.core.judge_card import JudgeCard, JudgedBy
from pytest_imgedit.core.measures import SCORE, count_groups
from pytest_imgedit.core.pairs import EditPair, ImageSource, category_slug, slug
from pytest_imgedit.core.redaction import mask_shapes
from pytest_imgedit.core.text import counted
from pytest_imgedit.run.costs import Billing
from pytest_imgedit.run.duels import (
    AskedDuels,
    Bout,
    in_both_orders,
    judgements_of,
    pairwise_scorer,
)
from pytest_imgedit.run.forecast import first_requests
from pytest_imgedit.run.judge_alone import BoutRun, Prepared, ask_judge
from pytest_imgedit.run.judge_trials import Trials
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.planned_works import make_works
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.session import Session
from pytest_imgedit.run.work import FIRST, Judgement, Work
from pytest_imgedit.stats.choices import AskedBy, JudgedChoice, describe_judge, describe_people
from pytest_imgedit.store.store import Store
from pytest_imgedit.suites.base import Suite


@dataclass(frozen=True)
class PeopleSuite:
    """The sources and instructions of choices as a suite."""

    choices: Choices

    def __call__(self, _: SuiteSettings) -> Suite:
        """Return the suite; raise `UsageError` for a choice without a source."""
        pairs = tuple(map(_pair, self.choices.choices))
        return Suite(
            name=self.choices.name,
            pairs=pairs,
            sha256=self.choices.sha256,
            counts=count_groups(pairs),
            remarks=self.choices.remarks,
        )


def _pair(choice: Choice) -> EditPair:
    if choice.source is None:
        raise errors.UsageError(
            f"{choice.row}: no source and instruction of id {choice.id!r:.80}, expected both: a "
            "judge is shown them"
        )
    return EditPair(
        id=slug(choice.id),
        category=category_slug(choice.category),
        instruction=choice.instruction,
        source=choice.source,
        own_id=choice.id,
        own_category=choice.category,
        further=choice.further,
        row=choice.row,
    )


@dataclass(frozen=True)
class Compared:
    """A choice of people, and the works whose edits they chose between."""

    choice: Choice
    a: Work
    b: Work

    @property
    def works(self) -> tuple[Work, Work]:
        return self.a, self.b

    @property
    def other(self) -> str | None:
        """The SHA-256 of edit b; `None` if it cannot be read."""
        return None if self.b.edit is None else self.b.edit.blob

    @cached_property
    def scored(self) -> Bout:
        """The bout that the scores of both edits decide."""
        return Bout(self.a, self.other, scored=(self.b.judgement, self.a.judgement))

    @cached_property
    def asked(self) -> Bout:
        """The bout that the judge is asked about in both orders; equal edits need no vote."""
        bout = Bout(self.a, self.other)
        if self.other is not None and bout.now not in (None, self.other):
            bout.votes = in_both_orders(self.a, self.other)
        return bout


def _compared(plan: RunPlan, choices: Sequence[Choice]) -> list[Compared]:
    """Put the images of choices into the store, as two repetitions of one pair; one that cannot be
    read is an error of its work.
    """
    pairs = plan.request.pairs
    compared = []
    works = make_works(pairs, pairs, plan.editor, plan.store)
    for work, choice in zip(works, choices, strict=True):
        a = _with_edit(work, choice.a, plan.store)
        b = _with_edit(replace(work, seed=work.seed + 1), choice.b, plan.store)
        compared.append(Compared(choice, a, b))
    return compared


def _with_edit(work: Work, image: ImageSource, store: Store) -> Work:
    """Return a work with an image as its edit, which the store keeps as PNG."""
    work = replace(work)
    if work.error is not None:
        return work
    try:
        data = image.read()
        size = images.plain_png_size(data)
        if size is None:
            picture = images.decode(data)
            size = picture.size
            data = images.encode_png(picture)
    except errors.ImageError as error:
        work.fail("bad_image", str(error))
        return work
    work.edit = results.Edit(
        blob=store.blobs.put(data, durable=False),
        seconds=0.0,
        worker="",
        width=size[0],
        height=size[1],
    )
    return work


@dataclass(frozen=True)
class ChoiceDuels:
    """The questions of a scorer about both edits of choices."""

    scorer: Scorer
    bouts: Sequence[Bout]

    @property
    def judgements(self) -> list[Judgement]:
        return judgements_of(self.bouts)


@dataclass(frozen=True)
class MeasuredJudge:
    """A judge measured on people's choices, with its scorer, and the errors of edits without a
    score, each with the place of its choice.
    """

    scorer: Scorer
    card: JudgeCard
    failed: Sequence[tuple[str, results.ItemError]]


def measure_judge(session: Session, choices: Choices, file: TextIO) -> MeasuredJudge:
    """Have the judge of a session, whose suite is that of the choices, score both edits of each,
    and decide between them in both orders if it compares; `file` takes the plan and the progress.

    Verdicts are kept in the store. Raises `UsageError` for wrong settings, and for a judge that
    cannot be reached or fails alike each time.
    """
    session.check_judge()
    compared: list[Compared] = []

    def prepare(plan: RunPlan) -> Prepared[BoutRun[ChoiceDuels]]:
        compared.extend(_compared(plan, choices.choices))
        works = tuple(work for pair in compared for work in pair.works)
        plan = replace(plan, works=works)
        scorer = plan.scorer
        assert scorer is not None
        votes = _votes(session, scorer, compared)
        plan = _with_bill(plan, scorer, votes)
        lines = _plan_lines(plan, choices, scorer)
        return Prepared(plan, lines, lambda plan, context: BoutRun(plan, context, votes))

    run = ask_judge(session, file, prepare)
    scorer = run.scorer
    alpha = session.settings.gates.alpha
    card = _card(scorer, choices, compared, votes=run.asked_duels, alpha=alpha)
    failed = [
        (pair.choice.row, work.error)
        for pair in compared
        for work in pair.works
        if work.error is not None
    ]
    return MeasuredJudge(scorer, card, failed)


def _votes(session: Session, alone: Scorer, compared: Iterable[Compared]) -> ChoiceDuels | None:
    """Return the duels that a judge is asked about; `None` if it does not compare edits."""
    scorer = pairwise_scorer(session.settings, alone)
    if scorer is None:
        return None
    scorer.protocol.check(session.suite.pairs)
    return ChoiceDuels(scorer, [pair.asked for pair in compared])


def _with_bill(plan: RunPlan, scorer: Scorer, votes: ChoiceDuels | None) -> RunPlan:
    tries = first_requests(plan, scorer.model)
    bill = Billing(plan.settings.run).bill(scorer, plan.works, Trials(), tries, votes)
    return replace(plan, bills={FIRST: bill})


def _plan_lines(plan: RunPlan, choices: Choices, scorer: Scorer) -> Iterable[str]:
    """Yield what is read, and what the judge will be asked."""
    yield f"plan: {counted(len(choices.choices), 'choice')} of {choices.name}"
    for remark in choices.remarks:
        yield f"plan: {remark}"
    prices = scorer.model.requirements.prices or (0.0, 0.0)
    yield plan.bills[FIRST].line(scorer.title, prices)


def _card(
    scorer: Scorer,
    choices: Choices,
    compared: Sequence[Compared],
    *,
    votes: AskedDuels | None,
    alpha: float,
) -> JudgeCard:
    by_scores = [_judged(pair, pair.scored) for pair in compared]
    asked = AskedBy(way="scores")
    if not _measures(scorer, compared):
        asked = _asked(scorer, asked)
    ways: list[JudgedBy] = [describe_judge(by_scores, asked, alpha)]
    if votes is not None:
        by_duels = [_judged(pair, pair.asked) for pair in compared]
        asked = _asked(votes.scorer, AskedBy(way="duels"))
        ways.append(describe_judge(by_duels, asked, alpha))
    people = describe_people(by_scores)
    return JudgeCard(
        judge=scorer.identity.digest,
        spec=mask_shapes(scorer.model.spec),
        people=choices.name,
        sha256=_digest(choices, compared),
        choices=len(compared),
        sources=len({choice.cluster for choice in by_scores}),
        raters=people.raters,
        ties=people.ties,
        ceiling=people.ceiling,
        ways=tuple(ways),
    )


def _digest(choices: Choices, compared: Iterable[Compared]) -> str:
    """Return a SHA-256 of choices and of the pictures of their edits."""
    digest = hashlib.sha256(choices.sha256.encode())
    for pair in compared:
        for work in pair.works:
            digest.update((work.edit.blob if work.edit else "none").encode())
    return digest.hexdigest()


def _measures(scorer: Scorer, compared: Iterable[Compared]) -> bool:
    """Tell whether the judge gives scores of its own, which no protocol asks for."""
    verdicts = [work.verdict for pair in compared for work in pair.works]
    return scorer.model.measures or any(
        verdict is not None and verdict.measured for verdict in verdicts
    )


def _asked(scorer: Scorer, asked: AskedBy) -> AskedBy:
    protocol = scorer.protocol
    return replace(
        asked,
        protocol=protocol.name,
        variant=protocol.variant,
        protocol_sha256=protocol.sha256,
    )


def _judged(pair: Compared, bout: Bout) -> JudgedChoice:
    """Return a choice with what a bout says of it; pairs of one source are one cluster."""
    source = pair.a.source
    return JudgedChoice(
        id=pair.choice.id,
        cluster=pair.choice.id if source is None else source.sha256,
        category=pair.a.pair.category,
        votes=pair.choice.votes,
        share=results.DuelPair(seeds=(bout.result,)).value(SCORE),
        first=bout.share_of_first,
    )
