"""Scenes of gravity, support, buoyancy, depth and occlusion."""

from random import Random

from pytest_imgedit.scenes.canvas import Canvas, darker, lighter
from pytest_imgedit.scenes.scene import Scene, Text, pick_colors
from pytest_imgedit.scenes.shapes import (
    FLOORS,
    STONE,
    WALLS,
    WOOD,
    ball,
    box,
    outdoors,
    room,
    shadow,
    tree,
)


def shelf_removed(rng: Random) -> Scene:
    """What stood on a shelf falls to the floor below and rests there."""
    wall, floor = rng.choice(WALLS), rng.choice(FLOORS)
    held, other = pick_colors(rng, 2)
    x, shelf_y, r = rng.uniform(38, 88), rng.uniform(44, 60), rng.uniform(8, 12)
    other_x = x + rng.choice((-1, 1)) * rng.uniform(34, 40)
    other_x = other_x if 14 < other_x < 112 else 2 * x - other_x
    is_ball, distractor = rng.random() < 0.6, rng.random() < 0.7
    thing = Text("ball", "球") if is_ball else Text("box", "盒子")

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, floor, 92)
        if distractor:
            shadow(c, other_x, 107, 10, 2.5)
            box(c, other_x, 107, 14, 12, color=other.rgb)
        bottom = 110.0 if after else shelf_y
        if after:
            shadow(c, x, bottom, r * 1.1, 2.6)
        else:
            c.rect(x - 21, shelf_y, x + 21, shelf_y + 4, WOOD, radius=1)
            for side in (-1, 1):
                c.line(
                    [(x + side * 15, shelf_y + 4), (x + side * 15, shelf_y + 11)], darker(WOOD), 2
                )
        if is_ball:
            ball(c, x, bottom - r, r, held.rgb)
        else:
            box(c, x, bottom, r * 1.8, r * 1.5, color=held.rgb)

    return Scene(
        draw,
        Text("Take the shelf away.", "把架子拿走。"),
        Text(
            f"A {held.en} {thing.en} stands on a wall shelf.",
            f"墙上的架子上放着一个{held.zh}的{thing.zh}。",
        ),
        Text(
            f"The shelf is gone and the {held.en} {thing.en} rests on the floor.",
            f"架子没有了，{held.zh}的{thing.zh}落在地板上。",
        ),
        ("gravity", "support"),
        "hard" if distractor else "medium",
    )


def pillar_removed(rng: Random) -> Scene:
    """A plank loses one of its two supports: it tips, and what lay on it ends at its foot."""
    top, plank, extra = pick_colors(rng, 3)
    side = rng.choice((-1, 1))
    height, r = rng.uniform(26, 36), rng.uniform(7, 10)
    centre, span = rng.uniform(58, 70), rng.uniform(26, 30)
    word = Text("left", "左") if side < 0 else Text("right", "右")
    shows_extra = rng.random() < 0.5

    def draw(c: Canvas, after: bool) -> None:
        room(c, (214, 222, 228), (150, 142, 138), 84)
        floor_y = 104.0
        near, far = centre + side * span, centre - side * span
        if shows_extra:
            box(c, 15 if side > 0 else 106, 101, 10, 10, color=extra.rgb)
        for px in (far,) if after else (near, far):
            shadow(c, px, floor_y, 9, 2)
            c.rect(px - 5, floor_y - height, px + 5, floor_y, STONE, radius=1)
            c.rect(px - 5, floor_y - height, px - 2, floor_y, lighter(STONE, 0.25), radius=1)
        high = floor_y - height - 2
        low = floor_y - 2.5 if after else high
        c.line(
            [(far - side * 9, high - (2.5 if after else 0)), (near + side * 9, low)], plank.rgb, 5
        )
        if after:
            ball_x = near + side * (13 + r)
            shadow(c, ball_x, floor_y, r, 2)
            ball(c, ball_x, floor_y - r, r, top.rgb)
        else:
            ball(c, centre, high - 2.5 - r, r, top.rgb)

    return Scene(
        draw,
        Text(f"Remove the {word.en} pillar.", f"移走{word.zh}边的柱子。"),
        Text(
            f"A {plank.en} plank with a {top.en} ball on it lies on two pillars.",
            f"两根柱子上架着一块{plank.zh}木板，板上有一个{top.zh}的球。",
        ),
        Text(
            f"The plank slopes down to the {word.en} and the {top.en} ball lies on the floor at "
            "its lower end.",
            f"木板向{word.zh}边倾斜，{top.zh}的球滚落到低端的地面上。",
        ),
        ("gravity", "support", "balance"),
        "hard",
    )


def move_closer(rng: Random) -> Scene:
    """A thing that comes nearer grows and moves down the picture."""
    mover, near_color = pick_colors(rng, 2)
    x0 = rng.uniform(52, 76)
    x1 = rng.choice((rng.uniform(28, 40), rng.uniform(88, 100)))
    horizon, r0 = rng.uniform(42, 50), rng.uniform(4, 5.5)
    tree_x = 128 - x1

    def draw(c: Canvas, after: bool) -> None:
        outdoors(c, horizon)
        c.polygon([(x0 - 4, horizon), (x0 + 4, horizon), (112, 128), (16, 128)], (176, 168, 154))
        tree(c, tree_x, horizon + 26, 34)
        y, r = (108.0, r0 * 3.4) if after else (horizon + 10, r0)
        x = x1 if after else x0
        box(c, 64 + (x1 - 64) * 0.35, 84, 11, 11, color=near_color.rgb)
        shadow(c, x + r * 0.2, y, r * 1.05, r * 0.25)
        ball(c, x, y - r, r, mover.rgb)

    side = Text("left", "左") if x1 < 64 else Text("right", "右")
    return Scene(
        draw,
        Text(
            f"Bring the {mover.en} ball to the front on the {side.en}.",
            f"把{mover.zh}的球移到{side.zh}前方。",
        ),
        Text(
            f"A {mover.en} ball lies far away on a path, with a {near_color.en} box halfway.",
            f"远处的路上有一个{mover.zh}的球，半路上有一个{near_color.zh}的盒子。",
        ),
        Text(
            f"The {mover.en} ball is in the foreground on the {side.en} and looks much larger.",
            f"{mover.zh}的球在{side.zh}前方，看起来大得多。",
        ),
        ("depth", "scale", "perspective"),
        "medium",
    )


def move_behind(rng: Random) -> Scene:
    """A thing that moves behind another is hidden in part and a little smaller."""
    mover, cover = pick_colors(rng, 2)
    x, w = rng.uniform(50, 74), rng.uniform(32, 40)
    side = rng.choice((-1, 1))
    r, wall, floor = rng.uniform(12, 15), rng.choice(WALLS), rng.choice(FLOORS)
    behind_x = x + w * (0.72 if side > 0 else -0.52)  # past the box's right face, or its left edge

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, floor, 76)
        if after:
            shadow(c, behind_x, 86, r, 2.5)
            ball(c, behind_x, 86 - r * 0.88, r * 0.88, mover.rgb)
        shadow(c, x + 3, 98, w * 0.62, 3.5)
        box(c, x, 98, w, 28, color=cover.rgb)
        if not after:
            shadow(c, x + side * w * 0.4, 112, r, 2.8)
            ball(c, x + side * w * 0.4, 112 - r, r, mover.rgb)

    return Scene(
        draw,
        Text(
            f"Put the {mover.en} ball behind the {cover.en} box.",
            f"把{mover.zh}的球放到{cover.zh}的盒子后面。",
        ),
        Text(
            f"A {mover.en} ball lies in front of a {cover.en} box.",
            f"{mover.zh}的球在{cover.zh}的盒子前面。",
        ),
        Text(
            f"The {cover.en} box hides a part of the {mover.en} ball, which stands behind it.",
            f"{mover.zh}的球在盒子后面，被{cover.zh}的盒子挡住一部分。",
        ),
        ("occlusion", "depth"),
        "medium",
    )


def into_water(rng: Random) -> Scene:
    """Wood floats with its lower half under water; stone sinks to the bottom; the level rises."""
    sinks = rng.random() < 0.5
    x, level, size = rng.uniform(48, 80), rng.uniform(68, 76), rng.uniform(15, 19)
    wall = rng.choice(WALLS)
    name = Text("stone", "石头") if sinks else Text("wooden block", "木块")

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, (150, 142, 138), 108)
        water = level - 4 if after else level
        c.rect(24, 46, 104, 112, (212, 230, 238), radius=2)
        c.rect(26, water, 102, 110, (92, 162, 208))
        bottom = (109.0 if sinks else water + size * 0.55) if after else 40.0
        if not after:
            c.line([(x, 0), (x, bottom - size * 0.8)], (90, 80, 70), 1.6)
        if sinks:
            c.polygon(
                [
                    (x - size * 0.62, bottom), (x - size * 0.5, bottom - size * 0.6),
                    (x - size * 0.05, bottom - size * 0.85), (x + size * 0.5, bottom - size * 0.6),
                    (x + size * 0.64, bottom),
                ],
                STONE,
            )  # fmt: skip
            c.polygon(
                [
                    (x - size * 0.4, bottom - size * 0.55),
                    (x, bottom - size * 0.8),
                    (x, bottom - size * 0.4),
                ],
                lighter(STONE, 0.3),
            )
        else:
            c.rect(x - size * 0.6, bottom - size * 0.85, x + size * 0.6, bottom, WOOD, radius=1)
            for share in (0.25, 0.55):
                y = bottom - size * share
                c.line([(x - size * 0.5, y), (x + size * 0.5, y)], darker(WOOD, 0.25), 0.8)
        if after:
            c.veil((92, 162, 208), 0.45, lambda m: m.rect(26, water, 102, 110, (255, 255, 255)))
            c.line([(28, water), (100, water)], (206, 234, 246), 1.2)
        c.line([(24, 46), (24, 112), (104, 112), (104, 46)], (140, 160, 172), 2)

    end = (
        Text("The stone lies on the bottom of the tank.", "石头沉在水箱底部。")
        if sinks
        else Text("The wooden block floats half under water.", "木块半浮在水面上。")
    )
    return Scene(
        draw,
        Text(
            f"Cut the rope so that the {name.en} drops into the tank.",
            f"剪断绳子，让{name.zh}落入水箱。",
        ),
        Text(
            f"A {name.en} hangs on a rope above a tank of water.", f"{name.zh}用绳子吊在水箱上方。"
        ),
        Text(f"{end.en} The water has risen a little.", f"{end.zh}水位略有上升。"),
        ("buoyancy", "gravity"),
        "hard",
    )


def bottom_block(rng: Random) -> Scene:
    """A stack comes down by the height of the block that is pulled out."""
    colors = pick_colors(rng, 3)
    x, w, h = rng.uniform(46, 82), rng.uniform(22, 28), rng.uniform(16, 20)
    slot = rng.randrange(2)
    which = (Text("bottom", "最下面"), Text("middle", "中间"))[slot]
    wall, floor = rng.choice(WALLS), rng.choice(FLOORS)

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, floor, 88)
        shadow(c, x + 4, 108, w * 0.75, 3)
        rest = [color for place, color in enumerate(colors) if not (after and place == slot)]
        for place, color in enumerate(rest):
            box(c, x, 108 - place * h, w, h, color=color.rgb)

    gone = colors[slot]
    return Scene(
        draw,
        Text(f"Take the {which.en} block out of the stack.", f"把{which.zh}的积木抽走。"),
        Text(
            f"Three blocks are stacked: {', '.join(color.en for color in colors)} from bottom to "
            "top.",
            f"三块积木叠在一起，从下到上是{'、'.join(color.zh for color in colors)}。",
        ),
        Text(
            f"The {gone.en} block is gone and the two others stand on the floor, one on the other.",
            f"{gone.zh}的积木没有了，另外两块叠放在地板上。",
        ),
        ("gravity", "support", "stack"),
        "medium",
    )


TEMPLATES = (shelf_removed, move_closer, pillar_removed, move_behind, into_water, bottom_block)
