"""What can be told to be wrong with a run before anything starts, each in one line; and its
baseline.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import SettingError, StoreError, UsageError
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.redaction import mask_secrets, mask_shapes
from pytest_imgedit.core.results import Results
from pytest_imgedit.kinds.base import Model
from pytest_imgedit.kinds.requirements import Site
from pytest_imgedit.protocols.rubric import load_rubric
from pytest_imgedit.report.write import check_writable
from pytest_imgedit.run.pools import is_remote, python_of
from pytest_imgedit.stats import gates
from pytest_imgedit.store.baselines import (
    FOLDER,
    Baseline,
    as_baseline,
    make_baseline,
    read_baseline,
    refuse,
    unlike_judges,
    write_baseline,
)
from pytest_imgedit.suites.base import Suite
from pytest_imgedit.workers.hardware import Hardware


@contextmanager
def naming_gpus(settings: Settings) -> Iterator[None]:
    """Name the place in the config that sets the GPUs, if it does, in what goes wrong with them."""
    try:
        yield
    except UsageError as error:
        if not (place := settings.place("workers", "gpus")):
            raise
        raise UsageError(str(error).replace("--imgedit-gpus=", f"{place}workers.gpus=")) from None


def check_models(settings: Settings, models: Iterable[Model], hardware: Hardware) -> None:
    """Raise `UsageError` if the editor, the judge, its rubric or an interpreter is not there or not
    as it must be.

    Hosts are not asked yet, so that they may have GPUs.
    """
    may_have_gpus = settings.workers.gpus != "none" and (is_remote(settings) or hardware.has_gpus)
    for model in models:
        site = Site(
            may_have_gpus,
            is_here=not is_remote(settings) and python_of(settings, model.role) is None,
        )
        if settings.run.stage != "edit":
            rubric = settings.judge.rubric
            site = replace(
                site,
                suite=settings.suite.spec,
                rubric=rubric,
                is_custom_rubric=rubric in settings.rubrics,
            )
        _check_model(model, settings, site)
    load_rubric(settings.judge.rubric, settings.rubrics)
    for key in ("editor_python", "judge_python"):
        python = None if is_remote(settings) else getattr(settings.workers, key)
        if python is not None and shutil.which(python) is None:
            raise UsageError(
                f"{settings.place('workers', key)}workers.{key}: no interpreter {python!r}"
            )


def _check_model(model: Model, settings: Settings, site: Site) -> None:
    """Raise `UsageError`, which names the setting and its place in the config, for what is wrong
    with a model.
    """
    role = model.role
    try:
        model.check(site)
    except SettingError as error:
        place = settings.place(role, error.key.partition(".")[0])
        if error.key == "spec":
            raise UsageError(f"{place}{error}") from None
        reason = str(error).replace(" is taken", f" is taken by {model.spec}", 1)
        raise UsageError(f"{place}{role}.{error.key}: {reason}") from None


def check_executor(settings: Settings) -> None:
    """Raise `UsageError` for settings that the executor does not take, or one that is not
    installed.
    """
    workers = settings.workers
    if workers.executor == "ray":
        if workers.gpus not in ("auto", "none"):
            raise UsageError(
                f"--imgedit-gpus={workers.gpus}: with the executor 'ray', expected auto or none"
            )
        if find_spec("ray") is None:
            raise UsageError("--imgedit-executor=ray: ray is not installed, pip install ray")
    elif workers.ray_address is not None:
        where = settings.place("workers", "ray_address")
        raise UsageError(
            f"{where}workers.ray_address: expected it with --imgedit-executor=ray only"
        )


def check_judge_gpus(settings: Settings, judge: Model | None) -> None:
    """Raise `UsageError` for GPUs of the judge alone where it is to use others, or none."""
    workers = settings.workers
    if workers.judge_gpus is None:
        return
    where = f"{settings.place('workers', 'judge_gpus')}workers.judge_gpus"
    if workers.executor == "ray":
        raise UsageError(f"{where}: on this machine only, expected the executor 'local'")
    if workers.placement != "auto":
        raise UsageError(
            f"{where}: not with workers.placement={workers.placement!r}, the judge is beside the "
            "editors"
        )
    if judge is not None and judge.is_served:
        raise UsageError(f"{where}: judge {judge.spec} takes no GPU here, a server computes for it")


def check_rubric(settings: Settings, suite: Suite) -> None:
    """Raise `UsageError` if a rubric of the user's own cannot be rendered for a pair of the
    suite.
    """
    if settings.judge.rubric in settings.rubrics:
        load_rubric(settings.judge.rubric, settings.rubrics).check(suite.pairs)


def check_gates(settings: Settings, suite: Suite, counts: Mapping[str, int]) -> None:
    """Raise `UsageError` for a gate on an unknown field, on too few pairs, or without a baseline to
    compare with.
    """
    for name, fields in _gated(settings).items():
        gates.check_fields(f"gates.{name}", fields, suite.categories)
    check_counts(settings, counts)
    for name in ("max_drop", "max_collapsed", "min_coverage"):
        is_set = f"gates.{name}" in settings.run.asked and getattr(settings.gates, name) != {}
        if (is_set or getattr(settings.gates, name)) and settings.gates.compare is None:
            raise UsageError(
                f"gates.{name}: nothing to compare with, expected --imgedit-compare=REF too"
            )


def check_until(settings: Settings) -> None:
    """Raise `UsageError` for what a run that ends before all pairs are scored cannot do."""
    gates, run = settings.gates, settings.run
    if gates.until == "all":
        return
    if not (gates.fail_under or gates.max_drop):
        raise UsageError(
            "--imgedit-until=decided: no gate to decide, expected --imgedit-fail-under or "
            "--imgedit-max-drop"
        )
    refused = (
        (f"--imgedit-stage={run.stage}", run.stage != "all"),
        (f"--imgedit-save={run.save}", run.save is not None),
        (f"--imgedit-min-coverage={gates.min_coverage:g}", gates.min_coverage > 0),
        (
            f"--imgedit-max-collapsed={gates.max_collapsed}",
            "max_collapsed" in gates.model_fields_set,
        ),
    )
    for name, given in refused:
        if given:
            raise UsageError(f"--imgedit-until=decided: not with {name}, which is about all pairs")


def check_shard(settings: Settings) -> None:
    """Raise `UsageError` for what only a run of all shards can do."""
    if settings.run.shard is None:
        return
    refused = (
        ("--imgedit-until=decided", settings.gates.until == "decided"),
        (f"--imgedit-save={settings.run.save}", settings.run.save is not None),
        (f"--imgedit-judge-repeats={settings.judge.repeats}", settings.judge.repeats > 0),
    )
    for name, is_set in refused:
        if is_set:
            raise UsageError(
                f"--imgedit-shard={settings.run.shard}: not with {name}, which is about all pairs"
            )


def check_counts(settings: Settings, counts: Mapping[str, int]) -> None:
    """Raise `UsageError` if a gated category has too few pairs; `counts` holds those of each
    category.
    """
    for name, fields in _gated(settings).items():
        gates.check_counts(f"gates.{name}", fields, counts)


def _gated(settings: Settings) -> dict[str, dict[str, float]]:
    return {"fail_under": settings.gates.fail_under, "max_drop": settings.gates.max_drop}


def check_edits_only(settings: Settings) -> None:
    """Refuse what needs scores where only edits are made."""
    gated, judge = settings.gates, settings.judge
    needing = (
        ("gates.fail_under", gated.fail_under, "gates.fail_under={}"),
        ("gates.max_drop", gated.max_drop, "gates.max_drop={}"),
        ("--imgedit-compare", gated.compare, "gates.compare=''"),
        ("--imgedit-controls", judge.controls is True, "judge.controls=false"),
        ("--imgedit-judge-repeats", judge.repeats, "judge.repeats=0"),
        ("--imgedit-save", settings.run.save, ""),
    )
    for name, value, without in needing:
        if value:
            if not judge.scores:
                lacks = f"judge {judge.spec!r} scores nothing, as {name} needs"
                raise UsageError(f"{lacks}: name a judge, such as qwen-vl:MODEL")
            config = f" (where a config has it: --imgedit-set={without})" if without else ""
            raise UsageError(
                f"--imgedit-stage=edit scores nothing, as {name} needs: drop one of them{config}"
            )


def check_baseline(settings: Settings, model: Model, baseline: Baseline) -> None:
    """Refuse a baseline that is of another judge, as far as can be told before any weights are
    read.
    """
    judge = settings.judge
    rubric = load_rubric(judge.rubric, settings.rubrics)
    asked = {
        "spec": mask_shapes(judge.spec),
        "params": mask_secrets(model.deciding("auto")),
        "rubric": None if model.measures else judge.rubric,
        "rubric_sha256": None if model.measures else rubric.sha256,
    }
    refuse(baseline, unlike_judges(baseline, asked, settings.editor.seeds))


def check_copies(copies: Sequence[Path], store: Path) -> None:
    """Raise `UsageError` if an extra report could not be written, or would take the place of
    another or of a store's file.
    """
    for place, path in enumerate(copies):
        check_writable(path)
        if path.resolve().is_relative_to(store.resolve()):
            raise UsageError(f"{path}: in the store {store}, expected a path outside of it")
        if path in copies[:place]:
            raise UsageError(f"{path}: asked for as two reports, expected a path for each")


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
        """Whether the run makes the very baseline that the config compares with, and that is not
        there yet.
        """
        name, is_asked = (
            self.settings.run.save,
            {"gates.compare", "gates.max_drop"} & self.settings.run.asked,
        )
        is_same = name is not None and name == self.settings.gates.compare and not is_asked
        return is_same and not (self.folder / f"{name}.json").exists()

    def without_comparison(self) -> Settings:
        """Return the settings of a run that makes the first baseline: it is compared with
        nothing.
        """
        without: dict[str, Any] = {
            "compare": None,
            "max_drop": {},
            "max_collapsed": 0,
            "min_coverage": 0.0,
        }
        return self.settings.model_copy(
            update={"gates": self.settings.gates.model_copy(update=without)}
        )

    @cached_property
    def reference(self) -> Baseline | None:
        """The baseline to compare with, read once; `None` if none was named, or if the run makes
        it.
        """
        name = None if self.makes_first else self.settings.gates.compare
        if name is None:
            return None
        return read_baseline(name, self.folder, Path.cwd())

    def check_save(self, pairs: Sequence[EditPair]) -> None:
        """Refuse to replace a baseline by one that lacks pairs of it; raise `UsageError`."""
        path = self.folder / f"{self.settings.run.save}.json"
        if self.settings.run.save is None or not path.exists():
            return
        kept = {pair.id for pair in pairs}
        lost = [item.id for item in as_baseline(path).items if item.id not in kept]
        if lost:
            raise UsageError(
                f"--imgedit-save={self.settings.run.save}: {path} holds {len(lost)} pairs that "
                "are not selected, "
                f"such as {lost[0]!r}: expected all of them, another name, or the file removed"
            )

    def save(self, name: str, results: Results) -> Path:
        """Save a run under a name; raises `StoreError` if the folder cannot be written."""
        try:
            return write_baseline(self.folder, make_baseline(results, name))
        except OSError as error:
            raise StoreError(
                f"{self.folder}: {error.strerror}, so that baseline {name} was not saved"
            ) from None
