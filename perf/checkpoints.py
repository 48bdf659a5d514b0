"""Random checkpoints at full size (Qwen-Image-Edit, Qwen3-VL-30B-A3B, and further editors), or tiny
ones of the same classes, and pairs.

    python perf/checkpoints.py FOLDER editor judge
    python perf/checkpoints.py FOLDER editor plus klein kontext unet --blocks 4
    python perf/checkpoints.py FOLDER editor judge --tiny

With `--blocks`, networks have their full width and so many of their repeated blocks.

Speed does not depend on the values of weights. They are drawn on the GPU and go straight to
safetensors; in a folder of memory-backed files, such as one below /dev/shm, that takes half a
minute for either model.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLFlux2,
    AutoencoderKLQwenImage,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    Flux2Transformer2DModel,
    FluxTransformer2DModel,
    QwenImageTransformer2DModel,
    UNet2DConditionModel,
)
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
    T5Config,
    T5EncoderModel,
)

from pytest_imgedit.kinds.compute.qwen_inputs import AssembledProcessor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHARD = 5e9
TRANSFORMER = {
    "num_layers": 60,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 3584,
}
TINY_TRANSFORMER = {
    "num_layers": 2, "attention_head_dim": 16, "num_attention_heads": 2, "joint_attention_dim": 64,
    "axes_dims_rope": (4, 6, 6), "in_channels": 16, "out_channels": 4,
}  # fmt: skip
TINY_VAE = {
    "base_dim": 2, "z_dim": 4, "dim_mult": [1] * 5, "num_res_blocks": 1, "latents_mean": [0.0] * 4,
    "latents_std": [1.0] * 4, "temperal_downsample": [False, True, True, True],
}  # fmt: skip
SCHEDULER = {
    "use_dynamic_shifting": True, "base_shift": 0.5, "max_shift": 0.9, "base_image_seq_len": 256,
    "max_image_seq_len": 8192, "shift_terminal": 0.02,
}  # fmt: skip
ENCODER_TEXT = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 128000,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
}  # fmt: skip
ENCODER_VISION = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "out_hidden_size": 3584,
}
TINY_TEXT = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 8192,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
}  # fmt: skip
TINY_ENCODER_VISION = {
    "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64,
    "window_size": 56,
    "fullatt_block_indexes": [1],
}  # fmt: skip
JUDGE_TEXT = {
    "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
    "moe_intermediate_size": 768, "vocab_size": 151936, "max_position_embeddings": 262144,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20]},
}  # fmt: skip
TINY_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
JUDGE_VISION = {
    "depth": 27, "hidden_size": 1152, "num_heads": 16, "intermediate_size": 4304,
    "out_hidden_size": 2048,
    "deepstack_visual_indexes": [8, 16, 24], "num_position_embeddings": 2304,
}  # fmt: skip
TINY_JUDGE_VISION = {
    "depth": 2, "hidden_size": 64, "num_heads": 4, "intermediate_size": 128, "out_hidden_size": 64,
    "deepstack_visual_indexes": [0], "num_position_embeddings": 64,
}  # fmt: skip
KONTEXT = {
    "in_channels": 64, "num_layers": 19, "num_single_layers": 38, "attention_head_dim": 128,
    "num_attention_heads": 24, "joint_attention_dim": 4096, "pooled_projection_dim": 768,
    "guidance_embeds": True, "axes_dims_rope": (16, 56, 56),
}  # fmt: skip
KLEIN = {"num_layers": 8, "num_single_layers": 24, "num_attention_heads": 32,
    "joint_attention_dim": 12288, "guidance_embeds": False,
}  # fmt: skip
TINY_KLEIN = {
    "in_channels": 32, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16,
    "num_attention_heads": 1, "joint_attention_dim": 192, "timestep_guidance_channels": 32,
    "axes_dims_rope": (4, 4, 4, 4), "guidance_embeds": False,
}  # fmt: skip
KLEIN_TEXT = {
    "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
}  # fmt: skip
TINY_KLEIN_TEXT = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 28,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip
TINY_KLEIN_VAE = {
    "block_out_channels": (8,) * 4, "layers_per_block": 1, "latent_channels": 8,
    "norm_num_groups": 4,
}  # fmt: skip
TINY_KONTEXT = {
    "in_channels": 64, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16,
    "num_attention_heads": 2, "joint_attention_dim": 32, "pooled_projection_dim": 32,
    "guidance_embeds": True, "axes_dims_rope": (4, 6, 6),
}  # fmt: skip
UNET = {
    "in_channels": 8, "out_channels": 4, "block_out_channels": (320, 640, 1280),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "attention_head_dim": (5, 10, 20), "cross_attention_dim": 2048, "sample_size": 128,
    "transformer_layers_per_block": (1, 2, 10), "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256, "projection_class_embeddings_input_dim": 2816,
    "use_linear_projection": True,
}  # fmt: skip
TINY_UNET = UNET | {
    "block_out_channels": (32, 32, 64), "attention_head_dim": (2, 2, 4), "cross_attention_dim": 64,
    "transformer_layers_per_block": (1, 1, 1), "projection_class_embeddings_input_dim": 224,
    "addition_time_embed_dim": 32,
}  # fmt: skip
#: Keys of configs that count repeated blocks.
DEPTHS = ("num_layers", "num_single_layers", "num_hidden_layers", "depth")
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKS = ("endoftext", "im_start", "im_end", "vision_start", "vision_end", "image_pad", "video_pad")


def words() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that knows the words of prompts, so that a prompt is about as long as
    with the real one.

    As there, each digit is a token.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    special = [f"<|{mark}|>" for mark in MARKS]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=4000, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    protocols = files("pytest_imgedit.protocols")
    texts = [(protocols / f"{name}.toml").read_text("utf-8") for name in ("aspects", "seeds")]
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )


def _vl_config(tokenizer: Any, text: dict[str, Any], vision: dict[str, Any]) -> dict[str, Any]:
    ids = {mark: tokenizer.convert_tokens_to_ids(f"<|{mark}|>") for mark in MARKS}
    return {
        "text_config": {
            "vocab_size": len(tokenizer),
            "eos_token_id": ids["im_end"],
            "pad_token_id": ids["endoftext"],
            **text,
        },
        "vision_config": vision,
        "image_token_id": ids["image_pad"],
        "video_token_id": ids["video_pad"],
        "vision_start_token_id": ids["vision_start"],
        "vision_end_token_id": ids["vision_end"],
        "tie_word_embeddings": False,
    }


def draw(make: Any) -> Any:
    """Construct a model in bfloat16 on the device with weights that keep activations in range."""
    from transformers import initialization

    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(DEVICE), initialization.no_init_weights():
            model = make()
    finally:
        torch.set_default_dtype(torch.float32)
    generator = torch.Generator(DEVICE).manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.zero_()
            elif weight.dim() == 1 or name.endswith("gamma"):
                weight.fill_(1)
            else:
                inputs = weight.shape[-1] if weight.dim() == 3 else weight[0].numel()
                weight.normal_(0, inputs**-0.5, generator=generator)
    return model.eval()


def write(tensors: dict[str, torch.Tensor], folder: Path, stem: str) -> int:
    """Write safetensors shards with an index, many tensors at a time; return the number of
    bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, torch.Tensor]] = [{}]
    filled = 0
    for name, tensor in tensors.items():
        if filled and filled + tensor.nbytes > SHARD:
            shards.append({})
            filled = 0
        shards[-1][name] = tensor
        filled += tensor.nbytes
    index = {}
    jobs = []
    for number, shard in enumerate(shards, 1):
        file_name = f"{stem}-{number:05d}-of-{len(shards):05d}.safetensors"
        index.update(dict.fromkeys(shard, file_name))
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, tensor in shard.items():
            header[name] = {
                "dtype": "I64" if tensor.dtype == torch.int64 else "BF16",
                "shape": list(tensor.shape),
                "data_offsets": [end, end := end + tensor.nbytes],
            }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        file = os.open(folder / file_name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(file, len(text).to_bytes(8, "little") + text)
        jobs += [
            (file, 8 + len(text) + header[name]["data_offsets"][0], shard[name]) for name in shard
        ]

    def store(job: tuple[int, int, torch.Tensor]) -> None:
        file, place, tensor = job
        data = memoryview(
            tensor.detach().reshape(-1).contiguous().view(torch.uint8).cpu().numpy().data
        )
        while len(data):
            done = os.pwrite(file, data, place)
            data, place = data[done:], place + done

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store, jobs))
    for file in {job[0] for job in jobs}:
        os.close(file)
    total = sum(tensor.nbytes for tensor in tensors.values())
    listing = {"metadata": {"total_size": total}, "weight_map": index}
    (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(listing))
    return total


def depth(config: dict[str, Any], blocks: int | None) -> dict[str, Any]:
    """Return the config of a network with so many of its repeated blocks (`None`: all of them)."""
    if blocks is None:
        return config
    fewer = {name: min(config[name], blocks) for name in DEPTHS if name in config}
    for name in ("deepstack_visual_indexes", "fullatt_block_indexes"):
        if name in config:
            fewer[name] = [blocks - 1]
    if "transformer_layers_per_block" in config:
        fewer["transformer_layers_per_block"] = tuple(
            min(count, blocks) for count in config["transformer_layers_per_block"]
        )
    return {**config, **fewer}


def build_judge(folder: Path, tiny: bool, blocks: int | None) -> int:
    """Write a Qwen3-VL-MoE as the hub has it: experts' weights with inputs first."""
    tokenizer = words()
    text, vision = (
        (TINY_TEXT | TINY_EXPERTS, TINY_JUDGE_VISION) if tiny else (JUDGE_TEXT, JUDGE_VISION)
    )
    config = Qwen3VLMoeConfig(**_vl_config(tokenizer, depth(text, blocks), depth(vision, blocks)))
    config.architectures = ["Qwen3VLMoeForConditionalGeneration"]
    model = draw(lambda: Qwen3VLMoeForConditionalGeneration(config))
    tensors = {
        name: tensor.transpose(1, 2)
        if name.endswith(("experts.gate_up_proj", "experts.down_proj"))
        else tensor
        for name, tensor in model.state_dict().items()
    }
    config.save_pretrained(folder)
    pixels = 96 * 96 if tiny else 16_777_216
    image = Qwen2VLImageProcessorPil(
        patch_size=16, merge_size=2, size={"shortest_edge": 1024, "longest_edge": pixels},
        image_mean=[0.5] * 3, image_std=[0.5] * 3,
    )  # fmt: skip
    AssembledProcessor(tokenizer, image).save_pretrained(folder)
    return write(tensors, folder, "model")


def draw_dense(tiny: bool, blocks: int | None = None) -> tuple[Any, Any, Any]:
    """Return a Qwen2.5-VL of 7B, drawn on the device, with its tokenizer and processor."""
    tokenizer = words()
    text, vision = (TINY_TEXT, TINY_ENCODER_VISION) if tiny else (ENCODER_TEXT, ENCODER_VISION)
    if blocks is not None:
        vision = {"fullatt_block_indexes": [], **vision}
    config = Qwen2_5_VLConfig(**_vl_config(tokenizer, depth(text, blocks), depth(vision, blocks)))
    config.architectures = ["Qwen2_5_VLForConditionalGeneration"]
    pixels = 56 * 56 if tiny else 12_845_056
    image = Qwen2VLImageProcessorPil(
        patch_size=14, merge_size=2, size={"shortest_edge": 784, "longest_edge": pixels}
    )
    model = draw(lambda: Qwen2_5_VLForConditionalGeneration(config))
    return model, tokenizer, AssembledProcessor(tokenizer, image)


def build_dense(folder: Path, tiny: bool, blocks: int | None) -> int:
    """Write a judge without experts: the one that is the text encoder of the editor."""
    model, _, processor = draw_dense(tiny, blocks)
    model.config.save_pretrained(folder)
    processor.save_pretrained(folder)
    return write(model.state_dict(), folder, "model")


def draw_editor(tiny: bool, blocks: int | None = None) -> dict[str, Any]:
    """Return the components of a `QwenImageEditPipeline`, drawn on the device."""
    encoder, tokenizer, processor = draw_dense(tiny, blocks)
    transformer = depth(TINY_TRANSFORMER if tiny else TRANSFORMER, blocks)
    return {
        "scheduler": FlowMatchEulerDiscreteScheduler(**SCHEDULER),
        "text_encoder": encoder,
        "tokenizer": tokenizer,
        "processor": processor,
        "transformer": draw(lambda: QwenImageTransformer2DModel(**transformer)),
        "vae": draw(lambda: AutoencoderKLQwenImage(**(TINY_VAE if tiny else {}))),
    }


def _draw_clip(tokenizer: Any, tiny: bool, blocks: int | None, kind: Any, **config: Any) -> Any:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2} if tiny else {}
    text = CLIPTextConfig(
        **depth({"num_hidden_layers": 12, **config, **sizes}, blocks),
        vocab_size=len(tokenizer),
        projection_dim=32 if tiny else config["hidden_size"],
        bos_token_id=0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return draw(lambda: kind(text))


def _draw_vae(channels: int, tiny: bool, **options: Any) -> Any:
    widths = (32,) * 4 if tiny else (128, 256, 512, 512)
    return draw(
        lambda: AutoencoderKL(
            block_out_channels=widths,
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=2,
            latent_channels=channels,
            sample_size=1024,
            **options,
        )
    )


def draw_kontext(tiny: bool, blocks: int | None) -> dict[str, Any]:
    """Return the components of a `FluxKontextPipeline`, drawn on the device."""
    tokenizer, long_tokenizer = words(), words()
    tokenizer.model_max_length, long_tokenizer.model_max_length = 77, 512
    sizes = (
        {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
        if tiny
        else {"d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24, "num_heads": 64}
    )
    t5 = T5Config(vocab_size=len(tokenizer), decoder_start_token_id=0, **depth(sizes, blocks))
    transformer = depth(TINY_KONTEXT if tiny else KONTEXT, blocks)
    return {
        "scheduler": FlowMatchEulerDiscreteScheduler(**SCHEDULER),
        "text_encoder": _draw_clip(
            *(tokenizer, tiny, blocks, CLIPTextModel),
            hidden_size=768,
            intermediate_size=3072,
            num_attention_heads=12,
        ),
        "text_encoder_2": draw(lambda: T5EncoderModel(t5)),
        "tokenizer": tokenizer,
        "tokenizer_2": long_tokenizer,
        "transformer": draw(lambda: FluxTransformer2DModel(**transformer)),
        "vae": _draw_vae(
            16,
            tiny,
            use_quant_conv=False,
            use_post_quant_conv=False,
            shift_factor=0.1159,
            scaling_factor=0.3611,
        ),
    }


def draw_klein(tiny: bool, blocks: int | None) -> dict[str, Any]:
    """Return the components of a `Flux2KleinPipeline` of 9B, drawn on the device."""
    tokenizer = words()
    tokenizer.model_max_length = 8192
    tokenizer.chat_template = CHAT
    text = {"vocab_size": len(tokenizer), **(TINY_KLEIN_TEXT if tiny else KLEIN_TEXT)}
    transformer = depth(TINY_KLEIN if tiny else KLEIN, blocks)
    return {
        "scheduler": FlowMatchEulerDiscreteScheduler(**SCHEDULER),
        "text_encoder": draw(lambda: Qwen3ForCausalLM(Qwen3Config(**text))),
        "tokenizer": tokenizer,
        "transformer": draw(lambda: Flux2Transformer2DModel(**transformer)),
        "vae": draw(lambda: AutoencoderKLFlux2(**(TINY_KLEIN_VAE if tiny else {}))),
    }


def draw_unet(tiny: bool, blocks: int | None) -> dict[str, Any]:
    """Return the components of a `StableDiffusionXLInstructPix2PixPipeline`, drawn on the
    device.
    """
    tokenizers = words(), words()
    for tokenizer in tokenizers:
        tokenizer.model_max_length = 77
    unet = depth(TINY_UNET if tiny else UNET, blocks)
    small = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
    large = {"hidden_size": 1280, "intermediate_size": 5120, "num_attention_heads": 20}
    return {
        "scheduler": EulerDiscreteScheduler(),
        "text_encoder": _draw_clip(tokenizers[0], tiny, blocks, CLIPTextModel, **small),
        "text_encoder_2": _draw_clip(
            tokenizers[1], tiny, blocks, CLIPTextModelWithProjection, **large
        ),
        "tokenizer": tokenizers[0],
        "tokenizer_2": tokenizers[1],
        "unet": draw(lambda: UNet2DConditionModel(**unet)),
        "vae": _draw_vae(4, tiny),
    }


def build_pipeline(folder: Path, name: str, parts: dict[str, Any]) -> int:
    """Write a pipeline of a class of diffusers."""
    total = 0
    listing = {}
    for part, component in parts.items():
        kind = type(component).__name__
        library = type(component).__module__.partition(".")[0]
        listing[part] = [library, kind]
        if not hasattr(component, "state_dict"):
            component.save_pretrained(folder / part)
            continue
        if library == "transformers":
            component.config.save_pretrained(folder / part)
        else:
            component.save_config(folder / part)
        stem = "model" if library == "transformers" else "diffusion_pytorch_model"
        total += write(dict(component.state_dict()), folder / part, stem)
    if "processor" in parts:
        listing["processor"] = ["transformers", "Qwen2VLProcessor"]
    index = {"_class_name": name, "_diffusers_version": "0.42.1"}
    (folder / "model_index.json").write_text(json.dumps({**index, **listing}, indent=1))
    return total


def build_editor(folder: Path, tiny: bool, blocks: int | None) -> int:
    """Write a `QwenImageEditPipeline`."""
    return build_pipeline(folder, "QwenImageEditPipeline", draw_editor(tiny, blocks))


def build_plus(folder: Path, tiny: bool, blocks: int | None) -> int:
    """Write a `QwenImageEditPlusPipeline`."""
    return build_pipeline(folder, "QwenImageEditPlusPipeline", draw_editor(tiny, blocks))


def build_kontext(folder: Path, tiny: bool, blocks: int | None) -> int:
    """Write a `FluxKontextPipeline`."""
    return build_pipeline(folder, "FluxKontextPipeline", draw_kontext(tiny, blocks))


def build_klein(folder: Path, tiny: bool, blocks: int | None) -> int:
    """Write a `Flux2KleinPipeline`, distilled to few steps without guidance."""
    total = build_pipeline(folder, "Flux2KleinPipeline", draw_klein(tiny, blocks))
    index = json.loads((folder / "model_index.json").read_text())
    (folder / "model_index.json").write_text(json.dumps({**index, "is_distilled": True}, indent=1))
    return total


def build_unet(folder: Path, tiny: bool, blocks: int | None) -> int:
    """Write a `StableDiffusionXLInstructPix2PixPipeline`."""
    name = "StableDiffusionXLInstructPix2PixPipeline"
    return build_pipeline(folder, name, draw_unet(tiny, blocks))


def picture(number: int, width: int, height: int) -> Image.Image:
    """A smooth random picture; such files are about as large as photographs."""
    rough = np.random.default_rng(number).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    smooth = np.asarray(
        Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC), dtype=np.int16
    )
    grain = np.random.default_rng(number).integers(-4, 5, smooth.shape, dtype=np.int16)
    return Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8))


def write_suite(folder: Path, sizes: list[tuple[int, int]]) -> Path:
    """Write a suite of one pair a size in pixels, over five categories, with instructions of uneven
    length.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, (width, height) in enumerate(sizes):
        picture(number, width, height).save(folder / f"{number}.png")
        row = {
            "id": f"pair-{number:04d}",
            "category": ("physics", "environment", "social", "causal", "referential")[number % 5],
            "instruction": f"Change thing number {number}"
            + ", and then one more of them" * (number % 4),
            "image": f"{number}.png",
        }
        rows.append(json.dumps(row))
    path = folder / "pairs.jsonl"
    path.write_text("\n".join(rows) + "\n")
    return path


BUILDERS = {
    "dense": build_dense,
    "editor": build_editor,
    "judge": build_judge,
    "kontext": build_kontext,
    "klein": build_klein,
    "plus": build_plus,
    "unet": build_unet,
}


def build(
    folder: Path, names: list[str], tiny: bool, blocks: int | None = None
) -> dict[str, dict[str, float]]:
    """Write the named checkpoints below a folder, in a process of its own, so that the GPU is free
    afterwards.
    """
    import subprocess

    options = ["--tiny"] if tiny else []
    options += [] if blocks is None else [f"--blocks={blocks}"]
    done = subprocess.run(
        [sys.executable, __file__, str(folder), *names, *options],
        check=True,
        stdout=subprocess.PIPE,
    )
    figures: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+", choices=sorted(BUILDERS))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--blocks", type=int)
    options = parser.parse_args()
    figures = {}
    for name in options.names:
        started = time.perf_counter()
        size = BUILDERS[name](options.folder / name, options.tiny, options.blocks)
        figures[name] = {"gb": size / 1e9, "seconds": time.perf_counter() - started}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
