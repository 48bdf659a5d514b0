"""The baselines that the settings of a session name: one to compare with, and one to save."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core import errors, files
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Results
from pytest_imgedit.core.text import counted
from pytest_imgedit.report import outputs
from pytest_imgedit.report.read import as_baseline
from pytest_imgedit.run.work import Work
from pytest_imgedit.store import baseline_edits
from pytest_imgedit.store.baseline_edits import BaselineEdits, OtherEdits, amount, shown
from pytest_imgedit.store.baselines import (
    Baseline,
    baseline_path,
    make_baseline,
    usual_folder,
    write_baseline,
)
from pytest_imgedit.store.blobs import Blobs
from pytest_imgedit.store.run_references import find_either
from pytest_imgedit.store.store import Store, blobs_around, store_of
from pytest_imgedit.suites.base import Suite


class ComparedWith(NamedTuple):
    """The `baseline` of a run, `None` if none was named or if the run makes it; `passed_over` says
    which newer runs the name `latest` does not mean, `path` is where the baseline was read.
    """

    baseline: Baseline | None
    passed_over: str = ""
    path: Path | None = None


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
        asked = {"gates.compare", "gates.max_drop", "gates.duel", "gates.min_win"} & run.asked
        return not (asked or path.exists())

    @property
    def lacks_edits(self) -> bool:
        """Whether the run saves a baseline without edits although the settings ask for duels."""
        run = self.settings.run
        return self.settings.gates.duel and run.save is not None and not run.save_edits

    @property
    def saved(self) -> Path | None:
        """The baseline that the run would replace."""
        name = self.settings.run.save
        return None if name is None else baseline_path(name, self.folder)

    def without_comparison(self) -> Settings:
        """Return the settings of a run that makes the first baseline, without a comparison."""
        gates = self.settings.gates.model_copy(
            update={
                "compare": None,
                "max_drop": {},
                "min_win": {},
                "duel": False,
                "max_collapsed": 0,
                "min_coverage": 0.0,
            }
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
        found = find_either(name, out, self.folder, (suite.name, suite.sha256))
        return ComparedWith(as_baseline(found.path), found.note, found.path)

    @property
    def edits(self) -> BaselineEdits:
        """The edits that baselines keep: in the folder of the settings, or beside the baselines."""
        folder = self.settings.gates.baseline_store
        return BaselineEdits(self.folder / baseline_edits.FOLDER if folder is None else folder)

    def other_edits(self, compared: ComparedWith, store: Store) -> OtherEdits:
        """Return where the edits of the baseline are that a run of this store is compared with: in
        the store, in `edits`, and in the store or beside the file from which it was read.
        """
        folders = [self.edits]
        if compared.path is None:
            return OtherEdits([store.blobs], folders)
        beside = compared.path.parent / baseline_edits.FOLDER
        is_in_store = store_of(compared.path.resolve()) is not None
        if not is_in_store and beside.resolve() != self.edits.folder.resolve():
            folders.append(BaselineEdits(beside))
        return OtherEdits(blobs_around(compared.path, store), folders)

    def check_save(self, pairs: Sequence[EditPair]) -> None:
        """Raise `UsageError` if a baseline or its edits may not be saved where the settings say, or
        if saving would replace one with pairs that are not selected.
        """
        run = self.settings.run
        name = run.save
        if name is None:
            return
        store = self.root / run.out
        path = self.folder / f"{name}.json"
        outputs.target_of(path, [store])  # raises for a path in a store
        if run.save_edits:
            inputs = outputs.inputs(store, self.settings.suite.spec)
            outputs.check_folder(self.edits.folder, [store, *inputs])
        if not path.exists():
            return
        selected = {pair.id for pair in pairs}
        lost = [item.id for item in as_baseline(path).items if item.id not in selected]
        if lost:
            raise errors.UsageError(
                f"--imgedit-save={name}: {path} holds {len(lost)} pairs that are not selected, "
                f"such as {lost[0]!r}: expected all of them, another name, or the file removed"
            )

    def size_lines(self, works: Sequence[Work], store: Store) -> Iterator[str]:
        """Yield how many edits the run is to keep, where, and how large they are: those that are in
        the store, and at most, without compression, those that are to be made.
        """
        run = self.settings.run
        if run.save is None or not run.save_edits:
            return
        made = {work.edit.blob for work in works if work.edit is not None}
        missing = [work.source for work in works if work.edit is None and work.source is not None]
        size = BaselineEdits(store.blobs.folder).size(made)  # a store has the same layout
        kept = f"baseline {run.save} keeps its edits in {shown(self.edits.folder)}"
        there = f"{counted(len(made), 'edit')} in the store, {amount(size)}"
        if not missing:
            yield f"{kept}: {there}"
            return
        # three bytes a pixel
        most = sum(3 * source.size[0] * source.size[1] for source in missing)
        more = f"{counted(len(missing), 'edit')} to be made, estimated at up to {amount(most)}"
        yield f"{kept}: {there}, and {more}" if made else f"{kept}: {more}"

    def save(self, name: str, results: Results, blobs: Blobs) -> str:
        """Write a run as the baseline of this name, with its edits from the store if the settings
        say so, and return what was saved where; raises `StoreError` if that cannot be written.

        The baseline is written after its edits, so that it names none that are not kept.
        """
        baseline = make_baseline(results, name)
        kept = self._keep_edits(baseline, blobs) if self.settings.run.save_edits else ""
        replaced = self._known(self.folder / f"{name}.json") if kept else None
        try:
            path = write_baseline(self.folder, baseline)
        except OSError as error:
            raise errors.StoreError(
                f"{self.folder}: {error.strerror}, so that baseline {name} was not saved"
            ) from None
        if replaced is not None:
            self._remove_edits(replaced)
        return f"{shown(path)}{kept}"

    def _keep_edits(self, baseline: Baseline, blobs: Blobs) -> str:
        """Copy the edits of a baseline from the store, and say how many there are; raise
        `StoreError` if one is gone or cannot be written.
        """
        edits = self.edits
        unsaved = f"so that baseline {baseline.name} was not saved"
        named = baseline_edits.edits_of(baseline)
        for sha256, pair in named.items():
            data = blobs.get(sha256)
            if data is None:
                raise errors.StoreError(
                    f"{blobs.path(sha256)}: the edit of {pair} is gone or damaged, {unsaved}"
                )
            try:
                edits.put(data)
            except OSError as error:
                raise errors.StoreError(
                    f"{edits.path(sha256)}: {files.why_unwritten(error)}, {unsaved}"
                ) from None
        size = amount(edits.size(named))
        folder = shown(edits.folder)
        return f" with {counted(len(named), 'edit')}, {size}, in {folder}"

    def _remove_edits(self, replaced: Baseline) -> None:
        """Remove the edits of a replaced baseline that no baseline of the folder names, if they are
        in the usual place: another one may be shared with other folders of baselines.
        """
        if self.settings.gates.baseline_store is not None or self.edits.folder.is_symlink():
            return
        others = [self._known(path) for path in sorted(self.folder.glob("*.json"))]
        kept = [baseline for baseline in others if baseline is not None]
        if len(kept) == len(others):  # what one that cannot be read names is not known
            self.edits.remove(baseline_edits.unneeded([replaced], kept))

    @staticmethod
    def _known(path: Path) -> Baseline | None:
        """Return the baseline in a file; `None` if there is none that can be read."""
        with suppress(errors.UsageError):
            return as_baseline(path)
        return None
