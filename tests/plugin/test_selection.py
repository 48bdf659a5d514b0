"""Which pairs are edited: pytest's own selection decides."""

from __future__ import annotations

import pytest


def edited(bench):
    return sorted(item["id"] for item in bench.results["items"])


@pytest.mark.parametrize(
    "selection",
    [["-k", "physics"], ["-k", "物理"], ["-m", "imgedit(category='physics')"]],
    ids=["slug", "alias", "marker"],
)
def test_selection_by_category_edits_only_that_category(bench, selection):
    result = bench.run(*selection)
    result.assert_outcomes(passed=10, deselected=40)
    assert edited(bench) == [f"physics-{index:04d}" for index in range(10)]
    assert bench.timing["edits"] == 10
    assert list(bench.results["categories"]) == ["physics"]


def test_one_item_is_named_by_its_id(bench):
    bench.run("test_image_edit.py::test_image_edit[causal-0003]").assert_outcomes(passed=1)
    assert edited(bench) == ["causal-0003"]


@pytest.mark.parametrize("option", ["--collect-only", "--setup-plan"])
def test_planning_starts_nothing(bench, option):
    result = bench.run(option)
    assert result.ret == 0
    assert not (bench.path / ".imgedit").exists()


def test_collect_only_lists_items_by_pair(bench):
    bench.run("--co", "-q", "-k", "social").stdout.fnmatch_lines(
        ["test_image_edit.py::test_image_edit?social-0000?"]
    )


def test_nothing_selected_exits_5(bench):
    assert bench.run("-k", "nosuchcategory").ret == 5
    assert not (bench.path / ".imgedit").exists()


def test_limit_takes_the_first_pairs_of_each_category(bench):
    bench.run("--imgedit-limit=1").assert_outcomes(passed=5)
    assert all(name.endswith("-0000") for name in edited(bench))


def test_last_failed_runs_only_what_failed(bench):
    bench.run("--imgedit-editor=fakes:Raises", "--imgedit-limit=2").assert_outcomes(
        failed=1, passed=9
    )
    bench.run("--lf", "--imgedit-editor=fakes:Raises", "--imgedit-limit=2").assert_outcomes(
        failed=1
    )
    assert edited(bench) == ["physics-0001"]


def test_collection_errors_stop_the_run_before_any_edit(bench):
    (bench.path / "test_broken.py").write_text("import nosuchmodule\n")
    assert bench.run().ret == 2
    assert not (bench.path / ".imgedit").exists()


def test_other_tests_do_not_start_a_run(bench):
    (bench.path / "test_image_edit.py").unlink()
    (bench.path / "test_plain.py").write_text("def test_plain(): pass\n")
    result = bench.run()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*imgedit:*")
    assert not (bench.path / ".imgedit").exists()


def test_a_test_that_only_reads_pairs_starts_no_run(bench):
    (bench.path / "test_image_edit.py").write_text(
        "def test_short(edit_pair): assert len(edit_pair.instruction) < 300\n"
    )
    bench.run("--imgedit-limit=1").assert_outcomes(passed=5)
    assert not (bench.path / ".imgedit").exists()


def test_pairs_of_a_tests_own_parametrization_are_left_alone(bench):
    (bench.path / "test_own.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('edit_pair', [1, 2])\n"
        "def test_own(edit_pair): assert edit_pair in (1, 2)\n"
        "@pytest.mark.parametrize('edit_pair_kind', ['a'])\n"
        "def test_both(edit_pair, edit_pair_kind): assert edit_pair.instruction\n"
    )
    bench.run("test_own.py", "--imgedit-limit=1").assert_outcomes(passed=2 + 5)


def test_category_in_any_script_is_selected_by_its_name(bench):
    from PIL import Image

    Image.new("RGB", (30, 30), "red").save(bench.path / "a.png")
    rows = [
        f'{{"category": "{name}", "image": "a.png", "instruction": "{name}", "id": {n}}}'
        for n, name in enumerate(("天气", "天气", "风格"))
    ]
    (bench.path / "pairs.jsonl").write_text("\n".join(rows), encoding="utf-8")
    options = (
        "--imgedit-suite=pairs.jsonl",
        "--imgedit-judge=fakes:Constant",
        "--imgedit-fail-under=天气:5",
    )
    bench.run(*options, "-k", "天气").assert_outcomes(passed=2, failed=2, deselected=1)  # two gates
    assert list(bench.results["categories"]) == ["天气"]


def test_plugin_can_be_switched_off(bench):
    result = bench.run("-p", "no:imgedit")
    result.stdout.fnmatch_lines(["*fixture 'edit_result' not found*"])
