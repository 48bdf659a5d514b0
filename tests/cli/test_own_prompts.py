"""What `imgedit import` makes of prompts, sizes, batches, hub names and models that are not named."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_imgedit.cli import hub_names, own_prompts
from pytest_imgedit.cli.main import main
from pytest_imgedit.config.settings import make_settings, read_tables
from pytest_imgedit.core.images import Base64Image
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.protocols.loading import load_protocol

MODELS = """\
diffusion_model: {params: {model_name: Qwen/Qwen-Image-Edit}}
reward_model: {params: {model_name: Qwen/Qwen3-VL-30B-A3B-Instruct}}
"""
PROMPTS = (
    MODELS
    + r"""
prompts:
  物理:
    system_prompt: |
      Grade 物理. {% raw %} {# no #} """
    + '"""'
    + r""" \n {{ 7 * 7 }}
    user_prompt_template: |
      指令: {edit_instruction}; was: {original_description_en}; right: {rationale_short}
      Reply {{"score": 7}}
  社会:
    user_prompt: 'Reply {"score": 1} to {edit_instruction} {unknown} {{ 7 * 7 }}'
"""
)
PAIR = EditPair(
    "id", "physics", "让它{{ 1 }}", Base64Image(""), description="杯子", reference_text="碎了"
)


@pytest.fixture
def imported(tmp_path, monkeypatch, capsys):
    """Import a config; return its settings and the lines."""
    monkeypatch.chdir(tmp_path)

    def run(text: str):
        (tmp_path / "config.yaml").write_text(text)
        assert main(["import", "config.yaml"]) == 0
        settings = make_settings(read_tables(tmp_path / "imgedit.toml"))
        return settings, capsys.readouterr().out.splitlines()

    return run


def texts(call) -> str:
    return "".join(text if kind == "text" else f"<{text}>" for kind, text in call.parts)


def test_prompts_are_kept_by_category_as_they_are(imported):
    settings, lines = imported(PROMPTS)
    assert any(
        line.startswith("config.yaml:6: prompts.物理.system_prompt: protocols.own-prompts = ")
        for line in lines
    )
    protocol = load_protocol(settings)
    (physics,) = protocol.calls(PAIR)
    assert physics.system.strip() == ('Grade 物理. {% raw %} {# no #} """ \\n {{ 7 * 7 }}')
    assert texts(physics).splitlines() == [
        *("Source image:", "<source>", "Edited image:", "<edited>"),
        "指令: 让它{{ 1 }}; was: 杯子; right: 碎了",
        'Reply {"score": 7}',
    ]
    (social,) = protocol.calls(replace(PAIR, category="social"))
    assert texts(social).strip().endswith('Reply {"score": 1} to 让它{{ 1 }} {unknown} {{ 7 * 7 }}')
    assert "plausible" in social.system
    (causal,) = protocol.calls(replace(PAIR, category="causal"))
    assert "Start from 5.0" in texts(causal)


def test_prompts_without_a_category_are_for_all(imported):
    settings, _ = imported(MODELS + "prompts: {system_prompt: All., user_prompt: 'Do {category}'}")
    (call,) = load_protocol(settings).calls(PAIR)
    assert (call.system, texts(call).splitlines()[-1]) == ("All.", "Do physics")


@pytest.mark.parametrize(
    "text", ["", "{", "}", "{}", "{0}", "{{", "{edit_instruction!r}", "a\tb", "\x1b\x7f"]
)
def test_odd_prompts_are_text(imported, text):
    settings, _ = imported(MODELS + f"prompts: {{物理: {{user_prompt: {json.dumps(text)}}}}}")
    (call,) = load_protocol(settings).calls(PAIR)
    assert texts(call).strip().endswith(f"<edited>\n{text}".strip())


def test_a_text_places_no_image_of_its_own(imported):
    settings, _ = imported(MODELS + r'prompts: {user_prompt: "a\0source\0b"}')
    (call,) = load_protocol(settings).calls(PAIR)
    assert texts(call).strip().endswith("asourceb")


def test_what_is_no_prompt_is_named(imported):
    _, lines = imported(
        MODELS + "prompts: {物理: {temperature: 1, system: , user: a, user_prompt: b}}"
    )
    text = "\n".join(lines)
    assert "prompts.物理.temperature: no counterpart: not known here, expected one of:" in text
    assert "prompts.物理.system: no counterpart: it has no value" in text
    assert "prompts.物理.user_prompt: no counterpart: 物理 has a user prompt already" in text


def test_a_file_of_prompts_that_is_there_stays(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(PROMPTS)
    (tmp_path / "own-prompts.toml").write_text("mine")
    assert main(["import", "config.yaml"]) == 4
    assert "own-prompts.toml: is there already" in capsys.readouterr().err
    assert not (tmp_path / "imgedit.toml").exists()


@pytest.mark.parametrize(
    ("size", "keys"),
    [
        ("1024", {"area": 1024**2}),
        ("[1024, 768]", {"width": 1024, "height": 768}),
        ("1024x768", {"width": 1024, "height": 768}),
        ("large", {}),
        ("[1, 2, 3]", {}),
    ],
)
def test_a_size_becomes_an_area_or_two_sides(imported, size, keys):
    settings, lines = imported(
        f"{MODELS}benchmark: {{a: 1}}\n".replace("Edit}", f"Edit, image_size: {size}}}")
    )
    assert settings.editor.params == keys
    assert any("image_size: no counterpart" in line for line in lines) == (not keys)


@pytest.mark.parametrize(
    ("model", "taken"),
    [
        ("Qwen/Qwen-Image-Edit", False),
        ("black-forest-labs/FLUX.1-Kontext-dev", True),
        ("/checkpoints/mine", True),
    ],
)
def test_a_batch_size_is_left_out_where_edits_are_made_one_by_one(imported, model, taken):
    text = f"diffusion_model: {{params: {{model_name: {model}, batch_size: 2}}}}"
    settings, lines = imported(text)
    assert settings.editor.batch_size == (2 if taken else "auto")
    reason = "no counterpart: QwenImageEditPipeline edits one by one: it pads"
    assert any(reason in line for line in lines) != taken


def test_a_name_that_the_hub_never_had_is_replaced_and_said(imported):
    settings, lines = imported(MODELS.replace("30B-A3B", "30B"))
    assert settings.judge.spec == "qwen-vl:Qwen/Qwen3-VL-30B-A3B-Instruct"
    assert any("(the hub has no Qwen/Qwen3-VL-30B-Instruct)" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Qwen/Qwen-Image-Edit", ""),
        ("Qwen/Qwen-Image-Edit@main", ""),
        ("Qwen/Qwen3-VL-8B-Thinking", ""),
        ("me/Qwen3-VL-9B-Instruct", ""),
        ("/data/Qwen3-VL-9B-Instruct", ""),
        (
            "Qwen/Qwen3-VL-9B-Instruct",
            "no name known here; did you mean 'Qwen/Qwen3-VL-",
        ),
    ],
)
def test_a_name_near_to_one_of_the_hub_is_doubted(name, line):
    assert hub_names.remark(name).startswith(line)
    assert bool(hub_names.remark(name)) == bool(line)


def test_every_name_that_is_wrong_has_a_right_one():
    assert set(hub_names.WRONG.values()) <= set(hub_names.NAMES)
    assert not set(hub_names.WRONG) & set(hub_names.NAMES)


def test_a_template_of_format_and_one_of_replacements():
    assert own_prompts.template('{edit_instruction} {{"a": 1}}') == (
        "{{ instruction }} {{ '{' }}\"a\": 1}"
    )
    assert own_prompts.template('{edit_instruction} {"a": 1}') == (
        "{{ instruction }} {{ '{' }}\"a\": 1}"
    )


CLASS = 'diffusion_model: {class_path: "own.editors.Mine", params: {num_inference_steps: 4}}\n'
JUDGE = "reward_model: {params: {model_name: Qwen/Qwen3-VL-8B-Instruct}}\n"


@pytest.mark.parametrize(
    ("text", "specs", "line"),
    [
        (
            CLASS + JUDGE,
            ("own.editors:Mine", "qwen-vl:Qwen/Qwen3-VL-8B-Instruct"),
            'config.yaml:1: diffusion_model.class_path: editor.spec = "own.editors:Mine" '
            "(rewrite this class: docs/models.md)",
        ),
        (
            "benchmark: {categories: [物理]}",
            ("name-a-model", "name-a-model"),
            'config.yaml: reward_model: judge.spec = "name-a-model" '
            "(no model_name: the run ends until judge.spec names a model)",
        ),
    ],
)
def test_a_model_without_a_name_is_never_left_open(imported, text, specs, line):
    settings, lines = imported(text)
    assert (settings.editor.spec, settings.judge.spec) == specs
    assert line in lines
    places = [line.partition(": ")[2].partition(": ")[0] for line in lines]
    assert places.count("diffusion_model.class_path") <= 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (CLASS, "*theirs.toml:*: editor 'own.editors:Mine': no module 'own.editors' *"),
        ("benchmark: {a: 1}", "*theirs.toml:*: unknown editor 'name-a-model', expected one of *"),
    ],
)
def test_a_run_of_a_config_without_a_model_ends_at_once(bench, monkeypatch, text, line):
    monkeypatch.chdir(bench.path)
    (bench.path / "config.yaml").write_text(text)
    assert main(["import", "config.yaml", "--to=theirs.toml"]) == 0
    bench.refuses(line, "--imgedit-config=theirs.toml", "--imgedit-suite=scenes")


def test_a_class_of_theirs_is_refused_as_it_is(bench, monkeypatch):
    monkeypatch.chdir(bench.path)
    (bench.path / "their_models.py").write_text(
        "class Mine:\n"
        "    def __init__(self, config): pass\n"
        "    def edit_image(self, image, instruction): return image\n"
    )
    (bench.path / "config.yaml").write_text(
        "diffusion_model: {class_path: their_models.Mine}\n" + JUDGE
    )
    assert main(["import", "config.yaml", "--to=theirs.toml"]) == 0
    options = ("--imgedit-config=theirs.toml", "--imgedit-suite=scenes", "--imgedit-judge=none")
    result = bench.run(*options)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *their_models:Mine*"])
