"""Blobs, journals and locks."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zlib
from io import FileIO
from pathlib import Path

import pytest
from PIL import Image

from pytest_imgedit.core import locks
from pytest_imgedit.core.environments import Environment, key
from pytest_imgedit.core.errors import StoreError, UsageError
from pytest_imgedit.core.files import write_json
from pytest_imgedit.core.images import encode_png
from pytest_imgedit.kinds.checkpoint_files import Digests
from pytest_imgedit.store.blobs import Blobs
from pytest_imgedit.store.journal import EditRecord, Journal, VerdictRecord
from pytest_imgedit.store.store import Store

PNG = encode_png(Image.new("RGB", (4, 4), "red"))


def test_blob_is_named_by_its_content_and_read_back(tmp_path):
    blobs = Blobs(tmp_path)
    name = blobs.put(PNG)
    assert name == hashlib.sha256(PNG).hexdigest()
    assert blobs.get(name) == PNG
    assert blobs.path(name) == tmp_path / name[:2] / f"{name}.png"
    assert [path.name for path in (tmp_path / name[:2]).iterdir()] == [f"{name}.png"]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"x" + data[1:], lambda data: b""]
)
def test_damaged_blob_counts_as_missing_and_is_written_again(tmp_path, damage):
    blobs = Blobs(tmp_path)
    name = blobs.put(PNG)
    blobs.path(name).write_bytes(damage(PNG))
    assert blobs.get(name) is None
    assert blobs.get("0" * 64) is None
    blobs.put(PNG)
    assert blobs.get(name) == PNG


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("what", ["image", "thumbnail", "journal"])
def test_a_full_disk_is_told_with_its_free_space_and_the_way_on(
    tmp_path, monkeypatch, number, what
):
    blobs, records = Blobs(tmp_path / "blobs"), journal(tmp_path)
    (tmp_path / "blobs").mkdir()

    def is_full(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.fsync", is_full)
    monkeypatch.setattr("pytest_imgedit.core.files.write_bytes", is_full)
    write = {
        "image": lambda: blobs.put(PNG),
        "thumbnail": lambda: blobs.put_thumbnail("ab" * 32, b"WebP"),
        "journal": lambda: records.append([record(1)]),
    }[what]
    advice = r" \([0-9.]+ MiB free\): free some, or use --imgedit-out; what is stored is kept$"
    with pytest.raises(StoreError, match=os.strerror(number) + advice):
        write()


def record(content, version="1.0", **changes):
    """An edit's record of a recipe, computed with a version of a library."""
    recipe, environment = {"n": content}, Environment(device="cpu", versions={"torch": version})
    made = {
        "key": key(recipe, environment),
        "content": key(recipe),
        "recipe": recipe,
        "environment": environment,
        "blob": "ab" * 32,
        "seconds": 1.5,
        "worker": "物理\n\t",
        "change": 50.0,
        "near_copy": False,
        "width": 8,
        "height": 8,
        "reframed": False,
        "batch_size": 1,
        "signature": "A" * 1366 + "==",
    }
    return EditRecord(**{**made, **changes})


def journal(path):
    return Journal(path / "j.jsonl", EditRecord)


def test_journal_keeps_the_last_record_of_a_key_and_one_an_environment(tmp_path):
    written = journal(tmp_path)
    written.append([record("a"), record("b"), record("a", "2.0")])
    written.append([record("a", seconds=2.0)])
    written.close()
    read = journal(tmp_path)
    assert list(read.records.values()) == [
        record("b"),
        record("a", "2.0"),
        record("a", seconds=2.0),
    ]
    assert read.of_content(record("a").content) == [record("a", "2.0"), record("a", seconds=2.0)]
    assert read.of_content("no such") == []


def test_torn_last_line_is_dropped_and_writing_goes_on(tmp_path):
    path = tmp_path / "j.jsonl"
    written = journal(tmp_path)
    written.append([record("a"), record("b")])
    written.close()
    whole = path.read_bytes()
    last = len(whole.splitlines(keepends=True)[1])
    for cut in [*range(1, last, 37), last - 1]:
        path.write_bytes(whole[:-cut])
        torn = journal(tmp_path)
        assert torn.torn
        assert list(torn.records.values()) == [record("a")]
        torn.append([record("c")])
        torn.close()
        assert list(journal(tmp_path).records.values()) == [record("a"), record("c")]


def test_a_reader_leaves_a_line_that_is_just_being_written(tmp_path):
    path = tmp_path / "j.jsonl"
    written = journal(tmp_path)
    written.append([record("a"), record("b")])
    path.write_bytes(whole := path.read_bytes()[:-5])
    assert list(Journal(path, EditRecord, reads_only=True).records.values()) == [record("a")]
    assert path.read_bytes() == whole


def test_damaged_middle_line_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "j.jsonl"
    written = journal(tmp_path)
    written.append([record("a"), record("b"), record("c")])
    written.close()
    path.write_bytes(path.read_bytes().replace(b'"n": "b"', b'"n": "x"'))
    with pytest.raises(UsageError, match=r"j\.jsonl:2: damaged record"):
        journal(tmp_path)


def packed(document: str) -> bytes:
    return f"{document}\t{zlib.crc32(document.encode()):08x}\n".encode()


BROKEN = [
    ("[]", "Input should be a valid dictionary"),
    ("3", "Input should be a valid dictionary"),
    ("{", "not strict JSON"),
    ("[" * 100_000, "not strict JSON"),
    ('{"key": NaN}', "not strict JSON: NaN is not a JSON number"),
    ('{"key": "\\ud800"}', "not strict JSON: lone surrogate"),
    ('{"n": 1}', "key: Field required"),
    ('{"seconds": true}', "key: Field required"),
]


@pytest.mark.parametrize(("line", "reason"), BROKEN)
def test_line_that_is_no_record_is_refused_by_its_place(tmp_path, line, reason):
    (tmp_path / "j.jsonl").write_bytes(packed(record("a").model_dump_json()) + packed(line))
    with pytest.raises(
        UsageError, match=rf"j\.jsonl:2: {re.escape(reason)}.*expected a record as this version"
    ):
        journal(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seconds", True),
        ("seconds", -1),
        ("seconds", "1"),
        ("seconds", 1e999),
        ("blob", "x"),
        ("blob", "../" * 22),
        ("change", 256.0),
        ("change", "9"),
        ("near_copy", 1),
        ("worker", None),
        ("environment", {"device": "abacus", "versions": {}}),
        ("further", 1),
    ],
)
def test_field_that_does_not_fit_is_refused_by_its_name(tmp_path, field, value):
    document = json.dumps({**record("a").model_dump(), field: value}).replace("Infinity", "1e999")
    (tmp_path / "j.jsonl").write_bytes(packed(document))
    with pytest.raises(UsageError, match=rf"j\.jsonl:1: .*{field}"):
        journal(tmp_path)


def verdict(**changes):
    document = {
        **record("a").model_dump(include={"environment", "key", "content", "recipe"}),
        "reply": "realism: 7",
        "score": None,
        "aspects": {},
        "expected": {},
        "batch_size": 1,
        "off_scale": None,
        "model": "",
        "asked": 1,
        "reminder": "",
    }
    return json.dumps({**document, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"score": True},
        {"score": 10.5},
        {"aspects": {"realism": True}},
        {"expected": {"realism": "7"}},
        {"off_scale": 2},
        {"batch_size": 0},
        {"asked": 0},
    ],
)
def test_verdict_that_no_judge_can_give_is_refused(tmp_path, changes):
    path = tmp_path / "v.jsonl"
    path.write_bytes(packed(verdict()))
    assert len(Journal(path, VerdictRecord).records) == 1
    path.write_bytes(packed(verdict(**changes)))
    with pytest.raises(UsageError, match=r"v\.jsonl:1: "):
        Journal(path, VerdictRecord)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"key": "a" * 64}, "key"),
        ({"content": "b" * 64}, "content"),
        ({"recipe": {"n": "another"}}, "content"),
        ({"environment": {"device": "cpu", "versions": {"torch": "9"}}}, "key"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(tmp_path, changes, field):
    path = tmp_path / "v.jsonl"
    path.write_bytes(packed(verdict(**changes)))
    line = rf"v\.jsonl:1: contradicts itself: its {field} is not the digest of its recipe"
    with pytest.raises(UsageError, match=line):
        Journal(path, VerdictRecord)


def test_journal_that_is_no_file_is_refused(tmp_path):
    (tmp_path / "j.jsonl").mkdir()
    with pytest.raises(UsageError, match="not a regular file"):
        journal(tmp_path)


def test_folder_that_holds_other_things_is_no_store(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(
        UsageError, match="holds other files, expected a store or an empty or new folder"
    ):
        Store(tmp_path).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_links_in_the_store_are_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "lock").symlink_to(victim)
    with pytest.raises(UsageError, match="expected a folder that can be written"):
        Store(tmp_path / "s").__enter__()
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / ".partial").symlink_to(victim)
    Blobs(tmp_path / "blobs").put(PNG)
    assert victim.read_text() == "precious"


def test_store_is_held_by_one_process_at_a_time(tmp_path):
    with Store(tmp_path / "s") as first:
        assert first.new_run().is_dir()
        with pytest.raises(UsageError, match="the store is held by process"):
            Store(tmp_path / "s").__enter__()
    with Store(tmp_path / "s"):
        pass


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * 5_000_000,
        b"process 1 on host since " + b"9" * 5_000_000,
        b"process 1 on host since 2026-01-01 00:00:00 UTC\n" * 100_000,
        b"process 1 on host since 2026-01-01 00:00:00 UTC and more",
        bytes(5_000_000),
        bytes(range(256)) * 100,
        b"\x1b[2J\n::error::process",
        "process 1 on host\u202e since now".encode(),
    ],
    ids=lambda content: f"{content[:12]!r}-{len(content)}",
)
def test_a_lock_that_no_holder_wrote_is_told_in_one_short_line(tmp_path, content):
    with Store(tmp_path / "s"):
        (tmp_path / "s" / "lock").write_bytes(content)
        with pytest.raises(UsageError) as raised:
            Store(tmp_path / "s").__enter__()
        assert str(raised.value) == (
            f"{tmp_path}/s: the store is held by another process; wait for it or use --imgedit-out"
        )
    (tmp_path / "s" / "lock").write_bytes(content)
    with Store(tmp_path / "s"):  # nobody holds it
        assert (tmp_path / "s" / "lock").stat().st_size < 200


def is_held_by(folder):
    """Who the message of a second run says holds a store."""
    with pytest.raises(UsageError) as raised:
        Store(folder).__enter__()
    [told] = str(raised.value).splitlines()
    return told.removeprefix(f"{folder}: the store is held by ").partition(";")[0]


def ended():
    """The number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.fixture
def other():
    """A process that sleeps."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("kind", ["ended", "another by now", "zombie", "none", "too large"])
def test_a_process_that_does_not_hold_a_lock_is_never_named_as_its_holder(tmp_path, other, kind):
    with Store(tmp_path / "s"):
        lock = tmp_path / "s" / "lock"
        mine, _, start = lock.read_text().rpartition(" ")
        assert is_held_by(tmp_path / "s") == mine
        pid = other.pid
        if kind == "zombie":
            start = Path(f"/proc/{pid}/stat").read_text().split()[21]
            other.kill()
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        elif kind != "another by now":
            pid = {"ended": ended(), "none": 0, "too large": 999_999_999}[kind]
        named = mine.replace(f"process {os.getpid()} ", f"process {pid} ", 1)
        lock.write_text(f"{named} {start if kind == 'zombie' else int(start) - 1}")
        assert is_held_by(tmp_path / "s") == (
            f"another process (its lock names {named}, which is not to be found here)"
        )


def test_the_holder_on_another_host_is_named_by_what_it_wrote(tmp_path):
    with Store(tmp_path / "s"):
        text = "process 1 on another-host since 2026-01-01 00:00:00 UTC"
        (tmp_path / "s" / "lock").write_text(f"{text} 1")
        assert is_held_by(tmp_path / "s") == text


def test_a_lock_that_a_child_of_a_killed_holder_shares_does_not_name_the_holder(tmp_path):
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from pytest_imgedit.store.store import Store\n"
        "Store(Path('s')).__enter__()\n"
        "child = os.fork() or time.sleep(60)\n"
        "print(child, flush=True)\n"
        "time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    child = int(holder.stdout.readline())
    try:
        assert is_held_by(tmp_path / "s").startswith(f"process {holder.pid} on ")
        holder.kill()
        holder.wait()
        told = is_held_by(tmp_path / "s")
    finally:
        os.kill(child, signal.SIGKILL)
        holder.stdout.close()
    assert told.startswith(f"another process (its lock names process {holder.pid} on ")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("name", ["truncate", "write"])
def test_a_lock_that_cannot_be_written_is_told_and_let_go(tmp_path, monkeypatch, name, number):
    class Bad(FileIO):
        pass

    def fail(*_):
        raise OSError(number, os.strerror(number))

    setattr(Bad, name, fail)
    with monkeypatch.context() as patch:
        patch.setattr(locks, "_open", lambda _: Bad(tmp_path / "lock", "w+"))
        with pytest.raises(UsageError, match=os.strerror(number)):
            Store(tmp_path).__enter__()
    with Store(tmp_path):
        pass


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.ESTALE, errno.EDQUOT])
def test_a_store_is_let_go_though_its_files_cannot_be_closed(tmp_path, number):
    class Bad(FileIO):
        def close(self):
            if not self.closed:
                super().close()
                raise OSError(number, os.strerror(number))

        def truncate(self, size=None):
            raise OSError(number, os.strerror(number))

    with Store(tmp_path) as store:
        store.edits.append([record("a")])
        store.models.append([])
        for journal in (store.edits, store.models):
            journal._file.close()
            journal._file = Bad(journal.path, "a")
        store._lock._file = Bad(os.dup(store._lock._file.fileno()), "r+")
    with Store(tmp_path) as store:
        assert store.edits.records


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "broken link", "link to a pipe"])
def test_a_lock_that_is_no_file_is_named_in_one_line(tmp_path, kind):
    lock = tmp_path / "s" / "lock"
    lock.parent.mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    if kind == "pipe":
        os.mkfifo(lock)
    elif kind == "folder":
        lock.mkdir()
    else:
        targets = {"link": "file", "broken link": "nothing", "link to a pipe": "pipe"}
        lock.symlink_to(tmp_path / targets[kind])
    with pytest.raises(UsageError) as raised:
        Store(tmp_path / "s").__enter__()
    assert str(raised.value).startswith(f"{lock}: ")
    assert len(str(raised.value).removeprefix(str(tmp_path))) < 200
    assert not (tmp_path / "nothing").exists()


@pytest.fixture
def of_another(tmp_path):
    """The folder of a store with a run of another user's, in a folder that everybody may write; the
    test is not that user, nor root.
    """
    folder = Path(tempfile.mkdtemp())
    with Store(folder / "s") as store:
        store.edits.append([record("a")])
        store.blobs.put(PNG)
        store.new_run()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(12345)
    yield folder / "s"
    if is_root:
        os.seteuid(0)
    shutil.rmtree(folder)


def as_owner(path, mode):
    """Change a mode as the user does whose file it is."""
    user = os.geteuid()
    if os.getuid() == 0:
        os.seteuid(0)
    path.chmod(mode)
    os.seteuid(user)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("lock", 0o644),
        ("lock", 0o444),
        ("edits.jsonl", 0o444),
        ("runs", 0o555),
        ("blobs", 0o555),
        (f"blobs/{hashlib.sha256(PNG).hexdigest()[:2]}", 0o555),
        (".", 0o555),
    ],
)
def test_what_another_user_s_store_does_not_let_be_written_is_named(of_another, name, mode):
    with Store(of_another):
        pass
    place = of_another / name
    as_owner(place, mode if os.getuid() == 0 else mode & 0o555)
    with pytest.raises(UsageError) as raised:
        Store(of_another).__enter__()
    [told] = str(raised.value).splitlines()
    owner = place.owner()
    assert told.startswith(f"{place}: Permission denied (of user {owner}, mode ")
    assert told.endswith(" or use --imgedit-out")
    as_owner(place, 0o777)
    with Store(of_another):  # nothing was left behind
        pass


def test_a_store_on_a_read_only_file_system_is_told(tmp_path, monkeypatch):
    def refuse(path, *_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    with Store(tmp_path / "s"):
        pass
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UsageError, match="/s/lock: Read-only file system, expected a folder that"):
        Store(tmp_path / "s").__enter__()


NO_LOCKS = pytest.mark.parametrize(
    "number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP]
)


def without_locks(monkeypatch, number=errno.ENOSYS):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)


@NO_LOCKS
def test_without_locks_a_file_keeps_others_out_until_the_store_is_closed(
    tmp_path, monkeypatch, number
):
    without_locks(monkeypatch, number)
    made = tmp_path / "s" / "lock.held"
    with Store(tmp_path / "s") as store:
        assert store.warning == (
            f"{tmp_path}/s: the file system has no locks (flock: {os.strerror(number)}); {made} "
            "keeps other runs out"
        )
        assert is_held_by(tmp_path / "s").startswith(f"process {os.getpid()} on ")
        assert made.exists()
    assert not made.exists()
    with pytest.raises(ZeroDivisionError), Store(tmp_path / "s"):
        raise ZeroDivisionError
    assert not made.exists()


def test_a_file_that_stands_for_a_lock_also_keeps_out_who_has_locks(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        without_locks(patch)
        Store(tmp_path / "s").__enter__()
    assert is_held_by(tmp_path / "s").startswith(f"process {os.getpid()} on ")


def left_by(lock, pid, host=None, start="1"):
    """Let a process that has ended leave the file that stands for a lock."""
    host = host or socket.gethostname()
    here = locks._here().partition("/")[2]
    lock.parent.mkdir()
    lock.write_text(f"process {pid} on {host} since 2026-01-01 00:00:00 UTC {start} {host}/{here}")


@pytest.mark.parametrize("kind", ["ended", "another by now"])
def test_the_file_of_a_process_that_has_ended_is_taken_over(tmp_path, monkeypatch, other, kind):
    without_locks(monkeypatch)
    left_by(tmp_path / "s" / "lock.held", ended() if kind == "ended" else other.pid)
    with Store(tmp_path / "s"):
        assert is_held_by(tmp_path / "s").startswith(f"process {os.getpid()} on ")
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == [".gitignore", "lock"]


@pytest.mark.parametrize("kind", ["another host", "another boot", "empty", "garbage", "folder"])
def test_a_file_whose_process_cannot_be_looked_up_is_refused_and_named(tmp_path, monkeypatch, kind):
    """A folder's name, an empty file and garbage may be of a run of any host."""
    without_locks(monkeypatch)
    monkeypatch.setattr(locks, "_PAUSE", 0)
    made = tmp_path / "s" / "lock.held"
    left_by(made, ended(), "other-host" if kind == "another host" else None)
    if kind == "another boot":
        made.write_text(f"{made.read_text()}x")
    elif kind in ("empty", "garbage"):
        made.write_text("" if kind == "empty" else "\x1b[2J::error::")
    elif kind == "folder":
        made.unlink()
        made.mkdir()
    with pytest.raises(UsageError) as raised:
        Store(tmp_path / "s").__enter__()
    told = str(raised.value)
    assert told.endswith(f"use --imgedit-out; if that run is over, delete {made}")
    assert ("on other-host since" in told) == (kind == "another host")
    made.rmdir() if kind == "folder" else made.unlink()
    with Store(tmp_path / "s"):
        pass


def test_of_takers_of_a_file_that_was_left_one_gets_it(tmp_path):
    """Eight processes at once, in ten rounds."""
    script = (
        "import errno, fcntl, sys\n"
        "from pathlib import Path\n"
        "from pytest_imgedit.core import locks\n"
        "def flock(*_): raise OSError(errno.ENOSYS, '')\n"
        "fcntl.flock = flock\n"
        "for round in sys.stdin:\n"
        "    try: lock = locks.take(Path('s', round.strip()))\n"
        "    except locks.Held: print('held', flush=True)\n"
        "    else: print('taken', flush=True)\n"
    )
    takers = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    left_by(tmp_path / "s" / "0.held", gone := ended())
    for number in range(1, 10):
        (tmp_path / "s" / f"{number}.held").write_text((tmp_path / "s" / "0.held").read_text())
    for number in range(10):
        for taker in takers:
            taker.stdin.write(f"{number}\n")
            taker.stdin.flush()
        said = sorted(taker.stdout.readline() for taker in takers)
        assert said == ["held\n"] * 7 + ["taken\n"], gone
    for taker in takers:
        taker.kill()
        taker.communicate()


def test_a_taker_that_was_killed_amid_taking_over_is_named(tmp_path, monkeypatch):
    without_locks(monkeypatch)
    monkeypatch.setattr(locks, "_PAUSE", 0)
    left_by(tmp_path / "s" / "lock.held", ended())
    guard = tmp_path / "s" / "lock.held.removing"
    guard.touch()
    with pytest.raises(UsageError, match=f"if that run is over, delete {re.escape(str(guard))}$"):
        Store(tmp_path / "s").__enter__()
    guard.unlink()
    with Store(tmp_path / "s"):
        pass


def test_who_releases_a_lock_removes_no_file_of_another(tmp_path, monkeypatch):
    without_locks(monkeypatch)
    made = tmp_path / "s" / "lock.held"
    with Store(tmp_path / "s"):
        made.unlink()  # by hand, as if this run were over
        made.parent.rename(tmp_path / "old")
        left_by(made, 1, "other-host")
    assert "on other-host since" in made.read_text()


@NO_LOCKS
def test_without_locks_digests_are_made_all_the_same(tmp_path, monkeypatch, number):
    without_locks(monkeypatch, number)
    (tmp_path / "weights").write_bytes(b"w")
    digests = Digests(tmp_path / "c" / "fingerprints.json")
    left_by(tmp_path / "c" / ".fingerprints.json.lock.held", 1, "other-host")
    known = {"weights": hashlib.sha256(b"w").hexdigest()}
    assert digests.of(tmp_path, ["weights"]) == known
    (tmp_path / "c" / ".fingerprints.json.lock.held").unlink()
    assert digests.of(tmp_path, ["weights"]) == known
    assert not (tmp_path / "c" / ".fingerprints.json.lock.held").exists()


def test_unwritable_store_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="expected a folder that can be written"):
        Store(tmp_path / "file").__enter__()


def test_json_is_replaced_whole(tmp_path):
    write_json(tmp_path / "r.json", {"a": "物"})
    assert json.loads((tmp_path / "r.json").read_text("utf-8")) == {"a": "物"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "r.json", {"a": float("nan")})
    assert json.loads((tmp_path / "r.json").read_text("utf-8")) == {"a": "物"}
