"""Edits under readable names, and what image_edit_benchmark has: its config, its report, its
images.
"""

from __future__ import annotations

import json
import re

import pytest
import yaml
from PIL import Image

from pytest_imgedit.cli.main import main
from pytest_imgedit.config.settings import make_settings, read_tables
from pytest_imgedit.core.pairs import CATEGORIES

SINGLE_GPU = """\
diffusion_model:
  type: "qwen_image_edit"
  class_path: "src.models.diffusion.implementations.qwen_image_edit.QwenImageEditModel"
  params:
    model_name: "Qwen/Qwen-Image-Edit"
    device: "cuda"
    dtype: "bfloat16"
    num_inference_steps: 50
    true_cfg_scale: 4.0
reward_model:
  type: "qwen3_vl"
  class_path: "src.models.reward.implementations.qwen3_vl_reward.Qwen3VLRewardModel"
  params:
    model_name: "Qwen/Qwen3-VL-30B-Instruct"
    device: "auto"
    dtype: "bfloat16"
    use_batch_inference: true
    batch_size: 4
"""
SEVERAL_GPUS = """\
diffusion_model:
  type: "multi_gpu_qwen_edit"
  class_path: "src.models.diffusion.implementations.multi_gpu_qwen_edit.MultiGPUQwenImageEditModel"
  params:
    model_name: "Qwen/Qwen-Image-Edit"
    device_ids: [0, 1, 2, 3, 4, 5]
    dtype: "bfloat16"
    num_inference_steps: 50
"""
ONE_CATEGORY = 'benchmark:\n  categories: ["物理"]\n'
CONFIG = """\
# two stages on six GPUs
benchmark:
  data_path: "data/pairs.json"
  categories: ["物理", "环境"]
diffusion_model:
  type: "multi_gpu_qwen_image_edit"
  class_path: "src.models.diffusion.implementations.multi_gpu_qwen_edit.MultiGPUQwenImageEditModel"
  params:
    model_name: "Qwen/Qwen-Image-Edit"
    device_ids: [0, 1, 2]
    dtype: "bfloat16"
    num_inference_steps: 15
    true_cfg_scale: 4.0
    negative_prompt: " "
    seed: 0
    disable_progress_bar: true
    enable_xformers: true
reward_model:
  class_path: "src.models.reward.mine.OurReward"
  params:
    model_name: "Qwen/Qwen3-VL-30B-A3B-Instruct"
    batch_size: 4
    conda_env: "qwen3"
    timeout: 600
prompts:
  物理:
    system_prompt: |
      You grade.
    user_prompt_template: "{edit_instruction}"
evaluation:
  save_generated_images: true
  output_dir: "outputs"
runtime:
  seed: 42
"""


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text(CONFIG)
    return tmp_path


def test_a_config_is_taken_over_and_checked_as_any_other(theirs, capsys):
    assert main(["import", "conf/config.yaml"]) == 0
    settings = make_settings(read_tables(theirs / "imgedit.toml"))
    assert settings.suite.spec.endswith("conf/data/pairs.json")
    assert (settings.editor.spec, settings.editor.seed) == ("diffusers:Qwen/Qwen-Image-Edit", 0)
    assert settings.editor.params == {
        "dtype": "bfloat16",
        "num_inference_steps": 15,
        "true_cfg_scale": 4.0,
        "negative_prompt": " ",
    }
    assert settings.judge.spec == "qwen-vl:Qwen/Qwen3-VL-30B-A3B-Instruct"
    assert (settings.judge.batch_size, settings.judge.protocol) == (4, "own-prompts")
    assert (settings.suite.categories, settings.suite.language) == (("物理", "环境"), "zh")
    assert (settings.workers.gpus, settings.workers.judge_timeout) == ("0,1,2", 600)


@pytest.mark.parametrize(
    ("text", "gpus", "categories"),
    [
        (SINGLE_GPU, "auto", ()),
        (SEVERAL_GPUS, "0,1,2,3,4,5", ()),
        (ONE_CATEGORY, "auto", ("物理",)),
    ],
    ids=["one GPU", "several GPUs", "one category"],
)
def test_scale_and_language_are_theirs_in_every_config(theirs, capsys, text, gpus, categories):
    (theirs / "conf" / "config.yaml").write_text(text)
    assert main(["import", "conf/config.yaml"]) == 0
    settings = make_settings(read_tables(theirs / "imgedit.toml"))
    assert (settings.judge.protocol, settings.suite.language) == ("seeds", "zh")
    assert (settings.workers.gpus, settings.suite.categories) == (gpus, categories)
    lines = capsys.readouterr().out.splitlines()
    assert (
        'conf/config.yaml: in every config: suite.language = "zh" '
        "(edit_instruction, which is Chinese there)" in lines
    )
    assert any(": in every config: judge.protocol = " in line for line in lines)


def test_every_key_is_named_with_its_line_and_what_became_of_it(theirs, capsys):
    main(["import", "conf/config.yaml"])
    lines = capsys.readouterr().out.splitlines()
    named = [line.split(": ")[1] for line in lines if re.match(r"conf/config.yaml:\d", line)]
    assert sorted(set(named)) == sorted(leaves(yaml.safe_load(CONFIG)))
    assert 'conf/config.yaml:10: diffusion_model.params.device_ids: workers.gpus = "0,1,2"' in lines
    starts = (
        "conf/config.yaml:17: diffusion_model.params.enable_xformers: no counterpart: not known "
        "here",
        "conf/config.yaml:19: reward_model.class_path: no counterpart: rewrite the class",
        "conf/config.yaml:32: evaluation.output_dir: no counterpart: reports, images and logs are "
        "in the store",
    )
    assert [sum(line.startswith(start) for line in lines) for start in starts] == [1, 1, 1]


def leaves(table, prefix=""):
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from leaves(value, f"{key}.")
        else:
            yield key


def test_what_has_no_value_is_left_out(theirs, capsys):
    text = CONFIG.replace("seed: 0", "seed:").replace(
        'negative_prompt: " "', "negative_prompt: null"
    )
    (theirs / "conf" / "config.yaml").write_text(text)
    assert main(["import", "conf/config.yaml"]) == 0
    assert "diffusion_model.params.seed: no counterpart: it has no value" in capsys.readouterr().out
    assert make_settings(read_tables(theirs / "imgedit.toml")).editor.seed == 0


def test_a_config_that_is_there_is_kept(theirs, capsys):
    (theirs / "imgedit.toml").write_text("mine")
    assert main(["import", "conf/config.yaml"]) == 4
    assert "imgedit.toml: is there already, expected a new file (--to)" in capsys.readouterr().err
    assert (theirs / "imgedit.toml").read_text() == "mine"
    assert main(["import", "conf/config.yaml", "--to=conf/other.toml"]) == 0
    assert 'spec = "data/pairs.json"' in (theirs / "conf" / "other.toml").read_text()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", "not valid YAML"),
        ("- 1", "holds no keys, expected a config in YAML"),
        ("a: 1", "expected the keys benchmark, diffusion_model and reward_model"),
    ],
)
def test_a_config_that_is_none_is_refused_in_one_line(theirs, capsys, text, line):
    (theirs / "conf" / "config.yaml").write_text(text)
    assert main(["import", "conf/config.yaml"]) == 4
    printed = capsys.readouterr().err
    assert line in printed
    assert printed.count("\n") == 1
    assert not (theirs / "imgedit.toml").exists()


STATISTICS = {"mean": 7.5, "std": 0.5, "median": 7.0, "min": 6.0, "max": 9.0, "num_samples": 50}


def test_a_report_is_shown_by_our_names(theirs, capsys):
    report = {
        "category_statistics": {"物理": STATISTICS, "style": STATISTICS},
        "overall_statistics": STATISTICS,
    }
    (theirs / "evaluation_report_1.json").write_text(json.dumps(report))
    assert main(["import", "evaluation_report_1.json"]) == 0
    shown = capsys.readouterr().out
    assert "physics" in shown
    assert "style" in shown
    assert "it cannot be a baseline" in shown
    assert main(["import", "evaluation_report_1.json", "--json"]) == 0
    first, *_, last = json.loads(capsys.readouterr().out)["statistics"]
    assert first == {"category": "physics", **STATISTICS}
    assert last == {"category": "overall (micro)", **STATISTICS}


@pytest.mark.parametrize(
    ("report", "line"),
    [
        ({}, "no category_statistics"),
        (
            {"category_statistics": {"a": {"mean": "x"}}, "overall_statistics": STATISTICS},
            "a: found {'mean': 'x'}",
        ),
    ],
)
def test_invalid_report_is_rejected(theirs, capsys, report, line):
    (theirs / "r.json").write_text(json.dumps(report))
    assert main(["import", "r.json"]) == 4
    assert line in capsys.readouterr().err


def test_edits_are_exported_under_readable_names_and_can_be_judged_again(bench):
    bench.run(
        "--imgedit-editor=noise",
        "--imgedit-judge=fakes:Constant",
        "--imgedit-limit=2",
        "--imgedit-seeds=2",
        "--imgedit-set=editor.seed=7",
    )
    scored = {name: item["score"] for name, item in bench.items.items()}
    store = str(bench.path / ".imgedit")
    target = bench.path / "edits"
    assert main(["export", "latest", str(target), f"--out={store}"]) == 0
    listed = json.loads((target / "edits.json").read_text())
    assert listed["base_seed"] == 7
    assert len(listed["edits"]) == 20
    assert {row["file"] for row in listed["edits"]} == {
        str(p.relative_to(target)) for p in target.rglob("*.png")
    }
    assert (target / "physics" / "physics-0000.png").is_file()
    names = [
        "seed1",
        "seed1/social-0000.png",
        "seed1/social-0001.png",
        "social-0000.png",
        "social-0001.png",
    ]
    assert (
        sorted(str(path.relative_to(target / "social")) for path in (target / "social").rglob("*"))
        == names
    )
    assert {path.name for path in target.iterdir() if path.is_dir()} == set(CATEGORIES) & {
        item["category"] for item in bench.items.values()
    }
    assert Image.open(target / "physics" / "physics-0000.png").size == (128, 128)
    bench.run(
        f"--imgedit-editor=folder:{target}", "--imgedit-judge=fakes:Constant", "--imgedit-limit=2"
    )
    assert {name: item["score"] for name, item in bench.items.items()} == scored
    assert main(["export", "latest", str(target), f"--out={store}"]) == 4


def test_edits_of_one_language_are_judged_again_in_the_other(bench):
    """Two rows of one image get ids from their texts, those of both languages."""
    Image.effect_noise((64, 64), 90).save(bench.path / "img_0000.png")
    rows = [
        {
            "subset": "物理",
            "image": "img_0000.png",
            "edit_instruction": chinese,
            "edit_instruction_en": english,
        }
        for chinese, english in (("让它下落", "let it fall"), ("让它升起", "let it rise"))
    ]
    (bench.path / "pairs.json").write_text(json.dumps(rows))
    options = ("--imgedit-suite=pairs.json", "--imgedit-judge=fakes:Constant")
    bench.run(*options, "--imgedit-editor=noise", "--imgedit-set=suite.language=zh")
    chinese = set(bench.items)
    assert (
        main(["export", "latest", str(bench.path / "e"), f"--out={bench.path / '.imgedit'}"]) == 0
    )
    assert bench.run(*options, f"--imgedit-editor=folder:{bench.path / 'e'}").ret == 0
    assert set(bench.items) == chinese
    assert {item["instruction"] for item in bench.items.values()} == {"let it fall", "let it rise"}


def test_an_edit_that_is_missing_is_named_and_exits_1(bench, capsys):
    bench.run(
        "--imgedit-editor=fakes:Raises", "--imgedit-judge=fakes:Constant", "--imgedit-limit=2"
    )
    store = bench.path / ".imgedit"
    first = bench.items["social-0000"]["seeds"][0]["edit"]["blob"]
    (store / "blobs" / first[:2] / f"{first}.png").unlink()
    assert main(["export", "latest", str(bench.path / "edits"), f"--out={store}"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("wrote 8 edits of run ") for line in lines)
    assert any(line.startswith("no edit of physics-0001 (seed 0): ") for line in lines)
    assert any(
        line.startswith("no edit of social-0000") and "not in the store any more" in line
        for line in lines
    )
