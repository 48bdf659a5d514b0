"""Weights in a single file: an edit equals that of a folder with the same weights, or the file is
refused whole.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from types import FunctionType

import numpy as np
import pytest
from later import Later
from PIL import Image

from pytest_imgedit.core.errors import SetupError
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.diffusers import DiffusersEditor

torch = Later("torch")
safetensors = Later("safetensors.torch")
names = Later("original_names")
single_file_model = Later("diffusers.loaders.single_file_model")
loading = Later("pytest_imgedit.kinds.compute.single_file")

PHOTO = Image.linear_gradient("L").convert("RGB").resize((64, 64))
PARTS = {
    "instruct-pix2pix": ["unet", "vae", "text_encoder"],
    "cosxl": ["unet", "vae", "text_encoder", "text_encoder_2"],
    "flux-kontext": ["transformer"],
    "qwen-image-edit": ["transformer"],
    "zimage-omni": ["transformer"],
}
needs_gguf = pytest.mark.skipif(not find_spec("gguf"), reason="gguf is not installed")


class Pipeline:
    """A tiny pipeline with other weights than the usual ones: in a folder, `whole`, and beside a
    folder without them, `bare`.
    """

    def __init__(self, folder, source, parts):
        self.whole = shutil.copytree(source, folder / "whole")
        self.bare = shutil.copytree(source, folder / "bare")
        self.source = source
        self.weights = {}
        torch.manual_seed(1)
        for part in parts:
            (path,) = (self.whole / part).glob("*.safetensors")
            (self.bare / part / path.name).unlink()
            self.weights[part] = {
                name: tensor + 0.02 * torch.randn_like(tensor) if tensor.ndim > 1 else tensor
                for name, tensor in safetensors.load_file(path).items()
            }
            self.save(part, self.weights[part])
        self.edit = edited(self.whole)

    def save(self, part, tensors):
        """Store weights in the folder `whole`."""
        (path,) = (self.whole / part).glob("*.safetensors")
        save(path, tensors)


@pytest.fixture(scope="module")
def pipeline(tiny, tmp_path_factory):
    built = {}

    def build(name):
        if name not in built:
            built[name] = Pipeline(tmp_path_factory.mktemp("single"), tiny(name), PARTS[name])
        return built[name]

    return build


@pytest.fixture
def small_flux(monkeypatch):
    """diffusers splits FLUX's fused weights at the width of the real model, 3072; here at 32."""
    table = single_file_model.SINGLE_FILE_LOADABLE_CLASSES["FluxTransformer2DModel"]
    convert = table["checkpoint_mapping_fn"]
    constants = tuple(32 if value == 3072 else value for value in convert.__code__.co_consts)
    code = convert.__code__.replace(co_consts=constants)
    convert = FunctionType(code, convert.__globals__)
    monkeypatch.setitem(table, "checkpoint_mapping_fn", convert)
    return convert


def save(path, tensors):
    safetensors.save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, path, {"format": "pt"}
    )
    return path


def edited(folder, **params):
    editor = DiffusersEditor(str(folder), device="cpu", num_inference_steps=2, **params)
    return np.asarray(editor.edit(EditRequest("a", "physics", "make it snow", PHOTO, 5)), int)


def assert_nearly_equal(one, other):
    """Edits are equal but for a few values by one level: on some processors, weights that lie
    otherwise in memory are summed in another order.
    """
    difference = np.abs(one - other)
    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3


def stable_diffusion(weights):
    return {
        **names.unet(weights["unet"]),
        **names.vae(weights["vae"]),
        **names.clip(weights["text_encoder"]),
        "model_ema.decay": torch.zeros(()),
        "alphas_cumprod": torch.zeros(1000),
    }


def prefixed(tensors):
    return {f"model.diffusion_model.{name}": tensor for name, tensor in tensors.items()}


def test_a_whole_stable_diffusion_file(pipeline, tmp_path):
    tiny = pipeline("instruct-pix2pix")
    path = save(tmp_path / "whole.safetensors", stable_diffusion(tiny.weights))
    assert_nearly_equal(edited(tiny.bare, single_file=str(path)), tiny.edit)
    assert (tiny.edit != edited(tiny.source)).any()


def test_what_a_file_does_not_hold_comes_from_the_folder(pipeline, tmp_path):
    tiny = pipeline("instruct-pix2pix")
    shutil.copytree(tiny.source, tmp_path / "expected")
    shutil.copytree(tiny.whole / "unet", tmp_path / "expected" / "unet", dirs_exist_ok=True)
    expected = edited(tmp_path / "expected")
    for number, tensors in enumerate(
        (names.unet(tiny.weights["unet"]), tiny.weights["unet"], prefixed(tiny.weights["unet"]))
    ):
        path = save(tmp_path / f"{number}.safetensors", tensors)
        assert_nearly_equal(edited(tiny.source, single_file=str(path)), expected)


@pytest.mark.full
def test_a_whole_stable_diffusion_xl_file(pipeline, tmp_path):
    tiny = pipeline("cosxl")
    tensors = {
        **names.unet(tiny.weights["unet"]),
        **names.vae(tiny.weights["vae"]),
        **names.clip_of_xl(tiny.weights["text_encoder"]),
        **names.open_clip(tiny.weights["text_encoder_2"]),
    }
    path = save(tmp_path / "whole.safetensors", tensors)
    assert_nearly_equal(edited(tiny.bare, single_file=str(path)), tiny.edit)


@pytest.mark.full
@pytest.mark.parametrize("layout", ["authors", "comfyui", "diffusers"])
def test_a_flux_transformer_alone(pipeline, small_flux, tmp_path, layout):
    tiny = pipeline("flux-kontext")
    tensors = tiny.weights["transformer"]
    if layout != "diffusers":
        tensors = names.flux(tensors)
    if layout == "comfyui":
        tensors = prefixed(tensors)
    path = save(tmp_path / "flux.safetensors", tensors)
    assert_nearly_equal(edited(tiny.bare, single_file=str(path)), tiny.edit)
    assert (tiny.edit != edited(tiny.source)).any()


@pytest.mark.full
@pytest.mark.parametrize("layout", ["diffusers", "comfyui"])
def test_a_qwen_image_transformer_alone(pipeline, tmp_path, layout):
    tiny = pipeline("qwen-image-edit")
    tensors = tiny.weights["transformer"]
    path = save(
        tmp_path / "qwen.safetensors", prefixed(tensors) if layout == "comfyui" else tensors
    )
    assert_nearly_equal(edited(tiny.bare, single_file=str(path)), tiny.edit)
    assert (tiny.edit != edited(tiny.source)).any()


@pytest.mark.full
def test_a_z_image_transformer_alone(pipeline, tmp_path):
    tiny = pipeline("zimage-omni")
    path = save(tmp_path / "z.safetensors", prefixed(names.z_image(tiny.weights["transformer"])))
    assert_nearly_equal(edited(tiny.bare, single_file=str(path)), tiny.edit)
    assert (tiny.edit != edited(tiny.source)).any()


@pytest.mark.full_for("float8_e5m2")
@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_without_scales_is_read_as_the_dtype(pipeline, tmp_path, kind):
    tiny = pipeline("instruct-pix2pix")
    folder = shutil.copytree(tiny.whole, tmp_path / "whole")
    small = {name: tensor.to(getattr(torch, kind)) for name, tensor in tiny.weights["unet"].items()}
    path = save(tmp_path / "unet.safetensors", names.unet(small))
    save(
        folder / "unet" / "diffusion_pytorch_model.safetensors",
        {name: tensor.float() for name, tensor in small.items()},
    )
    expected = edited(folder)
    assert_nearly_equal(edited(tiny.whole, single_file=str(path)), expected)
    assert (expected != tiny.edit).any()


@needs_gguf
@pytest.mark.full_for("Q4_0-bfloat16", "Q5_0-float32", "F16-float32", "BF16-float32")
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("Q8_0", "float32"),
        ("Q4_0", "bfloat16"),
        ("Q5_0", "float32"),
        ("F16", "float32"),
        ("BF16", "float32"),
    ],
)
def test_a_gguf_file_computes_as_its_weights_in_a_folder(
    pipeline, small_flux, tmp_path, kind, dtype
):
    tiny = pipeline("flux-kontext")
    path = tmp_path / "flux.gguf"
    read = names.save_gguf(path, names.flux(tiny.weights["transformer"]), kind, "flux")
    folder = shutil.copytree(tiny.whole, tmp_path / "whole")
    save(
        folder / "transformer" / "diffusion_pytorch_model.safetensors",
        small_flux(checkpoint=read, config={}),
    )
    expected = edited(folder, dtype=dtype)
    assert_nearly_equal(edited(tiny.bare, dtype=dtype, single_file=str(path)), expected)
    assert (expected != tiny.edit).any()


@needs_gguf
@pytest.mark.full
def test_a_gguf_file_of_qwen_image(pipeline, tmp_path):
    tiny = pipeline("qwen-image-edit")
    path = tmp_path / "qwen.gguf"
    read = names.save_gguf(path, tiny.weights["transformer"], "Q8_0", "qwen_image")
    folder = shutil.copytree(tiny.whole, tmp_path / "whole")
    save(folder / "transformer" / "diffusion_pytorch_model.safetensors", read)
    assert_nearly_equal(edited(tiny.bare, single_file=str(path)), edited(folder))


@needs_gguf
def test_layers_that_are_not_linear_are_read_as_the_dtype(pipeline, tmp_path):
    tiny = pipeline("instruct-pix2pix")
    path = tmp_path / "unet.gguf"
    names.save_gguf(path, names.unet(tiny.weights["unet"]), "BF16", "sd1", ranks=(1, 2, 4))
    folder = shutil.copytree(tiny.whole, tmp_path / "whole")
    rounded = {name: tensor.bfloat16().float() for name, tensor in tiny.weights["unet"].items()}
    save(folder / "unet" / "diffusion_pytorch_model.safetensors", rounded)
    expected = edited(folder)
    assert_nearly_equal(edited(tiny.whole, single_file=str(path)), expected)
    assert (expected != tiny.edit).any()


@needs_gguf
def test_types_of_gguf_are_those_that_diffusers_dequantizes():
    import gguf

    from pytest_imgedit.kinds import gguf_header

    gguf_utils = Later("diffusers.quantizers.gguf.utils")
    names = [kind.name for kind in gguf_utils.SUPPORTED_GGUF_QUANT_TYPES]
    assert gguf_header.types() == sorted(["F32", "F16", *names])
    for kind in gguf_utils.SUPPORTED_GGUF_QUANT_TYPES:
        blocks = random_blocks(kind.name, gguf.GGML_QUANT_SIZES[kind][1])
        parameter = gguf_utils.GGUFParameter(torch.from_numpy(blocks), quant_type=kind)
        values = gguf_utils.dequantize_gguf_tensor(parameter).float().numpy()
        exact = gguf.quants.dequantize(blocks, kind)
        if kind.name in ("BF16", "IQ4_NL"):
            assert (values == exact).all()
        elif kind.name in ("Q4_0", "Q5_0", "Q8_0"):
            assert (values == exact.astype(np.float16)).all()
        else:
            assert np.abs(values - exact).max() < 2e-3 * np.abs(exact).max()


def random_blocks(kind, size, count=64):
    """Blocks of random numbers, whose scales are positive."""
    chance = np.random.default_rng(0)
    blocks = chance.integers(0, 256, (count, size), dtype=np.uint8)
    if kind == "BF16":
        values = chance.standard_normal(count).astype(np.float32).view(np.uint32) >> 16
        return values.astype(np.uint16)[:, None].view(np.uint8)
    scales = (chance.random((count, 2)) / 100).astype(np.float16).view(np.uint8)
    start = {"Q2_K": 80, "Q3_K": 108, "Q6_K": 208}.get(kind, 0)
    end = start + (4 if kind in ("Q2_K", "Q4_K", "Q5_K", "Q4_1", "Q5_1") else 2)
    blocks[:, start:end] = scales[:, : end - start]
    return blocks


def drop(name):
    return lambda tensors: tensors.pop(name)


def rename(name, to):
    return lambda tensors: tensors.update({to: tensors.pop(name)})


def grow(name):
    return lambda tensors: tensors.update({name: tensors[name].repeat(2)})


UNET = "model.diffusion_model."
CLIP = "cond_stage_model.transformer.text_model."


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            drop(f"{UNET}out.2.bias"),
            "UNet2DConditionModel: 1 tensor missing (conv_out.bias), expected exactly those of "
            "its config",
        ),
        (
            rename(f"{UNET}out.2.bias", f"{UNET}out.2.shift"),
            "UNet2DConditionModel: 1 tensor missing (conv_out.bias), 1 tensor unexpected "
            "(model.diffusion_model.out.2.shift), expected exactly those of its config",
        ),
        (
            grow(f"{UNET}out.2.bias"),
            "UNet2DConditionModel: 1 tensor of another shape (conv_out.bias [8]), expected "
            "exactly those of its config",
        ),
        (
            drop("first_stage_model.decoder.conv_out.bias"),
            "AutoencoderKL: 1 tensor missing (decoder.conv_out.bias), expected exactly those of "
            "its config",
        ),
        (
            drop(f"{CLIP}final_layer_norm.bias"),
            "CLIPTextModel: 1 tensor missing (final_layer_norm.bias)",
        ),
        (
            rename(f"{CLIP}final_layer_norm.bias", f"{CLIP}encoder.layers.2.bias"),
            "CLIPTextModel: 1 tensor missing (final_layer_norm.bias)",
        ),
        (
            lambda tensors: tensors.update({f"{CLIP}encoder.layers.2.x": torch.zeros(32)}),
            "CLIPTextModel: {more} values, expected the {values} of its config",
        ),
    ],
    ids=["missing", "renamed", "shape", "vae", "clip", "clip-renamed", "clip-further"],
)
def test_a_file_is_taken_whole_or_not_at_all(pipeline, tmp_path, monkeypatch, change, problem):
    tiny = pipeline("instruct-pix2pix")
    tensors = stable_diffusion(tiny.weights)
    change(tensors)
    path = save(tmp_path / "w.safetensors", tensors)
    values = sum(tensor.numel() for tensor in tiny.weights["text_encoder"].values())
    monkeypatch.setattr("pytest_imgedit.kinds.compute.pipeline.load_pipeline", None)
    with pytest.raises(SetupError) as raised:
        DiffusersEditor(str(tiny.bare), device="cpu", single_file=str(path))
    expected = problem.format(values=values, more=values + 32)
    assert str(raised.value) == f"editor.single_file: {path}: {expected}"


def test_the_weights_of_another_network_are_refused(pipeline, tiny, tmp_path):
    path = save(
        tmp_path / "w.safetensors", names.unet(pipeline("instruct-pix2pix").weights["unet"])
    )
    for name, missing, network in (
        ("flux-kontext", "66 tensors missing (context_embedder.bias, ", "FluxTransformer2DModel"),
        ("qwen-image-edit", "", "QwenImageTransformer2DModel"),
    ):
        with pytest.raises(SetupError) as raised:
            DiffusersEditor(str(tiny(name)), device="cpu", single_file=str(path))
        message = str(raised.value)
        assert message.startswith(f"editor.single_file: {path}: {network}: {missing}")
        assert "208 tensors unexpected (input_blocks.0.0.bias, " in message


@needs_gguf
@pytest.mark.full
def test_a_gguf_file_with_offloading_and_with_an_adapter(pipeline, small_flux, tmp_path):
    pytest.importorskip("peft")
    tiny = pipeline("flux-kontext")
    path = tmp_path / "flux.gguf"
    read = names.save_gguf(path, names.flux(tiny.weights["transformer"]), "Q8_0", "flux")
    folder = shutil.copytree(tiny.whole, tmp_path / "whole")
    save(
        folder / "transformer" / "diffusion_pytorch_model.safetensors",
        small_flux(checkpoint=read, config={}),
    )
    plain = edited(tiny.bare, single_file=str(path))
    assert_nearly_equal(edited(tiny.bare, single_file=str(path), offload="group"), plain)
    adapter = {}
    for part in ("transformer_blocks.0.attn.to_q", "single_transformer_blocks.0.attn.to_k"):
        adapter[f"transformer.{part}.lora_A.weight"] = torch.randn(4, 32)
        adapter[f"transformer.{part}.lora_B.weight"] = torch.randn(32, 4)
    lora = [{"path": str(save(tmp_path / "lora.safetensors", adapter))}]
    tuned = edited(tiny.bare, single_file=str(path), loras=lora)
    assert_nearly_equal(tuned, edited(folder, loras=lora))
    assert (tuned != plain).any()
