"""Builds small checkpoints with random weights: `python -m acme_models.tiny FOLDER` makes `editor`
and `judge`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from diffusers import AutoencoderKL
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPImageProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)


def editor(folder: Path) -> None:
    torch.manual_seed(0)
    AutoencoderKL(
        block_out_channels=(8, 8), norm_num_groups=4, layers_per_block=1, latent_channels=4
    ).save_pretrained(folder)


def judge(folder: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = Tokenizer(models.BPE({char: number for number, char in enumerate(alphabet)}, []))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, additional_special_tokens=["<image>"]
    )
    images = CLIPImageProcessor(size={"height": 32, "width": 32}, do_center_crop=False)
    LlavaProcessor(
        images,
        tokenizer,
        patch_size=16,
        vision_feature_select_strategy="default",
        image_token="<image>",
        num_additional_image_tokens=1,
    ).save_pretrained(folder)
    torch.manual_seed(0)
    vision = CLIPVisionConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=32,
        patch_size=16,
    )
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
    )
    image_token = tokenizer.convert_tokens_to_ids("<image>")
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=image_token)
    LlavaForConditionalGeneration(config).save_pretrained(folder)


if __name__ == "__main__":
    editor(Path(sys.argv[1], "editor"))
    judge(Path(sys.argv[1], "judge"))
