"""No field of a suite that names a file leads out of the suite's folder, whichever reader takes it."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from miniatures import make_imgedit, make_kris, make_risebench, picture

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import errors
from pytest_imgedit.protocols.prompts import find
from pytest_imgedit.suites.base import BUILTIN, PUBLIC, load_suite

#: Readers without a field that names a file: images are in parquet files, or drawn.
WITHOUT_PATHS = {"gedit", "gedit-v2", "genarena", "omnicontext", "scenes"}
RISE = "data/datav2_total_w_subtask.json"
IMGEDIT = "Benchmark/singleturn/singleturn.json"
KRIS = "KRIS_Bench/{}/annotation.json"


def make_rows(folder: Path) -> Path:
    """A row in the words of the native format and of the seeds, with two images."""
    picture(folder / "a.png", 1)
    row = {"id": "a", "category": "physics", "instruction": "lift it", "image": "a.png"}
    (folder / "pairs.json").write_text(json.dumps([{**row, "reference": "a.png"}]))
    return folder


#: By field: what makes the folder, the spec of the suite in it, the document, and the keys that
#: lead to the name of a file.
FIELDS: dict[str, tuple[Any, str, str, tuple[str | int, ...]]] = {
    **{
        f"{name} {field}": (make_rows, spec, "pairs.json", (0, field))
        for name, spec in (
            ("native", "{}/pairs.json"),
            ("csv", "{}/pairs.csv"),
            ("toml", "{}/pairs.toml"),
            ("seeds", "seeds:{}/pairs.json"),
            ("re-edit", "re-edit:{}"),
        )
        for field in ("image", "reference")
    },
    "risebench image": (make_risebench, "risebench:{}", RISE, (0, "image")),
    "risebench reference": (make_risebench, "risebench:{}", RISE, (5, "reference_img")),
    "imgedit first": (make_imgedit, "imgedit:{}", IMGEDIT, ("1000", "id")),
    "imgedit second": (make_imgedit, "imgedit:{}", IMGEDIT, ("1001", "id")),
    "kris source": (make_kris, "kris:{}", KRIS.format("viewpoint_change"), ("1", "ori_img")),
    "kris truth": (make_kris, "kris:{}", KRIS.format("viewpoint_change"), ("1", "gt_img")),
    "kris frame": (make_kris, "kris:{}", KRIS.format("temporal_prediction"), ("1", "ori_img", 1)),
}
#: Paths below the attacked document's folder, made by `attacked`.
NAMES = {
    "absolute": "{outside}/secret.png",
    "upwards": "../" * 20 + "{outside}/secret.png",
    "through a folder": "in/../../../../../../../../../../../../../..{outside}/secret.png",
    "link to a file": "link.png",
    "link to a folder": "links/secret.png",
    "folder": "in",
    "pipe": "pipe.png",
    "long": "x" * 300 + ".png",
    "zero byte": "a\0.png",
    "missing": "missing.png",
    "url": "file:///etc/passwd",
}
VALUES = {"number": 7, "list": [["a.png"]], "table": {"path": "a.png"}, "truth": True}


def attacked(folder: Path, field: str, value: object) -> SuiteSettings:
    """Make a suite with a value in a field, and return its settings."""
    make, spec, name, keys = FIELDS[field]
    make(folder)
    path = folder / name
    document = target = json.loads(path.read_text())
    for key in keys[:-1]:
        target = target[key]
    target[keys[-1]] = value
    path.write_text(json.dumps(document))
    if spec.endswith((".csv", ".toml")):
        path.unlink()
    if spec.endswith(".csv"):
        with (folder / "pairs.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, document[0])
            writer.writeheader()
            writer.writerows(document)
    if spec.endswith(".toml"):
        lines = [f"{key} = {json.dumps(cell)}" for key, cell in document[0].items()]
        (folder / "pairs.toml").write_text("[[pairs]]\n" + "\n".join(lines))
    place = path.parent.parent if field == "imgedit first" else path.parent
    for root in {place, path.parent, folder}:
        (root / "in").mkdir(exist_ok=True)
        (root / "link.png").symlink_to(folder.parent / "outside" / "secret.png")
        (root / "links").symlink_to(folder.parent / "outside")
        os.mkfifo(root / "pipe.png")
    return SuiteSettings(spec=spec.format(folder))


def read_all(settings: SuiteSettings) -> list[bytes]:
    pairs = load_suite(settings).pairs
    return [image.read() for pair in pairs for image in pair.images.values()]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return picture(tmp_path / "outside" / "secret.png", 5).parent


def test_every_reader_is_attacked() -> None:
    readers = {*BUILTIN, *PUBLIC} - WITHOUT_PATHS
    assert readers <= {field.split()[0] for field in FIELDS}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("field", FIELDS)
def test_a_path_that_leads_out_or_to_no_file_is_one_line(tmp_path, outside, field, name):
    settings = attacked(tmp_path / "suite", field, NAMES[name].format(outside=outside))
    with pytest.raises((errors.UsageError, errors.ImageError)) as refused:
        read_all(settings)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1500


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("field", [name for name in FIELDS if not name.startswith("csv")])
def test_what_is_no_text_in_the_place_of_a_path_is_one_line(tmp_path, field, kind):
    settings = attacked(tmp_path / "suite", field, VALUES[kind])
    with pytest.raises(errors.UsageError) as refused:
        load_suite(settings)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("field", FIELDS)
def test_links_to_the_blobs_of_a_hub_cache_are_read_and_others_are_not(tmp_path, outside, field):
    """`hf download` makes a folder of links to files that are named by their digests."""
    snapshot = tmp_path / "datasets--a--b" / "snapshots" / "0123abcd"
    settings = attacked(snapshot, field, NAMES["absolute"].format(outside=outside))
    make = FIELDS[field][0]
    for path in snapshot.rglob("link*"):
        path.unlink()
    make(snapshot)  # again, without the attack
    if field.startswith(("csv", "toml")):
        settings = SuiteSettings(spec=f"{snapshot}/pairs.json")
    blobs = tmp_path / "datasets--a--b" / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(snapshot.rglob("*.*"))):
        if path.is_file():
            path.rename(blobs / f"{number:040x}")
            path.symlink_to(os.path.relpath(blobs / f"{number:040x}", path.parent))
    assert all(read_all(settings))
    elsewhere = tmp_path / "datasets--c--d" / "blobs"
    blobs.rename(tmp_path / "moved")
    elsewhere.parent.mkdir()
    (tmp_path / "moved").rename(elsewhere)
    blobs.symlink_to(elsewhere)
    with pytest.raises((errors.UsageError, errors.ImageError)):
        read_all(settings)


def test_folders_that_link_to_themselves_are_looked_at_once(tmp_path):
    for number in range(300):
        (tmp_path / f"link{number}").symlink_to(tmp_path)
    with pytest.raises(errors.UsageError, match=r"no x\.json in it"):
        find(tmp_path, ("x.json",), "it")
