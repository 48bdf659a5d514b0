"""Asks each served model of a run once before the first edit."""

from collections.abc import Callable, Iterator, Sequence
from typing import cast

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core import errors
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.text import shorten
from pytest_imgedit.kinds.base import Model
from pytest_imgedit.kinds.final_lines import Request
from pytest_imgedit.kinds.first_answer import FirstAnswer, ask_first, ask_together
from pytest_imgedit.kinds.server import ServedModel
from pytest_imgedit.kinds.server_answers import read_completion
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.run import pools, seed_trial
from pytest_imgedit.run.first_edits import FirstEdits, small_edit
from pytest_imgedit.run.first_questions import question_about
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.planned_works import takes_sources_of
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.work import FIRST, missing_edits


def ask_servers(plan: RunPlan, note: Callable[[str], None]) -> None:
    """Ask each server that has something to do one real question, or for small edits; `note` takes
    a warning for each that fails for now. Servers of other interpreters are not asked.

    Raises `UsageError` if a server cannot be reached, or answers what it would answer each time.
    """
    scorers = [scorer for scorer in plan.scorers if _has_questions(plan, scorer)]
    has_edits = plan.editor.model.is_served and missing_edits(plan.works)
    models = [plan.models["editor"]] if has_edits else []
    models += [scorer.model for scorer in scorers]
    for model in models:
        if pools.python_of(plan.settings, model.role) is None:
            model.reach()
    for line in _doubts(plan, scorers):
        note(f"warning: {line}; the run goes on")


def _has_questions(plan: RunPlan, scorer: Scorer) -> bool:
    bill = plan.bills.get(scorer.name)
    return scorer.model.is_served and bill is not None and bill.highest > 0


def _doubts(plan: RunPlan, scorers: list[Scorer]) -> Iterator[str]:
    """Ask what the plan has to be asked first; yield a line for each request that failed for now.

    Judges come first: a question takes less time than an edit.
    """
    for scorer in scorers:
        first = plan.bills[scorer.name].first
        if first is None:
            continue
        for model, answer in _ask_each(scorer.model, first.question(), _section(scorer)):
            if answer.doubt:
                yield _doubt(model, "question", answer.doubt)
            if isinstance(answer.reply, str) and scorer.is_judge:
                scorer.count(read_completion(answer.reply))
    doubt = _try_editor(plan, plan.first_edits)
    if doubt:
        yield _doubt(plan.editor.model, "edit", doubt)


def _ask_each(
    model: Model, request: Request, section: str
) -> Iterator[tuple[ServedModel, FirstAnswer]]:
    """Ask each server of a model first, and yield the model as that server has it with the answer.

    Raises `UsageError` as `ask_servers` does; a server after the first that is not there is a
    doubt, since the others can do without it.
    """
    served = cast(ServedModel, model)  # only these have first requests
    for number, single in enumerate(served.by_server()):
        try:
            yield single, ask_first(single, request, section)
        except errors.SetupError as error:
            if number == 0:
                raise errors.UsageError(str(error)) from None
            yield single, FirstAnswer(doubt=str(error))


def _try_editor(plan: RunPlan, edits: FirstEdits) -> str:
    """Ask a served editor for the small edits, and store what they show of its seeds; return why
    the first failed, if it did for now.
    """
    if edits.first is None:
        return ""
    ((model, answer),) = _ask_each(plan.editor.model, edits.first, "editor")
    if not isinstance(answer.reply, bytes) or not edits.others:
        return answer.doubt
    others = ask_together(model, edits.others)
    images = [reply for reply in (answer.reply, *others) if isinstance(reply, bytes)]
    if len(images) == edits.count:
        seed_trial.store_trial(plan.editor, plan.store, images)
    return ""


def doubt_of_model(
    model: Model, settings: Settings, pairs: Sequence[EditPair], section: str
) -> str:
    """Ask a model first as a run over all pairs would; return why that failed, if it did for now,
    and an empty text also for a model that is not asked first.

    Raises `UsageError` as `ask_servers` does.
    """
    request = _request_about(model, settings, pairs)
    if request is None:
        return ""
    answers = _ask_each(model, request, section)
    return "; ".join(answer.doubt for _, answer in answers if answer.doubt)


def _request_about(model: Model, settings: Settings, pairs: Sequence[EditPair]) -> Request | None:
    """Return the first request to a model about pairs; `None` if it gets none."""
    if not (model.first_requests and pairs):
        return None
    if model.role == "editor":
        further = [len(pair.further) for pair in pairs if takes_sources_of(model, pair)]
        return small_edit(max(further, default=0))
    first = question_about(pairs, None if model.measures else load_protocol(settings))
    return first.question() if first else None


def _section(scorer: Scorer) -> str:
    """Return the section of a config that has the parameters of a scorer."""
    return "judge" if scorer.name == FIRST else f"{scorer.model.role}s.{scorer.name}"


def _doubt(model: Model, subject: str, reason: str) -> str:
    return f"{model.role} {model.spec}: the first {subject} failed: {shorten(reason, 500)}"
