"""What decides an edit or a verdict changes its key, alone; what does not decide it changes
nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import time
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from checkpoint_files import pipeline, tensors

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.environments import key
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.images import Base64Image
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import Grammar
from pytest_imgedit.core.requests import Preparation
from pytest_imgedit.kinds.base import Where
from pytest_imgedit.kinds.identity import identify
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.kinds.user_code import COMPUTE, is_unchanged, loaded_code, source_closure
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.run.planned_works import edit_recipe
from pytest_imgedit.run.questions import Ask, reply_recipe
from pytest_imgedit.run.work import Judgement, Work
from pytest_imgedit.scenes import WEIGHTS

PAIR = EditPair("a", "physics", "make it snow", Base64Image(""))


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "store" / "fingerprints.json"


@pytest.fixture
def model(tmp_path):
    return pipeline(tmp_path / "model")


def of(folder, cache, device="cpu", gpus=1, **params):
    return identify(make_model("editor", f"diffusers:{folder}", params, gpus), cache, Where(device))


def _write(path):
    path.parent.mkdir(exist_ok=True)
    path.write_text("another")


CHANGES = {
    "weights": lambda folder: (folder / "unet/diffusion_pytorch_model.safetensors").write_bytes(
        tensors(b"1235")
    ),
    "config": lambda folder: (folder / "unet/config.json").write_text("{ }"),
    "tokenizer": lambda folder: (folder / "tokenizer/tokenizer.json").write_text("[]"),
    "index": lambda folder: (folder / "model_index.json").write_text(
        (folder / "model_index.json").read_text().replace('"P"', '"Q"')
    ),
    "another chat template": lambda folder: _write(
        folder / "tokenizer/additional_chat_templates/default.jinja"
    ),
    "tokenizer of another version": lambda folder: _write(folder / "tokenizer/tokenizer.5.0.json"),
    "new file that is loaded": lambda folder: (folder / "tokenizer/merges.txt").write_text("a b"),
}
NO_CHANGES = {
    "README": lambda folder: (folder / "README.md").write_text("another"),
    "training state": lambda folder: (folder / "optimizer/state.safetensors").write_bytes(b"yy"),
    "arguments": lambda folder: (folder / "unet/training_args.json").write_text("{}"),
    "time": lambda folder: os.utime(folder / "unet/config.json", (1, 1)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_file_that_is_loaded_decides(model, cache, name):
    before = of(model, cache)
    CHANGES[name](model)
    assert of(model, cache).digest != before.digest


@pytest.mark.parametrize("name", NO_CHANGES)
def test_what_lies_beside_does_not_decide(model, cache, name):
    before = of(model, cache)
    NO_CHANGES[name](model)
    assert of(model, cache).digest == before.digest


def test_equal_content_elsewhere_is_the_same(model, cache, tmp_path):
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "unet").symlink_to(model / "unet")
    (other / "tokenizer").symlink_to(model / "tokenizer")
    (other / "model_index.json").write_bytes((model / "model_index.json").read_bytes())
    assert of(other, cache) == of(model, cache)


def test_a_component_that_is_relinked_decides(model, cache, tmp_path):
    """The usual layout of training checkpoints: unchanged components are links, and so is the
    trained one.
    """
    for step in ("step1000", "step2000"):
        trained = tmp_path / step
        trained.mkdir()
        (trained / "config.json").write_text("{}")
        (trained / "diffusion_pytorch_model.safetensors").write_bytes(tensors(step.encode()))
    for name in (model / "unet").iterdir():
        name.unlink()
    (model / "unet").rmdir()
    (model / "unet").symlink_to(tmp_path / "step1000")
    before = of(model, cache)
    (model / "unet").unlink()
    (model / "unet").symlink_to(tmp_path / "step2000")
    assert of(model, cache).digest != before.digest


def test_a_file_that_is_overwritten_with_its_size_and_time_kept_decides(model, cache):
    weights = model / "unet/diffusion_pytorch_model.safetensors"
    before, status = of(model, cache), weights.stat()
    time.sleep(0.01)
    weights.write_bytes(tensors(b"4321"))
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert of(model, cache).digest != before.digest


def test_damaged_digest_cache_costs_only_time(model, cache):
    before = of(model, cache)
    cache.write_text(cache.read_text()[:20])
    assert of(model, cache) == before


@pytest.mark.parametrize(
    ("params", "same"),
    [
        ({"true_cfg_scale": 4}, {"true_cfg_scale": 4.0}),
        ({"true_cfg_scale": 4.0}, {}),
        ({"negative_prompt": " "}, {}),
        ({"num_inference_steps": 50}, {}),
        ({"dtype": "float32"}, {"dtype": "auto"}),
        ({"dtype": "float32"}, {}),
        ({"compile": "auto", "offload": "none", "deterministic": True}, {}),
        ({"gpus": 2, "shard": {"param_dtype": "float32"}}, {}),
        (
            {"gpus": 2},
            {"gpus": 4, "shard": {"strategy": "grad_op"}},
        ),  # all of them hold all of an image
    ],
)
def test_defaults_that_are_written_out_are_the_same(tiny, cache, params, same):
    folder = tiny("qwen-image-edit")
    assert of(folder, cache, **params).digest == of(folder, cache, **same).digest


@pytest.mark.parametrize(
    "params",
    [
        {"true_cfg_scale": 4.5},
        {"negative_prompt": "blurry"},
        {"num_inference_steps": 49},
        {"dtype": "bfloat16"},
        {"compile": True},
        {"deterministic": False},
        {"attention_backend": "native"},
        {"gpus": 2, "shard": {"param_dtype": "bfloat16"}},
        {"gpus": 2, "shard": {"strategy": "context"}},
    ],
)
def test_each_parameter_that_decides_changes_the_key(tiny, cache, params):
    folder = tiny("qwen-image-edit")
    assert of(folder, cache, **params).digest != of(folder, cache).digest


def test_ranks_that_compute_parts_of_an_image_count(tiny, cache):
    folder, shard = tiny("qwen-image-edit"), {"strategy": "context"}
    assert (
        of(folder, cache, gpus=2, shard=shard).digest
        != of(folder, cache, gpus=4, shard=shard).digest
    )


@pytest.mark.parametrize(
    ("backend", "package"),
    [
        ("_flash_3", "flash-attn-3"),
        ("sage_varlen", "sageattention"),
        ("xformers", "xformers"),
        ("sage_hub", "kernels"),
    ],
)
def test_versions_of_attention_kernels_count_where_they_compute(tiny, cache, backend, package):
    spec = f"diffusers:{tiny('qwen-image-edit')}"
    there = {"torch": "2.9.0", package: "1.2", "rich": "14"}
    where = Where(
        "cuda", versions=lambda names: {name: there[name] for name in names if name in there}
    )

    def versions(backend):
        return identify(
            make_model("editor", spec, {"attention_backend": backend}), cache, where
        ).here.versions

    assert versions(backend) == {"torch": "2.9.0", package: "1.2"}
    assert versions("_native_flash") == {"torch": "2.9.0"}


def test_a_text_that_happens_to_name_a_file_is_a_text(tiny, cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blurry").write_text("x")
    (tmp_path / "dark").write_text("x")
    folder = tiny("qwen-image-edit")
    one, other = (of(folder, cache, negative_prompt=text) for text in ("blurry", "dark"))
    assert one.digest != other.digest
    assert one.recipe["params"] == {"negative_prompt": "blurry"}


def test_dtype_counts_as_it_is_resolved(model, cache):
    assert of(model, cache, "cuda").digest == of(model, cache, "cuda", dtype="bfloat16").digest
    assert of(model, cache, "cuda").digest != of(model, cache, "cpu").digest
    assert of(model, cache, "cuda", dtype="float32").digest == of(model, cache, "cpu").digest


def test_a_judge_is_the_same_under_another_path(cache, tmp_path):
    (tmp_path / "judge").symlink_to(WEIGHTS / "judge")
    embedded = identify(make_model("judge", "scenes", {}), cache)
    assert (
        identify(make_model("judge", f"qwen-vl:{tmp_path / 'judge'}", {}), cache).digest
        == embedded.digest
    )


def test_an_adapter_beside_the_weights_is_refused(model, cache):
    """transformers would add it to the weights, and no key would know."""
    (model / "unet" / "adapter_config.json").write_text("{}")
    with pytest.raises(
        UsageError, match=r"adapter_config\.json: an adapter beside a model's weights"
    ):
        of(model, cache)


def test_a_file_that_is_named_like_a_digest_is_read(model, cache, tmp_path):
    weights, named = model / "unet/diffusion_pytorch_model.safetensors", tmp_path / ("ab" * 32)
    named.write_bytes(tensors(b"1"))
    weights.unlink()
    weights.symlink_to(named)
    before = of(model, cache)
    named.write_bytes(tensors(b"2"))
    assert of(model, cache).digest != before.digest


def test_how_a_judge_decodes_is_part_of_it(cache):
    spread = identify(make_model("judge", "scenes", {}, gpus=2), cache)
    assert spread.digest != identify(make_model("judge", "scenes", {}), cache).digest


def test_exact_looks_at_the_gpu(cache):
    here = identify(make_model("judge", "scenes", {}), cache, Where("cuda", "NVIDIA H200")).here
    assert not here.model_copy(update={"gpu": "NVIDIA A100"}).serves(here, "exact")
    assert here.model_copy(update={"gpu": "NVIDIA A100"}).serves(here, "compatible")


# Classes of the user's own


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose class is re-exported, with a module behind it and one that a function
    imports.
    """
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    name = f"mypkg{os.urandom(4).hex()}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("from .core import Ed\n")
    (folder / "core.py").write_text(
        "import numpy\nfrom . import helpers\nclass Ed:\n"
        "    def __init__(self, *, device, strength=3, loras=()): ...\n"
        "    def edit(self, request):\n        from .late import later\n"
    )
    (folder / "helpers.py").write_text("x = 1\n")
    (folder / "late.py").write_text("later = 1\n")
    (folder / "unused.py").write_text("y = 1\n")
    return folder


def own(package, cache, **params):
    return identify(make_model("editor", f"{package.name}:Ed", params), cache)


@pytest.mark.parametrize("module", ["__init__", "core", "helpers", "late"])
def test_each_module_behind_a_class_decides(package, cache, module):
    before = own(package, cache)
    path = package / f"{module}.py"
    path.write_text(path.read_text() + "# changed\n")
    assert own(package, cache).digest != before.digest


@pytest.mark.parametrize("name", ["trigger_token", "api_key", "password"])
def test_a_parameter_that_looks_like_a_secret_decides_and_is_not_kept(package, cache, name):
    one, other = (own(package, cache, **{name: f"value-{number}-of-it"}) for number in (1, 2))
    assert one.digest != other.digest
    assert one.recipe["params"] == other.recipe["params"] == {name: "***"}


def test_modules_of_any_environment_are_third_party(package, cache, tmp_path, monkeypatch):
    elsewhere = tmp_path / "env" / "site-packages" / "somewhere"
    elsewhere.mkdir(parents=True)
    (elsewhere / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(elsewhere.parent)
    (package / "helpers.py").write_text("import somewhere\n")
    files, packages = source_closure(package.name)
    assert "somewhere" in packages
    assert not any(name.startswith("somewhere") for name in files)


def test_folders_that_link_to_each_other_are_walked_once(package, cache, tmp_path):
    for name in "abcdef":
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "file").write_text(name)
    for name in "abcdef":
        for other in "abcdef":
            if other != name:
                (tmp_path / "data" / name / other).symlink_to(tmp_path / "data" / other)
    before = own(package, cache, checkpoint="data")
    (tmp_path / "data" / "f" / "file").write_text("another")
    assert own(package, cache, checkpoint="data").digest != before.digest


def test_a_module_that_is_not_imported_does_not_decide(package, cache):
    before = own(package, cache)
    (package / "unused.py").write_text("y = 2\n")
    assert own(package, cache) == before


def test_files_that_parameters_name_decide_wherever_they_lie(package, cache, tmp_path):
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / f"{name}.safetensors").write_text(text)
    one, same, other = (
        own(package, cache, loras=[{"path": f"{name}.safetensors"}]) for name in "abc"
    )
    assert one.digest == same.digest != other.digest
    (tmp_path / "a.safetensors").write_text("3")
    assert own(package, cache, loras=[{"path": "a.safetensors"}]).digest not in (
        one.digest,
        other.digest,
    )


@pytest.mark.parametrize("params", [{}, {"weights": "w.txt"}], ids=["default", "written-out"])
@pytest.mark.parametrize(
    "core",
    [
        "class Ed:\n    def __init__(self, *, device, weights='w.txt'): ...\n",
        "class Base:\n    def __init__(self, *, device, weights='w.txt'): ...\nclass Ed(Base): "
        "...\n",
    ],
    ids=["own", "inherited"],
)
def test_files_that_defaults_name_decide_too(package, cache, tmp_path, core, params):
    (package / "core.py").write_text(core)
    (tmp_path / "w.txt").write_text("10")
    before = own(package, cache, **params)
    assert (
        own(package, cache).digest == own(package, cache, weights="w.txt").digest == before.digest
    )
    (tmp_path / "w.txt").write_text("90")
    assert own(package, cache, **params).digest != before.digest
    assert list(own(package, cache, **params).files) == ["w.txt"]  # which other hosts must have too
    (tmp_path / "other.txt").write_text("10")
    assert own(package, cache, weights="other.txt").digest == before.digest


def test_folders_that_parameters_name_are_walked_through_links_once(package, cache, tmp_path):
    data, linked = tmp_path / "data", tmp_path / "linked"
    data.mkdir(), linked.mkdir()
    (linked / "w.bin").write_text("1")
    (data / "inner").symlink_to(linked)
    (data / "loop").symlink_to(data)
    before = own(package, cache, checkpoint=str(data))
    assert list(before.files) == [str(data / "inner" / "w.bin")]
    assert own(package, cache, checkpoint=str(data)) == before
    (linked / "w.bin").write_text("2")
    assert own(package, cache, checkpoint=str(data)).digest != before.digest


@pytest.mark.parametrize("name", ["/", ".", "..", "x\0y", "x" * 5000])
def test_parameters_that_only_look_like_paths_are_not_read(package, cache, name):
    assert own(package, cache, sep=name).recipe["params"] == {"sep": name}


def test_defaults_of_a_class_that_are_written_out_are_the_same(package, cache):
    core = package / "core.py"
    (package / "__init__.py").write_text(core.read_text())
    assert own(package, cache, strength=3.0).digest == own(package, cache).digest
    assert own(package, cache, strength=4).digest != own(package, cache).digest


def test_a_class_counts_with_the_versions_of_what_it_imports(package, cache):
    assert set(own(package, cache).here.versions) == {"numpy"}
    _, packages = source_closure(package.name)
    assert "numpy" in packages


@pytest.mark.parametrize(
    "line", ["import accelerate", "import torch", *(f"import {name}" for name in sorted(COMPUTE))]
)
@pytest.mark.everyday
def test_what_computes_with_torch_counts_with_the_versions_of_all_behind_it(package, cache, line):
    pytest.importorskip("accelerate")
    assert find_spec(line.removeprefix("import "))
    (package / "core.py").write_text(f"{line}\nclass Ed: ...\n")
    assert {"torch", "diffusers", "transformers"} <= set(own(package, cache).here.versions)


def test_modules_are_unchanged_until_their_source_changes(package):
    path = package / "late.py"
    code = {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}
    assert is_unchanged(code)
    path.write_text("later = 2\n")
    assert not is_unchanged(code)
    path.unlink()
    assert not is_unchanged(code)


def test_a_module_whose_path_is_not_utf8_is_found_again(tmp_path, monkeypatch):
    folder, name = tmp_path / "caf\udce9", f"module{os.urandom(4).hex()}"
    folder.mkdir()
    (folder / f"{name}.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(folder)
    importlib.import_module(name)
    code = {path: sha256 for path, sha256 in loaded_code().items() if name in path}
    assert [path.encode() for path in code] == [f"{tmp_path.as_uri()}/caf%E9/{name}.py".encode()]
    assert is_unchanged(code)
    (folder / f"{name}.py").write_text("x = 2\n")
    assert not is_unchanged(code)


# What is asked


def test_each_input_of_an_edit_changes_its_key(model, package, cache):
    editor, seer = of(model, cache), own(package, cache)
    base = {"pair": PAIR, "seed": 1, "source": "s", "shown": None}

    def made(identity, **changes):
        return key(edit_recipe(identity, **{**base, **changes}))

    for changes in (
        {"pair": replace(PAIR, instruction="make it rain")},
        {"seed": 2},
        {"source": "t"},
        {"shown": "r"},
    ):
        assert made(editor, **changes) != made(editor)
    assert made(seer) != made(editor)
    relabelled = {"pair": replace(PAIR, category="social")}
    assert made(editor, **relabelled) == made(editor)  # it is not told the category
    assert made(seer, **relabelled) != made(seer)
    for changes in (
        {"difficulty": "hard"},
        {"tags": ("x",)},
        {"description": "x"},
        {"reference_text": "x"},
    ):
        assert made(seer, pair=replace(PAIR, **changes)) == made(seer)


def test_sources_their_order_and_the_edited_one_decide_an_edit(model, cache):
    editor = of(model, cache)

    def made(*further, edited=1, **changes):
        pair = replace(PAIR, edited_source=edited)
        base = {"seed": 1, "source": "s", "shown": None, "further": further}
        return edit_recipe(editor, pair, **{**base, **changes})

    assert "further" not in made()
    assert made() == made(edited=1)
    recipes = [
        made(),
        made("a"),
        made("b"),
        made("a", edited=2),
        made("a", "b"),
        made("b", "a"),
        made("a", "b", edited=2),
        made("a", "b", edited=3),
    ]
    assert len({key(recipe) for recipe in recipes}) == len(recipes)
    assert key(made("a", "b", finished="image")) == key(made(finished="image"))


def protocol(name="aspects"):
    return load_protocol(Settings.model_validate({"judge": {"protocol": name}}))


def reply_key(judge, of=None, call=None, repeat=0, perturbation="", **changes):
    """The key of an answer to a call of `aspects` about one edit, with some of its inputs
    changed.
    """
    base = {"source": SimpleNamespace(sha256="s"), "reference": SimpleNamespace(sha256="r")}
    work = Work(**{"pair": PAIR, "seed": 1, **base, "edit": SimpleNamespace(blob="e"), **changes})
    asked = (of or protocol()).calls(work.pair)[0]
    judgement = Judgement(work, repeat=repeat, perturbation=perturbation)
    ask = Ask(judgement, replace(asked, **(call or {})), failures=1, reminders=["x"])
    return key(reply_recipe(judge, ask))


def test_each_input_of_an_answer_changes_its_key(package, cache):
    judge, seer = identify(make_model("judge", "scenes", {}), cache), own(package, cache)
    for changes in (
        {"source": SimpleNamespace(sha256="t")},
        {"edit": SimpleNamespace(blob="f")},
        {"pair": replace(PAIR, instruction="make it rain")},
        {"pair": replace(PAIR, category="social")},  # whose criteria are in the prompt
        {"repeat": 1, "perturbation": "recompress"},
        {"of": protocol("seeds")},
        {"call": {"system": "x"}},
        {"call": {"preparation": Preparation(codec="jpeg")}},
        {"call": {"max_new_tokens": 99}},
    ):
        assert reply_key(judge, **changes) != reply_key(judge), changes
    longer = identify(make_model("judge", "scenes", {"scoring": "expected"}), cache)
    assert reply_key(longer) != reply_key(judge)
    assert reply_key(seer) != reply_key(judge)
    for changes in ({"pair": replace(PAIR, id="b")}, {"reference": SimpleNamespace(sha256="q")}):
        assert reply_key(seer, **changes) != reply_key(seer), changes


def test_what_a_judge_is_not_told_changes_no_answers_key(cache):
    judge = identify(make_model("judge", "scenes", {}), cache)
    for changes in (
        {"seed": 2},
        {"pair": replace(PAIR, id="b")},
        {"pair": replace(PAIR, tags=("x",), difficulty="hard")},
        {"reference": SimpleNamespace(sha256="q")},  # which this call does not show
        {"call": {"grammar": Grammar("number", ("x",))}},
    ):
        assert reply_key(judge, **changes) == reply_key(judge), changes


def test_a_finished_image_is_all_that_decides_an_edit_of_a_folder(tmp_path, cache):
    folder = identify(make_model("editor", f"folder:{tmp_path}", {}), cache)
    base = {"seed": 0, "source": "s", "shown": None, "finished": "image"}
    first = key(edit_recipe(folder, PAIR, **base))
    social = replace(PAIR, category="social")
    assert key(edit_recipe(folder, social, **{**base, "seed": 1})) == first
    assert key(edit_recipe(folder, PAIR, **{**base, "finished": "other"})) != first


def test_model_that_is_nowhere_is_a_usage_error(cache, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UsageError, match="not a local folder, and not available on the Hub"):
        of("nobody/no-such-model", cache)


def test_recipes_are_plain_json(tiny, cache):
    for identity in (
        of(tiny("instruct-pix2pix"), cache),
        identify(make_model("judge", "scenes", {}), cache),
    ):
        assert json.loads(json.dumps(identity.recipe)) == identity.recipe
