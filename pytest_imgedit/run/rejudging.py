"""Has the judge of one finished run score a sample of the edits of another, without a run."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from pydantic import ValidationError

from pytest_imgedit.config.settings import (
    EditorSettings,
    GatesSettings,
    JudgeSettings,
    Settings,
)
from pytest_imgedit.core import errors, redaction
from pytest_imgedit.core.pairs import number_of
from pytest_imgedit.core.repetitions import mean_score
from pytest_imgedit.core.results import JudgeInfo, Results
from pytest_imgedit.core.text import printable
from pytest_imgedit.run.costs import Billing
from pytest_imgedit.run.forecast import first_requests
from pytest_imgedit.run.judge_alone import Prepared, ask_judge, plan_without_edits
from pytest_imgedit.run.judge_trials import Trials
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.run import Run
from pytest_imgedit.run.run_duel import FinishedEdits
from pytest_imgedit.run.session import Session
from pytest_imgedit.run.work import FIRST, by_pair
from pytest_imgedit.store.baselines import unlike_judge

#: Pairs at most whose edits are judged again.
SAMPLE = 50


def rejudge(session: Session, a: Results, b: Results, file: TextIO) -> dict[str, float]:
    """Have the judge of run B score edits of run A: those of at most `SAMPLE` pairs that have a
    score in both, always the same. Return the scores, from 0 to 10, by the ids of the pairs; one
    that the judge does not answer has none. `file` takes the bill, before anything is asked, and
    the progress.

    Verdicts are kept in the store of the session, which has the images of A; nobody holds it yet.
    The judge is the session's if it is that of B, and else made of what B tells of it. Raises
    `UsageError` if neither is B's judge, for a judge that cannot be reached or fails alike each
    time, for images that are gone, and if no pair has a score in both runs.
    """
    edits = FinishedEdits(_sample(a, b), [session.store.blobs], option="--ask")
    edits.require_images()
    own = _session_of_judge(session, edits, b)
    with closing(own):
        run = ask_judge(own, file, lambda plan: _prepare(plan, edits))
    scores: dict[str, float] = {}
    for pair, works in by_pair(run.plan.works).items():
        verdicts = [work.verdict for work in works]
        score = mean_score([None if verdict is None else verdict.score for verdict in verdicts])
        if score is not None:
            scores[pair] = score
    return scores


def _sample(a: Results, b: Results) -> Results:
    """Return A with the pairs of the sample alone: the first by the hashes of their ids."""
    contents = {item.id: item.content for item in b.items if item.score is not None}
    shared = [
        item for item in a.items if item.score is not None and contents.get(item.id) == item.content
    ]
    if not shared:
        raise errors.UsageError(
            f"--ask: runs {a.run.id} and {b.run.id} share no pair with a score, expected edits of "
            "the same pairs"
        )
    shared.sort(key=lambda item: number_of(item.id))
    return a.model_copy(update={"items": tuple(shared[:SAMPLE])})


# The judge


def _session_of_judge(session: Session, edits: FinishedEdits, b: Results) -> Session:
    """Return a session, to be closed, over the pairs of edits with the judge of run B; raise
    `UsageError` without one.
    """
    reasons: list[str] = []
    for judge in _candidates(session.settings.judge, b):
        own = Session(_settings(session, judge), Path(), edits.suite)
        try:
            reason = _unlike(own, b.judge)
        except errors.UsageError as error:
            reason = str(error)
        if reason is None:
            return own
        own.close()
        reasons.append(reason)
    raise errors.UsageError(
        f"--ask: the judge of run {b.run.id} ({printable(b.judge.spec)}) cannot be asked, name it "
        f"by --judge=SPEC or --config=FILE: {reasons[0]}"
    )


def _candidates(judge: JudgeSettings, b: Results) -> Iterator[JudgeSettings]:
    """Yield what may be the settings of B's judge, the likeliest first: those of the session, which
    say more than results do, where they are of the same spec; or what B tells of its judge.
    """
    told = _told_by(b, judge)
    is_of_same_spec = judge.spec == b.judge.spec
    if is_of_same_spec:
        yield judge
    if told is not None:
        yield told
    if not is_of_same_spec:
        yield judge


def _told_by(b: Results, judge: JudgeSettings) -> JudgeSettings | None:
    """Return what B tells of its judge as settings, with the prompts of `judge`; `None` if it does
    not tell its secrets, or no settings.
    """
    if redaction.MASK in b.judge.model_dump_json(include={"spec", "params"}):
        return None
    told = {
        **judge.model_dump(include={"prompts", "any_version"}),
        **b.judge.params,
        "spec": b.judge.spec,
        "protocol": b.judge.protocol or "aspects",
        "variant": b.judge.variant or "strict",
        "reasks": b.run.options.judge.get("reasks", judge.reasks),
    }
    try:
        return JudgeSettings.model_validate(told)
    except ValidationError:
        return None


def _settings(session: Session, judge: JudgeSettings) -> Settings:
    """Return the settings of a session that only has a judge score edits."""
    settings = session.settings
    run = settings.run.model_copy(
        update={"stage": "all", "shard": None, "fresh": False, "out": session.store.folder}
    )
    return settings.model_copy(
        update={
            "editor": EditorSettings(spec="identity"),
            "judge": judge.model_copy(update={"controls": False, "repeats": 0}),
            "judges": {},
            "metrics": {},
            "gates": GatesSettings(),
            "run": run,
        }
    )


def _unlike(session: Session, judge: JudgeInfo) -> str | None:
    """Say why the judge of a session is not that of a run; `None` if it is. Raises `UsageError` for
    one that cannot be asked.
    """
    settings = session.settings
    if not settings.judge.scores:
        return f"judge {settings.judge.spec!r} does not score edits"
    session.check_judge()
    scorer = plan_without_edits(session).scorer
    assert scorer is not None
    return unlike_judge(judge, scorer.facts)


# The plan


def _prepare(plan: RunPlan, edits: FinishedEdits) -> Prepared[Run]:
    """Return a run whose edits are made, and are to be judged, with the bill of that."""
    works = edits.works(plan.request.pairs, plan.editor, plan.store)
    plan = replace(plan, works=tuple(works))
    scorer = plan.scorer
    assert scorer is not None
    tries = first_requests(plan, scorer.model)
    bill = Billing(plan.settings.run).bill(scorer, plan.works, Trials(), tries)
    line = bill.line(scorer.title, scorer.model.requirements.prices or (0.0, 0.0))
    return Prepared(replace(plan, bills={FIRST: bill}), [line], Run)
