"""Workers as the stages of a run see them, wherever they run."""

from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Protocol

from pytest_imgedit.core import environments, errors
from pytest_imgedit.core.messages import Ended, FromWorker, Job, MemoryUsed, ToWorker

State = Literal["starting", "waiting", "loading", "idle", "busy", "dead"]
#: Jobs that a worker has at a time beside those that it does: their images are read meanwhile.
AHEAD = 1
#: The same for a model that does several at a time.
AHEAD_OF_MANY = 8
#: Stands in the event queue where a worker's connection ended.
ENDED: Ended = {"op": "ended"}


@dataclass(frozen=True)
class Slot:
    """A place for one worker at a time: a name such as `edit-0`, its GPUs (none: the CPU), and its
    host, empty for this one.

    Several hosts may be on one `machine`.
    """

    name: str
    gpus: tuple[str, ...]
    host: str = ""
    machine: str = ""

    @property
    def device(self) -> str:
        """The `device` argument of the editor or judge that runs here: `"cpu"`, `"cuda"`, or
        `"balanced"` over several GPUs.
        """
        if not self.gpus:
            return "cpu"
        if len(self.gpus) == 1:
            return "cuda"
        return "balanced"

    @property
    def label(self) -> str:
        """What tables call this place, such as `GPU 0,1 of node-2`."""
        device = f"GPU {','.join(self.gpus)}" if self.gpus else "CPU"
        return f"{device} of {self.host}" if self.host else device


class Connection(Protocol):
    """A running worker process."""

    def listen(self, hear: Callable[[FromWorker], None]) -> None:
        """Pass everything that the process sends, and then `ENDED`, to `hear` in a new thread."""

    def send(self, message: ToWorker) -> None:
        """Send one message, without waiting for it to be read."""

    def alive(self) -> bool:
        """Tell whether the process runs."""

    def lines(self, final: bool = False) -> list[str]:
        """Return the lines that the process has printed since the last call.

        An unfinished line is left for later unless the process is gone (`final`).
        """

    def terminate(self) -> None:
        """Ask the process to end, without waiting until it does."""

    def close(self) -> str:
        """End the process and its children, by force if need be; return how it ended, such as
        `SIGKILL`.
        """


class Executor(Protocol):
    """Starts worker processes."""

    def start(self, slot: Slot) -> Connection:
        """Start a process and wait until it answers; raise `NotStarted` if it does not."""

    def abandon(self, slot: Slot) -> None:
        """End what was started for a slot and has not answered, without waiting for it."""


class NotStarted(errors.UsageError):
    """A worker process, or its host, that did not come up; the text says why in one line."""


@dataclass(eq=False)
class Worker:
    """The controller's view of one worker process; it has no `connection` until it answers.

    `jobs` are running or queued, in the order in which the worker begins them, each with its
    message; it does `at_once` of them at a time.
    A worker that is `dropping` has been told to leave the queued ones; one that is `alone` gets no
    second job. `step` is the denoising step of the running job, and their number. The stages count
    `jobs_done`: edits, or edits with a verdict. `since` is when the worker entered its state or
    began its job, by `time.monotonic`, plus the time in which the controller was unresponsive.
    `silent_at` is when its process was first seen to be gone. `ready_s` is the time from the
    stage's start until it was loaded. `environment` is where it computes, `memory` the most that it
    has used, and `code` the digests of the user's modules that it has imported. `last_line` is the
    last line that its process has printed, cut to 300 characters.
    """

    slot: Slot
    _: KW_ONLY
    connection: Connection | None = field(default=None, repr=False)
    state: State = "starting"
    since: float = 0.0
    silent_at: float = 0.0
    jobs: deque[tuple[Any, Job]] = field(default_factory=deque, repr=False)
    dropping: bool = False
    alone: bool = False
    step: tuple[int, int] | None = None
    batch_size: int = 1
    at_once: int = 1
    memory: MemoryUsed | None = None
    jobs_done: int = 0
    busy_s: float = 0.0
    load_s: float = 0.0
    loaded_at: float = 0.0
    ready_s: float = 0.0
    environment: environments.Environment | None = None
    code: dict[str, str] = field(default_factory=dict)
    last_line: str = "no output"

    def send(self, message: ToWorker) -> None:
        """Send a message to the process, which has answered."""
        assert self.connection is not None
        self.connection.send(message)

    @property
    def computes_in(self) -> environments.Environment:
        """The environment of a worker that has loaded."""
        assert self.environment is not None
        return self.environment

    @property
    def depth(self) -> int:
        """The most jobs that it may have."""
        return self.at_once + (AHEAD if self.at_once == 1 else AHEAD_OF_MANY)

    @property
    def job(self) -> Any:
        """The running job, the first of several, or `None`."""
        if not self.jobs:
            return None
        job, _ = self.jobs[0]
        return job
