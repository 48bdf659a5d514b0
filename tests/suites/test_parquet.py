"""Suites in parquet: own data by the native names, images that stay in the file, and a large file."""

from __future__ import annotations

import io
import tracemalloc

import pytest
from PIL import Image

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core.errors import ImageError, UsageError
from pytest_imgedit.suites.base import load_suite

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def png(number):
    data = io.BytesIO()
    Image.new("RGB", (8, 8), (number % 256, 0, 0)).save(data, "PNG")
    return data.getvalue()


def write(path, rows, **options):
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, **options)
    return path


def rows(count):
    return [
        {
            "id": f"p{number}",
            "category": "物理",
            "instruction": f"change {number}",
            "image": {"bytes": png(number), "path": f"{number}.png"},
            "reference": {"bytes": png(number + 1), "path": "r.png"} if number % 2 else None,
        }
        for number in range(count)
    ]


def load(path, **settings):
    return load_suite(SuiteSettings(spec=str(path), **settings)).pairs


def test_rows_are_pairs_whose_images_are_read_when_they_are_needed(tmp_path):
    pairs = load(write(tmp_path / "s.parquet", rows(5), row_group_size=2))
    assert [pair.id for pair in pairs] == [f"p{number}" for number in range(5)]
    assert [pair.category for pair in pairs] == ["physics"] * 5
    assert [pair.source.read() for pair in pairs] == [png(number) for number in range(5)]
    assert [pair.reference is not None for pair in pairs] == [False, True] * 2 + [False]
    assert pairs[3].reference.read() == png(4)


def test_bytes_alone_are_an_image_and_other_columns_can_be_named(tmp_path):
    made = [{"prompt": "x", "picture": png(3)}]
    path = write(tmp_path / "s.parquet", made)
    (pair,) = load(path, fields={"instruction": "prompt", "image": "picture"})
    assert (pair.instruction, pair.source.read()) == ("x", png(3))


def test_what_is_no_image_or_no_parquet_says_where(tmp_path):
    path = write(tmp_path / "s.parquet", [{**rows(1)[0], "image": {"bytes": None, "path": "x"}}])
    (pair,) = load(path)
    with pytest.raises(ImageError, match=r"s\.parquet.*column 'image'"):
        pair.source.read()
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(UsageError, match=r"bad\.parquet: no parquet file: "):
        load(tmp_path / "bad.parquet")
    write(tmp_path / "none.parquet", [{"instruction": "x"}])
    with pytest.raises(UsageError, match=r"none\.parquet:1: row 1: no image"):
        load(tmp_path / "none.parquet")


def test_a_file_that_has_changed_is_read_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "s.parquet", rows(1))
    assert load("s.parquet")[0].source.read() == png(0)
    write(tmp_path / "s.parquet", [{**rows(1)[0], "image": {"bytes": png(9), "path": "x"}}])
    assert load("s.parquet")[0].source.read() == png(9)


@pytest.mark.everyday
def test_collecting_holds_no_image(tmp_path):
    noise = [Image.effect_noise((128, 128), 60) for _ in range(8)]

    def large(number):
        data = io.BytesIO()
        noise[number % 8].save(data, "PNG")
        return data.getvalue()

    made = [{**row, "image": {"bytes": large(n), "path": "x"}} for n, row in enumerate(rows(1000))]
    path = write(tmp_path / "s.parquet", made, row_group_size=100)
    assert path.stat().st_size > 1_000_000
    del made
    tracemalloc.start()
    before = pyarrow.total_allocated_bytes()
    pairs = load(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(pairs) == 1000
    assert peak < 8_000_000
    assert pyarrow.total_allocated_bytes() - before < 1_000_000
