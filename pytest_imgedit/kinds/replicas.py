"""Several servers of one model, which share its questions."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_imgedit.core.requests import Answer
from pytest_imgedit.core.text import shorten
from pytest_imgedit.kinds.server import Server
from pytest_imgedit.kinds.server_answers import read_completion

#: Seconds until a server that is left out is tried again, at first and at most.
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
#: Statuses with which a server fails that may be gone, or no longer the same; from 500 on, too.
_LOST = (401, 403, 404, 405, 407)
#: Statuses that another server may not answer with.
_BUSY = (408, 409, 425, 429)
_JSON = {"headers": {"Content-Type": "application/json"}}


@dataclass(eq=False)
class Replica:
    """One of the servers: how many requests it has, and whether it gets further ones."""

    server: Server
    client: Any
    is_live: bool = False
    in_flight: int = 0

    def __post_init__(self) -> None:
        self._client_without_retries = self.client.with_options(max_retries=0)

    async def post(self, path: str, body: bytes, *, retries: bool = True) -> str:
        """Return the text of the response to a body of JSON; raise what the client raises."""
        client = self.client if retries else self._client_without_retries
        text: str = await client.post(path, content=body, options=_JSON, cast_to=str)
        return text


class Replicas:
    """Sends each request to the server with the fewest requests, at most `concurrency` to each.

    The first server is the one whose answers count. Each other one must answer the first question
    of this process as the first one did before it gets questions. A server that cannot be reached,
    does not answer in time or answers with an error of its own is named by `note` and left out; its
    requests go to the others. It gets questions again once it answers that first question so.
    """

    def __init__(
        self, servers: Sequence[Server], concurrency: int, note: Callable[[str], None]
    ) -> None:
        self.note = note
        self.concurrency = concurrency
        self.replicas = [Replica(server, server.connect_async()) for server in servers]
        self.first = self.replicas[0]
        self.first.is_live = True
        self._changed = asyncio.Condition()
        self._returning: set[asyncio.Task[None]] = set()
        #: The path, the body and the answer that a server is compared by.
        self._reference: tuple[str, bytes, Answer] | None = None

    async def post(self, path: str, body: bytes) -> str:
        """Return the text of a response; raise what the client raises if no server gives one."""
        if len(self.replicas) == 1:
            return await self.first.post(path, body)
        tried: list[Replica] = []
        while True:
            replica = await self._take(tried)
            others = [other for other in self._live(tried) if other is not replica]
            try:
                text = await replica.post(path, body, retries=not others)
            except Exception as error:
                if not (others and may_differ_elsewhere(error)):
                    raise
                tried.append(replica)
                if is_lost(error):
                    self._leave_out(replica, replica.server.describe(error, tries=1))
                continue
            finally:
                await self._release(replica)
            if self._reference is None and replica is self.first:
                self._compare_others(path, body, text)
            return text

    async def close(self) -> None:
        """Close the connections, and try no server again."""
        for task in self._returning:
            task.cancel()
        for replica in self.replicas:
            await replica.client.close()

    def _live(self, tried: Collection[Replica]) -> list[Replica]:
        """Return the servers that get questions, without those that were tried."""
        return [replica for replica in self.replicas if replica.is_live and replica not in tried]

    async def _take(self, tried: Collection[Replica]) -> Replica:
        """Wait for a server that may have another request; the first one if none is live."""

        def candidates() -> list[Replica]:
            return self._live(tried) or [self.first]

        def least() -> Replica:
            return min(candidates(), key=lambda replica: replica.in_flight)

        async with self._changed:
            await self._changed.wait_for(lambda: least().in_flight < self.concurrency)
            replica = least()
            replica.in_flight += 1
            return replica

    async def _release(self, replica: Replica) -> None:
        async with self._changed:
            replica.in_flight -= 1
            self._changed.notify_all()

    def _compare_others(self, path: str, body: bytes, text: str) -> None:
        """Take an answer of the first server as the reference, if it is one, and have the other
        servers give it.
        """
        answer = read_completion(text)
        if answer.error is not None or answer.cut:
            return
        self._reference = (path, body, answer)
        for replica in self.replicas[1:]:
            self._start(self._bring_back(replica, wait=0.0, is_named=False))

    def _leave_out(self, replica: Replica, reason: str) -> None:
        """Name a server that has failed, and try it again later; do so once for all its requests
        that fail.
        """
        if replica.is_live and self._reference is not None:
            replica.is_live = False
            self._name(replica, reason)
            self._start(self._bring_back(replica, FIRST_WAIT, is_named=True))

    def _name(self, replica: Replica, reason: str) -> None:
        self.note(f"{replica.server.url}: {reason}; it is left out, and tried again")

    def _start(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._returning.add(task)  # the event loop holds no task itself
        task.add_done_callback(self._returning.discard)

    async def _bring_back(self, replica: Replica, wait: float, is_named: bool) -> None:
        """Ask a server the first question until it answers as the first one did."""
        while True:
            await asyncio.sleep(wait)
            problem = await self._problem(replica)
            if not problem:
                break
            if not is_named:
                is_named = True
                self._name(replica, problem)
            wait = min(LONGEST_WAIT, max(FIRST_WAIT, 2 * wait))
        if is_named:
            self.note(f"{replica.server.url} answers again as the first server does")
        async with self._changed:
            replica.is_live = True
            self._changed.notify_all()

    async def _problem(self, replica: Replica) -> str:
        """Return why a server does not get questions; an empty text if it may."""
        assert self._reference is not None, "the first server has answered"
        path, body, expected = self._reference
        try:
            answer = read_completion(await replica.post(path, body, retries=False))
        except Exception as error:
            return replica.server.describe(error, tries=1)
        if answer.error is not None:
            return answer.error
        if answer.reply == expected.reply:
            return ""
        return (
            f"it answers {shorten(answer.reply, 80)!r}, expected "
            f"{shorten(expected.reply, 80)!r} as {self.first.server.url} does"
        )


def is_lost(error: Exception) -> bool:
    """Tell whether a failed request speaks against its server: without connection, without an
    answer in time, or with an error of the server or its address.
    """
    import openai

    if isinstance(error, openai.APIStatusError):
        return error.status_code in _LOST or error.status_code >= 500
    return isinstance(error, openai.APIConnectionError)


def may_differ_elsewhere(error: Exception) -> bool:
    """Tell whether another server may answer a request that has failed."""
    import openai

    if isinstance(error, openai.APIStatusError) and error.status_code in _BUSY:
        return True
    return is_lost(error)
