"""Rows, the native format, RISEBench, and what makes a suite."""

from __future__ import annotations

import base64
import json
import tracemalloc

import pytest
from PIL import Image

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.images import decode, encode_png
from pytest_imgedit.suites.base import load_suite
from pytest_imgedit.suites.rows import raise_problems, read_rows

PNG = base64.b64encode(encode_png(Image.new("RGB", (13, 12), "red"))).decode()


def rows_of(path):
    problems = []
    rows = [row.values for row in read_rows(path, problems)]
    raise_problems(problems)
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
    path.write_text(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), encoding="utf-8"
    )
    return path


FORMATS = {
    "list.json": lambda rows: rows,
    "indented.json": lambda rows: json.dumps(rows, indent=2),
    "bom.json": lambda rows: "\ufeff" + json.dumps(rows),
    "lines.jsonl": lambda rows: "\r\n".join(map(json.dumps, rows)) + "\n\n",
    "escaped-groups.json": lambda rows: json.dumps(
        {"物理": [{k: v for k, v in r.items() if k != "subset"} for r in rows]}
    ),
    "groups.json": lambda rows: {
        "物理": [{k: v for k, v in r.items() if k != "subset"} for r in rows]
    },
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_file_format_gives_the_same_pairs(tmp_path, name):
    rows = [
        row(id="a", tags=["x"], difficulty="easy", seed=3),
        row(id="b", original_description_en='a "[{ball}]"'),
    ]
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
    text = (
        '[[pairs]]\nid = "a"\ncategory = "style"\ninstruction = "x"\nimage = '
        '"in/a.png"\nreference = "in/ref.png"\n'
    )
    (pair,) = load(write(tmp_path / "suite.toml", text))
    assert decode(pair.source.read()).size == (15, 15)
    assert decode(pair.reference.read()).size == (16, 16)


@pytest.mark.parametrize(
    ("language", "texts"), [("en", ["let it fall", "只有中文"]), ("zh", ["让它下落", "只有中文"])]
)
def test_language_falls_back_to_the_other(tmp_path, language, texts):
    rows = [row(id="a"), row(id="b", edit_instruction="只有中文", edit_instruction_en="")]
    assert [
        pair.instruction for pair in load(write(tmp_path / "s.json", rows), language=language)
    ] == texts


def test_ids_of_pairs_of_one_image_are_the_same_in_every_language(tmp_path):
    rows = [row(edit_instruction="甲", edit_instruction_en=text) for text in ("a", "b")]
    path = write(tmp_path / "s.json", rows)
    english, chinese = ([pair.id for pair in load(path, language=name)] for name in ("en", "zh"))
    assert english == chinese
    assert len({*english}) == 2


@pytest.mark.parametrize(
    ("categories", "kept"),
    [([], ["a", "b", "c"]), (["物理"], ["a"]), (["Other", "physics"], ["a", "c"])],
)
def test_categories_make_a_suite_smaller(tmp_path, categories, kept):
    subsets = {"a": "物理", "b": "社会", "c": "Other"}
    path = write(tmp_path / "s.json", [row(id=name, subset=subsets[name]) for name in subsets])
    settings = SuiteSettings(spec=str(path), categories=categories)
    assert [pair.id for pair in load_suite(settings).pairs] == kept
    assert load_suite(settings).counts["overall"] == len(kept)


def test_categories_without_pairs_are_refused(tmp_path):
    path = write(tmp_path / "s.json", [row()])
    with pytest.raises(UsageError, match=r"no pairs of 'phyics', .* physics; did you mean"):
        load(path, categories=["phyics"])


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
    rows = [
        row(original_image_path="1.png"),
        row(original_image_path="1.png", edit_instruction_en="lift it"),
    ]
    assert len({pair.id for pair in load(write(tmp_path / "s.json", rows))}) == 2


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


def test_unknown_suite_names_what_is_known():
    with pytest.raises(
        UsageError,
        match="unknown suite 'nope', expected one of gedit, gedit-v2, genarena, imgedit, kris, native, omnicontext, re-edit, risebench, scenes",
    ):
        load("nope")
