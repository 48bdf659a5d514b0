"""The command line `imgedit` over two finished runs: what it prints, as text and JSON, and its exit
codes.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from folders import fill
from in_process import run_in

from pytest_imgedit.cli.main import main
from pytest_imgedit.report.read import as_baseline
from pytest_imgedit.store.baselines import write_baseline

pytestmark = pytest.mark.everyday


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a good run, saved as baseline `good`, and a bad one after it."""
    folder = fill(tmp_path_factory.mktemp("cli"))
    for options in (
        ["--imgedit-editor=oracle", "--imgedit-save=good", "--imgedit-name=first"],
        ["--imgedit-editor=identity"],
    ):
        code, printed = run_in(folder, "-q", "--imgedit-limit=6", *options)
        assert code == 0, printed
    return folder


@pytest.fixture
def imgedit(finished, monkeypatch, capsys):
    """Call `imgedit` in that folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(finished)

    def call(*arguments):
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return call


def runs(folder):
    return [
        path.name
        for path in sorted(
            (folder / ".imgedit/runs").iterdir(), key=lambda path: path.stat().st_mtime_ns
        )
    ]


@pytest.mark.parametrize(
    "command",
    [
        "",
        "init",
        "compare",
        "trend",
        "plan",
        "report",
        "runs",
        "explain",
        "agreement",
        "qualify",
        "doctor",
    ],
)
def test_each_command_explains_itself(imgedit, command):
    """Costly as the first to use the runs of this module."""
    code, out, _ = imgedit(*filter(None, (command, "--help")))
    assert code == 0
    assert "usage: imgedit" in out
    assert not command or ("exit codes: 0 " in out and "--json" in out)


def test_bare_command_and_version(imgedit, capsys):
    code, out, _ = imgedit()
    assert code == 0
    assert out.startswith("usage: imgedit")
    assert imgedit("--version")[:2] == (0, f"pytest-imgedit {version('pytest-imgedit')}\n")


@pytest.mark.parametrize("arguments", [("nothing",), ("compare", "a"), ("runs", "--jsn")])
def test_bad_arguments_exit_4_with_one_line(imgedit, arguments):
    code, out, err = imgedit(*arguments)
    assert (code, out) == (4, "")
    assert err.startswith("imgedit")
    assert err.count("\n") == 1


def test_runs_lists_both(imgedit, finished):
    code, out, _ = imgedit("runs")
    assert code == 0
    assert [name in out for name in runs(finished)] == [True, True]
    listed = json.loads(imgedit("runs", "--json")[1])["runs"]
    assert [(run["name"], run["editor"], run["overall"], run["state"]) for run in listed] == [
        ("first", "oracle", 10.0, "PASS"),
        ("", "identity", 0.0, "PASS"),
    ]
    (finished / ".imgedit/runs/x").mkdir()
    (finished / ".imgedit/runs/x/results.json").write_text('{"schema": "imgedit.results/3"}')
    code, out, _ = imgedit("runs")
    shutil.rmtree(finished / ".imgedit/runs/x")
    assert code == 1
    assert "x/results.json: not a whole results document: run: Field required" in out
    assert imgedit("runs", "--out=nowhere")[::2] == (
        4,
        "imgedit: nowhere has no finished run: run pytest --imgedit first, or name another store with --out\n",
    )


@pytest.mark.parametrize("before", ["good", "id", "first", "path"])
@pytest.mark.everyday_for("good", "path")
def test_compare_takes_baselines_and_runs(imgedit, finished, before):
    first = runs(finished)[0]
    reference = {
        "good": "good",
        "id": first,
        "first": "first",
        "path": f".imgedit/runs/{first}/results.json",
    }[before]
    code, out, _ = imgedit(
        "compare", reference, "latest", "--max-drop=overall:0", "--max-drop=物理:1"
    )
    assert code == 1
    assert "editor identity" in out
    assert "FAIL: overall 0.00, was 10.00 in " in out
    assert "FAIL: physics 0.00, was 10.00 in " in out
    document = json.loads(imgedit("compare", reference, "latest", "--json")[1])
    assert document["gates"] == []
    assert document["comparison"]["rows"]["overall"]["finding"] == "fell"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(
            ["runs", "--store=x"],
            "imgedit runs: unrecognized arguments: --store=x; see imgedit runs --help",
        ),
        pytest.param(
            ["report", "nosuch"],
            "imgedit: nosuch: no such file, and .imgedit has no finished run: run pytest",
        ),
        pytest.param(
            ["compare", "latest", "latest"],
            "imgedit: latest: .imgedit has no finished run: run pytest",
        ),
        pytest.param(
            ["trend", "--last=30"], "imgedit: --last=30: .imgedit has no finished run: run pytest"
        ),
    ],
)
def test_a_mistake_names_the_next_step(imgedit, tmp_path, monkeypatch, arguments, line):
    monkeypatch.chdir(tmp_path)
    code, _, err = imgedit(*arguments)
    assert (code, err.startswith(line)) == (4, True), err


def test_compare_without_a_drop_exits_0_and_refuses_what_is_unlike(imgedit, finished):
    assert imgedit("compare", "good", runs(finished)[0], "--max-drop=overall:0")[0] == 0
    code, _, err = imgedit("compare", "good", "nowhere")
    assert code == 4
    assert err.startswith(
        "imgedit: nowhere: no such baseline or run, expected a path, latest, or a name or an id: "
    )
    assert imgedit("compare", "good", runs(finished)[-1], "--max-drop=phys:0")[::2] == (
        4,
        "imgedit: --max-drop: unknown field 'phys', expected one of: overall, physics, "
        "environment, social, "
        "causal, referential, difficulty=NAME, tag=NAME; did you mean 'physics'?\n",
    )
    assert imgedit("compare", "good", runs(finished)[-1], "--max-drop=overall")[2].startswith(
        "imgedit: --max-drop: 'overall': "
    )
    good = as_baseline(Path("benchmarks/baselines/good.json"))
    lossy = good.editor.model_copy(update={"lossy": ("quantize=fp8",)})
    write_baseline(Path(), good.model_copy(update={"name": "lossy", "editor": lossy}))
    assert imgedit("compare", "./lossy.json", "latest")[0] == 0
    code, _, err = imgedit("compare", "./lossy.json", "latest", "--max-drop=overall:9")
    assert (code, "made faster with loss by quantize=fp8 there" in err) == (4, True)
    judge = good.judge.model_copy(update={"spec": "other", "fingerprint": "0" * 64})
    write_baseline(Path(), good.model_copy(update={"name": "other", "judge": judge}))
    assert (
        "cannot be compared, another judge: other there, reference here"
        in imgedit("compare", "./other.json", "latest")[2]
    )


def test_report_is_rendered_again_and_can_be_moved(imgedit, finished, tmp_path):
    folder = finished / ".imgedit/runs" / runs(finished)[0]
    page, text = (folder / "report.html").read_text(), (folder / "report.md").read_text()
    (folder / "report.html").unlink()
    (folder / "report.md").unlink()
    code, out, _ = imgedit(
        "report", folder.name, f"--html={tmp_path}/page.html", f"--md={tmp_path}/page.md"
    )
    assert code == 0
    assert "PASS: overall 10.00" in out
    assert (folder / "report.html").read_text() == page
    assert (folder / "report.md").read_text() == text == (tmp_path / "page.md").read_text()
    assert len(list((tmp_path / "page_files").iterdir())) == 60  # an oracle's edit is the reference
    one = json.loads(
        imgedit("report", folder.name, f"--html={tmp_path}/one.html", "--html-embed", "--json")[1]
    )
    assert one["copies"] == [f"{tmp_path}/one.html"]
    assert not (tmp_path / "one_files").exists()
    assert (tmp_path / "one.html").read_text().count(
        "data:image/webp;base64,"
    ) == 90 + 12  # the first screen repeats six pairs
    assert imgedit("report", "nowhere")[0] == 4


def test_agreement_with_people(imgedit, finished):
    items = json.loads(
        (finished / ".imgedit/runs" / runs(finished)[-1] / "results.json").read_text()
    )["items"]
    baseline = json.loads((finished / "benchmarks/baselines/good.json").read_text())
    for place, item in enumerate(baseline["items"]):
        item["score"] = place / 3
    rows = "".join(
        f"{item['id']},{place // 2},{rater}\n" for place, item in enumerate(items) for rater in "ab"
    )
    (finished / "people.csv").write_text(f"id,score,rater\n{rows}ghost,3,a\n")
    code, out, _ = imgedit("agreement", "latest", "people.csv")
    assert code == 0
    assert "judge reference against 61 ratings of 31 pairs by 2 raters in people.csv" in out
    assert "ids that are rated but not in the run: 1, such as ghost" in out
    found = json.loads(imgedit("agreement", "latest", "people.csv", "--json")[1])
    assert (found["pairs"], found["raters"]) == (30, 2)
    assert (
        found["rows"]["overall"]["spearman"]["value"] is None
    )  # the judge gave every pair the same
    assert found["rows"]["overall"]["pairwise"] == {"value": 0.5, "ci95": [0.5, 0.5]}
    assert found["rater_rows"]["overall"]["alpha"] == {"value": 1.0, "ci95": [1.0, 1.0]}
    (finished / "people.csv").write_text("id,score\nghost,3\n")
    assert imgedit("agreement", "latest", "people.csv")[0] == 1
    assert (
        imgedit("agreement", runs(finished)[-1], "none.csv")[2]
        == "imgedit: none.csv: No such file or directory, expected a CSV file\n"
    )


def test_doctor_says_what_is_there_and_what_is_missing(imgedit, finished, tiny):
    code, out, _ = imgedit("doctor")
    assert code == 0, out
    assert "no GPU visible" in out
    assert "suite scenes: 100 pairs" in out
    assert "GiB of weights in" in out
    assert out.endswith("no problem found\n")
    Path("bad.toml").write_text(
        "[suite]\nspec = 'nowhere.json'\n[editor]\nspec = 'diffusers:Some/Model'\n"
        f"[judge]\nspec = 'qwen-vl:{tiny('judge-qwen3-vl')}'\n"
    )
    Path("far.toml").write_text('[workers]\nexecutor = "ray"\n')
    code, out, _ = imgedit("doctor", "--config=far.toml")
    assert code == 0
    assert "workers run on a Ray cluster, which is not looked at" in out
    shared = (
        f"[editor]\nspec = 'diffusers:{tiny('instruct-pix2pix')}'\n[workers]\ngpus = "
        "'none'\ngpus_per_worker = 2\n"
    )
    Path("shared.toml").write_text(shared)
    assert imgedit("doctor", "--config=shared.toml")[0] == 0
    code, out, _ = imgedit("doctor", "--config=bad.toml")
    assert code == 1
    assert "problem: nowhere.json: no such file" in out
    assert (
        "problem: editor: model 'Some/Model': not on this machine yet; a run downloads it from "
        "the hub" in out
    )
    document = json.loads(imgedit("doctor", "--config=bad.toml", "--json")[1])
    assert [(model["role"], model["fits"]) for model in document["models"]] == [("judge", True)]
    assert len(document["problems"]) == 2
    assert imgedit("doctor", "--config=none.toml")[0] == 4
    Path("six.toml").write_text("[workers]\ngpus = '0-5'\n")
    assert (
        "problem: six.toml:2: workers.gpus=0-5: no GPU 0, this machine shows no GPU"
        in imgedit("doctor", "--config=six.toml")[1]
    )


@pytest.mark.parametrize("section", ["editor", "judge", "judges.second", "metrics.own"])
def test_doctor_says_that_a_server_does_not_answer(imgedit, tmp_path, monkeypatch, section):
    monkeypatch.chdir(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    spec = {
        "editor": f"openai-images:{url}/v1#m",
        "metrics.own": f"http-score:{url}/score",
    }.get(section, f"openai:{url}/v1#m")
    Path("served.toml").write_text(f"[{section}]\nspec = '{spec}'\nretries = 0\n")
    code, out, _ = imgedit("doctor", "--config=served.toml")
    assert code == 1
    assert f"problem: {section}: {url}" in out


def test_the_command_is_installed():
    command = Path(sys.executable).with_name("imgedit")
    done = subprocess.run(
        [command, "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "compare" in done.stdout
