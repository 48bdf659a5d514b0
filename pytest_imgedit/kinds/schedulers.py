"""The scheduler of a diffusers pipeline: what `editor.scheduler` may say of it, what that changes,
and whether the pipeline can use it, read from diffusers' source; imports neither torch nor
diffusers.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import did_you_mean
from pytest_imgedit.kinds import checkpoint_files, scheduler_keys
from pytest_imgedit.kinds.base import refuse_if, without_defaults
from pytest_imgedit.kinds.pipeline_arguments import pipeline_class
from pytest_imgedit.kinds.pipeline_index import pipeline_source
from pytest_imgedit.kinds.user_code import Signature, signature, source_file

#: Where a scheduler's configuration lies in a pipeline's folder.
CONFIG = "scheduler/scheduler_config.json"
#: The text that stands for None, which TOML lacks. No scheduler takes a text of this name.
NONE = "none"
#: The key of `editor.scheduler` that names the class.
CLASS = "class"
#: Arguments of `set_timesteps` that hold a schedule.
SCHEDULES = ("sigmas", "timesteps")
#: Schedulers that ask nothing particular of a model, and the most that a message names.
_GENERAL = (
    "FlowMatchEulerDiscreteScheduler",
    "EulerDiscreteScheduler",
    "DPMSolverMultistepScheduler",
    "DDIMScheduler",
)
_SUGGESTED = 4
_TYPES: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "list": (list,),
}


@dataclass(frozen=True)
class Class:
    """What the source of a scheduler says: the arguments of `__init__` and of `set_timesteps`, and
    all names that its instances have.
    """

    init: Signature
    set_timesteps: Signature
    names: frozenset[str]

    @property
    def stretches(self) -> bool:
        """Whether its schedules are stretched to a `shift_terminal`."""
        return "stretch_shift_to_terminal" in self.names


@dataclass(frozen=True)
class Use:
    """What a pipeline's source does with its scheduler: the attributes that it reads, whether it
    passes sigmas of its own, `may_drop_sigmas` where the scheduler's `use_flow_sigmas` is set, and
    the further arguments of `set_timesteps`, such as `mu`.
    """

    attributes: frozenset[str]
    passes_sigmas: bool
    may_drop_sigmas: bool
    further: frozenset[str]


@dataclass(frozen=True)
class Scheduler:
    """The scheduler of a pipeline: the `base` configuration of its folder, with the table of
    `editor.scheduler` laid over it.
    """

    base: JsonObject
    table: JsonObject

    @property
    def name(self) -> str:
        """Its class; empty if neither the table nor the base names one."""
        return str(self.table.get(CLASS) or self.base.get("_class_name") or "")

    @property
    def given(self) -> JsonObject:
        """The arguments of its class that the table holds."""
        return {
            key: None if value == NONE else value
            for key, value in self.table.items()
            if key != CLASS
        }

    @property
    def config(self) -> JsonObject:
        """All arguments of its class as they hold: given, of the base, or defaults. Defaults that
        are no plain values are left out.
        """
        known = class_of(self.name)
        if known is None:
            return self.given
        values = {**known.init.defaults, **self.base, **self.given}
        return {key: values[key] for key in known.init.annotations if key in values}

    def over_base(self, base: JsonObject) -> JsonObject:
        """Return the least table that makes this scheduler of another one's configuration `base`;
        None is written as the text `none`.
        """
        name = {} if self.name == base.get("_class_name") else {CLASS: self.name}
        differing = without_defaults(self.config, Scheduler(base, name).config)
        return {
            **name,
            **{key: NONE if value is None else value for key, value in differing.items()},
        }


def scheduler_of(model: str, table: Mapping[str, Any]) -> Scheduler:
    """Return the scheduler of a pipeline with a table laid over it; its base is empty if the
    pipeline has none or is not on this machine.
    """
    return Scheduler(config_of(model, CONFIG), dict(table))


def config_of(model: str, name: str) -> JsonObject:
    """Return a JSON file of a pipeline, of its folder or of the hub's cache; empty if it is not
    there.
    """
    checkpoint = checkpoint_files.Checkpoint(model, checkpoint_files.Layout.PIPELINE)
    path = Path(checkpoint.snapshot or model) / name
    if not checkpoint_files.is_local(model) and checkpoint.snapshot is None:
        cached = checkpoint.cached_file(name)
        if cached is None:
            return {}
        path = cached
    return files.read_object(path, "a pipeline's config") if path.is_file() else {}


def deciding(model: str, table: Mapping[str, Any]) -> JsonObject:
    """Return what of a table changes the scheduler of a pipeline; the whole table where its own
    configuration is not known.
    """
    scheduler = scheduler_of(model, table)
    if not scheduler.base or class_of(scheduler.name) is None:
        return dict(table)
    return scheduler.over_base(scheduler.base)


@cache
def names() -> frozenset[str]:
    """Return the names of the schedulers that diffusers offers; none if its source is not found."""
    offered = source_file("diffusers.schedulers")
    if offered is None:
        return frozenset()
    found = re.findall(r'"(\w+)"', offered.read_text("utf-8"))
    return frozenset(name for name in found if name in _files())


@cache
def _files() -> Mapping[str, Path]:
    """Return the source file of each class of schedulers."""
    offered = source_file("diffusers.schedulers")
    found: dict[str, Path] = {}
    for path in sorted(offered.parent.rglob("scheduling_*.py")) if offered else ():
        for name in re.findall(r"^class (\w+)\([^)]*SchedulerMixin", path.read_text("utf-8"), re.M):
            found.setdefault(name, path)
    return found


@cache
def class_of(name: str) -> Class | None:
    """Return what the source of a scheduler says; `None` for one that diffusers does not offer."""
    if name not in names():
        return None
    path = _files()[name]
    init = signature(path, name, "__init__")
    set_timesteps = signature(path, name, "set_timesteps")
    if init is None or set_timesteps is None:
        return None
    return Class(init, set_timesteps, frozenset(_names_of(_class_node(path, name))))


def _class_node(path: Path, name: str) -> ast.ClassDef:
    """Return the definition of a class in a source file that has it."""
    body = ast.parse(path.read_text("utf-8")).body
    return next(node for node in body if isinstance(node, ast.ClassDef) and node.name == name)


def _names_of(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names of methods, attributes of the class, and what methods assign to `self`."""
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef):
            yield part.name
        elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
            yield part.attr
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id


@cache
def use_of(pipeline: str) -> Use | None:
    """Return what a pipeline's source does with its scheduler; `None` if it is not found."""
    path = pipeline_source(pipeline)
    if path is None:
        return None
    body = _class_node(path, pipeline)
    nodes = list(ast.walk(body))
    assigned = [
        (ast.unparse(node.targets[0]), node.value) for node in nodes if isinstance(node, ast.Assign)
    ]
    calls = [(ast.unparse(node.func), node) for node in nodes if isinstance(node, ast.Call)]
    attributes = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self.scheduler"
    }
    asked = {
        str(getattr(call.args[1], "value", ""))
        for name, call in calls
        if name == "hasattr" and ast.unparse(call.args[0]) == "self.scheduler"
    }
    words: set[str] = set()
    for name, call in calls:
        if name in ("retrieve_timesteps", "self.scheduler.set_timesteps"):
            words.update(_words(call, assigned))
    has_own_sigmas = any(
        name == "sigmas" and ast.unparse(value) != "None" for name, value in assigned
    )
    return Use(
        frozenset(attributes - asked - {"config", "order"}),
        passes_sigmas="sigmas" in words and has_own_sigmas,
        may_drop_sigmas="use_flow_sigmas" in ast.unparse(body),
        further=frozenset(words - {"num_inference_steps", "device", "scheduler", *SCHEDULES}),
    )


def _words(call: ast.Call, assigned: Sequence[tuple[str, ast.expr]]) -> Iterator[str]:
    """Yield the names of the arguments of a call, with those of dictionaries that it unpacks."""
    for word in call.keywords:
        if word.arg:
            yield word.arg
        for name, value in assigned:
            if not word.arg and name == ast.unparse(word.value) and isinstance(value, ast.Dict):
                yield from (str(getattr(key, "value", "")) for key in value.keys)


def check(model: str, table: Mapping[str, Any], call: Mapping[str, Any]) -> None:
    """Raise `SettingError` for a table that no scheduler of diffusers takes, for a scheduler that
    the pipeline of a checkpoint cannot use, for a key that changes nothing, and for a scheduler
    that cannot make a schedule of `call`.

    What cannot be known without the checkpoint (a hub id that is not here) is left to the worker.
    """
    schedules = [name for name in SCHEDULES if name in call]
    is_one_step = call.get("num_inference_steps") == 1
    if not (table or schedules or is_one_step) or not names():
        return
    scheduler = scheduler_of(model, table)
    if table:
        _check_table(scheduler)
    known = class_of(scheduler.name)
    pipeline = pipeline_class(model)
    use = use_of(pipeline) if pipeline else None
    if known is None or use is None:
        return
    problem = _why_unusable(known, use, scheduler.config) if table else ""
    if problem:
        raise errors.SettingError(
            "scheduler",
            f"{pipeline} cannot use {scheduler.name}: {problem}, expected one such as "
            f"{_usable(use, scheduler)}",
        )
    _check_effect(scheduler, known, pipeline or "")
    for name in schedules:
        if name not in known.set_timesteps.annotations:
            raise errors.SettingError(
                name,
                f"{scheduler.name} takes no {name} of its own, expected a scheduler that does, "
                f"such as {_usable(use, scheduler, name)}",
            )
    if known.stretches and scheduler.config.get("shift_terminal"):
        _check_stretch(scheduler, call)


def _check_stretch(scheduler: Scheduler, call: Mapping[str, Any]) -> None:
    """Raise `SettingError` for a schedule that ends at a sigma of 1, as one step does: to stretch
    its distance from 1 is to divide zero by zero.
    """
    terminal = scheduler.config["shift_terminal"]
    because = f"{scheduler.name} cannot stretch to its shift_terminal of {terminal}"
    unstretched = f'editor.scheduler.shift_terminal="{NONE}"'
    sigmas = call.get("sigmas")
    refuse_if(
        isinstance(sigmas, list) and sigmas[-1:] == [1],
        "sigmas",
        f"the last of them is 1, which {because}, expected less, or {unstretched}",
    )
    refuse_if(
        call.get("num_inference_steps") == 1 and not call.keys() & set(SCHEDULES),
        "num_inference_steps",
        f"1 step, which {because}, expected 2 steps or more, or {unstretched}",
    )


def _check_effect(scheduler: Scheduler, known: Class, pipeline: str) -> None:
    """Raise `SettingError` for a key that changes nothing as the scheduler is, unless it only
    writes out the base's value or the default.
    """
    name, config = scheduler.name, scheduler.config
    plain = Scheduler(scheduler.base, {CLASS: name}).config
    idle = scheduler_keys.idle_keys(name, config, pipeline)
    for key, value in scheduler.given.items():
        refuse_if(
            key in idle and value not in (plain.get(key), known.init.defaults.get(key)),
            f"scheduler.{key}",
            scheduler_keys.why_idle(key, value, name, config, pipeline) if key in idle else "",
        )


def _check_table(scheduler: Scheduler) -> None:
    """Raise `SettingError` for an unknown class or key, and for a value of another type."""
    name = scheduler.table.get(CLASS)
    refuse_if(
        name is not None and name not in names(),
        f"scheduler.{CLASS}",
        f"found {name!r}, expected a scheduler of diffusers, such as "
        f"FlowMatchEulerDiscreteScheduler{did_you_mean(str(name), names())}",
    )
    known = class_of(scheduler.name)
    if known is None:
        return
    for key, value in scheduler.given.items():
        near = did_you_mean(key, [CLASS, *known.init.annotations])
        if key == "_class_name":  # as a scheduler_config.json has it
            near = f"; did you mean {CLASS!r}?"
        refuse_if(
            key not in known.init.annotations,
            f"scheduler.{key}",
            f"{scheduler.name} takes no such key{near}",
        )
        expected = _expected(known.init, key, value)
        refuse_if(expected, f"scheduler.{key}", f"found {value!r}, expected {expected}")


def _expected(init: Signature, key: str, value: Any) -> str:
    """Return what an argument takes if that is known and `value` is not of it, else an empty
    text.
    """
    annotation = init.annotations[key]
    takes_none = init.defaults.get(key, "") is None or key not in init.defaults
    if not annotation or (value is None and takes_none):
        return ""
    parts: list[str] = []
    for part in _union(ast.parse(annotation, mode="eval").body):
        if isinstance(part, ast.Subscript) and ast.unparse(part.value).endswith("Literal"):
            choices = ast.literal_eval(part.slice)
            choices = choices if isinstance(choices, tuple) else (choices,)
            if value in choices:
                return ""
            parts += map(repr, choices)
            continue
        name = ast.unparse(part.value if isinstance(part, ast.Subscript) else part)
        if name == "None":
            if value is None:
                return ""
            parts.append(f'"{NONE}"')
        elif name in _TYPES:
            is_bool = isinstance(value, bool)
            if isinstance(value, _TYPES[name]) and is_bool == (name == "bool"):
                return ""
            parts.append(name)
        elif name not in ("np.ndarray", "torch.Tensor", "Callable"):
            return ""
    return " or ".join(parts)


def _union(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the types of an annotation such as `float | None`, `Optional[float]` or
    `Union[str, float]`.
    """
    if isinstance(node, ast.BinOp):
        yield from _union(node.left)
        yield from _union(node.right)
    elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(
        ("Optional", "Union")
    ):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for part in inner:
            yield from _union(part)
        if ast.unparse(node.value).endswith("Optional"):
            yield ast.Constant(None)
    else:
        yield node


def _why_unusable(known: Class, use: Use, config: JsonObject) -> str:
    """Return why a pipeline cannot use a scheduler, or an empty text."""
    missing = sorted(use.attributes - known.names)
    if missing:
        return f"it has no {missing[0]}"
    taken = known.set_timesteps.annotations
    drops_sigmas = use.may_drop_sigmas and bool(config.get("use_flow_sigmas"))
    if use.passes_sigmas and not drops_sigmas and "sigmas" not in taken:
        return "it takes no sigmas of the pipeline"
    untaken = sorted(use.further - taken.keys())
    if untaken:
        return f"it takes no {untaken[0]} of the pipeline"
    if "mu" in taken and "mu" not in use.further and config.get("use_dynamic_shifting"):
        return "use_dynamic_shifting needs a mu, which the pipeline does not pass"
    return ""


def _usable(use: Use, scheduler: Scheduler, schedule: str = "") -> str:
    """Return the schedulers that a pipeline can use, the base's class and a few general ones, else
    any; only those that take a `schedule` if one is named.
    """
    own = str(scheduler.base.get("_class_name"))
    usable: list[str] = []
    for name in dict.fromkeys([own, *_GENERAL, *sorted(names())]):
        known = class_of(name)
        if known is None or _why_unusable(known, use, {}):
            continue
        if not schedule or schedule in known.set_timesteps.annotations:
            usable.append(name)
    general = [name for name in usable if name in (own, *_GENERAL)]
    return ", ".join((general or usable)[:_SUGGESTED])


def needs_scipy(scheduler: Scheduler) -> bool:
    """Tell whether a scheduler may need scipy; it may if nothing is known of it."""
    if not scheduler.name:
        return True
    is_beta = bool(scheduler.config.get("use_beta_sigmas"))
    return is_beta or scheduler.name.startswith(("LMS", "DPMSolverSDE"))
