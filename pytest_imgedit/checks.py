"""What can be told to be wrong with the settings of a run before anything starts, each in one line."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_imgedit.checkpoints import MODEL_KINDS, check_checkpoint
from pytest_imgedit.config import NO_JUDGE
from pytest_imgedit.editors.base import resolve_editor
from pytest_imgedit.editors.folder import check_pattern, split_argument
from pytest_imgedit.errors import UsageError
from pytest_imgedit.hub import is_local
from pytest_imgedit.judges.architectures import read_config
from pytest_imgedit.judges.base import MEASURING, resolve_judge
from pytest_imgedit.params import OFFLOADS, deciding, find_problem
from pytest_imgedit.redaction import mask_secrets, mask_variables
from pytest_imgedit.report.write import check_writable
from pytest_imgedit.rubrics.rubric import load_rubric
from pytest_imgedit.stages.placement import is_remote
from pytest_imgedit.stats import gates
from pytest_imgedit.store.baselines import refuse, unlike_judges
from pytest_imgedit.workers.gpus import choose_gpus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_imgedit.config import Settings
    from pytest_imgedit.registry import Target
    from pytest_imgedit.suites.base import Suite


def check_models(settings: Settings) -> None:
    """Raise `UsageError` if the editor, the judge, its rubric or an interpreter is not there or not as it must be."""
    check_hosts(settings)
    _check_target("editor", _resolve("editor", settings), settings.editor.params, settings)
    if settings.run.stage != "edit" or settings.judge.spec == NO_JUDGE:
        _check_target("judge", _resolve("judge", settings), settings.judge.params, settings)
    load_rubric(settings.judge.rubric, settings.rubrics)
    if settings.run.stage != "edit":
        _check_embedded_judge(settings)
    for key in ("editor_python", "judge_python"):
        python = None if is_remote(settings) else getattr(settings.workers, key)
        if python is not None and shutil.which(python) is None:
            raise UsageError(f"{settings.place('workers', key)}workers.{key}: no interpreter {python!r}")


def _resolve(role: Literal["editor", "judge"], settings: Settings) -> Target:
    """Find the class behind a spec; a mistake in it is told with its place in the config."""
    try:
        return resolve_editor(settings.editor.spec) if role == "editor" else resolve_judge(settings.judge.spec)
    except UsageError as error:
        raise UsageError(f"{settings.place(role, 'spec')}{error}") from None


def check_hosts(settings: Settings) -> None:
    """Raise `UsageError` if hosts are named in a way that leads nowhere."""
    workers = settings.workers
    if workers.executor == "ray":
        if workers.hosts:
            raise UsageError(f"{settings.place('workers', 'hosts')}workers.hosts: not with the executor 'ray'")
        if workers.gpus not in ("auto", "none"):
            raise UsageError(f"--imgedit-gpus={workers.gpus}: with the executor 'ray', expected auto or none")
        if find_spec("ray") is None:
            raise UsageError("--imgedit-executor=ray: ray is not installed, pip install pytest-imgedit[ray]")
    elif workers.ray_address is not None:
        where = settings.place("workers", "ray_address")
        raise UsageError(f"{where}workers.ray_address: expected it with --imgedit-executor=ray only")
    from pytest_imgedit.workers.ssh import host_name, parse_host

    where, names = settings.place("workers", "hosts"), set[str]()
    for text in workers.hosts:
        try:
            name = host_name(parse_host(text))
        except UsageError as error:
            raise UsageError(f"{where}{error}") from None
        if name in names:
            found = f"{name} is there twice" if name in text else f"{mask_variables(text)!r}: {name} is there twice"
            raise UsageError(f"{where}workers.hosts: {found}, expected each host once")
        names.add(name)


def _check_target(role: str, target: Target, params: dict[str, Any], settings: Settings) -> None:
    place = settings.place(role, "spec")
    if target.kind in MODEL_KINDS:
        model_name = target.argument or ""
        if is_local(model_name):
            if not Path(model_name).is_dir():
                raise UsageError(f"{place}{role} {target.kind}:{model_name}: no such folder")
            check_checkpoint(Path(model_name), target.kind)
            if target.kind == "qwen-vl":
                read_config(Path(model_name))
    if target.kind == "folder":
        folder, pattern = split_argument(target.argument or "")
        if not folder.is_dir():
            raise UsageError(f"{place}{role} folder:{folder}: no such folder")
        if pattern:
            check_pattern(pattern)
    if target.kind in MODEL_KINDS and "trust_remote_code" in params:
        where = settings.place(role, "trust_remote_code")
        raise UsageError(f"{where}{role}.trust_remote_code: code of a checkpoint is never run, expected no such key")
    problem = find_problem(target, params)
    if problem is not None:
        name, reason = problem
        reason = reason.replace(" is taken", f" is taken by {getattr(settings, role).spec}", 1)
        raise UsageError(f"{settings.place(role, name)}{role}.{name}: {reason}")
    if role == "editor" and target.kind == "diffusers":
        _check_acceleration(params, settings)


def _has_no_gpu(settings: Settings) -> bool:
    """Tell whether it is sure that no GPU is used; hosts are not asked yet."""
    return settings.workers.gpus == "none" or not (is_remote(settings) or choose_gpus(settings.workers.gpus))


def _check_acceleration(params: dict[str, Any], settings: Settings) -> None:
    """Refuse what this machine cannot do, before gigabytes are read for it."""
    if params.get("offload") in OFFLOADS and _has_no_gpu(settings):
        raise UsageError(f"{settings.place('editor', 'offload')}editor.offload: nothing to offload from without a GPU")
    ranks, shard = settings.workers.gpus_per_worker, params.get("shard", {})
    if ranks > 1 and params.get("offload") in OFFLOADS:
        where = settings.place("editor", "offload")
        raise UsageError(
            f"{where}editor.offload: not with --imgedit-gpus-per-worker, where editor.shard.cpu_offload does that"
        )
    if "shard" in params and ranks == 1:
        where = settings.place("editor", "shard")
        raise UsageError(f"{where}editor.shard: nothing to share, expected --imgedit-gpus-per-worker of 2 or more")
    if ranks > 1 and shard.get("strategy") != "none" and params.get("quantize"):
        raise UsageError(f"{settings.place('editor', 'quantize')}editor.quantize: not with a sharded editor")
    if ranks > 1 and params.get("loras") and shard.get("strategy") not in ("context", "none"):
        where = settings.place("editor", "loras")
        raise UsageError(f'{where}editor.loras: not with shards, expected editor.shard.strategy "context" or "none"')
    strategy = shard.get("strategy")
    if ranks > 1 and strategy in ("context", "none") and _has_no_gpu(settings):
        raise UsageError(f"{settings.place('editor', 'shard')}editor.shard.strategy: {strategy!r} needs GPUs")
    elsewhere = is_remote(settings) or settings.workers.editor_python is not None
    if params.get("quantize") and not elsewhere and find_spec("torchao") is None:
        where = settings.place("editor", "quantize")
        raise UsageError(f"{where}editor.quantize: torchao is not installed, pip install pytest-imgedit[fp8]")


def _check_embedded_judge(settings: Settings) -> None:
    """Refuse to have the embedded judge grade what it was not trained on: its scores would mean nothing."""
    suite, judge = settings.suite.spec, settings.judge
    if judge.spec != "scenes":
        return
    if suite.partition(":")[0] != "scenes":
        raise UsageError(
            f"{settings.place('judge', 'spec')}judge 'scenes' knows drawn scenes only and cannot grade the "
            f"suite {suite!r}: name a judge with --imgedit-judge, such as qwen-vl:MODEL or reference"
        )
    if judge.rubric != "aspects" or judge.rubric in settings.rubrics:
        own = " of your own" if judge.rubric in settings.rubrics else ""
        raise UsageError(
            f"{settings.place('judge', 'rubric')}judge.rubric: judge 'scenes' was taught the built-in rubric "
            f"'aspects' and no other, found {judge.rubric!r}{own}"
        )


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
            if judge.spec == NO_JUDGE:
                raise UsageError(f"judge 'none' scores nothing, as {name} needs: name a judge, such as qwen-vl:MODEL")
            config = f" (where a config has it: --imgedit-set={without})" if without else ""
            raise UsageError(f"--imgedit-stage=edit scores nothing, as {name} needs: drop one of them{config}")


def check_baseline(settings: Settings, baseline: dict[str, Any]) -> None:
    """Refuse a baseline that is of another judge, as far as can be told before any weights are read."""
    judge, target = settings.judge, resolve_judge(settings.judge.spec)
    measures = target.kind in MEASURING
    rubric = load_rubric(judge.rubric, settings.rubrics)
    asked = {
        "spec": judge.spec,
        "params": mask_secrets(deciding(target, judge.params)),
        "rubric": None if measures else judge.rubric,
        "rubric_sha256": None if measures else rubric.sha256,
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
