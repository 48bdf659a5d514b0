"""Tiny real checkpoints; `python tests/support/tiny_models.py FOLDER` builds them all, tests build
what they need.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLQwenImage,
    DDIMScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxTransformer2DModel,
    QwenImageTransformer2DModel,
    UNet2DConditionModel,
)
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
    T5Config,
    T5EncoderModel,
)

from pytest_imgedit.config.settings import Settings, SuiteSettings
from pytest_imgedit.kinds.compute.qwen_inputs import AssembledProcessor
from pytest_imgedit.kinds.qwen_vl import VISION
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.suites.base import load_suite

if TYPE_CHECKING:
    from collections.abc import Sequence

SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
TEXTS = [
    load_protocol(Settings.model_validate({"judge": {"protocol": name}})).definition.calls[0].user
    for name in ("aspects", "seeds")
]


def tokenizer(
    vocab_size: int = 700,
    special: Sequence[str] = SPECIAL,
    texts: Sequence[str] = TEXTS,
    **options: Any,
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer, whose `special` tokens, by default Qwen-VL's, have the lowest
    numbers.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>", **options
    )


def vl_config(words: PreTrainedTokenizerFast, **text: Any) -> dict[str, Any]:
    ids = {
        name: words.convert_tokens_to_ids(f"<|{name}|>")
        for name in ("vision_start", "vision_end", "image_pad", "video_pad")
    }
    return {
        "text_config": {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "vocab_size": len(words),
            "max_position_embeddings": 8192,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [2, 3, 3],
            },
            "bos_token_id": None,
            "eos_token_id": words.eos_token_id,
            "pad_token_id": words.pad_token_id,
            **text,
        },
        "image_token_id": ids["image_pad"],
        "video_token_id": ids["video_pad"],
        "vision_start_token_id": ids["vision_start"],
        "vision_end_token_id": ids["vision_end"],
        "tie_word_embeddings": False,
    }


def image_processor(patch: int, pixels: int) -> Qwen2VLImageProcessorPil:
    side = patch * 2
    return Qwen2VLImageProcessorPil(
        patch_size=patch, merge_size=2, size={"shortest_edge": side * side, "longest_edge": pixels}
    )


def qwen25_vl(words: PreTrainedTokenizerFast) -> Qwen2_5_VLForConditionalGeneration:
    vision = {
        "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64,
        "patch_size": 14, "spatial_merge_size": 2, "window_size": 56, "fullatt_block_indexes": [1],
    }  # fmt: skip
    torch.manual_seed(0)
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(vision_config=vision, **vl_config(words))
    ).eval()


def _qwen3_vision() -> dict[str, Any]:
    return {
        "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "out_hidden_size": 64,
        "patch_size": 8, "spatial_merge_size": 2, "num_position_embeddings": 64, "deepstack_visual_indexes": [0],
    }  # fmt: skip


def qwen3_vl(words: PreTrainedTokenizerFast) -> Qwen3VLForConditionalGeneration:
    torch.manual_seed(0)
    return Qwen3VLForConditionalGeneration(
        Qwen3VLConfig(vision_config=_qwen3_vision(), **vl_config(words))
    ).eval()


def qwen3_vl_moe(words: PreTrainedTokenizerFast) -> Qwen3VLMoeForConditionalGeneration:
    experts = {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "decoder_sparse_step": 1,
    }
    torch.manual_seed(0)
    return Qwen3VLMoeForConditionalGeneration(
        Qwen3VLMoeConfig(vision_config=_qwen3_vision(), **vl_config(words, **experts))
    ).eval()


def save_judge(folder: Path, model: Any, patch: int) -> Path:
    """Save a Qwen-VL model with its tokenizer and image processor."""
    model.save_pretrained(folder)
    AssembledProcessor(tokenizer(), image_processor(patch, 64 * 64)).save_pretrained(folder)
    return folder


def train_judge(folder: Path, steps: int = 80) -> Path:
    """Overfit a tiny Qwen3-VL in seconds so that it answers the protocol `aspects` in its form."""
    words = tokenizer()
    model = qwen3_vl(words).train()
    processor = AssembledProcessor(words, image_processor(8, 32 * 32))
    protocol = load_protocol(Settings())
    pairs = load_suite(SuiteSettings(spec="scenes:n=20,seed=7")).pairs
    reply = "instruction: 6\npreservation: 8\nrealism: 7<|im_end|>"
    answer = len(words(reply)["input_ids"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    chance = random.Random(0)
    for _ in range(steps):
        pair = chance.choice(pairs)
        call = protocol.calls(pair)[0]
        user = "".join(VISION if kind == "image" else text for kind, text in call.parts)[
            chance.choice((0, 0, 400)) :
        ]
        images = [
            Image.new("RGB", (32, 32), tuple(chance.randbytes(3)))
            for _ in range(user.count(VISION))
        ]
        prompt = f"<|im_start|>system\n{call.system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
        inputs = processor([prompt + reply], images)
        labels = inputs["input_ids"].clone()
        labels[:, :-answer] = -100
        loss = model(**inputs, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return save_judge(folder, model.eval(), 8)


def save_pipeline(
    folder: Path, kind: str, parts: dict[str, tuple[str, str, Any]], **config: Any
) -> Path:
    index: dict[str, Any] = {"_class_name": kind, "_diffusers_version": "0.42.1", **config}
    for name, (library, class_name, part) in parts.items():
        index[name] = [library, class_name]
        if part is not None:
            part.save_pretrained(folder / name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model_index.json").write_text(json.dumps(index, indent=1))
    return folder


def qwen_image_edit(folder: Path, kind: str = "QwenImageEditPipeline") -> Path:
    """A tiny Qwen-Image-Edit; `kind` may name `QwenImageEditPlusPipeline`.

    The pipeline enlarges every source to 1024², so that a VAE that leaves a 16th of a side saves
    most of the time.
    """
    words = tokenizer()
    torch.manual_seed(0)
    vae = AutoencoderKLQwenImage(
        base_dim=2, z_dim=4, dim_mult=[1] * 5, num_res_blocks=1, temperal_downsample=[False, True, True, True],
        latents_mean=[0.0] * 4, latents_std=[1.0] * 4,
    )  # fmt: skip
    transformer = QwenImageTransformer2DModel(
        patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=64, axes_dims_rope=(4, 6, 6),
    )  # fmt: skip
    for last in (transformer.proj_out, vae.decoder.conv_out):
        last.weight.data.mul_(8)  # so that another source, instruction or seed is seen in the image
    processor = AssembledProcessor(words, image_processor(14, 56 * 56))
    parts = {
        "scheduler": (
            "diffusers",
            "FlowMatchEulerDiscreteScheduler",
            FlowMatchEulerDiscreteScheduler(),
        ),
        "text_encoder": ("transformers", "Qwen2_5_VLForConditionalGeneration", qwen25_vl(words)),
        "tokenizer": ("transformers", "PreTrainedTokenizerFast", words),
        "processor": ("transformers", "Qwen2VLProcessor", processor),
        "transformer": ("diffusers", "QwenImageTransformer2DModel", transformer),
        "vae": ("diffusers", "AutoencoderKLQwenImage", vae),
    }
    return save_pipeline(folder, kind, parts)


def _clip(words: PreTrainedTokenizerFast) -> CLIPTextModel:
    torch.manual_seed(0)
    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=77, projection_dim=32, bos_token_id=0, eos_token_id=words.eos_token_id,
            pad_token_id=words.pad_token_id,
        )
    )  # fmt: skip


def _vae(latent_channels: int, levels: int, **options: Any) -> AutoencoderKL:
    torch.manual_seed(0)
    return AutoencoderKL(
        block_out_channels=(8,) * levels, in_channels=3, out_channels=3, layers_per_block=1, norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * levels, up_block_types=("UpDecoderBlock2D",) * levels,
        latent_channels=latent_channels, sample_size=64, **options,
    )  # fmt: skip


def instruct_pix2pix(folder: Path) -> Path:
    """A tiny InstructPix2Pix."""
    words = tokenizer(model_max_length=77)
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        sample_size=32, in_channels=8, out_channels=4, block_out_channels=(16, 32), layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32, attention_head_dim=4, norm_num_groups=8,
    )  # fmt: skip
    parts = {
        "scheduler": ("diffusers", "DDIMScheduler", DDIMScheduler()),
        "text_encoder": ("transformers", "CLIPTextModel", _clip(words)),
        "tokenizer": ("transformers", "PreTrainedTokenizerFast", words),
        "unet": ("diffusers", "UNet2DConditionModel", unet),
        "vae": ("diffusers", "AutoencoderKL", _vae(4, 4)),
        "safety_checker": (None, None, None),
        "feature_extractor": (None, None, None),
        "image_encoder": (None, None, None),
    }
    return save_pipeline(folder, "StableDiffusionInstructPix2PixPipeline", parts)


def flux_kontext(folder: Path) -> Path:
    """A tiny FLUX.1 Kontext, whose VAE leaves a 16th of a side of what is about 1024² too."""
    words, long_words = tokenizer(model_max_length=77), tokenizer(model_max_length=512)
    torch.manual_seed(0)
    transformer = FluxTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 6, 6), guidance_embeds=True,
    )  # fmt: skip
    t5 = T5EncoderModel(
        T5Config(
            vocab_size=len(words),
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
        )
    )
    vae = _vae(
        4,
        5,
        use_quant_conv=False,
        use_post_quant_conv=False,
        shift_factor=0.1159,
        scaling_factor=0.3611,
    )
    parts = {
        "scheduler": (
            "diffusers",
            "FlowMatchEulerDiscreteScheduler",
            FlowMatchEulerDiscreteScheduler(),
        ),
        "text_encoder": ("transformers", "CLIPTextModel", _clip(words)),
        "text_encoder_2": ("transformers", "T5EncoderModel", t5),
        "tokenizer": ("transformers", "PreTrainedTokenizerFast", words),
        "tokenizer_2": ("transformers", "PreTrainedTokenizerFast", long_words),
        "transformer": ("diffusers", "FluxTransformer2DModel", transformer),
        "vae": ("diffusers", "AutoencoderKL", vae),
        "image_encoder": (None, None, None),
        "feature_extractor": (None, None, None),
    }
    return save_pipeline(folder, "FluxKontextPipeline", parts)


BUILDERS = {
    "qwen-image-edit": qwen_image_edit,
    "qwen-image-edit-plus": lambda folder: qwen_image_edit(folder, "QwenImageEditPlusPipeline"),
    "flux-kontext": flux_kontext,
    "instruct-pix2pix": instruct_pix2pix,
    "judge-trained": train_judge,
    "judge-qwen2.5-vl": lambda folder: save_judge(folder, qwen25_vl(tokenizer()), 14),
    "judge-qwen3-vl": lambda folder: save_judge(folder, qwen3_vl(tokenizer()), 8),
    "judge-qwen3-vl-moe": lambda folder: save_judge(folder, qwen3_vl_moe(tokenizer()), 8),
}


if __name__ == "__main__":
    for name, build in BUILDERS.items():
        print(name, build(Path(sys.argv[1]) / name))
