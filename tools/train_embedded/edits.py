"""Edits of many kinds and qualities for the judge to learn from, made from drawn pairs on the GPU.

Images are (B, 3, 128, 128) on [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from tools.train_embedded.grades import blur

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[["Drawn"], torch.Tensor]


@dataclass(frozen=True)
class Drawn:
    """A batch of pairs, and the pair of a variant of each scene."""

    source: torch.Tensor
    reference: torch.Tensor
    variant_source: torch.Tensor
    variant_reference: torch.Tensor

    def select(self, index: torch.Tensor) -> Drawn:
        """Return some rows of the batch."""
        return Drawn(
            self.source[index],
            self.reference[index],
            self.variant_source[index],
            self.variant_reference[index],
        )

    def join(self, other: Drawn) -> Drawn:
        """Append the rows of another batch."""
        names = ("source", "reference", "variant_source", "variant_reference")
        return Drawn(*(torch.cat([getattr(self, name), getattr(other, name)]) for name in names))

    def __len__(self) -> int:
        return len(self.source)

    def same_source(self) -> torch.Tensor:
        """Tell for each row (B,) whether the variant has the same source."""
        return (self.source == self.variant_source).flatten(1).all(1)

    def other_reference(self) -> torch.Tensor:
        """Tell for each row (B,) whether the variant's reference is visibly another."""
        return (self.reference - self.variant_reference).abs().mean((1, 2, 3)) > 0.002

    def uniform(self, low: float, high: float) -> torch.Tensor:
        """Draw one number for each row: (B, 1, 1, 1)."""
        return torch.empty(len(self), 1, 1, 1, device=self.source.device).uniform_(low, high)

    def either(self) -> torch.Tensor:
        """Return the reference or the source, by chance."""
        return torch.where(self.uniform(0, 1) < 0.6, self.reference, self.source)


def half(drawn: Drawn) -> torch.Tensor:
    """Blend source and reference."""
    share = drawn.uniform(0.15, 0.85)
    return drawn.source + share * (drawn.reference - drawn.source)


def partly(drawn: Drawn) -> torch.Tensor:
    """Change only one part of the picture."""
    return torch.where(_regions(drawn) > 0, drawn.reference, drawn.source)


def wrong(drawn: Drawn) -> torch.Tensor:
    """Do what another scene with one other choice asks for: other object, colour, side or place."""
    return drawn.variant_reference


def beside(drawn: Drawn) -> torch.Tensor:
    """Leave the change out and alter a thing or more, where the variant's source differs."""
    return drawn.variant_source


def elsewhere(drawn: Drawn) -> torch.Tensor:
    """Make the change on the other side, mirrored."""
    changed = (
        F.max_pool2d((drawn.reference - drawn.source).abs().amax(1, keepdim=True), 5, 1, 2) > 0.04
    )
    return torch.where(changed.flip(-1), drawn.reference.flip(-1), drawn.source)


def recoloured(drawn: Drawn) -> torch.Tensor:
    """Turn the colours of what was changed, by a channel shift."""
    changed = (
        F.max_pool2d((drawn.reference - drawn.source).abs().amax(1, keepdim=True), 3, 1, 1) > 0.04
    )
    turned = torch.where(
        drawn.uniform(0, 1) < 0.5, drawn.reference.roll(1, 1), drawn.reference.roll(2, 1)
    )
    return torch.where(changed, turned, drawn.reference)


def damaged(drawn: Drawn) -> torch.Tensor:
    """Do it, or nothing, and put parts of another picture, or other colours, where nothing was
    asked.
    """
    region = _regions(drawn, small=True) > 0
    base = drawn.either()
    other = base.roll(1, 0)
    tinted = (base + (torch.rand(len(drawn), 3, 1, 1, device=base.device) - 0.5)).clamp(0, 1)
    return torch.where(region, torch.where(drawn.uniform(0, 1) < 0.5, other, tinted), base)


def other_pair(drawn: Drawn) -> torch.Tensor:
    """Return another pair's picture."""
    return drawn.either().roll(1, 0)


def useless(drawn: Drawn) -> torch.Tensor:
    """Return a flat colour, or noise."""
    flat = torch.rand(len(drawn), 3, 1, 1, device=drawn.source.device).expand_as(drawn.source)
    grey = torch.full_like(flat, 128 / 255)
    noise = torch.rand_like(drawn.source)
    kind = drawn.uniform(0, 1)
    return torch.where(kind < 0.35, grey, torch.where(kind < 0.6, flat, noise))


def degraded(drawn: Drawn) -> torch.Tensor:
    """Do it, or nothing, and damage the whole picture."""
    return degrade(drawn.either(), 1.0)


#: Kinds of edits and how often each is made.
KINDS: dict[str, tuple[float, Make]] = {
    "right": (0.18, lambda drawn: drawn.reference),
    "untouched": (0.12, lambda drawn: drawn.source),
    "half": (0.07, half),
    "partly": (0.06, partly),
    "wrong": (0.25, wrong),
    "beside": (0.04, beside),
    "elsewhere": (0.03, elsewhere),
    "recoloured": (0.04, recoloured),
    "damaged": (0.08, damaged),
    "other pair": (0.04, other_pair),
    "useless": (0.02, useless),
    "degraded": (0.06, degraded),
}
#: Share of all edits that are degraded a little on top of what they are.
TOUCHED = 0.2


def make_edits(
    drawn: Drawn, weights: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an edit for each row (B, 3, 128, 128) and the index of its kind in `KINDS` (B,)."""
    if weights is None:
        weights = torch.tensor([weight for weight, _ in KINDS.values()])
    kinds = torch.multinomial(weights, len(drawn), replacement=True).to(drawn.source.device)
    edits = torch.empty_like(drawn.source)
    for number, (_, make) in enumerate(KINDS.values()):
        index = torch.nonzero(kinds == number).squeeze(1)
        if len(index):
            edits[index] = make(drawn.select(index))
    touched = torch.nonzero(torch.rand(len(drawn), device=edits.device) < TOUCHED).squeeze(1)
    if len(touched):
        edits[touched] = degrade(edits[touched], 0.35)
    return quantize(edits), kinds


def degrade(image: torch.Tensor, strength: float) -> torch.Tensor:
    """Blur, add noise, compress, shift, or change light or colours: one of them for each row, up to
    `strength`.
    """
    changed = image.clone()
    kinds = torch.randint(6, (len(image),), device=image.device)
    for kind, damage in enumerate((_blurred, _noisy, compressed, _shifted, _relit, _pixelated)):
        index = torch.nonzero(kinds == kind).squeeze(1)
        if len(index):
            changed[index] = damage(image[index], strength)
    return changed.clamp(0, 1)


def quantize(image: torch.Tensor) -> torch.Tensor:
    """Round to the 256 levels of a PNG."""
    return (image.clamp(0, 1) * 255).round() / 255


def _blurred(image: torch.Tensor, strength: float) -> torch.Tensor:
    sigma = 0.4 + strength * 3 * float(torch.rand(()))
    return blur(image, sigma)


def _noisy(image: torch.Tensor, strength: float) -> torch.Tensor:
    amount = torch.empty(len(image), 1, 1, 1, device=image.device).uniform_(
        0.01, 0.02 + 0.3 * strength
    )
    noise = torch.randn_like(image)
    if float(torch.rand(())) < 0.4:  # blotches, as of a latent that was not denoised
        noise = F.interpolate(
            torch.randn_like(image[..., ::8, ::8]), size=image.shape[-2:], mode="bicubic"
        )
    return image + amount * noise


def _shifted(image: torch.Tensor, strength: float) -> torch.Tensor:
    most = max(1, round(10 * strength))
    rows, columns = (int(torch.randint(-most, most + 1, ())) for _ in range(2))
    padded = F.pad(image, (most,) * 4, mode="replicate")
    return padded[
        ...,
        most + rows : most + rows + image.shape[-2],
        most + columns : most + columns + image.shape[-1],
    ]


def _relit(image: torch.Tensor, strength: float) -> torch.Tensor:
    shape = (len(image), 3, 1, 1) if float(torch.rand(())) < 0.5 else (len(image), 1, 1, 1)
    gain = 1 + strength * torch.empty(shape, device=image.device).uniform_(-0.5, 0.5)
    return image * gain + strength * torch.empty(shape, device=image.device).uniform_(-0.15, 0.15)


def _pixelated(image: torch.Tensor, strength: float) -> torch.Tensor:
    block = 2 if strength < 0.5 else int(torch.randint(2, 9, ()))
    small = F.interpolate(image, scale_factor=1 / block, mode="area")
    return F.interpolate(small, size=image.shape[-2:], mode="nearest")


def compressed(image: torch.Tensor, strength: float) -> torch.Tensor:
    """Quantize the cosine transform of 8x8 blocks, as JPEG does, with steps that grow with the
    frequency.
    """
    number = torch.arange(8, device=image.device).float()
    basis = torch.cos((2 * number[None] + 1) * number[:, None] * torch.pi / 16) * 0.5
    basis[0] = 8**-0.5
    blocks = image.unflatten(-1, (-1, 8)).unflatten(-3, (-1, 8)).transpose(-3, -2)
    steps = torch.empty(len(image), 1, 1, 1, 1, 1, device=image.device).uniform_(
        0.02, 0.03 + 0.5 * strength
    )
    steps = steps * (1 + number[:, None] + number[None])
    coefficients = basis @ blocks @ basis.T
    restored = basis.T @ ((coefficients / steps).round() * steps) @ basis
    whole: torch.Tensor = restored.transpose(-3, -2).flatten(-4, -3).flatten(-2, -1)
    return whole


def _regions(drawn: Drawn, small: bool = False) -> torch.Tensor:
    """Return masks (B, 1, 128, 128) of blobs that cover about half of the picture, or a few percent
    (`small`).
    """
    cells = 8 if small else 3
    field = torch.randn(len(drawn), 1, cells, cells, device=drawn.source.device)
    smooth = F.interpolate(field, size=drawn.source.shape[-2:], mode="bicubic")
    return smooth - (drawn.uniform(1.0, 2.2) if small else drawn.uniform(-0.4, 0.4))
