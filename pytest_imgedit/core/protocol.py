"""Every message that passes between the controller, workers, agents of hosts, and ranks of a sharded editor.

All are dictionaries of plain values, as execnet sends them, told apart by `op`. They stand here rather than beside the
pool, since the ranks of an editor know nothing of workers.
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
    """A checkpoint to be found on another host, in the same `folder` or `embedded` in this package; SHA-256 by file."""

    folder: str
    embedded: str | None
    layout: str
    digests: dict[str, str]


# --- from the controller to a worker


class EditJob(TypedDict):
    """One edit; images are PNG bytes."""

    op: Literal["edit"]
    pair: str
    category: str
    instruction: str
    source: bytes
    reference: bytes | None
    seed: int


class QuestionMessage(TypedDict):
    """What a judge is asked about one edit; `images` are encoded, `parts` are ("text", words) or ("image", name)."""

    pair: str
    category: str
    instruction: str
    images: dict[str, bytes]
    system: str
    parts: list[tuple[str, str]]
    aspects: list[str]


class JudgeJob(TypedDict):
    """Questions to be put to a judge as one batch."""

    op: Literal["judge"]
    questions: list[QuestionMessage]


class Preparing(TypedDict):
    """What every worker of a model is told of it.

    `code` and `files` are SHA-256 by name that must be found where it runs; `canary` is the edit by which hosts are
    compared.
    """

    target: TargetMessage
    params: JsonObject
    libraries: list[str]
    is_served: bool
    may_be_blank: bool
    checkpoint: NotRequired[CheckpointMessage | None]
    code: NotRequired[dict[str, str]]
    files: NotRequired[dict[str, str]]
    canary: NotRequired[EditJob]


class Prepare(Preparing):
    """Import the class, and read its files ahead."""

    op: Literal["prepare"]
    device: str


class Load(TypedDict):
    """Build the model."""

    op: Literal["load"]


class Drop(TypedDict):
    """Leave the jobs that have not begun."""

    op: Literal["drop"]


Job = EditJob | JudgeJob
ToWorker = Prepare | Load | Drop | EditJob | JudgeJob


# --- from a worker to the controller


class _Reply(TypedDict):
    """What every reply tells: its `seconds`, and `code`, where the worker has imported more modules since the last."""

    seconds: NotRequired[float]
    code: NotRequired[dict[str, str]]


class EnvironmentMessage(TypedDict):
    """Where a worker computes, as `Environment` has it."""

    device: Literal["cpu", "cuda", "server"]
    gpu: str | None
    versions: dict[str, str]
    processor: str | None
    compiled: bool | None


class Prepared(_Reply):
    """The class is imported."""

    op: Literal["prepared"]


class Loaded(_Reply):
    """The model is built; `canary` is its edit of the canary pair as a PNG, `None` if it was not asked or cannot."""

    op: Literal["loaded"]
    batch_size: int
    environment: EnvironmentMessage
    canary: bytes | None


class FinishedEdit(TypedDict):
    """An edit as a PNG, `edit_s` seconds after the editor was called."""

    image: bytes
    edit_s: float
    near_copy: bool
    width: int
    height: int
    reframed: bool


class Edited(_Reply):
    """An edit is done."""

    op: Literal["edited"]
    edit: FinishedEdit


class AnswerMessage(TypedDict):
    """A judge's `Answer`; `batch_size` is how many were asked at once."""

    reply: str
    cut: bool
    score: float | None
    aspects: dict[str, float]
    expected: dict[str, float]
    off_scale: float
    tokens_in: int
    tokens_out: int
    error: str | None
    batch_size: int


class Judged(_Reply):
    """A batch is judged: one answer a question, in their order."""

    op: Literal["judged"]
    answers: list[AnswerMessage]
    batch_size: int


class Dropped(_Reply):
    """A job was left undone."""

    op: Literal["dropped"]


class Failed(_Reply):
    """A job, or loading, failed.

    `kind` is `setup`, `bad_image`, `degenerate_output`, `oom` or `exception`; of the pool's own, `worker_died`,
    `timeout` or `no_worker`.
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
FromWorker = Reply | Ended | NotStartedMessage


# --- from the controller to the agent of a host; `id` is the number of a worker, or of a question


class AskVersions(TypedDict):
    """Tell which versions of packages an interpreter has (`None`: the agent's)."""

    op: Literal["versions"]
    id: int
    python: str | None
    names: list[str]
    paths: list[str]
    patience: float


class StartWorker(TypedDict):
    """Start a worker in a slot, with `threads` threads where it has no GPU."""

    op: Literal["start"]
    id: int
    slot: str
    gpus: list[str]
    python: str | None
    patience: float
    threads: int
    paths: list[str]


class SendOn(TypedDict):
    """Pass a message on to a worker."""

    op: Literal["send"]
    id: int
    message: ToWorker


class EndWorker(TypedDict):
    """Ask a worker to end, or end it by force if need be (`close`)."""

    op: Literal["terminate", "close"]
    id: int


ToAgent = AskVersions | StartWorker | SendOn | EndWorker


# --- from an agent to the controller


class Hello(TypedDict):
    """What a host is: its GPUs by CUDA name, and by memory where they tell it, cores, and bytes of free memory."""

    op: Literal["hello"]
    version: str
    gpus: list[str]
    gpu_memory: list[JsonObject]
    origin: JsonObject
    machine: str
    cores: int
    memory: int


class Refused(TypedDict):
    """No worker can run here."""

    op: Literal["refused"]
    message: str


class Versions(TypedDict):
    """Versions by package; `None` if the interpreter does not tell."""

    op: Literal["versions"]
    id: int
    versions: dict[str, str] | None


class Started(TypedDict):
    """A worker has come up."""

    op: Literal["started"]
    id: int


class WorkerNotStarted(TypedDict):
    """A worker has not come up."""

    op: Literal["not_started"]
    id: int
    message: str


class WorkerSaid(TypedDict):
    """A worker has sent something."""

    op: Literal["message"]
    id: int
    message: FromWorker


class WorkerEnded(TypedDict):
    """A worker's connection has ended (`ended`), or its process is gone."""

    op: Literal["ended", "gone"]
    id: int


class WorkerPrinted(TypedDict):
    """A worker has printed lines."""

    op: Literal["lines"]
    id: int
    lines: list[str]


class WorkerClosed(TypedDict):
    """A worker was ended; `how` is as a signal's name, `lines` are its last."""

    op: Literal["closed"]
    id: int
    how: str
    lines: list[str]


AboutWorker = Started | WorkerNotStarted | WorkerSaid | WorkerEnded | WorkerPrinted | WorkerClosed
FromAgent = Hello | Refused | Versions | AboutWorker


# --- from rank 0 of a sharded editor to the others, which answer each with a text: why they failed, empty if not


class RankSetup(TypedDict):
    """What a rank loads, and where the ranks meet."""

    model: str
    device: str
    params: JsonObject
    ranks: int
    rank: int
    meeting: int


class RankEdit(TypedDict):
    """A call that every rank makes, with arguments that are shared by all."""

    pair: str
    category: str
    instruction: str
    seed: int
    source: bytes
    override: dict[str, int]


ToRank = RankSetup | RankEdit
