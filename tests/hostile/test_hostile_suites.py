"""Bad suite files exit 4 with one line `file:line: …`; what is wrong with one image is an error of
that pair alone.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.images import encode_png
from pytest_imgedit.suites.base import load_suite
from pytest_imgedit.suites.rows import raise_problems, read_rows

PNG = encode_png(Image.effect_noise((32, 24), 60))
B64 = base64.b64encode(PNG).decode()


def row(**values):
    return {"category": "physics", "instruction": "let it fall", "image_b64": B64, **values}


def one(**values):
    return json.dumps([row(**values)])[:-1] + "\n]"


def path(name):
    return one(image_b64="", image=name)


BAD = [
    pytest.param("", "1: empty file, expected at least one pair", id="empty-file"),
    pytest.param("[", "1: not valid JSON: *", id="open"),
    pytest.param(
        "3", "1: expected a list of objects or a dict of such lists by category", id="number"
    ),
    pytest.param("[1, 2]", "1: expected a list of objects *", id="row-is-a-number"),
    pytest.param('[["a"]]', "1: list, expected an object (one pair)", id="row-is-a-list"),
    pytest.param(
        '[\n{"a": 1}\n{"a": 2}]', "3: not valid JSON: Expecting ',' delimiter", id="missing-comma"
    ),
    pytest.param('[{"a": 1}] x', "1: not valid JSON: Extra data", id="text-after-the-end"),
    pytest.param('[\n{"a": NaN}]', "2: not valid JSON: NaN is not a JSON number", id="nan"),
    pytest.param(
        '[\n{"a": -Infinity}]', "2: not valid JSON: -Infinity is not a JSON number", id="infinity"
    ),
    pytest.param(
        '[\n\n{"a": 1, "a": 2}]', "3: not valid JSON: key 'a' occurs twice", id="key-twice"
    ),
    pytest.param(
        '{"a": [], "a": []}', "1: not valid JSON: key 'a' occurs twice", id="category-twice"
    ),
    pytest.param(
        '[{"a": ' + "[" * 99 + "]" * 99 + "}]", "1: nested deeper than 64 levels", id="deep"
    ),
    pytest.param(
        '[{"a": ' + "[" * 99999 + "]" * 99999 + "}]",
        "1: nested deeper than 64 levels",
        id="very-deep",
    ),
    pytest.param(
        '[\n{"seed": ' + "9" * 5000 + "}]",
        "2: not valid JSON: Exceeds the limit *",
        id="5000-digits",
    ),
    pytest.param(
        '[\n{"a": "\\ud800"}]',
        "2: not valid JSON: lone surrogate '\\ud800', expected Unicode text",
        id="surrogate",
    ),
    pytest.param('[\n{"a": 01}]', "2: not valid JSON: *", id="leading-zero"),
    pytest.param("[\n{'a': 1}]", "2: not valid JSON: *", id="single-quotes"),
    pytest.param(one(category=[]), "1: 'category' is [], expected text", id="category-list"),
    pytest.param(
        one(instruction=" \t"),
        "1: no instruction, expected text in 'instruction'",
        id="blank-instruction",
    ),
    pytest.param(
        one(instruction=["x"]),
        "1: 'instruction' is ['x'], expected text",
        id="instruction-type",
    ),
    pytest.param(one(category=7), "1: 'category' is 7, expected text", id="category-type"),
    pytest.param(one(image_b64=""), "1: no image, expected one in *", id="no-image"),
    pytest.param(one(image_b64=5), "1: 'image_b64' is 5, expected text", id="image-type"),
    pytest.param(
        one(seed=-1),
        "1: 'seed' is -1, expected an integer of at least 0 and under 2**63",
        id="seed-negative",
    ),
    pytest.param(one(seed=True), "1: 'seed' is True, expected an integer of *", id="seed-type"),
    pytest.param(
        one(seed=2**63),
        "1: 'seed' is 9223372036854775808, expected an integer of *",
        id="seed-large",
    ),
    pytest.param('["' + '\\"' * 150_000, "1: not valid JSON: *", id="string-without-an-end"),
    pytest.param(one(tags="x"), "1: 'tags' is 'x', expected a list of texts", id="tags"),
    pytest.param(one(id=1.5), "1: 'id' is 1.5, expected text or an integer", id="id-type"),
    pytest.param(
        one(id="a\x07"), "1: 'id' is 'a\\x07' with U+0007, expected printable text", id="id-control"
    ),
    pytest.param(
        one(id="a\u202eb"),
        "1: 'id' is 'a\\u202eb' with U+202E, expected printable text",
        id="id-bidi",
    ),
    pytest.param(
        one(id="a\nb"), "1: 'id' is 'a\\nb' with U+000A, expected printable text", id="id-newline"
    ),
    pytest.param(
        one(original_image_path="a\u2066.png"),
        "1: *with U+2066, expected *",
        id="id-from-path-bidi",
    ),
    pytest.param(
        json.dumps([row(id="é"), row(id="e\u0301")], indent=1),
        "8: id * is already used on line 2, *",
        id="id-nfc-twice",
    ),
    pytest.param(
        json.dumps([row(id="a"), row(id="a")], indent=1),
        "8: id 'a' is already used on line 2, expected unique ids",
        id="id-twice",
    ),
    pytest.param(
        json.dumps([row(id=3), row(id="physics-0003")]),
        "1: row 2: id 'physics-0003' is already *",
        id="id-number-twice",
    ),
    pytest.param(
        path("../x.png"),
        "1: image '../x.png' leads out of * expected a path below it, or another suite.root",
        id="parent",
    ),
    pytest.param(
        path("a/../../x.png"), "1: image 'a/../../x.png' leads out of *", id="parent-inside"
    ),
    pytest.param(path("/etc/passwd"), "1: image '/etc/passwd' leads out of *", id="absolute"),
    pytest.param(path("link.png"), "1: image 'link.png' is a link out of *", id="escaping-link"),
    pytest.param(
        path("folder/x.png"),
        "1: image 'folder/x.png' is a link out of *",
        id="escaping-folder-link",
    ),
    pytest.param(path("loop.png"), "1: image 'loop.png': *", id="loop-of-links"),
    pytest.param(path("."), "1: image '.' is a folder, expected a file", id="folder"),
    pytest.param(path("a\0b.png"), "1: image 'a\\x00b.png': embedded null *", id="nul"),
    pytest.param(
        path("http://x/y.png"), "1: image 'http://x/y.png' is a URL, expected *", id="http"
    ),
    pytest.param(
        path("file:///etc/passwd"),
        "1: image 'file:///etc/passwd' is a URL, expected *",
        id="file-url",
    ),
]


@pytest.mark.parametrize(("text", "line"), BAD)
@pytest.mark.everyday_for(
    "empty-file",
    "row-is-a-number",
    "missing-comma",
    "nan",
    "key-twice",
    "no-image",
    "id-newline",
    "seed-type",
)
def test_mistake_is_named_by_file_and_line(bench, text, line):
    folder = bench.path / "suite"
    folder.mkdir()
    (folder / "link.png").symlink_to("/etc/passwd")
    (folder / "folder").symlink_to("/etc")
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "s.json").write_text(text)
    escaped = line.replace("[", "[[]")
    bench.refuses(f"suite/s.json:{escaped}", "--imgedit-suite=suite/s.json")


@pytest.mark.parametrize(
    ("name", "data", "line"),
    [
        pytest.param(
            "s.json", "[]", "suite s.json: no pairs, expected at least one", id="no-pairs"
        ),
        pytest.param(
            "s.json",
            '{"physics": []}',
            "suite s.json: no pairs, expected at least one",
            id="empty-group",
        ),
        pytest.param(
            "s.json",
            b'[\n{"a": "\xff"}]',
            "s.json:2: not UTF-8, expected UTF-8 text",
            id="not-utf8",
        ),
        pytest.param(
            "s.json",
            b"[\n\xff]",
            "s.json:2: not UTF-8, expected UTF-8 text",
            id="not-utf8-between-rows",
        ),
        pytest.param("s.json", "[]".encode("utf-16"), "s.json:*", id="utf-16"),
        pytest.param(
            "s.jsonl",
            f"{json.dumps(row())}\n\n{{oops}}\n",
            "s.jsonl:3: not valid JSON: *",
            id="jsonl-line",
        ),
        pytest.param(
            "s.jsonl", "[1]\n", "s.jsonl:1: list, expected an object (one pair)", id="jsonl-list"
        ),
        pytest.param(
            "s.jsonl",
            "[" * 200 + "]" * 200,
            "s.jsonl:1: nested deeper than 64 levels",
            id="jsonl-deep",
        ),
        pytest.param(
            "s.jsonl", "\n\n", "suite s.jsonl: no pairs, expected at least one", id="jsonl-blank"
        ),
        pytest.param("s.toml", "[[pairs]]\nx = [", "s.toml:*: not valid TOML: *", id="toml"),
        pytest.param(
            "s.toml",
            "a = 1",
            "s.toml:1: no [[][[]pairs[]][]], expected one table a pair",
            id="toml-no-pairs",
        ),
        pytest.param(
            "s.toml",
            "[[pairs]]\ncategory = 3\n",
            "s.toml:1: 'category' is 3, expected text",
            id="toml-type",
        ),
    ],
)
def test_file_that_is_no_suite_is_refused(bench, name, data, line):
    (bench.path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    bench.refuses(line, f"--imgedit-suite={name}")


LONG = "x" * 30_000


@pytest.mark.parametrize(
    "name",
    ["id", "category", "instruction", "image", "image_b64", "tags", "difficulty", "seed", LONG],
)
@pytest.mark.parametrize(
    "value", [LONG, f"{LONG}\u202e", f"/{LONG}", f"http://{LONG}", [1, LONG], int("9" * 4000)]
)
def test_a_long_value_is_cut_where_it_is_told(tmp_path, name, value):
    (tmp_path / "pairs.json").write_text(json.dumps([row(**{name: value})]))
    try:
        told = load_suite(SuiteSettings(spec=str(tmp_path / "pairs.json"))).remarks
    except UsageError as error:
        told = (str(error),)
    assert all(len(line) < 1000 for line in told)


def test_first_five_mistakes_are_told_with_a_count_of_the_rest(bench):
    rows = [row(id=f"p{n}", **({"instruction": ""} if n % 2 else {})) for n in range(16)]
    (bench.path / "s.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n{oops}\n")
    told = "; ".join(
        [
            r"s.jsonl:17: not valid JSON: *",
            *(f"s.jsonl:{n}: no instruction, *" for n in (2, 4, 6, 8)),
        ]
    )
    bench.refuses(f"{told}; and 4 more", "--imgedit-suite=s.jsonl")


def test_oversize_suite_is_refused_unread(bench):
    with (bench.path / "s.json").open("wb") as file:
        file.truncate(2**40)  # takes no room on the disk
    bench.refuses(
        "s.json: file of 1099511627776 bytes, expected at most *", "--imgedit-suite=s.json"
    )


def test_crlf_and_a_byte_order_mark_are_accepted(bench):
    text = json.dumps([row(id="a"), row(id="b")], indent=1)
    (bench.path / "s.json").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    bench.run("--imgedit-suite=s.json", "--imgedit-judge=fakes:Constant").assert_outcomes(passed=2)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(width: int, height: int) -> bytes:
    """A PNG whose header promises a size, with a few bytes of data."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 99))
        + chunk(b"IEND", b"")
    )


def saved(image: Image.Image, kind: str, folder, **options) -> bytes:
    target = folder / f"x.{kind.lower()}"
    image.save(target, kind, **options)
    return target.read_bytes()


def test_bad_images_are_errors_of_their_pairs_and_the_others_go_on(bench, tmp_path):
    frames = [Image.new("RGB", (32, 32), color) for color in ("red", "blue")]
    big = bench.path / "big.png"
    with big.open("wb") as file:
        file.truncate(2**30)
    os.mkfifo(bench.path / "pipe.png")
    (bench.path / "dir.png").mkdir()
    images = {
        "not-base64": ("image_b64", "not base64!", "not valid base64"),
        "loose-base64": ("image_b64", "QUJD\nREVG", "not valid base64"),
        "uncanonical-base64": ("image_b64", "QUJDRB==", "bits are left over"),
        "empty": ("bytes", b"", "no image"),
        "truncated": ("bytes", PNG[:-40], "broken image"),
        "bomb": ("bytes", png_of(60000, 60000), "could be decompression bomb"),
        "dot": ("bytes", png_of(1, 1), "1x1 pixels, expected sides of at least 8"),
        "ribbon": ("bytes", png_of(5000, 10), "expected no side over 50 times the other"),
        "no-data": ("bytes", png_of(64, 64), "broken image"),
        "gif": ("bytes", saved(frames[0], "GIF", tmp_path), "GIF image, expected one of PNG, "),
        "tiff": ("bytes", saved(frames[0], "TIFF", tmp_path), "TIFF image, expected one of PNG"),
        "svg": (
            "bytes",
            b"<svg xmlns='http://www.w3.org/2000/svg'/>",
            "not an image but an SVG drawing",
        ),
        "html": ("bytes", b"<script>alert(1)</script>", "not an image in one of the formats"),
        "animated-webp": (
            "bytes",
            saved(frames[0], "WEBP", tmp_path, save_all=True, append_images=frames[1:]),
            "animated image, expected one frame",
        ),
        "animated-png": (
            "bytes",
            saved(frames[0], "PNG", tmp_path, save_all=True, append_images=frames[1:]),
            "animated image, expected one frame",
        ),
        "missing-file": ("image", "nowhere.png", "nowhere.png: No such file"),
        "oversize-file": ("image", "big.png", "big.png: 1073741824 bytes, expected at most"),
        "pipe": ("image", "pipe.png", "pipe.png: not a regular file"),
        "folder": ("image", "dir.png", "dir.png: Is a directory"),
    }
    rows = [row(id="good-1"), row(id="good-2")]
    for name, (field, value, _) in images.items():
        given = base64.b64encode(value).decode() if field == "bytes" else value
        rows.append(
            {
                **row(id=name, image_b64=""),
                **({field: given} if field != "bytes" else {"image_b64": given}),
            }
        )
    rows[rows.index(next(r for r in rows if r["id"] == "empty"))]["image_b64"] = (
        "data:image/png;base64,"
    )
    (bench.path / "s.json").write_text(json.dumps(rows))
    options = (
        "--imgedit-suite=s.json",
        "--imgedit-editor=fakes:Slow",
        "--imgedit-judge=fakes:Constant",
    )
    result = bench.run(*options, "--imgedit-max-errors=1.0")
    result.assert_outcomes(passed=2, xfailed=len(images))
    assert result.ret == 0
    items = bench.items
    assert items["good-1"]["status"] == "scored"
    expected = {name: reason for name, (_, _, reason) in images.items()} | {"empty": "not an image"}
    for name, reason in expected.items():
        assert (items[name]["status"], items[name]["error"]["kind"]) == (
            "edit_error",
            "bad_image",
        ), name
        assert reason in items[name]["error"]["message"], (name, items[name]["error"])
    assert bench.results["categories"]["physics"]["errors"] == len(images)


def rows_of(file):
    problems = []
    rows = [row.values for row in read_rows(file, problems)]
    raise_problems(problems)
    return rows


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(
    rows=st.lists(
        st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=4),
        min_size=1,
        max_size=5,
    )
)
def test_rows_come_out_as_they_went_in(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("rows")
    texts = {"a.json": json.dumps(rows, ensure_ascii=False), "b.json": json.dumps(rows, indent=1)}
    for name, text in {**texts, "c.jsonl": "\n".join(map(json.dumps, rows))}.items():
        (folder / name).write_text(text, encoding="utf-8")
        assert rows_of(folder / name) == rows


@settings(max_examples=150)
@given(
    data=st.text(st.sampled_from('[]{}",:\\ \n1a'), max_size=40).map(str.encode)
    | st.binary(max_size=60)
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_any_bytes_give_rows_or_a_usage_error_that_names_the_file(tmp_path_factory, name, data):
    path = tmp_path_factory.mktemp("rows") / name
    path.write_bytes(data)
    try:
        rows = rows_of(path)
    except UsageError as error:
        told = str(error)
    else:
        told = f"{name}: fine"
    assert name in told
    assert "\n" not in told
    if not told.endswith(": fine"):
        return
    if name == "a.json":
        value = json.loads(data.decode("utf-8-sig"))
        assert rows == (
            value if isinstance(value, list) else [row for group in value.values() for row in group]
        )
    else:
        assert rows == [
            json.loads(line) for line in data.decode("utf-8-sig").split("\n") if line.strip()
        ]
