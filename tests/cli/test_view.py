"""`imgedit view`: what it writes, of which runs, and where."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from documents import a_run, an_item
from PIL import Image

from pytest_imgedit.cli.main import main
from pytest_imgedit.core import files, images
from pytest_imgedit.store.journal import ModelRecord
from pytest_imgedit.store.store import Store
from pytest_imgedit.store.unfinished_runs import runs_going_on, write_plan


def put_run(store: Path, name: str, **changes) -> Path:
    """Write a run of one pair into a store; return its results.json."""
    with Store(store) as opened:
        blob = opened.blobs.put(images.encode_png(Image.new("RGB", (16, 16), "red")))
    path = store / "runs" / name / "results.json"
    path.parent.mkdir(parents=True)
    item = an_item("p1", blob=blob, source=f"{blob[:2]}/{blob}.png")
    run = a_run(run={"id": name, "name": f"name-of-{name}"}, items=[item], **changes)
    files.write_json(path, run.model_dump(mode="json"))
    return path


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("first", "second")):
        put_run(Path(".imgedit"), name, editor={"spec": "own:E", "params": {"steps": number}})
    return Path(".imgedit")


def given(script: Path) -> list:
    """The kind, key and value that a script of a page gives it."""
    text = script.read_text().removeprefix("imgedit.receive(").removesuffix(");\n")
    return json.loads(f"[{text}]")


def listed(page: Path) -> list[dict]:
    """The rows of the list of runs of a page."""
    kind, _, rows = given(page / "runs.js")
    assert kind == "list"
    return rows


def call(capsys, *arguments: str) -> tuple[int, str]:
    code = main(["view", *arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_all_runs_of_the_store_are_shown_in_its_own_folder(store, capsys):
    assert call(capsys) == (0, "2 runs: .imgedit/view/index.html\n")
    rows = listed(store / "view")
    assert [row["key"] for row in rows] == ["first", "second"]
    assert [row["params"] for row in rows] == ["steps=0", "steps=1"]
    assert not (store / "view/pictures").exists()
    assert call(capsys)[0] == 0  # over the older page


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        (["second"], ["second"]),
        (["name-of-first", "second"], ["first", "second"]),
        ([".imgedit/runs/first"], ["first"]),
        (["latest"], ["second"]),
        (["second", "second"], ["second"]),
        ([".imgedit", "elsewhere"], ["first", "second", "first-2"]),
        (["elsewhere", ".imgedit", "further"], ["first", "first-2", "second", "first-3"]),
        (["elsewhere", "second"], ["first", "second"]),
    ],
)
def test_runs_and_stores_are_named(store, capsys, references, expected):
    put_run(Path("elsewhere"), "first")
    put_run(Path("further"), "first")
    code, told = call(capsys, *references, "--out=page")
    assert code == 0, told
    assert [row["key"] for row in listed(Path("page"))] == expected


def test_all_sources_of_a_pair_are_in_the_page_in_order(store, capsys):
    with Store(store) as opened:
        colors = ("blue", "green", "red")
        digests = [
            opened.blobs.put(images.encode_png(Image.new("RGB", (16, 16), color)))
            for color in colors
        ]
    blobs = [f"{digest[:2]}/{digest}.png" for digest in digests]
    edit = {"sources": 3, "composited": True}
    shown = {"source": blobs[2], "further": tuple(blobs[:2]), "edited_source": 3}
    run = a_run(run={"id": "third"}, items=[an_item("p1", blob=digests[2], edit=edit, **shown)])
    path = store / "runs/third/results.json"
    path.parent.mkdir()
    files.write_json(path, run.model_dump(mode="json"))
    assert call(capsys, "third", "--out=page")[0] == 0
    copied = {path.name for path in Path("page/pictures").rglob("*.png")}
    assert copied == {f"{digest}.png" for digest in digests}
    [facts_path] = Path("page/runs").glob("*-pairs.js")
    _, _, facts = given(facts_path)
    _, _, items = given(Path("page/runs/third.js"))
    _, _, replies = given(Path("page/runs/third-replies.js"))
    labels = ("source 1", "source 2", "source 3 (edited)")
    names = [f"{digest}.png" for digest in digests]
    assert facts["sources"] == {"0": [list(pair) for pair in zip(labels, names, strict=True)]}
    assert facts["source"] == names[2:]
    assert items["marks"] == {"0": ["composited"]}
    how = "given 3 source images; laid over white: the editor's image had transparent pixels"
    assert replies[0][0][4] == how


def test_folder_with_images_stands_alone(store, capsys):
    assert call(capsys, "--out=page") == (0, "2 runs: page/index.html\n")
    names = {path.name for path in Path("page/pictures").rglob("*.*")}
    assert len(names) == 2  # the image and its thumbnail, of both runs
    call(capsys, "second", "--out=page")
    names = {path.name for path in Path("page/runs").iterdir()}
    assert {name for name in names if "pairs" not in name} == {"second-replies.js", "second.js"}


@pytest.mark.parametrize(
    ("prepare", "arguments", "reason"),
    [
        (lambda: Path("page").mkdir() or Path("page/mine").touch(), ["--out=page"], "is there"),
        (lambda: Path("page").touch(), ["--out=page"], "expected"),
        (lambda: None, ["--out=.imgedit/page"], "in the store"),
        (lambda: None, ["--out=.imgedit"], "expected a path outside"),
        (lambda: Path(".imgedit/view").symlink_to("/tmp"), [], "not a folder of the store"),
        (lambda: Path(".imgedit/view").touch(), [], "not a folder of the store"),
        (lambda: None, ["third"], "third: no such run"),
        (lambda: None, ["copy/results.json"], "not in a store"),
    ],
)
def test_what_cannot_be_done_is_one_line(store, capsys, prepare, arguments, reason):
    Path("copy").mkdir()
    Path("copy/results.json").write_bytes((store / "runs/first/results.json").read_bytes())
    prepare()
    code, told = call(capsys, *arguments)
    assert code == 4
    assert told.startswith("imgedit: ")
    assert told.count("\n") == 1
    assert reason in told


def test_without_a_store_it_says_how_to_make_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, told = call(capsys)
    assert code == 4
    assert "run pytest --imgedit first" in told


def test_run_that_cannot_be_read_is_named_and_left_out(store, capsys):
    (store / "runs/first/results.json").write_text("{")
    code, told = call(capsys)
    assert code == 1
    assert "1 run: .imgedit/view/index.html" in told
    assert "runs/first/results.json" in told
    assert [row["key"] for row in listed(store / "view")] == ["second"]


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "a/b", "..", "x" * 300, "é\u202e"])
@pytest.mark.everyday_for("/tmp/evil")
def test_id_of_a_run_is_no_path(store, capsys, name):
    path = store / "runs/first/results.json"
    document = json.loads(path.read_text())
    document["run"]["id"] = name
    path.write_text(json.dumps(document))
    call(capsys)  # which makes thumbnails
    before = {path for path in Path.cwd().parent.rglob("*") if "view" not in path.parts}
    assert call(capsys)[0] == 0
    after = {path for path in Path.cwd().parent.rglob("*") if "view" not in path.parts}
    assert after == before
    assert len(list((store / "view/runs").iterdir())) == 5  # the pairs are of one suite


def test_image_that_is_gone_is_left_out(store, capsys):
    for path in store.glob("blobs/*/*"):
        path.unlink()
    assert call(capsys)[0] == 0
    [facts] = (store / "view/runs").glob("*-pairs.js")
    assert '"source":[null]' in facts.read_text()
    assert '"edits":[null]' in (store / "view/runs/first.js").read_text()


def test_run_that_goes_on_is_listed_while_its_process_holds_the_store(store, capsys):
    with Store(store) as opened:
        run = opened.new_run()
        write_plan(opened, run, edits=100, editor="own:Editor")
        opened.edits.path.write_bytes(b"{}\n" * 34)
        [row] = runs_going_on(store)
        assert row["key"] == run.name
        assert row["running"].startswith("running, 34 of 100 edits, 0 answers of the judge (own:")
        call(capsys)
        assert listed(store / "view")[-1] == row
    assert list(runs_going_on(store)) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"edits": "many"}', '{"journals": 3}'])
def test_plan_that_cannot_be_read_is_no_run(store, content):
    with Store(store) as opened:
        (opened.new_run() / "plan.json").write_text(content)
        assert list(runs_going_on(store)) == []


def test_records_of_earlier_runs_do_not_count(store):
    with Store(store) as opened:
        opened.edits.path.write_bytes(b"{}\n" * 5)
        write_plan(opened, opened.new_run(), edits=9, editor="e")
        with opened.edits.path.open("ab") as file:
            file.write(b"{}\n" * 2)
        [row] = runs_going_on(store)
    assert row["running"].startswith("running, 2 of 9 edits")


def test_model_records_are_no_progress(store):
    with Store(store) as opened:
        write_plan(opened, opened.new_run(), edits=9, editor="e")
        opened.models.append([ModelRecord(key="ab" * 32, recipe={})])
        [row] = runs_going_on(store)
    assert row["running"].startswith("running, 0 of 9 edits")


def test_served_page_reaches_its_images_and_nothing_else(store):
    """A process of its own: it ends by Ctrl-C, which what a shell starts by `&` would ignore."""
    call = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from pytest_imgedit.cli.main import main; exit(main(['view', '--serve']))"
    )
    process = subprocess.Popen([sys.executable, "-c", call], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().partition(" ")[0]
        root = address.removesuffix("view/index.html")
        blob = next(store.glob("blobs/*/*.png")).relative_to(store)
        for name in ("view/index.html", "view/runs.js", str(blob)):
            with urllib.request.urlopen(f"{root}{name}") as reply:
                assert reply.status == 200
        for name in ("", "view/", "lock", "runs/first/results.json", "../imgedit.toml", "blobs/"):
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(f"{root}{name}")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    assert output == "2 runs: .imgedit/view/index.html\n"


@pytest.mark.parametrize("command", ["compare", "leaderboard", "trend"])
def test_other_pages_link_to_the_pairs_of_their_runs(store, capsys, command):
    assert main([command, "first", "second", "--html=board.html"]) in (0, 1)
    assert "Pairs by models" not in Path("board.html").read_text()
    call(capsys)
    assert main([command, "first", "second", "--html=board.html"]) in (0, 1)
    link = '<a href=".imgedit/view/index.html#view=pairs&amp;runs=first%2Csecond">Pairs by models'
    assert link in Path("board.html").read_text()
