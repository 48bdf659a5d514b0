"""The plugin in a user's repository, called in the ways in which people call pytest;
tests/installed has the wheel.
"""

from __future__ import annotations

import re
import shutil

import pytest
from user_folder import RepositoryHere, fill_repository

BAGS = ["bags-0", "bags-1", "bags-2"]
SHOES = ["shoes-0", "shoes-1", "shoes-2"]
ALL = BAGS + SHOES
ITEM = "benchmarks/test_image_edit.py::test_image_edit"
LOW = "--imgedit-set=judge.low=bags-1"  # this pair fails

#: Arguments of pytest, the pairs that it edits, and how many tests pass.
PASSING = {
    "everything": ((), ALL, 11),
    "a-folder": (("benchmarks",), ALL, 10),
    "a-file": (("benchmarks/test_image_edit.py",), ALL, 6),
    "a-node-id": ((f"{ITEM}[bags-1]",), ["bags-1"], 1),
    "two-node-ids": ((f"{ITEM}[bags-1]", f"{ITEM}[shoes-0]"), ["bags-1", "shoes-0"], 2),
    "a-test-of-its-own": (("benchmarks/test_more.py::test_run_has_a_mean",), ALL, 1),
    "keyword-category": (("-k", "bags"), BAGS, 6),
    "keyword-and-not": (("-k", "image_edit and bags and not 1"), ["bags-0", "bags-2"], 2),
    "keyword-tag": (("-k", "colour and image_edit"), ["bags-0", "shoes-0"], 2),
    "keyword-difficulty": (("-k", "hard and image_edit"), ["bags-2", "shoes-2"], 2),
    "mark-category": (("-m", "imgedit(category='shoes')"), SHOES, 3),
    "mark-tag": (("-m", "imgedit(tag='colour', " "category='bags')", "-k", "image_edit"), ["bags-0"], 1),
    "mark-difficulty": (("-m", "imgedit(difficulty='hard')", "-k", "image_edit"), ["bags-2", "shoes-2"], 2),
    "deselect-a-prefix": (("benchmarks/test_image_edit.py", f"--deselect={ITEM}[bags"), SHOES, 3),
    "ignore-a-file": (("benchmarks", "--ignore=benchmarks/test_more.py"), ALL, 6),
    "limit": (("--imgedit-limit=1", "-k", "image_edit"), ["bags-0", "shoes-0"], 2),
    "exit-first": (("-x", "benchmarks"), ALL, 10),
    "failed-first": (("--ff", "benchmarks"), ALL, 10),
    "new-first": (("--nf", "benchmarks"), ALL, 10),
    "stepwise": (("--sw", "benchmarks"), ALL, 10),
    "importlib": (("--import-mode=importlib", "benchmarks"), ALL, 10),
    "append": (("--import-mode=append", "benchmarks"), ALL, 10),
    "rootdir": (("--rootdir=.", "benchmarks"), ALL, 10),
    "warnings-are-errors": (("-W", "error", "benchmarks"), ALL, 10),
    "quiet": (("-q", "benchmarks"), ALL, 10),
    "verbose-durations": (("-vv", "--durations=3", "-rA", "benchmarks"), ALL, 10),
    "no-capture": (("-s", "benchmarks"), ALL, 10),
    "no-header-no-summary": (("--no-header", "benchmarks"), ALL, 10),
    "setup-show": (("--setup-show", f"{ITEM}[bags-0]"), ["bags-0"], 1),
    "no-xdist": (("-p", "no:xdist", "-p", "no:randomly", "benchmarks"), ALL, 10),
    "no-cacheprovider": (("-p", "no:cacheprovider", "-p", "no:randomly", "benchmarks"), ALL, 10),
    "pyargs": (("--pyargs", "pytest_imgedit.benchmark"), ALL, 6),
    "shipped-item": (("--imgedit",), ALL, 6),
    "shipped-item-beside-others": (("--imgedit", "tests"), ALL, 7),
    "shipped-node-id": (("--imgedit", f"pytest_imgedit/{ITEM[:9]}{ITEM[10:]}[bags-2]"), ["bags-2"], 1),
    **{
        f"xdist-{mode}": (("-n", "2", f"--dist={mode}", "benchmarks"), ALL, 10)
        for mode in ("load", "worksteal", "loadscope", "loadfile")
    },
    "xdist-one-item": (("-n", "2", "-k", "image_edit and bags-0"), ["bags-0"], 1),
    "xdist-shipped-item": (("-n", "2", "--imgedit", "-k", "shoes"), SHOES, 3),
}  # fmt: skip


@pytest.fixture
def repository(pytester, monkeypatch):
    """A copy of the template repository, with its six photographs."""
    fill_repository(pytester.path)
    return RepositoryHere(pytester, monkeypatch)


@pytest.mark.parametrize("name", PASSING)
@pytest.mark.everyday_for(
    "a-node-id", "keyword-category", "deselect-a-prefix", "stepwise", "no-xdist", "shipped-node-id"
)
def test_idiom_edits_what_is_selected_and_passes(repository, name):
    arguments, edited, passed = PASSING[name]
    outcome = repository.pytest(*arguments)
    assert outcome.code == 0, outcome.output
    assert outcome.edited == edited
    assert re.search(rf"\b{passed} passed", outcome.output), outcome.output
    assert "warning" not in outcome.output.lower()
    items = [item["id"] for item in repository.results()["items"]]
    assert sorted(items) == edited
    assert outcome.last.startswith("imgedit: PASS: ")
    assert ("a part: " in outcome.last) == (len(edited) < len(ALL))


@pytest.mark.parametrize("folder", ["benchmarks", "tests", "data"])
@pytest.mark.everyday_for("benchmarks")
def test_from_a_subfolder(repository, folder):
    target = "." if folder == "benchmarks" else "../benchmarks"
    outcome = repository.pytest(target, cwd=folder)
    assert outcome.code == 0, outcome.output
    assert outcome.edited == ALL
    assert (repository.path / ".imgedit").is_dir()


@pytest.mark.parametrize(
    "plan", ["--collect-only", "--setup-plan", "--fixtures", "--markers", "--help", "--version"]
)
def test_plans_start_nothing(repository, plan):
    outcome = repository.pytest(plan)
    assert outcome.code == 0, outcome.output
    assert outcome.edited == []
    assert not (repository.path / ".imgedit").exists()


def test_collect_only_names_every_item(repository):
    lines = repository.pytest("--co", "-q", "benchmarks/test_image_edit.py").output.splitlines()
    assert lines[:6] == [f"{ITEM}[{name}]" for name in ALL]


@pytest.mark.full
def test_what_cannot_be_run_here_is_no_matter_to_other_tests(repository):
    config = (repository.path / "pyproject.toml").read_text()
    broken = (
        config.replace("own_models:Painter", "diffusers:/nowhere")
        + '\n[tool.imgedit.workers]\ngpus = "0-5"\n'
    )
    (repository.path / "pyproject.toml").write_text(
        broken.replace("data/pairs.jsonl", "data/nothing.jsonl")
    )
    for arguments in (("tests",), ("--markers",), ("--fixtures",), ("tests", "-n", "2")):
        outcome = repository.pytest(*arguments)
        assert outcome.code == 0, outcome.output
        assert "imgedit: " not in outcome.output
    outcome = repository.pytest("benchmarks")
    assert (outcome.code, outcome.edited) == (4, [])
    assert re.search(
        r"^ERROR: .*data/nothing.jsonl: no such file, expected a suite in ",
        outcome.output,
        re.MULTILINE,
    )
    (repository.path / "pyproject.toml").write_text(broken)
    for arguments in (("benchmarks",), ("benchmarks", "-n", "2")):
        outcome = repository.pytest(*arguments)
        assert (outcome.code, outcome.edited) == (4, [])
        assert "workers.gpus=0-5: no GPU 0, this machine shows no GPU" in outcome.output
    assert repository.pytest("--co", "-q", "benchmarks").code == 0


def test_a_failing_pair_can_be_run_again_alone(repository):
    first = repository.pytest("benchmarks/test_image_edit.py", LOW)
    assert (first.code, first.counts()["failed"]) == (1, 1)
    assert first.last.startswith("imgedit: FAIL: 1 of 6 items failed; ")
    second = repository.pytest("--lf", "benchmarks/test_image_edit.py", "--imgedit-fresh", LOW)
    assert (second.code, second.edited) == (1, ["bags-1"])
    third = repository.pytest("--lf", "benchmarks/test_image_edit.py", "--imgedit-fresh")
    assert (third.code, third.edited) == (0, ["bags-1"])
    assert "not selected: fail_under overall, fail_under bags, fail_under shoes" in third.output


@pytest.mark.parametrize("options", [("-x",), ("--maxfail=1",), ("--sw",)])
@pytest.mark.everyday_for("options0")
def test_ends_at_the_first_failure(repository, options):
    outcome = repository.pytest(
        "benchmarks/test_image_edit.py", LOW, *options, "--junitxml=junit.xml"
    )
    assert outcome.code == (2 if options == ("--sw",) else 1), outcome.output
    assert outcome.last.startswith("imgedit: FAIL: 1 of 6 items failed; ")
    assert "\n4 selected items were not run, such as " in outcome.output
    assert repository.junit()["imgedit.run::complete"] == "failure"


def test_stepwise_goes_on_where_it_stopped(repository):
    repository.pytest("--sw", "benchmarks/test_image_edit.py", LOW)
    outcome = repository.pytest("--sw", "benchmarks/test_image_edit.py", "--imgedit-fresh")
    assert (outcome.code, outcome.edited) == (0, ["bags-1", "bags-2", *SHOES])


@pytest.mark.parametrize("family", ["xunit1", "xunit2", "legacy"])
@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["plain", "xdist"])
@pytest.mark.everyday_for("plain-xunit2")
def test_junit_agrees_with_the_exit_code(repository, family, more):
    options = (
        "benchmarks/test_image_edit.py",
        "-W",
        "error",
        "--junitxml=junit.xml",
        "-o",
        f"junit_family={family}",
    )
    good = repository.pytest(*options, *more)
    assert good.code == 0, good.output
    cases = repository.junit()
    assert set(cases.values()) == {"passed"}
    assert "imgedit.gates::fail_under[bags]" in cases
    assert 'name="imgedit_score" value="8.0"' in (repository.path / "junit.xml").read_text()
    bad = repository.pytest(*options, *more, "--imgedit-fail-under=overall:9.5")
    assert bad.code == 1
    assert repository.junit()["imgedit.gates::fail_under[overall]"] == "failure"
    assert bad.last.startswith("imgedit: FAIL: overall 7.67 < 9.5")


def test_gates_over_pairs_that_are_not_selected_are_skipped_cases(repository):
    outcome = repository.pytest("-k", "image_edit and bags", "--junitxml=junit.xml")
    assert outcome.code == 0
    cases = {name: state for name, state in repository.junit().items() if "fail_under" in name}
    assert cases == {
        "imgedit.gates::fail_under[bags]": "passed",
        "imgedit.gates::fail_under[overall]": "skipped",
        "imgedit.gates::fail_under[shoes]": "skipped",
    }
    assert outcome.last == "imgedit: PASS: overall 8.00; a part: 3 of 6 pairs"
    assert "not selected: fail_under overall, fail_under shoes" in outcome.output


@pytest.mark.parametrize("mark", ["skip", "skipif(True, reason='broken')", "xfail(run=False)"])
@pytest.mark.everyday_for("skip")
def test_skipped_items_are_not_edited_and_not_counted(repository, mark):
    (repository.path / "conftest.py").write_text(
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        if 'bags-1' in item.nodeid:\n"
        f"            item.add_marker(pytest.mark.{mark})\n"
    )
    outcome = repository.pytest("benchmarks")
    assert outcome.code == 0, outcome.output
    assert outcome.edited == [name for name in ALL if name != "bags-1"]
    assert repository.results()["categories"]["bags"]["n"] == 2
    assert outcome.last.endswith("; 1 pair skipped by marks")
    assert "not selected" not in outcome.last


def test_a_test_of_the_whole_run_does_not_bring_skipped_pairs_back(repository):
    (repository.path / "conftest.py").write_text(
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        if 'bags-' in item.nodeid or ('shoes-' in item.nodeid and 'shoes-2' not in "
        "item.nodeid):\n"
        "            item.add_marker(pytest.mark.skip)\n"
    )
    outcome = repository.pytest("benchmarks", "--deselect", f"{ITEM}[shoes-2]")
    assert (outcome.code, outcome.edited) == (0, ["shoes-2"]), outcome.output


def test_a_mark_on_a_test_chooses_its_pairs(repository):
    (repository.path / "benchmarks" / "test_image_edit.py").write_text(
        "import pytest\n"
        "@pytest.mark.imgedit(tag='colour')\n"
        "@pytest.mark.imgedit(category=['bags', 'hats'])\n"
        "def test_image_edit(edit_result): edit_result.check()\n"
        "@pytest.mark.imgedit(category='hats')\n"
        "def test_hats(edit_result): edit_result.check()\n"
    )
    outcome = repository.pytest("benchmarks/test_image_edit.py", "-rs")
    assert (outcome.code, outcome.edited) == (0, ["bags-0"])
    assert "no pair of suite data/pairs.jsonl is what the mark imgedit asks for" in outcome.output


@pytest.mark.parametrize(
    ("mark", "line"),
    [
        (
            "categry='bags'",
            "mark imgedit(categry=…), expected one of category, tag, difficulty; did you mean "
            "'category'?",
        ),
        (
            "category='bagz'",
            "mark imgedit(category='bagz'): the suite has none such; did you mean 'bags'?",
        ),
        ("'bags'", "mark imgedit('bags'), expected category=, tag= or difficulty="),
        ("category=3", "mark imgedit(category=3), expected text or a list of it"),
    ],
)
def test_a_mark_that_is_malformed_is_refused(repository, mark, line):
    path = repository.path / "benchmarks" / "test_more.py"
    path.write_text(path.read_text().replace('category="bags"', mark))
    outcome = repository.pytest("benchmarks")
    assert outcome.code == 4
    assert f"ERROR: benchmarks/test_more.py test_bags_keep_their_size: {line}" in outcome.output


@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["plain", "xdist"])
@pytest.mark.parametrize(
    "gate", ["--imgedit-fail-under=overall:9", "--imgedit-compare=main", "--imgedit-save=main"]
)
@pytest.mark.full_for(
    "--imgedit-fail-under=overall:9-xdist",
    "--imgedit-compare=main-xdist",
    "--imgedit-save=main-xdist",
)
def test_a_gate_for_which_there_is_no_test_is_refused(repository, gate, more):
    outcome = repository.pytest("tests", gate, *more)
    assert outcome.code == 4
    assert (
        f"ERROR: {gate.partition('=')[0]}: no selected test requests edit_result, pytest --imgedit"
        in outcome.output
    )


@pytest.mark.full
def test_a_broken_suite_is_no_matter_to_tests_that_are_selected_beside_it(repository):
    (repository.path / "data" / "pairs.jsonl").unlink()
    for selection in (
        ("-k", "test_sum"),
        ("-m", "not imgedit", "tests", "benchmarks/test_image_edit.py"),
        ("--deselect=benchmarks",),
        ("-n", "2", "-k", "test_sum"),
    ):
        outcome = repository.pytest(*selection)
        assert outcome.code == 0, (selection, outcome.output)
    for selection in ((), ("-k", "bags"), ("-n", "2")):
        assert repository.pytest(*selection).code == 4


@pytest.mark.full
def test_a_shipped_item_that_is_not_there(repository):
    for more in ((), ("-n", "2")):
        name = "pytest_imgedit/benchmark/test_image_edit.py::test_image_edit[hats-9]"
        outcome = repository.pytest("--imgedit", name, *more)
        assert outcome.code == 4
        assert (
            "ERROR: not found: pytest_imgedit/benchmark/test_image_edit.py test_image_edit[hats-9]"
            in outcome.output
        )


@pytest.mark.full
def test_two_folders_with_configs_of_their_own(repository):
    config = (repository.path / "pyproject.toml").read_text().partition("[tool.imgedit")
    (repository.path / "pyproject.toml").write_text(config[0])
    sections = (config[1] + config[2]).replace("[tool.imgedit.", "[").replace("data/", "../data/")
    for name in ("a", "b"):
        (repository.path / name).mkdir()
        (repository.path / name / "imgedit.toml").write_text(sections)
        shutil.copy(
            repository.path / "benchmarks" / "test_image_edit.py",
            repository.path / name / f"test_{name}.py",
        )
    outcome = repository.pytest("a")
    assert (outcome.code, outcome.edited) == (0, ALL), outcome.output
    for more in ((), ("-n", "2")):
        outcome = repository.pytest("a", "b", *more)
        assert outcome.code == 4
        assert "expected one config a session, run them apart" in outcome.output


def test_a_folder_that_links_to_its_parent_has_the_parent_s_config(repository):
    config = (repository.path / "pyproject.toml").read_text().partition("[tool.imgedit")
    (repository.path / "pyproject.toml").write_text(config[0])
    sections = (config[1] + config[2]).replace("[tool.imgedit.", "[").replace("data/", "../data/")
    below = repository.path / "a" / "below"
    below.mkdir(parents=True)
    (below.parent / "imgedit.toml").write_text(sections)
    shutil.copy(repository.path / "benchmarks" / "test_image_edit.py", below / "test_a.py")
    (below / "up").symlink_to(below.parent)
    outcome = repository.pytest("a/below/test_a.py", "a/below/up/below/test_a.py")
    assert outcome.code == 0, outcome.output


def test_options_for_which_there_is_no_test(repository):
    outcome = repository.pytest("tests", "--imgedit-editor=identity")
    assert outcome.code == 0
    assert (
        "imgedit: no collected test requests edit_result, so that nothing was evaluated: pytest "
        "--imgedit" in outcome.output
    )


def test_a_wrong_value_is_all_that_is_said(repository):
    outcome = repository.pytest("--imgedit", "--imgedit-fail-under=physics=7")
    assert outcome.code == 4
    assert outcome.output.splitlines()[-1].startswith(
        "ERROR: --imgedit-fail-under: 'physics=7': expected FIELD:NUMBER"
    )
    assert "test session starts" not in outcome.output  # nothing was collected


def test_a_category_that_is_not_there_names_those_that_are(repository):
    outcome = repository.pytest("benchmarks", "-k", "bgs")
    assert outcome.code == 5
    assert (
        "imgedit: 'bgs' selects none of 6 pairs; categories: bags, shoes; did you mean 'bags'?"
        in outcome.output
    )
