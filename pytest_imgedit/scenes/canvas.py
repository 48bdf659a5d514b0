"""A small antialiased canvas: 128x128 units, drawn four times larger with Pillow and scaled down
once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter

Rgb = tuple[int, int, int]
Point = tuple[float, float]

SIZE = 128
SCALE = 4


def mix(a: Rgb, b: Rgb, share: float) -> Rgb:
    """Blend two colours; `share` in [0, 1] is the part of `b`."""
    red, green, blue = (round(x + (y - x) * share) for x, y in zip(a, b, strict=True))
    return (red, green, blue)


def darker(color: Rgb, share: float = 0.3) -> Rgb:
    """Move a colour towards black."""
    return mix(color, (0, 0, 0), share)


def lighter(color: Rgb, share: float = 0.4) -> Rgb:
    """Move a colour towards white."""
    return mix(color, (255, 255, 255), share)


def _reached(image: Image.Image, blur: float) -> tuple[int, int, int, int] | None:
    """The part of a large image to which what is not black in it comes when it is blurred; `None`
    if all is black.

    Pillow's Gaussian blur is three box blurs, each less than one pixel wider to a side than `blur`.
    """
    box = image.getbbox()
    if box is None:
        return None
    left, top, right, bottom = box
    reach = math.ceil(3 * (blur + 1))
    return (
        max(0, left - reach),
        max(0, top - reach),
        min(image.width, right + reach),
        min(image.height, bottom + reach),
    )


class Canvas:
    """Draws in units of one final pixel; y grows downwards, angles are in degrees."""

    def __init__(self, background: Rgb = (240, 240, 240)) -> None:
        self.image = Image.new("RGB", (SIZE * SCALE, SIZE * SCALE), background)
        self._draw = ImageDraw.Draw(self.image)

    def _at(self, *values: float) -> list[float]:
        return [value * SCALE for value in values]

    def rect(
        self, left: float, top: float, right: float, bottom: float, fill: Rgb, *, radius: float = 0
    ) -> None:
        """Fill a rectangle, with rounded corners if `radius` > 0."""
        self._draw.rounded_rectangle(self._at(left, top, right, bottom), radius * SCALE, fill=fill)

    def ellipse(self, x: float, y: float, rx: float, ry: float, fill: Rgb) -> None:
        """Fill an ellipse around (x, y)."""
        self._draw.ellipse(self._at(x - rx, y - ry, x + rx, y + ry), fill=fill)

    def arc(
        self, x: float, y: float, r: float, start: float, end: float, *, fill: Rgb, width: float = 1
    ) -> None:
        """Draw a part of a circle's outline."""
        self._draw.arc(
            self._at(x - r, y - r, x + r, y + r), start, end, fill=fill, width=round(width * SCALE)
        )

    def polygon(self, points: Sequence[Point], fill: Rgb) -> None:
        """Fill a polygon."""
        self._draw.polygon([(x * SCALE, y * SCALE) for x, y in points], fill=fill)

    def line(self, points: Sequence[Point], fill: Rgb, width: float = 1) -> None:
        """Draw a line through the points, with round joints and ends."""
        scaled = [(x * SCALE, y * SCALE) for x, y in points]
        self._draw.line(scaled, fill=fill, width=round(width * SCALE), joint="curve")
        radius = width * SCALE / 2
        for x, y in (scaled[0], scaled[-1]):
            self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)

    def gradient(self, top: float, bottom: float, first: Rgb, last: Rgb) -> None:
        """Fill the rows from `top` to `bottom` with a vertical gradient."""
        start, end = round(top * SCALE), round(bottom * SCALE)
        for y in range(start, end):
            color = mix(first, last, (y - start) / max(1, end - start - 1))
            self._draw.line([(0, y), (SIZE * SCALE, y)], fill=color)

    def veil(
        self,
        color: Rgb,
        opacity: float,
        mask: Callable[[Canvas], None] | None = None,
        blur: float = 0,
    ) -> None:
        """Lay a translucent colour over everything, or where `mask` draws white on black."""
        shape = Canvas((255, 255, 255) if mask is None else (0, 0, 0))
        if mask is not None:
            mask(shape)
        box = _reached(shape.image, blur * SCALE)
        if box is None:
            return
        alpha = shape.image.crop(box).convert("L").point(lambda value: round(value * opacity))
        if blur:
            alpha = alpha.filter(ImageFilter.GaussianBlur(blur * SCALE))
        self.image.paste(color, box, alpha)

    def glow(self, x: float, y: float, radius: float, color: Rgb, strength: float = 0.6) -> None:
        """Add soft light around a point."""
        light = Canvas((0, 0, 0))
        light.ellipse(x, y, radius * 0.55, radius * 0.55, mix((0, 0, 0), color, strength))
        blur = radius * SCALE * 0.3
        box = _reached(light.image, blur)
        if box is not None:
            soft = light.image.crop(box).filter(ImageFilter.GaussianBlur(blur))
            self.image.paste(ImageChops.screen(self.image.crop(box), soft), box)

    def dim(self, brightness: float, saturation: float = 1.0) -> None:
        """Scale the brightness and saturation of all that is drawn so far."""
        self._replace(
            ImageEnhance.Color(ImageEnhance.Brightness(self.image).enhance(brightness)).enhance(
                saturation
            )
        )

    def _replace(self, image: Image.Image) -> None:
        self.image = image
        self._draw = ImageDraw.Draw(image)

    def finish(self) -> Image.Image:
        """Return the picture as RGB, 128x128."""
        return self.image.resize((SIZE, SIZE), Image.Resampling.LANCZOS)
