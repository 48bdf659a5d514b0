"""What can be told to be wrong with the settings of a run before anything starts, each in one line."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import SettingError, UsageError
from pytest_imgedit.core.redaction import mask_secrets, mask_shapes
from pytest_imgedit.engine.launch import is_remote, python_of
from pytest_imgedit.kinds.base import Model
from pytest_imgedit.kinds.requirements import Site
from pytest_imgedit.protocols.rubric import load_rubric
from pytest_imgedit.report.write import check_writable
from pytest_imgedit.stats import gates
from pytest_imgedit.store.baselines import Baseline, refuse, unlike_judges
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
    """Raise `UsageError` if the editor, the judge, its rubric or an interpreter is not there or not as it must be.

    Hosts are not asked yet, so that they may have GPUs.
    """
    may_have_gpus = settings.workers.gpus != "none" and (is_remote(settings) or hardware.has_gpus)
    for model in models:
        site = Site(may_have_gpus, is_here=not is_remote(settings) and python_of(settings, model.role) is None)
        if settings.run.stage != "edit":
            rubric = settings.judge.rubric
            site = replace(site, suite=settings.suite.spec, rubric=rubric, is_custom_rubric=rubric in settings.rubrics)
        _check_model(model, settings, site)
    load_rubric(settings.judge.rubric, settings.rubrics)
    for key in ("editor_python", "judge_python"):
        python = None if is_remote(settings) else getattr(settings.workers, key)
        if python is not None and shutil.which(python) is None:
            raise UsageError(f"{settings.place('workers', key)}workers.{key}: no interpreter {python!r}")


def _check_model(model: Model, settings: Settings, site: Site) -> None:
    """Raise `UsageError`, which names the setting and its place in the config, for what is wrong with a model."""
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
    """Raise `UsageError` for settings that the executor does not take, or one that is not installed."""
    workers = settings.workers
    if workers.executor == "ray":
        if workers.gpus not in ("auto", "none"):
            raise UsageError(f"--imgedit-gpus={workers.gpus}: with the executor 'ray', expected auto or none")
        if find_spec("ray") is None:
            raise UsageError("--imgedit-executor=ray: ray is not installed, pip install ray")
    elif workers.ray_address is not None:
        where = settings.place("workers", "ray_address")
        raise UsageError(f"{where}workers.ray_address: expected it with --imgedit-executor=ray only")


def check_judge_gpus(settings: Settings, judge: Model | None) -> None:
    """Raise `UsageError` for GPUs of the judge alone where it is to use others, or none."""
    workers = settings.workers
    if workers.judge_gpus is None:
        return
    where = f"{settings.place('workers', 'judge_gpus')}workers.judge_gpus"
    if workers.executor == "ray":
        raise UsageError(f"{where}: on this machine only, expected the executor 'local'")
    if workers.placement != "auto":
        raise UsageError(f"{where}: not with workers.placement={workers.placement!r}, the judge is beside the editors")
    if judge is not None and judge.is_served:
        raise UsageError(f"{where}: judge {judge.spec} takes no GPU here, a server computes for it")


def check_rubric(settings: Settings, suite: Suite) -> None:
    """Raise `UsageError` if a rubric of the user's own cannot be rendered for a pair of the suite."""
    if settings.judge.rubric in settings.rubrics:
        load_rubric(settings.judge.rubric, settings.rubrics).check(suite.pairs)


def check_gates(settings: Settings, suite: Suite, counts: Mapping[str, int]) -> None:
    """Raise `UsageError` for a gate on an unknown field, on too few pairs, or without a baseline to compare with."""
    for name, fields in _gated(settings).items():
        gates.check_fields(f"gates.{name}", fields, suite.categories)
    check_counts(settings, counts)
    for name in ("max_drop", "max_collapsed", "min_coverage"):
        is_set = f"gates.{name}" in settings.run.asked and getattr(settings.gates, name) != {}
        if (is_set or getattr(settings.gates, name)) and settings.gates.compare is None:
            raise UsageError(f"gates.{name}: nothing to compare with, expected --imgedit-compare=REF too")


def check_until(settings: Settings) -> None:
    """Raise `UsageError` for what a run that ends before all pairs are scored cannot do."""
    gates, run = settings.gates, settings.run
    if gates.until == "all":
        return
    if not (gates.fail_under or gates.max_drop):
        raise UsageError(
            "--imgedit-until=decided: no gate to decide, expected --imgedit-fail-under or --imgedit-max-drop"
        )
    refused = (
        (f"--imgedit-stage={run.stage}", run.stage != "all"),
        (f"--imgedit-save={run.save}", run.save is not None),
        (f"--imgedit-min-coverage={gates.min_coverage:g}", gates.min_coverage > 0),
        (f"--imgedit-max-collapsed={gates.max_collapsed}", "max_collapsed" in gates.model_fields_set),
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
            raise UsageError(f"--imgedit-shard={settings.run.shard}: not with {name}, which is about all pairs")


def check_counts(settings: Settings, counts: Mapping[str, int]) -> None:
    """Raise `UsageError` if a gated category has too few pairs; `counts` holds those of each category."""
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
            raise UsageError(f"--imgedit-stage=edit scores nothing, as {name} needs: drop one of them{config}")


def check_baseline(settings: Settings, model: Model, baseline: Baseline) -> None:
    """Refuse a baseline that is of another judge, as far as can be told before any weights are read."""
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
    """Raise `UsageError` if an extra report could not be written, or would take the place of another or of a store's
    file.
    """
    for place, path in enumerate(copies):
        check_writable(path)
        if path.resolve().is_relative_to(store.resolve()):
            raise UsageError(f"{path}: in the store {store}, expected a path outside of it")
        if path in copies[:place]:
            raise UsageError(f"{path}: asked for as two reports, expected a path for each")
