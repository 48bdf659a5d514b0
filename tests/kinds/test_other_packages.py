"""An editor with weights and a judge of another family, which a package adds by its entry points
alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pytest_imgedit.config.toml_file import rebase_paths
from pytest_imgedit.core.errors import SettingError, UsageError
from pytest_imgedit.kinds import registry
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.run.placement import place, settle
from pytest_imgedit.workers.gpus import Gpu
from pytest_imgedit.workers.hardware import Hardware, HostHardware

pytestmark = pytest.mark.usefixtures("pytorch")

SUPPORT = Path(__file__).parent.parent / "support" / "acme_models"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """The folders `editor` and `judge` of its checkpoints."""
    folder = tmp_path_factory.mktemp("acme")
    command = [sys.executable, "-m", "acme_models.tiny", str(folder)]
    subprocess.run(command, cwd=SUPPORT, check=True, capture_output=True)
    return folder


@pytest.fixture
def installed(tmp_path_factory, monkeypatch):
    """The package on the import path, as an installer leaves it: its modules, and a folder with its
    entry points.
    """
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(SUPPORT / "acme_models", site / "acme_models")
    project = tomllib.loads((SUPPORT / "pyproject.toml").read_text())["project"]
    info = site / f"acme_models-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {path}\n" for name, path in points.items())
        for group, points in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("\n".join(groups))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    )
    monkeypatch.syspath_prepend(site)
    registry.known.cache_clear()
    yield site
    registry.known.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_models"]:
        del sys.modules[name]


@pytest.fixture
def models(checkpoints):
    return (
        f"--imgedit-editor=acme-vae:{checkpoints / 'editor'}",
        f"--imgedit-judge=acme-llava:{checkpoints / 'judge'}",
    )


@pytest.mark.parametrize("name", ["editor", "judge"])
def test_a_kind_of_another_package_fits_on_a_page(name):
    lines = (SUPPORT / "acme_models" / f"{name}.py").read_text().splitlines()
    assert len(lines) <= 40


@pytest.mark.usefixtures("installed")
@pytest.mark.full
def test_both_run(bench, models):
    result = bench.run("--imgedit-limit=1", *models)
    result.assert_outcomes(passed=5)
    editor, judge = bench.results["editor"], bench.results["judge"]
    assert editor["dtype"] == judge["dtype"] == "float32"
    assert all(len(item["aspects"]) == 3 for item in bench.items.values())
    log = (bench.runs[-1] / "run.log").read_text()
    assert "fingerprint: editor acme-vae:" in log
    assert "fingerprint: judge acme-llava:" in log


@pytest.mark.full
@pytest.mark.usefixtures("installed")
def test_both_are_identified_by_their_weights(bench, checkpoints, models):
    """Costly: runs each of which loads both models, as their weights are the point."""
    bench.run("--imgedit-limit=1", *models)
    editor = bench.results["editor"]
    # Weights of the same content under another path are the same; others are not.
    shutil.copytree(checkpoints, bench.path / "copy")
    again = [option.replace(str(checkpoints), "copy") for option in models]
    bench.run("--imgedit-limit=1", *again).assert_outcomes(passed=5)
    assert (bench.timing["edits_cached"], bench.timing["verdicts_cached"]) == (5, 5)
    weights = bench.path / "copy" / "editor" / "diffusion_pytorch_model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-2] ^= 1
    weights.write_bytes(data)
    bench.run("--imgedit-limit=1", *again).assert_outcomes(passed=5)
    assert bench.timing["edits"] == 5
    assert bench.results["editor"]["fingerprint"] != editor["fingerprint"]
    # A parameter that decides makes other edits, one that does not makes none.
    bench.run("--imgedit-limit=1", *models, "--imgedit-set=editor.strength=0.25").assert_outcomes(
        passed=5
    )
    assert bench.timing["edits"] == 5
    bench.run("--imgedit-limit=1", *models, "--imgedit-set=editor.offload=none").assert_outcomes(
        passed=5
    )
    assert bench.timing["edits_cached"] == 5


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("option", "line"),
    [
        (
            "--imgedit-editor=acme-vae",
            "editor 'acme-vae' needs an argument, expected acme-vae:MODEL",
        ),
        ("--imgedit-editor=acme-vae:nowhere", "editor acme-vae:nowhere: no such folder"),
        (
            "--imgedit-set=editor.strength=2",
            "editor.strength: Input should be less than or equal to 1, found 2",
        ),
        (
            "--imgedit-set=editor.strenght=0.5",
            "editor.strenght: no such argument is taken by acme-vae:*; did you mean 'strength'?",
        ),
        (
            "--imgedit-set=editor.offload=group",
            "editor.offload: nothing to offload from without a GPU",
        ),
        (
            "--imgedit-set=editor.trust_remote_code=true",
            "editor.trust_remote_code: code of a checkpoint is never run, expected no such key",
        ),
        (
            f"--imgedit-set=judge.prefix={'x' * 100}",
            "judge.prefix: *at most 99 characters, found 'x*",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(bench, models, option, line):
    bench.refuses(line, *models, option)


@pytest.mark.usefixtures("installed")
def test_a_checkpoint_that_is_not_whole_is_refused(bench, checkpoints):
    shutil.copytree(checkpoints / "editor", bench.path / "cut")
    weights = bench.path / "cut" / "diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    bench.refuses(
        "*the file was cut short or damaged",
        "--imgedit-editor=acme-vae:cut",
        "--imgedit-judge=reference",
    )


@pytest.mark.usefixtures("installed")
def test_doctor_knows_their_weights(checkpoints, tmp_path):
    config = tmp_path / "imgedit.toml"
    config.write_text(
        f'[editor]\nspec = "acme-vae:{checkpoints / "editor"}"\n[judge]\nspec = '
        f'"acme-llava:{checkpoints / "judge"}"\n'
    )
    command = [
        sys.executable,
        "-m",
        "pytest_imgedit.cli.main",
        "doctor",
        "--config",
        str(config),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    found = json.loads(done.stdout)
    assert [model["folder"] for model in found["models"]] == [
        str(checkpoints / name) for name in ("editor", "judge")
    ]
    assert all(model["fits"] for model in found["models"])


def one_gpu(total_gib):
    known = Gpu(name="0", product="X", free_gib=total_gib, total_gib=total_gib)
    return Hardware((HostHardware(gpus=("0",), known=(known,), memory=64 * 2**30),))


@pytest.mark.usefixtures("installed")
def test_the_plan_says_what_they_need_and_offloads_what_does_not_fit(checkpoints):
    editor = make_model("editor", f"acme-vae:{checkpoints / 'editor'}", {})
    judge = make_model("judge", f"acme-llava:{checkpoints / 'judge'}", {})
    found = place([editor, judge], one_gpu(80.0), "auto")
    assert found.mode == "resident"
    assert "plan: edit 0.0 GiB and judge 0.0 GiB on GPU 0" in found.lines[-1]
    assert settle(editor, one_gpu(80.0)).params == {}
    small = one_gpu(editor.memory().reads / 2**30 / 2)
    with pytest.raises(UsageError, match=r'; editor.offload="group" needs least$'):
        place([editor], small, "auto")
    with pytest.raises(UsageError, match=r"; \d+ such GPUs would hold them$"):
        place([judge], small, "auto")
    settled = settle(editor, small)
    assert settled.params == {"offload": "group"}
    (line,) = place([settled], small, "auto").lines
    assert line.startswith("plan: edit one block at a time, offloaded on GPU 0")


def test_an_entry_point_that_names_no_kind_is_refused(installed):
    (installed / "acme_models" / "editor.py").write_text(
        "class AcmeEditor: ...\nAcmeJudge = 1 / 0\n"
    )
    with pytest.raises(
        UsageError, match=r"^editor 'acme-vae': acme_models\.editor:AcmeEditor: ZeroDivisionError"
    ):
        make_model("editor", "acme-vae:x", {})
    (installed / "acme_models" / "editor.py").write_text("class AcmeEditor: ...\n")
    with pytest.raises(
        UsageError, match=r"expected a subclass of pytest_imgedit\.Model whose role is 'editor'"
    ):
        make_model("editor", "acme-vae:x", {})


@pytest.mark.usefixtures("installed")
def test_a_kind_is_checked_like_one_of_this_package(checkpoints):
    judge = make_model("judge", f"acme-llava:{checkpoints / 'judge'}", {"prefix": 3})
    with pytest.raises(SettingError) as caught:
        judge.check(Site())
    assert caught.value.key == "prefix"


@pytest.mark.usefixtures("installed")
def test_paths_in_a_config_are_relative_to_it(tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    monkeypatch.chdir(tmp_path)
    given = {
        "editor": {"spec": "acme-vae:./models/vae"},
        "judge": {"spec": "acme-llava:acme/hub-id"},
    }
    assert rebase_paths(given, tmp_path / "configs") == {
        "editor": {"spec": "acme-vae:configs/models/vae"},
        "judge": {"spec": "acme-llava:acme/hub-id"},
    }
