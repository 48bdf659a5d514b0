"""One pytest session's evaluation: settings, suite, store, run; knows nothing of pytest."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from pytest_imgedit import gates
from pytest_imgedit.checkpoints import MODEL_KINDS, check_checkpoint, is_local
from pytest_imgedit.editors.base import resolve_editor
from pytest_imgedit.errors import StoreError, UsageError
from pytest_imgedit.judges.base import MEASURING, resolve_judge
from pytest_imgedit.params import find_problem
from pytest_imgedit.redaction import mask_secrets
from pytest_imgedit.report import model, terminal
from pytest_imgedit.report.github import gate_commands
from pytest_imgedit.report.progress import RunProgress
from pytest_imgedit.report.write import add_to_github_summary, check_writable, write_reports, write_results
from pytest_imgedit.rubrics.rubric import load_rubric
from pytest_imgedit.stages.results import read_run
from pytest_imgedit.stages.run import Engine
from pytest_imgedit.store.baselines import FOLDER as BASELINES
from pytest_imgedit.store.baselines import check_name, make_baseline, read_baseline, unlike_judges, write_baseline
from pytest_imgedit.store.runs import Store
from pytest_imgedit.suites.base import Suite, load_suite
from pytest_imgedit.text import one_line, shorten
from pytest_imgedit.workers.gpus import choose_gpus, group_gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_imgedit.config import Settings
    from pytest_imgedit.pairs import EditPair
    from pytest_imgedit.registry import Target
    from pytest_imgedit.rubrics.rubric import Rubric
    from pytest_imgedit.stages.results import Run

#: Characters of a section that users add to the report.
MAX_SECTION = 1_000_000


@dataclass(frozen=True)
class Hooks:
    """What the session calls of its users: around stages, and for sections of the report."""

    before_stage: Callable[[str], None]
    after_stage: Callable[[str], None]
    report_sections: Callable[[dict[str, Any]], Iterable[Any]]


class Evaluation:
    """Everything between checked settings and finished results."""

    def __init__(self, settings: Settings, root: Path, hooks: Hooks) -> None:
        self.settings, self.root, self.hooks = settings, root, hooks
        self.store = Store(root / settings.run.out)
        self.run: Run | None = None
        self.interrupted = self.announced = False
        self._opened = False
        self._services: list[Any] = []
        self._reports: dict[str, str] = {}
        self._unwritten = ""
        self.unreported: Sequence[str] = ()

    @cached_property
    def suite(self) -> Suite:
        """The suite, read once; images stay unread."""
        return load_suite(self.settings.suite)

    @cached_property
    def gpus(self) -> list[str]:
        return choose_gpus(self.settings.workers.gpus)

    def check(self) -> None:
        """Find everything that is wrong before anything is started; raise `UsageError` with one line."""
        settings = self.settings
        self._check_target("editor", resolve_editor(settings.editor.spec), settings.editor.params)
        if settings.run.stage != "edit":
            self._check_target("judge", resolve_judge(settings.judge.spec), settings.judge.params)
        rubric = load_rubric(settings.judge.rubric, settings.rubrics)
        if settings.run.stage != "edit":
            self._check_embedded_judge()
        for key in ("editor_python", "judge_python"):
            python = getattr(settings.workers, key)
            if python is not None and shutil.which(python) is None:
                raise UsageError(f"{settings.place('workers', key)}workers.{key}: no interpreter {python!r}")
        group_gpus(self.gpus, settings.workers.gpus_per_worker, "--imgedit-gpus-per-worker")
        group_gpus(self.gpus, settings.judge.gpus_per_replica, "judge.gpus_per_replica")
        for name, fields in self._gated.items():
            gates.check_fields(name, fields, self.suite.categories)
        self._check_counts(self.suite.pairs)
        if settings.gates.max_drop and settings.gates.compare is None:
            raise UsageError("gates.max_drop: nothing to compare with, expected --imgedit-compare=REF too")
        if settings.run.save is not None:
            check_name(settings.run.save)
        if settings.judge.rubric in settings.rubrics:
            rubric.check(self.suite.pairs)
        if settings.run.stage == "edit":
            self._check_edits_only()
        elif self.baseline is not None:
            self._check_baseline(self.baseline, rubric)
        copies = settings.run.copies
        for place, path in enumerate(copies):
            check_writable(path)
            if path in copies[:place]:
                raise UsageError(f"{path}: asked for as two reports, expected a path for each")

    def _check_embedded_judge(self) -> None:
        """Refuse to have the embedded judge grade what it was not trained on: its scores would mean nothing."""
        suite, judge = self.settings.suite.spec, self.settings.judge
        if judge.spec != "scenes":
            return
        if suite.partition(":")[0] != "scenes":
            raise UsageError(
                f"{self.settings.place('judge', 'spec')}judge 'scenes' knows drawn scenes only and cannot grade the "
                f"suite {suite!r}: name a judge with --imgedit-judge, such as qwen-vl:MODEL or reference"
            )
        if judge.rubric != "aspects" or judge.rubric in self.settings.rubrics:
            own = " of your own" if judge.rubric in self.settings.rubrics else ""
            raise UsageError(
                f"{self.settings.place('judge', 'rubric')}judge.rubric: judge 'scenes' was taught the built-in rubric "
                f"'aspects' and no other, found {judge.rubric!r}{own}"
            )

    @property
    def _gated(self) -> dict[str, dict[str, float]]:
        return {"fail_under": self.settings.gates.fail_under, "max_drop": self.settings.gates.max_drop}

    def _check_counts(self, pairs: Sequence[EditPair]) -> None:
        for name, fields in self._gated.items():
            gates.check_counts(name, fields, Counter(pair.category for pair in pairs))

    def _check_edits_only(self) -> None:
        """Refuse what needs scores where only edits are made."""
        settings = self.settings
        needing = {
            "gates.fail_under": settings.gates.fail_under,
            "gates.max_drop": settings.gates.max_drop,
            "--imgedit-compare": settings.gates.compare,
            "--imgedit-save": settings.run.save,
            "--imgedit-controls": settings.judge.controls,
            "--imgedit-judge-repeats": settings.judge.repeats,
        }
        for name, value in needing.items():
            if value:
                raise UsageError(f"--imgedit-stage=edit scores nothing, as {name} needs: drop one of them")

    @cached_property
    def baseline(self) -> dict[str, Any] | None:
        """The baseline to compare with, read once; `None` if none was named."""
        reference = self.settings.gates.compare
        return None if reference is None else read_baseline(reference, self.root / BASELINES, Path.cwd())

    def _check_baseline(self, baseline: dict[str, Any], rubric: Rubric) -> None:
        """Refuse a baseline that is of another judge, as far as can be told before any weights are read."""
        judge, measures = self.settings.judge, resolve_judge(self.settings.judge.spec).kind in MEASURING
        asked = {
            "spec": judge.spec,
            "params": mask_secrets(judge.params),
            "rubric": None if measures else judge.rubric,
            "rubric_sha256": None if measures else rubric.sha256,
        }
        reason = unlike_judges(baseline, asked, self.settings.editor.seeds)
        if reason:
            raise UsageError(f"baseline {baseline['name']}: cannot be compared with, {reason}")

    def _check_target(self, role: str, target: Target, params: dict[str, Any]) -> None:
        place = self.settings.place(role, "spec")
        if target.kind in MODEL_KINDS:
            model_name = target.argument or ""
            if is_local(model_name):
                if not Path(model_name).is_dir():
                    raise UsageError(f"{place}{role} {target.kind}:{model_name}: no such folder")
                check_checkpoint(Path(model_name), target.kind)
        if target.kind == "folder" and not Path(target.argument or "").is_dir():
            raise UsageError(f"{place}{role} folder:{target.argument}: no such folder")
        if target.kind in MODEL_KINDS and "trust_remote_code" in params:
            where = self.settings.place(role, "trust_remote_code")
            raise UsageError(
                f"{where}{role}.trust_remote_code: code of a checkpoint is never run, expected no such key"
            )
        problem = find_problem(target, params)
        if problem is not None:
            name, reason = problem
            taker = f" by {getattr(self.settings, role).spec}" if reason.endswith("taken") else ""
            raise UsageError(f"{self.settings.place(role, name)}{role}.{name}: {reason}{taker}")

    def describe(self) -> str:
        """Say in one line what is evaluated, and on what."""
        gpus = f"GPUs {','.join(self.gpus)}" if self.gpus else "CPU"
        if not self.gpus and self.settings.workers.gpus == "auto":
            gpus = "CPU (no GPU visible)"
        return (
            f"suite {self.settings.suite.spec}, editor {self.settings.editor.spec}, "
            f"judge {self.settings.judge.spec}, on {gpus}"
        )

    def execute(self, ids: Sequence[str], file: TextIO = sys.stdout, quiet: bool = False) -> Run:
        """Run all stages over the selected pairs and write the reports."""
        wanted = set(ids)
        pairs = [pair for pair in self.suite.pairs if pair.id in wanted]
        self._check_counts(pairs)
        self.open_store()
        folder = self.store.new_run()
        progress = RunProgress(folder / "run.log", file, quiet)
        if not self.announced:
            progress.note(self.describe())
        around = self.hooks.before_stage, self.hooks.after_stage
        baseline = self.baseline
        try:
            document = Engine(self.settings, self.suite, self.store, folder, progress, baseline, *around).run(pairs)
        finally:
            progress.close()
        self.interrupted = progress.stopping
        self.run = read_run(document, self.settings.suite.min_score)
        document["sections"] = self._ask_for_sections(document)
        try:
            write_results(document, folder)
            self._reports = write_reports(document, folder, self.store.blobs.folder, self.settings.run)
            self._save()
            add_to_github_summary(document)
        except StoreError as error:
            self._unwritten = str(error)
        return self.run

    def _save(self) -> None:
        """Save the run as a baseline if that was asked for and its gates pass."""
        assert self.run is not None
        name = self.settings.run.save
        if name is None:
            return
        found = model.verdict(self.run.document)
        if found.fails:
            self._reports["baseline"] = f"{name} was not saved: the run is {found.state}"
            return
        folder = self.root / BASELINES
        try:
            path = write_baseline(folder, make_baseline(self.run.document, name))
        except OSError as error:
            raise StoreError(f"{folder}: {error.strerror}, so that baseline {name} was not saved") from error
        self._reports["baseline"] = os.path.relpath(path)

    def _ask_for_sections(self, document: dict[str, Any]) -> list[dict[str, str]]:
        """Collect what users add to the report, as `title` and `body`; a hook that fails costs its own section only."""
        try:
            found = [tuple(part) for part in self.hooks.report_sections(document) if part]
            if not all(len(part) == 2 and all(isinstance(text, str) for text in part) for part in found):
                raise TypeError(f"it returned {found!r:.200}, expected (title, body)")
        except Exception as error:
            found = [("pytest_imgedit_report_section", f"failed: {type(error).__name__}: {one_line(error)}")]
        return [{"title": shorten(title), "body": shorten(body, MAX_SECTION)} for title, body in found]

    def make_service(self, name: str, file: TextIO) -> Any:
        """Make the service `edit_workers` or `reward_model`; raise `UsageError` where the stage starts no workers."""
        from pytest_imgedit.services import EditWorkers, RewardModel

        stage = self.settings.run.stage
        if stage == "report" or (stage == "score" and name == "edit_workers"):
            raise UsageError(f"{name}: --imgedit-stage={stage} starts no such workers")
        kind = {"edit_workers": EditWorkers, "reward_model": RewardModel}[name]
        service = kind(self.settings, self.open_store(), file, self._services if self.gpus else [])
        self._services.append(service)
        return service

    def open_store(self) -> Store:
        """Take the store for this session; raise `UsageError` if another process holds it."""
        if not self._opened:
            self.store.__enter__()
            self._opened = True
        return self.store

    def close(self) -> None:
        if self._opened:
            self.store.__exit__()
            self._opened = False

    def summary(self, width: int, color: bool) -> str:
        """Render what the terminal shows at the end."""
        assert self.run is not None
        return terminal.render(self.run.document, self._reports, width, color)

    def annotations(self) -> list[str]:
        """Return what marks the gates that did not pass on GitHub; nothing elsewhere."""
        assert self.run is not None
        return gate_commands(self.run.document, self.verdict()) if os.environ.get("GITHUB_ACTIONS") == "true" else []

    def verdict(self) -> model.Verdict:
        """Return what the run came to; without all its reports written and all its items reported it never passes."""
        assert self.run is not None
        found = model.verdict(self.run.document)
        problems = [self._unwritten] if self._unwritten else []
        if self.unreported:
            count, first = len(self.unreported), self.unreported[0]
            problems.append(f"{count} selected items were never reported, such as {first}")
        if not problems:
            return found
        return model.Verdict(
            "FAIL", "; ".join(["FAIL: " + "; ".join(problems), *[found.line] * (found.state != "PASS")]), fails=True
        )
