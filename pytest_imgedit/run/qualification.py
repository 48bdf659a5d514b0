"""Has a judge alone score edits of known quality, without a run."""

from contextlib import closing
from dataclasses import dataclass
from typing import TextIO

from pytest_imgedit.core.environments import Environment
from pytest_imgedit.core.results import Controls
from pytest_imgedit.report.progress import RunProgress
from pytest_imgedit.run.first_requests import ask_servers
from pytest_imgedit.run.forecast import with_bills
from pytest_imgedit.run.interrupts import no_hooks
from pytest_imgedit.run.judge_trials import Trials, control_trials
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.request import Request
from pytest_imgedit.run.run import Run, RunContext
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.session import Session
from pytest_imgedit.stats.gate_values import Selection
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
    log = session.opened_store.new_run() / "run.log"
    with closing(RunProgress(log, file, quiet=False)) as progress:
        session.workers.reporter.watcher = progress
        plan = with_bills(plan_without_edits(session))
        ask_servers(plan, progress.note)
        session.workers.settle(plan.models, plan.identities, plan.peaks)
        context = RunContext(
            session.workers.launch, session.workers.launch_additional, progress, no_hooks
        )
        run = Run(plan, context)
        run.execute()
    assert plan.scorer is not None
    assert run.trials is not None
    trials = run.trials
    controls = describe_controls(
        control_trials(trials.controls), {}, session.settings.gates.alpha, trials.untried
    )
    return Qualification(plan.scorer, controls, _environments(session, trials))


def plan_without_edits(session: Session) -> RunPlan:
    """Return the plan of a run without works, which only asks the judge."""
    launcher = session.workers.launcher
    identities = {
        role: launcher.identify(model, session.store.fingerprints)
        for role, model in session.models.items()
    }
    judge = identities["judge"]
    return RunPlan(
        request=Request(
            settings=session.settings,
            models=session.models,
            suite=session.suite,
            pairs=session.suite.pairs,
            selection=Selection({}, {}),
        ),
        store=session.store,
        hardware=launcher.hardware,
        models=session.models,
        editor=identities["editor"],
        judge=judge,
        works=(),
        scorers=(Scorer(session.settings, judge, session.store),),
    )


def _environments(session: Session, trials: Trials) -> dict[str, Environment]:
    """Return where the verdicts on the controls were computed, by digest."""
    environments: dict[str, Environment] = {}
    for judgement in trials.of_controls:
        if judgement.verdict:
            digest = judgement.verdict.environment
            environments[digest] = session.store.environments[digest]
    return environments
