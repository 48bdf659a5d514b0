"""Has a judge alone score edits of known quality, without a run."""

from dataclasses import dataclass
from typing import TextIO

from pytest_imgedit.core.environments import Environment
from pytest_imgedit.core.results import Controls
from pytest_imgedit.run.forecast import with_bills
from pytest_imgedit.run.judge_alone import Prepared, ask_judge
from pytest_imgedit.run.judge_trials import Trials, control_trials
from pytest_imgedit.run.run import Run
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.session import Session
from pytest_imgedit.stats.judge_qualification import describe_controls


@dataclass(frozen=True)
class Qualification:
    """How a judge scored the controls, by which scorer, and where, by digest."""

    scorer: Scorer
    controls: Controls
    environments: dict[str, Environment]


def qualify_judge(session: Session, file: TextIO) -> Qualification:
    """Have the judge of a session score the controls of its suite; `file` takes the progress.

    Verdicts are kept in the store, where runs with gates find them. Raises `UsageError` for wrong
    settings, and for a judge that cannot be reached or refuses its settings.
    """
    session.check_judge()
    run = ask_judge(session, file, lambda plan: Prepared(with_bills(plan), (), Run))
    plan = run.plan
    assert plan.scorer is not None
    assert run.trials is not None
    trials = run.trials
    controls = describe_controls(
        control_trials(trials.controls), {}, session.settings.gates.alpha, trials.untried
    )
    return Qualification(plan.scorer, controls, _environments(session, trials))


def _environments(session: Session, trials: Trials) -> dict[str, Environment]:
    """Return where the verdicts on the controls were computed, by digest."""
    environments: dict[str, Environment] = {}
    for judgement in trials.of_controls:
        if judgement.verdict:
            digest = judgement.verdict.environment
            environments[digest] = session.store.environments[digest]
    return environments
