"""The true grade of an edit of a drawn scene: the rule that the embedded judge is taught and held
to.

All three grades compare the edit E with the source S and the reference R, of shape (B, 3, H, W) on
[0, 1].

Low band: S, E and R blurred with σ = 2.5 pixels, so that a pixel's shift costs little; distances
are Euclidean over the channels, divided by √3, less 0.02 (what is below cannot be seen).

instruction = 10·max(0, 1 − Σ|E − R| / Σ|S − R|), summed over the pixels in which S and R differ:
the share of the asked change that was made. 0 where nothing, or something else, was done there; 10
if S and R differ nowhere.

preservation = 10·max(0, 1 − √(mean ρ / 0.15)), where ρ is the distance of E to the line from S to
R, taken over all pixels: a change that is half made is no damage, a change of anything else is.

realism = 10·max(0, 1 − lost − added), from the local energy of the high band (an image less its
blur with σ = 1.5; magnitude averaged over the channels and blurred with σ = 4), where exactly a
raindrop falls does not matter. Each pixel of E is compared with S or R, whichever is nearer: lost =
Σ(what E has less) / Σ(what they have) − 0.05, as by blur; added = mean(what E has more) / 0.08, as
by noise, blocks and seams.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import torch
from scipy.stats import spearmanr
from torch.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Sequence

ASPECTS = ("instruction", "preservation", "realism")
UNSEEN, LOST = 0.02, 0.15
UNSEEN_LOSS, ADDED = 0.05, 0.08


def grade(source: torch.Tensor, edited: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Return the grades (B, 3) in [0, 10], in the order of `ASPECTS`."""
    s, e, r = (blur(image, 2.5) for image in (source, edited, reference))
    asked, missing = _seen(r - s), _seen(r - e)
    changed = (asked > 0).float()
    done = 1 - (missing * changed).sum((1, 2)) / asked.sum((1, 2)).clamp(min=1e-6)
    done = torch.where(changed.sum((1, 2)) > 0, done, torch.ones_like(done))
    kept = 1 - (_off_the_line(s, e, r).mean((1, 2)) / LOST).sqrt()
    return 10 * torch.stack([done, kept, realism(source, edited, reference)], dim=1).clamp(0, 1)


def score(grades: torch.Tensor) -> torch.Tensor:
    """Combine grades (B, 3) as the protocol `aspects` does: √(instruction · min(preservation,
    realism)).
    """
    return (grades[:, 0] * torch.minimum(grades[:, 1], grades[:, 2])).sqrt()


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation, on [-1, 1]; NaN for fewer than three values, or if all
    are alike.
    """
    if len(first) < 3 or len(set(first)) == 1 or len(set(second)) == 1:
        return math.nan
    return float(spearmanr(first, second).statistic)


def realism(source: torch.Tensor, edited: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Return the third grade (B,), on [-∞, 1]."""
    s, e, r = (_energy(image) for image in (source, edited, reference))
    nearer = torch.where((e - s).abs() < (e - r).abs(), s, r)
    lost = (nearer - e).clamp(min=0).sum((1, 2, 3)) / nearer.sum((1, 2, 3)).clamp(min=1e-6)
    added = (e - nearer).clamp(min=0).mean((1, 2, 3))
    return 1 - (lost - UNSEEN_LOSS).clamp(min=0) - added / ADDED


def _seen(difference: torch.Tensor) -> torch.Tensor:
    return ((difference.square().mean(1) + 1e-12).sqrt() - UNSEEN).clamp(min=0)


def _off_the_line(s: torch.Tensor, e: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    along = r - s
    share = ((e - s) * along).sum(1, keepdim=True) / along.square().sum(1, keepdim=True).clamp(
        min=1e-6
    )
    return _seen(e - s - share.clamp(0, 1) * along)


def _energy(image: torch.Tensor) -> torch.Tensor:
    return blur((image - blur(image, 1.5)).abs().mean(1, keepdim=True), 4)


def blur(image: torch.Tensor, sigma: float) -> torch.Tensor:
    """Blur (B, C, H, W) with a Gaussian of `sigma` pixels, cut at 3σ, edges reflected."""
    kernel = _kernel(sigma).to(image)
    radius, channels = len(kernel) // 2, image.shape[1]
    for shape, padding in (
        ((1, 1, -1, 1), (0, 0, radius, radius)),
        ((1, 1, 1, -1), (radius, radius, 0, 0)),
    ):
        weight = kernel.view(shape).expand(channels, 1, *kernel.view(shape).shape[2:])
        image = F.conv2d(F.pad(image, padding, mode="reflect"), weight, groups=channels)
    return image


@cache
def _kernel(sigma: float) -> torch.Tensor:
    radius = max(1, round(3 * sigma))
    values = torch.exp(-(torch.arange(-radius, radius + 1).float() ** 2) / (2 * sigma**2))
    return values / values.sum()
