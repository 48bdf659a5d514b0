"""A system that refuses a thread: the run goes on, or ends in one line."""

from __future__ import annotations

import threading

import pytest

RUN = ("--imgedit-limit=1", "--imgedit-editor=noise", "--imgedit-judge=fakes:Reader")


def run(bench, *arguments):
    """Run, and check that nothing was told by a traceback."""
    result = bench.run(*RUN, *arguments)
    text = f"{result.stdout}{result.stderr}"
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    return result


@pytest.fixture
def few_threads(monkeypatch):
    """Call it with a part of the names of functions, and how many threads of them do not start."""

    def refuse(part: str, count: int) -> None:
        start, left = threading.Thread.start, [count]

        def limited(thread):
            if left[0] and part in getattr(thread._target, "__qualname__", ""):
                left[0] -= 1
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", limited)

    return refuse


NO_THREADS = 10**9


@pytest.mark.parametrize(
    ("part", "count"),
    [
        ("Pool._bring_up", 1),
        ("Pool._bring_up", 2),
        ("BusyMeter._watch", NO_THREADS),
        ("_worker", NO_THREADS),  # of a ThreadPoolExecutor
    ],
)
def test_a_thread_that_does_not_start_fails_no_run(bench, monkeypatch, few_threads, part, count):
    if part == "_worker":
        monkeypatch.setattr("pytest_imgedit.run.leaks.ThreadPoolExecutor", Refusing)
    else:
        few_threads(part, count)
    assert run(bench).ret == 0


class Refusing:
    """Stands for a ThreadPoolExecutor that gets no threads."""

    def __init__(self, _: int) -> None: ...

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, *_: object) -> None:
        raise RuntimeError("can't start new thread")


def test_without_threads_for_workers_there_is_one_line(bench, few_threads):
    few_threads("Pool._bring_up", NO_THREADS)
    result = run(bench)
    assert result.ret == 4
    assert [line for line in result.errlines if line.strip()] == [
        "ERROR: worker edit-0: can't start new thread, expected room for more (ulimit -u)"
    ]
