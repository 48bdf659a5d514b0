"""The baselines of one session: where they lie, the one to compare with, and the one that the run is saved as."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import StoreError, UsageError
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Results
from pytest_imgedit.store.baselines import FOLDER, Baseline, as_baseline, make_baseline, read_baseline, write_baseline


class Baselines:
    """The baselines that settings name, for a session in the folder `root`."""

    def __init__(self, settings: Settings, root: Path) -> None:
        self.settings, self.root = settings, root

    @property
    def folder(self) -> Path:
        """The folder as it is set, beside a config in `benchmarks`, or the usual one."""
        if self.settings.gates.baselines is not None:
            return self.settings.gates.baselines
        config = self.settings.run.config_file.path
        if config is not None and config.absolute().parent.name == FOLDER.parent.name:
            return config.absolute().parent / FOLDER.name
        return self.root / FOLDER

    @cached_property
    def makes_first(self) -> bool:
        """Whether the run makes the very baseline that the config compares with, and that is not there yet."""
        name, is_asked = self.settings.run.save, {"gates.compare", "gates.max_drop"} & self.settings.run.asked
        is_same = name is not None and name == self.settings.gates.compare and not is_asked
        return is_same and not (self.folder / f"{name}.json").exists()

    def without_comparison(self) -> Settings:
        """Return the settings of a run that makes the first baseline: it is compared with nothing."""
        without: dict[str, Any] = {"compare": None, "max_drop": {}, "max_collapsed": 0, "min_coverage": 0.0}
        return self.settings.model_copy(update={"gates": self.settings.gates.model_copy(update=without)})

    @cached_property
    def reference(self) -> Baseline | None:
        """The baseline to compare with, read once; `None` if none was named, or if the run makes it."""
        name = None if self.makes_first else self.settings.gates.compare
        return None if name is None else read_baseline(name, self.folder, Path.cwd())

    def check_save(self, pairs: Sequence[EditPair]) -> None:
        """Refuse to replace a baseline by one that lacks pairs of it; raise `UsageError`."""
        path = self.folder / f"{self.settings.run.save}.json"
        if self.settings.run.save is None or not path.exists():
            return
        kept = {pair.id for pair in pairs}
        lost = [item.id for item in as_baseline(path).items if item.id not in kept]
        if lost:
            raise UsageError(
                f"--imgedit-save={self.settings.run.save}: {path} holds {len(lost)} pairs that are not selected, "
                f"such as {lost[0]!r}: expected all of them, another name, or the file removed"
            )

    def save(self, name: str, results: Results) -> Path:
        """Save a run under a name; raises `StoreError` if the folder cannot be written."""
        try:
            return write_baseline(self.folder, make_baseline(results, name))
        except OSError as error:
            raise StoreError(f"{self.folder}: {error.strerror}, so that baseline {name} was not saved") from None
