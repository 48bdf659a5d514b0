"""The edits that baselines keep: whole or missing, never outside of their folder; and where those of a
baseline are found.
"""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest
from documents import a_baseline, baseline_item

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.store.baseline_edits import BaselineEdits, OtherEdits
from pytest_imgedit.store.blobs import Blobs

PNGS = [b"\x89PNG\r\n\x1a\n%d" % number for number in range(3)]
DIGESTS = [hashlib.sha256(data).hexdigest() for data in PNGS]
FIRST, SECOND, THIRD = DIGESTS


def damage(path: Path, content: bytes = b"other") -> None:
    path.unlink()
    path.write_bytes(content)


def a_link(path: Path) -> None:
    """Put a link to a file outside in its place, with the very content."""
    outside = path.parents[2] / "outside.png"
    outside.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(outside)


def a_folder_link(path: Path) -> None:
    """Put a link to a folder outside in the place of its folder."""
    outside = path.parents[2] / "outside"
    path.parent.rename(outside)
    path.parent.symlink_to(outside)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


#: What may be in the place of an edit, and what a message says of it.
IN_ITS_PLACE = {
    "other": (damage, "of another SHA-256"),
    "cut": (lambda path: damage(path, PNGS[0][:-1]), "of another SHA-256"),
    "empty": (lambda path: damage(path, b""), "empty file"),
    "pointer": (
        lambda path: damage(path, b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n"),
        "a Git LFS pointer, expected an edit: git lfs pull",
    ),
    "link": (a_link, "behind a link, which is not followed"),
    "folder-link": (a_folder_link, "behind a link, which is not followed"),
    "folder": (a_folder, "a folder, expected a file"),
    "pipe": (a_pipe, "not a regular file"),
}


@pytest.fixture
def edits(tmp_path):
    """A folder with one edit."""
    kept = BaselineEdits(tmp_path / "edits")
    assert kept.put(PNGS[0]) == FIRST
    return kept


def baseline_of(*digests: str | None, **changes: object):
    """A baseline with a pair for each edit, `a`, `b` and so on."""
    items = [
        baseline_item(name, 5.0, seeds=[{"seed": 0, "score": 5.0, "edit": sha256}])
        for name, sha256 in zip("abcdef", digests, strict=False)
    ]
    return a_baseline(*items, **changes)


def test_edits_are_laid_out_as_in_a_store_and_read_back(edits, tmp_path):
    assert edits.path(FIRST) == tmp_path / "edits" / FIRST[:2] / f"{FIRST}.png"
    assert Blobs(tmp_path / "edits").get(FIRST) == PNGS[0] == edits.get(FIRST)
    assert edits.missing(DIGESTS) == [SECOND, THIRD]
    assert edits.damaged(DIGESTS) == []
    assert edits.get(SECOND) is None
    assert edits.size([FIRST, FIRST, SECOND]) == len(PNGS[0])
    assert [path.name for path in edits.path(FIRST).parent.iterdir()] == [f"{FIRST}.png"]


def test_an_edit_that_is_whole_is_not_written_again(edits):
    before = edits.path(FIRST).stat()
    edits.put(PNGS[0])
    assert os.path.samestat(before, edits.path(FIRST).stat())


@pytest.mark.parametrize(
    "name", ["", "../secret", FIRST.upper(), f"{FIRST}\n", FIRST[:-1], f"{'../' * 21}x"]
)
def test_what_is_no_digest_names_no_file(edits, name):
    for method in (edits.path, edits.get, lambda name: edits.missing([name])):
        with pytest.raises(ValueError, match="expected 64 digits of hex"):
            method(name)


@pytest.mark.parametrize("kind", IN_ITS_PLACE)
def test_what_is_no_whole_edit_in_its_folder_is_damaged(edits, kind):
    change, said = IN_ITS_PLACE[kind]
    change(edits.path(FIRST))
    assert edits.get(FIRST) is None
    assert edits.damaged(DIGESTS) == [FIRST]
    with pytest.raises(UsageError) as raised:
        OtherEdits([], [edits]).require_edits(baseline_of(FIRST), "a")
    line = str(raised.value)
    state = "not readable" if kind in ("link", "folder-link", "folder", "pipe") else "damaged"
    assert f"; 1 file {state}, such as {edits.path(FIRST)}: {said}" in line


@pytest.mark.parametrize("kind", [kind for kind in IN_ITS_PLACE if not kind.startswith("folder")])
def test_an_edit_is_written_over_what_is_in_its_place(edits, tmp_path, kind):
    change, _ = IN_ITS_PLACE[kind]
    change(edits.path(FIRST))
    edits.put(PNGS[0])
    assert edits.get(FIRST) == PNGS[0]
    assert not edits.path(FIRST).is_symlink()


def test_nothing_is_written_or_removed_behind_a_link(edits, tmp_path):
    a_folder_link(edits.path(FIRST))
    outside = tmp_path / "outside" / f"{FIRST}.png"
    damage(outside)
    with pytest.raises(OSError, match="its folder is a link, which is not followed"):
        edits.put(PNGS[0])
    edits.remove([FIRST])
    assert outside.read_bytes() == b"other"
    assert edits.size([FIRST]) == 0


def test_a_full_disk_leaves_the_old_edits_alone(edits, monkeypatch):
    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", is_full)
    with pytest.raises(OSError, match="No space left"):
        edits.put(PNGS[1])
    assert [path.name for path in edits.folder.rglob("*.*")] == [f"{FIRST}.png"]


def test_removing_leaves_other_edits_and_no_empty_folder(edits):
    other = edits.path(FIRST).with_name("readme.txt")
    other.touch()
    edits.put(PNGS[1])
    edits.remove([FIRST, SECOND, THIRD])
    assert list(edits.folder.rglob("*.*")) == [other]
    assert not edits.path(SECOND).parent.exists()


def test_edits_are_taken_from_the_store_or_from_a_folder_of_edits(edits, tmp_path):
    blobs = Blobs(tmp_path / "blobs")
    blobs.put(PNGS[1])
    other = OtherEdits([blobs], [edits])
    assert [other.edit_of(sha256) for sha256 in DIGESTS] == [PNGS[0], PNGS[1], None]
    other.require_edits(baseline_of(FIRST, SECOND, THIRD), ["a", "b", "of no baseline"])


def test_a_damaged_edit_of_one_place_is_taken_from_another(edits, tmp_path):
    blobs = Blobs(tmp_path / "blobs")
    blobs.put(PNGS[0])
    damage(blobs.path(FIRST))
    other = OtherEdits([blobs], [edits])
    other.require_edits(baseline_of(FIRST), "a")
    assert other.edit_of(FIRST) == PNGS[0]


def test_missing_edits_are_told_in_one_line(edits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = OtherEdits([Blobs(tmp_path / ".imgedit" / "blobs")], [edits])
    with pytest.raises(UsageError) as raised:
        other.require_edits(baseline_of(SECOND, THIRD, None), "abc")
    assert str(raised.value) == (
        "--imgedit-duel: baseline main has no edits: those of 2 of 2 pairs are in none of "
        ".imgedit, edits (such as a); expected a baseline saved with --imgedit-save-edits, or a "
        "run of this store"
    )
    with pytest.raises(
        UsageError, match=r"main lacks edits: those of 1 of 2 pairs .* \(such as b\)"
    ):
        other.require_edits(baseline_of(FIRST, SECOND), "ab")


def test_a_pair_that_has_no_edit_is_no_reason_to_refuse(edits):
    OtherEdits([], [edits]).require_edits(baseline_of(None, FIRST), "ab")
    OtherEdits([], [edits]).require_edits(baseline_of(SECOND, FIRST), "b")
    OtherEdits([], [edits]).require_edits(baseline_of(SECOND), [])
