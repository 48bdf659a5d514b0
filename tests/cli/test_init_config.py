"""`imgedit init` writes what fits the machine, and says what is still missing."""

from __future__ import annotations

import subprocess
import tomllib

import pytest
from nvml_driver import show_gpus
from PIL import Image

from pytest_imgedit.cli.init import CONFIG, configs
from pytest_imgedit.cli.main import main

MODEL = (
    "to do: name your model in benchmarks/imgedit.toml; its editor is identity, which returns the "
    "source"
)
JUDGE = "to do: name a judge in benchmarks/imgedit.toml; it has none, so there are no scores"


@pytest.fixture
def init(tmp_path, monkeypatch, capsys):
    """Call `imgedit init` in a folder with two photographs and their prompts: (config, lines)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for name in ("a", "b"):
        Image.effect_noise((40, 32), 60).convert("RGB").save(tmp_path / "photos" / f"{name}.jpg")
        (tmp_path / "photos" / f"{name}.txt").write_text("make it snow")

    def call(*arguments):
        assert main(["init", "photos", *arguments]) == 0
        return tomllib.loads((tmp_path / CONFIG).read_text()), capsys.readouterr().out.splitlines()

    return call


def test_without_a_gpu_models_are_still_to_be_named(init):
    config, lines = init()
    assert (config["editor"], config["judge"]) == ({"spec": "identity"}, {"spec": "none"})
    assert MODEL in lines
    assert JUDGE in lines
    assert lines[-1] == "next: pytest benchmarks"


@pytest.mark.parametrize("options", [(), *((f"--config={name}",) for name in configs())])
@pytest.mark.parametrize("data", [(), ("photos",)])
def test_editor_and_judge_are_never_left_open(init, tmp_path, data, options):
    assert main(["init", *data, *options, "--ci=none"]) == 0
    config = tomllib.loads((tmp_path / CONFIG).read_text())
    assert all(config[role]["spec"] for role in ("editor", "judge"))


def test_a_config_of_few_pairs_says_what_they_can_decide(init, tmp_path):
    config, _ = init()
    assert "gates" not in config
    text = (tmp_path / CONFIG).read_text()
    assert "# 2 source images can detect a drop of about " in text
    assert "# 0.5 points need about 130. " in text
    ready, _ = init("--config=qwen-image-edit", "--ci=none")
    assert ready == config  # a config that is there stays
    (tmp_path / CONFIG).unlink()
    ready, _ = init("--config=qwen-image-edit")
    assert ready["gates"] == {"max_errors": 0}
    assert "[gates]\n# 2 source images can detect" in (tmp_path / CONFIG).read_text()


@pytest.mark.parametrize(("pairs", "says"), [(126, True), (128, False)])
def test_a_config_of_enough_pairs_says_nothing_of_them(init, tmp_path, pairs, says):
    photo = (tmp_path / "photos" / "a.jpg").read_bytes()
    for number in range(pairs - 2):
        (tmp_path / "photos" / f"more-{number}.jpg").write_bytes(photo)
        (tmp_path / "photos" / f"more-{number}.txt").write_text(f"make it snow {number}")
    init()
    assert ("source images can detect" in (tmp_path / CONFIG).read_text()) == says


@pytest.mark.parametrize(
    ("gib", "judge", "needs"),
    [
        (
            79.6,
            "qwen-vl:Qwen/Qwen3-VL-8B-Instruct",
            "needs 1 GPU of 80 GB (available here) and 76 GB to download",
        ),
        (
            23.7,
            "qwen-vl:Qwen/Qwen3-VL-4B-Instruct",
            "needs 1 GPU of 24 GB (available here) and 67 GB to download",
        ),
    ],
)
def test_the_config_fits_the_gpus(init, monkeypatch, gib, judge, needs):
    show_gpus(monkeypatch, 2, gib)
    config, lines = init("--ci=github")
    assert config["editor"]["spec"] == "diffusers:Qwen/Qwen-Image-Edit"
    assert config["judge"]["spec"] == judge
    assert config["suite"]["spec"] == "pairs.jsonl"
    assert f"benchmarks/imgedit.toml {needs}" in lines
    assert not any(line.startswith("to do: name ") and "requirements" not in line for line in lines)


def test_gpus_that_are_too_small_get_no_model(init, monkeypatch):
    show_gpus(monkeypatch, 1, 8)
    config, _ = init()
    assert config["editor"] == {"spec": "identity"}


def test_a_ready_config_says_what_this_machine_lacks(init, monkeypatch):
    show_gpus(monkeypatch, 2, 80)
    _, lines = init("--config=qwen-image-edit")
    expected = "benchmarks/imgedit.toml needs 6 GPUs of 80 GB (here: 2) and 91 GB to download"
    assert expected in lines


def test_models_that_are_named_are_written(init, tmp_path, monkeypatch):
    (tmp_path / "checkpoint").mkdir()
    monkeypatch.setattr("pytest_imgedit.cli.init.find_spec", lambda name: None)
    config, lines = init(
        "--editor=diffusers:checkpoint", "--judge=openai:http://localhost:8000/v1#m", "--ci=gitlab"
    )
    assert config["editor"] == {"spec": "diffusers:../checkpoint"}
    assert config["judge"] == {"spec": "openai:http://localhost:8000/v1#m"}
    assert (
        (tmp_path / "benchmarks/requirements.txt").read_text().startswith("pytest-imgedit[openai]")
    )
    assert "to do: pip install openai; benchmarks/imgedit.toml needs it" in lines
    assert not any(line.startswith("to do: name your") or "GPU" in line for line in lines)


def test_a_model_replaces_that_of_a_ready_config_with_its_parameters(init):
    config, lines = init("--config=qwen-image-edit", "--editor=my_editor:Editor")
    assert config["editor"] == {"spec": "my_editor:Editor"}
    served = "openai:http://localhost:8000/v1#Qwen/Qwen3-VL-32B-Instruct-FP8"
    assert config["judge"]["spec"] == served
    assert config["workers"]["gpus"] == "0-4"
    assert not any("needs" in line for line in lines)  # its sizes were those of another editor


@pytest.mark.usefixtures("needs_git")
@pytest.mark.parametrize(
    ("remote", "arguments", "written"),
    [
        (None, (), [".github/workflows/image-editing.yml"]),
        (None, ("--ci=gitlab",), [".gitlab-ci.yml"]),
        (None, ("--ci=none",), []),
        ("https://github.com/me/mine", (), [".github/workflows/image-editing.yml"]),
        ("git@gitlab.example.org:me/github", (), [".gitlab-ci.yml"]),
        ("https://oauth2:TOKEN@gitlab.com/me/mine", (), [".gitlab-ci.yml"]),
        (
            "https://gitlab-ci-token:x@github.com/me/mine",
            (),
            [".github/workflows/image-editing.yml"],
        ),
        ("ssh://git@gitlab.example.org:2222/me/mine", (), [".gitlab-ci.yml"]),
        ("https://github.com/me/gitlab-tools", (), [".github/workflows/image-editing.yml"]),
        ("https://example.org/me/mine", (), [".github/workflows/image-editing.yml"]),
    ],
)
def test_the_remote_decides_for_which_system_a_workflow_is_written(
    init, tmp_path, remote, arguments, written
):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    if remote:
        subprocess.run(["git", "remote", "add", "origin", remote], cwd=tmp_path, check=True)
    _, lines = init(*arguments)
    files = [
        path
        for path in (".github/workflows/image-editing.yml", ".gitlab-ci.yml")
        if (tmp_path / path).exists()
    ]
    assert files == written
    says_how = (
        "workflow for GitHub, since no git remote names GitLab; for GitLab: imgedit init "
        "--ci=gitlab"
    )
    is_guess = not arguments and "git" not in str(remote)
    assert (says_how in lines) == is_guess


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "/benchmarks/baselines/*.json -merge\n"),
        ("*.png binary", "*.png binary\n/benchmarks/baselines/*.json -merge\n"),
        ("*.png binary\n", "*.png binary\n/benchmarks/baselines/*.json -merge\n"),
        ("/benchmarks/baselines/*.json merge=own\n", "/benchmarks/baselines/*.json merge=own\n"),
    ],
)
def test_the_attributes_of_git_gain_a_line_for_baselines(init, tmp_path, before, after):
    path = tmp_path / ".gitattributes"
    if before is not None:
        path.write_text(before)
    for _ in range(2):
        init()
        assert path.read_text() == after
