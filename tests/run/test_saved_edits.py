"""`--imgedit-save-edits`: what is kept beside a baseline, what replacing one removes, and what is
refused before the first edit.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest
from documents import a_run, an_item

from pytest_imgedit.config.settings import Settings, make_settings, read_tables
from pytest_imgedit.core import errors
from pytest_imgedit.report.read import as_baseline
from pytest_imgedit.run.baselines import Baselines, ComparedWith
from pytest_imgedit.run.session import Session
from pytest_imgedit.store.baseline_edits import BaselineEdits
from pytest_imgedit.store.store import Store

SAVED = ("--imgedit-save=main", "--imgedit-save-edits")
PNGS = [b"\x89PNG\r\n\x1a\n%d" % number for number in range(4)]
DIGESTS = [hashlib.sha256(data).hexdigest() for data in PNGS]
FOLDER = Path("benchmarks", "baselines")


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store with four edits in the working directory."""
    monkeypatch.chdir(tmp_path)
    store = Store(Path(".imgedit"))
    with store:
        for data in PNGS:
            store.blobs.put(data)
    return store


def baselines(name: str = "main", **gates: str) -> Baselines:
    """The baselines of a session that saves one with its edits."""
    return Baselines(settings(run={"save": name, "save_edits": True}, gates=gates), Path())


def settings(**tables: dict[str, object]) -> Settings:
    """The settings of a session without a config."""
    raw = {**read_tables(None), "editor": {"spec": "noise"}}
    return make_settings(
        {**raw, **{name: {**raw.get(name, {}), **tables[name]} for name in tables}}
    )


def a_run_with(*edits: int):
    """A run with a pair for each edit, by its number."""
    items = [
        an_item(f"p{place}", blob=DIGESTS[number], score=5.0) for place, number in enumerate(edits)
    ]
    return a_run(items=items)


def kept(folder: Path = FOLDER / "edits") -> list[int]:
    """The numbers of the edits in a folder, which holds nothing else."""
    names = sorted(path.stem for path in folder.rglob("*.*"))
    return sorted(map(DIGESTS.index, names))


def test_a_baseline_is_saved_after_its_edits(store):
    text = baselines().save("main", a_run_with(0, 1, 1), store.blobs)
    assert text == (
        "benchmarks/baselines/main.json with 2 edits, 0.0 kB, in benchmarks/baselines/edits"
    )
    assert kept() == [0, 1]
    assert as_baseline(FOLDER / "main.json").items[1].edits == (DIGESTS[1],)


def test_without_the_option_no_edit_is_kept(store):
    run = Baselines(settings(run={"save": "main"}), Path())
    text = run.save("main", a_run_with(0), store.blobs)
    assert text == "benchmarks/baselines/main.json"
    assert not (FOLDER / "edits").exists()


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"other")])
def test_an_edit_that_is_gone_from_the_store_saves_nothing(store, damage):
    damage(store.blobs.path(DIGESTS[1]))
    with pytest.raises(errors.StoreError, match=r"the edit of p1 is gone or damaged, so that "):
        baselines().save("main", a_run_with(0, 1), store.blobs)
    assert not (FOLDER / "main.json").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_edits_that_cannot_be_written_leave_the_old_baseline_with_its_edits(
    store, monkeypatch, number
):
    baselines().save("main", a_run_with(0), store.blobs)
    before = (FOLDER / "main.json").read_bytes()

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("pytest_imgedit.core.files.write_bytes", fails)
    with pytest.raises(errors.StoreError, match=f"{os.strerror(number)}.*, so that baseline main "):
        baselines().save("main", a_run_with(1), store.blobs)
    assert (FOLDER / "main.json").read_bytes() == before
    assert kept() == [0]


def test_a_baseline_that_cannot_be_written_keeps_the_old_one_with_its_edits(store, monkeypatch):
    baselines().save("main", a_run_with(0), store.blobs)

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pytest_imgedit.core.files.write_text", fails)
    with pytest.raises(errors.StoreError, match="No space left"):
        baselines().save("main", a_run_with(1), store.blobs)
    assert as_baseline(FOLDER / "main.json").items[0].edits == (DIGESTS[0],)
    assert 0 in kept()


def test_replacing_removes_the_edits_that_no_other_baseline_names(store):
    baselines().save("main", a_run_with(0, 1), store.blobs)
    baselines("other").save("other", a_run_with(1, 2), store.blobs)
    baselines().save("main", a_run_with(3), store.blobs)
    assert kept() == [1, 2, 3]


def test_nothing_is_removed_while_a_baseline_cannot_be_read(store):
    baselines().save("main", a_run_with(0), store.blobs)
    (FOLDER / "other.json").write_text("<<<<<<< ours\n")
    baselines().save("main", a_run_with(1), store.blobs)
    assert kept() == [0, 1]


@pytest.mark.parametrize("place", ["setting", "link"])
def test_nothing_is_removed_from_a_folder_that_others_may_share(store, place):
    gates = {}
    if place == "setting":
        gates["baseline_store"] = "shared"
    else:
        FOLDER.mkdir(parents=True)
        (FOLDER / "edits").symlink_to(Path("shared").absolute())
        Path("shared").mkdir()
    baselines(**gates).save("main", a_run_with(0), store.blobs)
    baselines(**gates).save("main", a_run_with(1), store.blobs)
    assert kept(Path("shared")) == [0, 1]


def test_the_folder_of_edits_is_relative_to_its_config(store):
    config = Path("project", "benchmarks", "imgedit.toml")
    config.parent.mkdir(parents=True)
    config.write_text("[gates]\nbaseline_store = '../edits'\n[editor]\nspec = 'noise'\n")
    session = Session(make_settings(read_tables(config)), Path.cwd())
    assert session.baselines.edits.folder.resolve() == Path("project/edits").resolve()


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        (".imgedit/blobs", "in the store .*, expected a path outside of it"),
        ("linked", "in the store .*, expected a path outside of it"),
        (".imgedit", "in .imgedit, which holds results or inputs"),
        ("file", "is no folder, expected one to write into"),
        ("suite", "in suite, which holds results or inputs"),
    ],
)
def test_a_folder_that_cannot_keep_edits_is_refused_before_the_first_one(store, folder, line):
    for name in ("edits.jsonl", "verdicts.jsonl"):
        (store.folder / name).touch()
    Path("linked").symlink_to(store.folder / "blobs")
    Path("file").touch()
    Path("suite").mkdir()
    run = baselines(baseline_store=folder)
    suite = run.settings.suite.model_copy(update={"spec": "kris:suite"})
    run.settings = run.settings.model_copy(update={"suite": suite})
    with pytest.raises(errors.UsageError, match=line):
        run.check_save([])


def test_edits_of_what_a_run_is_compared_with_are_found_wherever_it_is(store):
    baselines().save("main", a_run_with(0), store.blobs)
    elsewhere = Store(Path("elsewhere"))
    with elsewhere:
        elsewhere.blobs.put(PNGS[1])
        run = elsewhere.new_run() / "results.json"
        run.touch()
    (elsewhere.folder / "edits.jsonl").touch()
    BaselineEdits(Path("others/edits")).put(PNGS[2])
    empty = Store(Path("empty"))

    def found(path: Path | None, **gates: str) -> list[int]:
        compared = ComparedWith(None, "", path)
        other = baselines(**gates).other_edits(compared, empty)
        return [number for number in range(4) if other.edit_of(DIGESTS[number]) is not None]

    assert found(None) == found(FOLDER / "main.json") == [0]
    assert found(FOLDER / "main.json", baseline_store="nowhere") == [0]
    assert found(run) == [0, 1]
    assert found(Path("others/main.json")) == [0, 2]
    assert found(run, baseline_store="others/edits") == [1, 2]
    assert found(Path("others/main.json"), baseline_store="nowhere") == [2]
    assert len(baselines().other_edits(ComparedWith(None, "", run), elsewhere).stores) == 1


@pytest.mark.everyday
def test_a_run_says_how_large_its_edits_are_and_keeps_them(bench):
    few = ("--imgedit-limit=1", "--imgedit-editor=oracle")
    result = bench.run(*few, *SAVED)
    assert result.ret == 0
    folder = bench.path / "benchmarks/baselines/edits"
    names = sorted(path.stem for path in folder.rglob("*.png"))
    size = sum(path.stat().st_size for path in folder.rglob("*.png"))
    result.stdout.fnmatch_lines(
        [
            "baseline: benchmarks/baselines/main.json with 5 edits, "
            f"{size / 1e3:.1f} kB, in benchmarks/baselines/edits"
        ]
    )
    assert bench.log_says(
        "baseline main keeps its edits in benchmarks/baselines/edits: 5 edits to be made, "
        "estimated at up to 245.8 kB"
    )
    digests = [seed["edit"]["blob"] for item in bench.results["items"] for seed in item["seeds"]]
    assert names == sorted(digests)
    for path in folder.rglob("*.png"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.stem
    document = json.loads((folder.parent / "main.json").read_text())
    assert sorted(item["seeds"][0]["edit"] for item in document["items"]) == names

    for reference in ("latest", "main", bench.runs[-1].name, "benchmarks/baselines/main.json"):
        run = Session(settings(gates={"compare": reference}), Path.cwd())
        baseline = run.compared.baseline
        other = run.baselines.other_edits(run.compared, Store(Path("empty")))
        other.require_edits(baseline, [item.id for item in baseline.items])

    again = bench.run(*few, *SAVED, "--imgedit-set=gates.baseline_store='shared'")
    assert again.ret == 0
    assert bench.log_says(
        f"main keeps its edits in shared: 5 edits in the store, {size / 1e3:.1f} kB"
    )
    assert len(list((bench.path / "shared").rglob("*.png"))) == 5


def test_edits_of_no_baseline_are_refused(bench):
    bench.refuses(
        "--imgedit-save-edits: no baseline whose edits it keeps, expected --imgedit-save=NAME too",
        "--imgedit-save-edits",
    )


@pytest.mark.parametrize("folder", ["file", "file/deep"])
def test_a_folder_that_cannot_be_made_is_refused_before_the_first_edit(bench, folder):
    (bench.path / "file").touch()
    bench.run(*SAVED, f"--imgedit-set=gates.baseline_store='{folder}'").stderr.fnmatch_lines(
        ["ERROR: *file is no folder, expected one to write into"]
    )
    assert bench.stored_edits() == 0
