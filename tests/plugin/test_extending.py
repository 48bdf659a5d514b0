"""What users add from outside: fixtures in their own tests, hooks, suites, editors and judges."""

from __future__ import annotations

import base64
import json

import pytest


def test_fixtures_serve_a_users_own_tests(bench):
    (bench.path / "test_own.py").write_text(
        "from PIL import Image\n"
        "def test_pair(edit_pair):\n"
        "    assert edit_pair.instruction\n"
        "def test_run(imgedit_run):\n"
        "    assert len(imgedit_run.items) == 5\n"
        "    assert imgedit_run.results.overall.micro.mean == 5.0\n"
        "def test_workers(edit_workers):\n"
        "    photo = Image.new('RGB', (40, 30), 'white')\n"
        "    assert edit_workers.edit(photo, 'invert it').getpixel((3, 3)) == (0, 0, 0)\n"
        "    both = edit_workers.edit_batch([(photo, 'a'), (photo, 'b')], seed=3)\n"
        "    assert [image.size for image in both] == [(40, 30)] * 2\n"
        "def test_reward(reward_model):\n"
        "    photo = Image.new('RGB', (40, 30), 'white')\n"
        "    verdict = reward_model.score(photo, photo, 'make it snow', 'environment')\n"
        "    assert verdict.score == 5.0\n"
    )
    result = bench.run(
        "--imgedit-limit=1", "--imgedit-editor=fakes:Slow", "--imgedit-judge=fakes:Constant"
    )
    result.assert_outcomes(passed=5 + 5 + 3)


def test_hooks_are_called_around_stages_and_add_report_sections(bench):
    (bench.path / "conftest.py").write_text(
        "from pathlib import Path\n"
        "def note(text):\n"
        "    with Path('calls').open('a') as file: file.write(text + '\\n')\n"
        "def pytest_imgedit_before_stage(stage, plan): note(f'before {stage} of "
        "{len(plan.works)}')\n"
        "def pytest_imgedit_after_stage(stage, run):\n"
        "    note(f'after {stage}: {sum(work.edit is not None for work in run.plan.works)} "
        "edits')\n"
        "def pytest_imgedit_item_edited(pair, edit): note(f'edited {edit.width}')\n"
        "def pytest_imgedit_item_scored(pair, result): note(f'scored {result.verdict.score}')\n"
        "def pytest_imgedit_run_finished(results, store):\n"
        '    note(f\'finished {len(results.items)} {(store / "runs" / results.run.id / '
        '"report.md").exists()}\')\n'
        "def pytest_imgedit_editor(spec): return 'fakes:Slow' if spec == 'ours' else None\n"
        "def pytest_imgedit_judge(spec): return 'fakes:Constant' if spec == 'ours' else None\n"
        "def pytest_imgedit_report_section(results):\n"
        "    return 'Our section', f'{len(results.items)} <b>items</b>'\n"
    )
    result = bench.run("--imgedit-limit=1", "--imgedit-editor=ours", "--imgedit-judge=ours")
    result.assert_outcomes(passed=5)
    assert (bench.path / "calls").read_text().splitlines() == [
        *(
            "before edit of 5",
            *["edited 128"] * 5,
            "after edit: 5 edits",
            "before swap of 5",
            "after swap: 5 edits",
        ),
        *("before score of 5", *["scored 5.0"] * 5, "after score: 5 edits", "finished 5 True"),
    ]
    result.stdout.fnmatch_lines(["Our section", "5 <b>items</b>"])
    assert "5 &lt;b&gt;items&lt;/b&gt;" in (bench.runs[-1] / "report.html").read_text()
    assert "5 <b>items" in (bench.runs[-1] / "report.md").read_text()


@pytest.mark.full
def test_suite_of_another_package_is_found_by_its_entry_point(bench):
    (bench.path / "their_suite.py").write_text(
        "from pathlib import Path\n"
        "from pytest_imgedit import EditPair, FileImage\n"
        "def load(argument, settings):\n"
        "    for n in range(int(argument)):\n"
        "        yield EditPair(f'p{n}', 'style of photo', 'invert', "
        "FileImage(Path('photo.png')))\n"
    )
    info = bench.path / "their_suite-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-suite\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pytest_imgedit.suites]\ntheirs = their_suite:load\n")
    from PIL import Image

    Image.new("RGB", (20, 20), "red").save(bench.path / "photo.png")
    result = bench.run_subprocess("--imgedit-suite=theirs:3", "--imgedit-judge=fakes:Constant")
    result.assert_outcomes(passed=3)
    assert list(bench.results["categories"]) == ["style-of-photo"]


def test_seed_format_with_base64_images_runs(bench, photographs):
    photo = base64.b64encode((photographs.parent / "0003.jpg").read_bytes()).decode()
    rows = [
        {
            "subset": category,
            "src_img_b64": photo if number else "bm90IGFuIGltYWdl",
            "edit_instruction": "改",
            "edit_instruction_en": "change it",
            "original_image_path": f"{folder}/1.png",
        }
        for number, (category, folder) in enumerate([("物理", "a"), ("物理", "b"), ("社会", "c")])
    ]
    (bench.path / "pairs.json").write_text(json.dumps(rows, ensure_ascii=False))
    options = ("--imgedit-judge=fakes:Constant", "--imgedit-max-errors=1", "-k", "物理")
    result = bench.run("--imgedit-suite=pairs.json", *options)
    result.assert_outcomes(passed=1, xfailed=1, deselected=1)
    broken, good = bench.results["items"]
    assert broken["error"]["kind"] == "bad_image"
    assert good["score"] == 5.0
    assert good["instruction"] == "change it"


def test_folder_editor_takes_finished_images(bench):
    from PIL import Image

    (bench.path / "done" / "physics").mkdir(parents=True)
    photo = Image.effect_noise((128, 128), 60).convert("RGB")
    photo.save(bench.path / "done" / "physics" / "physics-0000.png")
    photo.save(bench.path / "done" / "social-0000.jpg")
    result = bench.run(
        "--imgedit-editor=folder:done", "--imgedit-judge=fakes:Constant", "--imgedit-limit=1"
    )
    result.assert_outcomes(passed=2, failed=3)
    messages = {
        item["id"]: item["error"] and item["error"]["message"] for item in bench.results["items"]
    }
    assert messages["causal-0000"] == "no finished image of causal/causal-0000 in done"
    result.stdout.fnmatch_lines(
        [
            "*3 of 5 pairs have no finished image for folder:done (environment-0000, *); done "
            "holds 2 pictures, 2 of them match ids; expected {category}/{id}.png or {id}.png"
        ]
    )


def test_finished_edits_that_are_one_file_are_told_and_do_not_pass(bench):
    from PIL import Image

    done = bench.path / "done"
    done.mkdir()
    for category in ("physics", "environment", "social", "causal", "referential"):
        photo = Image.effect_noise((128, 128), 60).convert("RGB")
        photo.save(done / f"{category}-0000.PNG")
    options = (
        "--imgedit-editor=folder:done?{id}",
        "--imgedit-judge=fakes:Constant",
        "--imgedit-limit=1",
    )
    good = bench.run(*options)
    good.assert_outcomes(passed=5)
    good.stdout.no_fnmatch_line("*one and the same*")
    for name in ("social", "causal", "referential"):
        (done / f"{name}-0000.PNG").write_bytes((done / "physics-0000.PNG").read_bytes())
    line = "4 of 5 finished edits are one and the same image, of 4 different sources (*"
    bad = bench.run(*options)
    assert bad.ret == 1
    bad.stdout.fnmatch_lines([f"*warning: {line}", f"*INVALID*{line}"])
    assert ("max_errors", "INVALID") in [
        (gate["kind"], gate["state"]) for gate in bench.results["gates"]
    ]
    (done / "physics-0000.jpg").write_bytes(b"")
    doubled = bench.run(*options)
    assert doubled.ret == 4
    doubled.stderr.fnmatch_lines(
        [
            "ERROR: editor folder: pair 'physics-0000' has 2 finished images, "
            "done/physics-0000.PNG, done/physics-0000.jpg, expected one: *"
        ]
    )


@pytest.mark.parametrize("spec", ["workers.editor_python=/bin/false", "editor.spec=refuses:Editor"])
def test_services_that_cannot_start_say_why_at_every_call(bench, spec):
    (bench.path / "refuses.py").write_text(
        "from pytest_imgedit.core.errors import SetupError\n"
        "class Editor:\n"
        "    def __init__(self, *, device): raise SetupError('not on a Friday')\n"
        "    def edit(self, request): pass\n"
    )
    (bench.path / "test_image_edit.py").unlink()
    (bench.path / "test_own.py").write_text(
        "from PIL import Image\n"
        "import pytest\n"
        "from pytest_imgedit import EditFailed\n"
        "def test_own(edit_workers):\n"
        "    for color in ('red', 'blue'):\n"
        "        with pytest.raises(EditFailed, match='not on a Friday|does not start as a "
        "worker'):\n"
        "            edit_workers.edit(Image.new('RGB', (32, 32), color), 'x')\n"
    )
    bench.run_with_workers(f"--imgedit-set={spec}", "test_own.py").assert_outcomes(passed=1)


def test_a_judge_that_scores_nothing_is_no_reward_model(bench):
    (bench.path / "test_own.py").write_text("def test_own(reward_model): pass\n")
    result = bench.run("--imgedit-judge=none", "test_own.py")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*reward_model: judge 'none' does not score edits; choose another judge*"]
    )


@pytest.mark.parametrize(
    "body",
    ["raise ValueError('no')", "return 'text'", "return ('title', 5)", "return ('a', 'b', 'c')"],
)
def test_report_section_that_fails_costs_its_section_only(bench, body):
    (bench.path / "conftest.py").write_text(
        f"def pytest_imgedit_report_section(config, results): {body}\n"
    )
    result = bench.run("--imgedit-limit=1")
    result.assert_outcomes(passed=5)
    assert "pytest_imgedit_report_section" in (bench.runs[-1] / "report.md").read_text().replace(
        "\\", ""
    )


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ("id='a b'", "expected an id of *"),
        ("instruction='\\ud800'", "instruction is '*ud800', expected text"),
        ("instruction=5", "instruction is 5, expected text"),
        ("seed='x'", "seed is 'x', expected an integer *"),
        ("seed=2**64", "seed is 18446744073709551616, expected an integer *"),
    ],
)
def test_pairs_of_an_own_loader_are_checked(bench, changes, line):
    own_suite(bench, changes)
    bench.refuses(f"suite own:Suite: *{line}", "--imgedit-suite=own:Suite")


def test_image_source_that_raises_is_the_error_of_its_pair(bench):
    own_suite(bench, "id='a'")
    bench.run("--imgedit-suite=own:Suite", "--imgedit-max-errors=1").assert_outcomes(xfailed=1)
    assert bench.items["a"]["error"]["message"] == "ValueError: nothing here"


def own_suite(bench, changes):
    (bench.path / "own.py").write_text(
        "from pytest_imgedit.core.pairs import EditPair\n"
        "class Image:\n"
        "    def read(self): raise ValueError('nothing here')\n"
        "def Suite(argument, settings):\n"
        "    values = dict(id='a', category='physics', instruction='x', source=Image())\n"
        f"    yield EditPair(**{{**values, **dict({changes})}})\n"
    )


def test_edits_that_are_stored_start_no_editor(bench):
    (bench.path / "test_image_edit.py").unlink()
    (bench.path / "test_own.py").write_text(
        "from PIL import Image\n"
        "def test_own(edit_workers):\n"
        "    edit_workers.edit(Image.new('RGB', (40, 30), 'white'), 'invert it')\n"
    )
    log = bench.path / ".imgedit" / "fixtures.log"
    for _ in range(2):
        bench.run("--imgedit-editor=fakes:Slow").assert_outcomes(passed=1)
    assert log.read_text().count("edit-0 (CPU): loading") == 1


def test_editor_runs_in_an_interpreter_of_its_own(bench):
    import sys

    script = bench.path / "other-python"
    script.write_text(f'#!/bin/sh\ntouch started\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    options = ("--imgedit-limit=1", "--imgedit-judge=fakes:Constant")
    bench.run_with_workers(
        f"--imgedit-set=workers.editor_python={script}", *options
    ).assert_outcomes(passed=5)
    assert (bench.path / "started").exists()


def test_interpreter_that_is_missing_or_cannot_run_workers_is_named(bench):
    result = bench.run_with_workers(
        "--imgedit-set=workers.judge_python=/no/such/python", "--imgedit-limit=1"
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: workers.judge_python: no interpreter '/no/such/python'"])
    result = bench.run_with_workers(
        "--imgedit-set=workers.editor_python=/bin/false", "--imgedit-limit=1"
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: edit-0: /bin/false does not start as a worker: *"])


def test_interpreter_without_the_package_is_a_usage_error(bench):
    import subprocess
    import sys

    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "empty"], cwd=bench.path, check=True
    )
    for key, worker in (("editor_python", "edit-0"), ("judge_python", "judge-0")):
        result = bench.run_with_workers(
            f"--imgedit-set=workers.{key}={bench.path}/empty/bin/python", "--imgedit-limit=1"
        )
        assert result.ret == 4
        result.stderr.fnmatch_lines(
            [
                f"ERROR: worker {worker} (CPU) died (exit status 1) before it was ready*cannot "
                "run workers: No module*"
            ]
        )


def test_run_is_made_for_a_test_that_asks_for_it_without_a_pair(bench):
    (bench.path / "test_image_edit.py").unlink()
    (bench.path / "test_own.py").write_text(
        "def test_own(imgedit_run): assert len(imgedit_run.items) == 5\n"
    )
    bench.run("--imgedit-limit=1").assert_outcomes(passed=1)
    bench.run("--imgedit-limit=1", "-n", "1").assert_outcomes(passed=1)


@pytest.mark.full
def test_own_classes_are_found_beside_where_pytest_starts(bench):
    import subprocess
    import sys
    from pathlib import Path

    command = [
        Path(sys.executable).with_name("pytest"),
        "--imgedit-editor=fakes:Slow",
        "--imgedit-limit=1",
        "-q",
    ]
    (bench.path / "tests").mkdir()
    (bench.path / "test_image_edit.py").rename(bench.path / "tests" / "test_image_edit.py")
    assert (
        subprocess.run([*command, "tests"], cwd=bench.path, timeout=120, check=False).returncode
        == 0
    )


def test_loader_of_a_suite_that_raises_is_a_usage_error(bench):
    (bench.path / "mine.py").write_text("def load(): return []\n")
    result = bench.run("--imgedit-suite=mine:load")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: suite mine:load: its loader raised TypeError: *"])
