"""Tiny random checkpoints of FLUX.2, LongCat, Qwen-Image 2.1 and Bria pipelines, and of one that is
no editor.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLFlux2,
    AutoencoderKLQwenImage,
    AutoencoderKLQwenImage21,
    AutoencoderKLWan,
    BriaFibo2Transformer2DModel,
    BriaFiboTransformer2DModel,
    FlowMatchEulerDiscreteScheduler,
    Flux2Transformer2DModel,
    LongCatImageTransformer2DModel,
    QwenImage21Transformer2DModel,
    QwenImageTransformer2DModel,
)
from tiny_models import SPECIAL, image_processor, qwen25_vl, save_pipeline, tokenizer, vl_config
from transformers import (
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from pytest_imgedit.kinds.compute.qwen_inputs import AssembledProcessor

if TYPE_CHECKING:
    from pathlib import Path

CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in "
    "message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% else "
    "%}<|vision_start|><|image_pad|><|vision_end|>{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT_PARTS = (
    "context_embedder",
    "perceiver",
    "cross_attention",
    "cross_attn",
    "add_k_proj",
    "add_v_proj",
)
SCHEDULER = ("diffusers", "FlowMatchEulerDiscreteScheduler", FlowMatchEulerDiscreteScheduler())


def chat_tokenizer(**options: Any) -> PreTrainedTokenizerFast:
    """The tiny tokenizer with a chat template."""
    words = tokenizer(**options)
    words.chat_template = CHAT
    return words


def _small_text(words: PreTrainedTokenizerFast, layers: int) -> dict[str, Any]:
    return {
        "vocab_size": len(words), "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": layers,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 8192,
        "bos_token_id": None, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id,
    }  # fmt: skip


def small_qwen3_vl(
    words: PreTrainedTokenizerFast, layers: int, width: int = 16
) -> Qwen3VLForConditionalGeneration:
    """A narrow Qwen3-VL of any depth, for pipelines that read its deep layers."""
    vision = {
        "depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": width,
        "patch_size": 16, "spatial_merge_size": 2, "num_position_embeddings": 64, "deepstack_visual_indexes": [0],
    }  # fmt: skip
    text = {
        "hidden_size": width,
        "intermediate_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
    }
    torch.manual_seed(0)
    config = Qwen3VLConfig(vision_config=vision, **vl_config(words, **text, num_key_value_heads=1))
    model = Qwen3VLForConditionalGeneration(config).eval()
    _loud(model)
    return model


def _loud(model: torch.nn.Module, scale: float = 5.0) -> None:
    """Enlarge projections, so that what a deep narrow text encoder reads is seen in what it
    returns.
    """
    for name, weight in model.named_parameters():
        if weight.ndim == 2 and ("proj" in name or "embed_tokens" in name):
            weight.data.mul_(scale)


def _vivid(transformer: torch.nn.Module, vae: torch.nn.Module, text: float = 3) -> None:
    """Enlarge weights, so that another source or instruction is seen in the image, and not the
    noise alone.

    `text` is the factor for what reads the text.
    """
    for name, weight in transformer.named_parameters():
        if weight.ndim == 2:
            last = "proj_out" in name or "final_layer" in name
            weight.data.mul_(8 if last else text if any(part in name for part in TEXT_PARTS) else 3)
        elif name.endswith("cross_attn_gate"):
            weight.data.fill_(1)  # starts at 0
    vae.encoder.conv_out.weight.data.mul_(20)


def _kl_vae(kind: type[Any], latent_channels: int, **options: Any) -> Any:
    torch.manual_seed(0)
    return kind(
        block_out_channels=(4,) * 4, in_channels=3, out_channels=3, layers_per_block=1, norm_num_groups=2,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=latent_channels, sample_size=64, mid_block_add_attention=False, **options,
    )  # fmt: skip


def longcat_image_edit(folder: Path) -> None:
    """A tiny LongCat-Image-Edit."""
    words = chat_tokenizer()
    vae = _kl_vae(
        AutoencoderKL,
        16,
        use_quant_conv=False,
        use_post_quant_conv=False,
        shift_factor=0.1159,
        scaling_factor=0.3611,
    )
    torch.manual_seed(0)
    transformer = LongCatImageTransformer2DModel(
        in_channels=64, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=1,
        joint_attention_dim=64, pooled_projection_dim=64, axes_dims_rope=[4, 6, 6],
    )  # fmt: skip
    _vivid(transformer, vae)
    parts = {
        "scheduler": SCHEDULER,
        "text_encoder": ("transformers", "Qwen2_5_VLForConditionalGeneration", qwen25_vl(words)),
        "tokenizer": ("transformers", "PreTrainedTokenizerFast", words),
        "text_processor": (
            "transformers",
            "Qwen2VLProcessor",
            AssembledProcessor(words, image_processor(14, 56**2)),
        ),
        "transformer": ("diffusers", "LongCatImageTransformer2DModel", transformer),
        "vae": ("diffusers", "AutoencoderKL", vae),
    }
    save_pipeline(folder, "LongCatImageEditPipeline", parts)


def _flux2_parts(joint: int, guidance: bool) -> dict[str, tuple[str, str, Any]]:
    torch.manual_seed(0)
    transformer = Flux2Transformer2DModel(
        in_channels=32, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=1,
        joint_attention_dim=joint, timestep_guidance_channels=32, axes_dims_rope=(4, 4, 4, 4), guidance_embeds=guidance,
    )  # fmt: skip
    vae = _kl_vae(AutoencoderKLFlux2, 8)
    _vivid(transformer, vae, text=12)
    return {
        "scheduler": SCHEDULER,
        "transformer": ("diffusers", "Flux2Transformer2DModel", transformer),
        "vae": ("diffusers", "AutoencoderKLFlux2", vae),
    }


def flux2(folder: Path) -> None:
    """A tiny FLUX.2; its `tokenizer` is a PixtralProcessor's folder, of which the pipeline uses the
    tokenizer alone.
    """
    words = chat_tokenizer(model_max_length=8192)
    text = {**_small_text(words, 30), "model_type": "mistral"}
    vision = {
        "model_type": "pixtral", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "head_dim": 8, "image_size": 64, "patch_size": 16,
    }  # fmt: skip
    torch.manual_seed(0)
    config = Mistral3Config(
        text_config=text,
        vision_config=vision,
        image_token_index=SPECIAL.index("<|image_pad|>"),
        spatial_merge_size=2,
    )
    encoder = Mistral3ForConditionalGeneration(config).eval()
    _loud(encoder)
    parts = {
        **_flux2_parts(48, guidance=True),
        "text_encoder": ("transformers", "Mistral3ForConditionalGeneration", encoder),
        "tokenizer": ("transformers", "PixtralProcessor", words),
    }
    save_pipeline(folder, "Flux2Pipeline", parts)
    marks = {
        "image_token": "<|image_pad|>",
        "image_break_token": "<|vision_start|>",
        "image_end_token": "<|vision_end|>",
    }
    processor = {
        "processor_class": "PixtralProcessor",
        "patch_size": 16,
        "spatial_merge_size": 2,
        **marks,
    }
    images = {
        "image_processor_type": "PixtralImageProcessor",
        "patch_size": 16,
        "size": {"longest_edge": 64},
    }
    (folder / "tokenizer" / "processor_config.json").write_text(json.dumps(processor))
    (folder / "tokenizer" / "preprocessor_config.json").write_text(json.dumps(images))


def _klein(folder: Path, kind: str, distilled: bool) -> None:
    words = chat_tokenizer(model_max_length=8192)
    torch.manual_seed(0)
    encoder = Qwen3ForCausalLM(
        Qwen3Config(**_small_text(words, 28), tie_word_embeddings=True)
    ).eval()
    _loud(encoder)
    parts = {
        **_flux2_parts(48, guidance=False),
        "text_encoder": ("transformers", "Qwen3ForCausalLM", encoder),
        "tokenizer": ("transformers", "PreTrainedTokenizerFast", words),
    }
    save_pipeline(folder, kind, parts)
    if kind == "Flux2KleinPipeline":
        index = json.loads((folder / "model_index.json").read_text())
        (folder / "model_index.json").write_text(
            json.dumps({**index, "is_distilled": distilled}, indent=1)
        )


def flux2_klein(folder: Path) -> None:
    """A tiny FLUX.2 Klein base, which takes guidance."""
    _klein(folder, "Flux2KleinPipeline", distilled=False)


def flux2_klein_kv(folder: Path) -> None:
    """A tiny FLUX.2 Klein KV, which keeps the keys and values of the source."""
    _klein(folder, "Flux2KleinKVPipeline", distilled=True)


def qwen_image21(folder: Path) -> None:
    """A tiny Qwen-Image 2.1, of four channels (RGBA); its text encoder has a mark for each 32²
    pixels of the source.
    """
    words = chat_tokenizer(model_max_length=8192)
    torch.manual_seed(0)
    vae = AutoencoderKLQwenImage21(
        base_dim=2, decoder_base_dim=2, z_dim=4, dim_mult=[1] * 5, num_res_blocks=1,
        temperal_downsample=[False, True, True, True], latents_mean=[0.0] * 4, latents_std=[1.0] * 4,
    )  # fmt: skip
    transformer = QwenImage21Transformer2DModel(
        in_channels=4, out_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=1, context_in_dim=16,
        axes_dims_rope=(4, 6, 6),
    )  # fmt: skip
    transformer.proj_out.weight.data.mul_(8)
    processor = AssembledProcessor(words, image_processor(16, 4096 * 4096))
    parts = {
        "scheduler": SCHEDULER,
        "text_encoder": (
            "transformers",
            "Qwen3VLForConditionalGeneration",
            small_qwen3_vl(words, 2),
        ),
        "processor": ("transformers", "Qwen3VLProcessor", processor),
        "transformer": ("diffusers", "QwenImage21Transformer2DModel", transformer),
        "vae": ("diffusers", "AutoencoderKLQwenImage21", vae),
    }
    save_pipeline(folder, "QwenImage21Pipeline", parts)


def bria_fibo_edit(folder: Path) -> None:
    """A tiny Fibo-Edit; the pipeline names token 128000 itself for an empty negative prompt."""
    words = tokenizer(model_max_length=8192)
    torch.manual_seed(0)
    encoder = SmolLM3ForCausalLM(
        SmolLM3Config(
            vocab_size=128_001, hidden_size=4, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, tie_word_embeddings=True, bos_token_id=None, eos_token_id=words.eos_token_id,
            pad_token_id=words.pad_token_id,
        )
    ).eval()  # fmt: skip
    _loud(encoder, 20.0)
    vae = AutoencoderKLWan(
        base_dim=4, decoder_base_dim=4, z_dim=8, dim_mult=[1] * 4, num_res_blocks=1, in_channels=12, out_channels=12,
        patch_size=2, is_residual=True, temperal_downsample=[False, True, True], latents_mean=[0.0] * 8,
        latents_std=[1.0] * 8, scale_factor_spatial=16,
    )  # fmt: skip
    transformer = BriaFiboTransformer2DModel(
        in_channels=8, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=1,
        joint_attention_dim=8, axes_dims_rope=[4, 6, 6], text_encoder_dim=4,
    )  # fmt: skip
    _vivid(transformer, vae)
    parts = {
        "scheduler": SCHEDULER,
        "text_encoder": ("transformers", "SmolLM3ForCausalLM", encoder),
        "tokenizer": ("transformers", "PreTrainedTokenizerFast", words),
        "transformer": ("diffusers", "BriaFiboTransformer2DModel", transformer),
        "vae": ("diffusers", "AutoencoderKLWan", vae),
    }
    save_pipeline(folder, "BriaFiboEditPipeline", parts)


def bria_fibo2(folder: Path) -> None:
    """A tiny Fibo 2.0, which reads layers 5 to 35 of its text encoder."""
    words = chat_tokenizer(model_max_length=8192)
    torch.manual_seed(0)
    transformer = BriaFibo2Transformer2DModel(
        in_channels=8, dim=32, n_layers=2, n_refiner_layers=1, n_heads=2, cap_feat_dim=48,
        injection_layer_ids=(0, 1), perceiver_num_layers=1, min_num_gist_tokens=8, max_num_gist_tokens=16,
        gist_step=8, axes_dims=(4, 6, 6), axes_lens=(64, 256, 256),
    )  # fmt: skip
    vae = _kl_vae(AutoencoderKLFlux2, 8)
    _vivid(transformer, vae, text=12)
    parts = {
        "scheduler": SCHEDULER,
        "text_encoder": (
            "transformers",
            "Qwen3VLForConditionalGeneration",
            small_qwen3_vl(words, 36),
        ),
        "processor": (
            "transformers",
            "Qwen3VLProcessor",
            AssembledProcessor(words, image_processor(16, 64 * 64)),
        ),
        "transformer": ("diffusers", "BriaFibo2Transformer2DModel", transformer),
        "vae": ("diffusers", "AutoencoderKLFlux2", vae),
    }
    save_pipeline(folder, "BriaFibo2Pipeline", parts)


def qwen_image_layered(folder: Path) -> None:
    """A tiny Qwen-Image-Layered, which returns RGBA layers and is no instruction editor.

    A source of as many channels as the VAE's latents would be taken for latents.
    """
    words = chat_tokenizer()
    torch.manual_seed(0)
    vae = AutoencoderKLQwenImage(
        base_dim=2, z_dim=8, dim_mult=[1] * 5, num_res_blocks=1, temperal_downsample=[False, True, True, True],
        latents_mean=[0.0] * 8, latents_std=[1.0] * 8, input_channels=4,
    )  # fmt: skip
    transformer = QwenImageTransformer2DModel(
        in_channels=32, out_channels=8, num_layers=1, attention_head_dim=16, num_attention_heads=1,
        joint_attention_dim=64, axes_dims_rope=(4, 6, 6), use_additional_t_cond=True, use_layer3d_rope=True,
    )  # fmt: skip
    _vivid(transformer, vae)
    parts = {
        "scheduler": SCHEDULER,
        "text_encoder": ("transformers", "Qwen2_5_VLForConditionalGeneration", qwen25_vl(words)),
        "tokenizer": ("transformers", "PreTrainedTokenizerFast", words),
        "processor": (
            "transformers",
            "Qwen2VLProcessor",
            AssembledProcessor(words, image_processor(14, 56 * 56)),
        ),
        "transformer": ("diffusers", "QwenImageTransformer2DModel", transformer),
        "vae": ("diffusers", "AutoencoderKLQwenImage", vae),
    }
    save_pipeline(folder, "QwenImageLayeredPipeline", parts)


BUILDERS = {
    "longcat-image-edit": longcat_image_edit,
    "flux2": flux2,
    "flux2-klein": flux2_klein,
    "flux2-klein-kv": flux2_klein_kv,
    "qwen-image21": qwen_image21,
    "bria-fibo-edit": bria_fibo_edit,
    "bria-fibo2": bria_fibo2,
    "qwen-image-layered": qwen_image_layered,
}
