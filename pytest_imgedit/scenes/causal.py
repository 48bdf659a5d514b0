"""Scenes in which one act has consequences that must be drawn too."""

from random import Random

from pytest_imgedit.scenes.canvas import Canvas, Rgb, darker, lighter
from pytest_imgedit.scenes.scene import Scene, Text, pick_colors
from pytest_imgedit.scenes.shapes import FLOORS, WALLS, ball, box, outdoors, room, shadow, table


def cut_balloon(rng: Random) -> Scene:
    """A cut string lets the balloon rise out of the picture and falls down itself."""
    balloon, stone = pick_colors(rng, 2)
    x, y, r = rng.uniform(44, 84), rng.uniform(30, 40), rng.uniform(12, 15)
    other = pick_colors(rng, 1)[0] if rng.random() < 0.4 else None
    other_x = x + 36 if x < 64 else x - 36

    def tied(c: Canvas, at: float, color: Rgb, cut: bool) -> None:
        shadow(c, at, 110, 8, 2)
        box(c, at, 110, 12, 9, color=stone.rgb)
        if cut:
            c.line([(at, 101), (at + 5, 97), (at + 10, 103), (at + 12, 110)], (70, 70, 76), 1)
            return
        c.line([(at, 101), (at + 1.5, 80), (at, y + r)], (70, 70, 76), 1)
        c.polygon(
            [(at - 2.5, y + r * 1.2 + 2), (at + 2.5, y + r * 1.2 + 2), (at, y + r)], darker(color)
        )
        c.ellipse(at, y, r, r * 1.15, color)
        c.ellipse(at - r * 0.35, y - r * 0.4, r * 0.25, r * 0.35, lighter(color, 0.6))

    def draw(c: Canvas, after: bool) -> None:
        outdoors(c, 88)
        if other is not None:
            tied(c, other_x, other.rgb, cut=False)
        tied(c, x, balloon.rgb, cut=after)

    same = other is not None and other.en == balloon.en
    which = Text("left" if x < other_x else "right", "左边" if x < other_x else "右边")
    name = (
        Text(f"{which.en} balloon", f"{which.zh}气球")
        if same
        else Text(f"{balloon.en} balloon", f"{balloon.zh}气球")
    )
    return Scene(
        draw,
        Text(f"Cut the string of the {name.en}.", f"剪断{name.zh}的绳子。"),
        Text(f"The {name.en} is tied to a weight on the ground.", f"{name.zh}系在地上的重物上。"),
        Text(
            f"The {name.en} has risen out of the picture; its string lies by the weight.",
            f"{name.zh}飞出了画面，绳子落在重物旁边。",
        ),
        ("buoyancy", "release"),
        "medium" if other is None else "hard",
    )


def cut_weight(rng: Random) -> Scene:
    """A hanging weight drops when its rope is cut, and flattens what stood below."""
    weight, below = pick_colors(rng, 2)
    x, length, r = rng.uniform(40, 88), rng.uniform(30, 42), rng.uniform(10, 13)
    crushed = rng.random() < 0.5
    wall, floor = rng.choice(WALLS), rng.choice(FLOORS)

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, floor, 88)
        c.line([(x, 0), (x, 12 if after else length)], (96, 84, 70), 1.8)
        shadow(c, x, 112, r * 1.5, 3)
        top = 112.0
        if crushed and after:
            c.ellipse(x, 111, 17, 2.6, darker(below.rgb, 0.1))
            top = 109.5
        elif crushed:
            box(c, x, 112, 16, 18, color=below.rgb)
        ball(c, x, (top - r) if after else length + r, r, weight.rgb)

    under = (
        Text(f" above a {below.en} paper box", f"，下面有一个{below.zh}的纸盒")
        if crushed
        else Text("", "")
    )
    end = (
        Text(f" on the flattened {below.en} box", f"，{below.zh}的纸盒被压扁")
        if crushed
        else Text(" on the floor", "，落在地上")
    )
    return Scene(
        draw,
        Text("Cut the rope.", "剪断绳子。"),
        Text(
            f"A heavy {weight.en} ball hangs on a rope{under.en}.",
            f"一个沉重的{weight.zh}的球吊在绳子上{under.zh}。",
        ),
        Text(
            f"The {weight.en} ball has dropped and lies{end.en}.",
            f"{weight.zh}的球掉了下来{end.zh}。",
        ),
        ("gravity", "release"),
        "hard" if crushed else "medium",
    )


def tip_glass(rng: Random) -> Scene:
    """A tipped glass lies on its side and its drink spreads over the table."""
    drink, other = pick_colors(rng, 2)
    side = rng.choice((-1, 1))
    x, h = 64 - side * rng.uniform(8, 16), rng.uniform(24, 30)
    wall, floor = rng.choice(WALLS), rng.choice(FLOORS)
    glass: Rgb = (214, 232, 240)
    to = Text("right", "右") if side > 0 else Text("left", "左")

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, floor, 96)
        table(c, 64, 84, 108, 118)
        box(c, 64 - side * 42, 84, 12, 12, color=other.rgb)
        if after:
            c.ellipse(x + side * 28, 86.2, 24, 2.9, drink.rgb)
            c.ellipse(x + side * 24, 85.6, 14, 1.2, lighter(drink.rgb, 0.4))
            c.rect(x + side * 48 - 2, 86, x + side * 48 + 2, 102, drink.rgb, radius=2)
            left, right = sorted((x, x + side * h))
            c.rect(left, 69, right, 84, glass, radius=1)
            c.veil(drink.rgb, 0.5, lambda m: m.rect(left, 81, right, 84, (255, 255, 255)))
            c.line([(x, 69), (x, 84)], (160, 182, 194), 1.6)
        else:
            c.rect(x - 8, 84 - h, x + 8, 84, glass, radius=1)
            c.rect(x - 7, 84 - h * 0.68, x + 7, 83, drink.rgb)
            c.line(
                [(x - 8, 84 - h), (x - 8, 84), (x + 8, 84), (x + 8, 84 - h)], (160, 182, 194), 1.2
            )

    return Scene(
        draw,
        Text(f"Tip the glass over to the {to.en}.", f"把杯子向{to.zh}推倒。"),
        Text(
            f"A glass with a {drink.en} drink stands on a table.", f"桌上有一杯{drink.zh}的饮料。"
        ),
        Text(
            f"The glass lies on its side and the {drink.en} drink has spilled over the table to "
            f"the {to.en}.",
            f"杯子倒了，{drink.zh}的饮料向{to.zh}洒在桌上。",
        ),
        ("spill", "liquid"),
        "hard",
    )


def switch_lamp(rng: Random) -> Scene:
    """A lamp that is switched changes the light of the whole room."""
    shade, thing = pick_colors(rng, 2)
    starts_on = rng.random() < 0.5
    x = rng.uniform(36, 92)
    thing_x = x + 34 if x < 64 else x - 34
    wall, floor = rng.choice(WALLS), rng.choice(FLOORS)

    def draw(c: Canvas, after: bool) -> None:
        lit = starts_on != after
        room(c, wall, floor, 92)
        table(c, x, 84, 40, 114)
        box(c, thing_x, 110, 18, 18, color=thing.rgb, light=-1 if x < thing_x else 1)
        c.rect(x - 6, 81, x + 6, 84, (70, 66, 64), radius=1)
        c.rect(x - 1.2, 62, x + 1.2, 82, (70, 66, 64))
        if not lit:
            c.dim(0.36, 0.75)
        trapezoid = [(x - 13, 64), (x - 8, 48), (x + 8, 48), (x + 13, 64)]
        if lit:
            c.glow(x, 60, 54, (255, 214, 130), 0.5)
            c.polygon(trapezoid, lighter(shade.rgb, 0.55))
            c.glow(x, 62, 16, (255, 236, 180), 0.7)
        else:
            c.polygon(trapezoid, darker(shade.rgb, 0.6))

    on, off = Text("on", "打开"), Text("off", "关掉")
    to = off if starts_on else on
    return Scene(
        draw,
        Text(f"Switch the lamp {to.en}.", f"把台灯{to.zh}。"),
        Text(
            f"A table lamp that is {'on' if starts_on else 'off'}, and a {thing.en} box.",
            f"一盏{'亮着' if starts_on else '没亮'}的台灯和一个{thing.zh}的盒子。",
        ),
        Text("The lamp is dark and so is the room.", "灯灭了，房间变暗。")
        if starts_on
        else Text("The lamp glows and the whole room is bright.", "灯亮了，整个房间明亮起来。"),
        ("light", "switch"),
        "medium",
    )


def dominoes(rng: Random) -> Scene:
    """One pushed domino makes the whole row fall the same way."""
    color, other = pick_colors(rng, 2)
    side = rng.choice((-1, 1))
    count, h = rng.choice((4, 5)), rng.uniform(22, 27)
    gap = 14.5
    wall, floor = rng.choice(WALLS), rng.choice(FLOORS)
    start = Text("leftmost", "最左边") if side > 0 else Text("rightmost", "最右边")
    to = Text("right", "右") if side > 0 else Text("left", "左")

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, floor, 78)
        ball(c, 64 - side * 50, 92, 5, other.rgb)
        first = 64 - side * gap * (count - 1) / 2 - side * 4
        for place in range(count):
            x = first + side * place * gap
            shadow(c, x + (side * 9 if after else 0), 110, 10 if after else 5, 1.8)
            if after:
                tip_y = 105.5 if place == count - 1 else 98.0
                c.line([(x, 108), (x + side * h * 0.92, tip_y)], darker(color.rgb, 0.08 * place), 5)
            else:
                c.rect(x - 2.5, 110 - h, x + 2.5, 110, color.rgb, radius=0.8)
                c.rect(x - 2.5, 110 - h, x - 1, 110, lighter(color.rgb), radius=0.8)

    return Scene(
        draw,
        Text(f"Push the {start.en} domino to the {to.en}.", f"把{start.zh}的骨牌向{to.zh}推倒。"),
        Text(
            f"{count} {color.en} dominoes stand in a row.", f"{count}块{color.zh}的骨牌立成一排。"
        ),
        Text(
            f"All {count} dominoes have fallen to the {to.en}.", f"{count}块骨牌都向{to.zh}倒下了。"
        ),
        ("chain", "gravity"),
        "hard",
    )


def blow_candle(rng: Random) -> Scene:
    """A candle that is lit or blown out: flame or smoke, bright or dark."""
    wax, thing = pick_colors(rng, 2)
    burning = rng.random() < 0.5
    x, h = rng.uniform(46, 82), rng.uniform(24, 32)
    side = rng.choice((-1, 1))

    def draw(c: Canvas, after: bool) -> None:
        lit = burning != after
        room(c, (150, 140, 136), (110, 92, 78), 92)
        table(c, 64, 92, 100, 122)
        box(c, x + side * 28, 92, 14, 13, color=thing.rgb, light=side)
        c.rect(x - 5, 92 - h, x + 5, 92, wax.rgb, radius=1)
        c.line([(x, 92 - h), (x, 88 - h)], (40, 36, 34), 1)
        if not lit:
            c.dim(0.45, 0.8)
        if lit:
            c.glow(x, 84 - h, 44, (255, 190, 96), 0.55)
            c.ellipse(x, 83 - h, 2.6, 5, (255, 176, 52))
            c.ellipse(x, 84.5 - h, 1.4, 3, (255, 244, 190))
        elif burning:
            c.line(
                [(x, 86 - h), (x + 3, 78 - h), (x - 2, 70 - h), (x + 2, 62 - h)],
                (150, 150, 152),
                1.4,
            )

    return Scene(
        draw,
        Text("Blow out the candle.", "吹灭蜡烛。")
        if burning
        else Text("Light the candle.", "点燃蜡烛。"),
        Text(
            f"A {wax.en} candle that {'burns' if burning else 'does not burn'} and a {thing.en} "
            "box on a table.",
            f"桌上有一支{'点着' if burning else '没点'}的{wax.zh}蜡烛和一个{thing.zh}的盒子。",
        ),
        Text(
            "The flame is gone, smoke rises, and the room is dark.", "火焰熄灭，冒着烟，房间变暗。"
        )
        if burning
        else Text("The candle burns and lights up the room.", "蜡烛燃烧，照亮房间。"),
        ("fire", "light"),
        "medium",
    )


def melt(rng: Random) -> Scene:
    """Ice that stays in the sun becomes a puddle."""
    frozen, plate = pick_colors(rng, 2)
    x, size = rng.uniform(44, 84), rng.uniform(20, 26)
    cubes = rng.choice((1, 2))
    ice: Rgb = (186, 222, 242)

    def draw(c: Canvas, after: bool) -> None:
        outdoors(c, 70)
        c.ellipse(x, 100, 36, 9, darker(plate.rgb, 0.2))
        c.ellipse(x, 98.5, 36, 9, plate.rgb)
        if after:
            c.ellipse(x, 98.5, 28, 6, (150, 202, 232))
            c.ellipse(x - 6, 97, 12, 2, (214, 238, 250))
            ball(c, x + 4, 95, 5, frozen.rgb)
            return
        for place in range(cubes):
            px = x + (place - (cubes - 1) / 2) * size
            box(c, px, 99, size * 0.9, size * 0.9, color=ice)
        px = x + (cubes - 1) / 2 * size
        c.veil(frozen.rgb, 0.75, lambda m: m.ellipse(px, 99 - size * 0.45, 5, 5, (255, 255, 255)))

    return Scene(
        draw,
        Text("Show the plate after an hour in the hot sun.", "画出盘子在烈日下放一小时后的样子。"),
        Text(
            f"A {plate.en} plate with ice; a {frozen.en} bead is frozen inside.",
            f"{plate.zh}的盘子里有冰块，里面冻着一颗{frozen.zh}的珠子。",
        ),
        Text(
            f"The ice has melted to a puddle and the {frozen.en} bead lies in it.",
            f"冰化成了水，{frozen.zh}的珠子躺在水里。",
        ),
        ("melting", "time"),
        "hard",
    )


TEMPLATES = (cut_balloon, tip_glass, switch_lamp, cut_weight, dominoes, blow_candle, melt)
