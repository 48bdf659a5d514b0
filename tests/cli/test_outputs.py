"""What commands and runs write where a user says: nothing among a store's files or those of a
suite, and never a part of a file.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path

import pytest
from devices import device
from documents import a_run, an_item
from PIL import Image

from pytest_imgedit.cli.main import main, make_parser
from pytest_imgedit.config.options import OPTIONS
from pytest_imgedit.config.settings import make_settings, read_tables
from pytest_imgedit.core import errors, files
from pytest_imgedit.core.images import encode_png
from pytest_imgedit.report import outputs
from pytest_imgedit.run.session import Session
from pytest_imgedit.store.baselines import make_baseline, write_baseline

#: What the paths are that commands take: a new option that names one has to be added here.
PATHS = {
    "init DATA": "input",
    "compare --out": "store that is read",
    "compare --config": "input",
    "duel --out": "store",
    "duel --config": "input",
    "duel --votes": "input",
    "why --config": "input",
    "compare --html": "file",
    "why --out": "store that is read",
    "why --md": "file",
    "why --html": "file",
    "leaderboard --out": "store that is read",
    "leaderboard --votes": "input",
    "leaderboard --md": "file",
    "leaderboard --csv": "file",
    "leaderboard --html": "file",
    "trend --out": "store that is read",
    "trend --html": "file",
    "report --out": "store that is read",
    "report --html": "file",
    "report --md": "file",
    "export --out": "store that is read",
    "export DIR": "new folder",
    "import FILE": "input",
    "import --to": "new file",
    "merge --out": "new folder",
    "view --out": "new folder",
    "runs --out": "store that is read",
    "explain --out": "store that is read",
    "agreement --out": "store that is read",
    "agreement HUMAN.csv": "input",
    "plan --out": "store that is read",
    "qualify --out": "store",
    "qualify --config": "input",
    "doctor --config": "input",
}
#: Options of pytest that name what is written, and the others.
WRITTEN = {"json": "file", "md": "file", "html": "file", "out": "store", "save": "baseline"}
NOT_WRITTEN = """
config set suite editor judge metric variant gpus gpus-per-worker executor stage shard limit seeds
fresh reuse fail-under max-drop compare name max-errors max-collapsed min-coverage until
inconclusive controls judge-repeats html-embed duel min-win save-edits
"""
#: Each option that names a file or a new folder, as a command that is whole but for its path.
COMMANDS = {
    "compare --html": ("compare", "first", "second", "--html"),
    "why --md": ("why", "first", "second", "--md"),
    "why --html": ("why", "first", "second", "--html"),
    "leaderboard --md": ("leaderboard", "first", "second", "--md"),
    "leaderboard --csv": ("leaderboard", "first", "second", "--csv"),
    "leaderboard --html": ("leaderboard", "first", "second", "--html"),
    "trend --html": ("trend", "first", "second", "--html"),
    "report --html": ("report", "first", "--html"),
    "report --md": ("report", "first", "--md"),
    "export DIR": ("export", "first"),
    "import --to": ("import", "old.yaml", "--to"),
    "merge --out": ("merge", "first", "--out"),
    "view --out": ("view", "first", "--out"),
}
FILES = [name for name in COMMANDS if PATHS[name] == "file"]
#: Whatever holds results or inputs, below the folder of the fixture `here`.
TARGETS = [
    ".imgedit/edits.jsonl",
    ".imgedit/verdicts.jsonl",
    ".imgedit/models.jsonl",
    ".imgedit/lock",
    ".imgedit/fingerprints.json",
    ".imgedit/runs/first/results.json",
    ".imgedit/runs/first/run.log",
    ".imgedit/blobs/ab/" + "ab" * 32 + ".png",
    ".imgedit/new.html",
    ".imgedit/runs/new/new.html",
    "no/../.imgedit/edits.jsonl",
    ".imgedit/runs/../../.imgedit/verdicts.jsonl",
    "link-to-a-record",
    "link-to-the-store/edits.jsonl",
    "link-to-the-store/new.html",
    "elsewhere/verdicts.jsonl",
    "pairs.jsonl",
    "link-to-the-suite",
    "photo.png",
    "imgedit.toml",
    "benchmarks/baselines/main.json",
    "copy/results.json",
    "folder",
    "pairs.jsonl/new.html",
    "a" * 300,
    "b" * 300 + "/new.html",
    "loop",
]


def write_run(folder: Path, name: str) -> None:
    items = [an_item(f"p{number}", "physics", 5.0 + number / 10) for number in range(6)]
    suite = {"name": "pairs.jsonl", "sha256": "0" * 64, "pairs": 6}
    results = a_run(items=items, run={"id": name}, suite=suite, gates=[])
    path = folder / "runs" / name / "results.json"
    path.parent.mkdir(parents=True)
    files.write_json(path, results.model_dump(mode="json"))
    (path.parent / "run.log").write_text("begun\n")
    if name == "first":
        write_baseline(Path("benchmarks/baselines"), make_baseline(results, "main"))
        Path("copy").mkdir()
        Path("copy/results.json").write_bytes(path.read_bytes())


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with two stores of two runs, a suite with its image, a config and a baseline."""
    monkeypatch.chdir(tmp_path)
    picture = encode_png(Image.new("RGB", (16, 16), "red"))
    write_run(Path(".imgedit"), "first")
    write_run(Path(".imgedit"), "second")
    write_run(Path("elsewhere"), "third")
    for store in (Path(".imgedit"), Path("elsewhere")):
        for name in ("edits.jsonl", "verdicts.jsonl", "models.jsonl", "lock", "fingerprints.json"):
            (store / name).write_text(f"{name}\n")
        blob = store / "blobs" / "ab" / f"{'ab' * 32}.png"
        blob.parent.mkdir(parents=True)
        blob.write_bytes(picture)
    Path("photo.png").write_bytes(picture)
    Path("pairs.jsonl").write_text('{"image": "photo.png", "instruction": "make it blue"}\n')
    Path("imgedit.toml").write_text('[suite]\nspec = "pairs.jsonl"\n')
    Path("old.yaml").write_text("diffusion_model:\n  params:\n    num_inference_steps: 50\n")
    Path("folder").mkdir()
    Path("loop").symlink_to("loop")
    Path("link-to-a-record").symlink_to(".imgedit/edits.jsonl")
    Path("link-to-the-store").symlink_to(".imgedit")
    Path("link-to-the-suite").symlink_to("pairs.jsonl")
    return tmp_path


def content(folder: Path) -> dict[str, str]:
    """Everything below a folder by path, but the run's own reports: digests of files."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(
            path.read_bytes() if path.is_file() else b""
        ).hexdigest()
        for path in folder.rglob("*")
        if path.name not in ("report.md", "report.html")
    }


def refused(capsys, *arguments: str) -> str:
    """Call `imgedit`, which has to end with exit code 4 and one line; return the line."""
    code, told = main(arguments), capsys.readouterr().err
    assert code == 4, told
    assert told.startswith("imgedit: ")
    assert told.count("\n") == 1, told
    assert len(told) < 1500
    return told


def session(config: Path | None = None, **tables: dict[str, object]) -> Session:
    raw = read_tables(config)
    models = {"editor": {"spec": "noise"}, "judge": {"spec": "none"}}
    for name, table in {**models, **tables}.items():
        raw[name] = {**raw.get(name, {}), **table}
    return Session(make_settings(raw), Path.cwd())


def checked(option: str, path: str) -> None:
    """Check the settings of a run that writes a copy of a report."""
    session(suite={"spec": "pairs.jsonl"}, run={f"{option}_path": Path(path)}).check()


def test_every_option_that_names_a_path_is_listed_here():
    (subparsers,) = (
        action
        for action in make_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    found = {
        f"{name} {next(iter(action.option_strings), action.metavar)}"
        for name, parser in subparsers.choices.items()
        for action in parser._actions
        if action.type is Path or action.metavar in ("PATH", "DIR", "FILE")
    }
    assert found == PATHS.keys()
    assert {option.name for option in OPTIONS} == {*WRITTEN, *NOT_WRITTEN.split()}
    written = {name for name, kind in PATHS.items() if kind in ("file", "new file", "new folder")}
    assert COMMANDS.keys() == written


@pytest.mark.parametrize("option", COMMANDS)
@pytest.mark.everyday_for(
    "compare --html", "leaderboard --csv", "report --html", "import --to", "view --out"
)
def test_no_command_writes_over_results_or_inputs(here, capsys, option):
    before = content(here)
    for target in TARGETS:
        if PATHS[option] == "new folder" and target == "folder":
            continue  # an empty one is as good
        told = refused(capsys, *COMMANDS[option], target)
        assert target.partition("/")[0][:30] in told
        assert content(here) == before, target


@pytest.mark.parametrize("option", ["json", "md", "html"])
def test_no_copy_of_a_report_goes_over_results_or_inputs(here, option):
    before = content(here)
    for target in TARGETS:
        if (option, target) == ("json", "copy/results.json"):
            checked(option, target)  # what it writes each time
            continue
        with pytest.raises(errors.UsageError) as found:
            checked(option, target)
        assert target.partition("/")[0][:30] in str(found.value)
        assert content(here) == before, target


def test_a_file_of_the_settings_is_no_place_for_a_copy(here):
    """A config of any name, and the folder of the thumbnails of a page."""
    Path("imgedit.toml").rename("nightly.toml")
    Path("report_files").symlink_to(".imgedit/blobs/ab")
    result = session(Path("nightly.toml"), run={"md_path": Path("nightly.toml")})
    with pytest.raises(errors.UsageError, match="which holds results or inputs"):
        result.check()
    with pytest.raises(errors.UsageError, match=r"in the store"):
        checked("html", "report.html")


def test_a_suite_in_a_folder_keeps_what_is_in_it(here):
    Path("data").mkdir()
    kept = outputs.inputs(Path(".imgedit"), "kris:data?totals=bagel")
    for path in (Path("data/report.html"), Path("folder/../data/0/1.csv")):
        with pytest.raises(errors.UsageError, match="in data"):
            outputs.check({"html": path}, kept)
    os.chdir("data")
    outputs.check({"html": Path("report.html")}, outputs.inputs(Path(".imgedit"), "gedit:."))


def test_a_folder_that_is_no_store_is_as_good_as_any(here):
    """Folders have one of the names of a store for other reasons, and `--out` may name any."""
    for name in ("runs", "blobs"):
        place = Path("other", name)
        place.mkdir(parents=True)
        outputs.check({"html": place.parent / "new.html"}, outputs.inputs(Path("folder")))
        place.rmdir()
    outputs.check({"html": Path("folder/new.html")}, outputs.inputs(Path("folder")))
    Path("folder/edits.jsonl").write_text("")
    with pytest.raises(errors.UsageError, match=r"in folder, which holds results"):
        outputs.check({"html": Path("folder/edits.jsonl")}, outputs.inputs(Path("folder")))


def test_a_baseline_goes_into_no_store(here):
    run = session(gates={"baselines": ".imgedit/runs/first"}, run={"save": "results"})
    with pytest.raises(errors.UsageError, match=r"results\.json: in the store"):
        run.baselines.check_save([])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--imgedit-json=pairs.jsonl",),
        ("--imgedit-md=imgedit.toml",),
        ("--imgedit-html=photo.png",),
        ("--imgedit-out=folder/file",),
    ],
    ids=" ".join,
)
def test_a_run_refuses_them_in_one_line(bench, arguments):
    image = encode_png(Image.new("RGB", (16, 16), "red"))
    (bench.path / "photo.png").write_bytes(image)
    row = '{"id": "a", "image": "photo.png", "instruction": "make it blue", "category": "physics"}'
    (bench.path / "pairs.jsonl").write_text(f"{row}\n")
    (bench.path / "imgedit.toml").write_text(
        '[suite]\nspec = "pairs.jsonl"\n[editor]\nspec = "noise"\n[judge]\nspec = "fakes:Constant"\n'
    )
    (bench.path / "folder").mkdir()
    (bench.path / "folder" / "file").write_text("old")
    before = content(bench.path)
    bench.refuses(f"*{arguments[0].partition('=')[2]}*", *arguments)
    after = content(bench.path)
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize(
    ("option", "other"), [("leaderboard --csv", "--md"), ("report --md", "--html")]
)
def test_two_reports_never_share_a_path(here, capsys, option, other):
    Path("same").symlink_to("board.txt")
    told = refused(capsys, *COMMANDS[option], "board.txt", f"{other}=./same")
    assert "asked for as two reports" in told


def full(monkeypatch, where: str, number: int = errno.ENOSPC) -> None:
    """Let what brings a file to the disk fail from now on, as on a full disk."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    owner, name = {"sync": (os, "fsync"), "rename": (Path, "replace")}[where]
    monkeypatch.setattr(owner, name, fail)


@pytest.mark.parametrize("old", ["whole and old", None], ids=["old", "new"])
@pytest.mark.parametrize("where", ["sync", "rename"])
@pytest.mark.parametrize("option", [name for name in COMMANDS if name != "merge --out"])
@pytest.mark.everyday
def test_a_full_disk_leaves_the_old_file_or_none(here, capsys, monkeypatch, option, where, old):
    target = "made" if PATHS[option] == "new folder" else "made.out"
    if old is not None and PATHS[option] == "file":
        Path(target).write_text(old)
    if option.startswith("report"):  # its own reports are written first, and are there already
        main(["report", "first"])
        capsys.readouterr()
        write_text = files.write_text
        monkeypatch.setattr(
            files,
            "write_text",
            lambda path, text: None if path.parent.name == "first" else write_text(path, text),
        )
    before = content(here)
    full(monkeypatch, where)
    told = refused(capsys, *COMMANDS[option], target)
    assert target in told
    assert "No space left on device (" in told
    assert " MiB free)" in told
    assert {
        name: digest for name, digest in content(here).items() if name != "made_files"
    } == before


def test_an_export_that_failed_can_be_made_again(here, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        full(patch, "rename")
        refused(capsys, *COMMANDS["export DIR"], "made")
        Path("empty").mkdir()
        refused(capsys, *COMMANDS["export DIR"], "empty")
    assert not Path("made").exists()
    assert list(Path("empty").iterdir()) == []
    for folder in ("made", "empty"):
        assert main([*COMMANDS["export DIR"], folder]) in (0, 1)


@pytest.mark.parametrize("option", COMMANDS)
def test_a_folder_that_cannot_be_written_is_named(here, capsys, monkeypatch, option):
    access = os.access
    is_read_only = str(here / "folder").__eq__
    monkeypatch.setattr(
        os, "access", lambda path, mode: not is_read_only(str(path)) and access(path, mode)
    )
    before = content(here)
    told = refused(capsys, *COMMANDS[option], "folder/new/made")
    assert f"{here / 'folder'} cannot be written" in told
    assert content(here) == before


@pytest.mark.parametrize("number", [errno.EROFS, errno.EDQUOT, errno.EIO, errno.EBUSY])
def test_any_error_of_the_system_names_the_file(here, capsys, monkeypatch, number):
    full(monkeypatch, "rename", number)
    told = refused(capsys, *COMMANDS["trend --html"], "made.html")
    assert told.startswith(f"imgedit: made.html: {os.strerror(number)}")
    assert ("MiB free" in told) == (number == errno.EDQUOT)


@pytest.mark.parametrize("option", FILES)
def test_devices_pipes_and_links_are_written_through(here, capsys, option):
    null = device("null", here)
    for target in (str(null), "link.out", "c" * 245 + ".html"):
        Path("link.out").unlink(missing_ok=True)
        Path("link.out").symlink_to("real.out")
        assert main([*COMMANDS[option], target]) in (0, 1), capsys.readouterr().err
    assert stat.S_ISCHR(null.stat().st_mode)
    assert Path("link.out").is_symlink()
    assert Path("real.out").stat().st_size > 100
    assert not list(here.rglob("*.partial"))


def test_a_pipe_gets_a_report_if_somebody_reads_it(here, capsys):
    os.mkfifo("pipe")
    assert "pipe: No such device or address" in refused(
        capsys, *COMMANDS["leaderboard --csv"], "pipe"
    )
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(Path("pipe").read_bytes()))
    descriptor = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    reader.start()
    assert main([*COMMANDS["leaderboard --csv"], "pipe"]) == 0
    os.close(descriptor)
    reader.join(10)
    assert len(found[0]) > 100
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)


def test_a_full_device_is_told_with_its_free_space(here, capsys):
    full_device = device("full", here)
    told = refused(capsys, *COMMANDS["leaderboard --md"], str(full_device))
    assert told.startswith(f"imgedit: {full_device}: No space left on device (")
    assert stat.S_ISCHR(full_device.stat().st_mode)


def test_modes_are_those_of_the_old_file_or_of_the_umask(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("old")
    old.chmod(0o640)
    umask = os.umask(0o027)
    try:
        for path in (old, new):
            files.write_text(path, "new")
    finally:
        os.umask(umask)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (old, new)] == [0o640, 0o640]
    old.chmod(0o600)
    files.write_text(old, "newer")
    assert stat.S_IMODE(old.stat().st_mode) == 0o600


def test_writers_at_once_leave_one_whole_file(tmp_path):
    path = tmp_path / ("n" * 250)
    texts = [letter * 5000 for letter in "abcdef"]

    def write(text: str) -> None:
        for _ in range(20):
            files.write_bytes(path, text.encode(), durable=False)
            assert path.read_text() in texts

    failed: list[object] = []
    hook, threading.excepthook = threading.excepthook, failed.append
    try:
        threads = [threading.Thread(target=write, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.excepthook = hook
    assert failed == []
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["a", "n" * 250, "é" * 125, "\udcff" * 255, ".hidden", "图" * 85])
def test_any_name_that_a_file_can_have_can_be_written(tmp_path, name):
    files.write_text(tmp_path / name, "whole")
    outputs.write(tmp_path / name, "again")
    assert (tmp_path / name).read_text() == "again"
    assert len(list(tmp_path.iterdir())) == 1


def test_ctrl_c_during_a_write_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "old").write_text("old")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.write_text(tmp_path / "old", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old", "old")]


@pytest.fixture
def of_another(monkeypatch, tmp_path, capsys, command):
    """The store of another user, which can be read alone, in a folder that can be written; the test
    is not that user, nor root.

    The command runs once in a copy before that: it imports modules that another user may not read.
    """
    folder = Path(tempfile.mkdtemp())
    monkeypatch.chdir(folder)
    for name in ("first", "second"):
        write_run(Path(".imgedit"), name)
    (Path(".imgedit") / "blobs").mkdir()
    Path("ratings.csv").write_text("id,score\np0,5\np1,6\np2,7\n")
    with monkeypatch.context() as patch:
        patch.chdir(shutil.copytree(folder, tmp_path / "copy"))
        main(command.split())
        capsys.readouterr()
    for path in (folder, *folder.rglob("*")):
        is_read = folder / ".imgedit" in (path, *path.parents)
        path.chmod(0o777 if not is_read else 0o555 if path.is_dir() else 0o444)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(12345)
    yield folder
    if is_root:
        os.seteuid(0)
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(0o777)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "command",
    [
        "runs",
        "report latest",
        "report first --html=page.html",
        "report first --md=page.md --html-embed --html=page.html",
        "compare first second",
        "why first second",
        "leaderboard first second --reference=first",
        "leaderboard first second --csv=table.csv",
        "trend first second",
        "runs --json",
        "agreement first ratings.csv",
        "export first exported",
    ],
)
def test_another_user_s_store_is_read_by_every_command_without_a_write(of_another, capsys, command):
    before = content(of_another / ".imgedit")
    code, told = main(command.split()), capsys.readouterr()
    assert code in (0, 1), told.err
    assert told.err == ""
    assert content(of_another / ".imgedit") == before
    assert not list(of_another.rglob("*.partial"))
    for option in ("page.html", "page.md", "table.csv", "exported"):
        assert (of_another / option).exists() == (option in command)
    if command.startswith("report"):
        folder = (of_another / ".imgedit" / "runs" / command.split()[1]).relative_to(of_another)
        why = ", so that the reports in it stay as they are"
        assert why in told.out
        assert ("; --html or --md writes them elsewhere" in told.out) == ("page" not in command)
        assert not (folder / "report.md").exists()


def test_a_report_that_cannot_be_made_leaves_the_old_ones_as_they_are(here, monkeypatch):
    assert main(["report", "first"]) == 1  # the run itself did not pass
    written = {path: path.read_bytes() for path in Path(".imgedit/runs/first").glob("report.*")}
    for path in written:
        path.write_text("old")

    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("pytest_imgedit.report.html.render", fail)
    assert main(["report", "first"]) == 4
    assert {path.read_text() for path in written} == {"old"}
