"""Edits in company: whether an edit of a padded batch depends on the others of its call, and edits
a second.

    python perf/batches.py
    python perf/batches.py --tiny

The embedded editor, and a pipeline of random weights at full size of every other class that takes
batches, in bfloat16 on one GPU and in float32 on the CPU. Eight requests of other sources, texts
and seeds are edited in one call, in the other order, some of them alone with padding and at the
last place, and one by one without. `company` counts the edits with a byte other than in the first
call: again, in the other order, alone, at the last place. `to single` is how far they are from
batch size 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from checkpoints import DEVICE, draw, picture, words
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    EDMEulerScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxKontextPipeline,
    FluxTransformer2DModel,
    StableDiffusionInstructPix2PixPipeline,
    StableDiffusionXLInstructPix2PixPipeline,
    UNet2DConditionModel,
)
from harness import clock, finish, parser, table
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    T5Config,
    T5EncoderModel,
)

from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.compute.numerics import set_deterministic
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.scenes import WEIGHTS
from pytest_imgedit.workers.editing import EditCalls, free_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

#: How many of the requests are edited alone, with padding.
ALONE = 3
TEXTS = (
    "make it snow",
    "put a much larger green hat on the man at the left and close the window behind him",
    "x",
)


def clip(kind: Any, hidden: int, layers: int, heads: int) -> Any:
    """A CLIP text encoder that knows `words`."""
    tokens = words()
    config = CLIPTextConfig(
        vocab_size=len(tokens), hidden_size=hidden, intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads, projection_dim=hidden, eos_token_id=tokens.eos_token_id,
        pad_token_id=tokens.pad_token_id,
    )  # fmt: skip
    return draw(lambda: kind(config))


def tokenizer(length: int) -> Any:
    """A tokenizer of so many tokens at most."""
    made = words()
    made.model_max_length = length
    return made


def vae(channels: int, tiny: bool, **options: Any) -> AutoencoderKL:
    """An autoencoder that leaves an 8th of a side."""
    widths = (8, 8, 8, 8) if tiny else (128, 256, 512, 512)
    return draw(
        lambda: AutoencoderKL(
            block_out_channels=widths, layers_per_block=1 if tiny else 2,
            norm_num_groups=4 if tiny else 32,
            down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
            latent_channels=channels, **options,
        )
    )  # fmt: skip


def pix2pix(tiny: bool) -> Any:
    """InstructPix2Pix, of Stable Diffusion 1.5."""
    sizes: dict[str, Any] = {"attention_head_dim": 8, "cross_attention_dim": 768}
    if tiny:
        sizes = {
            "block_out_channels": (32, 32, 32, 32),
            "attention_head_dim": 4,
            "cross_attention_dim": 32,
        }
    encoder = clip(CLIPTextModel, 32, 1, 2) if tiny else clip(CLIPTextModel, 768, 12, 12)
    unet = draw(lambda: UNet2DConditionModel(sample_size=8 if tiny else 64, in_channels=8, **sizes))
    return StableDiffusionInstructPix2PixPipeline(
        vae(4, tiny),
        encoder,
        tokenizer(77),
        unet,
        DDIMScheduler(),
        None,
        None,
        None,
        requires_safety_checker=False,
    )


def cosxl(tiny: bool) -> Any:
    """CosXL, of Stable Diffusion XL."""
    width = 32 if tiny else 1280
    sizes: dict[str, Any] = {
        "block_out_channels": (320, 640, 1280), "attention_head_dim": (5, 10, 20),
        "cross_attention_dim": 2048,
        "transformer_layers_per_block": (1, 2, 10), "use_linear_projection": True,
        "addition_time_embed_dim": 256,
    }  # fmt: skip
    if tiny:
        sizes = {
            "block_out_channels": (32, 32, 32), "attention_head_dim": 4, "cross_attention_dim": 64,
            "addition_time_embed_dim": 8,
        }  # fmt: skip
    unet = draw(
        lambda: UNet2DConditionModel(
            sample_size=8 if tiny else 128, in_channels=8, addition_embed_type="text_time",
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            projection_class_embeddings_input_dim=width + 6 * sizes["addition_time_embed_dim"],
            **sizes,
        )
    )  # fmt: skip
    first = clip(CLIPTextModel, 32, 1, 2) if tiny else clip(CLIPTextModel, 768, 12, 12)
    second = clip(CLIPTextModelWithProjection, width, 1 if tiny else 32, 2 if tiny else 20)
    scheduler = EDMEulerScheduler(
        sigma_min=0.002,
        sigma_max=120.0,
        prediction_type="v_prediction",
        sigma_schedule="exponential",
    )
    return StableDiffusionXLInstructPix2PixPipeline(
        vae(4, tiny),
        first,
        second,
        tokenizer(77),
        tokenizer(77),
        unet,
        scheduler,
        is_cosxl_edit=True,
    )


def kontext(tiny: bool) -> Any:
    """FLUX.1 Kontext."""
    sizes: dict[str, Any] = {"guidance_embeds": True}
    t5 = {"d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24, "num_heads": 64}
    if tiny:
        sizes |= {
            "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 32, "pooled_projection_dim": 32, "axes_dims_rope": (4, 6, 6),
        }  # fmt: skip
        t5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4}
    tokens = tokenizer(512)
    config = T5Config(
        vocab_size=len(tokens), feed_forward_proj="gated-gelu", decoder_start_token_id=0, **t5
    )
    encoder = clip(CLIPTextModel, 32, 1, 2) if tiny else clip(CLIPTextModel, 768, 12, 12)
    options = {
        "use_quant_conv": False,
        "use_post_quant_conv": False,
        "shift_factor": 0.1159,
        "scaling_factor": 0.3611,
    }
    return FluxKontextPipeline(
        FlowMatchEulerDiscreteScheduler(), vae(16, tiny, **options), encoder, tokenizer(77),
        draw(lambda: T5EncoderModel(config)), tokens, draw(lambda: FluxTransformer2DModel(**sizes)),
    )  # fmt: skip


def random_editor(make: Callable[[bool], Any], tiny: bool, **call: Any) -> DiffusersEditor:
    """An editor around a pipeline of random weights: in bfloat16 on a GPU, else in float32."""
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float32
    return DiffusersEditor.around(make(tiny).to(DEVICE, dtype), call)


#: What is edited with, and the side of its sources.
EDITORS: dict[str, tuple[Callable[[bool], DiffusersEditor], int]] = {
    "embedded": (
        lambda tiny: DiffusersEditor(
            str(WEIGHTS / "editor"),
            device=DEVICE,
            num_inference_steps=4 if tiny else 20,
            guidance_scale=1.0,
        ),
        128,
    ),
    "pix2pix": (lambda tiny: random_editor(pix2pix, tiny, num_inference_steps=2), 512),
    "cosxl": (lambda tiny: random_editor(cosxl, tiny, num_inference_steps=2), 1024),
    "kontext": (lambda tiny: random_editor(kontext, tiny, num_inference_steps=2), 1024),
}


def pixels(
    editor: DiffusersEditor, size: int, requests: Sequence[EditRequest]
) -> list[NDArray[np.int64]]:
    """Edit as a worker does, in padded batches of a size."""
    outputs = EditCalls(editor, size, pads=True).edit(requests)
    for output in outputs:
        if isinstance(output.value, BaseException):
            raise output.value
    return [np.asarray(output.value, dtype=int) for output in outputs]


def figures_of(editor: DiffusersEditor, requests: Sequence[EditRequest]) -> dict[str, Any]:
    """Compare the edits of a full batch with those of the same requests in other company, and time
    both sizes.
    """
    size = len(requests)
    first = pixels(editor, size, requests)
    others = {
        "again": pixels(editor, size, requests),
        "other order": pixels(editor, size, requests[::-1])[::-1],
        "alone": [pixels(editor, size, [one])[0] for one in requests[:ALONE]],
        "at the last place": [
            pixels(editor, size, [*[requests[-1]] * (size - 1), one])[-1]
            for one in requests[:ALONE]
        ],
    }
    differ = {
        name: sum(not np.array_equal(one, other) for one, other in zip(first, made, strict=False))
        for name, made in others.items()
    }
    single = pixels(editor, 1, requests)
    off = [np.abs(one - other) for one, other in zip(first, single, strict=True)]
    mean = float(np.mean([one.astype(float) ** 2 for one in off]))
    return {
        "company": differ,
        "largest_of_255": int(max(one.max() for one in off)),
        "psnr_db": 10 * float(np.log10(255**2 / mean)) if mean else None,
        "single_edits_s": size / clock(lambda: pixels(editor, 1, requests)),
        "batch_edits_s": size / clock(lambda: pixels(editor, size, requests)),
    }


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--only", choices=tuple(EDITORS), nargs="*", default=tuple(EDITORS))
    described.add_argument("--batch", type=int, default=8)
    options = described.parse_args()
    set_deterministic(True)
    figures: dict[str, Any] = {}
    rows: list[tuple[Any, ...]] = []
    for name in options.only:
        make, side = EDITORS[name]
        side = 64 if options.tiny and name != "embedded" else side
        editor = make(options.tiny)
        count = options.batch
        requests = [
            EditRequest(f"p{n}", "physics", TEXTS[n % len(TEXTS)], picture(n, side, side), seed=n)
            for n in range(count)
        ]
        found = figures[name] = figures_of(editor, requests)
        finish(options, figures)
        company = "/".join(map(str, found["company"].values()))
        gain = found["batch_edits_s"] / found["single_edits_s"]
        rows.append(
            (
                name,
                company,
                found["largest_of_255"],
                found["psnr_db"],
                found["single_edits_s"],
                gain,
            )
        )
        del editor
        free_memory()
    table(
        (
            "editor",
            f"company, of {options.batch}",
            "to single, of 255",
            "dB",
            "edits/s",
            "batch to single",
        ),
        rows,
    )


if __name__ == "__main__":
    main()
