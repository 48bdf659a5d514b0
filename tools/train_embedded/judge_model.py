"""The embedded judge's model, untrained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import Qwen2VLImageProcessorPil, Qwen3VLConfig, Qwen3VLForConditionalGeneration

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SIDE = 128


def judge_model(
    words: PreTrainedTokenizerFast, vision: dict[str, Any], text: dict[str, Any]
) -> Any:
    """Build a Qwen3-VL for a tokenizer; `vision` and `text` hold the sizes, by the names of
    transformers.
    """
    ids = {
        f"{name}_token_id": words.convert_tokens_to_ids(f"<|{mark}|>")
        for name, mark in (
            ("image", "image_pad"),
            ("video", "video_pad"),
            ("vision_start", "vision_start"),
            ("vision_end", "vision_end"),
        )
    }
    head = text["hidden_size"] // text["num_attention_heads"]
    config = Qwen3VLConfig(
        vision_config={
            **vision,
            "out_hidden_size": text["hidden_size"],
            "num_position_embeddings": (SIDE // vision["patch_size"]) ** 2,
        },
        text_config={
            **text,
            "head_dim": head,
            "vocab_size": len(words),
            "max_position_embeddings": 4096,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [head // 2 - 2 * (head // 6), head // 6, head // 6],
            },
            "bos_token_id": None,
            "eos_token_id": words.eos_token_id,
            "pad_token_id": words.pad_token_id,
        },
        tie_word_embeddings=False,
        **ids,
    )
    model = Qwen3VLForConditionalGeneration(config)
    model.generation_config.eos_token_id = words.eos_token_id
    model.generation_config.pad_token_id = words.pad_token_id
    return model


def image_processor(patch_size: int) -> Qwen2VLImageProcessorPil:
    """Build the processor: pictures are scaled to as many pixels as the judge was trained on."""
    return Qwen2VLImageProcessorPil(
        patch_size=patch_size,
        merge_size=2,
        size={"shortest_edge": SIDE * SIDE, "longest_edge": SIDE * SIDE},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
