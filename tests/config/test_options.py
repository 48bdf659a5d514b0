"""The command line wins over the config; ready configs are valid; own protocols are used."""

from __future__ import annotations

import json
import os
import re
from importlib.resources import files
from pathlib import Path

import pytest

from pytest_imgedit.cli.init import configs
from pytest_imgedit.config.settings import make_settings
from pytest_imgedit.config.toml_file import ConfigFile
from pytest_imgedit.plugin.command_line import split_metrics
from pytest_imgedit.run.request import resolve_models
from pytest_imgedit.run.settings_checks import check_gates, check_models
from pytest_imgedit.suites.base import load_suite
from pytest_imgedit.workers.hardware import Hardware, HostHardware


def test_command_line_wins_over_set_over_the_config(bench):
    (bench.path / "imgedit.toml").write_text(
        "[editor]\nspec = 'identity'\nseeds = 2\n[judge]\nspec = 'reference'\n[suite]\nlimit = 4\n"
    )
    bench.run("--imgedit-set=suite.limit=3", "--imgedit-limit=1", "-k", "social")
    document = bench.results
    assert document["editor"]["spec"] == "identity"
    assert len(document["items"]) == 1
    assert len(document["items"][0]["seeds"]) == 2


@pytest.mark.parametrize(
    ("text", "specs"),
    [
        ("psnr,ssim", ["psnr", "ssim"]),
        ("psnr, my.metrics:Sharp,ssim", ["psnr", "my.metrics:Sharp", "ssim"]),
        ("clip-text:org/clip-vit,psnr", ["clip-text:org/clip-vit", "psnr"]),
        ("dino:/data/a,b/dino", ["dino:/data/a,b/dino"]),
        ("my.metrics:Sharp", ["my.metrics:Sharp"]),
        ("http-score:http://host:1/a,b?x=1,psnr", ["http-score:http://host:1/a,b?x=1,psnr"]),
        ("psnr,http-score:http://host/a,b", ["psnr", "http-score:http://host/a,b"]),
        ("psnr,", ["psnr,"]),
    ],
)
def test_metrics_are_split_at_commas_but_not_inside_a_url_or_a_path(text, specs):
    assert split_metrics(text) == specs


def test_two_metrics_of_one_option_both_measure(bench):
    bench.run("--imgedit-judge=none", "--imgedit-limit=1", "--imgedit-metric=psnr,ssim")
    assert set(bench.results["further"]) == {"psnr", "ssim"}


@pytest.mark.full
def test_own_protocol_from_a_file_is_used_and_hashed(bench):
    (bench.path / "mine.toml").write_text(
        '[[calls]]\nname = "like"\nsystem = "You grade."\nreminder = "Again: {{ problem }}"\n'
        'user = "{{ source }}{{ edited }}{{ title }}: {{ instruction }}"\n'
        '[calls.reply]\nform = "lines"\nnames = ["like"]\n[score]\nitem = "like / 2"\n'
        '[categories.default]\ntitle = "any"\ncriteria = ["nice"]\n'
    )
    (bench.path / "mine_judge.py").write_text(
        "from pytest_imgedit import Answer\n"
        "class Judge:\n"
        "    def __init__(self, *, device): pass\n"
        "    def answer(self, questions):\n"
        "        assert questions[0].system == 'You grade.'\n"
        "        assert questions[0].parts[:2] == (('image', 'source'), ('image', 'edited'))\n"
        "        return [Answer('like: 9') for _ in questions]\n"
    )
    (bench.path / "config.toml").write_text(
        '[judge]\nspec = "mine_judge:Judge"\nprotocol = "mine"\n[protocols.mine]\nfile = "mine.toml"\n'
    )
    bench.run("--imgedit-config=config.toml", "--imgedit-limit=1").assert_outcomes(passed=5)
    assert bench.results["overall"]["macro"]["mean"] == 4.5
    assert bench.results["judge"]["protocol"] == "mine"
    assert len(bench.results["judge"]["protocol_sha256"]) == 64


def write_adapter(path):
    """Write what a config says to download beside it: a LoRA adapter, here of one layer."""
    layer = "transformer.transformer_blocks.0.attn.to_q"
    shapes = {f"{layer}.lora_A.weight": [1, 4], f"{layer}.lora_B.weight": [4, 1]}
    header = json.dumps(
        {
            name: {"dtype": "F32", "shape": shape, "data_offsets": [16 * index, 16 * index + 16]}
            for index, (name, shape) in enumerate(shapes.items())
        }
    ).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(32))


#: The line with a judge, and the one below it, which a comment mark keeps from being another.
OTHER_JUDGE = re.compile(r'^(spec = "[^\n]*\n)# (?=spec = "(?:qwen-vl|openai):)', re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "takes_other"),
    [
        *((name, False) for name in configs()),
        *((name, True) for name in ("flux-kontext", "qwen-image-edit", "qwen-image-edit-plus")),
    ],
)
def test_ready_config_is_valid(name, takes_other, tmp_path):
    config = tmp_path / f"{name}.toml"
    text = (files("pytest_imgedit.benchmark") / "configs" / config.name).read_text("utf-8")
    if takes_other:  # the judge that a comment names
        text, count = OTHER_JUDGE.subn(r"# \1", text)
        assert count == 1
    config.write_text(text, "utf-8")
    file = ConfigFile.read_config(config)
    for adapter in file.tables["editor"].get("loras", []):
        write_adapter(Path(adapter["path"]))
    raw = {**file.tables, "workers": {"gpus": "none"}, "run": {"config_file": file}}
    settings = make_settings(raw)
    models = resolve_models(settings)
    check_models(settings, models.values(), Hardware((HostHardware(),)))
    suite = load_suite(settings.suite)
    check_gates(settings, suite.counts, models["judge"], {})


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("editor.offload=model", "editor.offload: nothing to offload from without a GPU"),
        ("editor.quantize=fp8", "editor.quantize: torchao is not installed, pip install torchao"),
    ],
)
def test_what_this_machine_cannot_do_is_said_before_anything_loads(bench, setting, line):
    bench.refuses(
        line, "--imgedit-editor=scenes", "--imgedit-judge=scenes", f"--imgedit-set={setting}"
    )


@pytest.mark.parametrize(
    ("workers", "environment", "expected"),
    [
        (1, {}, "{all} GOMP_SPINCOUNT=1000"),
        (99, {}, "{all} GOMP_SPINCOUNT=1000"),
        (1, {"OMP_NUM_THREADS": "7", "GOMP_SPINCOUNT": "5"}, "7 GOMP_SPINCOUNT=5"),
        (1, {"OMP_WAIT_POLICY": "active"}, "{all} OMP_WAIT_POLICY=active"),
    ],
)
@pytest.mark.full
def test_threads_of_cpu_workers_do_not_depend_on_their_number_and_do_not_spin(
    bench, monkeypatch, workers, environment, expected
):
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    slots = f"--imgedit-set=workers.cpu_workers={workers}"
    bench.run_subprocess("--imgedit-editor=fakes:Threads", "-k", "physics-0000", slots)
    cores = min(4, len(os.sched_getaffinity(0)))
    assert bench.items["physics-0000"]["error"]["message"].endswith(
        f"threads: {expected.format(all=cores)}"
    )
