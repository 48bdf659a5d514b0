"""Rows, the native format, RISEBench, and what makes a suite."""

from __future__ import annotations

import base64
import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pytest_imgedit.config import SuiteSettings
from pytest_imgedit.errors import ImageError, UsageError
from pytest_imgedit.images import decode, encode_png
from pytest_imgedit.suites.base import load_suite
from pytest_imgedit.suites.rows import Problems, read_rows

PNG = base64.b64encode(encode_png(Image.new("RGB", (13, 12), "red"))).decode()


def rows_of(path):
    problems = Problems()
    rows = [row.values for row in read_rows(path, problems)]
    problems.check()
    return rows


def row(**values):
    return {
        "subset": "物理",
        "edit_instruction": "让它下落",
        "edit_instruction_en": "let it fall",
        "src_img_b64": PNG,
        **values,
    }


def load(path, **settings):
    return load_suite(SuiteSettings(spec=str(path), **settings)).pairs


def write(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


FORMATS = {
    "list.json": lambda rows: rows,
    "indented.json": lambda rows: json.dumps(rows, indent=2),
    "bom.json": lambda rows: "\ufeff" + json.dumps(rows),
    "lines.jsonl": lambda rows: "\r\n".join(map(json.dumps, rows)) + "\n\n",
    "escaped-groups.json": lambda rows: json.dumps(
        {"物理": [{k: v for k, v in r.items() if k != "subset"} for r in rows]}
    ),
    "groups.json": lambda rows: {"物理": [{k: v for k, v in r.items() if k != "subset"} for r in rows]},
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_file_format_gives_the_same_pairs(tmp_path, name):
    rows = [row(id="a", tags=["x"], difficulty="easy", seed=3), row(id="b", original_description_en='a "[{ball}]"')]
    pairs = load(write(tmp_path / name, FORMATS[name](rows)))
    assert [(p.id, p.category, p.instruction) for p in pairs] == [
        ("a", "physics", "let it fall"),
        ("b", "physics", "let it fall"),
    ]
    assert (pairs[0].tags, pairs[0].difficulty, pairs[0].seed) == (("x",), "easy", 3)
    assert pairs[1].description == 'a "[{ball}]"'
    assert [decode(p.source.read()).size for p in pairs] == [(13, 12)] * 2


def test_toml_suite_with_images_beside_the_file(tmp_path):
    (tmp_path / "in").mkdir()
    Image.new("RGB", (15, 15)).save(tmp_path / "in" / "a.png")
    Image.new("RGB", (16, 16)).save(tmp_path / "in" / "ref.png")
    text = '[[pairs]]\nid = "a"\ncategory = "style"\ninstruction = "x"\nimage = "in/a.png"\nreference = "in/ref.png"\n'
    (pair,) = load(write(tmp_path / "suite.toml", text))
    assert decode(pair.source.read()).size == (15, 15)
    assert decode(pair.reference.read()).size == (16, 16)


@pytest.mark.parametrize(("language", "texts"), [("en", ["let it fall", "只有中文"]), ("zh", ["让它下落", "只有中文"])])
def test_language_falls_back_to_the_other(tmp_path, language, texts):
    rows = [row(id="a"), row(id="b", edit_instruction="只有中文", edit_instruction_en="")]
    assert [pair.instruction for pair in load(write(tmp_path / "s.json", rows), language=language)] == texts


def test_fields_can_be_named_otherwise(tmp_path):
    rows = [{"kind": "social", "prompt": "wave", "pic": PNG, "key": "k1"}]
    fields = {"category": "kind", "instruction": "prompt", "image_b64": "pic", "id": "key"}
    (pair,) = load(write(tmp_path / "s.json", rows), fields=fields)
    assert (pair.id, pair.category, pair.instruction) == ("k1", "social", "wave")
    with pytest.raises(UsageError, match="unknown 'imge', expected one of id, category"):
        load(tmp_path / "s.json", fields={"imge": "pic"})


def test_same_file_name_in_two_folders_gives_two_ids(tmp_path):
    rows = [row(original_image_path="a/1.png"), row(original_image_path="b/1.png")]
    first, second = load(write(tmp_path / "s.json", rows))
    assert first.id != second.id
    reordered = load(write(tmp_path / "t.json", rows[::-1]))
    assert [pair.id for pair in reordered] == [second.id, first.id]


def test_one_image_with_two_instructions_gives_two_ids(tmp_path):
    rows = [row(original_image_path="1.png"), row(original_image_path="1.png", edit_instruction_en="lift it")]
    assert len({pair.id for pair in load(write(tmp_path / "s.json", rows))}) == 2


BAD = [
    pytest.param("[", ":1: not valid JSON", id="open"),
    pytest.param("[]", ": no pairs", id="empty-list"),
    pytest.param("", ":1: empty file", id="empty-file"),
    pytest.param("3", ":1: expected a list of objects", id="number"),
    pytest.param('[\n{"a": 1}\n{"a": 2}]', ":3: not valid JSON", id="missing-comma"),
    pytest.param("[1, 2]", ":1: expected a list of objects", id="numbers"),
    pytest.param('[["a"]]', ":1: list, expected an object", id="list-in-list"),
    pytest.param('[\n{"a": NaN}]', ":2: not valid JSON: NaN is not a JSON number", id="nan"),
    pytest.param('[\n\n{"a": 1, "a": 2}]', ":3: not valid JSON: key 'a' occurs twice", id="duplicate-key"),
    pytest.param('[{"a": ' + "[" * 99 + "]" * 99 + "}]", ":1: nested deeper", id="deep"),
    pytest.param(
        json.dumps([row(subset="")]), ":1: no category, expected text in 'category' or 'subset'", id="category"
    ),
    pytest.param(
        json.dumps([row(edit_instruction=" ", edit_instruction_en=None)]), ":1: no instruction", id="instruction"
    ),
    pytest.param(
        json.dumps([row(src_img_b64="")]), ":1: no image, expected one in 'image' or 'src_img_b64'", id="image"
    ),
    pytest.param(
        json.dumps([row(edit_instruction_en=5)]), ":1: 'edit_instruction_en' is int, expected text", id="type"
    ),
    pytest.param(json.dumps([row(seed=-1)]), ":1: 'seed' is -1, expected an integer", id="seed"),
    pytest.param(json.dumps([row(tags="x")]), ":1: 'tags' is 'x', expected a list", id="tags"),
    pytest.param(json.dumps([row(id="a"), row(id="a")], indent=1), ":9: id 'a' is already used on line 2", id="twice"),
    pytest.param(json.dumps([row(src_img_b64="", image="../x.png")]), ":1: image '../x.png' leads out of", id="escape"),
    pytest.param(json.dumps([row(src_img_b64="", image="/x.png")]), ":1: image '/x.png' leads out of", id="absolute"),
    pytest.param('[\n{"a": "\\ud800"}]', ":2: lone surrogate", id="surrogate"),
    pytest.param(
        json.dumps([row(src_img_b64="", image="a\0b.png")]), ":1: image 'a.x00b.png': embedded null", id="nul"
    ),
    pytest.param(json.dumps([row(src_img_b64="", image=".")]), ":1: image '.' is a folder", id="folder"),
    pytest.param(json.dumps([row(src_img_b64="", image="http://x/y.png")]), ":1: image .* is a URL", id="url"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_mistakes_are_named_by_file_and_line(tmp_path, text, message):
    with pytest.raises(UsageError, match=rf"s\.json{message}|^suite .*s\.json{message}"):
        load(write(tmp_path / "s.json", text))


def test_bad_line_of_jsonl_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"s\.jsonl:3: not valid JSON"):
        load(write(tmp_path / "s.jsonl", f"{json.dumps(row(id='a'))}\n\n{{oops}}\n"))


def test_link_that_leads_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "suite").mkdir()
    Image.new("RGB", (15, 15)).save(tmp_path / "secret.png")
    (tmp_path / "suite" / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(UsageError, match=r"'link.png' leads out of"):
        load(write(tmp_path / "suite" / "s.json", [row(src_img_b64="", image="link.png")]))


def test_bad_base64_is_an_error_of_the_pair_when_it_is_read(tmp_path):
    (pair,) = load(write(tmp_path / "s.json", [row(src_img_b64="not base64!")]))
    with pytest.raises(ImageError, match="not valid base64"):
        pair.source.read()


def test_images_stay_on_disk_until_they_are_read(tmp_path):
    big = "A" * 2_000_000
    write(tmp_path / "s.json", [row(id=f"p{n}", src_img_b64=big) for n in range(20)])
    tracemalloc.start()
    pairs = load(tmp_path / "s.json")
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(pairs) == 20
    assert held < 500_000
    assert peak < 15_000_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(rows=st.lists(st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=4), min_size=1, max_size=5))
def test_rows_come_out_as_they_went_in(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("rows")
    for name, text in (("a.json", json.dumps(rows, ensure_ascii=False)), ("b.json", json.dumps(rows, indent=1))):
        assert rows_of(write(folder / name, text)) == rows
    assert rows_of(write(folder / "c.jsonl", "\n".join(map(json.dumps, rows)))) == rows


@settings(max_examples=60)
@given(text=st.text(st.sampled_from('[]{}",:\\ \n1a'), max_size=40))
def test_any_text_gives_rows_or_a_usage_error(tmp_path_factory, text):
    path = write(tmp_path_factory.mktemp("rows") / "a.json", text)
    try:
        rows = rows_of(path)
    except UsageError as error:
        found = str(error)
    else:
        found = "a.json"
        value = json.loads(text)
        assert rows == (value if isinstance(value, list) else [r for group in value.values() for r in group])
    assert "a.json" in found


def test_risebench_pairs_and_their_references(photographs):
    pairs = load(f"risebench:{photographs}")
    assert len(pairs) == 32
    assert {pair.category for pair in pairs} == {"causal", "logical"}
    assert sum(pair.reference is not None for pair in pairs) > 5
    assert all(pair.reference_text or pair.reference for pair in pairs)
    assert decode(pairs[0].source.read()).width > 500


def test_unknown_suite_names_what_is_known():
    with pytest.raises(UsageError, match="unknown suite 'nope', expected one of native, risebench, scenes"):
        load("nope")
