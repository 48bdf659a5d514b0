"""A small world for runs: pairs with real images, a store, a clock, and pools that answer without a
process.
"""

from __future__ import annotations

import io
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from PIL import Image

from pytest_imgedit.config.settings import make_settings
from pytest_imgedit.config.toml_file import ConfigFile
from pytest_imgedit.core.measures import count_groups
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.run.execution import prepare
from pytest_imgedit.run.pools import Launcher
from pytest_imgedit.run.request import Request, resolve_additional, resolve_models
from pytest_imgedit.run.run import Run, RunContext
from pytest_imgedit.stats.gate_values import Selection
from pytest_imgedit.store.store import Store
from pytest_imgedit.suites.base import Suite
from pytest_imgedit.workers.base import Slot, Worker
from pytest_imgedit.workers.hardware import Hardware, HostHardware

JUDGE = "openai:http://localhost:1/v1#m"
GRADES = "instruction: 7\npreservation: 7\nrealism: 7"
ANSWER: dict[str, Any] = {
    **{
        "reply": GRADES,
        "cut": False,
        "score": None,
        "aspects": {},
        "expected": {},
        "off_scale": 0.0,
    },
    **{"tokens_in": 10, "tokens_out": 2, "error": None, "final": False, "batch_size": 1},
}


SIGNATURE = "A" * 1366 + "=="


def png(color: int = 0, side: int = 16) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (color, 40, 90)).save(buffer, "PNG")
    return buffer.getvalue()


class Drawn:
    """An image source of one colour."""

    def __init__(self, color: int, side: int = 16) -> None:
        self.data = png(color, side)

    def read(self) -> bytes:
        return self.data


def pairs_of(*categories: str) -> list[EditPair]:
    """A pair of each category, in order, with images of different colours."""
    return [EditPair(f"p{n}", name, f"change {n}", Drawn(n)) for n, name in enumerate(categories)]


class Clock:
    """Seconds that go on by one each time that somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


class Told:
    """Hears what a run tells, and can have it stop."""

    def __init__(self) -> None:
        self.stopping, self.notes, self.advanced, self.stages = False, [], [], []

    @contextmanager
    def stage(self, name: str, total: int) -> Any:
        self.stages.append((name, total))
        yield

    def advance(self, stage: str, pair_id: str, seed: int, error: Any) -> None:
        self.advanced.append((stage, pair_id))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def worker_changed(self, worker: Any) -> None: ...

    def worker_said(self, slot: Any, line: str) -> None: ...


def edited(message: Any) -> dict[str, Any]:
    """The reply of an editor that draws."""
    size = {"change": 50.0, "near_copy": False, "width": 16, "height": 16, "reframed": False}
    size["composited"] = False
    made = {
        "op": "finished",
        "image": png(200),
        "thumbnail": b"WebP",
        "signature": SIGNATURE,
        "edit_s": 0.5,
        "batch_size": len(message["edits"]),
        **size,
    }
    return {
        "op": "edited",
        "seconds": 1.0,
        "edits": [{**made, "source_thumbnails": thumbnails_of(edit)} for edit in message["edits"]],
        "batch_size": 1,
    }


def thumbnails_of(edit: Any) -> list[bytes]:
    """A thumbnail for each source of a request, with its number."""
    return [b"WebP%d" % number for number in range(1 + len(edit["further"]))]


def judged(message: Any, **changes: Any) -> dict[str, Any]:
    """The reply of a judge that gives 7 to everything."""
    return {
        "op": "judged",
        "batch_size": 4,
        "answers": [{**ANSWER, **changes} for _ in message["questions"]],
    }


def failed(kind: str, text: str = "it failed") -> dict[str, Any]:
    return {"op": "error", "kind": kind, "message": text}


def heard_hook(name: str, stage: str = "", pair: Any = None, **facts: Any) -> str:
    """A line on a hook that was called."""
    if stage:
        return f"{name.partition('_')[0]} {stage}"
    done = name.removeprefix("item_")
    error = facts["error"] if done == "edited" else facts["result"].error
    if error is None:
        return f"{done} {pair.id}"
    return f"not {done} {pair.id}: {error.kind}"


def quiet(section: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a model; a served one is not asked first unless they say so."""
    is_served = str(section.get("spec")).startswith("openai")
    return {"ask_first": False, **section} if is_served else section


class FakePool:
    """A pool whose workers answer at once by `answer(message)`; `log` hears of starts, loads, jobs
    and closes.
    """

    def __init__(
        self, role: str, environment: Any, answer: Any, clock: Any, log: list[str], slots: int = 1
    ) -> None:
        self.role, self.environment, self.answer, self.clock, self.log = (
            role,
            environment,
            answer,
            clock,
            log,
        )
        self.slots = [Slot(f"{role}-{n}", ()) for n in range(slots)]
        self.edits_a_call = 1
        self.workers: list[Worker] = []
        self.gone: list[Worker] = []
        self.renewed: list[Worker] = []
        self.check: Any = lambda environment: None

    def start(self, jobs: int) -> None:
        if self.workers or self.gone:
            return
        self.log.append(f"start {self.role}")
        self.slots = self.slots[: max(1, jobs)]
        self.workers = [self._worker(slot) for slot in self.slots]

    def extend(self, jobs: int) -> None: ...

    def _worker(self, slot: Slot) -> Worker:
        batch_size = self.edits_a_call if self.role == "editor" else 4
        return Worker(
            slot,
            connection=SimpleNamespace(),
            state="waiting",
            batch_size=batch_size,
            environment=self.environment,
        )

    def load(self) -> None:
        for worker in self.workers:
            if not worker.loaded_at:
                self.log.append(f"load {self.role}")
                self.check(worker.environment)
                worker.state, worker.loaded_at, worker.load_s = "idle", self.clock(), 1.0

    def run(self, take: Any, more: Any = bool) -> Any:
        self.load()
        while True:
            taken = [(worker, found) for worker in self.workers if (found := take(worker))]
            for worker, (job, message) in taken:
                worker.jobs.append((job, message))
                self.log.append(f"{self.role} does {message['op']}")
                reply = self.answer(message)
                worker.jobs.popleft()
                yield job, worker, reply
            if not taken and not more():
                return
            if not taken:
                time.sleep(0.001)

    def poll(self) -> None: ...

    def renew(self, worker: Worker) -> None:
        self.renewed.append(worker)
        worker.jobs_done = 0

    def close(self) -> None:
        if self.workers:
            self.log.append(f"close {self.role}")
        self.gone += self.workers
        self.workers = []


class World:
    """Plans and runs over a store in a folder; `edit` and `judge` answer messages in place of
    workers.
    """

    def __init__(self, folder: Any, pairs: list[EditPair] | None = None, **raw: Any) -> None:
        self.folder, self.told, self.clock, self.log = folder, Told(), Clock(), []
        self.pairs = pairs_of("physics", "physics", "social", "causal") if pairs is None else pairs
        self.edit, self.judge = edited, judged
        self.further: dict[str, Any] = {}
        self.raw = raw
        self.store = Store(folder / "store")
        self.hardware = Hardware((HostHardware(),))
        self.hooks: list[str] = []
        self.started_ahead: list[int] = []

    @property
    def settings(self) -> Any:
        base = {"editor": {"spec": "identity"}, "judge": {"spec": JUDGE, "controls": False}}
        raw = {
            name: {**base.get(name, {}), **self.raw.get(name, {})} for name in {*base, *self.raw}
        }
        raw |= {role: quiet(raw[role]) for role in ("editor", "judge")}
        further = raw.get("judges", {})
        raw["judges"] = {name: quiet(section) for name, section in further.items()}
        return make_settings(
            {**raw, "run": {"config_file": ConfigFile(), **self.raw.get("run", {})}}
        )

    def plan(self, **raw: Any) -> Any:
        """Plan a run over the store, which is opened; `raw` are settings for this run alone."""
        self.raw = {**self.raw, **raw}
        self.store = Store(self.folder / "store")
        self.store.__enter__()
        settings = self.settings
        suite = Suite(name="made up", pairs=tuple(self.pairs), sha256="0" * 64, counts={})
        selection = Selection(count_groups(self.pairs), {})
        request = Request(
            settings=settings,
            models=resolve_models(settings),
            suite=suite,
            pairs=self.pairs,
            selection=selection,
            additional=resolve_additional(settings),
        )
        launcher = Launcher(settings, self.hardware, None, self.folder, self.told)
        try:
            return prepare(request, self.store, launcher, self.told.note, self.started_ahead.append)
        finally:
            self.store.__exit__(None, None, None)

    def pool(self, role: str, plan: Any, slots: int = 1) -> FakePool:
        identity = plan.editor if role == "editor" else plan.judge
        answer = (
            (lambda message: self.edit(message))
            if role == "editor"
            else (lambda message: self.judge(message))
        )
        return FakePool(role, identity.here, answer, self.clock, self.log, slots)

    def pool_of(self, identity: Any, slots: int = 1) -> FakePool:
        """A pool of a further judge or a metric, which `further` answers for, by its spec."""
        spec = identity.model.spec

        def answer(message: Any) -> Any:
            return self.further[spec](message)

        return FakePool(spec, identity.here, answer, self.clock, self.log, slots)

    def context(self, plan: Any, slots: int = 1) -> RunContext:
        return RunContext(
            lambda role: self.pool(role, plan, slots),
            lambda identity: self.pool_of(identity, slots),
            self.told,
            lambda name, **facts: self.hooks.append(heard_hook(name, **facts)),
            self.clock,
        )

    def run(self, slots: int = 1, **raw: Any) -> Run:
        """Plan and execute a run."""
        plan = self.plan(**raw)
        run = Run(plan, self.context(plan, slots))
        with self.store:
            run.execute()
        return run
