"""Pairs of several sources: numbered columns and lists in every format, and the one that is edited."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import tomllib
from pathlib import Path

import pytest
from PIL import Image

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core.errors import ImageError, UsageError
from pytest_imgedit.core.images import decode
from pytest_imgedit.suites.base import load_suite
from pytest_imgedit.suites.handover import from_index, to_index
from pytest_imgedit.suites.sources import place_beside

PAGE = Path(__file__).parents[2] / "docs" / "own-data.md"
SIZES = {"a": (40, 32), "b": (24, 48), "c": (56, 20)}


def png(name):
    data = io.BytesIO()
    Image.new("RGB", SIZES[name], "red").save(data, "PNG")
    return data.getvalue()


def b64(name):
    return base64.b64encode(png(name)).decode()


@pytest.fixture
def folder(tmp_path):
    for name in SIZES:
        (tmp_path / f"{name}.png").write_bytes(png(name))
    return tmp_path


def as_csv(rows):
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_toml(rows):
    tables = []
    for row in rows:
        lines = (f"{json.dumps(name)} = {json.dumps(value)}" for name, value in row.items())
        tables.append("\n".join(["[[pairs]]", *lines]))
    return "\n".join(tables)


WRITERS = {
    "s.csv": as_csv,
    "s.json": json.dumps,
    "s.jsonl": lambda rows: "\n".join(map(json.dumps, rows)),
    "s.toml": as_toml,
}


def suite_of(path, **settings):
    return load_suite(SuiteSettings(spec=str(path), **settings))


def pairs_of(folder, name, *rows, **settings):
    rows = [{"instruction": "x", **row} for row in rows]
    (folder / name).write_text(WRITERS[name](rows), "utf-8")
    return suite_of(folder / name, **settings).pairs


def names_of(pair):
    """The letters of its sources in their order, and the one that is edited."""
    letters = {size: name for name, size in SIZES.items()}
    read = ["".join(letters[decode(image.read()).size]) for image in pair.sources]
    return "".join(read), letters[decode(pair.source.read()).size]


def error_of(folder, name, *rows, **settings):
    with pytest.raises(UsageError) as raised:
        pairs_of(folder, name, *rows, **settings)
    return str(raised.value).removeprefix(f"{folder}/")


@pytest.mark.parametrize(
    "columns",
    [
        ("image", "image2", "image3"),
        ("image", "image_2", "image_3"),
        ("image1", "image2", "image3"),
        ("image_1", "image_2", "image_3"),
        ("image-01", "image-02", "image-03"),
        ("image 1", "image 2", "image 3"),
        ("image.1", "image.2", "image.3"),
        ("source_images_1", "source_images_2", "source_images_3"),
    ],
)
@pytest.mark.parametrize("name", ["s.csv", "s.jsonl"])
def test_numbered_columns_are_sources_in_the_order_of_their_numbers(folder, name, columns):
    first, second, third = columns
    row = {third: "c.png", first: "a.png", second: "b.png"}
    (pair,) = pairs_of(folder, name, row)
    assert names_of(pair) == ("abc", "a")
    assert list(pair.images) == ["source", "source-2", "source-3"]
    assert (pair.edited_source, pair.fields) == (1, {})


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("column", ["image", "images", "input_images", "source_images"])
def test_a_list_holds_sources_in_each_format(folder, name, column):
    paths = ["b.png", "a.png", "c.png"]
    row = {"id": "p", column: json.dumps(paths) if name == "s.csv" else paths, "edited_source": 2}
    (pair,) = pairs_of(folder, name, row)
    assert names_of(pair) == ("bac", "a")
    assert list(pair.images) == ["source-1", "source", "source-3"]
    assert pair.fields == {}


def test_a_list_as_python_writes_it_is_read_too(folder):
    (pair,) = pairs_of(folder, "s.csv", {"image": "['a.png', 'b.png']", "edited_source": "2.0"})
    assert names_of(pair) == ("ab", "b")


def test_pairs_of_one_and_of_three_sources_are_in_one_table(folder):
    one, three = pairs_of(
        folder,
        "s.csv",
        {"image": "a.png", "image2": "", "image3": "NA", "edited_source": ""},
        {"image": "a.png", "image2": "b.png", "image3": "c.png", "edited_source": "3"},
    )
    assert (names_of(one), names_of(three)) == (("a", "a"), ("abc", "c"))


def test_an_empty_list_is_no_source(folder):
    (pair,) = pairs_of(folder, "s.csv", {"image": "[]", "images": '["a.png", "b.png"]'})
    assert names_of(pair) == ("ab", "a")
    assert "no image, expected one in 'image'" in error_of(folder, "s.csv", {"image": "[]"})


def test_one_image_may_be_two_sources(folder):
    (pair,) = pairs_of(folder, "s.jsonl", {"image": ["a.png", "b.png", "b.png"]})
    assert names_of(pair) == ("abb", "a")


def test_a_file_may_have_a_name_in_brackets(folder):
    (folder / "[draft] a.png").write_bytes(png("a"))
    (pair,) = pairs_of(folder, "s.csv", {"image": "[draft] a.png"})
    assert names_of(pair) == ("a", "a")


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    "columns",
    [
        ("image_b64",),
        ("image_b64", "image_b64_2", "image_b64_3"),
        ("image_b64", "image2_b64", "image_3_b64"),
    ],
    ids=len,
)
def test_base64_images_may_be_several_too(folder, name, columns):
    texts = [b64(letter) for letter in "abc"]
    row = dict(zip(columns, texts, strict=False))
    if len(columns) == 1:
        row = {"image_b64": json.dumps(texts) if name == "s.csv" else texts}
    (pair,) = pairs_of(folder, name, {**row, "edited_source": 3})
    assert names_of(pair) == ("abc", "c")


def test_a_list_as_text_in_json_holds_base64_images_too(folder):
    (pair,) = pairs_of(folder, "s.jsonl", {"image_b64": json.dumps([b64("a"), b64("b")])})
    assert names_of(pair) == ("ab", "a")


def test_settings_name_a_list_a_numbered_column_or_one_column_for_each_source(folder):
    (pair,) = pairs_of(folder, "s.jsonl", {"pics": ["a.png", "b.png"]}, fields={"image": "pics"})
    assert names_of(pair) == ("ab", "a")
    row = {"photo": "a.png", "photo2": "b.png", "at": 2}
    fields = {"image": "photo", "edited_source": "at"}
    (pair,) = pairs_of(folder, "s.jsonl", row, fields=fields)
    assert names_of(pair) == ("ab", "b")
    row = {"person": "b.png", "scene": "a.png", "image2": "c.png"}
    (pair,) = pairs_of(folder, "s.csv", row, fields={"image": ["scene", "person"]})
    assert names_of(pair) == ("ab", "a")
    assert pair.fields == {"image2": "c.png"}


def test_a_column_that_the_settings_name_otherwise_is_no_source(folder):
    row = {"image": "a.png", "image2": "b.png"}
    (pair,) = pairs_of(folder, "s.csv", row, fields={"reference": "image2"})
    assert (names_of(pair), decode(pair.reference.read()).size) == (("a", "a"), SIZES["b"])


def test_a_reference_and_a_width_are_no_sources(folder):
    row = {"image": "a.png", "reference": "b.png", "reference_2": "c.png", "image_1024": "c.png"}
    (pair,) = pairs_of(folder, "s.csv", row)
    assert names_of(pair) == ("a", "a")
    assert sorted(pair.fields) == ["image_1024", "reference_2"]


THREE = ["a.png", "b.png", "c.png"]


@pytest.mark.parametrize(
    ("name", "row", "line"),
    [
        pytest.param(
            "s.csv",
            {"image": "a.png", "image3": "c.png"},
            "s.csv:2: 'image3' holds source 3 and no column holds source 2, expected no gap: fill "
            "it, or move the later ones",
            id="gap",
        ),
        pytest.param(
            "s.csv",
            {"image": "a.png", "image2": "", "image3": "c.png"},
            "s.csv:2: 'image3' holds source 3 and 'image2' is empty, expected no gap: fill it, or "
            "move the later ones",
            id="gap-of-an-empty-cell",
        ),
        pytest.param(
            "s.jsonl",
            {"image_2": "a.png"},
            "s.jsonl:1: 'image_2' holds source 2 and no column holds source 1, expected no gap: "
            "fill it, or move the later ones",
            id="gap-at-the-beginning",
        ),
        pytest.param(
            "s.jsonl",
            {"image_0": "a.png", "image_1": "b.png"},
            "s.jsonl:1: 'image_0' holds source 0, expected numbers from 1",
            id="zero",
        ),
        pytest.param(
            "s.jsonl",
            {"image": "a.png", "image1": "b.png"},
            "s.jsonl:1: 'image' and 'image1' both hold source 1, expected one of them, or all in "
            "their order: suite.fields.image=['image', 'image1', …]",
            id="first-twice",
        ),
        pytest.param(
            "s.jsonl",
            {"image": THREE, "image2": "b.png"},
            "s.jsonl:1: 'image' is a list and 'image2' holds a source too, expected all in the "
            "list, or one in each column",
            id="list-and-column",
        ),
        pytest.param(
            "s.jsonl",
            {"image": "a.png", "image2": ["b.png"]},
            "s.jsonl:1: 'image2' is a list and 'image' holds a source too, expected all in the "
            "list, or one in each column",
            id="column-and-list",
        ),
        pytest.param(
            "s.jsonl",
            {"image": "a.png", "images": THREE},
            "s.jsonl:1: 'image' and 'images' both hold sources, expected one of them: "
            "suite.fields.image='image' chooses",
            id="two-names",
        ),
        *(
            pytest.param(
                name,
                {"image": "a.png", other: "b.png"},
                f"{name}:{line}: 'image' and {other!r} both hold sources, expected one of them: "
                "suite.fields.image='image' chooses",
                id=f"one-of-two-names-{name}-{other}",
            )
            for name, line in (("s.csv", 2), ("s.jsonl", 1))
            for other in ("images", "input_images", "source_images")
        ),
        pytest.param(
            "s.jsonl",
            {"image": "a.png", "images": ["b.png"]},
            "s.jsonl:1: 'image' and 'images' both hold sources, expected one of them: "
            "suite.fields.image='image' chooses",
            id="two-names-and-a-list-of-one",
        ),
        pytest.param(
            "s.jsonl",
            {"src_img_b64": "QUJD", "image_b64": "QUJE"},
            "s.jsonl:1: 'src_img_b64' and 'image_b64' both hold sources, expected one of them: "
            "suite.fields.image_b64='src_img_b64' chooses",
            id="one-of-two-names-of-texts",
        ),
        pytest.param(
            "s.jsonl",
            {"src_img_b64": "QUJD", "image_b64": ["QUJD", "QUJE"]},
            "s.jsonl:1: 'src_img_b64' and 'image_b64' both hold sources, expected one of them: "
            "suite.fields.image_b64='src_img_b64' chooses",
            id="two-names-of-texts",
        ),
        pytest.param(
            "s.jsonl",
            {"image": "a.png", "image2": "b.png", "image_b64": "QUJD"},
            "s.jsonl:1: 1 source in 'image_b64' and 2 in 'image', expected as many in each, or all "
            "in one of them",
            id="texts-and-paths",
        ),
        pytest.param(
            "s.jsonl",
            {"image": ["a.png", "", "c.png"]},
            "s.jsonl:1: 'image' has nothing in place 2 of 3, expected an image in each place",
            id="empty-in-list",
        ),
        pytest.param(
            "s.jsonl",
            {"image": ["a.png", None]},
            "s.jsonl:1: 'image' has nothing in place 2 of 2, expected an image in each place",
            id="null-in-list",
        ),
        pytest.param(
            "s.jsonl",
            {"image": ["a.png", 7]},
            "s.jsonl:1: 'image' is 7 in place 2, expected text",
            id="number-in-list",
        ),
        pytest.param(
            "s.jsonl",
            {"image": ["a.png", ["b.png"]]},
            "s.jsonl:1: 'image' is ['b.png'] in place 2, expected text",
            id="list-in-list",
        ),
        pytest.param(
            "s.csv",
            {"image": "['a.png' 'b.png']"},
            "s.csv:2: 'image' is \"['a.png' 'b.png']\", expected a list of texts",
            id="list-of-numpy",
        ),
        pytest.param(
            "s.jsonl",
            {"image": []},
            "s.jsonl:1: no image, expected one in 'image' or",
            id="empty-list",
        ),
        *(
            pytest.param(
                "s.jsonl",
                {"image": THREE, "edited_source": value},
                f"s.jsonl:1: 'edited_source' is {value!r}, expected a whole number from 1 to 3: "
                "3 sources",
                id=f"edited-{value}",
            )
            for value in (0, 4, -1, 1.5, True, "two", [1])
        ),
        pytest.param(
            "s.csv",
            {"image": "a.png", "edited_source": "2"},
            "s.csv:2: 'edited_source' is '2', expected 1: the pair has one source",
            id="edited-of-one",
        ),
    ],
)
def test_what_leaves_a_source_unclear_is_refused_by_its_row(folder, name, row, line):
    message = error_of(folder, name, row)
    assert message.startswith(line)
    assert "\n" not in message


@pytest.mark.parametrize("place", [1, 2, 3])
@pytest.mark.parametrize("is_list", [True, False], ids=["list", "columns"])
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../x.png", "image '../x.png' leads out of "),
        ("/etc/passwd", "image '/etc/passwd' leads out of "),
        ("https://x.example/a.png", "image 'https://x.example/a.png' is a URL, expected a path"),
        (".", "image '.' is a folder, expected a file"),
        ("link.png", "image 'link.png' is a link out of "),
    ],
)
def test_no_source_may_lead_elsewhere(folder, place, is_list, path, reason):
    outside = folder / "outside.png"
    outside.write_bytes(png("a"))
    inner = folder / "inner"
    inner.mkdir()
    (inner / "link.png").symlink_to(outside)
    for name in "abc":
        (inner / f"{name}.png").write_bytes(png(name))
    paths = [*THREE]
    paths[place - 1] = path
    row = {"image": paths}
    if not is_list:
        row = dict(zip(("image", "image2", "image3"), paths, strict=True))
    assert error_of(inner, "s.jsonl", row).startswith(f"s.jsonl:1: {reason}")


def test_fields_that_name_several_columns_are_checked(folder):
    for key, names, expected in (
        ("instruction", ["a", "b"], "expected one name: only image and image_b64 may be several"),
        ("image", [], "expected the fields of the sources in their order, each once"),
        ("image", ["a", "a"], "expected the fields of the sources in their order, each once"),
    ):
        message = error_of(folder, "s.csv", {"image": "a.png"}, fields={key: names})
        assert message.startswith(f"suite.fields.{key}: {names!r}, {expected}")


@pytest.mark.parametrize(
    ("row", "advice"),
    [
        (
            {"pics": ["a.png", "b.png"]},
            "found 'pics'; if 'pics' is that, set suite.fields.image='pics'",
        ),
        (
            {"photo2": "b.png", "photo1": "a.png"},
            "found 'photo2', 'photo1'; if 'photo1' and 'photo2' are that, set "
            'suite.fields.image=["photo1", "photo2"]',
        ),
        (
            {"photo_5": "b.png"},
            "found 'photo_5'; if 'photo_5' is that, set suite.fields.image='photo_5'",
        ),
    ],
)
def test_columns_of_another_name_are_advised(folder, row, advice):
    assert error_of(folder, "s.jsonl", row).endswith(advice)


@pytest.mark.parametrize("names", ["5", '["a", 3]', '{a = "b"}'])
def test_a_field_is_named_by_text(bench, names):
    bench.refuses(
        "suite.fields: image is *, expected the name of a field",
        "--imgedit-suite=s.csv",
        f"--imgedit-set=suite.fields.image={names}",
    )


def test_ids_follow_the_edited_source_and_tell_further_ones_apart(folder):
    rows = [
        {"image": ["a.png", "b.png"]},
        {"image": ["a.png", "c.png"]},
        {"image": ["a.png", "c.png", "b.png"]},
        {"image": ["c.png", "b.png"], "edited_source": 2},
    ]
    pairs = pairs_of(folder, "s.jsonl", *rows)
    assert [pair.id.rpartition("-")[0] or pair.id for pair in pairs] == ["a", "a", "a", "b"]
    assert len({pair.id for pair in pairs}) == 4
    assert [pair.own_id for pair in pairs] == ["a", "a", "a", "b"]


def test_the_digest_of_a_suite_covers_which_source_is_edited(folder):
    row = {"id": "p", "instruction": "x", "image": ["a.png", "b.png"]}
    digests = []
    for more in ({}, {"edited_source": 1}, {"edited_source": 2}):
        (folder / "s.json").write_text(json.dumps([{**row, **more}]))
        digests.append(suite_of(folder / "s.json").sha256)
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    "row",
    [
        {"image": ["a.png", "b.png", "c.png"], "edited_source": 2},
        {"image_b64": [b64("a"), b64("b"), b64("c")], "edited_source": 3},
        {"image_b64": b64("a"), "image_b64_2": b64("b"), "reference": "c.png"},
    ],
)
def test_a_suite_of_several_sources_comes_back_as_it_was(folder, row):
    (folder / "s.jsonl").write_text(json.dumps({"instruction": "x", **row}))
    suite = suite_of(folder / "s.jsonl")
    again = from_index(json.loads(json.dumps(to_index(suite))))
    assert again == suite
    assert names_of(again.pairs[0]) == names_of(suite.pairs[0])


@pytest.mark.parametrize(
    ("column", "place"),
    [
        ("image", 1),
        ("image1", 1),
        ("image_12", 12),
        ("image-2", 2),
        ("image2_b64", None),
        ("image__2", None),
        ("image_2a", None),
        ("image_512", None),
        ("images", None),
        ("image２", None),
    ],
)
def test_names_of_numbered_columns(column, place):
    assert place_beside("image", column) == place


@pytest.mark.parametrize(
    "row",
    [
        {"image": "a.png", "images": "a.png"},
        {"image": "a.png", "images": ["a.png"]},
        {"image": "a.png", "input_images": " a.png "},
        {"image": "a.png", "images": "", "source_images": []},
        {"image_b64": b64("a"), "src_img_b64": b64("a")},
        {"image_b64": b64("a"), "image": "b.png"},
    ],
    ids=["paths", "a-list-of-one", "blanks", "nothing", "texts", "a-text-and-a-path"],
)
def test_a_source_that_is_named_twice_is_one(folder, row):
    (pair,) = pairs_of(folder, "s.jsonl", row)
    assert pair.further == ()
    assert decode(pair.source.read()).size == SIZES["a"]


@pytest.mark.parametrize("key", ["image", "image_b64"])
@pytest.mark.parametrize("name", ["", "a(", "[_b64", "*_b64", "9", " "])
def test_a_field_may_have_any_name(folder, key, name):
    message = error_of(folder, "s.jsonl", {"7": "a.png"}, fields={key: name})
    assert message.startswith("s.jsonl:1: no image, expected one in ")
    assert repr(name) in message
    assert place_beside(name, name) == 1
    assert place_beside(name, f"{name} 2") == (2 if name else None)


def test_a_name_that_ends_in_a_digit_is_numbered_behind_a_mark():
    assert place_beside("t2", "t22") is None
    assert place_beside("t2", "t2_2") == 2


def test_the_examples_of_the_page_on_own_data_are_suites(folder):
    text = PAGE.read_text("utf-8").partition("## Several sources")[2].partition("\n## ")[0]
    blocks = re.findall(r'```\w+ title="(.+?)"\n(.*?)```', text, re.DOTALL)
    examples = dict(blocks)
    assert sorted(examples) == ["imgedit.toml", "pairs.csv", "pairs.jsonl"]
    for name, content in examples.items():
        (folder / name).write_text(content, "utf-8")
    for name in ("pairs.csv", "pairs.jsonl"):
        hat, desk = suite_of(folder / name).pairs
        assert [source.path.stem for source in hat.sources] == ["person", "hat"]
        assert [source.path.stem for source in desk.sources] == ["lamp", "room", "cat"]
        assert (hat.source.path.stem, desk.source.path.stem) == ("person", "room")
    fields = tomllib.loads(examples["imgedit.toml"])["suite"]["fields"]
    row = {"scene": "a.png", "person": "b.png", "object": "c.png"}
    (pair,) = pairs_of(folder, "s.csv", row, fields=fields)
    assert names_of(pair) == ("abc", "a")


def parquet_of(folder, rows, **settings):
    pytest.importorskip("pyarrow.parquet")
    from pyarrow import Table, parquet

    path = folder / "s.parquet"
    rows = [{"id": f"p{n}", "instruction": "x", **row} for n, row in enumerate(rows)]
    parquet.write_table(Table.from_pylist(rows), path, row_group_size=2)
    return suite_of(path, **settings).pairs


def struct(name):
    return {"bytes": png(name), "path": None}


@pytest.mark.parametrize("make", [struct, png], ids=["structs", "bytes"])
def test_a_table_holds_lists_of_images(folder, make):
    lists = ["abc", "a", "ca"]
    pairs = parquet_of(
        folder,
        [{"input_images": [make(n) for n in names], "edited_source": 1} for names in lists],
    )
    assert [names_of(pair)[0] for pair in pairs] == lists


@pytest.mark.parametrize("make", [struct, png], ids=["structs", "bytes"])
def test_a_table_holds_numbered_columns_of_images(folder, make):
    rows = [
        {"picture": make("a"), "picture2": make("b"), "picture3": make("c"), "edited_source": 2},
        {"picture": make("b"), "picture2": None, "picture3": None, "edited_source": None},
        {"picture": make("c"), "picture2": make("a"), "picture3": None, "edited_source": 1},
    ]
    pairs = parquet_of(folder, rows, fields={"image": "picture"})
    assert [names_of(pair) for pair in pairs] == [("abc", "b"), ("b", "b"), ("ca", "c")]


def test_the_columns_of_a_row_group_are_read_once_each(folder, monkeypatch):
    row = {"image": struct("a"), "image2": struct("b"), "image3": struct("c")}
    pairs = parquet_of(folder, [row] * 4)
    from pyarrow import parquet

    read = []
    read_row_group = parquet.ParquetFile.read_row_group

    def noted(file, group, columns):
        read.append((group, *columns))
        return read_row_group(file, group, columns=columns)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", noted)
    assert [names_of(pair)[0] for pair in pairs] == ["abc"] * 4
    assert sorted(read) == [
        (group, column) for group in (0, 1) for column in ("image", "image2", "image3")
    ]


def test_a_table_holds_lists_of_paths_and_of_base64_texts(folder):
    (pair,) = parquet_of(folder, [{"images": ["a.png", "b.png"]}])
    assert names_of(pair) == ("ab", "a")
    (pair,) = parquet_of(folder, [{"image_b64": [b64("a"), b64("b")]}])
    assert names_of(pair) == ("ab", "a")


def test_an_empty_image_in_a_list_of_a_table_is_refused_by_its_row(folder):
    with pytest.raises(UsageError, match=r"row 2: 'images' has nothing in place 1 of 2"):
        parquet_of(folder, [{"images": [struct("a")]}, {"images": [None, struct("b")]}])


def test_a_list_of_expected_results_is_refused_by_its_row(folder):
    row = {"image": struct("a"), "reference": [struct("b"), struct("c")]}
    with pytest.raises(UsageError, match="'reference' is a list of 2 images, expected one image"):
        parquet_of(folder, [row])


def test_a_part_of_a_list_without_bytes_is_an_error_of_its_image(folder):
    (pair,) = parquet_of(folder, [{"images": [struct("a"), {"bytes": None, "path": "b.png"}]}])
    with pytest.raises(ImageError, match="column 'images' holds no image"):
        pair.further[0].read()


def test_data_sets_of_one_source_are_read_as_before(folder):
    """The columns are those of MagicBrush, with several turns of one image, and of Emu Edit."""
    turns = [
        {
            "img_id": "7",
            "turn_index": turn,
            "source_img": struct("a"),
            "mask_img": struct("b"),
            "target_img": struct("c"),
        }
        for turn in (1, 2)
    ]
    fields = {"image": "source_img", "reference": "target_img"}
    pairs = parquet_of(folder, turns, fields=fields)
    assert [names_of(pair) for pair in pairs] == [("a", "a")] * 2
    assert [decode(pair.reference.read()).size for pair in pairs] == [SIZES["c"]] * 2
    row = {"image": struct("b"), "idx": 3, "task": "style", "input_caption": "y"}
    (pair,) = parquet_of(folder, [row], fields={"category": "task"})
    assert (names_of(pair), pair.category) == (("b", "b"), "style")
