"""`imgedit init` over the data of others: what a suite cannot name is said in one line, and nothing
is half written.
"""

from __future__ import annotations

import csv
import errno
import os
import subprocess
import time
import tomllib
from pathlib import Path

import pytest
from PIL import Image

from pytest_imgedit.cli.main import main
from pytest_imgedit.config.settings import SuiteSettings, make_settings, read_tables
from pytest_imgedit.core import files
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.suites.base import load_suite

MODELS = ("--editor=identity", "--judge=none", "--ci=none")


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    picture("a.png")
    return tmp_path / "here"


def picture(name):
    Image.new("RGB", (16, 16), "red").save("picture.tmp", "PNG")
    Path("picture.tmp").rename(os.fsdecode(name))


def spec_of(here):
    return tomllib.loads((here / "benchmarks" / "imgedit.toml").read_text())["suite"]["spec"]


def refuses(here, capsys, line, *arguments):
    """Check that init is refused in one line, at once, and writes nothing."""
    before, started = sorted(map(os.fsencode, here.rglob("*"))), time.process_time()
    assert main(["init", *arguments, *MODELS]) == 4
    assert time.process_time() - started < 3
    [told] = capsys.readouterr().err.splitlines()
    assert line in told
    assert sorted(map(os.fsencode, here.rglob("*"))) == before


BAD_NAMES = {
    "newline": b"a\nb",
    "escape": b"a\x1b[31m",
    "delete": b"a\x7f",
    "bidi": "a\u202eb".encode(),
    "latin-1": b"caf\xe9",
}


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
def test_a_table_whose_name_cannot_be_shown_is_refused_where_named_and_passed_over_where_found(
    here, capsys, name
):
    path = os.fsdecode(name + b".csv")
    (here / path).write_text("image,instruction\na.png,do it\n")
    refuses(here, capsys, "a name with U+", path)
    assert main(["init", *MODELS]) == 0
    told = capsys.readouterr().out
    assert told.count("not used: ") == 2  # the image has no instruction without it
    assert "a name with U+" in told
    assert spec_of(here) == "scenes"


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
def test_an_image_whose_name_cannot_be_shown_is_passed_over_and_named(here, capsys, name):
    (here / "photos").mkdir()
    for stem in (b"good", name):
        picture(b"photos/" + stem + b".png")
        (here / "photos" / os.fsdecode(stem + b".txt")).write_text("do it")
    assert main(["init", "photos", *MODELS]) == 0
    assert "not used: 'photos/" in capsys.readouterr().out
    suite = load_suite(SuiteSettings(spec="benchmarks/pairs.jsonl", root=here / "photos"))
    assert [pair.id for pair in suite.pairs] == ["good"]


@pytest.mark.parametrize("name", ["::p.csv", "a:b.csv", 'a"b.csv', "a\\b.csv", "%41.csv"])
def test_a_table_of_an_odd_name_is_found_again(here, capsys, name):
    (here / name).write_text("image,instruction\na.png,do it\n")
    assert main(["init", f"./{name}", *MODELS]) == 0
    assert spec_of(here) == f"../{name}"
    assert (
        len(
            load_suite(make_settings(read_tables(here / "benchmarks" / "imgedit.toml")).suite).pairs
        )
        == 1
    )


TABLES = {
    "seed": ("file,prompt,seed\na.png,do it," + "9" * 5_000, "'seed' is '999"),
    "id": ("file,prompt,id\na.png,do it,a\x1bb", "'id' is 'a\\x1bb' with U+001B"),
    "id-twice": ("file,prompt,id\na.png,do it,a\na.png,do,a", "id 'a' occurs 2 times"),
    "category": (
        "file,prompt,category\na.png,do it,overall",
        "category 'overall', expected another name",
    ),
}


@pytest.mark.parametrize("kind", TABLES)
def test_rows_that_a_run_would_refuse_are_refused_before_anything_is_written(here, capsys, kind):
    text, line = TABLES[kind]
    (here / "prompts.csv").write_text(text)
    refuses(here, capsys, line, "prompts.csv")


def test_a_long_number_in_a_suite_is_refused_by_its_row(here):
    (here / "pairs.csv").write_text("image,instruction,seed\na.png,do it," + "9" * 5_000)
    with pytest.raises(UsageError, match=r"pairs.csv:2: 'seed' is '9{39}, expected an integer"):
        load_suite(SuiteSettings(spec="pairs.csv"))


@pytest.mark.parametrize("kind", ["link-out", "fifo", "large", "latin-1", "device", "folder"])
def test_the_text_beside_an_image_is_a_small_file_of_the_folder(here, capsys, kind):
    (here / "photos").mkdir()
    picture("photos/a.png")
    text = here / "photos" / "a.txt"
    if kind == "fifo":
        os.mkfifo(text)
    elif kind == "large":
        with text.open("wb") as file:
            file.truncate(300 * 2**20)
    elif kind == "latin-1":
        text.write_bytes(b"caf\xe9")
    elif kind == "folder":
        text.mkdir()
    else:
        text.symlink_to("/dev/zero" if kind == "device" else "/etc/passwd")
    refuses(here, capsys, "photos/a.txt: ", "photos")
    assert (
        main(["init", *MODELS]) == 0
    )  # where nothing names the folder, it is none of its business
    assert "not used: photos/a.txt: " in capsys.readouterr().out


def test_links_that_lead_out_of_the_folder_are_passed_over_and_named(here, capsys):
    picture("../secret.png")
    (here / "photos").mkdir()
    picture("photos/a.png")
    (here / "photos" / "b.png").symlink_to(here.parent / "secret.png")
    (here / "photos" / "prompts.csv").symlink_to("/etc/passwd")
    assert main(["init", "photos", *MODELS]) == 0
    told = capsys.readouterr().out
    assert "not used: 'photos/b.png': leads out of " in told
    assert "not used: 'photos/prompts.csv': leads out of " in told
    assert (here / "benchmarks" / "pairs.csv").read_text() == "image,instruction\na.png,\n"


def test_no_cell_is_a_formula_and_all_are_read_as_they_were(here):
    names = ["=cmd|' C calc'!A0", "=HYPERLINK(1)", "+1", "-1", "@a", "plain", "zz"]
    (here / "photos").mkdir()
    for name in names:
        picture(f"photos/{name}.png")
        (here / "photos" / f"{name}.txt").write_text(f"={name}")
    (here / "photos" / "zz.txt").unlink()
    assert main(["init", "photos", *MODELS]) == 0
    path = here / "benchmarks" / "pairs.csv"
    rows = list(csv.reader(path.read_text().splitlines()))
    assert not [cell for row in rows for cell in row if cell[:1] in tuple("=+-@\t\r")]
    path.write_text(path.read_text().replace("zz.png,", "zz.png,do it"))
    pairs = load_suite(SuiteSettings(spec=str(path), root=here / "photos")).pairs
    assert {pair.own_id: pair.instruction for pair in pairs} == {
        **{name: f"={name}" for name in names},
        "zz": "do it",
    }
    assert all(pair.source.read() for pair in pairs)


def test_a_benchmarks_folder_that_leads_elsewhere_is_not_written_through(here, capsys):
    (here.parent / "elsewhere").mkdir()
    (here / "benchmarks").symlink_to(here.parent / "elsewhere")
    refuses(here, capsys, "expected a folder below this one")
    assert list((here.parent / "elsewhere").iterdir()) == []


def test_a_disk_that_is_full_leaves_nothing_half_written(here, capsys, monkeypatch):
    def full(path, text):
        if path.name == "requirements.txt":
            raise OSError(28, "No space left on device", str(path))
        path.write_text(text)

    monkeypatch.setattr(files, "write_text", full)
    assert main(["init", *MODELS]) == 4
    assert "No space left on device" in capsys.readouterr().err
    assert [path for path in (here / "benchmarks").rglob("*") if path.is_file()] == []


@pytest.fixture
def unreadable(monkeypatch):
    """Call it with the name of a folder and an error number: reading the folder fails.

    The tests may run as root, who may read every folder.
    """
    scan = os.scandir

    def refuse(name, number):
        def scandir(path="."):
            if not isinstance(path, int) and Path(path).name == name:
                raise OSError(number, os.strerror(number), os.fspath(path))
            return scan(path)

        monkeypatch.setattr(os, "scandir", scandir)

    return refuse


ERRORS = ["EACCES", "ENOENT", "ENOTDIR", "EIO", "ESTALE", "EMFILE", "ENOMEM"]


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("named", [(), ("photos",)], ids=["found", "named"])
def test_a_folder_that_cannot_be_read_is_passed_over_and_named(
    here, capsys, unreadable, name, named
):
    number = getattr(errno, name)
    (here / "photos" / "locked").mkdir(parents=True)
    picture("photos/a.png")
    (here / "photos" / "a.txt").write_text("do it")
    unreadable("locked", number)
    assert main(["init", *named, *MODELS]) == 0
    told = capsys.readouterr().out.splitlines()
    assert f"not used: 'photos/locked': {os.strerror(number)}" in told
    assert spec_of(here) == ("pairs.jsonl" if named else "scenes")


@pytest.mark.parametrize("name", ERRORS)
def test_a_named_folder_that_cannot_be_read_is_refused_in_one_line(here, capsys, unreadable, name):
    (here / "photos").mkdir()
    unreadable("photos", number := getattr(errno, name))
    assert main(["init", "photos", *MODELS]) == 4
    assert capsys.readouterr().err == f"imgedit: 'photos': {os.strerror(number)}\n"
    assert not (here / "benchmarks").exists()


def test_folders_inside_each_other_are_looked_through_as_far_as_paths_reach(here, capsys):
    picture("x.png")
    folder = os.open(here, os.O_RDONLY)
    for name in ["d"] * 1_200 + ["e" * 200] * 20:
        os.mkdir(name, dir_fd=folder)
        folder, outer = os.open(name, os.O_RDONLY, dir_fd=folder), folder
        os.close(outer)
    os.close(folder)
    assert main(["init", *MODELS]) == 0
    assert ": File name too long" in capsys.readouterr().out
    subprocess.run(["rm", "-rf", "d"], check=True)  # shutil does not get that far


def test_a_folder_is_read_once_however_many_tables_it_has(here, monkeypatch):
    (here / "data" / "more").mkdir(parents=True)
    for number in range(20):
        (here / "data" / f"{number}.csv").write_text("no,image\n1,2\n")
    read = []
    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path=".": read.append(str(path)) or scan(path))
    assert main(["init", *MODELS]) == 0
    assert read.count("data") == read.count("data/more") == 1


def test_links_to_themselves_are_named(here, capsys):
    for name in ("a.csv", "b.png", "folder"):
        (here / name).symlink_to(name)
    (here / "around").symlink_to(".")
    assert main(["init", *MODELS]) == 0
    told = capsys.readouterr().out
    assert "not used: 'a.csv': Too many levels of symbolic links" in told
    assert "not used: 'b.png': Too many levels of symbolic links" in told


@pytest.mark.parametrize("arguments", [["init", *MODELS], ["doctor"], ["init"]])
def test_a_current_folder_that_is_gone_is_told(tmp_path, monkeypatch, capsys, arguments):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(arguments) == 4
    assert capsys.readouterr().err == (
        "imgedit: the current folder is gone, expected one that is there\n"
    )


def test_a_parquet_file_that_is_damaged_is_told_as_such(here, capsys):
    (here / "pairs.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    refuses(here, capsys, "pairs.parquet: ", "pairs.parquet")


def test_of_several_tables_only_those_that_can_be_suites_are_advised(here, capsys):
    rows = "image,instruction\na.png,make it snow\n"
    (here / "a.csv").write_text(rows)
    (here / "b.csv").write_text(rows)
    (here / "sub").mkdir()
    (here / "sub" / "tsconfig.JSON").write_text('{"compilerOptions": {}}')
    assert main(["init", *MODELS]) == 0
    told = capsys.readouterr().out
    assert "not used: b.csv; imgedit init b.csv uses it instead" in told
    assert "tsconfig" not in told
