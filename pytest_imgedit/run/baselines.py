"""The baselines that the settings of a session name: one to compare with, and one to save."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core import errors
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Results
from pytest_imgedit.report import outputs
from pytest_imgedit.report.read import as_baseline, read_either
from pytest_imgedit.store.baselines import (
    Baseline,
    baseline_path,
    make_baseline,
    usual_folder,
    write_baseline,
)
from pytest_imgedit.suites.base import Suite


class ComparedWith(NamedTuple):
    """The `baseline` of a run, `None` if none was named or if the run makes it; `passed_over` says
    which newer runs the name `latest` does not mean.
    """

    baseline: Baseline | None
    passed_over: str = ""


@dataclass
class Baselines:
    """The baselines that settings name, for a session in the folder `root`."""

    settings: Settings
    root: Path

    @property
    def folder(self) -> Path:
        """The folder of the settings, or the usual one."""
        if self.settings.gates.baselines is not None:
            return self.settings.gates.baselines
        return usual_folder(self.settings.run.config_file.path, self.root)

    @cached_property
    def makes_first(self) -> bool:
        """Whether the run makes the very baseline that the config names, which is missing."""
        run = self.settings.run
        if run.save is None or run.save != self.settings.gates.compare:
            return False
        path = self.folder / f"{run.save}.json"
        return not ({"gates.compare", "gates.max_drop"} & run.asked or path.exists())

    @property
    def saved(self) -> Path | None:
        """The baseline that the run would replace."""
        name = self.settings.run.save
        return None if name is None else baseline_path(name, self.folder)

    def without_comparison(self) -> Settings:
        """Return the settings of a run that makes the first baseline, without a comparison."""
        gates = self.settings.gates.model_copy(
            update={"compare": None, "max_drop": {}, "max_collapsed": 0, "min_coverage": 0.0}
        )
        return self.settings.model_copy(update={"gates": gates})

    def read(self, suite: Suite) -> ComparedWith:
        """Return the baseline to compare a run of a suite with.

        Raises `UsageError` if it is not there, or cannot be read.
        """
        name = self.settings.gates.compare
        if name is None or self.makes_first:
            return ComparedWith(None)
        out = self.root / self.settings.run.out
        return ComparedWith(*read_either(name, out, self.folder, (suite.name, suite.sha256)))

    def check_save(self, pairs: Sequence[EditPair]) -> None:
        """Raise `UsageError` if a baseline may not be saved where the settings say, or if saving
        would replace one with pairs that are not selected.
        """
        name = self.settings.run.save
        if name is None:
            return
        path = self.folder / f"{name}.json"
        outputs.target_of(path, [self.root / self.settings.run.out])  # raises for a path in a store
        if not path.exists():
            return
        selected = {pair.id for pair in pairs}
        lost = [item.id for item in as_baseline(path).items if item.id not in selected]
        if lost:
            raise errors.UsageError(
                f"--imgedit-save={name}: {path} holds {len(lost)} pairs that are not selected, "
                f"such as {lost[0]!r}: expected all of them, another name, or the file removed"
            )

    def save(self, name: str, results: Results) -> Path:
        """Write a run as the baseline of this name and return its path; raises `StoreError` if that
        cannot be written.
        """
        try:
            return write_baseline(self.folder, make_baseline(results, name))
        except OSError as error:
            raise errors.StoreError(
                f"{self.folder}: {error.strerror}, so that baseline {name} was not saved"
            ) from None
