"""The socket between pytest-xdist's workers and their controller: an answer reaches the call that
it belongs to.
"""

from __future__ import annotations

import signal
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client

import execnet
import pytest

from pytest_imgedit.core.errors import EditFailed
from pytest_imgedit.plugin import call_server
from pytest_imgedit.plugin.call_server import CallServer, RemoteCalls

TOKEN = b"secret"


class Echo:
    """Answers with the sources; `slow` takes a while."""

    def edit(self, calls):
        for call in calls:
            if call["instruction"] == "slow":
                time.sleep(0.5)
        return [call["source"] for call in calls]

    def score(self, calls):
        raise SystemExit("gone")


def call(source, instruction=""):
    return [{"source": source, "instruction": instruction, "seed": 0}]


@pytest.fixture
def folder(tmp_path):
    """A folder whose path is longer than the address of a socket may be, in which a server
    answers.
    """
    folder = tmp_path / ("long" * 30)
    server = CallServer(folder, TOKEN, lambda fixture: Echo())
    yield folder
    server.close()


class Late(Exception):
    pass


def test_a_call_that_is_interrupted_leaves_no_answer_to_the_next_one(folder):
    def late(*_):
        raise Late

    remote = RemoteCalls(folder, TOKEN)
    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Late):
            remote.edit(call(b"interrupted", "slow"))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert remote.edit(call(b"next")) == [b"next"]
    assert remote.edit(call(b"last")) == [b"last"]


def test_threads_that_share_a_fixture_get_their_own_answers(folder):
    remote = RemoteCalls(folder, TOKEN)
    asked = [f"{n}".encode() for n in range(400)]
    with ThreadPoolExecutor(8) as threads:
        assert [
            answer for (answer,) in threads.map(lambda source: remote.edit(call(source)), asked)
        ] == asked


@pytest.mark.parametrize("said", [b"", struct.pack("!i", 100)[:2]])
def test_a_client_that_is_silent_keeps_no_other_waiting(folder, said):
    with call_server._short_address(folder) as address, Client(address, "AF_UNIX") as silent:
        silent._send(said)
        assert RemoteCalls(folder, TOKEN).edit(call(b"1")) == [b"1"]


@pytest.mark.parametrize("frame", [struct.pack("!iQ", -1, 2**62), struct.pack("!i", 3) + b"abc"])
def test_garbage_after_the_token_ends_its_own_connection(folder, frame, monkeypatch):
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    with (
        call_server._short_address(folder) as address,
        Client(address, "AF_UNIX", authkey=TOKEN) as client,
    ):
        client._send(frame)
        with suppress(EOFError, ConnectionResetError):
            assert "error" in execnet.loads(client.recv_bytes())
    assert RemoteCalls(folder, TOKEN).edit(call(b"1")) == [b"1"]
    assert raised == []


def test_an_answer_that_cannot_be_sent_is_told_as_that(tmp_path):
    class Odd:
        def edit(self, calls):
            return [object()]

        score = Echo.score

    server = CallServer(tmp_path, TOKEN, lambda fixture: Odd())
    try:
        with pytest.raises(EditFailed, match="DumpError: can't serialize"):
            RemoteCalls(tmp_path, TOKEN).edit(call(b"1"))
        with pytest.raises(EditFailed, match="SystemExit: gone"):
            RemoteCalls(tmp_path, TOKEN).score([])
    finally:
        server.close()


def test_calls_are_answered_to_those_who_know_the_token_alone(folder):
    with pytest.raises((AuthenticationError, EditFailed)):
        RemoteCalls(folder, b"guess").edit([])
    assert RemoteCalls(folder, TOKEN).edit(call(b"1")) == [b"1"]
    assert folder.stat().st_mode & 0o077 == 0


def test_a_controller_that_is_gone_is_named(folder):
    CallServer(folder.parent, TOKEN, lambda fixture: Echo()).close()
    with pytest.raises(EditFailed, match="the xdist controller, which owns the workers, is gone"):
        RemoteCalls(folder.parent, TOKEN).edit([])
    assert not (folder.parent / "calls").exists()
