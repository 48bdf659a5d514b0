"""Blobs, journals and locks."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import zlib
from io import FileIO
from pathlib import Path

import pytest
from PIL import Image

from pytest_imgedit.core.environments import Environment, key
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.files import write_json
from pytest_imgedit.core.images import encode_png
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
        **record("a").model_dump(include={"environment"}),
        "key": "a" * 64,
        "content": "b" * 64,
        "recipe": {},
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
        patch.setattr(Store, "_open_lock", lambda *_: Bad(tmp_path / "lock", "w+"))
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
        store._lock = Bad(os.dup(store._lock.fileno()), "r+")
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


def test_a_lock_of_another_user_is_named(tmp_path, monkeypatch):
    """The tests may run as root, who may write every file, so that the refusal is that of a
    stand-in.
    """

    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "lock").touch(mode=0o444)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UsageError) as raised:
        Store(tmp_path).__enter__()
    assert str(raised.value) == (
        f"{tmp_path}/lock: Permission denied, expected a folder that can be written, and its lock "
        "too; remove the lock if no run holds it"
    )


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(UsageError, match=r"expected a file system that has locks \(flock\)"):
        Store(tmp_path).__enter__()


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
