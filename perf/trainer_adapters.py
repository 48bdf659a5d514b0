"""Are adapters applied as trainers mean them?

    python perf/trainer_adapters.py --sd-scripts DIR --musubi-tuner DIR --ai-toolkit DIR \\
        --diffsynth DIR --diffusion-pipe DIR --simpletuner DIR

Each adapter is made by a trainer's own code for a tiny FLUX.1 Kontext or a tiny Qwen-Image-Edit,
with random weights of rank 4. One picture is edited with the adapter, and with the same weights
merged by hand into the base: W + alpha / rank * weight * B A. A row has the largest difference of
the two edits and that of the edit with the adapter and the base's, of 0 to 255; an adapter that is
refused has the message instead.

The folders are clones of these repositories, which were read at these commits; without one its rows
are left out:

- kohya-ss/sd-scripts 48d368fa557731ad0488c07304dfeba8c07910eb
- kohya-ss/musubi-tuner 30c658c4f4b0bf05038b3346eff9670259b10fc7
- ostris/ai-toolkit 27a03a91f23eb1b757d5ec2e80ee3e129cfcc350
- modelscope/DiffSynth-Studio fed7b18fac2ed4cb802796eec91970e7659bccde
- tdrussell/diffusion-pipe 8f83dbf25d03219df705570ec03e62be04bc402f
- bghira/SimpleTuner bc8e6ab7738ce457a2ed8eb2d26cadd91c6442cb

The installed diffusers and peft make those of the trainers that call their saving functions: the
example scripts of diffusers, flow_grpo, Flow-Factory, DanceGRPO.

Only what has nothing to do with names, alphas and conversion is left out of a trainer: packages of
images and plots that its modules import are empty ones, hashes in the metadata are empty, and a
method whose module cannot be imported is taken out of the module's source. kohya's `split_qkv=True`
is left out: at this commit it ends with an error. Rows of sd-scripts and DiffSynth use a Kontext of
one block of each kind as wide as FLUX.1, by whose widths trainers and diffusers split fused layers.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from checkpoints import picture
from harness import finish, parser, scratch, table
from safetensors.torch import load_file, save_file

from pytest_imgedit.core import errors
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.diffusers import DiffusersEditor

TESTS = Path(__file__).parent.parent / "tests" / "support"
RANK, ALPHA = 4, 2.0
#: The weight with which each adapter is used.
WEIGHT = 0.8
#: Parameters of the edits, by base.
CALLS: dict[str, dict[str, Any]] = {
    "flux-kontext": {"num_inference_steps": 2, "area": 4096},
    "wide-kontext": {"num_inference_steps": 2, "area": 4096},
    "qwen-image-edit": {"num_inference_steps": 2, "height": 64, "width": 64},
}
#: Modules of diffusers' Kontext script and of DiffSynth's one for Qwen-Image-Edit.
ATTENTION = ["to_k", "to_q", "to_v", "to_out.0", "add_k_proj", "add_q_proj", "add_v_proj"]


@dataclass(frozen=True)
class Adapter:
    """What a trainer wrote, and what it adds to each parameter of the base's components."""

    base: str
    path: Path
    added: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Bench:
    """Bases that adapters are made for, and where they are written."""

    bases: dict[str, Path]
    folder: Path

    def network(self, base: str, name: str = "transformer") -> Any:
        """A fresh copy of a component."""
        import diffusers
        import transformers

        index = json.loads((self.bases[base] / "model_index.json").read_text("utf-8"))
        library, kind = index[name]
        owner: Any = {"diffusers": diffusers, "transformers": transformers}[library]
        return getattr(owner, kind).from_pretrained(self.bases[base], subfolder=name)


def wide_kontext(folder: Path) -> Path:
    """A tiny Kontext whose transformer is as wide as FLUX.1, by whose widths trainers and diffusers
    split fused layers.
    """
    import diffusers

    tiny_models = importlib.import_module("tiny_models")

    tiny_models.flux_kontext(folder)
    config = json.loads((folder / "transformer" / "config.json").read_text("utf-8"))
    config |= {"attention_head_dim": 128, "num_attention_heads": 24, "axes_dims_rope": (16, 56, 56)}
    torch.manual_seed(0)
    diffusers.FluxTransformer2DModel.from_config(config).save_pretrained(folder / "transformer")
    return folder


def draw(network: torch.nn.Module) -> None:
    """Draw the weights of an adapter such that float16 and bfloat16 hold them exactly."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if "lora_" in name:
                weight.copy_(torch.randint(-8, 9, weight.shape) / 8)


def tuned(network: Any, targets: list[str], alpha: float = ALPHA, **options: Any) -> Any:
    """PEFT's model around a network, with random weights."""
    import peft

    config = peft.LoraConfig(r=RANK, lora_alpha=alpha, target_modules=targets, **options)
    model = peft.get_peft_model(network, config)
    draw(model)
    return model


def added_by_peft(model: Any, component: str = "transformer") -> dict[str, torch.Tensor]:
    """What PEFT's own layers add."""
    return {
        f"{component}.{name.removeprefix('base_model.model.')}.weight": layer.get_delta_weight(
            "default"
        )
        .detach()
        .clone()
        for name, layer in model.named_modules()
        if hasattr(layer, "get_delta_weight")
    }


def bare(name: str, folder: Path | None = None, **content: Any) -> None:
    """Have a package of this name without what its `__init__` imports; an empty one if there is no
    folder.
    """
    module = ModuleType(name)
    module.__path__ = [str(folder)] if folder else []
    for key, value in content.items():
        setattr(module, key, value)
    sys.modules.setdefault(name, module)


def method(file: Path, path: str, **scope: Any) -> Any:
    """A function out of a module's source, which is not imported; `path` is `Class.function` or
    `function`.
    """
    nodes: Any = ast.parse(file.read_text("utf-8"))
    for part in path.split("."):
        nodes = next(
            node
            for node in nodes.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == part
        )
    nodes.decorator_list = []
    exec(compile(ast.Module([nodes], []), str(file), "exec"), scope)
    return scope[nodes.name]


# Saving functions of diffusers and peft


def diffusers_kontext(bench: Bench, name: str) -> Adapter:
    """`save_lora_weights` with the metadata that diffusers' example scripts give."""
    import diffusers
    from diffusers.training_utils import _collate_lora_metadata
    from peft import get_peft_model_state_dict

    model = tuned(bench.network("flux-kontext"), ATTENTION)
    diffusers.FluxKontextPipeline.save_lora_weights(
        bench.folder / name,
        transformer_lora_layers=get_peft_model_state_dict(model.base_model.model),
        **_collate_lora_metadata({"transformer": model}),
    )
    file = bench.folder / name / "pytorch_lora_weights.safetensors"
    return Adapter("flux-kontext", file, added_by_peft(model))


def diffusers_kontext_text(bench: Bench, name: str) -> Adapter:
    """The same with `--train_text_encoder`."""
    import diffusers
    from diffusers.training_utils import _collate_lora_metadata
    from peft import get_peft_model_state_dict

    model = tuned(bench.network("flux-kontext"), ATTENTION)
    words = tuned(
        bench.network("flux-kontext", "text_encoder"), ["q_proj", "k_proj", "v_proj", "out_proj"]
    )
    diffusers.FluxKontextPipeline.save_lora_weights(
        bench.folder / name,
        transformer_lora_layers=get_peft_model_state_dict(model.base_model.model),
        text_encoder_lora_layers=get_peft_model_state_dict(words.base_model.model),
        **_collate_lora_metadata({"transformer": model, "text_encoder": words}),
    )
    file = bench.folder / name / "pytorch_lora_weights.safetensors"
    added = added_by_peft(model) | added_by_peft(words, "text_encoder")
    return Adapter("flux-kontext", file, added)


def dance_grpo(bench: Bench, name: str) -> Adapter:
    """`save_lora_weights` without metadata, as DanceGRPO calls it; alpha is in `lora_config.json`
    alone.
    """
    import diffusers
    from peft import get_peft_model_state_dict

    model = tuned(bench.network("flux-kontext"), ["to_k", "to_q", "to_v", "to_out.0"], RANK)
    diffusers.FluxKontextPipeline.save_lora_weights(
        bench.folder / name,
        transformer_lora_layers=get_peft_model_state_dict(model.base_model.model),
    )
    file = bench.folder / name / "pytorch_lora_weights.safetensors"
    return Adapter("flux-kontext", file, added_by_peft(model))


def peft_folder(base: str, **options: Any) -> Callable[[Bench, str], Adapter]:
    """`PeftModel.save_pretrained`, which flow_grpo and Flow-Factory call."""

    def make(bench: Bench, name: str) -> Adapter:
        model = tuned(bench.network(base), ATTENTION, **options)
        model.save_pretrained(bench.folder / name)
        return Adapter(base, bench.folder / name, added_by_peft(model))

    return make


# Networks of kohya


def kohya_flux(
    clone: Path, text: bool = False, alpha: float = ALPHA
) -> Callable[[Bench, str], Adapter]:
    """The network of `flux_train_network.py`, on its FLUX of the tiny one's sizes."""

    def make(bench: Bench, name: str) -> Adapter:
        flux_models, flux_utils, lora_flux = kohya_modules(clone)
        base = bench.network("wide-kontext")
        encoder = bench.network("wide-kontext", "text_encoder")
        flux = flux_models.Flux(flux_params(flux_models, base))
        network = lora_flux.create_network(1.0, RANK, alpha, None, [encoder], flux)
        network.apply_to([encoder], flux, text, True)
        draw(network)
        file = bench.folder / f"{name}.safetensors"
        network.save_weights(str(file), torch.float16, {"ss_network_module": "networks.lora_flux"})
        shapes = base.state_dict()
        names = flux_utils.make_diffusers_to_bfl_map(1, 1)
        added = to_diffusers(dict(fused(flux, "lora_unet", network.unet_loras)), names, shapes)
        for key, value in fused(encoder, "lora_te1", network.text_encoder_loras if text else ()):
            added[f"text_encoder.{key}"] = value
        return Adapter("wide-kontext", file, added)

    return make


def kohya_to_ai_toolkit(clone: Path) -> Callable[[Bench, str], Adapter]:
    """kohya's `convert_flux_lora.py --dst ai-toolkit` on kohya's own file."""

    def make(bench: Bench, name: str) -> Adapter:
        made = kohya_flux(clone)(bench, f"{name} source")
        converter = importlib.import_module("networks.convert_flux_lora")
        file = bench.folder / f"{name}.safetensors"
        converted = converter.convert_sd_scripts_to_ai_toolkit(load_file(made.path))
        save_file({key: value.clone() for key, value in converted.items()}, file)
        return Adapter(made.base, file, made.added)

    return make


def kohya_modules(clone: Path) -> tuple[Any, Any, Any]:
    """kohya's modules of FLUX and of its adapters."""
    sys.path.insert(0, str(clone))
    importlib.import_module("library")
    bare("library.utils", setup_logging=lambda: None)
    bare("library.train_util", precalculate_safetensors_hashes=lambda tensors, metadata: ("", ""))
    for name in ("utils", "train_util"):
        setattr(sys.modules["library"], name, sys.modules[f"library.{name}"])
    names = ("library.flux_models", "library.flux_utils", "networks.lora_flux")
    models, utils, lora = (importlib.import_module(name) for name in names)
    return models, utils, lora


def flux_params(flux_models: Any, base: Any) -> Any:
    """The sizes of diffusers' FLUX as kohya's takes them."""
    config = base.config
    return flux_models.FluxParams(
        in_channels=config.in_channels,
        vec_in_dim=config.pooled_projection_dim,
        context_in_dim=config.joint_attention_dim,
        hidden_size=base.inner_dim,
        mlp_ratio=4.0,
        num_heads=config.num_attention_heads,
        depth=config.num_layers,
        depth_single_blocks=config.num_single_layers,
        axes_dim=list(config.axes_dims_rope),
        theta=10_000,
        qkv_bias=True,
        guidance_embed=config.guidance_embeds,
    )


def fused(model: Any, prefix: str, loras: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """What kohya's modules add to the parameters of a model, by their names in it."""
    names = {f"{prefix}.{name}".replace(".", "_"): name for name, _ in model.named_modules()}
    for lora in loras:
        downs, ups = (
            part if isinstance(part, torch.nn.ModuleList) else [part]
            for part in (lora.lora_down, lora.lora_up)
        )
        pairs = zip(downs, ups, strict=True)
        rows = torch.cat([up.weight @ down.weight for down, up in pairs])
        yield f"{names[lora.lora_name]}.weight", (rows * lora.scale).detach()


def to_diffusers(
    added: dict[str, torch.Tensor], names: dict[str, tuple[int, str]], shapes: dict[str, Any]
) -> dict[str, torch.Tensor]:
    """Split what is added to fused parameters by rows, for diffusers' parameters; `names` is
    kohya's map.
    """
    result = {}
    for fused_name, rows in added.items():
        parts = sorted((at, name) for name, (at, owner) in names.items() if owner == fused_name)
        pieces = rows.split([len(shapes[name]) for _, name in parts])
        for (_, name), piece in zip(parts, pieces, strict=True):
            result[f"transformer.{name}"] = piece
    return result


def musubi_qwen(clone: Path, converted: bool = False) -> Callable[[Bench, str], Adapter]:
    """The network of musubi's `qwen_image_train_network.py`; `converted` by `convert_lora.py
    --target other`.
    """

    def make(bench: Bench, name: str) -> Adapter:
        sys.path.insert(0, str(clone / "src"))
        lora = importlib.import_module("musubi_tuner.networks.lora_qwen_image")
        base = bench.network("qwen-image-edit")
        network = lora.create_arch_network(1.0, RANK, ALPHA, None, [], base)
        network.apply_to([], base, False, True)
        draw(network)
        file = bench.folder / f"{name}.safetensors"
        network.save_weights(str(file), torch.bfloat16, {})
        if converted:
            convert = importlib.import_module("musubi_tuner.convert_lora")
            convert.convert(str(file), str(file), "other", None)
        added = {
            f"transformer.{key}": value
            for key, value in fused(base, "lora_unet", network.unet_loras)
        }
        return Adapter("qwen-image-edit", file, added)

    return make


# Trainers that save with functions of their own


def diffsynth_module(clone: Path) -> tuple[Any, Any]:
    """DiffSynth's functions that add an adapter and that choose what is saved."""
    import peft

    file = clone / "diffsynth" / "diffusion" / "training_module.py"
    scope = {
        "LoraConfig": peft.LoraConfig,
        "inject_adapter_in_model": peft.inject_adapter_in_model,
    }
    owner = "DiffusionTrainingModule"
    return (
        method(file, f"{owner}.add_lora_to_model", **scope),
        method(file, f"{owner}.export_trainable_state_dict"),
    )


def diffsynth_saved(clone: Path, dit: torch.nn.Module, targets: list[str]) -> dict[str, Any]:
    """What DiffSynth's trainer gives to its logger, of a transformer at `pipe.dit`."""
    add, export = diffsynth_module(clone)
    add(None, dit, targets, RANK)
    draw(dit)
    state = {f"pipe.dit.{name}": value for name, value in dit.state_dict().items()}
    names = {f"pipe.dit.{name}" for name, _ in dit.named_parameters() if "lora_" in name}
    trainer = SimpleNamespace(trainable_param_names=lambda: names)
    exported: dict[str, Any] = export(trainer, state, remove_prefix="pipe.dit.")
    return exported


def diffsynth_qwen(clone: Path) -> Callable[[Bench, str], Adapter]:
    """`step-N.safetensors` of Qwen-Image-Edit: PEFT's names with the adapter's in them."""

    def make(bench: Bench, name: str) -> Adapter:
        base = bench.network("qwen-image-edit")
        targets = [
            *ATTENTION,
            "to_add_out",
            "img_mlp.net.2",
            "img_mod.1",
            "txt_mlp.net.2",
            "txt_mod.1",
        ]
        state = diffsynth_saved(clone, base, targets)
        file = bench.folder / f"{name}.safetensors"
        save_file({key: value.to(torch.bfloat16) for key, value in state.items()}, file)
        return Adapter("qwen-image-edit", file, added_by_peft(base))

    return make


def diffsynth_flux(
    clone: Path, aligned: bool, utils: Path | None
) -> Callable[[Bench, str], Adapter]:
    """`step-N.safetensors` of FLUX.1 Kontext, with and without `--align_to_opensource_format`."""

    def make(bench: Bench, name: str) -> Adapter:
        bare("diffsynth", clone / "diffsynth")
        bare("diffsynth.models", clone / "diffsynth" / "models")
        models = importlib.import_module("diffsynth.models.flux_dit")
        base = bench.network("wide-kontext")
        width, heads = base.inner_dim, base.config.num_attention_heads
        dit = torch.nn.Module()
        dit.blocks = torch.nn.ModuleList([models.FluxJointTransformerBlock(width, heads)])
        dit.single_blocks = torch.nn.ModuleList([models.FluxSingleTransformerBlock(width, heads)])
        targets = [
            "a_to_qkv",
            "b_to_qkv",
            "ff_a.0",
            "ff_a.2",
            "ff_b.0",
            "ff_b.2",
            "a_to_out",
            "b_to_out",
            "proj_out",
            "norm.linear",
            "norm1_a.linear",
            "norm1_b.linear",
            "to_qkv_mlp",
        ]
        state = diffsynth_saved(clone, dit, targets)
        if aligned:
            script = clone / "examples" / "flux" / "model_training" / "train.py"
            state = method(script, "convert_lora_format", torch=torch)(state)
        file = bench.folder / f"{name}.safetensors"
        save_file({key: value.contiguous() for key, value in state.items()}, file)
        assert utils is not None
        names = kohya_modules(utils)[1].make_diffusers_to_bfl_map(1, 1)
        added = {bfl_name(key): value for key, value in added_by_peft(dit).items()}
        return Adapter("wide-kontext", file, to_diffusers(added, names, base.state_dict()))

    return make


def bfl_name(name: str) -> str:
    """FLUX's own name of a parameter of DiffSynth's FLUX."""
    name = name.removeprefix("transformer.").replace(
        "single_blocks.0.norm.", "single_blocks.0.modulation."
    )
    if name.startswith("blocks."):
        name = f"double_{name}"
    for theirs, ours in (
        ("norm1_a.linear", "img_mod.lin"), ("norm1_b.linear", "txt_mod.lin"),
        ("attn.a_to_qkv", "img_attn.qkv"), ("attn.b_to_qkv", "txt_attn.qkv"),
        ("attn.a_to_out", "img_attn.proj"), ("attn.b_to_out", "txt_attn.proj"),
        ("ff_a.", "img_mlp."), ("ff_b.", "txt_mlp."), ("modulation.linear", "modulation.lin"),
        ("to_qkv_mlp", "linear1"), ("proj_out", "linear2"),
    ):  # fmt: skip
        name = name.replace(theirs, ours)
    return name


def ai_toolkit(clone: Path, base: str) -> Callable[[Bench, str], Adapter]:
    """`NAME_000000250.safetensors`, in float16 as in its example configs."""

    def make(bench: Bench, name: str) -> Adapter:
        sys.path.insert(0, str(clone))
        bare("toolkit", clone / "toolkit")
        bare("optimum")
        bare("optimum.quanto", QTensor=int, QBytesTensor=bytes)
        bare("toolkit.config_modules", NetworkConfig=object, LoRMConfig=object)
        bare("toolkit.metadata", add_model_hash_to_meta=lambda tensors, metadata: metadata)
        bare("toolkit.saving", get_lora_keymap_from_model_keymap=lambda names: names)
        bare("toolkit.models", clone / "toolkit" / "models")
        bare("toolkit.models.lokr", LokrModule=object)
        bare("toolkit.models.DoRA", DoRAModule=object)
        special = importlib.import_module("toolkit.lora_special")
        network = bench.network(base)
        folder = clone / "extensions_built_in" / "diffusion_models" / "qwen_image"
        rename = method(folder / "qwen_image.py", "QwenImageModel.convert_lora_weights_before_save")
        keep = lambda self, state: state  # noqa: E731
        owner: Any = ModuleType("model")  # can be referred to weakly
        owner.use_old_lokr_format = False
        hook = rename if base.startswith("qwen") else keep
        owner.convert_lora_weights_before_save = MethodType(hook, owner)
        lora = special.LoRASpecialNetwork(
            text_encoder=None, unet=network, lora_dim=RANK, alpha=RANK, is_transformer=True,
            train_text_encoder=False, target_lin_modules=[type(network).__name__], base_model=owner,
        )  # fmt: skip
        lora.apply_to(None, network, False, True)
        draw(lora)
        file = bench.folder / f"{name}.safetensors"
        lora.save_weights(str(file), dtype=torch.float16)
        names = {key.replace(".", "$$"): key for key, _ in network.named_modules()}
        added = {}
        for part in lora.unet_loras:
            module = names[part.lora_name.removeprefix("transformer$$")]
            rows = part.lora_up.weight @ part.lora_down.weight
            added[f"transformer.{module}.weight"] = rows.detach()
        return Adapter(base, file, added)

    return make


def diffusion_pipe_qwen(clone: Path) -> Callable[[Bench, str], Adapter]:
    """`epochN/` of Qwen-Image-Edit: ComfyUI's names beside PEFT's config."""

    def make(bench: Bench, name: str) -> Adapter:
        import safetensors.torch

        save = method(
            clone / "models" / "qwen_image.py", "QwenImagePipeline.save_adapter",
            safetensors=safetensors,
        )  # fmt: skip
        network = bench.network("qwen-image-edit")
        model = tuned(network, ATTENTION, RANK)
        state = {
            key.replace(".default", ""): value.detach().to(torch.bfloat16)
            for key, value in network.named_parameters()
            if "lora_" in key
        }
        folder = bench.folder / name
        folder.mkdir()
        save(SimpleNamespace(peft_config=model.peft_config["default"]), folder, state)
        return Adapter("qwen-image-edit", folder, added_by_peft(model))

    return make


def simpletuner_comfy(clone: Path) -> Callable[[Bench, str], Adapter]:
    """`pytorch_lora_weights.safetensors` with `--lora_format=comfyui`."""

    def make(bench: Bench, name: str) -> Adapter:
        file = clone / "simpletuner" / "helpers" / "training" / "lora_format.py"
        spec = importlib.util.spec_from_file_location("simpletuner_lora_format", file)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        made = diffusers_kontext(bench, f"{name} source")
        metadata = {"r": RANK, "lora_alpha": ALPHA}
        state = module.convert_diffusers_to_comfyui(load_file(made.path), adapter_metadata=metadata)
        path = bench.folder / f"{name}.safetensors"
        save_file(state, path)
        return Adapter(made.base, path, made.added)

    return make


def makers(options: argparse.Namespace) -> dict[tuple[str, str], Callable[[Bench, str], Adapter]]:
    """How each adapter is made, by trainer and layout."""
    found: dict[tuple[str, str], Callable[[Bench, str], Adapter]] = {
        ("diffusers", "Kontext script"): diffusers_kontext,
        ("diffusers", "Kontext script, text encoder"): diffusers_kontext_text,
        ("DanceGRPO", "save_lora_weights, no metadata"): dance_grpo,
        ("flow_grpo", "PEFT folder, Kontext"): peft_folder("flux-kontext"),
        ("Flow-Factory", "PEFT folder, Qwen"): peft_folder("qwen-image-edit"),
        ("peft", "folder, rank and alpha patterns"): peft_folder(
            "flux-kontext", rank_pattern={"to_q": 2}, alpha_pattern={"to_v": 8}
        ),
        ("peft", "folder, rsLoRA"): peft_folder("flux-kontext", use_rslora=True),
    }
    if clone := options.sd_scripts:
        found |= {
            ("sd-scripts", "Kontext"): kohya_flux(clone),
            ("sd-scripts", "Kontext, alpha 1"): kohya_flux(clone, alpha=1.0),
            ("sd-scripts", "Kontext, CLIP"): kohya_flux(clone, text=True),
            ("sd-scripts", "convert_flux_lora, ai-toolkit"): kohya_to_ai_toolkit(clone),
        }
    if clone := options.musubi_tuner:
        found |= {
            ("musubi-tuner", "Qwen"): musubi_qwen(clone),
            ("musubi-tuner", "Qwen, convert_lora"): musubi_qwen(clone, converted=True),
        }
    if clone := options.diffsynth:
        found["DiffSynth", "Qwen"] = diffsynth_qwen(clone)
        if options.sd_scripts:
            found |= {
                ("DiffSynth", "Kontext, aligned"): diffsynth_flux(clone, True, options.sd_scripts),
                ("DiffSynth", "Kontext"): diffsynth_flux(clone, False, options.sd_scripts),
            }
    if clone := options.ai_toolkit:
        found |= {
            ("ai-toolkit", "Kontext"): ai_toolkit(clone, "flux-kontext"),
            ("ai-toolkit", "Qwen"): ai_toolkit(clone, "qwen-image-edit"),
        }
    if clone := options.diffusion_pipe:
        found["diffusion-pipe", "Qwen"] = diffusion_pipe_qwen(clone)
    if clone := options.simpletuner:
        found["SimpleTuner", "Kontext, comfyui"] = simpletuner_comfy(clone)
    return found


# Edits


def edit(model: Path, base: str, path: Path | None, added: dict[str, torch.Tensor]) -> Any:
    """The pixels of an edit with an adapter, or with what is added to the base's parameters."""
    loras = [{"path": str(path), "weight": WEIGHT}] if path else []
    editor = DiffusersEditor(str(model), device="cpu", loras=loras, **CALLS[base])
    with torch.no_grad():
        for name, value in added.items():
            component, _, parameter = name.partition(".")
            network = getattr(editor.pipeline, component)
            network.get_parameter(parameter).add_(WEIGHT * value.float())
    request = EditRequest("one", "default", "make it brighter", picture(1, 64, 64), seed=1)
    return np.asarray(editor.edit(request), dtype=np.int16)


def compare(bench: Bench, made: Adapter, bases: dict[str, Any]) -> list[str | int]:
    """Largest difference to the edit with merged weights, and to the base's; an error instead."""
    model = bench.bases[made.base]
    if made.base not in bases:
        bases[made.base] = edit(model, made.base, None, {})
    merged = edit(model, made.base, None, made.added)
    moved = int(abs(merged - bases[made.base]).max())
    try:
        edited = edit(model, made.base, made.path, {})
    except errors.SetupError as error:
        return ["refused", moved, str(error)]
    return [int(abs(edited - merged).max()), moved, ""]


def main() -> None:
    made = parser(__doc__)
    for name in (
        "sd-scripts",
        "musubi-tuner",
        "ai-toolkit",
        "diffsynth",
        "diffusion-pipe",
        "simpletuner",
    ):
        made.add_argument(f"--{name}", type=Path, help=f"a clone of {name}")
    made.add_argument("--only", default="", help="only rows whose trainer or layout has this text")
    options = made.parse_args()
    sys.path.insert(0, str(TESTS))
    tiny_models = importlib.import_module("tiny_models")
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    for log in (diffusers_logging, transformers_logging):
        log.disable_progress_bar()
    with scratch(options) as folder:
        builders = {
            "flux-kontext": tiny_models.flux_kontext,
            "wide-kontext": wide_kontext,
            "qwen-image-edit": tiny_models.qwen_image_edit,
        }
        bases = {name: build(folder / name) for name, build in builders.items()}
        bench = Bench(bases, folder / "adapters")
        bench.folder.mkdir()
        plain: dict[str, Any] = {}
        rows = []
        for number, ((trainer, layout), make) in enumerate(makers(options).items()):
            if options.only not in f"{trainer} {layout}":
                continue
            adapter = make(bench, str(number))
            rows.append([trainer, layout, count(adapter.path), *compare(bench, adapter, plain)])
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    table(["trainer", "layout", "tensors", "differs", "moves", "refusal"], rows)
    finish(options, {"rows": rows})


def count(path: Path) -> int:
    """The tensors of an adapter's file."""
    return len(load_file(path if path.is_file() else path / "adapter_model.safetensors"))


if __name__ == "__main__":
    main()
