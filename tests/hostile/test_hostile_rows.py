"""Every field that a reader of suites takes from a row, with what is no text and with texts that
steer a terminal.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from documents import a_run, an_item
from hostile_documents import STEERING, steering_in
from miniatures import (
    make_gedit,
    make_gedit_v2,
    make_genarena,
    make_imgedit,
    make_kris,
    make_omnicontext,
    make_risebench,
    picture,
)

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import errors
from pytest_imgedit.core.text import message, printable
from pytest_imgedit.report import html, markdown, terminal
from pytest_imgedit.suites.base import BUILTIN, PUBLIC, load_suite
from pytest_imgedit.suites.native import FIELDS
from pytest_imgedit.suites.rows import SuiteRow

#: Readers without rows.
WITHOUT_ROWS = {"scenes"}
#: Readers whose pairs are named by a number: no text gets so far as to be shown as a name.
NUMBERED = {"genarena"}
#: Stands for the key of a row, in files that hold an object of rows.
KEY = "the row's key"
#: Fields of the native format, in any of its files.
NATIVE = frozenset(name for names in FIELDS.values() for name in names)
#: Its fields that hold an image, for which a text is a path or base64.
NATIVE_IMAGES = frozenset(
    name for key in ("image", "image_b64", "reference", "reference_b64") for name in FIELDS[key]
)


def _rivals(field: str) -> set[str]:
    """Name the native format's other fields of what a field holds, before which it may be passed
    over.
    """
    of_what = {
        name: re.sub("_(b64|path|en|zh)$", "", key)
        for key, names in FIELDS.items()
        for name in names
    }
    return {name for name in of_what if of_what[name] == of_what.get(field)} - {field}


def _with(row: dict, field: str, value: object) -> dict:
    rivals = _rivals(field)
    return {**{name: cell for name, cell in row.items() if name not in rivals}, field: value}


def _json(path: Path, row: Callable[[Any], dict], field: str, value: object) -> None:
    """Put a value into a row of a JSON file; numbers that Python does not write are texts in `@`."""
    document = json.loads(path.read_text())
    values = row(document)
    if field == KEY:
        document[value] = document.pop(
            next(key for key, each in document.items() if each is values)
        )
    else:
        changed = _with(values, field, value)
        values.clear()
        values |= changed
    path.write_text(_dumped(document))


def _dumped(value: object) -> str:
    return json.dumps(value).replace('"@', "").replace('@"', "")


def _csv(path: Path, _: object, field: str, value: object) -> None:
    row = {"id": "a", "category": "physics", "instruction": "lift it", "image": "a.png"}
    row = _with(row, field, value)
    with path.open("w", newline="", encoding="utf-8", errors="surrogatepass") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerow(row)


def _toml(path: Path, _: object, field: str, value: object) -> None:
    row = {"id": "a", "category": "physics", "instruction": "lift it", "image": "a.png"}
    lines = [f"{name} = {_in_toml(cell)}" for name, cell in _with(row, field, value).items()]
    path.write_bytes("\n".join(["[[pairs]]", *lines]).encode("utf-8", "surrogatepass"))


def _in_toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_in_toml(part)}" for name, part in value.items()) + "}"
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return text.replace('"@', "").replace('@"', "")


def _parquet(path: Path, _: object, field: str, value: object) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.read_table(path).to_pylist()
    pq.write_table(pa.Table.from_pylist([_with(row, field, value) for row in rows]), path)


def make_native(folder: Path) -> Path:
    picture(folder / "a.png", 1)
    row = {"id": "a", "category": "physics", "instruction": "lift it", "image": "a.png"}
    (folder / "pairs.json").write_text(json.dumps([row]))
    (folder / "pairs.jsonl").write_text(json.dumps(row))
    _csv(folder / "pairs.csv", None, "difficulty", "")
    _toml(folder / "pairs.toml", None, "difficulty", "")
    return folder


def make_parquet(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = {"bytes": picture(folder / "a.png", 1).read_bytes(), "path": "a.png"}
    row = {"id": "a", "category": "physics", "instruction": "lift it", "image": data}
    pq.write_table(pa.Table.from_pylist([row]), folder / "pairs.parquet")
    return folder


@dataclass(frozen=True)
class Reader:
    """A reader: what makes its folder, its spec, the file in which `put` puts a value into the
    field of a `row`; the fields that it takes, which of them names the pair, and which hold images.
    """

    make: Callable[[Path], Path]
    spec: str
    file: str
    put: Callable[[Path, Any, str, object], None]
    fields: frozenset[str]
    name: str
    images: frozenset[str]
    row: Callable[[Any], dict] = lambda document: document[0]


def _native(spec: str, put: Callable[..., None], make: Callable[[Path], Path] = make_native):
    file = f"pairs.{spec.rpartition('.')[2]}" if "." in spec else "pairs.json"
    row = (lambda document: document) if file == "pairs.jsonl" else (lambda document: document[0])
    return Reader(make, spec, file, put, NATIVE, "id", NATIVE_IMAGES, row)


READERS = {
    "native": _native("{}/pairs.json", _json),
    "native jsonl": _native("{}/pairs.jsonl", _json),
    "native csv": _native("{}/pairs.csv", _csv),
    "native toml": _native("{}/pairs.toml", _toml),
    "native parquet": _native("{}/pairs.parquet", _parquet, make_parquet),
    "seeds": _native("seeds:{}/pairs.json", _json),
    "re-edit": _native("re-edit:{}", _json),
    "gedit": Reader(
        make_gedit,
        "gedit:{}",
        "data/train-0.parquet",
        _parquet,
        frozenset(
            {"key", "task_type", "instruction", "instruction_language", "input_image"}
            | {"Intersection_exist"}
        ),
        "key",
        frozenset({"input_image"}),
    ),
    "gedit-v2": Reader(
        make_gedit_v2,
        "gedit-v2:{}",
        "data/train-0.parquet",
        _parquet,
        frozenset({"key", "task", "instruction", "source_image"}),
        "key",
        frozenset({"source_image"}),
    ),
    "genarena": Reader(
        make_genarena,
        "genarena:{}",
        "basic/data-00000-of-00002.parquet",
        _parquet,
        frozenset({"index", "task_type", "instruction", "input_images"}),
        "index",
        frozenset({"input_images"}),
    ),
    "imgedit": Reader(
        make_imgedit,
        "imgedit:{}",
        "Benchmark/singleturn/singleturn.json",
        _json,
        frozenset({KEY, "id", "prompt", "edit_type"}),
        KEY,
        frozenset({"id"}),
        lambda document: document["1001"],
    ),
    "kris": Reader(
        make_kris,
        "kris:{}",
        "KRIS_Bench/viewpoint_change/annotation.json",
        _json,
        frozenset({KEY, "ori_img", "gt_img", "ins_en", "explain_en"}),
        KEY,
        frozenset({"ori_img", "gt_img"}),
        lambda document: document["1"],
    ),
    "omnicontext": Reader(
        make_omnicontext,
        "omnicontext:{}",
        "data/train-00000-of-00001.parquet",
        _parquet,
        frozenset({"key", "task_type", "instruction", "instruction_language", "input_images"}),
        "key",
        frozenset({"input_images"}),
    ),
    "risebench": Reader(
        make_risebench,
        "risebench:{}",
        "data/datav2_total_w_subtask.json",
        _json,
        frozenset(
            {"index", "category", "instruction", "image", "reference_img", "reference_txt"}
            | {"reference", "subtask", "consistency_free", "reasoning_img"}
        ),
        "index",
        frozenset({"image", "reference_img"}),
    ),
}
#: Readers that hand their rows to that of the native format, its kinds of files besides JSON, and
#: the fields that are attacked in both again.
SAME_READER = {"seeds", "re-edit"}
OTHER_FILES = {"native jsonl", "native csv", "native toml", "native parquet"}
AGAIN = {"id", "category", "image", "instruction", "seed", "tags"}
ATTACKS = [
    pytest.param(
        name,
        field,
        id=f"{name} {field}",
        # each field is attacked every day in JSON, and a few of them in the other kinds of file
        marks=pytest.mark.full if name in OTHER_FILES and field not in AGAIN else (),
    )
    for name, reader in READERS.items()
    for field in sorted(reader.fields & AGAIN if name in SAME_READER else reader.fields)
]
NO_TEXTS = {
    "number": 7,
    "negative": -1,
    "fraction": 0.5,
    "huge": "@1" + "0" * 400 + "@",
    "huger": "@1" + "0" * 5000 + "@",
    "infinite": "@1e999@",
    "NaN": "@NaN@",
    "list": [["a"]],
    "object": {"a": {"b": 1}},
    "truth": True,
    "null": None,
    "empty": "",
    "blank": " \t",
    "long": "x" * 50_000,
    "half a character": "\ud800",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of each reader's suite."""
    made = {}
    for name, reader in READERS.items():
        if reader.put is _parquet:
            pytest.importorskip("pyarrow")
        made[name] = reader.make(tmp_path_factory.mktemp("suite"))
    return made


@contextmanager
def attacked(folders: dict[str, Path], name: str, field: str, value: object) -> Iterator[str]:
    """Put a value into a field while this lasts; yields the spec of the suite."""
    reader = READERS[name]
    path = folders[name] / reader.file
    before = path.read_bytes()
    reader.put(path, reader.row, field, value)
    for other in path.parent.glob("pairs.*"):
        if name == "re-edit" and other != path:
            other.unlink()
    try:
        yield reader.spec.format(folders[name])
    finally:
        path.write_bytes(before)


def refusal(spec: str) -> str | None:
    """Return the line by which a suite is refused, or `None` if it is read."""
    try:
        load_suite(SuiteSettings(spec=spec))
    except errors.UsageError as error:
        return str(error)
    return None


def test_every_reader_is_attacked() -> None:
    assert {name.split()[0] for name in READERS} == {*BUILTIN, *PUBLIC} - WITHOUT_ROWS


@pytest.mark.parametrize("name", READERS)
def test_every_field_that_a_reader_takes_is_attacked(folders, monkeypatch, name):
    taken: set[str] = set()

    class Watched(dict):
        def get(self, key, default=None):
            taken.add(key)
            return super().get(key, default)

        def __getitem__(self, key):
            taken.add(key)
            return super().__getitem__(key)

    made = SuiteRow.__init__

    def watched(row, *, values, **named):
        made(row, values=Watched(values), **named)

    monkeypatch.setattr(SuiteRow, "__init__", watched)
    load_suite(SuiteSettings(spec=READERS[name].spec.format(folders[name])))
    assert taken <= READERS[name].fields


@pytest.mark.parametrize(("name", "field"), ATTACKS)
@pytest.mark.everyday
def test_what_is_no_text_is_taken_or_refused_in_one_line(folders, name, field):
    reader = READERS[name]
    for kind, value in NO_TEXTS.items():
        is_text = isinstance(value, str) and not value.startswith("@")
        if not is_text and (reader.put is _csv or field == KEY):
            continue
        if reader.put is _parquet and kind in (
            "huge",
            "huger",
            "infinite",
            "NaN",
            "half a character",
        ):
            continue  # no value of such a column
        if reader.put is _toml and value is None:
            continue
        with attacked(folders, name, field, value) as spec:
            said = refusal(spec)
        assert said or kind not in ("list", "object"), kind
        if said is not None:
            assert "\n" not in said, kind
            assert len(said) < 1000, kind
            assert Path(reader.file).name in said or spec in said, (kind, said)


@pytest.mark.parametrize("name", [name for name in READERS if name not in NUMBERED])
@pytest.mark.parametrize("char", STEERING, ids=ascii)
def test_a_name_of_a_pair_that_steers_is_refused_by_file_and_row(folders, name, char):
    reader = READERS[name]
    with attacked(folders, name, reader.name, f"nice{char}name") as spec:
        said = refusal(spec)
    assert said is not None
    assert f"U+{ord(char):04X}" in said
    assert Path(reader.file).name in said
    assert "nice" in said
    assert steering_in(message(errors.UsageError(said))) == []


@pytest.mark.parametrize(("name", "field"), ATTACKS)
@pytest.mark.everyday
def test_other_texts_that_steer_are_shown_escaped(folders, name, field):
    with attacked(folders, name, field, f"Q{STEERING}") as spec:
        said = refusal(spec)
        shown = [message(errors.UsageError(said))] if said else _shown(spec)
    assert said or field != READERS[name].name
    assert [steering_in(text) for text in shown] == [[]] * len(shown)
    assert "\n" not in (said or "")


def _shown(spec: str) -> list[str]:
    """What reports show of a suite, and its remarks as the log has them."""
    suite = load_suite(SuiteSettings(spec=spec))
    items = [
        an_item(
            pair.id,
            pair.category,
            instruction=pair.instruction,
            tags=tuple(pair.tags),
            difficulty=pair.difficulty,
        )
        for pair in suite.pairs
    ]
    told = {"name": suite.name, "sha256": suite.sha256, "pairs": len(items)}
    run = a_run(items=items, suite={**told, "remarks": suite.remarks, "labels": suite.labels})
    return [
        html.render(run, lambda name: None),
        markdown.render(run),
        terminal.render(run, 200, color=False, verbose=True),
        *map(printable, suite.remarks),
        *(pair.id + pair.category for pair in suite.pairs),
    ]


#: Spellings of a typed value, by what a field holds. `None` is a missing value.
MISSING = ("None", "null", "NULL", "nan", "NaN", "NA", "N/A", "<NA>", "", " ")
TRUTHS = {
    True: ("true", "True", "TRUE", "1", "1.0", "yes", "Yes", 1, 1.0),
    False: ("false", "False", "FALSE", "0", "0.0", "no", "No", 0, 0.0),
    None: (*MISSING, "none", "na"),
    "maybe": ("2", 2, 0.5, "@1e999@"),
}
WHOLE = {
    3: ("3", "3.0", 3.0, "03", " 3 ", "3e0"),
    1000: ("1e3", "1000.0"),
    None: MISSING,
    "maybe": ("１", True, "true", "inf", "@1e999@", "0.5", 1e17, "1e17", "1_0"),
}
LISTS = {
    ("a.png", "b.png"): ('["a.png", "b.png"]', "['a.png', 'b.png']", "a.png, b.png", "a.png;b.png"),
    ("a.png",): ("a.png", '["a.png"]', "['a.png']"),
    (): ("[]", "[ ]"),
    None: MISSING,
    ("nested",): ('[["nested"]]', [["nested"]], "['nested' '']", "[nested]"),
}
NAMES = {
    12: (12.0,),
    "012": (" 012 ", "012\t"),
    "12.0": ("12.0 ",),
    None: MISSING,
    "maybe": (True, 0.5, 2.0**60, "@1e999@"),
}
TEXTS = {None: MISSING}
#: Fields that hold no text.
KINDS = {
    "Intersection_exist": TRUTHS,
    "consistency_free": TRUTHS,
    "reasoning_img": TRUTHS,
    "seed": WHOLE,
    "tags": LISTS,
    "ori_img": LISTS,
    **dict.fromkeys(("id", "key", "index"), NAMES),
}
#: Further specs of readers whose pairs depend on a cell.
QUERIES = {"gedit": ("?subset=intersection",)}


def _read(spec: str) -> str | list[object]:
    """Return all that is read of a suite, or the line by which it is refused."""
    try:
        suite = load_suite(SuiteSettings(spec=spec))
    except errors.UsageError as error:
        return str(error)
    return [(pair, dict(pair.fields), str(pair.images)) for pair in suite.pairs]


@pytest.mark.parametrize(("name", "field"), ATTACKS)
@pytest.mark.everyday
def test_a_cell_says_the_same_in_each_spelling_or_is_refused(folders, name, field):
    """Takes up to 20 s for all readers: each spelling is a file that is read as a whole."""
    reader = READERS[name]
    if field == KEY:
        return  # keys of JSON are texts
    queries = ("", *QUERIES.get(name, ()))
    is_path = name == "imgedit" and field == "id"
    for typed, spellings in (TEXTS if is_path else KINDS.get(field, TEXTS)).items():
        plain = list(typed) if isinstance(typed, tuple) else typed
        if reader.put is _csv:  # a cell there has no type
            spellings = [each for each in spellings if isinstance(each, str)]
            plain = (*spellings, "")[0] if typed is not None else ""
        if reader.put is _toml and typed is None:
            plain = ""
        with attacked(folders, name, field, plain) as spec:
            meant = [_read(f"{spec}{query}") for query in queries]
        for spelled in spellings:
            if reader.put is _parquet and spelled == "@1e999@":
                spelled = float("inf")
            with attacked(folders, name, field, spelled) as spec:
                found = [_read(f"{spec}{query}") for query in queries]
            for one, other in zip(found, meant, strict=True):
                assert isinstance(one, str) or one == other, (typed, spelled)
                assert not isinstance(one, str) or "\n" not in one


def test_truths_that_are_text_choose_the_same_pairs_of_gedit(tmp_path):
    """As text, 'False' is not empty: every pair would be one of the intersection."""
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    folder = make_gedit(tmp_path, a_group=4)
    path = folder / "data" / "train-0.parquet"
    rows = pq.read_table(path).to_pylist()
    spec = f"gedit:{folder}?subset=intersection"
    typed = [pair.id for pair in load_suite(SuiteSettings(spec=spec)).pairs]
    assert len(typed) == 22
    for write in (str, "{:d}".format, lambda truth: float(truth), lambda truth: truth or None):
        spelled = [{**row, "Intersection_exist": write(row["Intersection_exist"])} for row in rows]
        pq.write_table(pa.Table.from_pylist(spelled), path)
        assert [pair.id for pair in load_suite(SuiteSettings(spec=spec)).pairs] == typed


@pytest.mark.parametrize("language", ["EN", "english", "zh", "None", None])
def test_a_language_that_gedit_does_not_have_is_refused(folders, language):
    with attacked(folders, "gedit", "instruction_language", language) as spec:
        assert "train-0.parquet:1: row 1: 'instruction_language' is" in (refusal(spec) or "")


@pytest.mark.parametrize(
    ("cell", "fields"),
    [
        (True, {"consistency_free": "True", "has_consistency_free": "yes"}),
        ("yes", {"consistency_free": "True", "has_consistency_free": "yes"}),
        (None, {"has_consistency_free": "yes"}),
        ("nan", {"has_consistency_free": "yes"}),
        (False, {}),
        ("False", {}),
        ("0", {}),
    ],
)
def test_risebench_grades_consistency_unless_its_cell_says_true(folders, cell, fields):
    with attacked(folders, "risebench", "consistency_free", cell) as spec:
        assert load_suite(SuiteSettings(spec=spec)).pairs[0].fields == fields


@pytest.mark.parametrize("cell", ["None", "nan", "NA", "", None])
def test_a_reference_that_is_none_decides_no_calls_of_risebench(folders, cell):
    for field in ("reference_txt", "reference_img", "reasoning_img"):
        with attacked(folders, "risebench", field, cell) as spec:
            pair = load_suite(SuiteSettings(spec=spec)).pairs[0]
        assert field not in pair.fields
        assert pair.reference is None
        assert pair.reference_text == "right temporal_reasoning_1"
