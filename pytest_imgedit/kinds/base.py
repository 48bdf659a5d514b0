"""What a kind of editor or judge is to the harness: all that it knows of a model, without torch.

A subclass of `Model` is a kind, such as `diffusers`; an instance of it is what one spec names. A
kind and the class that its workers build lie in one file. Kinds of this package and kinds that
other packages add by entry points are equal: nothing outside of `kinds/` asks which one it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pytest_imgedit.core.errors import SettingError, UsageError
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.targets import Target
from pytest_imgedit.kinds.fingerprints import Digests
from pytest_imgedit.kinds.hub import Checkpoint
from pytest_imgedit.kinds.parameters import Parameters, without_defaults
from pytest_imgedit.kinds.requirements import Memory, Requirements, Room, Site, Where, Workload
from pytest_imgedit.kinds.source import signature, source_file

Role = Literal["editor", "judge"]
ROLES: tuple[Role, ...] = ("editor", "judge")
#: The option that gives one worker of a role several GPUs.
GPUS_OPTION: Mapping[Role, str] = {
    "editor": "--imgedit-gpus-per-worker",
    "judge": "judge.gpus_per_replica",
}
#: To be raised when an editor or judge of this package changes what it computes, so that stored
#: results are not reused.
REVISION = 6


@dataclass(frozen=True)
class Composition:
    """What a model consists of, as plain JSON values.

    `parts` is what it is made of beside code: the content of files, the name of a model.
    `computation` is what further decides what it computes: how, rather than with what. `lossy` are
    parameters, as `key=value`, that trade quality for speed.
    """

    parts: JsonObject = field(default_factory=dict)
    computation: JsonObject = field(default_factory=dict)
    lossy: tuple[str, ...] = ()


@dataclass(frozen=True)
class FinishedImages:
    """Finished images that an editor hands over: by pair id the image, or why there is none; and
    which there are.
    """

    by_pair: Mapping[str, Path | str]
    summary: str


@dataclass(frozen=True)
class Model:
    """An editor or judge as one spec names it, with its `params`, for workers of `gpus` GPUs each.

    Of an editor, `batch_size` is how many edits go into one call.

    A kind sets the class attributes below and overrides what differs. `worker` is the class that
    workers build. `takes` says what follows the name in a spec, such as `MODEL`; `Params` is the
    one declaration of its parameters, without which the signature of the class says what it takes.
    `defaults` are parameters that hold where the user gives none. `libraries` are the packages
    whose versions decide what it computes.
    """

    role: ClassVar[Role]
    name: ClassVar[str]
    worker: ClassVar[type[Any]]
    takes: ClassVar[str] = ""
    #: Whether what follows the name is a path, or a checkpoint: a path or a hub id.
    argument_is: ClassVar[Literal["path", "checkpoint"] | None] = None
    Params: ClassVar[type[Parameters] | None] = None
    defaults: ClassVar[Mapping[str, Any]] = {}
    libraries: ClassVar[tuple[str, ...]] = ("numpy", "pillow", "scipy")
    #: Whether a server computes for it, so that its workers take no GPU of the run.
    is_served: ClassVar[bool] = False
    #: Whether a worker may take GPU memory for it.
    has_weights: ClassVar[bool] = True
    #: Parameters that are paths, or lists of tables with a `path`; their files are identified by
    #: content.
    names_files: ClassVar[tuple[str, ...]] = ()

    #: Of editors: the reference image that it is shown, the pair's own or that of the next pair in
    #: its category.
    shown_reference: ClassVar[Literal["own", "next"] | None] = None
    #: Of editors: whether an image of one colour is an edit.
    may_be_blank: ClassVar[bool] = False
    #: Of editors: whether a call for fewer edits than the batch size is padded, so that no edit
    #: depends on the others.
    pads_batches: ClassVar[bool] = False
    #: Of editors: how many edits go into one call where `editor.batch_size` is `"auto"` and a
    #: worker has one GPU.
    usual_batch: ClassVar[int] = 1

    #: Of judges: whether it gives scores at all; a run without ends with its edits.
    scores: ClassVar[bool] = True
    #: Of judges: whether it measures, so that no rubric is put to it.
    measures: ClassVar[bool] = False
    needs_reference: ClassVar[bool] = False

    spec: str
    argument: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    gpus: int = 1
    batch_size: int = 1

    @classmethod
    def of(cls, spec: str, argument: str | None, params: Mapping[str, Any], gpus: int = 1) -> Self:
        """Make the model that a spec names; raises `UsageError` if it lacks its argument, or has
        one to spare.
        """
        if cls.takes and not argument:
            raise UsageError(
                f"{cls.role} {cls.name!r} needs an argument, expected {cls.name}:{cls.takes}"
            )
        if not cls.takes and argument is not None:
            raise UsageError(f"{cls.role} {cls.name!r} takes no argument, found {argument!r}")
        return cls(spec, argument, {**cls.defaults, **params}, gpus)

    def with_params(self, **params: Any) -> Self:
        """Return this model with some parameters changed."""
        return replace(self, params={**self.params, **params})

    @property
    def target(self) -> Target:
        """The class that a worker builds, with what stands before its parameters."""
        argument = (
            self.argument if self.checkpoint is None else str(self.checkpoint.folder.absolute())
        )
        return Target.of(self.worker, argument)

    @property
    def worker_params(self) -> JsonObject:
        """The parameters with which a worker builds it."""
        return dict(self.params)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Its weights; `None` for a model without."""
        return None

    @property
    def requirements(self) -> Requirements:
        """What it needs beside memory."""
        return Requirements(self.libraries)

    def check(self, site: Site) -> None:
        """Raise `SettingError` for what can be told to be wrong before anything starts."""
        if self.Params is not None:
            self.Params.check(dict(self.params))
            return
        target = self.target
        path = source_file(target.module)
        taken = signature(path, target.attribute, "__init__") if path else None
        if taken is not None:
            first = next(iter(taken.annotations), "")
            reserved = {"device"} if target.argument is None else {"device", first}
            if problem := taken.problem(self.params, reserved):
                raise SettingError(*problem)

    def deciding(self, dtype: str) -> JsonObject:
        """Return the parameters that decide what it computes; `dtype` is the number format in which
        it does.
        """
        if self.Params is not None:
            return self.Params.deciding(dict(self.params))
        path = source_file(self.target.module)
        taken = signature(path, self.target.attribute, "__init__") if path else None
        return without_defaults(dict(self.params), {} if taken is None else dict(taken.defaults))

    def compose(self, where: Where, digests: Digests) -> Composition:
        """Find what it consists of; raises `UsageError`, naming the file, for a checkpoint that is
        not whole.
        """
        return Composition()

    def memory(self) -> Memory:
        """Tell what a worker holds."""
        return Memory(0 if self.is_served or not self.has_weights else None)

    def hint(self, room: Room) -> str:
        """Name the setting with which its weights would fit into what is free; an empty text if
        there is none.
        """
        if room.enough is not None:
            return f"; {GPUS_OPTION[self.role]}={room.enough} would fit"
        return ""

    def settle(self, workload: Workload) -> Self:
        """Decide the parameters that are left to the harness."""
        return self

    def reach(self) -> None:
        """Raise `UsageError` if a server that computes for it cannot be reached."""

    def finished_images(self, pairs: Iterable[EditPair]) -> FinishedImages | None:
        """Return the finished images of pairs; `None` for an editor that makes images."""
        return None
