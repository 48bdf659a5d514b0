"""Every message that passes between the controller, workers, and ranks of a sharded editor.

All are dictionaries of plain values, as execnet sends them, told apart by `op`. They stand here
rather than beside the pool, since the ranks of an editor know nothing of workers.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from pytest_imgedit.core.strict_json import JsonObject


class TargetMessage(TypedDict):
    """The class to build."""

    module: str
    attribute: str
    argument: str | None


class CheckpointMessage(TypedDict):
    """A checkpoint to be found on another host, in the same `folder` or `embedded` in this package;
    SHA-256 by file.
    """

    folder: str
    embedded: str | None
    layout: str
    digests: dict[str, str]


# --- from the controller to a worker


class EditJob(TypedDict):
    """Edits to be made in one call of the editor, of sources of one size: fields of
    `EditRequest[bytes]`.
    """

    op: Literal["edit"]
    edits: list[JsonObject]


class JudgeJob(TypedDict):
    """Questions to be put to a judge as one batch: fields of `Question[bytes]`."""

    op: Literal["judge"]
    questions: list[JsonObject]


class Preparing(TypedDict):
    """What every worker of a model is told of it; `unused` are packages that it is to do without.

    Of an editor, `batch_size` is how many edits go into one call, which with `pads_batches` is
    padded to that size. `code` and `files` are SHA-256 by name that must be found where it runs.
    """

    target: TargetMessage
    params: JsonObject
    libraries: list[str]
    unused: list[str]
    is_served: bool
    may_be_blank: bool
    batch_size: NotRequired[int]
    pads_batches: NotRequired[bool]
    checkpoint: NotRequired[CheckpointMessage | None]
    code: NotRequired[dict[str, str]]
    files: NotRequired[dict[str, str]]


class Prepare(Preparing):
    """Import the class, and read its files ahead."""

    op: Literal["prepare"]
    device: str


class Load(TypedDict):
    """Build the model."""

    op: Literal["load"]


class Drop(TypedDict):
    """Leave the jobs that have not begun, and before long the one that is being done."""

    op: Literal["drop"]


Job = EditJob | JudgeJob
ToWorker = Prepare | Load | Drop | EditJob | JudgeJob


# --- from a worker to the controller


class MemoryUsed(TypedDict):
    """The most bytes of memory that a worker has used: of its GPU (`None` without one), and of its
    host.
    """

    gpu: int | None
    host: int


class _Reply(TypedDict):
    """What every reply tells: its `seconds`, the most `memory` that the worker has used so far,
    `code`, where it has imported more modules since the last reply, and of a worker on the CPU
    `cpu_share`, as `workers/hardware.py` says.
    """

    seconds: NotRequired[float]
    memory: NotRequired[MemoryUsed]
    code: NotRequired[dict[str, str]]
    cpu_share: NotRequired[float | None]


class Prepared(_Reply):
    """The class is imported."""

    op: Literal["prepared"]


class Loaded(_Reply):
    """The model is built; `batch_size` is how many edits or questions go into one call at most,
    `environment` holds the fields of an `Environment`.
    """

    op: Literal["loaded"]
    batch_size: int
    environment: JsonObject


class FinishedEdit(TypedDict):
    """An edit as a PNG; `edit_s` is its share in the seconds of a call of `batch_size` edits,
    padding included.

    The thumbnails of edit and source are WebP, for reports; `signature` is as `images.signature`
    says.
    """

    op: Literal["finished"]
    image: bytes
    thumbnail: bytes
    source_thumbnail: bytes
    signature: str
    edit_s: float
    batch_size: int
    near_copy: bool
    width: int
    height: int
    reframed: bool


class FailedEdit(TypedDict):
    """Why an edit failed; `kind` is as in `Failed`."""

    op: Literal["failed"]
    kind: str
    message: str


class Edited(_Reply):
    """A batch is edited: one edit or failure a request, in their order. `batch_size` is the most
    for the next one.
    """

    op: Literal["edited"]
    edits: list[FinishedEdit | FailedEdit]
    batch_size: int


class Judged(_Reply):
    """A batch is judged: the fields of one `Answer` a question, in their order."""

    op: Literal["judged"]
    answers: list[JsonObject]
    batch_size: int


class Step(TypedDict):
    """The running job has come to denoising step `step` of `steps`."""

    op: Literal["step"]
    step: int
    steps: int


class Dropped(_Reply):
    """A job was left undone."""

    op: Literal["dropped"]


class Failed(_Reply):
    """A job, or loading, failed.

    `kind` is `setup`, `bad_image`, `degenerate_output`, `oom` or `exception`; of the pool's own,
    `worker_died`, `timeout` or `no_worker`.
    """

    op: Literal["error"]
    kind: str
    message: str


class Ended(TypedDict):
    """The connection to a worker ended; no worker sends it."""

    op: Literal["ended"]


class NotStartedMessage(TypedDict):
    """A worker did not come up; no worker sends it."""

    op: Literal["not_started"]
    message: str


class Up(TypedDict):
    """The worker's interpreter is there."""

    op: Literal["up"]
    pid: int


JobReply = Edited | Judged | Failed
Reply = Prepared | Loaded | Edited | Judged | Dropped | Failed
FromWorker = Reply | Step | Ended | NotStartedMessage


# --- from rank 0 of a sharded editor to the others, which answer each with a text: why they failed,
# empty if not


class RankSetup(TypedDict):
    """What a rank loads, and where the ranks meet."""

    model: str
    device: str
    params: JsonObject
    ranks: int
    rank: int
    meeting: int


class RankEdit(TypedDict):
    """A call that every rank makes: the fields of an `EditRequest[bytes]`, and arguments that are
    shared by all.
    """

    request: JsonObject
    override: dict[str, int]
