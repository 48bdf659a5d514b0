"""Records that are whole by their checksum and hold what cannot be: refused by file and line, and
never believed.
"""

from __future__ import annotations

import json
import shutil
import zlib

import pytest

RUN = ("--imgedit-editor=noise", "--imgedit-judge=fakes:Reader", "--imgedit-limit=2")
GRADES = {"instruction": 9, "preservation": 9, "realism": 9}


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The folder for the store of a finished run, which the first test that needs it makes."""
    return tmp_path_factory.mktemp("finished") / "store"


@pytest.fixture
def store(bench, finished):
    """A finished run of ten pairs in a store of the test's own."""
    if not finished.exists():
        bench.run(*RUN).assert_outcomes(passed=10)
        shutil.copytree(bench.path / ".imgedit", finished)
    else:
        shutil.copytree(finished, bench.path / ".imgedit")
    return bench.path / ".imgedit"


def sealed(body: bytes) -> bytes:
    """Write a line as the store does, with the checksum that belongs to it."""
    return b"%s\t%08x\n" % (body, zlib.crc32(body))


def refuses_line(bench, store, name: str, number: int, line: bytes) -> None:
    """Put a line into a journal; check that the next run exits 4 with one line that names it, and
    changes nothing.
    """
    path = store / f"{name}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number - 1] = line
    path.write_bytes(b"".join(lines))
    result = bench.pytester.runpytest_inprocess("-p", "no:cacheprovider", *RUN)
    told = [text for text in result.errlines if text.strip()]
    assert result.ret == 4, (result.outlines[-12:], told)
    assert len(told) == 1, told
    assert told[0].startswith("ERROR: ")
    assert f"{name}.jsonl:{number}: " in told[0]
    assert len(told[0]) < 1000
    assert "INTERNALERROR" not in result.stdout.str()
    assert path.read_bytes() == b"".join(lines)


def changed(store, name: str, number: int, changes: dict) -> bytes:
    """Return a record of a journal with other values."""
    body = (store / f"{name}.jsonl").read_bytes().splitlines()[number - 1].rpartition(b"\t")[0]
    return sealed(json.dumps({**json.loads(body), **changes}, sort_keys=True).encode())


VERDICTS = {
    "score-true": {"score": True},
    "score-nan": {"score": float("nan")},
    "score-infinite": {"score": float("inf")},
    "score-text": {"score": "9"},
    "score-over": {"score": 10.5},
    "score-under": {"score": -0.5},
    "aspect-nan": {"aspects": {**GRADES, "realism": float("nan")}},
    "aspect-text": {"aspects": {**GRADES, "realism": "9"}},
    "aspect-true": {"aspects": {**GRADES, "realism": True}},
    "aspect-surrogate": {"aspects": {**GRADES, "\ud800": 9}},
    "aspects-list": {"aspects": [9, 9, 9]},
    "reply-number": {"reply": 5},
    "reply-surrogate": {"reply": "instruction: 9 \udfff"},
    "batch-size-true": {"batch_size": True},
    "batch-size-nothing": {"batch_size": 0},
    "greedy-text": {"greedy": "9"},
    "greedy-infinite": {"greedy": float("-inf")},
    "off-scale-over": {"off_scale": 1.5},
}
EDITS = {
    "blob-nul": {"blob": "\0" * 64},
    "blob-elsewhere": {"blob": "../" * 20 + "etc/"},
    "blob-short": {"blob": "ab"},
    "blob-number": {"blob": 5},
    "blob-surrogate": {"blob": "\ud800" * 64},
    "seconds-nan": {"seconds": float("nan")},
    "seconds-negative": {"seconds": -1.0},
    "seconds-text": {"seconds": "1"},
    "seconds-true": {"seconds": True},
    "worker-number": {"worker": 7},
    "worker-surrogate": {"worker": "\udc80"},
    "change-nan": {"change": float("nan")},
    "change-negative": {"change": -1.0},
    "near-copy-text": {"near_copy": "no"},
    "compiled-text": {"compiled": "no"},
}
LINES = {
    "deep": b'{"key": "x", "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "5000-digits": b'{"key": "x", "seconds": ' + b"9" * 5000 + b"}",
    "no-json": b"not JSON at all",
    "list": b'["key", "x"]',
    "number": b"5",
    "null": b"null",
    "no-key": b'{"blob": "x"}',
    "key-number": b'{"key": 5}',
    "not-utf-8": b'{"key": "\xff\xfe"}',
    "empty": b"",
}


@pytest.mark.parametrize("case", VERDICTS)
@pytest.mark.everyday_for(
    "score-true",
    "score-infinite",
    "score-over",
    "aspect-nan",
    "aspect-true",
    "reply-number",
    "batch-size-true",
    "greedy-text",
    "off-scale-over",
)
def test_verdict_that_cannot_be_is_refused(bench, store, case):
    refuses_line(bench, store, "verdicts", 3, changed(store, "verdicts", 3, VERDICTS[case]))


@pytest.mark.parametrize("case", EDITS)
@pytest.mark.everyday_for(
    "blob-nul",
    "blob-short",
    "blob-surrogate",
    "seconds-negative",
    "seconds-true",
    "worker-surrogate",
    "change-negative",
    "compiled-text",
)
def test_edit_that_cannot_be_is_refused(bench, store, case):
    refuses_line(bench, store, "edits", 4, changed(store, "edits", 4, EDITS[case]))


@pytest.mark.parametrize("case", LINES)
@pytest.mark.everyday_for("deep", "no-json", "number", "key-number", "empty")
def test_line_that_is_no_record_is_refused(bench, store, case):
    name = "edits" if len(case) % 2 else "verdicts"
    refuses_line(bench, store, name, 5, sealed(LINES[case]))


@pytest.mark.parametrize("case", ["list", "deep", "5000-digits"])
def test_last_line_with_a_right_checksum_is_not_torn(bench, store, case):
    refuses_line(bench, store, "verdicts", 10, sealed(LINES[case]))
