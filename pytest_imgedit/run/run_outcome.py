"""The outcome of a run with its items, reports and hooks, which decides pytest's exit code."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_imgedit.core import errors
from pytest_imgedit.core.text import printable
from pytest_imgedit.report import terminal, write
from pytest_imgedit.run.finish import FinishedRun
from pytest_imgedit.run.session import Session
from pytest_imgedit.stats.outcome import Outcome
from pytest_imgedit.stats.outcome import outcome as outcome_of


@dataclass(frozen=True)
class ItemCounts:
    """The outcomes of the items that use results: how many were `expected` and `failed`, and which
    have none.

    `stopped` says that pytest ended before all of them, as with `-x`.
    """

    expected: int = 0
    failed: int = 0
    missing: Sequence[str] = ()
    stopped: bool = False


@dataclass(kw_only=True)
class RunOutcome:
    """What a run has come to, and what is to be shown of it.

    `reports` are paths by the name of the report. `failures` keep the run from passing besides
    gates and items: reports or a baseline that could not be written, hooks, additional judges and
    metrics that failed. `unwritten_copies` say why copies of the reports could not be written: the
    exit code is 1, the verdict stays. `warnings` are texts of the user's hooks, which fail nothing.
    """

    session: Session
    run: FinishedRun
    reports: dict[str, str]
    failures: list[str]
    unwritten_copies: list[str]
    warnings: list[str]
    items: ItemCounts = ItemCounts()
    interrupted: bool = False

    def conclude(self, items: ItemCounts) -> Outcome:
        """Take the counts of pytest's items, save the run as a baseline if requested, and return
        the outcome.

        A run that passed is saved, and one that only warns if there is no baseline of that name.
        """
        self.items = items
        name = self.session.settings.run.save
        if name is not None and self._may_be_saved():
            try:
                session = self.session
                saved = session.baselines.save(name, self.run.results, session.store.blobs)
                self.reports["baseline"] = saved
            except errors.StoreError as error:
                self.failures.insert(0, str(error))
        return self.outcome()

    def _may_be_saved(self) -> bool:
        outcome = self.outcome()
        if outcome.state == "PASS":
            return True
        return not outcome.fails and self.session.baselines.saved is None

    def outcome(self) -> Outcome:
        """Return the outcome of the run: that of its gates, which also fails for each of the
        `problems`.
        """
        gate_outcome = outcome_of(self.run.results)
        problems = self.problems()
        if not problems:
            return gate_outcome
        if gate_outcome.fails:
            shown = tuple(printable(problem) for problem in problems)
            return replace(gate_outcome, notes=shown + gate_outcome.notes)
        gate_line = gate_outcome.line.removeprefix("PASS: ")
        notes = [*problems, gate_line, *gate_outcome.notes]
        return Outcome.of("FAIL", problems[:1], notes, fails=True)

    def problems(self) -> list[str]:
        """Return what, besides gates, keeps the run from passing: items, reports, hooks, additional
        judges and metrics.
        """
        problems = list(self.failures)
        items = self.items
        if items.failed:
            problems.append(f"{items.failed} of {items.expected} items failed")
        if items.missing:
            reason = "not run" if items.stopped else "never reported"
            problems.append(
                f"{len(items.missing)} selected items were {reason}, such as {items.missing[0]}"
            )
        return problems

    def summary(self, width: int, color: bool, verbose: bool) -> str:
        """Render what the terminal shows at the end: the verdict, then all else."""
        return terminal.render(
            self.run.results,
            width,
            color,
            verbose,
            verdict=self.outcome(),
            warnings=self.warnings,
        )

    def written(self) -> dict[str, str]:
        """Return where each report is, and the baseline, or why it was not saved."""
        name = self.session.settings.run.save
        if name is None or "baseline" in self.reports:
            return self.reports
        return {**self.reports, "baseline": f"{name} was not saved: {self._why_unsaved()}"}

    def _why_unsaved(self) -> str:
        """Return why the run was not saved: it fails, it may not replace a baseline, or pytest was
        stopped before.
        """
        outcome = self.outcome()
        if outcome.fails:
            return f"the run is {outcome.state}"
        saved = self.session.baselines.saved
        if outcome.state != "PASS" and saved is not None:
            return (
                f"the run is {outcome.state}, and only a PASS replaces a baseline: save it under "
                f"another name, or remove {os.path.relpath(saved)}"
            )
        return "pytest was stopped"

    def annotations(self) -> list[str]:
        """Return what marks on GitHub the gates that did not pass, and copies that are missing;
        nothing elsewhere.
        """
        if os.environ.get("GITHUB_ACTIONS") != "true":
            return []
        commands = [write.command("error", "imgedit", problem) for problem in self.unwritten_copies]
        commands += write.gate_commands(self.run.results, self.outcome())
        return write.shown(commands)
