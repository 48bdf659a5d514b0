"""First stage of the editor: an autoencoder of drawn scenes, 128x128 pixels to 16x16 latents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from tools.train_embedded.loop import Losses
    from tools.train_embedded.pool import Pool


def losses(vae: Any, pool: Pool, batch: int, kl_weight: float) -> Losses:
    """One step's loss: mean absolute error of pixels and of their differences, and the latents' KL
    divergence.
    """
    rows = torch.randint(pool.size, (batch,), device=pool.device)
    images = pool.images(rows, torch.randint(4, (batch,), device=pool.device)) * 2 - 1
    with torch.autocast(pool.device, torch.bfloat16):
        posterior = vae.encode(images).latent_dist
        restored = vae.decode(posterior.sample()).sample.float()
    edges = sum((restored.diff(dim=axis) - images.diff(dim=axis)).abs().mean() for axis in (-1, -2))
    return {
        "pixels": (restored - images).abs().mean(),
        "edges": edges,
        "kl": kl_weight * posterior.kl().mean() / posterior.mean[0].numel(),
    }


@torch.no_grad()
def whiten(vae: Any, latents: torch.Tensor) -> None:
    """Give latents (N, C, H, W) zero mean and unit covariance, by changing the 1x1 convolutions
    around them.

    Diffusion starts from unit noise; with this the pipeline needs no scaling of its own. Decoded
    pictures stay the same.
    """
    flat = latents.float().permute(1, 0, 2, 3).flatten(1)
    mean = flat.mean(1)
    values, vectors = torch.linalg.eigh(torch.cov(flat))
    forward = (vectors * values.clamp(min=1e-6).rsqrt()) @ vectors.T
    backward = (vectors * values.clamp(min=1e-6).sqrt()) @ vectors.T
    channels = len(mean)
    encode, decode = vae.quant_conv, vae.post_quant_conv
    weight = encode.weight[:channels, :, 0, 0].float()
    encode.bias[:channels] = forward @ (encode.bias[:channels].float() - mean)
    encode.weight[:channels, :, 0, 0] = forward @ weight
    kernel = decode.weight[:, :, 0, 0].float()
    decode.bias += kernel @ mean
    decode.weight[:, :, 0, 0] = kernel @ backward
