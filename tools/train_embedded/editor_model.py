"""The embedded editor: a small InstructPix2Pix, untrained, and how it is put together for
diffusers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    StableDiffusionInstructPix2PixPipeline,
    UNet2DConditionModel,
)
from transformers import CLIPTextConfig, CLIPTextModel

from tools.train_embedded.text import PROMPT_TOKENS

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerFast


def autoencoder(sizes: dict[str, Any]) -> AutoencoderKL:
    """Build the autoencoder; `sizes` has the names of diffusers."""
    blocks = len(sizes["block_out_channels"])
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * blocks,
        up_block_types=("UpDecoderBlock2D",) * blocks,
        sample_size=128,
        scaling_factor=1.0,
        **sizes,
    )


def text_encoder(words: PreTrainedTokenizerFast, sizes: dict[str, Any]) -> CLIPTextModel:
    """Build the text encoder."""
    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(words),
            max_position_embeddings=PROMPT_TOKENS,
            projection_dim=sizes["hidden_size"],
            bos_token_id=words.eos_token_id,
            eos_token_id=words.eos_token_id,
            pad_token_id=words.pad_token_id,
            **sizes,
        )
    )


def unet(latents: int, text_width: int, sizes: dict[str, Any]) -> UNet2DConditionModel:
    """Build the denoiser over noisy latents beside those of the source."""
    return UNet2DConditionModel(
        sample_size=16,
        in_channels=2 * latents,
        out_channels=latents,
        cross_attention_dim=text_width,
        **sizes,
    )


def scheduler() -> DDIMScheduler:
    """The noise schedule: the model predicts v (Salimans and Ho, ICLR 2022)."""
    return DDIMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        prediction_type="v_prediction",
        clip_sample=False,
        set_alpha_to_one=False,
        steps_offset=1,
    )


def pipeline(
    vae: Any, encoder: Any, words: Any, denoiser: Any
) -> StableDiffusionInstructPix2PixPipeline:
    """Put the parts together."""
    pipe = StableDiffusionInstructPix2PixPipeline(
        vae=vae,
        text_encoder=encoder,
        tokenizer=words,
        unet=denoiser,
        scheduler=scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


def export(pipe: StableDiffusionInstructPix2PixPipeline, folder: Path) -> None:
    """Write a pipeline in half precision, as `DiffusionPipeline.from_pretrained` reads it."""
    pipe.to(torch.float16).save_pretrained(folder, safe_serialization=True)
