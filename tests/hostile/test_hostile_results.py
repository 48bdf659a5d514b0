"""A results.json of another origin: what names a file is checked where it is read; nothing leaves
its folder.
"""

from __future__ import annotations

import io
import json
import os

import pytest
from documents import a_run, an_item
from PIL import Image

from pytest_imgedit.cli.main import main
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.results import SeedResult
from pytest_imgedit.report.read import read_results
from pytest_imgedit.store.blobs import Blobs


def picture(shade: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (shade, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def store(tmp_path):
    """A store whose one run has the pairs `a` and `a-seed6`, each with edits of the seeds 5 and
    6.
    """
    blobs = Blobs(tmp_path / "store" / "blobs")
    items = []
    for name in ("a", "a-seed6"):
        item = an_item(name)
        [first] = item.seeds
        edits = [
            type(first.edit)(blobs.put(picture(len(items) * 2 + place)), 1.0, "edit-0")
            for place in range(2)
        ]
        seeds = tuple(
            SeedResult(5 + place, edit, first.verdict) for place, edit in enumerate(edits)
        )
        items.append(item.model_copy(update={"seeds": seeds}))
    write_run(tmp_path / "store", items)
    return tmp_path / "store"


def write_run(store, items):
    document = a_run(items=items).model_dump(mode="json")
    document["run"]["options"]["editor"]["seeds"] = 2
    write(store, document)


def write(store, document):
    (store / "runs" / "r1").mkdir(parents=True, exist_ok=True)
    (store / "runs" / "r1" / "results.json").write_text(json.dumps(document))


def change(store, place, value):
    document = json.loads((store / "runs" / "r1" / "results.json").read_text())
    part = document
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    write(store, document)


def export(store):
    return main(["export", "r1", str(store.parent / "edits"), f"--out={store}"])


BLOB = ("items", 0, "seeds", 0, "edit", "blob")
NAMES = [
    *(
        (("items", 0, "id"), value)
        for value in ("../../pwn", "/pwn", "a/b", ".", "..", "", "a" * 129, "a\0", "\ud800", "a\n")
    ),
    *(
        (("items", 0, "category"), value)
        for value in ("../pwn", "/pwn", "a/b", ".", "..", "", "a\0", "\ud800", "a b")
    ),
    *(
        (BLOB, value)
        for value in ("/pwn", "../pwn", "", "ab", "AB" * 32, "ab" * 32 + "\n", "\ud800")
    ),
    *(
        (("items", 0, "source"), value)
        for value in ("/pwn.png", "../../pwn.png", f"ab/{'ab' * 32}.svg", "\ud800")
    ),
    (("items", 1, "id"), "a"),
    (("items", 0, "seeds", 1, "seed"), 5),
    (("items", 0, "instruction"), "\ud800"),
]


@pytest.mark.parametrize(("place", "value"), NAMES, ids=lambda value: ascii(value)[:40])
def test_what_cannot_name_a_pair_or_an_image_is_refused_where_it_is_read(
    store, capsys, place, value
):
    change(store, place, value)
    before = sorted(store.parent.rglob("*"))
    assert export(store) == 4
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"imgedit: {store}/runs/r1/results.json: not ")
    assert sorted(store.parent.rglob("*")) == before
    with pytest.raises(UsageError):
        read_results(store / "runs" / "r1" / "results.json")


def test_each_edit_has_a_name_of_its_own(store):
    assert export(store) == 0
    folder = store.parent / "edits"
    rows = json.loads((folder / "edits.json").read_text())["edits"]
    assert [row["file"] for row in rows] == [
        "physics/a.png",
        "physics/seed6/a.png",
        "physics/a-seed6.png",
        "physics/seed6/a-seed6.png",
    ]
    assert [Image.open(folder / row["file"]).getpixel((0, 0))[0] for row in rows] == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "device"])
def test_a_blob_that_is_no_file_of_the_store_is_missing(store, tmp_path, capsys, kind):
    """Other bytes than its name says are not copied, and neither a pipe nor a device is waited
    for.
    """
    (tmp_path / "secret").write_text("secret")
    path = next((store / "blobs").glob("*/*.png"))
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path / "secret")
    assert export(store) == 1
    assert f"{path} is not in the store any more, or damaged" in capsys.readouterr().out
    assert len(list((tmp_path / "edits").rglob("*.png"))) == 3
    assert not any(path.is_symlink() for path in (tmp_path / "edits").rglob("*"))


def test_a_category_that_can_be_no_folder_is_named(store, capsys):
    items = read_results(store / "runs" / "r1" / "results.json").items
    write_run(store, [item.model_copy(update={"category": "c" * 300}) for item in items])
    assert export(store) == 4
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("File name too long")
