"""Layouts of LoRA adapters: each makes the picture of the same weights, merged by hand into the base.

All layouts of a base hold the same products B A, so that one merged checkpoint tells what each has
to make. Weights and scales are such that no format rounds them. What is left is float32: a layer
adds two products where the merged one computes the product of a sum. It costs one level of 255.
"""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from importlib.util import find_spec
from types import CodeType, FunctionType

import numpy as np
import pytest
from later import Later
from PIL import Image

from pytest_imgedit.core.errors import SettingError, SetupError
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds import adapter_files
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.registry import make_model

torch = Later("torch")
safetensors = Later("safetensors.torch")
diffusers = Later("diffusers")
transformers = Later("transformers")
peft = Later("peft")

pytestmark = pytest.mark.skipif(not find_spec("peft"), reason="peft is not installed")

PHOTO = Image.linear_gradient("L").convert("RGB").resize((64, 64))
QWEN, KONTEXT, PIX2PIX = "qwen-image-edit", "flux-kontext", "instruct-pix2pix"
CALLS = {
    QWEN: {"height": 256, "width": 256},
    KONTEXT: {"area": 4096},
    PIX2PIX: {"guidance_scale": 40.0},
}
#: The layers that adapters change, by base and component: ends of their names.
CHANGED = {
    QWEN: {"transformer": ("to_q", "to_k", "to_v", "to_out.0", "img_mod.1")},
    KONTEXT: {
        "transformer": ("to_q", "to_k", "to_v", "to_out.0", "add_k_proj", "proj_mlp", "proj_out"),
        "text_encoder": ("q_proj", "fc1"),
    },
    PIX2PIX: {
        "unet": ("attn1.to_q", "attn1.to_k", "attn2.to_v", "attn2.to_out.0"),
        "text_encoder": ("q_proj", "out_proj"),
    },
}
RANK = 4
#: How large A and B are, such that the picture changes clearly.
GAIN = {QWEN: 4, KONTEXT: 1, PIX2PIX: 4}


class Base:
    """A tiny pipeline, what is added to its layers as A and B by component and layer, and the edits
    without and with it.
    """

    def __init__(self, name, source, folder):
        self.name, self.source = name, source
        merged = shutil.copytree(source, folder / "merged")
        seed = torch.Generator().manual_seed(1)
        self.parts = {}
        for component, ends in CHANGED[name].items():
            (path,) = (merged / component).glob("*.safetensors")
            weights, layers = safetensors.load_file(path), {}
            for layer in sorted(key.removesuffix(".weight") for key in weights):
                if layer.endswith(ends) and f"{layer}.weight" in weights and "." in layer:
                    weight = weights[f"{layer}.weight"]
                    rank = 1 if layer.endswith("to_k") else RANK
                    down = torch.randint(-8, 9, (rank, weight.shape[1]), generator=seed)
                    up = torch.randint(-8, 9, (weight.shape[0], rank), generator=seed)
                    down, up = down / 16 * GAIN[name], up / 16 * GAIN[name]
                    weight += up @ down
                    layers[layer] = (down, up)
            safetensors.save_file(weights, path, {"format": "pt"})
            self.parts[component] = layers
        self.editor = self.opened(source)
        self.plain = self.edit(self.editor)
        self.merged = self.edit(self.opened(merged))

    @property
    def network(self):
        return next(iter(self.parts))

    def opened(self, folder):
        return DiffusersEditor(str(folder), device="cpu", num_inference_steps=1, **CALLS[self.name])

    def edit(self, editor):
        return np.asarray(editor.edit(EditRequest("a", "physics", "make it snow", PHOTO, 5)), int)

    def adapted(self, loras):
        """The edit with adapters, which are looked at as before a run."""
        make_model("editor", f"diffusers:{self.source}", {"loras": loras}).check(Site())
        self.editor.take_loras(loras)
        return self.edit(self.editor)

    def component(self, name):
        """A fresh copy of a component."""
        library, kind = json.loads((self.source / "model_index.json").read_text())[name]
        owner = {"diffusers": diffusers, "transformers": transformers}[library]
        return getattr(owner, kind).from_pretrained(self.source / name)

    def tuned(self, component, **config):
        """A component with its layers in PEFT, whose B A times PEFT's own scale is what is added."""
        layers = self.parts[component]
        settings = peft.LoraConfig(r=RANK, target_modules=list(layers), **config)
        model = peft.get_peft_model(self.component(component), settings)
        for name, (down, up) in layers.items():
            layer = model.base_model.model.get_submodule(name)
            for half, values in (
                (layer.lora_A, down / layer.scaling["default"]),
                (layer.lora_B, up),
            ):
                weight = half["default"].weight.data.zero_()
                weight[: values.shape[0], : values.shape[1]] = values
        return model


@pytest.fixture(scope="module")
def base(tiny, tmp_path_factory):
    """The bases by name. Qwen-Image-Edit enlarges every source to 1024², which takes seconds; here
    to 64².
    """
    built = {}

    def build(name):
        if name not in built:
            built[name] = Base(name, tiny(name), tmp_path_factory.mktemp("merged"))
        return built[name]

    with pytest.MonkeyPatch.context() as patch:
        module = "diffusers.pipelines.qwenimage.pipeline_qwenimage_edit"
        patch.setattr(f"{module}.calculate_dimensions", lambda area, ratio: (64, 64, None))
        yield build


def saved(path, tensors, metadata=None):
    own = {name: tensor.contiguous() for name, tensor in tensors.items()}
    safetensors.save_file(own, path, metadata)
    return path


def named(layers, down, up, alpha=None):
    """A and B by names in which `{}` is the layer's; with an alpha, A such that alpha / r undoes
    it.
    """
    tensors = {}
    for layer, (a, b) in layers.items():
        scale = 1.0 if alpha is None else 2.0 / a.shape[0]
        tensors[down.format(layer)] = a / scale
        tensors[up.format(layer)] = b
        if alpha is not None:
            tensors[alpha.format(layer)] = torch.tensor(2.0)
    return tensors


def file_of(down, up, alpha=None):
    """A layout of one file with the network's layers; adapters of text encoders are PEFT's."""

    def write(base, folder):
        layers = base.parts[base.network]
        return [
            saved(folder / "x.safetensors", named(layers, down, up, alpha)),
            *texts_of_peft(base, folder),
        ]

    return write


def texts_of_peft(base, folder):
    paths = [folder / name for name in base.parts if name != base.network]
    for path in paths:
        base.tuned(path.name, lora_alpha=8).save_pretrained(path)
    return paths


def folders_of_peft(**config):
    """A folder of PEFT for each component."""

    def write(base, folder):
        base.tuned(base.network, **config).save_pretrained(folder / base.network)
        return [folder / base.network, *texts_of_peft(base, folder)]

    return write


def file_of_peft(base, folder):
    paths = folders_of_peft(lora_alpha=16)(base, folder)
    return [path / "adapter_model.safetensors" for path in paths]


def by_diffusers(has_metadata):
    """`save_lora_weights`, which writes the settings of adapters if it is given them."""

    def write(base, folder):
        own = {}
        for component in base.parts:
            alpha = 16 if has_metadata else RANK
            model = base.tuned(component, lora_alpha=alpha).base_model.model
            own[f"{component}_lora_layers"] = peft.get_peft_model_state_dict(model)
            if has_metadata:
                own[f"{component}_lora_adapter_metadata"] = {"r": RANK, "lora_alpha": alpha}
        type(base.editor.pipeline).save_lora_weights(folder, **own)
        return [folder]

    return write


def diffusion_pipe(base, folder):
    """ComfyUI's names beside PEFT's config; alpha is the rank."""
    base.tuned(base.network, lora_alpha=RANK).save_pretrained(folder)
    path = folder / "adapter_model.safetensors"
    start = ("base_model.model.", "diffusion_model.")
    tensors = safetensors.load_file(path)
    saved(path, {name.replace(*start): tensor for name, tensor in tensors.items()})
    return [folder, *texts_of_peft(base, folder)]


def two_files(base, folder):
    """Two adapters, of which the first undoes what the second adds beside it."""
    layers = base.parts[base.network]
    other = {layer: (a.flip(0, 1), b.flip(0, 1)) for layer, (a, b) in layers.items()}
    both = {}
    for layer, (down, up) in layers.items():
        beside, by = other[layer]
        both[layer] = (torch.cat([down / 0.7, beside * (0.3 / 0.7)]), torch.cat([up, by], 1))
    halves = ("transformer.{}.lora_A.weight", "transformer.{}.lora_B.weight")
    loras = [
        {"path": str(saved(folder / name, named(own, *halves))), "weight": weight}
        for name, own, weight in (("1.safetensors", both, 0.7), ("2.safetensors", other, -0.3))
    ]
    return [*loras, *texts_of_peft(base, folder)]


def by_kohya(layers, start):
    """kohya's names of modules, with alphas."""
    tensors = named(layers, "{}.lora_down.weight", "{}.lora_up.weight", "{}.alpha")
    renamed = {}
    for name, tensor in tensors.items():
        layer, dot, end = name.partition(".alpha" if name.endswith(".alpha") else ".lora_")
        renamed[start + layer.replace(".", "_") + dot + end] = tensor
    return renamed


def musubi(base, folder):
    layers = base.parts[base.network]
    return [saved(folder / "x.safetensors", by_kohya(layers, "lora_unet_"))]


def with_text_model(layers):
    return {f"text_model.{layer}": own for layer, own in layers.items()}


def kohya_sd(base, folder):
    tensors = by_kohya(base.parts["unet"], "lora_unet_")
    tensors |= by_kohya(with_text_model(base.parts["text_encoder"]), "lora_te_")
    return [saved(folder / "x.safetensors", tensors)]


#: FLUX's fused layers in its authors' names, and its other layers.
FUSED = {
    "double_blocks.0.img_attn.qkv": [f"transformer_blocks.0.attn.to_{end}" for end in "qkv"],
    "double_blocks.0.txt_attn.qkv": [f"transformer_blocks.0.attn.add_{end}_proj" for end in "qkv"],
    "single_blocks.0.linear1": [
        *(f"single_transformer_blocks.0.attn.to_{end}" for end in "qkv"),
        "single_transformer_blocks.0.proj_mlp",
    ],
}
WHOLE = {
    "double_blocks.0.img_attn.proj": "transformer_blocks.0.attn.to_out.0",
    "single_blocks.0.linear2": "single_transformer_blocks.0.proj_out",
}


def fused_layers(base, is_sparse):
    """The layers of a FLUX of width 32 as its authors name them. A fused layer has the A of its
    parts one below the other, so that its B is zero beside blocks; mixed, it is not sparse.
    """
    layers = base.parts["transformer"]
    found = {name: layers[own] for name, own in WHOLE.items()}
    for name, parts in FUSED.items():
        rank = RANK * len(parts)
        down, ups = torch.zeros(rank, 32), []
        for number, part in enumerate(parts):
            width = 128 if part.endswith("proj_mlp") else 32
            up = torch.zeros(width, rank)
            if part in layers:
                a, b = layers[part]
                start = number * RANK
                down[start : start + len(a)] = a
                up[:, start : start + len(a)] = b
            ups.append(up)
        up = torch.cat(ups)
        found[name] = (down, up) if is_sparse else (down.roll(1, 0), up.roll(1, 1))
    return found


def kohya_flux(is_sparse):
    def write(base, folder):
        tensors = by_kohya(fused_layers(base, is_sparse), "lora_unet_")
        tensors |= by_kohya(with_text_model(base.parts["text_encoder"]), "lora_te1_")
        return [saved(folder / "x.safetensors", tensors)]

    return write


def of_authors(prefix):
    """FLUX's fused layers with PEFT's halves."""

    def write(base, folder):
        halves = (f"{prefix}{{}}.lora_A.weight", f"{prefix}{{}}.lora_B.weight")
        tensors = named(fused_layers(base, False), *halves)
        return [saved(folder / "x.safetensors", tensors), *texts_of_peft(base, folder)]

    return write


def with_numbers(value, numbers):
    """The code of a function with other constants, also in functions inside it."""
    if isinstance(value, CodeType):
        return value.replace(co_consts=with_numbers(value.co_consts, numbers))
    if isinstance(value, tuple):
        return tuple(with_numbers(each, numbers) for each in value)
    return numbers.get(value, value) if isinstance(value, int) else value


@pytest.fixture
def small_flux(monkeypatch):
    """diffusers splits kohya's fused layers at the widths of FLUX.1, 3072 and 12288; here at those
    of the tiny one.
    """
    module = import_module("diffusers.loaders.lora_pipeline")
    name = "_convert_kohya_flux_lora_to_diffusers"
    convert = getattr(module, name)
    code = with_numbers(convert.__code__, {3072: 32, 12288: 128})
    monkeypatch.setattr(module, name, FunctionType(code, convert.__globals__))


HALVES = ("{}.lora_A.weight", "{}.lora_B.weight")
COMMON = {
    "peft": folders_of_peft(lora_alpha=16),
    "peft, file": file_of_peft,
    "peft, patterns": folders_of_peft(
        lora_alpha=16, rank_pattern={"to_k": 1}, alpha_pattern={"attn.*.to_q": 2}
    ),
    "peft, rslora": folders_of_peft(lora_alpha=16, use_rslora=True, rank_pattern={"to_k": 1}),
    "diffusers": by_diffusers(has_metadata=True),
    "diffusers, no metadata": by_diffusers(has_metadata=False),
}
OF_TRANSFORMERS = {
    "no prefix": file_of("{}.lora_A.default.weight", "{}.lora_B.default.weight"),
    "ai-toolkit": file_of(*(f"diffusion_model.{half}" for half in HALVES)),
    "diffusion-pipe": diffusion_pipe,
    "SimpleTuner": file_of(*(f"diffusion_model.{part}" for part in (*HALVES, "{}.alpha"))),
    "Lightning": file_of("{}.lora_down.weight", "{}.lora_up.weight", "{}.alpha"),
    "two": two_files,
}
LAYOUTS = {
    QWEN: {**COMMON, **OF_TRANSFORMERS, "musubi": musubi},
    KONTEXT: {
        **COMMON,
        **OF_TRANSFORMERS,
        "kohya": kohya_flux(is_sparse=False),
        "kohya, split": kohya_flux(is_sparse=True),
        "authors": of_authors("diffusion_model."),
    },
    PIX2PIX: {**COMMON, "kohya": kohya_sd},
}


every_layout = pytest.mark.parametrize(
    ("name", "layout"), [(name, layout) for name, own in LAYOUTS.items() for layout in own]
)


def written(own, folder, layout):
    paths = LAYOUTS[own.name][layout](own, folder)
    return [each if isinstance(each, dict) else {"path": str(each)} for each in paths]


@pytest.mark.full_for(*(f"{KONTEXT}-{layout}" for layout in (*COMMON, *OF_TRANSFORMERS)))
@pytest.mark.usefixtures("small_flux")
@every_layout
def test_an_adapter_makes_the_picture_of_merged_weights(base, tmp_path, name, layout):
    own = base(name)
    edited = own.adapted(written(own, tmp_path, layout))
    assert np.abs(edited - own.merged).max() <= 1
    assert np.abs(edited - own.plain).max() > 20


@pytest.mark.usefixtures("small_flux")
@every_layout
def test_an_adapter_of_another_width_is_refused(base, tmp_path, name, layout):
    own = base(name)
    loras = written(own, tmp_path, layout)
    path = adapter_files.find(loras[0]["path"]).weights
    tensors = safetensors.load_file(path)
    first = next(key for key in sorted(tensors) if "lora_A" in key or "lora_down" in key)
    tensors[first] = tensors[first][:, :8]
    saved(path, tensors)
    refusal = r"\d of \d+ layers do not fit the .*lora_A takes 8 inputs, the layer has"
    with pytest.raises((SettingError, SetupError), match=refusal):
        own.adapted(loras)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_picture_tells_a_tenth_of_the_scale_of_each_component(base, tmp_path, name):
    own = base(name)
    paths = COMMON["peft"](own, tmp_path)
    for wrong in paths:
        loras = [{"path": str(path), "weight": 0.9 if path == wrong else 1.0} for path in paths]
        assert np.abs(own.adapted(loras) - own.merged).max() > 1
