"""Seconds an edit of each metric, over pairs of images of 1024 x 1024, with random weights at full
size: CLIP ViT-L/14, DINOv2-L, and the three networks of LPIPS.

    python perf/metric_stage.py
    python perf/metric_stage.py --tiny

Each metric is built and asked as a worker does it. On a GPU its peak memory is measured too. A
value must not depend on the batch: one that does ends the script.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import clock, finish, parser, scratch, table
from PIL import Image

from pytest_imgedit.core.requests import Question
from pytest_imgedit.kinds.learned_metrics import (
    BACKBONES,
    CLIPImageComparison,
    DINOComparison,
    LPIPSComparison,
    weights_file,
)
from pytest_imgedit.kinds.metrics import PSNRComparison, SSIMComparison

BATCH = 8


def questions(side: int) -> list[Question]:
    """Pairs of noise and the same noise with other colours."""
    generator = np.random.default_rng(0)
    made = []
    for number in range(BATCH):
        noise = generator.integers(0, 256, (side, side, 3), dtype=np.uint8)
        source, edited = Image.fromarray(noise), Image.fromarray(255 - noise // 2)
        images = {"source": source, "edited": edited}
        made.append(Question(str(number), "physics", "make it darker", images))
    return made


def clip(folder: Path, tiny: bool) -> Path:
    """Write a CLIP with the sizes of ViT-L/14."""
    from transformers import CLIPConfig, CLIPModel

    sizes: dict[str, Any] = {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 224,
        "patch_size": 14,
    }
    if tiny:
        sizes |= {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    model = CLIPModel(CLIPConfig(vision_config=sizes, text_config={}, projection_dim=768))
    return written(model, folder)


def dino(folder: Path, tiny: bool) -> Path:
    """Write a DINOv2 with the sizes of its L."""
    from transformers import Dinov2Config, Dinov2Model

    sizes: dict[str, Any] = {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 224,
        "patch_size": 14,
    }
    if tiny:
        sizes |= {"hidden_size": 32, "num_hidden_layers": 2}
    return written(Dinov2Model(Dinov2Config(**sizes)), folder)


def written(model: Any, folder: Path) -> Path:
    """Write a model with a processor of images of 224 x 224."""
    from transformers import CLIPImageProcessor

    model.save_pretrained(folder)
    CLIPImageProcessor().save_pretrained(folder)
    return folder


def lpips_weights(hub: Path) -> Path:
    """Write random weights where torch keeps those of the networks."""
    from torchvision import models

    for net, backbone in BACKBONES.items():
        file = weights_file(hub, net)
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(getattr(models, backbone.network)().state_dict(), file)
    return hub


def measure(metric: Any, asked: list[Question], times: int) -> dict[str, float]:
    """Milliseconds an edit, and peak GiB of GPU memory."""
    metric_check = getattr(metric, "self_check", lambda: None)
    metric_check()
    together = [answer.score for answer in metric.answer(asked)]
    alone = [metric.answer([question])[0].score for question in asked]
    if None in together or together != alone:
        raise SystemExit(f"{type(metric).__name__}: {together} in a batch, {alone} alone")
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    seconds = clock(lambda: metric.answer(asked), times) / len(asked)
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return {"ms": 1000 * seconds, "peak_gib": peak / 2**30}


def main() -> None:
    options = parser(__doc__).parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    asked = questions(64 if options.tiny else 1024)
    times = 1 if options.tiny else 5
    figures: dict[str, dict[str, float]] = {}
    with scratch(options) as folder:
        torch.manual_seed(0)
        features = {
            "clip-image": (CLIPImageComparison, clip(folder / "clip", options.tiny)),
            "dino": (DINOComparison, dino(folder / "dino", options.tiny)),
        }
        figures["psnr"] = measure(PSNRComparison(device="cpu"), asked, times)
        figures["ssim"] = measure(SSIMComparison(device="cpu"), asked, times)
        for name, (worker, checkpoint) in features.items():
            figures[name] = measure(worker(str(checkpoint), device=device), asked, times)
        hub = lpips_weights(folder / "hub")
        for net in BACKBONES:
            metric = LPIPSComparison(str(hub), device=device, net=net)
            figures[f"lpips {net}"] = measure(metric, asked, times)
    table(
        ("metric", "ms an edit", "peak GiB"),
        [(name, round(row["ms"], 1), round(row["peak_gib"], 2)) for name, row in figures.items()],
    )
    finish(options, {"device": device, "pixels": asked[0].images["source"].size, **figures})


if __name__ == "__main__":
    main()
