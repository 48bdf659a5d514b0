"""Workers that are threads of the test's process: all of a run but its processes, for tests of what
comes of it.

The controller, its pools, the messages and the code inside a worker are the real ones. A fake that
dies, hangs, prints or looks at its process needs `Bench.run_with_workers`.
"""

from __future__ import annotations

import asyncio
import io
import queue
import threading
import traceback
from typing import TYPE_CHECKING, Any

import execnet

from pytest_imgedit.workers.base import ENDED
from pytest_imgedit.workers.process import JobLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_imgedit.workers.base import Slot
    from pytest_imgedit.workers.stream import Stream


class ThreadExecutor:
    """Takes the place of `LocalExecutor`, and what that is made with."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def start(self, slot: Slot) -> ThreadConnection:
        return ThreadConnection(slot)

    def abandon(self, slot: Slot) -> None: ...


class ThreadConnection:
    """One worker in a thread; what is sent to and from it passes through execnet's serializer, as
    on the wire.
    """

    def __init__(self, slot: Slot) -> None:
        self._inbox: queue.Queue[Any] = queue.Queue()
        self._outbox: queue.Queue[Any] = queue.Queue()
        self._log = io.StringIO()
        self._printed = 0
        self._loop = JobLoop(lambda message: self._outbox.put(execnet.dumps(message)), self._log)
        self._thread = threading.Thread(target=self._work, name=slot.name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            while (entry := self._inbox.get()) is not None:
                self._loop.handle(*entry)
        except BaseException:
            traceback.print_exc(file=self._log)
            raise
        finally:
            self._outbox.put(None)  # the pool hears of every end, as of a process's

    def listen(self, hear: Callable[[Any], None]) -> None:
        def pass_on() -> None:
            while (data := self._outbox.get()) is not None:
                hear(execnet.loads(data))
            hear(ENDED)

        threading.Thread(target=pass_on, daemon=True).start()

    def send(self, message: Any) -> None:
        message = execnet.loads(execnet.dumps(dict(message)))
        if message["op"] == "drop":
            self._loop.stop()
        else:
            self._inbox.put((message, self._loop.read_ahead(message)))

    def alive(self) -> bool:
        return self._thread.is_alive()

    def lines(self, final: bool = False) -> list[str]:
        text = self._log.getvalue()[self._printed :]
        self._printed += len(text)
        return [line for line in text.splitlines() if line.strip()]

    def terminate(self) -> None:
        self._inbox.put(None)

    def close(self) -> str:
        self.terminate()
        self._thread.join(timeout=60)
        if self._loop.stream is not None:
            _end(self._loop.stream)
        self._loop._readers.shutdown(wait=False)
        self._loop._finisher.shutdown(wait=False)
        return "exit status 0"


def _end(stream: Stream) -> None:
    """End the requests of a served model, as the end of a process does."""

    async def cancel() -> None:
        stream._cancel()
        await asyncio.gather(*stream._jobs, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(cancel(), stream._loop).result(timeout=60)
