"""Things that stand in scenes: balls, boxes, people, furniture, weather. Coordinates are canvas
units.
"""

from random import Random
from typing import Literal, NamedTuple

from pytest_imgedit.scenes.canvas import SIZE, Canvas, Rgb, darker, lighter, mix

Facing = Literal["left", "right", "front"]


class Look(NamedTuple):
    """The colours of a person."""

    skin: Rgb
    hair: Rgb


WOOD: Rgb = (150, 106, 66)
STONE: Rgb = (128, 130, 134)
SKIN: tuple[Rgb, ...] = ((238, 200, 168), (206, 158, 116), (142, 98, 68))
HAIR: tuple[Rgb, ...] = ((52, 40, 34), (112, 72, 40), (198, 160, 92))
GREY_HAIR: Rgb = (206, 206, 208)
WALLS: tuple[Rgb, ...] = ((226, 218, 202), (204, 216, 222), (220, 206, 212), (208, 220, 204))
FLOORS: tuple[Rgb, ...] = ((168, 134, 100), (150, 142, 138), (178, 152, 120))


def room(c: Canvas, wall: Rgb, floor: Rgb, horizon: float) -> None:
    """A wall and a floor with a skirting board."""
    c.gradient(0, horizon, lighter(wall, 0.15), wall)
    c.gradient(horizon, SIZE, darker(floor, 0.12), floor)
    c.rect(0, horizon - 2, SIZE, horizon, darker(wall, 0.25))


def outdoors(
    c: Canvas, horizon: float, sky: Rgb = (150, 198, 236), ground: Rgb = (112, 160, 88)
) -> None:
    """Sky and ground."""
    c.gradient(0, horizon, sky, lighter(sky, 0.5))
    c.gradient(horizon, SIZE, lighter(ground, 0.12), darker(ground, 0.12))


def shadow(c: Canvas, x: float, y: float, rx: float, ry: float, *, strength: float = 0.38) -> None:
    """A soft shadow on the ground."""
    c.veil((20, 20, 30), strength, lambda m: m.ellipse(x, y, rx, ry, (255, 255, 255)), blur=0.8)


def ball(
    c: Canvas,
    x: float,
    y: float,
    r: float,
    color: Rgb,
    *,
    light: tuple[float, float] = (-0.4, -0.45),
) -> None:
    """A shaded ball around (x, y), lit from the direction `light` (unit circle, y down)."""
    steps = 9
    for step in range(steps):
        share = step / (steps - 1)
        shade = mix(darker(color, 0.45), lighter(color, 0.45), share)
        rest = r * (1 - 0.86 * share)
        c.ellipse(x + light[0] * (r - rest), y + light[1] * (r - rest), rest, rest, shade)


def box(
    c: Canvas, x: float, bottom: float, w: float, h: float, *, color: Rgb, light: float = -1
) -> None:
    """A box whose front is centred on x and stands on `bottom`; `light` < 0 comes from the left."""
    d = w * 0.28
    left, right, top = x - w / 2, x + w / 2, bottom - h
    c.polygon(
        [(left, top), (left + d, top - d * 0.7), (right + d, top - d * 0.7), (right, top)],
        lighter(color, 0.25),
    )
    side = darker(color, 0.42) if light < 0 else lighter(color, 0.1)
    c.polygon(
        [(right, top), (right + d, top - d * 0.7), (right + d, bottom - d * 0.7), (right, bottom)],
        side,
    )
    c.rect(left, top, right, bottom, color if light < 0 else darker(color, 0.32))


def sun(c: Canvas, x: float, y: float, r: float = 8) -> None:
    c.glow(x, y, r * 3, (255, 226, 140))
    c.ellipse(x, y, r, r, (255, 224, 92))


def moon(c: Canvas, x: float, y: float, r: float, sky: Rgb) -> None:
    c.glow(x, y, r * 2.6, (190, 200, 240), 0.4)
    c.ellipse(x, y, r, r, (240, 238, 218))
    c.ellipse(x + r * 0.45, y - r * 0.2, r * 0.82, r * 0.82, sky)


def cloud(c: Canvas, x: float, y: float, w: float, color: Rgb = (246, 248, 250)) -> None:
    for dx, dy, share in ((-0.3, 0.05, 0.2), (0.02, -0.06, 0.27), (0.32, 0.06, 0.18)):
        c.ellipse(x + dx * w, y + dy * w, share * w, share * w * 0.8, color)
    c.rect(x - 0.44 * w, y + 0.06 * w, x + 0.46 * w, y + 0.2 * w, color, radius=0.07 * w)


def tree(
    c: Canvas,
    x: float,
    bottom: float,
    h: float,
    *,
    leaves: Rgb | None = (62, 124, 62),
    snow: bool = False,
) -> None:
    """A tree; `leaves=None` leaves it bare."""
    trunk: Rgb = (104, 74, 48)
    c.rect(x - h * 0.05, bottom - h * 0.45, x + h * 0.05, bottom, trunk)
    for dx, dy in ((-0.2, -0.72), (0.2, -0.7), (-0.08, -0.86), (0.1, -0.88)):
        c.line([(x, bottom - h * 0.42), (x + dx * h, bottom + dy * h)], trunk, h * 0.035)
    if leaves is not None:
        for dx, dy, r in (
            (-0.18, -0.6, 0.19),
            (0.18, -0.6, 0.19),
            (0, -0.78, 0.23),
            (0, -0.55, 0.2),
        ):
            c.ellipse(
                x + dx * h,
                bottom + dy * h,
                r * h,
                r * h,
                darker(leaves, 0.12) if dy > -0.6 else leaves,
            )
    if snow:
        for dx, dy, r in ((-0.17, -0.72, 0.13), (0.17, -0.71, 0.13), (0, -0.92, 0.16)):
            c.ellipse(x + dx * h, bottom + dy * h, r * h, r * h * 0.55, (250, 251, 253))


def house(
    c: Canvas,
    x: float,
    bottom: float,
    w: float,
    colors: tuple[Rgb, Rgb],
    *,
    lit: bool = False,
    snow: bool = False,
) -> None:
    """A house with a door and two windows, which glow when `lit`; `colors` are those of wall and
    roof.
    """
    h, (wall, roof) = w * 0.62, colors
    glass: Rgb = (255, 220, 120) if lit else (120, 146, 168)
    if lit:
        c.glow(x, bottom - h * 0.55, w * 0.9, (255, 196, 96), 0.35)
    c.rect(x - w / 2, bottom - h, x + w / 2, bottom, wall)
    peak, eaves = bottom - h - w * 0.38, bottom - h
    c.polygon([(x - w * 0.6, eaves), (x, peak), (x + w * 0.6, eaves)], roof)
    if snow:
        c.polygon(
            [(x - w * 0.6, eaves), (x, peak), (x + w * 0.6, eaves), (x, peak + w * 0.2)],
            (248, 250, 253),
        )
    c.rect(x - w * 0.09, bottom - h * 0.52, x + w * 0.09, bottom, darker(wall, 0.5))
    for side in (-1, 1):
        wx = x + side * w * 0.3
        c.rect(wx - w * 0.1, bottom - h * 0.74, wx + w * 0.1, bottom - h * 0.4, glass)
        c.line([(wx, bottom - h * 0.74), (wx, bottom - h * 0.4)], darker(wall, 0.4), w * 0.02)


def table(c: Canvas, x: float, top: float, w: float, floor_y: float, *, color: Rgb = WOOD) -> None:
    """A table whose top edge is at `top` and whose legs reach `floor_y`."""
    for side in (-1, 1):
        c.rect(x + side * w * 0.42 - 2, top, x + side * w * 0.42 + 2, floor_y, darker(color, 0.3))
    c.rect(x - w / 2, top, x + w / 2, top + 5, color, radius=1)
    c.rect(x - w / 2, top, x + w / 2, top + 1.6, lighter(color, 0.25), radius=0.8)


class Pose(NamedTuple):
    """How a person stands, and with what."""

    facing: Facing = "front"
    sitting: bool = False
    cane: bool = False
    hand_up: bool = False
    hat: Rgb | None = None


STANDING = Pose()


def figure(
    c: Canvas, x: float, feet: float, h: float, shirt: Rgb, *, look: Look, pose: Pose = STANDING
) -> None:
    """A person of height `h` whose feet stand at (x, feet). The nose and eyes show which way it
    faces.
    """
    facing, sitting, cane, hand_up, hat = pose
    turn = {"left": -1, "right": 1, "front": 0}[facing]
    skin, hair = look
    trousers: Rgb = (58, 64, 88)
    hip, leg = feet - h * (0.32 if sitting else 0.44), h * 0.09
    if sitting:
        knee = x + (turn or 1) * h * 0.2
        c.line([(x, hip), (knee, hip + h * 0.02), (knee, feet)], trousers, leg)
    else:
        for side in (-1, 1):
            c.line([(x + side * h * 0.05, hip), (x + side * h * 0.07, feet)], trousers, leg)
    neck = hip - h * 0.3
    c.rect(x - h * 0.12, neck, x + h * 0.12, hip + h * 0.03, shirt, radius=h * 0.05)
    arm = darker(shirt, 0.2)
    for side in (-1, 1):
        raised = hand_up and side == (turn or 1)
        hand = (
            (x + side * h * 0.24, neck - h * 0.2)
            if raised
            else (x + side * h * 0.17, hip - h * 0.02)
        )
        c.line([(x + side * h * 0.12, neck + h * 0.05), hand], arm, h * 0.07)
        c.ellipse(*hand, h * 0.04, h * 0.04, skin)
        if cane and side == (turn or 1):
            c.line([hand, (hand[0] + side * h * 0.06, feet)], (92, 60, 36), h * 0.035)
    head, r = neck - h * 0.11, h * 0.12
    c.ellipse(x, head - r * 0.18, r * 1.08, r, hair)
    if turn:
        c.ellipse(x + turn * r * 0.28, head, r * 0.86, r * 0.94, skin)
        c.polygon(
            [
                (x + turn * r, head - r * 0.2),
                (x + turn * r * 1.5, head + r * 0.25),
                (x + turn * r, head + r * 0.35),
            ],
            skin,
        )
        c.ellipse(x + turn * r * 0.62, head - r * 0.1, r * 0.14, r * 0.16, (30, 30, 34))
    else:
        c.ellipse(x, head + r * 0.14, r * 0.86, r * 0.86, skin)
        for side in (-1, 1):
            c.ellipse(x + side * r * 0.36, head, r * 0.13, r * 0.15, (30, 30, 34))
    if hat is not None:
        c.rect(
            x - r * 1.5,
            head - r * 0.72,
            x + r * 1.5,
            head - r * 0.42,
            darker(hat, 0.15),
            radius=r * 0.1,
        )
        c.rect(x - r * 0.85, head - r * 1.5, x + r * 0.85, head - r * 0.5, hat, radius=r * 0.2)


def person_look(rng: Random) -> Look:
    """Choose skin and hair."""
    return Look(rng.choice(SKIN), rng.choice(HAIR))
