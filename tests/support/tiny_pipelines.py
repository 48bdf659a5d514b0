"""Tiny random checkpoints of further instruction-editing pipelines, whose weights all carry a
signal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tiny_models
import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLWan,
    AutoencoderTiny,
    DreamLiteUNetModel,
    EDMEulerScheduler,
    FlowMatchEulerDiscreteScheduler,
    GlmImageTransformer2DModel,
    JoyImageEditPlusTransformer3DModel,
    JoyImageEditTransformer3DModel,
    OmniGenTransformer2DModel,
    UNet2DConditionModel,
    ZImageTransformer2DModel,
)
from tiny_models import vl_config
from transformers import (
    ByT5Tokenizer,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    GlmImageConfig,
    GlmImageForConditionalGeneration,
    GlmImageImageProcessorPil,
    GlmImageProcessor,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessorPil,
    Qwen3Config,
    Qwen3Model,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Siglip2ImageProcessorPil,
    Siglip2VisionConfig,
    Siglip2VisionModel,
    T5Config,
    T5EncoderModel,
)

from pytest_imgedit.kinds.compute.qwen_inputs import AssembledProcessor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

SPECIAL = [*tiny_models.SPECIAL, "<|image|>", "<sop>", "<eop>"]
TEXTS = [
    "Describe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships"
]


def redraw(model: Any, gain: float = 1.0) -> Any:
    """Draw all parameters anew, those too that training would start at zero and that would block
    the signal.

    Scales of norms stay one. What was drawn before does not matter: equal calls make equal files.
    """
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=gain / weight[0].numel() ** 0.5)
            elif not bool((weight == 1).all()):
                weight.normal_(std=0.02)
    return model.eval()


def tokenizer(first: Sequence[str] = (), **options: Any) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with Qwen-VL's special tokens; the tokens `first` have the lowest
    numbers.
    """
    return tiny_models.tokenizer(400, [*first, *SPECIAL], TEXTS, **options)


def save_pipeline(
    folder: Path, kind: str, parts: dict[str, tuple[str, Any]], **config: Any
) -> None:
    """Save a pipeline's parts, each given with the class that `model_index.json` names, and its own
    config.
    """
    named = {
        name: (
            "diffusers" if type(part).__module__.startswith("diffusers") else "transformers",
            class_name,
            part,
        )
        for name, (class_name, part) in parts.items()
    }
    tiny_models.save_pipeline(folder, kind, named, **config)


def kl_vae(latent_channels: int, levels: int, width: int = 8, **options: Any) -> AutoencoderKL:
    """An autoencoder that leaves 1 / 2^(levels - 1) of a side."""
    vae = AutoencoderKL(
        block_out_channels=(width,) * levels, in_channels=3, out_channels=3, layers_per_block=1, norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * levels, up_block_types=("UpDecoderBlock2D",) * levels,
        latent_channels=latent_channels, sample_size=64, **options,
    )  # fmt: skip
    return redraw(vae)


def wan_vae(levels: int) -> AutoencoderKLWan:
    """A Wan autoencoder that leaves 1 / (8 * 2^(levels - 1)) of a side: cheap, as it folds 8 x 8
    pixels first.
    """
    vae = AutoencoderKLWan(
        base_dim=4, z_dim=4, dim_mult=[1] * levels, num_res_blocks=1, temperal_downsample=[True] * (levels - 1),
        latents_mean=[0.0] * 4, latents_std=[1.0] * 4, in_channels=3 * 64, out_channels=3 * 64, patch_size=8,
        scale_factor_spatial=8 * 2 ** (levels - 1), scale_factor_temporal=2 ** (levels - 1),
    )  # fmt: skip
    return redraw(vae)


def clip_config(words: PreTrainedTokenizerFast) -> CLIPTextConfig:
    """A text encoder of width 32."""
    return CLIPTextConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=77, projection_dim=32, bos_token_id=0, eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )  # fmt: skip


def qwen3_vl(words: PreTrainedTokenizerFast) -> Qwen3VLForConditionalGeneration:
    """A Qwen3-VL with patches of 8 pixels."""
    vision = {
        "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64,
        "patch_size": 8, "spatial_merge_size": 2, "num_position_embeddings": 64, "deepstack_visual_indexes": [0],
    }  # fmt: skip
    return redraw(
        Qwen3VLForConditionalGeneration(
            Qwen3VLConfig(vision_config=vision, **vl_config(words, intermediate_size=64))
        )
    )


def vl_processor(words: PreTrainedTokenizerFast, patch: int) -> AssembledProcessor:
    """What Qwen-VL takes, without torchvision; images become at most 8 x 8 patches."""
    side = patch * 2
    size = {"shortest_edge": side * side, "longest_edge": (8 * patch) ** 2}
    return AssembledProcessor(
        words, Qwen2VLImageProcessorPil(patch_size=patch, merge_size=2, size=size)
    )


def flow_scheduler(**options: Any) -> tuple[str, FlowMatchEulerDiscreteScheduler]:
    """The scheduler of most of these pipelines."""
    return "FlowMatchEulerDiscreteScheduler", FlowMatchEulerDiscreteScheduler(**options)


def cosxl(folder: Path) -> None:
    """A tiny CosXL; `is_cosxl_edit` must be in `model_index.json`, which diffusers' own saving
    forgets.
    """
    words = tokenizer(model_max_length=77)
    unet = UNet2DConditionModel(
        sample_size=32, in_channels=8, out_channels=4, block_out_channels=(8, 16), layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=64, attention_head_dim=4, norm_num_groups=4, addition_embed_type="text_time",
        addition_time_embed_dim=8, projection_class_embeddings_input_dim=32 + 6 * 8,
    )  # fmt: skip
    scheduler = EDMEulerScheduler(
        sigma_min=0.002,
        sigma_max=120.0,
        sigma_data=1.0,
        prediction_type="v_prediction",
        sigma_schedule="exponential",
    )
    parts = {
        "scheduler": ("EDMEulerScheduler", scheduler),
        "text_encoder": ("CLIPTextModel", redraw(CLIPTextModel(clip_config(words)))),
        "text_encoder_2": (
            "CLIPTextModelWithProjection",
            redraw(CLIPTextModelWithProjection(clip_config(words))),
        ),
        "tokenizer": ("PreTrainedTokenizerFast", words),
        "tokenizer_2": ("PreTrainedTokenizerFast", words),
        "unet": ("UNet2DConditionModel", redraw(unet)),
        "vae": ("AutoencoderKL", kl_vae(4, 4)),
    }
    save_pipeline(
        folder,
        "StableDiffusionXLInstructPix2PixPipeline",
        parts,
        force_zeros_for_empty_prompt=True,
        is_cosxl_edit=True,
    )


def omnigen(folder: Path) -> None:
    """A tiny OmniGen; patches of 16 pixels are fixed in its processor, so its autoencoder leaves an
    8th.
    """
    words = tokenizer()
    transformer = OmniGenTransformer2DModel(
        in_channels=4, patch_size=2, hidden_size=16, num_attention_heads=1, num_key_value_heads=1,
        intermediate_size=32, num_layers=1, pad_token_id=words.pad_token_id, vocab_size=len(words),
        pos_embed_max_size=96, time_step_dim=16,
        rope_scaling={"short_factor": [1.0] * 8, "long_factor": [1.0] * 8},
    )  # fmt: skip
    parts = {
        "scheduler": flow_scheduler(invert_sigmas=True, num_train_timesteps=1),
        "tokenizer": ("PreTrainedTokenizerFast", words),
        "transformer": ("OmniGenTransformer2DModel", redraw(transformer, 2.0)),
        "vae": ("AutoencoderKL", kl_vae(4, 4, width=4)),
    }
    save_pipeline(folder, "OmniGenPipeline", parts)


def _joy(folder: Path, kind: str, transformer_class: type) -> None:
    words = tokenizer()
    transformer = transformer_class(
        patch_size=[1, 2, 2], in_channels=4, hidden_size=16, num_attention_heads=1, text_dim=64, mlp_width_ratio=2.0,
        num_layers=1, rope_dim_list=[4, 6, 6],
    )  # fmt: skip
    parts = {
        "scheduler": flow_scheduler(shift=4.0),
        "text_encoder": ("Qwen3VLForConditionalGeneration", qwen3_vl(words)),
        "tokenizer": ("PreTrainedTokenizerFast", words),
        "processor": ("Qwen3VLProcessor", vl_processor(words, 8)),
        "transformer": (transformer_class.__name__, redraw(transformer, 2.0)),
        "vae": ("AutoencoderKLWan", wan_vae(2)),
    }
    save_pipeline(folder, kind, parts, text_token_max_length=2048)


def joyimage(folder: Path) -> None:
    """A tiny JoyImage Edit."""
    _joy(folder, "JoyImageEditPipeline", JoyImageEditTransformer3DModel)


def joyimage_plus(folder: Path) -> None:
    """A tiny JoyImage Edit Plus."""
    _joy(folder, "JoyImageEditPlusPipeline", JoyImageEditPlusTransformer3DModel)


def zimage_omni(folder: Path) -> None:
    """A tiny Z-Image Omni, whose autoencoder leaves a 16th of a side."""
    words = tokenizer()
    text = Qwen3Config(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, pad_token_id=words.pad_token_id, eos_token_id=words.eos_token_id,
    )  # fmt: skip
    vision = Siglip2VisionConfig(
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_patches=16,
        patch_size=16,
    )
    transformer = ZImageTransformer2DModel(
        in_channels=4, dim=16, n_layers=1, n_refiner_layers=1, n_heads=1, n_kv_heads=1, cap_feat_dim=32,
        siglip_feat_dim=32, axes_dims=[4, 6, 6], axes_lens=[256, 128, 128],
    )  # fmt: skip
    parts = {
        "scheduler": flow_scheduler(shift=3.0),
        "text_encoder": ("Qwen3Model", redraw(Qwen3Model(text))),
        "tokenizer": ("PreTrainedTokenizerFast", words),
        "transformer": ("ZImageTransformer2DModel", redraw(transformer, 2.0)),
        "vae": ("AutoencoderKL", kl_vae(4, 5, shift_factor=0.1159, scaling_factor=0.3611)),
        "siglip": ("Siglip2VisionModel", redraw(Siglip2VisionModel(vision))),
        "siglip_processor": (
            "Siglip2ImageProcessor",
            Siglip2ImageProcessorPil(patch_size=16, max_num_patches=16),
        ),
    }
    save_pipeline(folder, "ZImageOmniPipeline", parts)


def _dreamlite(folder: Path, kind: str) -> None:
    words = tokenizer()
    unet = DreamLiteUNetModel(
        sample_size=32, in_channels=4, out_channels=4, block_out_channels=(8, 16, 16), layers_per_block=1,
        norm_num_groups=4, cross_attention_dim=32, encoder_hid_dim=64, encoder_hid_dim_type="text_proj_rms",
        attention_head_dim=2, num_kv_heads=1, ff_mult=2, addition_embed_type="time", addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=16,
    )  # fmt: skip
    vae = AutoencoderTiny(
        encoder_block_out_channels=(8,) * 4, decoder_block_out_channels=(8,) * 4, latent_channels=4,
        num_encoder_blocks=(1,) * 4, num_decoder_blocks=(1,) * 4,
    )  # fmt: skip
    parts = {
        "scheduler": flow_scheduler(use_dynamic_shifting=True),
        "text_encoder": ("Qwen3VLForConditionalGeneration", qwen3_vl(words)),
        "tokenizer": ("PreTrainedTokenizerFast", words),
        "processor": ("Qwen3VLProcessor", vl_processor(words, 8)),
        "unet": ("DreamLiteUNetModel", redraw(unet, 2.0)),
        "vae": ("AutoencoderTiny", redraw(vae)),
    }
    save_pipeline(folder, kind, parts)


def dreamlite(folder: Path) -> None:
    """A tiny DreamLite."""
    _dreamlite(folder, "DreamLitePipeline")


def dreamlite_mobile(folder: Path) -> None:
    """A tiny DreamLite Mobile, which has no guidance."""
    _dreamlite(folder, "DreamLiteMobilePipeline")


GLM_CODES = 32  # image tokens come first in the vocabulary, as in GLM-Image
GLM_IMAGES = [
    *(f"<|dit_token_{code}|>" for code in range(GLM_CODES)),
    "<|image_start|>",
    "<|image_end|>",
]
GLM_TEMPLATE = (
    "{% for message in messages %}{% for part in message.content %}{% if part.type == 'image' %}"
    "<|image_start|><|image|><|image_end|>{% else %}{{ part.text }}{% endif %}{% endfor %}{% "
    "endfor %}"
)


def glm_image(folder: Path) -> None:
    """A tiny GLM-Image: one model draws a token for each 32 x 32 pixels, another makes the image of
    them.
    """
    roles = {"image_token": "<|image|>", "grid_bos_token": "<sop>", "grid_eos_token": "<eop>"}
    words = tokenizer(first=GLM_IMAGES, bos_token="<|image_start|>", extra_special_tokens=roles)
    text = {
        "vocab_size": len(words), "vision_vocab_size": GLM_CODES, "hidden_size": 32, "intermediate_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 8192,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]},
        "pad_token_id": words.pad_token_id, "eos_token_id": GLM_CODES + 1,
    }  # fmt: skip
    vision = {
        "depth": 1, "hidden_size": 32, "num_heads": 2, "image_size": 256, "patch_size": 16, "intermediate_size": 32
    }  # fmt: skip
    config = GlmImageConfig(
        text_config=text, vision_config=vision,
        vq_config={"embed_dim": 16, "num_embeddings": GLM_CODES, "latent_channels": 32},
        image_token_id=words.convert_tokens_to_ids("<|image|>"), image_start_token_id=GLM_CODES,
        image_end_token_id=GLM_CODES + 1,
    )  # fmt: skip
    images = GlmImageImageProcessorPil(
        patch_size=16,
        temporal_patch_size=1,
        merge_size=1,
        size={"shortest_edge": 64 * 64, "longest_edge": 2048 * 2048},
    )
    transformer = GlmImageTransformer2DModel(
        patch_size=2, in_channels=4, out_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2,
        text_embed_dim=32, time_embed_dim=16, condition_dim=8, prior_vq_quantizer_codebook_size=GLM_CODES,
    )  # fmt: skip
    glyphs = T5Config(
        vocab_size=384,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=1,
        num_heads=4,
        decoder_start_token_id=0,
    )
    processor = GlmImageProcessor(
        image_processor=images, tokenizer=words, chat_template=GLM_TEMPLATE
    )
    parts = {
        "scheduler": flow_scheduler(use_dynamic_shifting=True, time_shift_type="linear"),
        "processor": ("GlmImageProcessor", processor),
        "text_encoder": ("T5EncoderModel", redraw(T5EncoderModel(glyphs))),
        "tokenizer": ("ByT5Tokenizer", ByT5Tokenizer()),
        "transformer": ("GlmImageTransformer2DModel", redraw(transformer, 2.0)),
        "vae": ("AutoencoderKL", kl_vae(4, 4, latents_mean=[0.0] * 4, latents_std=[1.0] * 4)),
        "vision_language_encoder": (
            "GlmImageForConditionalGeneration",
            redraw(GlmImageForConditionalGeneration(config), 2.0),
        ),
    }
    save_pipeline(folder, "GlmImagePipeline", parts)


BUILDERS: dict[str, Callable[[Path], None]] = {
    "cosxl": cosxl,
    "omnigen": omnigen,
    "joyimage": joyimage,
    "joyimage-plus": joyimage_plus,
    "zimage-omni": zimage_omni,
    "dreamlite": dreamlite,
    "dreamlite-mobile": dreamlite_mobile,
    "glm-image": glm_image,
}
