"""Shards whose stores are not whole are not merged, and a merge that fails leaves nothing behind."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from pytest_imgedit.cli import merge as merging
from pytest_imgedit.cli import merge_stores
from pytest_imgedit.cli.main import main
from pytest_imgedit.core import files
from pytest_imgedit.report import write
from pytest_imgedit.store.journal import Journal

RUN = (
    "--imgedit-suite=scenes:n=10",
    "--imgedit-editor=identity",
    "--imgedit-judge=fakes:Reader",
    "--imgedit-metric=psnr",
    "--imgedit-set=judge.controls=false",
    "--imgedit-limit=2",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder for the shards of this module's runs, by their arguments."""
    return tmp_path_factory.mktemp("shards"), {}


@pytest.fixture
def make(bench, made):
    """Make two shards of a run in the folders `s1` and `s2`, once for each set of arguments."""

    def run(*arguments):
        root, by_arguments = made
        if arguments not in by_arguments:
            folder = root / str(len(by_arguments))
            for index in (1, 2):
                bench.run(f"--imgedit-shard={index}/2", f"--imgedit-out=s{index}", *arguments)
                shutil.copytree(bench.path / f"s{index}", folder / f"s{index}")
                shutil.rmtree(bench.path / f"s{index}")
            by_arguments[arguments] = folder
        shutil.copytree(by_arguments[arguments], bench.path, dirs_exist_ok=True)

    return run


@pytest.fixture
def merge(bench, capsys, monkeypatch):
    """Merge both shards into the store `merged`; return the exit code, and what was told of errors.

    Unless it makes one, the folder is as before.
    """
    monkeypatch.chdir(bench.path)

    def run(out="merged", *shards):
        before = sorted(bench.path.rglob("*"))
        code = main(["merge", *(shards or ("s1", "s2")), "--out", out])
        if code not in (0, 1):
            assert sorted(bench.path.rglob("*")) == before
        return code, capsys.readouterr().err.strip()

    return run


def edits_of(folder):
    """Paths of the images that the edits of a shard are."""
    [path] = Path(folder).glob("runs/*/results.json")
    items = json.loads(path.read_text())["items"]
    blobs = [seed["edit"]["blob"] for item in items for seed in item["seeds"] if seed["edit"]]
    return [Path(folder, "blobs", blob[:2], f"{blob}.png") for blob in blobs]


def items_of(folder):
    [path] = Path(folder).glob("runs/*/results.json")
    return json.loads(path.read_text())["items"]


def inputs_of(folder, name):
    return [Path(folder, "blobs", item[name]) for item in items_of(folder) if item[name]]


def empty(path):
    path.write_bytes(b"")


def torn(path):
    path.write_bytes(path.read_bytes()[:-20])


def one_less(path):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize("loss", [Path.unlink, empty, torn, one_less])
@pytest.mark.parametrize("name", ["edits", "verdicts", "models"])
@pytest.mark.everyday_for(
    "edits-unlink",
    "edits-torn",
    "verdicts-unlink",
    "verdicts-one_less",
    "models-empty",
    "models-one_less",
)
def test_records_that_are_gone_are_counted_and_nothing_is_made(make, merge, name, loss):
    make(*RUN)
    pairs = len(items_of("s2"))
    loss(Path("s2", f"{name}.jsonl"))
    code, line = merge()
    all_of_them = {"edits": pairs, "verdicts": 2 * pairs, "models": 3}[name]
    number = 1 if loss in (torn, one_less) else all_of_them
    assert code == 4
    assert f"{number} of the records and images that results name are missing or damaged" in line
    assert "shard 2/2 (" in line
    assert f"): {number} record{'s' * (number > 1)} of {name} missing (" in line
    assert "shard 1/2" not in line
    assert line.endswith("copy them again, or run these shards again")
    assert len(line) < 1000


def test_losses_of_all_kinds_and_shards_are_told_in_one_line(make, merge):
    make(*RUN)
    for folder in ("s1", "s2"):
        shutil.rmtree(f"{folder}/blobs")
        for path in Path(folder).glob("*.jsonl"):
            path.unlink()
    code, line = merge()
    assert code == 4
    assert len(line.splitlines()) == 1
    counts = [
        list(map(int, re.findall(r"(\d+) (?:records of|images)", part)))
        for part in line.split("; ")[:2]
    ]
    for folder, counted in zip(("s1", "s2"), counts, strict=True):
        pairs = len(items_of(folder))
        images = {*edits_of(folder), *inputs_of(folder, "source"), *inputs_of(folder, "reference")}
        assert sorted(counted[-3:]) == sorted([len(images), pairs, 2 * pairs])
    assert f"{sum(sum(counted[-3:]) for counted in counts)} of the records and images" in line


def other_bytes(path):
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def truncated(path):
    path.write_bytes(path.read_bytes()[:100])


def script(path):
    path.write_bytes(b"<script>alert(1)</script>")


def link(path):
    elsewhere = Path("elsewhere.png")
    elsewhere.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(elsewhere.absolute())


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage", [Path.unlink, empty, other_bytes, truncated, script, link, pipe, folder]
)
@pytest.mark.parametrize("kind", ["edit", "source", "reference"])
@pytest.mark.everyday_for(
    "edit-unlink",
    "edit-truncated",
    "edit-pipe",
    "source-empty",
    "source-script",
    "source-pipe",
    "reference-empty",
    "reference-script",
    "reference-folder",
)
def test_images_that_are_damaged_are_named_and_nothing_is_made(make, merge, kind, damage):
    make(*RUN)
    paths = edits_of("s2") if kind == "edit" else inputs_of("s2", kind)
    damage(paths[0])
    code, line = merge()
    state = "missing" if damage is Path.unlink else "damaged"
    assert code == 4
    assert line.startswith("imgedit: 1 of the records and images")
    assert "shard 2/2 (" in line
    assert f"1 image {state} (blobs/{paths[0].parent.name}/{paths[0].name})" in line


@pytest.mark.parametrize("damage", [Path.unlink, empty, truncated, script, link, pipe, folder])
@pytest.mark.everyday_for("unlink", "script", "folder")
def test_a_thumbnail_that_is_damaged_or_gone_does_not_matter(make, merge, damage):
    make(*RUN)
    for path in Path("s2").glob("blobs/*/*.thumbnail.webp"):
        Path("elsewhere.png").unlink(missing_ok=True)
        damage(path)
    assert merge() == (0, "")
    thumbnails = list(Path("merged").glob("blobs/*/*.thumbnail.webp"))
    assert all(path.is_file() and not path.is_symlink() for path in thumbnails)


def test_a_damaged_image_that_no_item_names_is_left_out(make, merge):
    make(*RUN)
    named = {path.name for path in Path("s2").glob("blobs/??/*")}
    for text in (b"<script>", b"other"):
        digest = hashlib.sha256(text).hexdigest()
        Path("s2/blobs", digest[:2]).mkdir(exist_ok=True)
        Path("s2/blobs", digest[:2], f"{digest}.png").write_bytes(text[:5])
    assert merge() == (0, "")
    merged = {path.name for path in Path("merged").glob("blobs/??/*")}
    assert named <= merged
    assert f"{hashlib.sha256(b'<script>').hexdigest()}.png" not in merged
    assert f"{digest}.png" in merged


def test_results_of_another_run_than_the_records_are_refused(make, merge, bench):
    make(*RUN)
    [path] = Path("s2").glob("runs/*/results.json")
    kept = path.read_text()
    for name in ("edits", "verdicts"):
        shutil.copy(f"s1/{name}.jsonl", f"s2/{name}.jsonl")
    code, line = merge()
    assert code == 4
    assert f"{len(items_of('s2'))} records of edits missing" in line
    make(*RUN)
    document = json.loads(kept)
    first = document["items"][0]["seeds"][0]
    first["edit"]["blob"] = edits_of("s2")[1].stem
    path.write_text(json.dumps(document))
    code, line = merge()
    name = document["items"][0]["id"]
    assert code == 4
    assert f"1 record of edits of another edit ({name})" in line
    assert f"2 records of verdicts of another edit ({name}, {name})" in line


@pytest.mark.parametrize(
    "options",
    [
        ["--imgedit-editor=fakes:Raises"],
        ["--imgedit-stage=edit"],
        ["--imgedit-judge=fakes:Fussy"],
        ["--imgedit-seeds=2", "--imgedit-judge=fakes:Constant"],
        ["--imgedit-judge=fakes:Constant", "-k", "physics or social"],
        ["--imgedit-set=judge.controls=true"],
    ],
)
@pytest.mark.full
def test_what_whole_stores_may_lack_is_not_missed(make, merge, options):
    make(*RUN, "--imgedit-max-errors=1.0", *options)
    assert merge()[1] == ""
    assert list(Path("merged").glob("runs/*/report.html"))


def test_edits_of_a_folder_and_of_a_store_that_went_on_are_accepted(make, merge, bench):
    pairs = ("--imgedit-suite=scenes:n=10", "--imgedit-limit=2")
    bench.run(*pairs, "--imgedit-editor=identity", "--imgedit-judge=none")
    assert main(["export", "latest", "edits"]) == 0
    made = (*pairs, "--imgedit-editor=folder:edits", "--imgedit-judge=fakes:Constant")
    for _ in range(2):  # the second run finds all in the store
        for index in (1, 2):
            bench.run(f"--imgedit-shard={index}/2", f"--imgedit-out=s{index}", *made)
    with Path("s2/edits.jsonl").open("ab") as file:
        file.write(b'{"torn by a later run')
    assert merge() == (0, "")


@pytest.mark.full
def test_served_models_are_accepted(bench, merge, pytorch):
    """The seeds of the editor and the judge's canary are tried too, and are no items. The server
    has the embedded models, which take over 5 CPU seconds.
    """
    from model_server import ModelServer

    with ModelServer() as server:
        for index in (1, 2):
            bench.run(
                *("--imgedit-suite=scenes", "--imgedit-limit=1", f"--imgedit-shard={index}/2"),
                f"--imgedit-editor=openai-images:{server.url}#scenes",
                f"--imgedit-judge=openai:{server.url}#scenes",
                f"--imgedit-out=s{index}",
            )
        server.shutdown()
    assert merge()[0] in (0, 1)
    assert list(Path("merged").glob("runs/*/report.html"))


def test_a_further_source_that_is_missing_is_named(bench, merge):
    (bench.path / "several.py").write_text(
        "import io\n"
        "from PIL import Image\n"
        "from pytest_imgedit.core.pairs import EditPair\n"
        "class Drawn:\n"
        "    def __init__(self, level): self.level = level\n"
        "    def read(self):\n"
        "        data = io.BytesIO()\n"
        "        Image.new('RGB', (16, 16), (self.level, 40, 90)).save(data, 'PNG')\n"
        "        return data.getvalue()\n"
        "def Suite(argument, settings):\n"
        "    for number in range(2):\n"
        "        first, second, third = (Drawn(50 * number + n) for n in (10, 20, 30))\n"
        "        yield EditPair(id=f'p{number}', category='physics', instruction='x',\n"
        "            source=second, further=(first, third), edited_source=2)\n"
        "class Editor:\n"
        "    max_sources = None\n"
        "    def __init__(self, *, device): pass\n"
        "    def edit(self, request): return request.sources[0].rotate(90)\n"
    )
    run = ("--imgedit-suite=several:Suite", "--imgedit-editor=several:Editor", *RUN[2:])
    for index in (1, 2):
        bench.run(f"--imgedit-shard={index}/2", f"--imgedit-out=s{index}", *run)
    assert merge() == (0, "")
    [path] = Path("merged").glob("runs/*/results.json")
    for item in json.loads(path.read_text())["items"]:
        names = [item["source"], *item["further"]]
        assert len({*names}) == 3
        assert all(Path("merged/blobs", name).is_file() for name in names)
    [item] = items_of("s2")
    lost = Path("s2/blobs", item["further"][1])
    lost.unlink()
    code, line = merge("again")
    assert code == 4
    assert f"1 image missing (blobs/{lost.parent.name}/{lost.name})" in line


def test_shards_in_one_store_are_accepted_and_missed(bench, merge):
    for index in (1, 2):
        bench.run(f"--imgedit-shard={index}/2", "--imgedit-out=both", *RUN)
    runs = list(map(str, (bench.path / "both" / "runs").iterdir()))
    assert merge("merged", *runs) == (0, "")
    empty(bench.path / "both" / "edits.jsonl")
    code, line = merge("again", *runs)
    assert (code, line[:23]) == (4, "imgedit: 10 of the reco")
    assert "shard 1/2" in line
    assert "shard 2/2" in line


def test_each_file_of_a_store_is_read_once(make, merge, monkeypatch):
    make(*RUN)
    read = []
    digest = files.digest
    monkeypatch.setattr(files, "digest", lambda path: read.append(path) or digest(path))
    assert merge() == (0, "")
    images = [
        path
        for name in ("s1", "s2")
        for path in Path(name).absolute().glob("blobs/??/*")
        if "thumbnail" not in path.name
    ]
    assert sorted(read) == sorted(images)


def full(*_, **__):
    raise OSError(28, "No space left on device", "somewhere")


def interrupt(*_, **__):
    raise KeyboardInterrupt


#: What a merge calls at each of its steps.
STEPS = {
    "the folder": (Path, "mkdir"),
    "the lock": (Path, "write_text"),
    "a link": (merge_stores, "_link"),
    "a copy": (shutil, "copyfile"),
    "a journal": (os, "fsync"),
    "all records": (Journal, "append"),
    "results": (files, "write_text"),
    "a report": (write.markdown, "render"),
    "a rename": (Path, "rename"),
    "the mode": (shutil, "copymode"),
}


@pytest.mark.parametrize("fault", [full, interrupt])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.everyday_for(
    "the folder-full",
    "a link-full",
    "a journal-full",
    "all records-interrupt",
    "a report-interrupt",
    "the mode-interrupt",
)
def test_a_merge_that_fails_at_any_step_leaves_nothing_and_can_be_run_again(
    make, merge, monkeypatch, step, fault
):
    make(*RUN)
    if step == "the mode":
        Path("merged").mkdir(mode=0o700)
    with monkeypatch.context() as patch:
        patch.setattr(*STEPS[step], fault)
        if step == "a copy":
            patch.setattr(os, "link", full)
        code, line = merge()
    assert code == (2 if fault is interrupt else 4), line
    assert len(line.splitlines()) == 1
    assert ".merge-" not in line
    if fault is full and step != "a link":
        assert "No space left on device" in line
    assert merge() == (0, "")


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 20])
@pytest.mark.full
def test_a_disk_that_fills_up_at_any_write_leaves_nothing(make, merge, monkeypatch, number):
    make(*RUN)
    left = number

    def until_full(*arguments, **options):
        nonlocal left
        left -= 1
        if left < 0:
            full()
        return copy(*arguments, **options)

    copy = shutil.copyfile
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        patch.setattr(shutil, "copyfile", until_full)
        code, line = merge("deep/below/merged")
    assert code == 4
    assert "No space left on device" in line
    assert merge("deep/below/merged") == (0, "")


@pytest.mark.parametrize("name", ["edits", "verdicts", "models"])
def test_a_damaged_journal_leaves_nothing_and_the_same_merge_can_be_run_once_it_is_mended(
    make, merge, name
):
    make(*RUN)
    path = Path(f"s2/{name}.jsonl")
    kept = path.read_bytes()
    path.write_bytes(kept.replace(b'"', b"'", 1))
    code, line = merge()
    assert code == 4
    assert f"s2/{name}.jsonl:1: damaged record" in line
    path.write_bytes(kept)
    assert merge() == (0, "")


def test_a_target_that_is_there_is_refused_before_anything_is_read(make, merge, monkeypatch):
    make(*RUN)
    Path("taken").mkdir()
    Path("taken/file").touch()
    Path("file").touch()
    with monkeypatch.context() as patch:
        patch.setattr(merging, "read_stores", full)
        for out in ("taken", "s1"):
            code, line = merge(out)
            assert code == 4
            assert line == f"imgedit: {out}: is there already, expected a new or an empty folder"
        assert merge("file")[0] == 4
    Path("loop").symlink_to("loop")
    code, line = merge("loop")
    assert code == 4
    assert line.startswith("imgedit: loop: ")


def test_an_empty_folder_and_a_link_to_one_become_the_store(make, merge, bench, monkeypatch):
    make(*RUN)
    Path("real").mkdir(mode=0o750)
    Path("merged").symlink_to("real")
    assert merge() == (0, "")
    assert Path("merged").is_symlink()
    assert Path("real").stat().st_mode & 0o777 == 0o750
    [page] = Path("real").glob("runs/*/report.html")
    links = set(re.findall(r'"(\.\./\.\./blobs/[^"]+)"', page.read_text()))
    assert links
    assert all((page.parent / link).is_file() for link in links)
    assert not list(Path().glob(".merge-*"))
