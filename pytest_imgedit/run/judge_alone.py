"""Has a judge alone do what a command asks for, without a run of its own."""

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, TextIO, TypeVar

from pytest_imgedit.core import errors
from pytest_imgedit.report.progress import RunProgress
from pytest_imgedit.run.duels import AskedDuels
from pytest_imgedit.run.first_requests import ask_servers
from pytest_imgedit.run.interrupts import no_hooks
from pytest_imgedit.run.model_swap import Swap
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.request import Request
from pytest_imgedit.run.run import Run, RunContext
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.session import Session
from pytest_imgedit.run.work import Judgement
from pytest_imgedit.stats.gate_values import Selection

R = TypeVar("R", bound=Run)
B = TypeVar("B", bound=AskedDuels)


@dataclass(frozen=True)
class Prepared(Generic[R]):
    """A plan, the `lines` that say what it asks, and what makes the run of it, once servers have
    answered.
    """

    plan: RunPlan
    lines: Iterable[str]
    make: Callable[[RunPlan, RunContext], R]


def ask_judge(session: Session, file: TextIO, prepare: Callable[[RunPlan], Prepared[R]]) -> R:
    """Run what `prepare` makes of a plan without works, and return the run, which is over; `file`
    takes the lines of the plan and the progress.

    Verdicts are kept in the store. Raises `UsageError` for wrong settings, and for a judge that
    cannot be reached or fails alike each time.
    """
    log = session.opened_store.new_run() / "run.log"
    with closing(RunProgress(log, file, quiet=False)) as progress:
        session.workers.reporter.watcher = progress
        prepared = prepare(plan_without_edits(session))
        plan = prepared.plan
        for line in prepared.lines:
            progress.note(line)
        ask_servers(plan, progress.note)
        session.workers.settle(plan.models, plan.identities, plan.peaks)
        context = RunContext(
            session.workers.launch, session.workers.launch_additional, progress, no_hooks
        )
        run = prepared.make(plan, context)
        try:
            run.execute()
        except errors.FailsAlike as error:
            raise errors.UsageError(str(error)) from None
    return run


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


class BoutRun(Run, Generic[B]):
    """Has the judge of a plan score its works, if it has any, and decide the `bouts` between
    edits, if there are any.
    """

    def __init__(self, plan: RunPlan, context: RunContext, bouts: B | None) -> None:
        super().__init__(plan, context)
        self.bouts = bouts

    def execute(self) -> None:
        """Ask about everything without a stored verdict."""
        pending = self.recall_verdicts(self.plan.works)
        if not (pending or self._plan_duels()):
            return
        swap = Swap(self._launch("judge"), self.clock)
        try:
            self.score(pending, [], swap)
        finally:
            self.context.give_back("judge", swap.judge)

    @property
    def asked_duels(self) -> B | None:
        """The bouts; none of a judge that turns out to measure."""
        has_measured = any(
            work.verdict is not None and work.verdict.measured for work in self.plan.works
        )
        return None if has_measured else self.bouts

    def _plan_duels(self) -> list[Judgement]:
        bouts = self.asked_duels
        return [] if bouts is None else self.recall(bouts.scorer, bouts.judgements)
