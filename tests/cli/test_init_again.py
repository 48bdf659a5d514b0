"""`imgedit init` for models behind servers, and called again: what CI needs follows the config, and
what users have changed stays.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from PIL import Image

from pytest_imgedit.cli.init import CONFIG, REQUIREMENTS
from pytest_imgedit.cli.main import main

WORKFLOW = ".github/workflows/image-editing.yml"
GITLAB = ".gitlab-ci.yml"
SERVED = "openai:https://api.example.org/v1#some-model"
MODEL = "to do: name your model in benchmarks/imgedit.toml; "
JUDGE = "to do: name a judge in benchmarks/imgedit.toml; "
SECRET = "to do once: add the secret "
HERE = "to do: export "


@pytest.fixture
def init(tmp_path, monkeypatch, capsys):
    """Call `imgedit init` in a folder with three photographs; return what is still to be done."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "photos").mkdir()
    for name in ("a", "b", "c"):
        Image.effect_noise((40, 32), 60).convert("RGB").save(tmp_path / "photos" / f"{name}.jpg")

    def call(*arguments):
        assert main(["init", *arguments, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        call.document = document
        return document["to_do"]

    return call


def configure(text):
    """Write the config as a user would."""
    CONFIG.write_text(f"[suite]\nspec = 'scenes'\n{text}")


def step_of(path):
    """The step of a workflow that runs pytest."""
    steps = yaml.safe_load(path.read_text())["jobs"]["evaluate"]["steps"]
    [step] = [step for step in steps if "pytest benchmarks" in step.get("run", "")]
    return step


def begins(lines, start):
    return [line for line in lines if line.startswith(start)]


def test_what_is_to_do_is_repeated_until_it_is_done(init, tmp_path):
    first = init("photos")
    assert "to do: add the 3 missing instructions to benchmarks/pairs.csv" in first
    assert begins(first, MODEL)
    assert begins(first, JUDGE)
    assert init() == init("photos") == first
    table = tmp_path / "benchmarks" / "pairs.csv"
    table.write_text(table.read_text().replace("a.jpg,", "a.jpg,make it snow"))
    text = CONFIG.read_text().replace('"identity"', '"my_editor:Mine"')
    CONFIG.write_text(text)
    second = init()
    assert "to do: add the 2 missing instructions to benchmarks/pairs.csv" in second
    assert not begins(second, MODEL)
    assert begins(second, JUDGE)
    table.write_text("image,instruction\na.jpg,x\nb.jpg,y\nc.jpg,z\n")
    CONFIG.write_text(text.replace('"none"', '"reference"'))
    assert not [line for line in init() if "requirements" not in line]


@pytest.mark.parametrize(
    ("models", "keys"),
    [
        (f"[judge]\nspec = '{SERVED}'\n", ["OPENAI_API_KEY"]),
        (
            "[editor]\nspec = 'openai-images:https://api.example.org/v1#m'\napi_key_env = 'EDITS'\n",
            ["EDITS"],
        ),
        (f"[judges.second]\nspec = '{SERVED}'\napi_key_env = 'SECOND'\n", ["SECOND"]),
        (
            "[metrics.own]\nspec = 'http-score:https://reward.example.org/score'\n",
            ["HTTP_SCORE_API_KEY"],
        ),
        (
            f"[judge]\nspec = '{SERVED}'\n[judges.second]\nspec = '{SERVED}2'\napi_key_env = 'B'\n",
            ["OPENAI_API_KEY", "B"],
        ),
    ],
)
def test_a_server_that_is_named_later_is_in_the_workflow_and_the_requirements(
    init, tmp_path, models, keys
):
    init("photos")
    assert "env" not in step_of(tmp_path / WORKFLOW)
    assert "[openai]" not in REQUIREMENTS.read_text()
    configure(models)
    to_do = init()
    assert set(init.document["updated"]) == {WORKFLOW, str(REQUIREMENTS)}
    env = step_of(tmp_path / WORKFLOW)["env"]
    assert env == {key: f"${{{{ secrets.{key} }}}}" for key in keys}
    assert REQUIREMENTS.read_text().startswith("pytest-imgedit[openai]")
    assert [line.split()[6] for line in begins(to_do, SECRET)] == keys
    assert [line.split()[3].removesuffix("=…,") for line in begins(to_do, HERE)] == keys
    assert init() == to_do  # the secret cannot be seen from here
    assert init.document["updated"] == []
    configure("")  # and no longer
    assert not begins(init(), SECRET)
    assert "env" not in step_of(tmp_path / WORKFLOW)


def test_a_server_named_at_once_gives_the_same_files_as_one_named_later(init, tmp_path):
    init("photos", f"--judge={SERVED}")
    at_once = [(tmp_path / name).read_text() for name in (WORKFLOW, REQUIREMENTS)]
    for name in (WORKFLOW, REQUIREMENTS, CONFIG):
        (tmp_path / name).unlink()
    init("photos")
    configure(f"[judge]\nspec = '{SERVED}'\n")
    init()
    assert [(tmp_path / name).read_text() for name in (WORKFLOW, REQUIREMENTS)] == at_once


def test_a_key_in_the_environment_is_not_to_be_exported(init, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    assert not begins(init("photos", f"--judge={SERVED}"), HERE)


@pytest.mark.parametrize(
    "url", ["http://localhost:8000/v1", "http://127.0.0.1:8000/v1", "http://[::1]:8000/v1"]
)
def test_a_server_of_this_machine_has_no_key_and_ci_cannot_reach_it(init, tmp_path, url):
    to_do = init("photos", f"--judge=openai:{url}#m")
    assert not begins(to_do, SECRET)
    assert not begins(to_do, HERE)
    assert "env" not in step_of(tmp_path / WORKFLOW)
    assert (
        "to do: name a server in benchmarks/imgedit.toml that CI can reach; the judge's is on this "
        "machine" in to_do
    )
    assert REQUIREMENTS.read_text().startswith("pytest-imgedit[openai]")


def test_gitlab_gives_variables_to_jobs_by_itself(init, tmp_path):
    to_do = init("photos", f"--judge={SERVED}", "--ci=gitlab")
    assert "API_KEY" not in (tmp_path / GITLAB).read_text()
    [line] = begins(to_do, "to do once: ")
    assert line.startswith("to do once: add the variable OPENAI_API_KEY in GitLab: ")
    assert "masked" in line
    assert begins(init(), "to do once: ") == [line]  # the workflow that is there says GitLab
    assert not (tmp_path / WORKFLOW).exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("timeout-minutes: 120", "timeout-minutes: 30"),
        ("name: image editing", "name: ours"),
        ("    steps:\n", "    env:\n      MINE: 1\n    steps:\n"),
    ],
)
def test_a_workflow_that_was_changed_stays_and_its_key_is_to_do(init, tmp_path, before, after):
    init("photos")
    changed = (tmp_path / WORKFLOW).read_text().replace(before, after)
    (tmp_path / WORKFLOW).write_text(changed)
    configure(f"[judge]\nspec = '{SERVED}'\n")
    line = (
        "to do: add to the env of the step that runs pytest in .github/workflows/image-editing.yml:"
        " OPENAI_API_KEY: ${{ secrets.OPENAI_API_KEY }}"
    )
    assert line in init()
    assert (tmp_path / WORKFLOW).read_text() == changed
    (tmp_path / WORKFLOW).write_text(f"{changed}# ${{{{ secrets.OPENAI_API_KEY }}}}\n")
    assert line not in init()


def test_a_workflow_for_gpus_stays_one(init, tmp_path):
    init("photos", "--config=one-gpu")
    configure(f"[judge]\nspec = '{SERVED}'\n")
    init()
    assert "runs-on: [self-hosted, gpu]" in (tmp_path / WORKFLOW).read_text()
    assert step_of(tmp_path / WORKFLOW)["env"]


@pytest.mark.parametrize(
    ("text", "extra", "package"),
    [
        (f"[judge]\nspec = '{SERVED}'\n", "openai", "openai"),
        ("[metrics.lpips]\n", "metrics", "torchmetrics"),
        ("[workers]\nexecutor = 'ray'\n", "ray", "ray"),
        (
            "[judge]\nspec = 'qwen-vl:Qwen/Qwen3-VL-8B-Instruct'\nadapter = 'some'\n",
            "lora",
            "peft",
        ),
    ],
)
def test_each_extra_that_a_config_needs_is_required(init, monkeypatch, text, extra, package):
    init("photos")
    REQUIREMENTS.write_text("# ours\nnumpy\npytest-imgedit==1.0\n")
    configure(text)
    monkeypatch.setattr("pytest_imgedit.cli.init.find_spec", lambda name: None)
    to_do = init()
    assert REQUIREMENTS.read_text() == f"# ours\nnumpy\npytest-imgedit[{extra}]==1.0\n"
    assert f"to do: pip install {package}; benchmarks/imgedit.toml needs it" in to_do


def test_requirements_that_do_not_name_the_package_stay(init, tmp_path):
    init("photos")
    configure(f"[judge]\nspec = '{SERVED}'\n")
    line = "to do: add openai to benchmarks/requirements.txt; benchmarks/imgedit.toml needs it"
    REQUIREMENTS.write_text("-e .\n")
    assert line in init()
    assert REQUIREMENTS.read_text() == "-e .\n"
    REQUIREMENTS.write_text("-e .\nopenai>=2\n")
    assert line not in init()
    shared = tmp_path / "shared.txt"
    shared.write_text("pytest-imgedit==1.0\n")
    REQUIREMENTS.unlink()
    REQUIREMENTS.symlink_to(shared)
    assert line in init()
    assert shared.read_text() == "pytest-imgedit==1.0\n"


def test_options_that_a_config_leaves_unused_are_named(init):
    init("photos")
    config = CONFIG.read_text()
    to_do = init("photos", "--config=one-gpu", "--editor=folder:edits", f"--judge={SERVED}")
    assert CONFIG.read_text() == config
    assert init.document["notes"][:2] == [
        "not used: photos; benchmarks/imgedit.toml is there already and is kept",
        "not used: --config=one-gpu; benchmarks/imgedit.toml is there already and is kept",
    ]
    assert 'to do: set spec = "folder:../edits" in [editor] of benchmarks/imgedit.toml' in to_do
    assert f'to do: set spec = "{SERVED}" in [judge] of benchmarks/imgedit.toml' in to_do
    configure(f"[editor]\nspec = 'folder:../edits'\n[judge]\nspec = '{SERVED}'\n")
    for editor in ("folder:edits", "folder:edits/", "folder:./edits", f"folder:{Path.cwd()}/edits"):
        assert not begins(init(f"--editor={editor}", f"--judge={SERVED}"), "to do: set")


@pytest.mark.parametrize("text", ["[judge\n", "[judge]\nreasks = 'x'\n", "[nothing]\nx = 1\n"])
def test_a_config_that_is_wrong_is_to_be_corrected(init, text):
    init("photos")
    CONFIG.write_text(text)
    assert len(begins(init(), "to do: correct benchmarks/imgedit.toml:")) == 1
    assert CONFIG.read_text() == text


def test_a_ci_file_of_ones_own_lacks_a_job(init, tmp_path):
    (tmp_path / GITLAB).write_text("tests:\n  script: [pytest]\n")
    line = "to do: add a job to .gitlab-ci.yml that runs pytest benchmarks"
    assert line in init("photos")
    assert not (tmp_path / WORKFLOW).exists()
    (tmp_path / GITLAB).write_text("tests:\n  script: [pytest benchmarks]\n")
    assert line not in init()
