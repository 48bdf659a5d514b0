"""What the plan says of adapters and the schedule: of one that names another scheduler than the one
in use, and of one that was made for few steps; imports neither torch nor diffusers.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds import adapter_files, scheduler_keys
from pytest_imgedit.kinds.base import without_defaults
from pytest_imgedit.kinds.pipeline_arguments import call_signature, pipeline_class
from pytest_imgedit.kinds.pipeline_index import pipeline_source
from pytest_imgedit.kinds.schedulers import (
    CONFIG,
    NONE,
    SCHEDULES,
    Scheduler,
    class_of,
    config_of,
    scheduler_of,
)
from pytest_imgedit.kinds.user_code import Signature

#: What Qwen-Image-Lightning was distilled with, by its authors' `generate_with_diffusers.py`: a
#: shift of 3, so a base and a largest shift of ln 3, and no stretching to a last sigma.
LIGHTNING: Mapping[str, Any] = {
    "base_shift": math.log(3),
    "max_shift": math.log(3),
    "shift": 1.0,
    "shift_terminal": NONE,
    "time_shift_type": "exponential",
    "use_dynamic_shifting": True,
}
#: How near two shifts are that count as one: `math.log(3)` may be written as 1.0986.
_SAME_SHIFT = 1e-4
#: A number of steps in the name of an adapter, such as `4steps` or `8-step`, up to the 16 that
#: Hyper-SD was made for. Trainers write the step of a checkpoint after the word.
_STEPS = re.compile(
    r"(?<![0-9.])([1-9]|1[0-6])[-_ ]?(steps|step(?![-_ ]?[0-9]))(?![a-z])", re.IGNORECASE
)
#: Names that trainers give to what they save on the way, whatever number of steps they say.
_TRAINING = re.compile("checkpoint|warm-?up", re.IGNORECASE)


def as_toml(table: Mapping[str, Any]) -> str:
    """Return a table as one line of TOML."""
    pairs = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    return "{" + ", ".join(pairs) + "}"


def adapter_remarks(
    model: str, table: Mapping[str, Any], call: Mapping[str, Any], adapter: str
) -> Iterator[str]:
    """Yield lines about an adapter that is used with another scheduler than it names, or, as far as
    its name says Lightning or a number of steps, with other settings than it was made for.
    """
    scheduler = scheduler_of(model, table)
    path = Path(adapter)
    named = adapter_scheduler(path)
    if named and scheduler.base:
        yield from _named_remark(scheduler, named, adapter, pipeline_class(model) or "")
    yield from _name_remark(model, scheduler, call, path, has_scheduler=bool(named))


def _named_remark(
    scheduler: Scheduler, named: JsonObject, adapter: str, pipeline: str
) -> Iterator[str]:
    """Yield a line if a configuration that an adapter names differs from the scheduler in use."""
    is_whole = "_class_name" in named
    wanted = Scheduler(named if is_whole else {**scheduler.base, **named}, {})
    if class_of(wanted.name) is None:
        return
    differing = [
        f"{key} {value!r}, not {scheduler.config.get(key)!r}"
        for key, value in _wanted_keys(wanted, scheduler, pipeline).items()
    ]
    if wanted.name != scheduler.name:
        differing.insert(0, f"{wanted.name}, not {scheduler.name}")
    if differing:
        remedy = as_toml(_table(wanted, scheduler.base, pipeline))
        yield (
            f"{adapter} names another scheduler than the one in use ({', '.join(differing)}); "
            f"editor.scheduler={remedy} is what it names"
        )


def _name_remark(
    model: str, scheduler: Scheduler, call: Mapping[str, Any], path: Path, *, has_scheduler: bool
) -> Iterator[str]:
    """Yield a line if the name of an adapter says other steps than the call takes, and what else
    few steps want.
    """
    count = steps_of(path.stem)
    is_lightning = "lightning" in path.stem.lower()
    pipeline = pipeline_class(model)
    taken = call_signature(pipeline) if pipeline else None
    if pipeline is None or taken is None or not (count or is_lightning):
        return
    found: list[str] = []
    settings: list[str] = []
    in_use = {**taken.defaults, **call}
    schedule = next((name for name in SCHEDULES if isinstance(call.get(name), list)), None)
    steps = len(call[schedule]) if schedule else in_use.get("num_inference_steps")
    if count and count != steps:
        found.append(f"{steps} {schedule or 'steps'}")
        wanted = f"{count} values of editor.{schedule}"
        settings.append(wanted if schedule else f"editor.num_inference_steps={count}")
    key = _guidance_key(model, pipeline, taken)
    scale = in_use.get(key)
    if isinstance(scale, int | float) and scale > 1:
        found.append(f"{key} {scale}")
        settings.append(f"editor.{key}=1.0")
    if is_lightning and scheduler.base and not has_scheduler and pipeline.startswith("QwenImage"):
        lightning = Scheduler(scheduler.base, dict(LIGHTNING))
        differing = list(_unlike(lightning, scheduler, pipeline))
        is_base = not scheduler.over_base(scheduler.base)
        if differing:
            found += ["the model's own scheduler"] if is_base else differing
            settings.append(
                f"editor.scheduler={as_toml(_table(lightning, scheduler.base, pipeline))}"
            )
    if found:
        made_for = f"{count} steps" if count else "few steps"
        yield (
            f"{path} is by its name an adapter for {made_for}, found {', '.join(found)}; "
            f"expected {', '.join(settings)}"
        )


def _unlike(wanted: Scheduler, scheduler: Scheduler, pipeline: str) -> Iterator[str]:
    """Yield in what a scheduler differs from the wanted one, as `key 0.02, not None`."""
    if wanted.name != scheduler.name:
        yield f"{scheduler.name}, not {wanted.name}"
    for key, value in _wanted_keys(wanted, scheduler, pipeline).items():
        yield f"{key} {scheduler.config.get(key)!r}, not {value!r}"


def _wanted_keys(wanted: Scheduler, scheduler: Scheduler, pipeline: str) -> JsonObject:
    """Return the values of the wanted scheduler that another one lacks, as far as they change
    schedules: two ways to write one shift do not differ.
    """
    passed_over = set(scheduler_keys.idle_keys(wanted.name, wanted.config, pipeline))
    shift, found = (
        scheduler_keys.fixed_shift(one.name, one.config, pipeline) for one in (wanted, scheduler)
    )
    if shift is not None and found is not None and math.isclose(shift, found, rel_tol=_SAME_SHIFT):
        passed_over.update(scheduler_keys.OF_SHIFT)
    differing = without_defaults(wanted.config, scheduler.config)
    return {key: value for key, value in differing.items() if key not in passed_over}


def _table(wanted: Scheduler, base: JsonObject, pipeline: str) -> JsonObject:
    """Return the least table that makes a scheduler of a base, without keys that change nothing."""
    idle = scheduler_keys.idle_keys(wanted.name, wanted.config, pipeline)
    return {key: value for key, value in wanted.over_base(base).items() if key not in idle}


def steps_of(name: str) -> int | None:
    """Return the few steps that an adapter was made for, by its name; `None` if it says none."""
    match = None if _TRAINING.search(name) else _STEPS.search(name)
    return int(match[1]) if match else None


def _guidance_key(model: str, pipeline: str, taken: Signature) -> str:
    """Return the argument of a call that runs classifier-free guidance if it is above 1; empty if
    there is none, as of a model that is distilled already.
    """
    if "true_cfg_scale" in taken.annotations:
        return "true_cfg_scale"
    path = pipeline_source(pipeline)
    is_guided = path is not None and "classifier_free_guidance" in path.read_text("utf-8")
    is_distilled = config_of(model, "model_index.json").get("is_distilled") is True
    has_scale = "guidance_scale" in taken.annotations
    return "guidance_scale" if is_guided and has_scale and not is_distilled else ""


def adapter_scheduler(path: Path) -> JsonObject:
    """Return the configuration of a scheduler that lies beside an adapter's file or in its folder,
    or that the metadata of the file holds; empty if there is none that can be read.
    """
    folder = path if path.is_dir() else path.parent
    for name in ("scheduler_config.json", CONFIG):
        with suppress(errors.UsageError):
            if (folder / name).is_file():
                return files.read_object(folder / name, "the config of a scheduler")
    metadata = adapter_metadata(path)
    for key in ("scheduler", "scheduler_config"):
        with suppress(ValueError):
            value = json.loads(metadata.get(key, ""))
            if isinstance(value, dict):
                return value
    return {}


def adapter_metadata(path: Path) -> Mapping[str, str]:
    """Return the metadata of an adapter's weights; empty for one that cannot be read."""
    with suppress(errors.UsageError):
        return adapter_files.find(str(path)).metadata
    return {}
