"""What the harness knows of a kind of editor or judge, without torch: its parameters, its
requirements and its identity.

A subclass of `Model` is a kind, such as `diffusers`. An instance of it is the model that one spec
names. A kind and its worker class lie in one file. Kinds of this package and kinds that other
packages add by entry points are equal: nothing outside `kinds/` compares a kind's name.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_imgedit.core import environments, errors, files, targets
from pytest_imgedit.core.measures import SCORE, SCORE_ONLY
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Measure
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import did_you_mean
from pytest_imgedit.core.versions import versions_of
from pytest_imgedit.kinds import checkpoint_files, user_code

if TYPE_CHECKING:  # it imports PIL
    from pytest_imgedit.core.requests import Preparation

GIB = 2**30
Role = Literal["editor", "judge", "metric"]
#: The roles in which every run has one model.
ROLES: tuple[Role, ...] = ("editor", "judge")
#: The option that gives one worker of a role several GPUs.
GPUS_OPTION: Mapping[Role, str] = {
    "editor": "--imgedit-gpus-per-worker",
    "judge": "judge.gpus_per_replica",
    "metric": "--imgedit-gpus",
}
#: Raise this when an editor or judge of this package computes something else, so that stored
#: results are not reused.
REVISION = 7
#: Rough tokens of an image of any size, between those that different servers count.
TOKENS_OF_AN_IMAGE = 150
#: Pixels that cost one token more.
PIXELS_A_TOKEN = 1200
#: Packages of attention kernels, by what the names of backends that take them contain.
ATTENTION_KERNELS: dict[str, tuple[str, ...]] = {
    "flash": ("flash-attn", "flash-attn-3"),
    "sage": ("sageattention",),
    "xformers": ("xformers",),
    "aiter": ("aiter",),
    "hub": ("kernels",),
}
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
#: How a field is marked that is `indifferent`.
_INDIFFERENT: dict[str, Any] = {"decides": False}


def indifferent(default: Any, **rules: Any) -> Any:
    """Return a field that decides where, how fast or at what price something is computed, but not
    the result, so that stored results do not depend on it.
    """
    return Field(default=default, json_schema_extra=_INDIFFERENT, **rules)


def refuse_if(is_wrong: object, key: str, reason: str) -> None:
    """Raise `SettingError`, with the reason, for the setting `key` if `is_wrong` is truthy."""
    if is_wrong:
        raise errors.SettingError(key, reason)


class Parameters(BaseModel):
    """What a kind of editor or judge takes: unknown keys are refused, and no value is converted.

    Each field's description is its line in the documentation.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def parse(cls, params: JsonObject) -> Self:
        """Return the checked parameters, inside a worker; raise `SetupError` for the first that is
        wrong.
        """
        try:
            return cls.check(params)
        except errors.SettingError as problem:
            raise errors.SetupError(f"{problem.key}: {problem}") from None

    @classmethod
    def check(cls, params: JsonObject) -> Self:
        """Return the checked parameters, before anything starts; raise `SettingError` for the first
        that is wrong.
        """
        try:
            return cls.model_validate(params)
        except ValidationError as error:
            raise _first_problem(cls, params, error) from None

    @classmethod
    def deciding(cls, params: JsonObject) -> JsonObject:
        """Return the parameters that are neither `indifferent` nor equal to their defaults."""
        deciding = dict(params)
        defaults: JsonObject = {}
        for name, field_info in cls.model_fields.items():
            if name not in params:
                continue
            if field_info.json_schema_extra == _INDIFFERENT:
                del deciding[name]
            else:
                defaults[name] = field_info.get_default(call_default_factory=True)
        return without_defaults(deciding, defaults)


class ComputeParameters(Parameters):
    """Parameters of every model that is computed here; see `compute/numerics.py`."""

    dtype: Dtype = indifferent(
        "auto", description='`"auto"` is bfloat16 on a GPU and float32 on the CPU'
    )
    deterministic: bool = Field(
        default=True,
        description="TF32 and reduced-precision reductions are off; each worker does one small "
        "job twice when it has loaded, and the run ends if the two differ",
    )


def without_defaults(params: Mapping[str, Any], defaults: Mapping[str, Any]) -> JsonObject:
    """Return the parameters that differ from their defaults or have none.

    4 and 4.0 do not differ, but 1 and `True` do.
    """
    return {
        name: value
        for name, value in params.items()
        if name not in defaults
        or value != defaults[name]
        or isinstance(value, bool) != isinstance(defaults[name], bool)
    }


def _table_model(annotation: Any) -> type[BaseModel]:
    """Return the model of a table, or of the tables of a list, by the annotation of its field."""
    kinds = (annotation, *get_args(annotation))
    return next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))


#: What is expected where a value is none of it, by pydantic's type of the problem.
_SHAPES = {"dict_type": "a table", "list_type": "a list", "model_type": "a table"}


def _first_problem(
    model: type[Parameters], params: JsonObject, error: ValidationError
) -> errors.SettingError:
    """Return the error about the first wrong parameter: an unknown name or key of a table, with the
    closest known one; a value where a table or a list is expected, with the field's example; or
    another wrong value, with all that was expected of it.
    """
    first = error.errors()[0]
    name = str(first["loc"][0])
    is_of_list = len(first["loc"]) > 2  # the name, the number of the entry, and one of its keys
    is_table = is_of_list or isinstance(params.get(name), dict)
    place = first["loc"] if is_table else (name,)
    path = ".".join(map(str, place))
    if first["type"] == "extra_forbidden" and not is_table:
        return errors.SettingError(
            path, f"no such argument is taken{did_you_mean(name, model.model_fields)}"
        )
    if first["type"] == "extra_forbidden":
        table = _table_model(model.model_fields[name].annotation)
        near = did_you_mean(str(first["loc"][-1]), table.model_fields)
        return errors.SettingError(
            path, f"no such key, expected one of {', '.join(table.model_fields)}{near}"
        )
    expectations = dict.fromkeys(
        problem["msg"] for problem in error.errors() if problem["loc"][: len(place)] == place
    )
    if first["type"] in _SHAPES and len(expectations) == 1:
        examples = model.model_fields[name].examples
        form = f", such as {examples[0]}" if examples else ""
        is_entry = isinstance(params.get(name), list) and first["type"] == "model_type"
        shape = "a list of tables" if is_entry else _SHAPES[first["type"]]
        return errors.SettingError(path, f"expected {shape}{form}, found {first['input']!r}")
    return errors.SettingError(path, f"{' or '.join(expectations)}, found {first['input']!r}")


@dataclass(frozen=True)
class Site:
    """What is known of where the workers of a model will run before any of them starts.

    `may_have_gpus` is false if certainly no GPU is used. `is_here` says that workers run in this
    environment: a package that is missing here is missing there. `suite` is the spec of the suite,
    and `is_named` is false for an editor that nobody named. For a judge that will score, `protocol`
    is the name of the protocol, which may be a custom one.
    """

    may_have_gpus: bool = True
    is_here: bool = True
    suite: str = ""
    is_named: bool = True
    protocol: str = ""
    is_custom_protocol: bool = False


@dataclass(frozen=True)
class Requirements:
    """What a model needs beside memory.

    The versions of `packages` decide what it computes. `unused_packages` are optional packages that
    its libraries import if they are installed, and that it never uses. `shares_cpu` says that one
    worker has several processes, which share the CPU if there is no GPU. `prices` are the prices of
    a million tokens, in and out, of a judge that is paid by tokens.
    """

    packages: tuple[str, ...] = ()
    unused_packages: tuple[str, ...] = ()
    shares_cpu: bool = False
    prices: tuple[float, float] | None = None


@dataclass(frozen=True)
class Memory:
    """Memory of one worker: bytes of `weights` on all of its GPUs, and bytes `kept` in host memory.

    `weights` and `reads`, the bytes that loading reads, are `None` if they are not known before
    loading. `offloads` names the parts in which weights are moved to the GPU.
    """

    weights: int | None
    kept: int = 0
    offloads: Literal["", "model", "group"] = ""
    reads: int | None = None

    def __str__(self) -> str:
        if self.offloads == "group":
            return "one block at a time, offloaded"
        size = "of unknown size" if self.weights is None else f"{self.weights / GIB:.1f} GiB"
        return f"{size} at a time, offloaded" if self.offloads else size


@dataclass(frozen=True)
class Room:
    """GPU memory for a model that does not fit: bytes `free` and `total` on the smallest GPU.

    `enough` is the number of GPUs that would hold the weights together, if the GPUs of the run can
    be grouped by it.
    """

    free: float
    total: float
    enough: int | None


@dataclass(frozen=True)
class Where:
    """Where an editor or judge would compute: the kind of device, the product name of its GPUs if
    known, and the interpreter (`None`: this one).

    `versions` looks up versions of packages by their names on another machine. `threads` is the
    number of threads of a worker on the CPU, if known.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    gpu: str | None = None
    python: str | None = None
    versions: Callable[[Sequence[str]], dict[str, str]] | None = None
    threads: int | None = None

    def resolved_dtype(self, params: Mapping[str, Any]) -> str:
        """Return the number format in which a model computes: `auto` is float32 on the CPU and
        bfloat16 on a GPU.
        """
        name = str(params.get("dtype", "auto"))
        usual = "float32" if self.device == "cpu" else "bfloat16"
        return usual if name == "auto" else name


def attention_packages(backend: str) -> list[str]:
    """Return the names of the packages whose kernels an attention backend takes; none for one that
    is `native` to torch.
    """
    packages: list[str] = []
    if "native" not in backend:
        for part, names in ATTENTION_KERNELS.items():
            if part in backend:
                packages += names
    return packages


@dataclass(frozen=True)
class Composition:
    """What a model consists of, as plain JSON values.

    `parts` identifies what it is made of beside code: the content of files, the name of a model.
    `computation` holds what else decides the results: how it computes, rather than with what.
    `lossy` are parameters, as `key=value`, that trade quality for speed. `variant` is that of the
    weights that are loaded.
    """

    parts: JsonObject = field(default_factory=dict)
    computation: JsonObject = field(default_factory=dict)
    lossy: tuple[str, ...] = ()
    variant: str | None = None


@dataclass(frozen=True)
class FinishedImages:
    """Finished images of an editor: by pair id the path of the image, or the reason why there is
    none; and a summary of the images in one line.
    """

    by_pair: Mapping[str, Path | str]
    summary: str


@dataclass(frozen=True)
class Model:
    """An editor or judge as one spec names it, with its `params`, for workers of `gpus` GPUs each.

    Of an editor, `batch_size` is how many edits go into one call.

    A kind sets the class attributes below and overrides what differs.
    """

    role: ClassVar[Role]
    """`"editor"`, `"judge"` or `"metric"`."""
    name: ClassVar[str]
    """What its specs begin with."""
    worker: ClassVar[type[Any]]
    """The class that a worker builds, as `worker(argument, device=…, **parameters)`."""
    takes: ClassVar[str] = ""
    """What follows the name in a spec, such as `MODEL` or `URL#MODEL`."""
    argument_is: ClassVar[Literal["path", "checkpoint"] | None] = None
    """Whether what follows the name is a path, or a checkpoint: a path or a hub id."""
    Params: ClassVar[type[Parameters] | None] = None
    """A pydantic model of its parameters, without which the signature of `worker` declares them.
    `indifferent(…)` marks those that do not decide a result.
    """
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Parameters that hold where the user gives none."""
    libraries: ClassVar[tuple[str, ...]] = ("numpy", "pillow", "scipy")
    """Packages whose versions decide what it computes."""
    is_served: ClassVar[bool] = False
    """Whether a server computes for it, so that its worker takes no GPU of the run. The worker does
    up to `concurrency` jobs at a time if its class has that attribute and a coroutine
    `ask(question)` or `edit(request)`, whose images are encoded.
    """
    has_weights: ClassVar[bool] = True
    """Whether a worker may take GPU memory for it."""
    names_files: ClassVar[tuple[str, ...]] = ()
    """Parameters that are paths, or lists of tables with a `path`; their files are identified by
    content.
    """
    shown_reference: ClassVar[Literal["own", "next"] | None] = None
    """Of editors: the reference image that it is shown, the pair's own or that of the next pair of
    its source, or else of its category.
    """
    may_be_blank: ClassVar[bool] = False
    """Of editors: whether an image of one colour is an edit."""
    pads_batches: ClassVar[bool] = False
    """Of editors: whether a call for fewer edits than the batch size is padded, so that no edit
    depends on the others.
    """
    usual_batch: ClassVar[int] = 1
    """Of editors: how many edits go into one call where `editor.batch_size` is `"auto"` and a
    worker has one GPU.
    """
    scores: ClassVar[bool] = True
    """Of judges: whether it gives scores at all; a run without ends with its edits."""
    measures: ClassVar[bool] = False
    """Of judges: whether it measures, without a protocol."""
    compares: ClassVar[bool] = True
    """Of judges that do not measure: whether it can be asked which of two edits is better; else
    their two scores decide a duel.
    """
    aspects: ClassVar[Mapping[str, Measure] | None] = {}
    """Of judges: what it answers with beside the score; `None` where that is not known."""
    measure: ClassVar[Measure] = SCORE_ONLY[SCORE]
    """Of judges: the scale of a score."""
    grades_by_digits: ClassVar[bool] = False
    """Of judges that expect grades: whether they are made of the probabilities of single digits
    (`Answer.digits`), so that the numbers of a scale need one digit.
    """
    blind_to_words: ClassVar[str] = ""
    """Of judges: why it is not tried with other instructions, such as "does not read instructions".
    """

    spec: str
    argument: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    gpus: int = 1
    batch_size: int = 1

    @classmethod
    def of(cls, spec: str, argument: str | None, params: Mapping[str, Any], gpus: int = 1) -> Self:
        """Return the model that a spec names, with `params` over the kind's `defaults`; raise
        `UsageError` if its argument is missing or unexpected.
        """
        if cls.takes and not argument:
            raise errors.UsageError(
                f"{cls.role} {cls.name!r} needs an argument, expected {cls.name}:{cls.takes}"
            )
        if not cls.takes and argument is not None:
            raise errors.UsageError(
                f"{cls.role} {cls.name!r} takes no argument, found {argument!r}"
            )
        return cls(spec, argument, {**cls.defaults, **params}, gpus)

    def with_params(self, **params: Any) -> Self:
        """Return this model with some parameters changed."""
        return replace(self, params={**self.params, **params})

    @cached_property
    def options(self) -> Parameters:
        """The checked parameters of a kind that declares `Params`."""
        assert self.Params is not None
        return self.Params.check(dict(self.params))

    @property
    def max_sources(self) -> int | None:
        """Of editors: the most source images of a pair (`request.sources`); `None` for any
        number.
        """
        return 1

    @property
    def why_fewer_sources(self) -> str:
        """Of editors: why it takes no more source images, or how it would; may be empty."""
        return ""

    @property
    def target(self) -> targets.Target:
        """The class that a worker builds, with what stands before its parameters."""
        if self.checkpoint is None:
            return targets.Target.of(self.worker, self.argument)
        return targets.Target.of(self.worker, str(self.checkpoint.folder.absolute()))

    @property
    def worker_params(self) -> JsonObject:
        """The parameters with which a worker builds it."""
        return dict(self.params)

    @property
    def checkpoint(self) -> checkpoint_files.Checkpoint | None:
        """Its weights; `None` for a model without."""
        return None

    @property
    def needs_reference(self) -> bool:
        """Whether a judge or a metric cannot measure a pair without a reference image."""
        return False

    @property
    def expects_grades(self) -> bool:
        """Whether grades are the means over a judge's probabilities of the numbers of a scale."""
        return False

    @property
    def requirements(self) -> Requirements:
        """What it needs beside memory: packages, by default the `libraries`, and prices of
        tokens.
        """
        return Requirements(self.libraries)

    def check(self, site: Site) -> None:
        """Raise `SettingError` for the first setting that is wrong, before anything starts."""
        if self.Params is not None:
            self.Params.check(dict(self.params))
            return
        constructor = self._constructor()
        if constructor is not None:
            argument_name = next(iter(constructor.annotations), "")
            reserved = {"device"} if self.target.argument is None else {"device", argument_name}
            constructor.check(self.params, reserved)

    def _constructor(self) -> user_code.Signature | None:
        path = user_code.source_file(self.target.module)
        return user_code.signature(path, self.target.attribute, "__init__") if path else None

    def deciding(self, dtype: str) -> JsonObject:
        """Return the parameters that decide what it computes in the number format `dtype`."""
        if self.Params is not None:
            return self.Params.deciding(dict(self.params))
        constructor = self._constructor()
        return without_defaults(self.params, constructor.defaults if constructor else {})

    def compose(self, where: Where, digests: checkpoint_files.Digests) -> Composition:
        """Return what it consists of; raises `UsageError`, naming the file, for a checkpoint that
        is not whole.
        """
        return Composition()

    @property
    def sends_seeds(self) -> bool:
        """Whether it is a served editor that sends the seed of each edit to its server."""
        return False

    @property
    def reply_limit(self) -> int:
        """The most tokens of a reply, of a judge that may be asked for longer ones; else 0."""
        return 0

    def image_tokens(self, width: int, height: int, preparation: "Preparation") -> float:
        """Return about how many tokens a judge that is paid by tokens makes of an image of this
        size, in pixels.
        """
        return TOKENS_OF_AN_IMAGE + width * height / PIXELS_A_TOKEN

    def memory(self) -> Memory:
        """Return the memory that a worker takes."""
        return Memory(0 if self.is_served or not self.has_weights else None)

    def hint(self, room: Room) -> str:
        """Return a phrase that names the setting with which its weights would fit; empty if there
        is none.
        """
        if room.enough is not None:
            return f"; {GPUS_OPTION[self.role]}={room.enough} would fit"
        return ""

    def settle(self, gpu_bytes: float) -> Self:
        """Return this model with the parameters set that are left to the harness; `gpu_bytes` is
        the memory of the smallest GPU.
        """
        return self

    @property
    def warm_up_line(self) -> str:
        """What a worker does before its first job that a short run may save; usually nothing."""
        return ""

    @property
    def remarks(self) -> Sequence[str]:
        """Lines about settings that are allowed but hardly meant; usually none."""
        return ()

    @property
    def first_requests(self) -> int:
        """How many requests its servers get before the first edit, to try them: one each."""
        return 0

    @property
    def compared_servers(self) -> int:
        """How many servers must first answer a question as the first server did."""
        return 0

    def check_environment(self, here: environments.Environment, asked: Sequence[str]) -> None:
        """Raise `UsageError` for what it lacks where its workers are about to start; `asked` are
        the packages of which the environment tells, which tells of none if it did not answer.
        """

    def reach(self) -> None:
        """Raise `UsageError` if a server that computes for it cannot be reached."""

    def finished_images(self, pairs: Iterable[EditPair]) -> FinishedImages | None:
        """Return the finished images of pairs; `None` for an editor that makes images."""
        return None


class Metric(Model):
    """A number of an edit, such as PSNR, on a scale of its own: its worker is a judge that
    measures, whose `Answer.score` is that number.

    An edit is compared with the image that the parameter `against` names, of the metrics that have
    it.
    """

    role = "metric"
    measures = True
    measure: ClassVar[Measure] = Measure()
    """Of metrics: the scale of its values, by default without ends, and whether lower is better."""

    @property
    def needs_reference(self) -> bool:
        return self.params.get("against") == "reference"


@dataclass(frozen=True)
class CheckpointModel(Model):
    """A model with weights in safetensors.

    Where its parameter `offload` takes `auto` too, the harness chooses `group` for a GPU that
    cannot hold the weights.
    """

    takes = "MODEL"
    argument_is = "checkpoint"
    layout: ClassVar[checkpoint_files.Layout]
    """Of a `CheckpointModel`: how its files lie."""
    offloads: ClassVar[tuple[str, ...]] = ()
    """Of a `CheckpointModel`: the values of its parameter `offload` with which weights stay in host
    memory: `model` moves one component at a time to the GPU, `group` one block.
    """

    @property
    def checkpoint(self) -> checkpoint_files.Checkpoint:
        return checkpoint_files.Checkpoint(self.argument or "", self.layout)

    def component_bytes(self) -> dict[str, int]:
        """Return the bytes of weights in memory, in the number format of `dtype`, by component;
        raise `UsageError` as `Checkpoint.component_bytes` does.
        """
        return self.checkpoint.component_bytes(str(self.params.get("dtype", "auto")))

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights in memory."""
        return sum(self.component_bytes().values())

    def check(self, site: Site) -> None:
        """Raise `SettingError` for a missing folder, a wrong parameter, or offloading that cannot
        be done; raise `UsageError` as `check_folder` does for a folder here, and for quantised
        weights whose package or GPU is missing.
        """
        if checkpoint_files.is_local(self.checkpoint.model):
            refuse_if(
                not Path(self.checkpoint.model).is_dir(),
                "spec",
                f"{self.role} {self.name}:{files.no_such(self.argument or '', 'folder')}",
            )
            self.check_folder()
        refuse_if(
            "trust_remote_code" in self.params,
            "trust_remote_code",
            "code of a checkpoint is never run, expected no such key",
        )
        super().check(site)
        for quantization in self.checkpoint.quantizations:
            if site.is_here:
                asked = quantization.needs.packages
                quantization.require_packages(versions_of(asked), asked)
            if not site.may_have_gpus:
                quantization.require_gpu()
        if self._offload in self.offloads:
            refuse_if(self.gpus > 1, "offload", f"not with {GPUS_OPTION[self.role]}")
            refuse_if(not site.may_have_gpus, "offload", "nothing to offload from without a GPU")

    def check_folder(self) -> None:
        """Raise `UsageError`, naming the file, if the checkpoint is not whole, or is of another
        kind of model.
        """
        self.checkpoint.component_bytes("auto")

    def check_environment(self, here: environments.Environment, asked: Sequence[str]) -> None:
        for quantization in self.checkpoint.quantizations:
            if here.versions:
                quantization.require_packages(here.versions, asked)
            if here.device == "cpu":
                quantization.require_gpu()

    def compose(self, where: Where, digests: checkpoint_files.Digests) -> Composition:
        self.check_folder()
        checkpoint = self.checkpoint
        folder = checkpoint.folder
        names = checkpoint_files.loaded_files(
            folder, self.layout, checkpoint.variant, checkpoint.without
        )
        return Composition(
            {"files": digests.of(folder, names)},
            {"dtype": where.resolved_dtype(self.params)},
            variant=checkpoint_files.used_variant(
                folder, self.layout, checkpoint.variant, checkpoint.without
            ),
        )

    @property
    def _offload(self) -> str:
        return str(self.params.get("offload", "auto"))

    def memory(self) -> Memory:
        """Return the memory that a worker takes: all weights; with `offload`, its largest component
        (`model`) or a block of unknown size (`group`), while host memory keeps all weights.
        """
        parts = self.component_bytes()
        weights = sum(parts.values())
        if self._offload not in self.offloads:
            return Memory(weights, reads=weights)
        if self._offload == "group":
            return Memory(None, weights, "group", weights)
        return Memory(max(parts.values()), weights, "model", weights)

    def hint(self, room: Room) -> str:
        """Return a phrase that says what would hold the weights: several GPUs of the run, a GPU of
        its own, offloading, or a number of such GPUs.
        """
        if room.enough is not None:
            return super().hint(room)
        fits_alone = self.weight_bytes <= room.total
        if "group" in self.offloads:
            alone = "a GPU of its own would hold them, " if fits_alone else ""
            return f'; {alone}{self.role}.offload="group" needs least'
        if fits_alone:
            return "; a GPU of its own would hold them"
        return f"; {math.ceil(self.weight_bytes / room.total)} such GPUs would hold them"

    def settle(self, gpu_bytes: float) -> Self:
        """Return this model, set to offload block by block if a GPU cannot hold its weights and
        the user has not decided about that.
        """
        may_offload = self._offload == "auto" and "group" in self.offloads and self.gpus == 1
        if may_offload and gpu_bytes < self.weight_bytes:
            return self.with_params(offload="group")
        return self
