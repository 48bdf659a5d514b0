"""Runs in the tracker of a training loop; wandb is run offline, where it is installed."""

from __future__ import annotations

import json
import re
import struct
import sys
import threading
from dataclasses import replace

import pytest
from documents import a_run, an_item
from duels import a_run_with_duel
from PIL import Image

from pytest_imgedit import tracking
from pytest_imgedit.core import images
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.results import ItemError
from pytest_imgedit.store.blobs import Blobs
from pytest_imgedit.tracking import (
    PICTURES,
    log_run,
    means,
    pytest_imgedit_run_finished,
    worst_first,
)


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """The library wandb, offline, with its files below `tmp_path`."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for variable in ("WANDB_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    yield wandb
    wandb.teardown()


@pytest.fixture
def results():
    items = [an_item(f"p{n:02}", score=n / 2) for n in range(20)]
    error = ItemError("score", "unreadable_reply", "no number")
    return a_run(items=[*items, an_item("x", score=None, error=error)])


@pytest.fixture
def store(tmp_path):
    """A store with a thumbnail of the image that all pairs have."""
    blobs = Blobs(tmp_path / "store" / "blobs")
    blobs.path("ab" * 32).parent.mkdir(parents=True)
    blobs.put_thumbnail("ab" * 32, images.thumbnail(Image.new("RGB", (8, 8), "red")))
    return tmp_path / "store"


def stored(path):
    """Yield the records of an offline run: a log of LevelDB behind a header of 7 bytes, whose parts
    have each a header of checksum, length and position, and never cross a block of 32 KiB.
    """
    data, offset, record = path.read_bytes(), 7, b""
    while offset + 7 <= len(data):
        if 2**15 - offset % 2**15 < 7:  # the rest of a block
            offset += 2**15 - offset % 2**15
            continue
        _, length, position = struct.unpack_from("<IHB", data, offset)
        record += data[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if position in (1, 4):  # whole, or the last part
            yield record
            record = b""


def records(folder):
    """What the file of an offline run holds: its config, the rows of its history by key, and the
    paths in its artifacts.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    config, history, paths = {}, [], []
    for data in stored(path):
        record = Record.FromString(data)
        for change in (*record.run.config.update, *record.config.update):
            config[change.key or change.nested_key[0]] = json.loads(change.value_json)
        if record.WhichOneof("record_type") == "history":
            row = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            history.append(row)
        paths += [entry.path for entry in record.artifact.manifest.contents]
    return config, history, paths


def table_of(folder):
    (path,) = folder.glob("wandb/offline-run-*/files/media/table/imgedit/*.table.json")
    return json.loads(path.read_text())


def test_scalars_are_named_by_group_and_measure(results):
    scalars = means(results)
    assert scalars["physics/score"] == pytest.approx(4.75)
    assert scalars["overall/realism"] == 7.0


def test_shares_of_duels_are_scalars_too():
    run = a_run_with_duel()
    assert means(run)["overall/duel.score"] == run.duel.measures["score"]["overall"].share


def test_pairs_without_a_score_come_first_and_those_not_needed_last():
    error = ItemError("score", "unreadable_reply", "no number")
    items = (
        an_item("unneeded", score=None, status="not_needed"),
        an_item("zero", score=0.0),
        an_item("good", score=9.0),
        an_item("failed", score=None, error=error),
    )
    assert [item.id for item in worst_first(items)] == ["failed", "zero", "good", "unneeded"]


def test_a_missing_library_is_named_with_the_command_that_installs_it(
    results, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r"pip install 'pytest-imgedit\[wandb\]'"):
        log_run(results, tmp_path)


def test_without_a_run_of_wandb_nothing_is_logged(offline, results, store):
    with pytest.raises(UsageError, match="wandb has no active run"):
        log_run(results, store)


def test_a_training_loop_logs_with_its_step(offline, results, store, tmp_path):
    with offline.init(project="training", config={"lr": 1e-4}) as run:
        run.log({"loss": 0.5}, step=100)
        log_run(results, store, step=100)
        log_run(results, store, step=200)
    config, history, _ = records(tmp_path)
    assert config["lr"] == 1e-4
    assert config["imgedit"]["editor"] == "identity"
    assert [row["_step"] for row in history] == [100, 200]
    assert history[0]["loss"] == 0.5
    assert history[1]["physics/score"] == pytest.approx(4.75)


def test_the_hook_logs_a_table_with_thumbnails_of_the_worst_pairs(
    offline, results, store, tmp_path
):
    assert pytest_imgedit_run_finished(results, store) is None
    assert offline.run is None  # the run that the hook opened is finished
    table = table_of(tmp_path)
    assert table["columns"][4:] == ["score", "realism", "source", "edit"]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [row["id"] for row in rows[:3]] == ["x", "p00", "p01"]
    assert (rows[0]["score"], rows[1]["score"]) == (None, 0.0)
    assert sum(row["edit"] is not None for row in rows) == PICTURES
    assert all(row["source"] is None for row in rows[PICTURES:])
    _, (logged,), paths = records(tmp_path)
    assert logged["imgedit/pairs/nrows"] == 21
    assert [path for path in paths if path.endswith(f"/{'ab' * 32}.thumbnail.webp")]


def test_a_damaged_thumbnail_is_made_again(offline, results, store):
    blobs = Blobs(store / "blobs")
    sha256 = blobs.put(images.encode_png(Image.effect_noise((64, 64), 99).convert("RGB")))
    path = blobs.made_thumbnail(sha256)
    whole = path.read_bytes()
    path.write_bytes(whole[:60])
    item = results.items[0]
    edit = replace(item.seeds[0].edit, blob=sha256)
    item = item.model_copy(update={"seeds": (replace(item.seeds[0], edit=edit),)})
    assert pytest_imgedit_run_finished(results.model_copy(update={"items": (item,)}), store) is None
    assert path.read_bytes() == whole


class FakeWandb:
    """Stands for wandb: what it does wrong happens in a call of the name `at`."""

    run = None

    def __init__(self, at: str, wrong) -> None:
        self.at, self.wrong = at, wrong

    def _call(self, name: str):
        if name == self.at:
            self.wrong()
        return self

    def init(self, **_):
        return self._call("init")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._call("finish")

    @property
    def config(self):
        return self._call("config")

    def update(self, *_, **__): ...

    def log(self, *_, **__):
        self._call("log")

    def Table(self, **_):
        return None

    def Image(self, _):
        return None


def raises(error: BaseException):
    def wrong():
        raise error

    return wrong


@pytest.mark.parametrize("at", ["init", "config", "log", "finish"])
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (raises(ConnectionError("Run initialization has timed out")), "ConnectionError: Run init"),
        (raises(SystemExit(1)), "SystemExit: 1"),
        (raises(OSError(28, "No space left on device")), "OSError: .*No space left"),
        (threading.Event().wait, "no answer in 0.2 s"),
    ],
    ids=["down", "exits", "disk-full", "hangs"],
)
def test_a_tracker_that_fails_or_hangs_is_a_line(results, store, monkeypatch, at, wrong, reason):
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb(at, wrong))
    monkeypatch.setattr(tracking, "PATIENCE", 0.2)
    line = pytest_imgedit_run_finished(results, store)
    assert re.match(rf"wandb: {reason}.*; the run is not logged there, pytest --imgedit-st", line)


def test_a_tracker_that_answers_has_no_line(results, store, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb("nothing", None))
    assert pytest_imgedit_run_finished(results, store) is None


def test_sources_of_a_pair_have_a_column_each(results, store, monkeypatch):
    wandb = FakeWandb("nothing", None)
    tables = []
    wandb.Table = lambda **table: tables.append(table)
    wandb.Image = lambda path: path
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    blob = f"ab/{'ab' * 32}.png"
    several = an_item("several", score=1.0, further=(blob, blob), edited_source=2)
    run = a_run(items=[an_item("one"), several])
    assert pytest_imgedit_run_finished(run, store) is None
    [table] = tables
    assert table["columns"][-4:] == ["source", "source-1", "source-3", "edit"]
    pictured = [[cell is not None for cell in row[-4:]] for row in table["data"]]
    assert pictured == [[True] * 4, [True, False, False, True]]


def test_the_hook_without_the_library_fails_with_the_command_that_installs_it(
    results, store, monkeypatch
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r"pip install 'pytest-imgedit\[wandb\]'"):
        pytest_imgedit_run_finished(results, store)
