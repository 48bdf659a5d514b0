"""Every message between the controller and its workers: dictionaries of plain values, as execnet
sends them, which differ by `op`.
"""

from typing import Literal, NotRequired, TypedDict

from pytest_imgedit.core.strict_json import JsonObject

# --- from the controller to a worker


class _Job(TypedDict):
    """Every job has a `number` of its own, which is also that of its reply."""

    number: NotRequired[int]


class EditJob(_Job):
    """Edits for one call of the editor, with as many sources of the same sizes: fields of
    `EditRequest[bytes]`.
    """

    op: Literal["edit"]
    edits: list[JsonObject]


class JudgeJob(_Job):
    """Questions to a judge as one batch: fields of `Question[bytes]`."""

    op: Literal["judge"]
    questions: list[JsonObject]


class Preparing(TypedDict):
    """The description of a model for its workers; `target` holds the fields of a `Target`, `unused`
    names packages that must not be imported.

    For an editor, `batch_size` is the number of edits of one call, which `pads_batches` pads to
    that size. `checkpoint` holds the arguments of `find_checkpoint` on another host. `code` and
    `files` are SHA-256 by name, which must match where the worker runs.
    """

    target: JsonObject
    params: JsonObject
    libraries: list[str]
    unused: list[str]
    is_served: bool
    may_be_blank: bool
    batch_size: NotRequired[int]
    pads_batches: NotRequired[bool]
    checkpoint: NotRequired[JsonObject | None]
    code: NotRequired[dict[str, str]]
    files: NotRequired[dict[str, str]]


class Prepare(Preparing):
    """Import the class, and start to read its files."""

    op: Literal["prepare"]
    device: str


class WorkerCommand(TypedDict):
    """`load` builds the model; `drop` cancels the jobs that have not begun, and soon the running
    one.
    """

    op: Literal["load", "drop"]


Job = EditJob | JudgeJob
ToWorker = Prepare | WorkerCommand | Job


# --- from a worker to the controller


class MemoryUsed(TypedDict):
    """The peak memory of a worker in bytes: of its GPU (`None` without one), and of its host."""

    gpu: int | None
    host: int


class _Reply(TypedDict):
    """Every reply has its `seconds` and the peak `memory` so far, and the `number` of its job. It
    has `code` if the worker has imported modules since the last reply, and `cpu_share` if it runs
    on the CPU.
    """

    number: NotRequired[int]
    seconds: NotRequired[float]
    memory: NotRequired[MemoryUsed]
    code: NotRequired[dict[str, str]]
    cpu_share: NotRequired[float | None]


class Acknowledged(_Reply):
    """The class is imported, or a job was cancelled."""

    op: Literal["prepared", "dropped"]


class Loaded(_Reply):
    """The model is built; `batch_size` is the largest number of edits or questions of one call,
    `at_once` the number of calls at a time, `environment` holds the fields of an `Environment`.
    """

    op: Literal["loaded"]
    batch_size: int
    at_once: int
    environment: JsonObject


class FinishedEdit(TypedDict):
    """An edit as a PNG; `edit_s` is its share of the seconds of a call of `batch_size` edits,
    including padding.

    The thumbnails of the edit, and of its source images in their order, are WebP, for reports.
    `composited` says that the editor's image was laid over white. `signature` is that of
    `images.signature`, `change` that of `kinds.change.change`.
    """

    op: Literal["finished"]
    image: bytes
    thumbnail: bytes
    source_thumbnails: list[bytes]
    signature: str
    edit_s: float
    batch_size: int
    change: float
    near_copy: bool
    width: int
    height: int
    reframed: bool
    composited: bool


class FailedEdit(TypedDict):
    """The error of one edit; `kind` is that of `Failed`."""

    op: Literal["failed"]
    kind: str
    message: str


class Edited(_Reply):
    """A batch is edited: one edit or failure per request, in order. `batch_size` is the largest for
    the next batch.
    """

    op: Literal["edited"]
    edits: list[FinishedEdit | FailedEdit]
    batch_size: int


class Judged(_Reply):
    """A batch is judged: the fields of one `Answer` per question, in order."""

    op: Literal["judged"]
    answers: list[JsonObject]
    batch_size: int


class Step(TypedDict):
    """The running job is at denoising step `step` of `steps`."""

    op: Literal["step"]
    step: int
    steps: int


class Note(TypedDict):
    """A line for the user about a server."""

    op: Literal["note"]
    text: str


class Failed(_Reply):
    """A job, or loading, failed.

    `kind` is `setup`, `bad_image`, `degenerate_output`, `refused`, `final`, `oom` or `exception`;
    the pool adds `worker_died`, `timeout` and `no_worker`.
    """

    op: Literal["error"]
    kind: str
    message: str


class Ended(TypedDict):
    """The connection to a worker ended; the controller itself sends it."""

    op: Literal["ended"]


class NotStartedMessage(TypedDict):
    """A worker did not start; the controller itself sends it."""

    op: Literal["not_started"]
    message: str


JobReply = Edited | Judged | Failed
Reply = Acknowledged | Loaded | JobReply
FromWorker = Reply | Step | Note | Ended | NotStartedMessage
