"""The suites of two public arenas: their pairs, and where their finished edits are found."""

from __future__ import annotations

import pytest
from miniatures import make_gedit_v2, make_genarena, picture

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.config.toml_file import suite_path
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.kinds.folder import find_images
from pytest_imgedit.suites.base import load_suite

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.everyday


def suite(spec):
    return load_suite(SuiteSettings(spec=spec))


@pytest.fixture
def arena(tmp_path):
    return make_genarena(tmp_path)


@pytest.fixture
def second(tmp_path):
    return make_gedit_v2(tmp_path)


def change(path, **values):
    """Put values into the first row of a parquet file."""
    rows = parquet.read_table(path).to_pylist()
    rows[0].update(values)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def test_genarena_has_the_pairs_of_every_subset_with_all_their_sources(arena):
    pairs = suite(f"genarena:{arena}").pairs
    names = [f"{subset}-00000{n}" for subset in ("basic", "multiref", "reasoning") for n in (0, 1)]
    names.insert(2, "basic-000002")
    names.insert(5, "multiref-000002")
    assert [pair.id for pair in pairs] == [*names, "reasoning-000002"]
    assert [pair.own_id for pair in pairs] == ["000000", "000001", "000002"] * 3
    assert {pair.category for pair in pairs} == {"task-0", "task-1"}
    assert {pair.tags for pair in pairs} == {("basic",), ("multiref",), ("reasoning",)}
    assert [pair.instruction for pair in pairs[3:5]] == ["multiref 0", "multiref 1"]
    assert [len(pair.sources) for pair in pairs] == [1] * 3 + [3] * 3 + [1] * 3
    for place, image in enumerate(pairs[4].sources):
        assert image.read() == (arena / "made" / f"multiref-1-{place}.png").read_bytes()


def test_genarena_takes_one_subset_or_a_sample(arena):
    pairs = suite(f"genarena:{arena}?subset=multiref").pairs
    assert [pair.id for pair in pairs] == [f"multiref-00000{number}" for number in range(3)]
    assert len(suite(f"genarena:{arena}?per_category=2&seed=1").pairs) == 4
    assert len(suite(f"genarena:{arena}?subset=basic&per_category=1").pairs) == 2
    with pytest.raises(
        UsageError, match="subset=basics, expected one of all, basic, multiref, reasoning"
    ):
        suite(f"genarena:{arena}?subset=basics")


def test_genarena_reads_only_its_own_files(arena):
    basic = arena / "basic" / "data-00000-of-00002.parquet"
    (arena / "deeper" / "cache").mkdir(parents=True)
    (arena / "deeper" / "cache" / basic.name).write_bytes(basic.read_bytes())
    (arena / "basic" / "votes.parquet").write_bytes(basic.read_bytes())
    assert len(suite(f"genarena:{arena}").pairs) == 9


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"index": None}, "'index' is None, expected a whole number of at least 0"),
        ({"index": -1}, "'index' is -1, expected a whole number of at least 0"),
        ({"index": 1}, "id 'basic-000001' occurs twice"),
        ({"instruction": ""}, "'instruction' is '', expected text"),
        ({"task_type": None}, "'task_type' is None, expected text"),
        ({"input_images": []}, "no images 'input_images', expected a list of at least one"),
    ],
)
def test_a_row_of_genarena_that_lacks_something_is_refused_by_its_place(arena, values, line):
    path = arena / "basic" / "data-00000-of-00002.parquet"
    change(path, **values)
    with pytest.raises(UsageError) as refused:
        suite(f"genarena:{arena}")
    assert line in str(refused.value)
    assert f"{path}:1: row 1" in str(refused.value)


def test_folders_without_the_files_of_an_arena_name_its_data_set(tmp_path):
    with pytest.raises(UsageError, match=r"no parquet files SUBSET/data-.*rhli/genarena"):
        suite(f"genarena:{tmp_path}")
    with pytest.raises(UsageError, match=r"no parquet files in .*GEditBench-v2/GEditBench-v2"):
        suite(f"gedit-v2:{tmp_path}")


def test_a_benchmark_that_is_not_whole_says_so(arena, tmp_path):
    (remark,) = suite(f"genarena:{arena}").remarks
    assert "9 pairs, while the benchmark has 6086" in remark
    made = make_gedit_v2(tmp_path / "second")
    (remark,) = suite(f"gedit-v2:{made}").remarks
    assert "4 pairs, while the benchmark has 1200" in remark


def finished(argument, pairs):
    """The finished edits of pairs by their ids, as paths from the folder."""
    folder = argument.partition("?")[0]
    images = find_images(argument, pairs).by_pair
    return {name: str(path).removeprefix(f"{folder}/") for name, path in images.items()}


def test_edits_of_genarena_are_found_by_their_number_in_a_subset(arena):
    model = arena / "basic" / "models" / "me_20260205" / "Mine"
    for number in range(3):
        picture(model / f"00000{number}.png", number)
    pairs = suite(f"genarena:{arena}?subset=basic").pairs
    assert finished(str(model), pairs) == {
        f"basic-00000{number}": f"00000{number}.png" for number in range(3)
    }


def test_edits_of_every_subset_are_found_by_a_pattern(arena):
    for subset in ("basic", "multiref", "reasoning"):
        for number in range(3):
            folder = arena / subset / "models" / "me_20260205" / "Mine"
            picture(folder / f"00000{number}.png", number)
    argument = f"{arena}?{{subset}}/models/me_20260205/Mine/{{id}}.png"
    found = finished(argument, suite(f"genarena:{arena}").pairs)
    assert found["multiref-000002"] == "multiref/models/me_20260205/Mine/000002.png"
    assert len(set(found.values())) == 9


def test_one_folder_is_not_taken_for_the_edits_of_several_subsets(arena):
    model = arena / "basic" / "models" / "me_20260205" / "Mine"
    picture(model / "000000.png", 1)
    found = finished(str(model), suite(f"genarena:{arena}").pairs)
    assert "would be the finished image of 3 pairs" in found["basic-000000"]


def test_gedit_v2_has_the_key_the_task_and_the_source_of_each_row(second):
    pairs = suite(f"gedit-v2:{second}").pairs
    assert [(pair.id, pair.own_id) for pair in pairs] == [(f"{n:08x}",) * 2 for n in range(4)]
    assert [pair.category for pair in pairs] == ["task-0", "task-1"] * 2
    assert [pair.source.read() for pair in pairs] == [
        (second / "made" / f"{number}.png").read_bytes() for number in range(4)
    ]


def test_gedit_v2_without_tasks_has_one_category(second):
    path = second / "data" / "train-0.parquet"
    rows = parquet.read_table(path).to_pylist()
    for row in rows:
        del row["task"]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert {pair.category for pair in suite(f"gedit-v2:{second}").pairs} == {"edit"}


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"key": ""}, "'key' is '', expected text"),
        ({"instruction": None}, "'instruction' is None, expected text"),
        ({"source_image": None}, "no image 'source_image', expected one"),
    ],
)
def test_a_row_of_gedit_v2_that_lacks_something_is_refused_by_its_place(second, values, line):
    path = second / "data" / "train-0.parquet"
    change(path, **values)
    with pytest.raises(UsageError) as refused:
        suite(f"gedit-v2:{second}")
    assert f"{path}:1: row 1: {line}" in str(refused.value)


def test_edits_of_the_gallery_of_gedit_v2_are_found_by_their_keys(second):
    for number in range(4):
        picture(second / "gallery" / "BAGEL" / f"{number:08x}.png", number)
    found = finished(str(second / "gallery" / "BAGEL"), suite(f"gedit-v2:{second}").pairs)
    assert found == {f"{number:08x}": f"{number:08x}.png" for number in range(4)}


def test_the_folder_of_both_suites_is_known_as_a_path():
    assert str(suite_path("genarena:data?subset=basic")) == "data"
    assert str(suite_path("gedit-v2:data")) == "data"


def test_a_key_of_another_suite_is_refused_with_the_keys_of_this_one(second):
    told = "unknown key 'language', expected some of per_category, seed$"
    with pytest.raises(UsageError, match=told):
        suite(f"gedit-v2:{second}?language=en")
