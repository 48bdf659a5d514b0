"""`imgedit init` and the page on CI, followed word by word in new repositories."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from PIL import Image

pytestmark = pytest.mark.everyday

DOCS = Path(__file__).parent.parent.parent / "docs"


def photographs(folder, count=30):
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        Image.effect_noise((40, 32), 60).convert("RGB").save(folder / f"img_{number:03d}.jpg")


def table(folder, names=("file", "prompt"), suffix=".jpg", count=30):
    rows = [f"img_{number:03d}{suffix},make it number {number}" for number in range(count)]
    (folder / "prompts.csv").write_text("\n".join([",".join(names), *rows]) + "\n")


@pytest.mark.full
def test_the_shipped_item_in_an_empty_folder(empty):
    outcome = empty.pytest("--imgedit", "--imgedit-limit=2")
    assert outcome.code == 0, outcome.output
    assert outcome.counts() == {"passed": 10}
    rows = re.findall(
        r"^(physics|environment|social|causal|referential) +2 +\d", outcome.output, re.M
    )
    assert len(rows) == 5
    assert outcome.last.startswith("imgedit: PASS: overall 9.")


def test_nothing_asked_for_in_an_empty_folder(empty):
    outcome = empty.pytest()
    assert outcome.code == 5
    assert "imgedit: " not in outcome.output
    assert not (empty.path / ".imgedit").exists()


@pytest.mark.parametrize(
    ("where", "names", "suffix"),
    [
        pytest.param(".", ("file", "prompt"), ".jpg", id="beside", marks=pytest.mark.full),
        pytest.param("photos", ("file", "prompt"), "", id="without-suffix", marks=pytest.mark.full),
        pytest.param("data/photos", ("bild", "was"), ".jpg", id="other-names"),
    ],
)
@pytest.mark.full_for("other-names")
def test_photographs_and_a_table_of_prompts(empty, where, names, suffix):
    photographs(empty.path / where)
    table(empty.path, names, suffix)
    first = empty.call("imgedit", "init")
    assert first.code == 0, first.output
    assert "suite: 30 rows of prompts.csv: image " in first.output
    outcome = empty.pytest("benchmarks", "--imgedit-editor=identity")
    assert outcome.code == 0, outcome.output
    assert outcome.counts() == {"passed": 30}
    assert outcome.last == "imgedit: PASS: 30 pairs edited, no scores asked for"
    assert "\n30 of 30 edits are near-copies of their source\n" in outcome.output
    ids = [item["id"] for item in empty.results()["items"]]
    assert ids[:2] == ["img_000", "img_001"]


def test_nothing_is_overwritten(empty):
    photographs(empty.path)
    table(empty.path)
    (empty.path / "benchmarks").mkdir()
    (empty.path / "benchmarks" / "imgedit.toml").write_text("# mine\n")
    outcome = empty.call("imgedit", "init", "--json")
    told = json.loads(outcome.output)
    assert told["kept"] == ["benchmarks/imgedit.toml"]
    assert (empty.path / "benchmarks" / "imgedit.toml").read_text() == "# mine\n"
    before = {path: path.read_bytes() for path in empty.path.rglob("*") if path.is_file()}
    again = json.loads(empty.call("imgedit", "init", "--json").output)
    assert again["written"] == []
    assert {path: path.read_bytes() for path in empty.path.rglob("*") if path.is_file()} == before


@pytest.mark.full
def test_photographs_without_prompts_leave_something_to_do(empty):
    photographs(empty.path / "photos", 3)
    (empty.path / "photos" / "img_001.txt").write_text("add a hat\n")
    outcome = empty.call("imgedit", "init", "photos")
    assert "to do: add the 2 missing instructions to benchmarks/pairs.csv" in outcome.output
    assert (empty.path / "benchmarks" / "pairs.csv").read_text().splitlines() == [
        "image,instruction",
        "img_000.jpg,",
        "img_001.jpg,add a hat",
        "img_002.jpg,",
    ]
    refused = empty.pytest("benchmarks")
    assert refused.code == 4
    assert "pairs.csv:2: no instruction, expected text in 'instruction'" in refused.output
    (empty.path / "benchmarks" / "pairs.csv").write_text(
        "image,instruction\nimg_000.jpg,x\nimg_001.jpg,y\n"
    )
    assert empty.pytest("benchmarks").counts() == {"passed": 2}


def test_pictures_of_a_repository_are_no_suite(empty):
    photographs(empty.path / "docs", 2)
    outcome = empty.call("imgedit", "init", "--ci=none")
    assert outcome.output.splitlines()[0] == "suite: scenes (no prompts for images found)"
    assert (
        "not used: 2 images without instructions; imgedit init FOLDER uses those of a folder"
        in outcome.output
    )
    assert not (empty.path / "benchmarks" / "pairs.csv").exists()


@pytest.mark.full
def test_images_with_a_text_beside_each_are_a_suite(empty):
    photographs(empty.path / "photos", 2)
    for number in range(2):
        (empty.path / "photos" / f"img_00{number}.txt").write_text(f"make it number {number}")
    outcome = empty.call("imgedit", "init", "--ci=none")
    assert outcome.output.splitlines()[0] == "suite: 2 images of ."
    assert empty.pytest("benchmarks").counts() == {"passed": 2}


@pytest.mark.full
def test_a_file_that_is_a_suite_already_is_used_as_it_is(empty):
    photographs(empty.path / "data", 2)
    rows = [
        {"category": "physics", "image": f"img_00{n}.jpg", "instruction": "x"} for n in range(2)
    ]
    (empty.path / "data" / "pairs.json").write_text(json.dumps(rows))
    outcome = empty.call("imgedit", "init", "data/pairs.json", "--ci=none")
    assert outcome.code == 0, outcome.output
    assert 'spec = "../data/pairs.json"' in (empty.path / "benchmarks" / "imgedit.toml").read_text()
    assert not (empty.path / "benchmarks" / "pairs.jsonl").exists()
    assert empty.pytest("benchmarks", cwd=".").counts() == {"passed": 2}
    assert empty.pytest(cwd="benchmarks").counts() == {"passed": 2}


def test_an_empty_folder_gets_the_embedded_suite(empty):
    outcome = empty.call("imgedit", "init", "--ci=gitlab")
    assert outcome.output.splitlines()[0] == "suite: scenes (no prompts for images found)"
    assert not (empty.path / ".github").exists()
    limited = empty.pytest(
        "benchmarks", "--imgedit-limit=1", "--imgedit-editor=identity", "--imgedit-judge=reference"
    )
    assert limited.counts() == {"passed": 5}


@pytest.mark.parametrize(
    "name",
    [
        "qwen-image-edit",
        "qwen-image-edit-lightning",
        "qwen-image-edit-plus",
        "flux-kontext",
        "one-gpu",
        "small-gpu",
    ],
)
@pytest.mark.full
def test_ready_configs_take_the_users_suite(empty, name):
    photographs(empty.path)
    table(empty.path)
    assert empty.call("imgedit", "init", f"--config={name}", "--ci=github").code == 0
    config = (empty.path / "benchmarks" / "imgedit.toml").read_text()
    assert '[suite]\nspec = "pairs.jsonl"\nroot = ".."' in config
    assert (
        "runs-on: [self-hosted, gpu]"
        in (empty.path / ".github/workflows/image-editing.yml").read_text()
    )
    options = (
        "--imgedit-editor=identity",
        "--imgedit-judge=none",
        "--imgedit-gpus=none",
        "--imgedit-limit=2",
    )
    outcome = empty.pytest("benchmarks", *options)
    assert outcome.code == 0, outcome.output
    assert outcome.counts() == {"passed": 2}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("nowhere",),
            "imgedit: nowhere: no such file or folder, expected a CSV, JSONL or JSON file, "
            "or a folder of images",
        ),
        (("--config=qwen-image-edt",), "did you mean 'qwen-image-edit'?"),
        (("nothing",), "imgedit: nothing: holds no table of prompts and no image"),
        (("bad.csv",), "imgedit: bad.csv: no column names images below "),
        (
            ("notes.txt",),
            "imgedit: notes.txt: expected a file of .json, .jsonl, .csv, .toml, .parquet, or a "
            "folder of images",
        ),
        (("twice.csv",), "imgedit: twice.csv: id '3' occurs 2 times, expected unique ids"),
        (("gap.csv",), "imgedit: gap.csv:7: 'file' is 'img_009.jpg', expected an image below "),
    ],
)
@pytest.mark.everyday_for(
    "arguments0-imgedit: nowhere: no such file or folder, expected a CSV, JSONL or JSON file, or a folder of images",
    "arguments6-imgedit: gap.csv:7: 'file' is 'img_009.jpg', expected an image below ",
)
def test_what_makes_no_suite_is_refused_in_one_line(empty, arguments, line):
    photographs(empty.path, 5)
    (empty.path / "bad.csv").write_text("file,prompt\nnothing.jpg,x\n")
    (empty.path / "notes.txt").write_text("x")
    rows = [f"img_00{n}.jpg,x" for n in (0, 1, 2, 3, 4, 9)]
    (empty.path / "gap.csv").write_text("\n".join(["file,prompt", *rows]))
    (empty.path / "nothing").mkdir()
    (empty.path / "twice.csv").write_text("id,File,prompt\n3,img_000.jpg,x\n3,img_001.jpg,y\n")
    outcome = empty.call("imgedit", "init", *arguments)
    assert outcome.code == 4
    assert line in outcome.output
    assert outcome.output.count("\n") == 1
    assert not (empty.path / "benchmarks").exists()


@pytest.mark.full
def test_all_columns_of_a_table_are_kept(empty):
    photographs(empty.path / "photos", 2)
    (empty.path / "data").mkdir()
    (empty.path / "data" / "T.CSV").write_text(
        "ID,File,Prompt,类别,Seed,tags,reference,note\n"
        "x,img_000.jpg,make it snow,天气,7,a;b,img_001,hello\n"
        "y,img_001.jpg,make it rain,天气,,,,\n"
    )
    assert empty.call("imgedit", "init", "data/T.CSV").code == 0
    first, second = map(
        json.loads, (empty.path / "benchmarks" / "pairs.jsonl").read_text().splitlines()
    )
    assert first == {
        "image": "photos/img_000.jpg",
        "instruction": "make it snow",
        "id": "x",
        "category": "天气",
        "seed": 7,
        "tags": ["a", "b"],
        "reference": "photos/img_001.jpg",
        "note": "hello",
    }
    assert second == {
        "image": "photos/img_001.jpg",
        "instruction": "make it rain",
        "id": "y",
        "category": "天气",
    }
    outcome = empty.pytest("benchmarks", "-k", "天气")
    assert outcome.counts() == {"passed": 2}
    assert "fields that nothing reads: note (1 row)" in outcome.output


def test_categories_of_a_dict_of_lists_are_kept(empty):
    photographs(empty.path, 2)
    rows = {
        name: [{"photo": f"img_00{place}", "prompt": "x"}]
        for place, name in enumerate(("weather", "style"))
    }
    (empty.path / "t.json").write_text(json.dumps(rows))
    assert empty.call("imgedit", "init").code == 0
    lines = (empty.path / "benchmarks" / "pairs.jsonl").read_text().splitlines()
    assert [json.loads(line)["category"] for line in lines] == ["weather", "style"]


def test_what_is_not_used_is_named(empty):
    photographs(empty.path, 3)
    table(empty.path, count=3)
    (empty.path / "a.csv").write_text("file,prompt\nnothing.jpg,x\n")
    (empty.path / "z.csv").write_text("file,prompt\nimg_000.jpg,x\n")
    (empty.path / "package.json").write_text('{"name": "x"}')
    told = json.loads(empty.call("imgedit", "init", "--json").output)
    assert told["suite"] == "3 rows of prompts.csv: image 'file', instruction 'prompt'"
    unused = [note for note in told["notes"] if note.startswith("not used: ")]
    assert [note.partition(" names ")[0] for note in unused] == [
        "not used: a.csv: no column",
        "not used: z.csv; imgedit init z.csv uses it instead",
    ]


@pytest.mark.full
@pytest.mark.usefixtures("needs_git")
def test_in_a_folder_of_a_repository(empty):
    new_repository(empty.path, "github")
    (empty.path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    folder = empty.path / "models" / "mine"
    photographs(folder, 2)
    table(folder, count=2)
    outcome = empty.call("imgedit", "init", cwd="models/mine")
    assert outcome.code == 0
    assert (
        f"no workflow written: CI systems read workflows in {empty.path.resolve()} only"
        in outcome.output
    )
    assert not (folder / ".github").exists()
    for arguments, cwd in (
        (("benchmarks",), "models/mine"),
        (("models/mine/benchmarks",), "."),
        ((), "."),
        (("-n", "2"), "."),
    ):
        outcome = empty.pytest(*arguments, cwd=cwd)
        assert (outcome.code, outcome.counts()) == (0, {"passed": 2}), outcome.output


def test_a_folder_that_cannot_be_written_gets_nothing(empty):
    (empty.path / ".github").write_text("a file")
    outcome = empty.call("imgedit", "init", "--ci=github")
    assert outcome.code == 4
    assert (
        "imgedit: .github/workflows/image-editing.yml: cannot be written, a folder of it is a file"
        in outcome.output
    )
    assert not (empty.path / "benchmarks").exists()


def shell(text):
    """The commands of a page: every line of its `sh` blocks."""
    return [
        line for block in re.findall(r"```sh\n(.*?)```", text, re.S) for line in block.splitlines()
    ]


def new_repository(folder, remote):
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=folder, check=True)
    subprocess.run(
        ["git", "remote", "add", "origin", f"https://{remote}.com/me/mine.git"],
        cwd=folder,
        check=True,
    )
    # As repositories of Python code do.
    (folder / ".git" / "info" / "exclude").write_text("__pycache__/\n")


def follow(folder, commands):
    """Run commands as they stand, but for those that install the package, which is there."""
    for command in commands:
        if not command.startswith("pip install "):
            outcome = folder.call("bash", "-ec", command)
            assert outcome.code == 0, (command, outcome.output)


@pytest.mark.full
@pytest.mark.usefixtures("needs_git", "needs_git_lfs")
def test_the_page_on_ci_followed_word_by_word(empty):
    """All but uploads and caches, which are the CI system's, the index from which the package
    comes, and most of the pairs.
    """
    new_repository(empty.path, "github")
    empty.environment["PYTEST_ADDOPTS"] = "--imgedit-limit=2"
    empty.environment |= dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "me")
    empty.environment |= dict.fromkeys(
        ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "me@example.org"
    )
    follow(empty, shell((DOCS / "ci.md").read_text()))
    committed = subprocess.run(
        ["git", "ls-files"], cwd=empty.path, capture_output=True, text=True, check=True
    ).stdout
    assert committed.split() == [
        ".gitattributes",
        ".github/workflows/image-editing.yml",
        "benchmarks/baselines/main.json",
        "benchmarks/imgedit.toml",
        "benchmarks/requirements.txt",
        "benchmarks/test_image_edit.py",
    ]
    follow(empty, workflow(empty.path, "github"))
    cases = empty.junit("report/junit.xml")
    assert cases["imgedit.gates::max_drop[overall]"] == cases["imgedit.run::complete"] == "passed"
    assert (empty.path / "report" / "index.html").exists()


@pytest.mark.usefixtures("needs_git")
@pytest.mark.parametrize("system", ["github", "gitlab"])
@pytest.mark.full
def test_the_workflow_of_a_new_repository_works_as_it_stands(empty, system):
    photographs(empty.path / "photos", 3)
    table(empty.path, count=3)
    new_repository(empty.path, system)
    follow(empty, ["imgedit init"])
    steps = workflow(empty.path, system)
    assert steps[0].startswith("pip install -r benchmarks/requirements.txt")
    assert (
        (empty.path / "benchmarks/requirements.txt")
        .read_text()
        .startswith("pytest-imgedit @ file:///")
    )  # a wheel
    follow(empty, ["\n".join(steps[1:])])  # GitLab gives all lines of a job to one shell
    assert empty.junit("report/junit.xml")["imgedit.run::complete"] == "passed"


def workflow(folder, system):
    """The commands of the workflow that was written, and of no other."""
    paths = {"github": ".github/workflows/image-editing.yml", "gitlab": ".gitlab-ci.yml"}
    assert [name for name, path in paths.items() if (folder / path).exists()] == [system]
    document = yaml.safe_load((folder / paths[system]).read_text())
    if system == "gitlab":
        return document["image editing"]["script"]
    return [step["run"] for step in document["jobs"]["evaluate"]["steps"] if "run" in step]


@pytest.mark.full
@pytest.mark.usefixtures("needs_git")
def test_a_workflow_compares_with_the_baseline_once_there_is_one(empty):
    (empty.path / "own.py").write_text(
        "from PIL import ImageOps\n"
        "from pytest_imgedit import Answer\n"
        "class Editor:\n"
        "    def __init__(self, *, device, good=True): self.good = good\n"
        "    def edit(self, request): return ImageOps.invert(request.source) if self.good else "
        "request.source\n"
        "class Judge:\n"
        "    def __init__(self, *, device): pass\n"
        "    def answer(self, questions):\n"
        "        changed = [q.images['edited'].tobytes() != q.images['source'].tobytes() for q in "
        "questions]\n"
        "        return [Answer(score=8.0 if one else 1.0) for one in changed]\n"
    )
    photographs(empty.path / "photos", 12)
    table(empty.path, count=12)
    subprocess.run(["git", "init", "-q"], cwd=empty.path, check=True)
    assert empty.call("imgedit", "init", "--ci=github").code == 0
    config = (empty.path / "benchmarks/imgedit.toml").read_text()
    config = config.replace('"identity" ', '"own:Editor" ').replace('"none" ', '"own:Judge" ')
    config = config.replace("[judge]\n", "[judge]\ncontrols = false\n")
    config += "\n[gates]\nmax_near_copies = 1.0\n"
    (empty.path / "benchmarks/imgedit.toml").write_text(config)
    saved = empty.pytest("benchmarks", "--imgedit-save=main")
    assert saved.code == 0, saved.output
    [step] = [step for step in workflow(empty.path, "github") if "pytest benchmarks" in step]
    assert empty.call("bash", "-ec", step).code == 0
    (empty.path / "benchmarks/imgedit.toml").write_text(
        config.replace("[judge]", "good = false\n\n[judge]")
    )
    worse = empty.call("bash", "-ec", step)
    assert worse.code == 1, worse.output
    assert worse.last.startswith("imgedit: FAIL: ")
    assert "overall 1.00, was 8.00 in main: -7.00" in worse.last
    assert empty.junit("report/junit.xml")["imgedit.gates::max_drop[overall]"] == "failure"
