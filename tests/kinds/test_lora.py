"""LoRA adapters: used whole or refused, part of the key, and exchanged without loading the base
again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from later import Later
from PIL import Image
from traced_blocks import trace_blocks

from pytest_imgedit.core.errors import SettingError, SetupError
from pytest_imgedit.core.images import encode_png
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.identity import identify
from pytest_imgedit.kinds.qwen_vl import QwenVLJudge
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.workers.process import JobLoop

torch = Later("torch")
safetensors = Later("safetensors.torch")
diffusers = Later("diffusers")
transformers = Later("transformers")
loading = Later("pytest_imgedit.kinds.compute.pipeline")
acceleration = Later("pytest_imgedit.kinds.compute.acceleration")
peft = Later("peft")

pytestmark = pytest.mark.skipif(not find_spec("peft"), reason="peft is not installed")

PHOTO = Image.linear_gradient("L").convert("RGB").resize((64, 64))


@pytest.fixture(scope="module")
def model(tiny):
    return tiny("instruct-pix2pix")


@pytest.fixture(scope="module")
def loras(model, tmp_path_factory):
    """Two adapters of a pipeline's UNet, as diffusers saves them."""
    folder, paths = tmp_path_factory.mktemp("loras"), []
    for seed in (1, 2):
        pipeline = diffusers.StableDiffusionInstructPix2PixPipeline.from_pretrained(model)
        torch.manual_seed(seed)
        config = peft.LoraConfig(
            r=4, target_modules=["to_q", "to_k", "to_v"], init_lora_weights=False
        )
        pipeline.unet.add_adapter(config)
        for name, weight in pipeline.unet.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(weight, std=0.5)
        pipeline.save_lora_weights(
            folder / str(seed),
            unet_lora_layers=peft.utils.get_peft_model_state_dict(pipeline.unet),
            weight_name="lora.safetensors",
        )
        paths.append(str(folder / str(seed) / "lora.safetensors"))
    return paths


def edited(editor):
    request = EditRequest("a", "physics", "make it snow", PHOTO, 5)
    return np.asarray(editor.edit(request), int)


def made(model, *loras):
    return DiffusersEditor(str(model), device="cpu", num_inference_steps=2, loras=list(loras))


def test_adapters_change_edits_by_their_weights(model, loras):
    plain = edited(made(model))
    one, two = ({"path": path} for path in loras)
    assert np.abs(edited(made(model, one)) - plain).max() > 2
    assert np.abs(edited(made(model, {**one, "weight": 0.0})) - plain).max() <= 1
    both = edited(made(model, one, {**two, "name": "second"}))
    assert np.abs(both - edited(made(model, one))).max() > 2


@pytest.mark.full
def test_another_adapter_is_taken_without_loading_the_base_again(model, loras, monkeypatch):
    loaded = []
    load = loading.load_pipeline
    monkeypatch.setattr(
        "pytest_imgedit.kinds.compute.pipeline.load_pipeline",
        lambda *given, **named: loaded.append(given) or load(*given, **named),
    )
    target = make_model("editor", f"diffusers:{model}", {}).target
    worker, images = JobLoop(lambda message: None, sys.stderr), []
    for own in ([loras[0]], [loras[1]], [], [loras[0]]):
        params = {"num_inference_steps": 2, "loras": [{"path": path} for path in own]}
        named = {name: getattr(target, name) for name in ("module", "attribute", "argument")}
        told = {
            "device": "cpu",
            "libraries": [],
            "unused": [],
            "is_served": False,
            "may_be_blank": False,
            "batch_size": 1,
            "jobs": 1,
        }
        worker.prepare({"target": named, "params": params, **told})
        worker.load()
        asked = {
            "pair_id": "a",
            "category": "c",
            "instruction": "x",
            "reference": None,
            "seed": 3,
            "further": (),
        }
        request = worker.read_ahead(
            {"op": "edit", "edits": [{**asked, "source": encode_png(PHOTO)}]}
        )
        images.append(worker.edit(request)()["edits"][0]["image"])
    assert len(loaded) == 1
    assert images[0] == images[3]
    assert len(set(images)) == 3


@pytest.mark.parametrize("verbosity", [logging.WARNING, logging.ERROR])
def test_tensors_that_fit_no_network_are_refused(model, loras, tmp_path, verbosity, monkeypatch):
    monkeypatch.setattr(logging.getLogger("diffusers"), "level", verbosity)
    tensors = safetensors.load_file(loras[0])
    name = next(iter(tensors))
    for path, change in (
        ("renamed", {name.replace("to_", "to_other_"): tensors[name]}),
        ("foreign", {"transformer.blocks.0.lora_A.weight": tensors[name]}),
        ("further", {**tensors, "transformer.blocks.0.lora_A.weight": tensors[name].clone()}),
    ):
        safetensors.save_file(
            {**{n: t for n, t in tensors.items() if n != name and path == "renamed"}, **change},
            tmp_path / path,
        )
        file = (tmp_path / path).rename(tmp_path / f"{path}.safetensors")
        with pytest.raises(SetupError, match=r"editor\.loras: "):
            made(model, {"path": str(file)})


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (
            [{"path": "gone.safetensors"}],
            "loras gone.safetensors: no such file or folder, expected an adapter",
        ),
        ([{"path": "out/checkpoint-9"}], "out/checkpoint-9: no such file or folder, expected an"),
        ([{"path": "~/lora"}], "~/lora: no such file or folder (~ is not expanded), expected an"),
        ([{"path": __file__}], "no weights, expected a file of safetensors or the folder of an"),
        ([{"weight": 1.0}], "loras"),
        (
            [{"path": "x.safetensors", "wieght": 1}],
            "loras.0.wieght no such key, expected one of path, weight, name; did you mean 'weight'?",
        ),
        ([{"path": "a\0.safetensors"}], "no such file or folder, expected an adapter"),
        ("x.safetensors", "loras"),
    ],
)
def test_adapters_are_looked_at_before_anything_loads(model, own, reason):
    with pytest.raises(SettingError) as caught:
        make_model("editor", f"diffusers:{model}", {"loras": own}).check(Site())
    assert reason in f"{caught.value.key} {caught.value}"


def test_adapters_are_in_the_key_by_content_and_weight(model, loras, tmp_path):
    def digest(*own):
        editor = make_model("editor", f"diffusers:{model}", {"loras": list(own)})
        return identify(editor, tmp_path / "cache.json").digest

    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(open(loras[0], "rb").read())  # noqa: PTH123, SIM115
    base, one = digest(), digest({"path": loras[0]})
    assert digest({"path": str(copy), "weight": 1, "name": "other"}) == one != base
    assert (
        len({base, one, digest({"path": loras[0], "weight": 0.5}), digest({"path": loras[1]})}) == 4
    )


def test_results_record_what_the_file_of_an_adapter_holds(model, loras, tmp_path):
    path = tmp_path / "last.safetensors"

    def files():
        editor = make_model("editor", f"diffusers:{model}", {"loras": [{"path": str(path)}]})
        return identify(editor, tmp_path / "cache.json").told["files"]

    for lora in loras[:2]:
        shutil.copy(lora, path)
        assert files() == {str(path): hashlib.sha256(path.read_bytes()).hexdigest()[:12]}


@pytest.fixture(scope="module")
def adapter(tiny, tmp_path_factory):
    """An adapter of a judge's language model, as peft saves it."""
    model = transformers.AutoModelForImageTextToText.from_pretrained(tiny("judge-qwen3-vl"))
    torch.manual_seed(1)
    config = peft.LoraConfig(
        r=4, target_modules=r".*language_model.*\.(q|v)_proj", init_lora_weights=False
    )
    tuned = peft.get_peft_model(model, config)
    for name, weight in tuned.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.5)
    folder = tmp_path_factory.mktemp("adapter")
    tuned.save_pretrained(folder)
    return folder


def test_a_judges_adapter_is_merged(tiny, adapter):
    plain = QwenVLJudge(str(tiny("judge-qwen3-vl")), device="cpu")
    tuned = QwenVLJudge(str(tiny("judge-qwen3-vl")), device="cpu", adapter=str(adapter))
    tuned.self_check()
    weights, changed = plain.model.state_dict(), tuned.model.state_dict()
    assert weights.keys() == changed.keys()
    assert {
        name.rsplit(".", 2)[-2] for name in weights if not torch.equal(weights[name], changed[name])
    } == {
        "q_proj",
        "v_proj",
    }


def test_a_judges_adapter_is_in_the_key_and_looked_at_before_anything_loads(
    tiny, adapter, tmp_path
):
    spec, cache = f"qwen-vl:{tiny('judge-qwen3-vl')}", tmp_path / "cache.json"
    plain, tuned = (make_model("judge", spec, params) for params in ({}, {"adapter": str(adapter)}))
    with_adapter = identify(tuned, cache)
    assert with_adapter.digest != identify(plain, cache).digest
    (adapter / "README.md").write_text("another")
    assert identify(tuned, cache).digest == with_adapter.digest
    config = adapter / "adapter_config.json"
    before = config.read_text()
    config.write_text(json.dumps({**json.loads(before), "lora_alpha": 99}))
    assert identify(tuned, cache).digest != with_adapter.digest
    config.write_text(before)
    with pytest.raises(SettingError, match=r"no adapter_config\.json") as caught:
        make_model("judge", spec, {"adapter": str(tmp_path)}).check(Site())
    assert caught.value.key == "adapter"


@pytest.mark.full
def test_a_compiled_editor_takes_other_adapters_as_one_that_loads_them_from_the_start(
    model, loras, monkeypatch
):
    """Takes ten seconds of CPU time: PyTorch traces the blocks three times."""
    trace_blocks(monkeypatch, diffusers.UNet2DConditionModel)

    def compiled(path):
        acceleration.compile_anew()
        options = {"num_inference_steps": 2, "compile": True}
        editor = DiffusersEditor(str(model), device="cpu", loras=[{"path": path}], **options)
        assert editor.compiled
        return editor

    kept = compiled(loras[0])
    first = kept.self_check()
    kept.take_loras([{"path": loras[1]}])
    second = kept.self_check()
    image = edited(kept)
    fresh = compiled(loras[1])
    assert first != second == fresh.self_check()
    assert np.array_equal(image, edited(fresh))
    acceleration.compile_anew()
