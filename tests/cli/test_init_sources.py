"""`imgedit init` over tables whose pairs have several source images."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from PIL import Image

from pytest_imgedit.cli.main import main
from pytest_imgedit.config.settings import SuiteSettings, make_settings, read_tables
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.suites.base import load_suite

SIZES = {"a": (40, 32), "b": (24, 48), "c": (56, 20)}
MODELS = ("--editor=identity", "--judge=none", "--ci=none")
CONFIG = Path("benchmarks/imgedit.toml")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, size in SIZES.items():
        Image.new("RGB", size, "red").save(f"{name}.png")


@pytest.fixture
def init(capsys):
    """Call `imgedit init` on a text in a file: (the line on its suite, its pairs)."""

    def call(name, text):
        Path(name).write_text(text)
        assert main(["init", name, *MODELS]) == 0
        [line] = [line for line in capsys.readouterr().out.splitlines() if line[:6] == "suite:"]
        return line.removeprefix("suite: "), load_suite(make_settings(read_tables(CONFIG)).suite)

    return call


@pytest.fixture
def refuses(capsys):
    def check(name, text, line):
        Path(name).write_text(text)
        assert main(["init", name, *MODELS]) == 4
        [message] = capsys.readouterr().err.splitlines()
        assert line in message
        assert not CONFIG.exists()

    return check


def names_of(suite):
    return [
        ("".join(source.path.stem for source in pair.sources), pair.source.path.stem)
        for pair in suite.pairs
    ]


def test_a_suite_is_taken_as_it_is(init):
    line, suite = init("s.csv", "image,image2,instruction\na.png,b.png,x\nc.png,,y\n")
    assert line == "2 pairs of s.csv (1 with several sources)"
    assert tomllib.loads(CONFIG.read_text())["suite"]["spec"] == "../s.csv"
    assert names_of(suite) == [("ab", "a"), ("c", "c")]


def test_numbered_columns_of_another_name_are_found(init):
    line, suite = init(
        "s.csv",
        "Photo 2,Photo 1,Prompt,edited_source,Kind\nb.png,a.png,x,2,style\n,c.png,y,,style\n",
    )
    assert line == (
        "2 rows of s.csv (1 with several sources): image 'Photo 1', 'Photo 2', instruction 'Prompt'"
    )
    assert names_of(suite) == [("ab", "b"), ("c", "c")]
    assert [pair.category for pair in suite.pairs] == ["style", "style"]
    assert suite.remarks == ()


@pytest.mark.parametrize("column", ["sources", "input_images", "pictures"])
@pytest.mark.parametrize("name", ["s.json", "s.jsonl", "s.csv"])
def test_a_column_of_lists_is_found(init, name, column):
    rows = [
        {"prompt": "x", column: ["c.png", "a.png"]},
        {"prompt": "y", column: ["b.png", "b.png"]},
    ]
    text = "\n".join(map(json.dumps, rows))
    if name == "s.json":
        text = json.dumps(rows)
    elif name == "s.csv":
        text = f'prompt,{column}\nx,"[""c.png"", ""a.png""]"\ny,"[""b.png"", ""b.png""]"\n'
    line, suite = init(name, text)
    assert line == (
        f"2 rows of {name} (2 with several sources): image '{column}', instruction 'prompt'"
    )
    assert names_of(suite) == [("ca", "c"), ("bb", "b")]


def test_a_reference_is_none_of_the_sources(init):
    line, suite = init("s.csv", "pic,pic2,prompt,target\na.png,b.png,x,c.png\n")
    assert "image 'pic', 'pic2', instruction 'prompt'" in line
    assert names_of(suite) == [("ab", "a")]
    assert suite.pairs[0].reference.path.stem == "c"


def test_a_numbered_column_without_a_first_is_one_image(init):
    line, suite = init("s.csv", "photo_5,prompt\na.png,x\n")
    assert line == "1 row of s.csv: image 'photo_5', instruction 'prompt'"
    assert names_of(suite) == [("a", "a")]


def test_numbered_images_beside_an_image_of_another_name_are_left_out(init):
    _, suite = init("s.csv", "photo,image2,prompt\na.png,b.png,x\n")
    assert names_of(suite) == [("a", "a")]
    assert suite.pairs[0].fields == {}


def test_the_edited_images_are_counted_for_gates(init):
    rows = [{"prompt": "x", "image": ["b.png", "a.png"], "edited_source": 2}]
    rows += [{"prompt": "y", "image": [name, "a.png"], "edited_source": 2} for name in ("b", "c")]
    init("s.jsonl", "\n".join(map(json.dumps, rows)))
    assert "# 1 source image can detect" in CONFIG.read_text()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "pic,pic3,prompt\na.png,b.png,x\n",
            "s.csv:2: 'pic3' holds source 3 and no column holds source 2, expected no gap: ",
        ),
        ("pic,pic2,prompt\na.png,none.png,x\n", "s.csv:2: 'pic2' is 'none.png', expected an image"),
        ("pic,pic2,prompt\n,b.png,x\n" + "a.png,,x\n" * 4, "s.csv:2: 'pic2' holds source 2 and 'p"),
        (
            "pic,pic2,prompt,edited_source\na.png,b.png,x,5\n",
            "s.csv:2: 'edited_source' is 5, expected a whole number from 1 to 2: 2 sources",
        ),
        (
            'pic,prompt,edited_source\na.png,"x\ny",\n\nb.png,x,2\nc.png,x,3\n',
            "imgedit: s.csv:5: 'edited_source' is 2, expected 1: the pair has one source; s.csv:6: "
            "'edited_source' is 3, expected 1: the pair has one source",
        ),
        (
            "pic,pic2,prompt,edited_source\na.png,b.png,x,two\n",
            "s.csv:2: 'edited_source' is 'two', expected a number",
        ),
    ],
)
def test_what_leaves_a_source_unclear_is_refused(refuses, text, line):
    refuses("s.csv", text, line)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (
            "s.csv",
            "id,image,image2,instruction\nx,photos/a.png,photos/b.png,x\n",
            "s.csv: column 'image' names images by links out of ",
        ),
        (
            "s.jsonl",
            '{"image": ["photos/a.png", "photos/b.png"], "instruction": "x"}',
            "s.jsonl: column 'image' names images by links out of ",
        ),
        (
            "s.csv",
            "image,image2,instruction\nd.png,photos/a.png,x\n",
            "s.csv:2: 'image2' is 'photos/a.png', a link out of the folder, expected an image below",
        ),
        (
            "s.csv",
            "image,instruction\nphotos/none.png,x\n",
            "s.csv: no column names images below ",
        ),
        ("s.csv", "image,instruction\n../a.png,x\n", "s.csv: no column names images below "),
        ("s.csv", "image,instruction\nloop.png,x\n", "s.csv: no column names images below "),
    ],
    ids=["columns", "list", "one-of-two", "missing", "no-link", "loop"],
)
def test_links_out_of_the_folder_are_said_to_be_the_reason(refuses, monkeypatch, name, text, line):
    Path("work").mkdir()
    monkeypatch.chdir("work")
    Path("photos").symlink_to("..")
    Path("loop.png").symlink_to("loop.png")
    Image.new("RGB", (8, 8)).save("d.png")
    refuses(name, text, line)


def test_a_message_on_links_says_once_what_copies_them():
    Path("work").mkdir()
    Path("work/photos").symlink_to("..")
    rows = "".join(f"photos/{name}.png,x\n" for name in SIZES)
    Path("work/s.csv").write_text(f"image,instruction\n{rows}none,\n")
    with pytest.raises(UsageError) as caught:
        load_suite(SuiteSettings(spec="work/s.csv"))
    message = str(caught.value)
    assert message.count("is a link out of") == 3
    assert message.count("cp -rL") == 1
    assert "'photos/c.png' is a link out of" in message.partition(": cp -rL copies")[0]


def test_a_parquet_file_with_a_column_that_nothing_reads_is_a_suite(capsys):
    pytest.importorskip("pyarrow.parquet")
    from pyarrow import Table, parquet

    images = [{"bytes": Path(f"{name}.png").read_bytes(), "path": None} for name in "ab"]
    row = {"key": "k", "instruction": "x", "task_type": "scene", "input_images": images}
    parquet.write_table(Table.from_pylist([row]), "s.parquet")
    assert main(["init", "s.parquet", *MODELS]) == 0
    assert "suite: 1 pairs of s.parquet (1 with several sources)" in capsys.readouterr().out
    parquet.write_table(
        Table.from_pylist([{**row, "input_images": ["a.png", "d.png"]}]), "t.parquet"
    )
    CONFIG.unlink()
    assert main(["init", "t.parquet", *MODELS]) == 4
    assert "t.parquet:1: row 1: no image " in capsys.readouterr().err
