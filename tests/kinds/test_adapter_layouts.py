"""Layouts of LoRA adapters: each changes the layers by scale * B A, or is refused before the base
loads.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from later import Later

from pytest_imgedit.core.errors import SettingError, SetupError
from pytest_imgedit.kinds import adapter_files, adapter_settings
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.identity import identify
from pytest_imgedit.kinds.registry import make_model

torch = Later("torch")
safetensors = Later("safetensors.torch")
diffusers = Later("diffusers")
loading = Later("pytest_imgedit.kinds.compute.pipeline")
lora = Later("pytest_imgedit.kinds.compute.lora")
parameters = Later("pytest_imgedit.kinds.diffusers_parameters")
numpy_files = Later("safetensors.numpy")
peft = Later("peft")

pytestmark = pytest.mark.skipif(not find_spec("peft"), reason="peft is not installed")

QWEN, KONTEXT, PIX2PIX = "qwen-image-edit", "flux-kontext", "instruct-pix2pix"
NETWORK = {QWEN: "transformer", KONTEXT: "transformer", PIX2PIX: "unet"}
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
DIFFUSERS = "pytorch_lora_weights.safetensors"


def random_layers(folder, rank=4, ends=("to_q", "to_k", "to_v", "to_out.0")):
    """Return A and B of each layer of a component with one of these ends, by name."""
    seed = torch.Generator().manual_seed(1)
    layers = {}
    for path in sorted(folder.glob("*.safetensors")):
        for name, weight in safetensors.load_file(path).items():
            layer = name.removesuffix(".weight")
            if name.endswith(".weight") and layer.endswith(ends):
                layers[layer] = (
                    torch.randn(rank, weight.shape[1], generator=seed) * 0.5,
                    torch.randn(weight.shape[0], rank, generator=seed) * 0.5,
                )
    assert layers
    return layers


def deltas(pipeline, component):
    """Return what the adapters of a component add to its weights, by layer."""
    found = {}
    for name, module in getattr(pipeline, component).named_modules():
        if hasattr(module, "get_delta_weight"):
            own = [each for each in module.active_adapters if each in module.lora_A]
            found[name] = sum(module.get_delta_weight(each) for each in own)
    return found


def taken(model, *loras):
    tables = [parameters.LoraParameters.parse(table) for table in loras]
    adapters = lora.read_loras(Path(model), tables)
    pipeline = loading.load_pipeline(Path(model), "cpu", torch.float32)
    lora.use_loras(pipeline, adapters)
    return pipeline


def check(model, *paths):
    loras = [{"path": str(path)} for path in paths]
    make_model("editor", f"diffusers:{model}", {"loras": loras}).check(Site())


def assert_adds(model, path, component, layers, scale):
    """Assert that an adapter adds scale * B A to each of these layers and to no other; they are
    computed in float32, so the order of the factors may cost a rounding.
    """
    check(model, path)
    added = deltas(taken(model, {"path": str(path)}), component)
    assert added.keys() == layers.keys()
    for name, (down, up) in layers.items():
        own = scale(name) if callable(scale) else scale
        torch.testing.assert_close(added[name], own * (up @ down), rtol=1e-5, atol=1e-5)


def saved_by_peft(network, folder, **config):
    """Save an adapter of a network as `PeftModel.save_pretrained` does; return A and B by layer."""
    torch.manual_seed(3)
    tuned = peft.get_peft_model(network, peft.LoraConfig(init_lora_weights=False, **config))
    tuned.save_pretrained(folder)
    tensors = safetensors.load_file(folder / WEIGHTS)
    return layers_in(tensors, "base_model.model.")


def layers_in(tensors, start=""):
    ends = (".lora_A.weight", ".lora_B.weight")
    return {
        name.removeprefix(start).removesuffix(ends[0]): (tensor, tensors[name.replace(*ends)])
        for name, tensor in tensors.items()
        if name.endswith(ends[0])
    }


CONFIGS = {
    "alpha": ({"r": 4, "lora_alpha": 16}, lambda name: 4.0),
    "rslora": ({"r": 4, "lora_alpha": 16, "use_rslora": True}, lambda name: 8.0),
    "patterns": (
        {
            "r": 4,
            "lora_alpha": 16,
            "rank_pattern": {"to_k": 2},
            "alpha_pattern": {"attn.*.to_q": 3},
        },
        lambda name: 8.0 if name.endswith("to_k") else 0.75 if name.endswith("to_q") else 4.0,
    ),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_folder_of_peft_brings_its_scale(tiny, tmp_path, kind):
    config, scale = CONFIGS[kind]
    model = tiny(QWEN)
    network = diffusers.QwenImageTransformer2DModel.from_pretrained(model / "transformer")
    layers = saved_by_peft(
        network, tmp_path, target_modules=["to_q", "to_k", "to_v", "to_out.0"], **config
    )
    assert_adds(model, tmp_path, "transformer", layers, scale)


@pytest.mark.parametrize("name", [KONTEXT, PIX2PIX])
def test_a_folder_of_peft_may_be_of_a_text_encoder(tiny, tmp_path, name):
    from transformers import CLIPTextModel

    model = tiny(name)
    encoder = CLIPTextModel.from_pretrained(model / "text_encoder")
    layers = saved_by_peft(encoder, tmp_path, r=2, lora_alpha=6, target_modules=["q_proj", "fc1"])
    assert_adds(model, tmp_path, "text_encoder", layers, 3.0)
    older = {
        name.replace("base_model.model.", "base_model.model.text_model."): tensor
        for name, tensor in safetensors.load_file(tmp_path / WEIGHTS).items()
    }
    safetensors.save_file(older, tmp_path / WEIGHTS)
    assert_adds(model, tmp_path, "text_encoder", layers, 3.0)


@pytest.mark.parametrize("name", [QWEN, KONTEXT, PIX2PIX])
def test_a_file_of_diffusers_brings_its_scale(tiny, tmp_path, name):
    model, network = tiny(name), NETWORK[name]
    pipeline = loading.load_pipeline(model, "cpu", torch.float32)
    torch.manual_seed(2)
    getattr(pipeline, network).add_adapter(
        peft.LoraConfig(r=4, lora_alpha=2, target_modules=["to_q", "to_v"], init_lora_weights=False)
    )
    tensors = peft.utils.get_peft_model_state_dict(getattr(pipeline, network))
    told = peft.LoraConfig(r=4, lora_alpha=2, target_modules=["to_q", "to_v"]).to_dict()
    told = {key: value for key, value in told.items() if key in ("r", "lora_alpha", "use_rslora")}
    own = {f"{network}_lora_layers": tensors, f"{network}_lora_adapter_metadata": told}
    pipeline.save_lora_weights(tmp_path, **own)
    assert_adds(model, tmp_path, network, layers_in(tensors), 0.5)
    assert_adds(model, tmp_path / DIFFUSERS, network, layers_in(tensors), 0.5)


#: Dialects with the names of modules: how a layer's two tensors and its alpha are called.
DIALECTS = {
    "transformer": ("transformer.{}.lora_A.weight", "transformer.{}.lora_B.weight", None),
    "no prefix": ("{}.lora_A.weight", "{}.lora_B.weight", None),
    "DiffSynth": ("{}.lora_A.default.weight", "{}.lora_B.default.weight", None),
    "ComfyUI": ("diffusion_model.{}.lora_A.weight", "diffusion_model.{}.lora_B.weight", None),
    "Lightning": ("{}.lora_down.weight", "{}.lora_up.weight", "{}.alpha"),
    "alphas": ("transformer.{}.lora_A.weight", "transformer.{}.lora_B.weight", "transformer.{}.alpha"),
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", [QWEN, KONTEXT])
def test_names_of_modules_are_taken_with_their_alphas(tiny, tmp_path, dialect, name):
    down, up, alpha = DIALECTS[dialect]
    model = tiny(name)
    layers = random_layers(model / "transformer")
    tensors = {}
    for layer, (a, b) in layers.items():
        tensors |= {down.format(layer): a, up.format(layer): b}
        if alpha is not None:
            tensors[alpha.format(layer)] = torch.tensor(6.0)
    safetensors.save_file(tensors, tmp_path / "x.safetensors")
    scale = 1.0 if alpha is None else 1.5
    assert_adds(model, tmp_path / "x.safetensors", "transformer", layers, scale)


def kohya(layers, start):
    tensors = {}
    for layer, (a, b) in layers.items():
        name = start + layer.replace(".", "_")
        tensors |= {f"{name}.lora_down.weight": a, f"{name}.lora_up.weight": b}
        tensors[f"{name}.alpha"] = torch.tensor(2.0)
    return tensors


def test_musubis_names_are_converted(tiny, tmp_path):
    model = tiny(QWEN)
    layers = random_layers(model / "transformer")
    safetensors.save_file(kohya(layers, "lora_unet_"), tmp_path / "x.safetensors")
    assert_adds(model, tmp_path, "transformer", layers, 0.5)


def test_kohyas_names_of_stable_diffusion_are_converted(tiny, tmp_path):
    model = tiny(PIX2PIX)
    layers = random_layers(model / "unet", ends=("attn1.to_q", "attn2.to_out.0", "ff.net.2"))
    texts = random_layers(model / "text_encoder", ends=("q_proj", "out_proj", "fc1"))
    written = {f"text_model.{layer}": own for layer, own in texts.items()}
    tensors = kohya(layers, "lora_unet_") | kohya(written, "lora_te_")
    safetensors.save_file(tensors, tmp_path / "x.safetensors")
    assert_adds(model, tmp_path, "unet", layers, 0.5)
    assert_adds(model, tmp_path, "text_encoder", texts, 0.5)


def test_kohyas_names_of_flux_are_converted_with_their_text_encoder(tiny, tmp_path):
    model = tiny(KONTEXT)
    rank, width = 4, 32
    fused = {
        "double_blocks.0.img_attn.qkv": (torch.randn(rank, width), torch.randn(3 * width, rank)),
        "double_blocks.0.img_attn.proj": (torch.randn(rank, width), torch.randn(width, rank)),
    }
    texts = random_layers(model / "text_encoder", ends=("q_proj",))
    written = {f"text_model.{layer}": own for layer, own in texts.items()}
    tensors = kohya(fused, "lora_unet_") | kohya(written, "lora_te1_")
    safetensors.save_file(tensors, tmp_path / "x.safetensors")
    check(model, tmp_path)
    pipeline = taken(model, {"path": str(tmp_path)})
    added = deltas(pipeline, "transformer")
    down, up = fused["double_blocks.0.img_attn.qkv"]
    for part, end in enumerate("qkv"):
        rows = up[part * width : (part + 1) * width]
        torch.testing.assert_close(
            added[f"transformer_blocks.0.attn.to_{end}"], 0.5 * rows @ down, rtol=1e-5, atol=1e-5
        )
    down, up = fused["double_blocks.0.img_attn.proj"]
    torch.testing.assert_close(
        added["transformer_blocks.0.attn.to_out.0"], 0.5 * up @ down, rtol=1e-5, atol=1e-5
    )
    assert len(added) == 4
    added = deltas(pipeline, "text_encoder")
    assert added.keys() == texts.keys()
    for layer, (down, up) in texts.items():
        torch.testing.assert_close(added[layer], 0.5 * up @ down, rtol=1e-5, atol=1e-5)


def test_kohyas_names_for_another_width_are_refused_with_what_failed(tiny, tmp_path):
    """diffusers splits the fused layers of single blocks at the widths of FLUX.1."""
    layers = {"single_blocks.0.linear1": (torch.ones(4, 32), torch.ones(224, 4))}
    path = tmp_path / "x.safetensors"
    safetensors.save_file(kohya(layers, "lora_unet_"), path)
    with pytest.raises(SetupError) as caught:
        DiffusersEditor(str(tiny(KONTEXT)), device="cpu", loras=[{"path": str(path)}])
    assert str(caught.value) == (
        f"editor.loras: {path}: its names cannot be converted for FluxKontextPipeline: "
        "AssertionError at 'assert sum(dims) == up_weight.shape[0]' in _convert_to_ai_toolkit_cat"
    )


#: Layers of FLUX.1 as its authors name them and as diffusers does, and their inputs and outputs.
OF_FLUX = {
    "double_blocks.0.txt_mlp.0": ("transformer_blocks.0.ff_context.net.0.proj", 32, 128),
    "img_in": ("x_embedder", 16, 32),
    "final_layer.linear": ("proj_out", 32, 16),
}


@pytest.fixture
def of_flux():
    """A and B of these layers, by their authors' names."""
    return {
        layer: (torch.randn(4, inputs), torch.randn(outputs, 4))
        for layer, (_, inputs, outputs) in OF_FLUX.items()
    }


@pytest.mark.parametrize("start", ["", "transformer.", "diffusion_model.", "base_model.model."])
def test_names_of_the_authors_of_flux_are_converted_with_their_alphas(
    tiny, tmp_path, start, of_flux
):
    tensors = {}
    for layer, (down, up) in of_flux.items():
        tensors[f"{start}{layer}.lora_A.weight"] = down
        tensors[f"{start}{layer}.lora_B.weight"] = up
        tensors[f"{start}{layer}.alpha"] = torch.tensor(2.0)
    path = tmp_path / "x.safetensors"
    safetensors.save_file(tensors, path)
    layers = {OF_FLUX[layer][0]: own for layer, own in of_flux.items()}
    assert_adds(tiny(KONTEXT), path, "transformer", layers, 0.5)


def test_kohyas_names_of_flux_are_converted_with_their_alphas(tiny, tmp_path, of_flux):
    safetensors.save_file(kohya(of_flux, "lora_unet_"), tmp_path / "x.safetensors")
    layers = {OF_FLUX[layer][0]: own for layer, own in of_flux.items()}
    assert_adds(tiny(KONTEXT), tmp_path, "transformer", layers, 0.5)


@pytest.mark.parametrize(
    "layer", ["blocks.0.attn.a_to_qkv", "single_blocks.0.to_qkv_mlp", "blocks.3.norm1_b.linear"]
)
def test_diffsynths_own_names_of_flux_are_refused_with_what_writes_others(tiny, tmp_path, layer):
    tensors = {f"{layer}.lora_{half}.default.weight": torch.ones(2, 2) for half in "AB"}
    safetensors.save_file(tensors, tmp_path / "x.safetensors")
    with pytest.raises(SettingError) as caught:
        check(tiny(KONTEXT), tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'x.safetensors'}: {layer}.lora_A.default.weight: a name of DiffSynth-Studio's"
        " own FLUX, expected kohya's: train with --align_to_opensource_format, or convert the file "
        "with its FluxLoRAConverter.align_to_opensource_format"
    )


def test_xlabs_names_are_converted(tiny, tmp_path):
    down, up = torch.randn(4, 32), torch.randn(96, 4)
    start = "double_blocks.0.processor.qkv_lora1"
    tensors = {f"{start}.down.weight": down, f"{start}.up.weight": up}
    safetensors.save_file(tensors, tmp_path / "x.safetensors")
    layers = {
        f"transformer_blocks.0.attn.to_{end}": (down, up[32 * part : 32 * part + 32].contiguous())
        for part, end in enumerate("qkv")
    }
    assert_adds(tiny(KONTEXT), tmp_path, "transformer", layers, 1.0)


def test_several_adapters_add_up_by_their_weights(tiny, tmp_path):
    model = tiny(QWEN)
    one = random_layers(model / "transformer")
    two = random_layers(model / "transformer", rank=2, ends=("to_k",))
    for number, layers in enumerate((one, two)):
        tensors = {f"transformer.{name}.lora_A.weight": own[0] for name, own in layers.items()}
        tensors |= {f"transformer.{name}.lora_B.weight": own[1] for name, own in layers.items()}
        safetensors.save_file(tensors, tmp_path / f"{number}.safetensors")
    first, second = ({"path": str(tmp_path / f"{number}.safetensors")} for number in (0, 1))
    pipeline = taken(model, {**first, "weight": 0.5}, {**second, "weight": -2})
    added = deltas(pipeline, "transformer")
    for name, (down, up) in one.items():
        expected = 0.5 * up @ down
        if name in two:
            expected -= 2 * two[name][1] @ two[name][0]
        torch.testing.assert_close(added[name], expected, rtol=1e-5, atol=1e-5)
    lora.take_loras(pipeline, [parameters.LoraParameters.parse(first)])
    added = deltas(pipeline, "transformer")
    for name, (down, up) in one.items():
        torch.testing.assert_close(added[name], up @ down, rtol=1e-5, atol=1e-5)


@pytest.fixture
def folder(tmp_path):
    """An adapter of the tiny Qwen-Image-Edit as peft saves it, written by hand."""
    write(tmp_path, {})
    return tmp_path


def write(folder, settings, **changes):
    """Write PEFT's files of two layers; `changes` replaces tensors by the ends of their names."""
    told = {
        "peft_type": "LORA",
        "r": 2,
        "lora_alpha": 4,
        "target_modules": ["to_q"],
        "bias": "none",
    }
    (folder / CONFIG).write_text(json.dumps(told | settings))
    tensors = {}
    for number in (0, 1):
        start = f"base_model.model.transformer_blocks.{number}.attn.to_q"
        tensors[f"{start}.lora_A.weight"] = np.ones((2, 32), np.float32)
        tensors[f"{start}.lora_B.weight"] = np.ones((32, 2), np.float32)
    for name, tensor in changes.items():
        tensors.pop(name, None)
        if tensor is not None:
            tensors[name] = tensor
    numpy_files.save_file(tensors, folder / WEIGHTS)


FIRST = "base_model.model.transformer_blocks.0.attn.to_q"
ONES = partial(np.ones, dtype=np.float32)
#: Settings and tensors of an adapter that is refused, and the end of the line that says why.
REFUSED = {
    "half-matching": (
        {},
        {"base_model.model.other.lora_A.weight": ONES((2, 32)),
         "base_model.model.other.lora_B.weight": ONES((32, 2))},
        f"{WEIGHTS}: 1 of 3 layers do not fit the transformer: other: no such layer",
    ),
    "inputs": (
        {},
        {f"{FIRST}.lora_A.weight": ONES((2, 64))},
        "1 of 2 layers do not fit the transformer: transformer_blocks.0.attn.to_q: "
        "lora_A takes 64 inputs, the layer has 32",
    ),
    "outputs": (
        {},
        {f"{FIRST}.lora_B.weight": ONES((16, 2))},
        "transformer_blocks.0.attn.to_q: lora_B gives 16 outputs, the layer has 32",
    ),
    "half": (
        {},
        {f"{FIRST}.lora_B.weight": None},
        "1 of 2 layers do not fit the transformer: transformer_blocks.0.attn.to_q: no lora_B",
    ),
    "rank": (
        {"r": 8},
        {},
        "2 of 2 layers do not fit the transformer: transformer_blocks.0.attn.to_q: rank 2, its "
        "config says 8; transformer_blocks.1.attn.to_q: rank 2, its config says 8",
    ),
    "modules_to_save": (
        {"modules_to_save": ["proj_out"]},
        {},
        f"{CONFIG}: modules_to_save is ['proj_out']: whole modules that were trained, expected "
        "LoRA alone: merge it into the base and save that as a checkpoint",
    ),
    "bias": (
        {"bias": "lora_only"},
        {},
        f"{CONFIG}: bias is 'lora_only': trained biases, expected 'none': merge it into the base "
        "and save that as a checkpoint",
    ),
    "whole weights": (
        {},
        {"base_model.model.proj_out.weight": ONES((16, 32))},
        f"{WEIGHTS}: 1 of 5 tensors are whole weights, expected LoRA alone: "
        "base_model.model.proj_out.weight",
    ),
    "LoKr": (
        {},
        {f"{FIRST}.lokr_w1": ONES((2, 2)), f"{FIRST}.lokr_w2": ONES((16, 16))},
        f"{WEIGHTS}: 2 of 6 tensors are those of LoKr, expected LoRA alone: {FIRST}.lokr_w1, "
        f"{FIRST}.lokr_w2",
    ),
    "cut": (
        {"target_modules": ["to_q", "0.attn.to_k", "norm1"]},
        {},
        f"{WEIGHTS}: no tensors for 1 of the 3 layers of the transformer that its target_modules "
        "name: transformer_blocks.0.attn.to_k: save the adapter whole",
    ),
    "cut, by a pattern": (
        {"target_modules": r".*attn\.to_(q|k|v)", "exclude_modules": ["to_v"]},
        {},
        f"{WEIGHTS}: no tensors for 2 of the 4 layers of the transformer that its target_modules "
        "name: transformer_blocks.0.attn.to_k, transformer_blocks.1.attn.to_k: save the adapter "
        "whole",
    ),
    "kind": ({"peft_type": "LOHA"}, {}, f"{CONFIG}: peft_type is 'LOHA', expected 'LORA'"),
    "DoRA": (
        {"use_dora": True},
        {},
        f"{CONFIG}: use_dora is True: DoRA, expected LoRA alone: merge it into the base and save "
        "that as a checkpoint",
    ),
    "PiSSA": (
        {"init_lora_weights": "pissa_niter_4"},
        {},
        f"{CONFIG}: init_lora_weights is 'pissa_niter_4', which changed the base's weights: save "
        "it with path_initial_model_for_weight_conversion",
    ),
    "text encoder": (
        {},
        {f"text_encoder.model.layers.{number}.q_proj.lora_{half}.weight": ONES((2, 2))
         for number in range(6) for half in "AB"},
        f"{WEIGHTS}: text_encoder.…: 12 tensors: QwenImageEditPipeline takes no adapter of its "
        "text encoder",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_applied_whole_is_refused_before_anything_loads(tiny, folder, kind):
    settings, tensors, line = REFUSED[kind]
    write(folder, settings, **tensors)
    with pytest.raises(SettingError) as caught:
        check(tiny(QWEN), folder)
    assert caught.value.key == "loras"
    assert str(caught.value).endswith(line)


@pytest.mark.parametrize(
    "settings",
    [
        {"target_modules": "all-linear"},
        {"target_modules": ["to_q", "q", "attn"]},
        {"target_modules": ["to_q", "to_k"], "exclude_modules": r".*\.to_k"},
        {"target_modules": ["to_q", "to_k"], "layers_to_transform": [0]},
        {"target_modules": None},
        {"target_modules": "("},
        {"target_modules": [3]},
    ],
)
def test_layers_that_peft_would_not_train_or_that_are_not_told_may_be_missing(
    tiny, folder, settings
):
    write(folder, settings)
    check(tiny(QWEN), folder)


@pytest.mark.parametrize(
    ("included", "excluded"),
    [
        (["to_q", "net.2"], None),
        (["transformer_blocks.0.attn.to_q", "0.attn.to_k", "to"], ["1.attn.to_k"]),
        (r".*\.attn\.to_(q|out\.0)", r".*1\..*"),
        ("to_q", None),
    ],
)
def test_targets_are_those_of_peft(tiny, included, excluded):
    config = peft.LoraConfig(target_modules=included, exclude_modules=excluded)
    targets = adapter_settings.Targets(
        *(tuple(own) if isinstance(own, list) else own for own in (included, excluded or ()))
    )
    from peft.tuners.tuners_utils import check_target_module_exists

    for layer in adapter_files.base_layers(tiny(QWEN) / "transformer"):
        assert targets.has(layer) == bool(check_target_module_exists(config, layer))


def test_an_adapter_of_peft_wants_its_config(tiny, folder):
    (folder / CONFIG).unlink()
    with pytest.raises(SettingError, match=r"no adapter_config\.json beside it, expected the one"):
        check(tiny(QWEN), folder / WEIGHTS)


def test_a_folder_holds_one_adapter(tiny, folder):
    (folder / DIFFUSERS).write_bytes((folder / WEIGHTS).read_bytes())
    with pytest.raises(SettingError, match=rf"2 files of safetensors \({WEIGHTS}, {DIFFUSERS}\)"):
        check(tiny(QWEN), folder)
    (folder / DIFFUSERS).unlink()
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")
    with pytest.raises(SettingError, match=r"adapter_model\.bin: weights that can run code"):
        check(tiny(QWEN), folder)
    (folder / "adapter_model.bin").unlink()
    with pytest.raises(SettingError, match=r"no adapter, expected adapter_model\.safetensors w"):
        check(tiny(QWEN), folder)
    for step in (100, 900, 1000):
        (folder / f"checkpoint-{step}").mkdir()
        (folder / f"checkpoint-{step}" / WEIGHTS).touch()
    line = "a folder of adapters, expected one of them: checkpoint-1000, checkpoint-900, checkp"
    with pytest.raises(SettingError, match=line):
        check(tiny(QWEN), folder)


@pytest.mark.parametrize("name", ["lora_unet_other_blocks_0_attn", "lora_te3_layers_0_attn"])
def test_names_that_cannot_be_converted_are_refused_before_the_base_loads(
    tiny, tmp_path, name, monkeypatch
):
    model = tiny(QWEN)
    tensors = kohya(random_layers(model / "transformer"), "lora_unet_")
    tensors |= {f"{name}.lora_down.weight": torch.ones(4, 32)}
    tensors |= {f"{name}.lora_up.weight": torch.ones(32, 4)}
    safetensors.save_file(tensors, tmp_path / "x.safetensors")
    check(model, tmp_path)
    monkeypatch.setattr("pytest_imgedit.kinds.compute.pipeline.load_pipeline", None)
    with pytest.raises(SetupError, match=r"editor\.loras: .*x\.safetensors: "):
        DiffusersEditor(str(model), device="cpu", loras=[{"path": str(tmp_path)}])


@pytest.mark.parametrize("name", [QWEN, KONTEXT, PIX2PIX])
def test_a_quantized_base_is_known_by_its_config_before_it_loads(tiny, tmp_path, name, monkeypatch):
    monkeypatch.setattr("pytest_imgedit.kinds.compute.pipeline.load_pipeline", None)
    component, model = NETWORK[name], shutil.copytree(tiny(name), tmp_path / "model")
    config = model / component / "config.json"
    told = json.loads(config.read_text()) | {"quantization_config": {"quant_method": "torchao"}}
    config.write_text(json.dumps(told))
    layers = random_layers(model / component, ends=("to_q",))
    first = min(layers)
    layers[first] = (layers[first][0][:, :8].contiguous(), layers[first][1])
    tensors = {f"{component}.{layer}.lora_A.weight": own[0] for layer, own in layers.items()}
    tensors |= {f"{component}.{layer}.lora_B.weight": own[1] for layer, own in layers.items()}
    path = tmp_path / "x.safetensors"
    safetensors.save_file(tensors, path)
    line = f"{first}: lora_A takes 8 inputs, the layer has 32"
    with pytest.raises(SetupError, match=f"1 of .* do not fit the {component}: {line}"):
        DiffusersEditor(str(model), device="cpu", loras=[{"path": str(path)}])


def test_spellings_of_one_adapter_share_a_key(tiny, folder, tmp_path):
    model = tiny(QWEN)

    def identity(**lora):
        editor = make_model("editor", f"diffusers:{model}", {"loras": [lora]})
        return identify(editor, tmp_path / "cache.json")

    config = folder / CONFIG
    before = identity(path=str(folder))
    assert before.files.keys() >= {str(folder / WEIGHTS), str(config)}
    told = json.loads(config.read_text())
    for lora in ({"path": str(folder / WEIGHTS)}, {"path": str(folder), "weight": 1, "name": "x"}):
        assert identity(**lora).digest == before.digest
    config.write_text(json.dumps(told | {"inference_mode": True, "lora_alpha": 4.0}))
    assert identity(path=str(folder)).digest == before.digest
    for other in ({"lora_alpha": 8}, {"use_rslora": True}, {"alpha_pattern": {"to_q": 1}}):
        config.write_text(json.dumps(told | other))
        assert identity(path=str(folder)).digest != before.digest
    config.write_text(json.dumps(told))
    assert identity(path=str(folder), weight=0.5).digest != before.digest
