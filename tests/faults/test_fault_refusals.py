"""A system that refuses a thread, a file, a folder or a process: the run goes on, or ends in one
line.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import re
import subprocess
import threading
from contextlib import contextmanager

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
@pytest.mark.everyday_for("Pool._bring_up-1", "_worker-1000000000")
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


@pytest.fixture
def refusing(monkeypatch):
    """Use it as a context in which a call of `os` fails for the paths that match, as counted in
    what it yields.
    """
    calls = {
        "open": ((builtins, "open"), (io, "open"), (os, "open")),
        "mkdir": ((os, "mkdir"),),
        "replace": ((os, "replace"), (os, "rename")),
    }

    @contextmanager
    def refuse(name: str, number: int, paths: str):
        refused = []
        with monkeypatch.context() as patch:  # pytester's own patches stay
            for owner, attribute in calls[name]:
                real = getattr(owner, attribute)

                def call(path, *arguments, real=real, **named):
                    if isinstance(path, str | os.PathLike) and re.search(paths, os.fspath(path)):
                        refused.append(os.fspath(path))
                        raise OSError(number, os.strerror(number), os.fspath(path))
                    return real(path, *arguments, **named)

                patch.setattr(owner, attribute, call)
            yield refused

    return refuse


def check_refused(bench, refusal, number: int, code: int) -> None:
    """Check that a run under a refusal fails with its reason, and that the next one does what it
    left.
    """
    with refusal as refused:
        result = run(bench)
    assert refused
    assert result.ret == code
    lines = [line for line in result.errlines if line.strip()]
    if result.ret == 4:
        [line] = lines
    else:
        assert result.ret == 1
        assert re.search(r"^imgedit: (FAIL|INCOMPLETE): ", result.stdout.str(), re.MULTILINE)
        line = result.stdout.str()
    assert os.strerror(number) in line
    assert not list(bench.path.rglob("*.partial"))
    assert run(bench).ret == 0


@pytest.mark.parametrize(
    ("number", "paths", "code"),
    [
        (errno.EMFILE, r"\.imgedit/lock$", 4),
        (errno.ENFILE, r"/run\.log$", 4),
        (errno.ENFILE, r"/models\.jsonl$", 1),
        (errno.EMFILE, r"/edits\.jsonl$", 1),
        (errno.EMFILE, r"/verdicts\.jsonl$", 1),
        (errno.ENFILE, r"/blobs/\.partial$", 4),
        (errno.EMFILE, r"\.thumbnail\.webp\.partial$", 1),
        (errno.EMFILE, r"results\.json\.partial$", 1),
        (errno.ENFILE, r"report\.html\.partial$", 1),
    ],
)
@pytest.mark.everyday_for(
    "24-\\\\.imgedit/lock$-4",
    "24-/edits\\\\.jsonl$-1",
    "23-/blobs/\\\\.partial$-4",
    "23-report\\\\.html\\\\.partial$-1",
)
def test_a_file_that_is_not_opened_is_named_in_one_line(bench, refusing, number, paths, code):
    check_refused(bench, refusing("open", number, paths), number, code)


@pytest.mark.parametrize(
    ("number", "paths", "code"),
    [
        (errno.EDQUOT, r"\.imgedit$", 4),
        (errno.ENOSPC, r"\.imgedit/runs$", 4),
        (errno.EMLINK, r"\.imgedit/runs/[^/]+$", 4),
        (errno.ENOSPC, r"\.imgedit/blobs/..$", 4),
    ],
)
@pytest.mark.everyday_for("122-\\\\.imgedit$-4", "28-\\\\.imgedit/blobs/..$-4")
def test_a_folder_that_is_not_made_is_named_in_one_line(bench, refusing, number, paths, code):
    """Without space, quota or inodes, or with as many folders as the file system takes."""
    check_refused(bench, refusing("mkdir", number, paths), number, code)


@pytest.mark.parametrize(
    ("number", "paths", "code"),
    [(errno.EDQUOT, r"/blobs/\.partial$", 4), (errno.ENOSPC, r"results\.json\.partial$", 1)],
)
def test_a_name_that_is_not_given_is_named_in_one_line(bench, refusing, number, paths, code):
    check_refused(bench, refusing("replace", number, paths), number, code)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_a_process_that_is_not_forked_is_one_line(bench, monkeypatch, number):
    def fork(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "_execute_child", fork)
        result = bench.run_with_workers(*RUN)
    assert "Traceback" not in f"{result.stdout}{result.stderr}"
    assert result.ret == 4
    [line] = [line for line in result.errlines if line.strip()]
    assert line.startswith("ERROR: edit-0: ")
    assert line.endswith(os.strerror(number))
