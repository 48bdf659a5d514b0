"""The weights of tiny models under the names that their authors, Stable Diffusion and ComfyUI give
them, and in GGUF: the inverse of what diffusers renames when it loads a single file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Tensors = dict[str, torch.Tensor]

FLUX = {
    "time_text_embed.timestep_embedder.linear_1": "time_in.in_layer",
    "time_text_embed.timestep_embedder.linear_2": "time_in.out_layer",
    "time_text_embed.text_embedder.linear_1": "vector_in.in_layer",
    "time_text_embed.text_embedder.linear_2": "vector_in.out_layer",
    "time_text_embed.guidance_embedder.linear_1": "guidance_in.in_layer",
    "time_text_embed.guidance_embedder.linear_2": "guidance_in.out_layer",
    "context_embedder": "txt_in",
    "x_embedder": "img_in",
    "proj_out": "final_layer.linear",
}
FLUX_DOUBLE = {
    "norm1.linear": "img_mod.lin",
    "norm1_context.linear": "txt_mod.lin",
    "attn.norm_q": "img_attn.norm.query_norm",
    "attn.norm_k": "img_attn.norm.key_norm",
    "attn.norm_added_q": "txt_attn.norm.query_norm",
    "attn.norm_added_k": "txt_attn.norm.key_norm",
    "ff.net.0.proj": "img_mlp.0",
    "ff.net.2": "img_mlp.2",
    "ff_context.net.0.proj": "txt_mlp.0",
    "ff_context.net.2": "txt_mlp.2",
    "attn.to_out.0": "img_attn.proj",
    "attn.to_add_out": "txt_attn.proj",
}
FLUX_SINGLE = {
    "norm.linear": "modulation.lin",
    "attn.norm_q": "norm.query_norm",
    "attn.norm_k": "norm.key_norm",
    "proj_out": "linear2",
}
FLUX_FUSED = {
    "img_attn.qkv": ("attn.to_q", "attn.to_k", "attn.to_v"),
    "txt_attn.qkv": ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"),
    "linear1": ("attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"),
}
Z_IMAGE = {
    "all_final_layer.2-1.": "final_layer.",
    "all_x_embedder.2-1.": "x_embedder.",
    ".attention.to_out.0.": ".attention.out.",
    ".attention.norm_q.": ".attention.q_norm.",
    ".attention.norm_k.": ".attention.k_norm.",
}
RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}
#: Of a UNet with two levels of one layer each, the second one with attention.
UNET = {
    "conv_in": "input_blocks.0.0",
    "down_blocks.0.resnets.0": "input_blocks.1.0",
    "down_blocks.0.downsamplers.0.conv": "input_blocks.2.0.op",
    "down_blocks.1.resnets.0": "input_blocks.3.0",
    "down_blocks.1.attentions.0": "input_blocks.3.1",
    "mid_block.resnets.0": "middle_block.0",
    "mid_block.attentions.0": "middle_block.1",
    "mid_block.resnets.1": "middle_block.2",
    "up_blocks.0.resnets.0": "output_blocks.0.0",
    "up_blocks.0.attentions.0": "output_blocks.0.1",
    "up_blocks.0.resnets.1": "output_blocks.1.0",
    "up_blocks.0.attentions.1": "output_blocks.1.1",
    "up_blocks.0.upsamplers.0.conv": "output_blocks.1.2.conv",
    "up_blocks.1.resnets.0": "output_blocks.2.0",
    "up_blocks.1.resnets.1": "output_blocks.3.0",
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "add_embedding.linear_1": "label_emb.0.0",
    "add_embedding.linear_2": "label_emb.0.2",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
}
VAE = {
    "mid_block.resnets.0": "mid.block_1",
    "mid_block.resnets.1": "mid.block_2",
    "mid_block.attentions.0.group_norm": "mid.attn_1.norm",
    "mid_block.attentions.0.to_q": "mid.attn_1.q",
    "mid_block.attentions.0.to_k": "mid.attn_1.k",
    "mid_block.attentions.0.to_v": "mid.attn_1.v",
    "mid_block.attentions.0.to_out.0": "mid.attn_1.proj_out",
    "conv_norm_out": "norm_out",
    "conv_shortcut": "nin_shortcut",
    "downsamplers.0": "downsample",
    "upsamplers.0": "upsample",
    "resnets": "block",
    "down_blocks": "down",
}
OPEN_CLIP = {
    "embeddings.token_embedding": "token_embedding",
    "embeddings.position_embedding.weight": "positional_embedding",
    "final_layer_norm": "ln_final",
    "encoder.layers": "transformer.resblocks",
    "layer_norm": "ln_",
    "self_attn.out_proj": "attn.out_proj",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}
CLIP_PREFIX = "cond_stage_model.transformer.text_model."


def flux(tensors: Tensors) -> Tensors:
    """A FLUX transformer as Black Forest Labs name it."""
    left = dict(tensors)
    named: Tensors = {}
    for name in list(left):
        if name.startswith("norm_out.linear."):
            scale, shift = left.pop(name).chunk(2)
            named[f"final_layer.adaLN_modulation.1.{name.rpartition('.')[2]}"] = torch.cat(
                [shift, scale]
            )
    for ours, theirs, names in (
        ("transformer_blocks", "double_blocks", FLUX_DOUBLE),
        ("single_transformer_blocks", "single_blocks", FLUX_SINGLE),
    ):
        blocks = {name.split(".")[1] for name in left if name.startswith(f"{ours}.")}
        for block in blocks:
            for fused, parts in FLUX_FUSED.items():
                for kind in ("weight", "bias"):
                    of_parts = [f"{ours}.{block}.{part}.{kind}" for part in parts]
                    if (fused == "linear1") == (theirs == "single_blocks") and all(
                        name in left for name in of_parts
                    ):
                        named[f"{theirs}.{block}.{fused}.{kind}"] = torch.cat(
                            [left.pop(name) for name in of_parts]
                        )
            for part, new in names.items():
                _move(left, named, f"{ours}.{block}.{part}", f"{theirs}.{block}.{new}")
    for part, new in FLUX.items():
        _move(left, named, part, new)
    assert not left, list(left)
    return {re.sub(r"_norm\.weight$", "_norm.scale", name): named[name] for name in named}


def _move(left: Tensors, named: Tensors, part: str, new: str) -> None:
    for kind in ("weight", "bias"):
        if f"{part}.{kind}" in left:
            named[f"{new}.{kind}"] = left.pop(f"{part}.{kind}")


def z_image(tensors: Tensors) -> Tensors:
    """A Z-Image transformer as its authors name it, with the norm that diffusers leaves out."""
    named: Tensors = {"norm_final.weight": torch.ones(1)}
    for name, tensor in tensors.items():
        new = name
        for part, theirs in Z_IMAGE.items():
            new = new.replace(part, theirs)
        if ".attention.to_q." in name:
            parts = [tensors[name.replace("to_q", part)] for part in ("to_q", "to_k", "to_v")]
            named[new.replace("to_q", "qkv")] = torch.cat(parts)
        elif ".attention.to_k." not in name and ".attention.to_v." not in name:
            named[new] = tensor
    return named


def unet(tensors: Tensors) -> Tensors:
    """A tiny UNet as Stable Diffusion names it."""
    named: Tensors = {}
    for name, tensor in tensors.items():
        part = max((part for part in UNET if name.startswith(f"{part}.")), key=len)
        rest = name.removeprefix(f"{part}.")
        if ".resnets." in f".{part}.":
            layer, _, kind = rest.partition(".")
            rest = f"{RESNET[layer]}.{kind}"
        named[f"model.diffusion_model.{UNET[part]}.{rest}"] = tensor
    return named


def vae(tensors: Tensors) -> Tensors:
    """An autoencoder of four levels as Stable Diffusion names it."""
    named: Tensors = {}
    for name, tensor in tensors.items():
        new = re.sub(r"up_blocks\.(\d)", lambda match: f"up.{3 - int(match[1])}", name)
        for part, theirs in VAE.items():
            new = re.sub(rf"(?<![a-z_]){re.escape(part)}(?=\.)", theirs, new)
        is_attention = re.search(r"attn_1\.(q|k|v|proj_out)\.weight", new)
        named[f"first_stage_model.{new}"] = tensor[:, :, None, None] if is_attention else tensor
    return named


def clip(tensors: Tensors) -> Tensors:
    """A CLIP text encoder as Stable Diffusion names it, with the positions that it stores."""
    named = {CLIP_PREFIX + name.removeprefix("text_model."): t for name, t in tensors.items()}
    return {**named, f"{CLIP_PREFIX}embeddings.position_ids": torch.arange(77)[None]}


def clip_of_xl(tensors: Tensors) -> Tensors:
    """A CLIP text encoder as Stable Diffusion XL names it, its first one."""
    prefix = "conditioner.embedders.0.transformer.text_model."
    return {name.replace(CLIP_PREFIX, prefix): tensor for name, tensor in clip(tensors).items()}


def open_clip(tensors: Tensors) -> Tensors:
    """The second text encoder of Stable Diffusion XL, as OpenCLIP names it."""
    named: Tensors = {"logit_scale": torch.zeros(())}
    for name, tensor in tensors.items():
        new = name.removeprefix("text_model.")
        kind = new.rpartition(".")[2]
        if new == "text_projection.weight":
            named["text_projection"] = tensor.T
        elif ".self_attn.q_proj." in new:
            parts = [
                tensors[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")
            ]
            layer = new.split(".")[2]
            named[f"transformer.resblocks.{layer}.attn.in_proj_{kind}"] = torch.cat(parts)
        elif ".self_attn.k_proj." not in new and ".self_attn.v_proj." not in new:
            for part, theirs in OPEN_CLIP.items():
                new = new.replace(part, theirs)
            named[new] = tensor
    return {f"conditioner.embedders.1.model.{name}": named[name] for name in named}


def save_gguf(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    kind: str,
    architecture: str,
    ranks: Sequence[int] = (2,),
) -> dict[str, Any]:
    """Save weights as GGUF, those of these `ranks` with rows of whole blocks as `kind`,
    the others in float32;
    return what diffusers makes of them, by name: it computes the product of a block's scale and its
    numbers in half precision.
    """
    import gguf

    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    read: dict[str, Any] = {}
    for name, tensor in tensors.items():
        values = tensor.float().contiguous().numpy()
        of_kind = gguf.GGMLQuantizationType[kind]
        block, _ = gguf.GGML_QUANT_SIZES[of_kind]
        if values.ndim not in ranks or values.shape[-1] % block:
            of_kind = gguf.GGMLQuantizationType.F32
        stored = gguf.quants.quantize(values, of_kind)
        writer.add_tensor(name, stored, raw_dtype=of_kind)
        read[name] = torch.from_numpy(gguf.quants.dequantize(stored, of_kind).copy())
        if block > 1 and of_kind.name == kind:
            read[name] = read[name].half().float()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read
