"""Scenes of light, weather, season and time of day."""

from random import Random

from pytest_imgedit.scenes.canvas import Canvas, Rgb, darker, mix
from pytest_imgedit.scenes.scene import Scene, Text, pick_colors
from pytest_imgedit.scenes.shapes import ball, box, cloud, house, moon, outdoors, sun, tree

NIGHT: Rgb = (22, 28, 58)


def _long_shadow(c: Canvas, x: float, y: float, w: float, *, length: float, side: float) -> None:
    c.veil(
        (24, 30, 30),
        0.42,
        lambda m: m.polygon(
            [
                (x - w / 2, y),
                (x + w / 2, y),
                (x + side * length + w / 3, y + 9),
                (x + side * length - w / 3, y + 9),
            ],
            (255, 255, 255),
        ),
        blur=0.7,
    )


def move_light(rng: Random) -> Scene:
    """The sun changes sides: shading and shadows change sides too."""
    first, second = pick_colors(rng, 2)
    side = rng.choice((-1, 1))
    xs = rng.sample((34, 56, 92), 2)
    r, sun_y = rng.uniform(9, 12), rng.uniform(14, 22)
    to = Text("right", "右") if side < 0 else Text("left", "左")

    def draw(c: Canvas, after: bool) -> None:
        sun_side = -side if after else side
        outdoors(c, 60)
        sun(c, 64 + sun_side * 46, sun_y)
        for x, y, w in ((xs[0], 92, r * 1.6), (xs[1], 104, r * 1.7)):
            _long_shadow(c, x, y - 1, w, length=30, side=-sun_side)
        box(c, xs[0], 92, r * 1.7, r * 1.9, color=first.rgb, light=sun_side)
        ball(c, xs[1], 104 - r, r, second.rgb, light=(sun_side * 0.62, -0.5))

    return Scene(
        draw,
        Text(f"Move the sun to the {to.en} side of the sky.", f"把太阳移到天空的{to.zh}边。"),
        Text(
            f"A {first.en} box and a {second.en} ball stand on grass in low sunlight.",
            f"草地上有一个{first.zh}的盒子和一个{second.zh}的球，阳光斜照。",
        ),
        Text(
            f"The sun is on the {to.en}; the shadows fall to the other side and the lit sides "
            "have changed.",
            f"太阳在{to.zh}边，影子落到另一侧，受光面也换了方向。",
        ),
        ("light", "shadow"),
        "hard",
    )


def day_to_night(rng: Random) -> Scene:
    """Night falls: dark sky, moon and stars, no sun shadows, lit windows."""
    wall, roof = pick_colors(rng, 2)
    x, w = rng.uniform(42, 84), rng.uniform(38, 48)
    tree_x = x + 44 if x < 64 else x - 44
    stars = [(rng.uniform(4, 124), rng.uniform(4, 44)) for _ in range(16)]

    def draw(c: Canvas, after: bool) -> None:
        outdoors(c, 78)
        if after:
            c.gradient(0, 78, (14, 18, 44), (96, 100, 140))
        else:
            sun(c, 108 if x < 64 else 20, 18)
            cloud(c, x, 20, 34)
        tree(c, tree_x, 98, 46)
        if after:
            c.veil(NIGHT, 0.62)
            for sx, sy in stars:
                c.ellipse(sx, sy, 0.7, 0.7, (240, 240, 220))
            moon(c, 106 if x < 64 else 22, 18, 7, (21, 26, 56))
        tint = mix(wall.rgb, (236, 228, 214), 0.6)
        house(
            c,
            x,
            100,
            w,
            (mix(tint, NIGHT, 0.6 if after else 0), mix(roof.rgb, NIGHT, 0.6 if after else 0)),
            lit=after,
        )

    return Scene(
        draw,
        Text("Turn the day into night.", "把白天变成夜晚。"),
        Text(
            f"A house with a {roof.en} roof and a tree on a sunny day.",
            f"晴天里一座{roof.zh}屋顶的房子和一棵树。",
        ),
        Text(
            "The sky is dark with moon and stars, the scene is dim, and the windows are lit.",
            "天空变暗，有月亮和星星，景物昏暗，窗户亮着灯。",
        ),
        ("time", "light"),
        "medium",
    )


def rain(rng: Random) -> Scene:
    """Rain: clouds instead of the sun, streaks, a darker wet ground with puddles."""
    roof, thing = pick_colors(rng, 2)
    x, w = rng.uniform(36, 58), rng.uniform(34, 42)
    slant = rng.uniform(-3, -1)
    drops = [(rng.uniform(0, 132), rng.uniform(26, 122)) for _ in range(70)]
    puddles = [(rng.uniform(16, 112), rng.uniform(117, 123), rng.uniform(7, 13)) for _ in range(3)]

    def draw(c: Canvas, after: bool) -> None:
        outdoors(c, 78)
        if after:
            c.gradient(0, 78, (96, 104, 116), (150, 156, 164))
            for cx in (18, 58, 100):
                cloud(c, cx, 14, 46, (84, 90, 100))
        else:
            sun(c, 108, 17)
            cloud(c, 46, 18, 32)
        c.polygon([(64, 78), (72, 78), (104, 128), (40, 128)], (172, 164, 150))
        house(c, x, 98, w, ((230, 220, 204), roof.rgb))
        tree(c, 108, 100, 44)
        ball(c, 84, 106, 7, thing.rgb)
        if after:
            c.veil((34, 44, 58), 0.3)
            for px, py, pr in puddles:
                c.ellipse(px, py, pr, pr * 0.26, (140, 156, 174))
            for dx, dy in drops:
                c.line([(dx, dy), (dx + slant, dy + 6)], (206, 218, 230), 0.6)

    return Scene(
        draw,
        Text("Make it rain.", "让天下雨。"),
        Text(
            f"A house with a {roof.en} roof, a path and a {thing.en} ball in the sun.",
            f"阳光下有一座{roof.zh}屋顶的房子、一条小路和一个{thing.zh}的球。",
        ),
        Text(
            "Dark clouds hide the sun, rain falls, all is darker, and the wet ground has puddles.",
            "乌云遮住太阳，下着雨，景物变暗，地面湿了，有水洼。",
        ),
        ("weather", "wet"),
        "medium",
    )


def snow(rng: Random) -> Scene:
    """Winter: snow on ground, roof and tree, and a pale sky."""
    roof, wall = pick_colors(rng, 2)
    x, w = rng.uniform(70, 88), rng.uniform(36, 44)
    tree_x, h = rng.uniform(20, 34), rng.uniform(42, 54)
    flakes = [(rng.uniform(0, 128), rng.uniform(0, 120)) for _ in range(36)]

    def draw(c: Canvas, after: bool) -> None:
        if after:
            outdoors(c, 80, sky=(186, 196, 208), ground=(236, 240, 246))
        else:
            outdoors(c, 80)
            sun(c, 18, 16, 7)
        tree(c, tree_x, 102, h, leaves=None if after else (62, 124, 62), snow=after)
        house(c, x, 102, w, (mix(wall.rgb, (236, 228, 214), 0.55), roof.rgb), snow=after)
        for fx, fy in flakes if after else ():
            c.ellipse(fx, fy, 0.9, 0.9, (252, 253, 255))

    return Scene(
        draw,
        Text("Change the season to snowy winter.", "把季节变成下雪的冬天。"),
        Text(
            f"A house with a {roof.en} roof and a green tree in summer.",
            f"夏天里一座{roof.zh}屋顶的房子和一棵绿树。",
        ),
        Text(
            "Snow lies on the ground, the roof and the bare tree; the sky is grey and flakes fall.",
            "地面、屋顶和光秃的树上都是雪，天空灰白，雪花飘落。",
        ),
        ("season", "weather"),
        "medium",
    )


def fog(rng: Random) -> Scene:
    """Fog fades what is far more than what is near."""
    near, middle, far = pick_colors(rng, 3)
    places = rng.sample((26, 64, 100), 3)

    def draw(c: Canvas, after: bool) -> None:
        outdoors(c, 50)
        layers = ((places[0], 60, 16, far), (places[1], 82, 24, middle), (places[2], 112, 34, near))
        haze: Rgb = (224, 228, 230)
        c.polygon([(0, 50), (24, 34), (52, 48), (86, 30), (128, 50)], (112, 132, 124))
        if after:
            c.veil(haze, 0.93)
        for index, (x, y, size, color) in enumerate(layers):
            box(c, x, y, size * 0.8, size, color=color.rgb)
            if after:
                c.veil(haze, (0.72, 0.45, 0.16)[index])

    return Scene(
        draw,
        Text("Let dense fog roll in.", "让浓雾弥漫。"),
        Text(
            f"A {near.en} box near, a {middle.en} box further off, a {far.en} box and hills far "
            "away.",
            f"近处有{near.zh}的盒子，稍远有{middle.zh}的盒子，远处有{far.zh}的盒子和山。",
        ),
        Text(
            f"The hills are gone, the {far.en} box is faint, and the {near.en} box is still clear.",
            f"山看不见了，{far.zh}的盒子很模糊，{near.zh}的盒子仍然清楚。",
        ),
        ("weather", "depth"),
        "hard",
    )


def autumn(rng: Random) -> Scene:
    """Autumn: leaves turn and some lie on the ground under their trees."""
    xs = [rng.uniform(24, 40), rng.uniform(84, 104)]
    thing = pick_colors(rng, 1)[0]
    fallen = [(x + rng.uniform(-18, 18), rng.uniform(103, 116)) for x in xs for _ in range(14)]
    tints: tuple[Rgb, ...] = ((206, 112, 36), (222, 162, 44), (182, 70, 40))
    leaf = rng.choice(tints)

    def draw(c: Canvas, after: bool) -> None:
        outdoors(c, 78, ground=(150, 146, 84) if after else (112, 160, 88))
        for x in xs:
            tree(c, x, 104, 58, leaves=leaf if after else (62, 124, 62))
        for index, (x, y) in enumerate(fallen if after else ()):
            c.ellipse(x, y, 1.6, 1, tints[index % 3])
        box(c, 64, 106, 16, 8, color=darker(thing.rgb, 0.1))

    return Scene(
        draw,
        Text("Change the season to autumn.", "把季节变成秋天。"),
        Text(
            f"Two green trees with a {thing.en} box between them.",
            f"两棵绿树之间有一个{thing.zh}的盒子。",
        ),
        Text(
            "The leaves have turned and some lie on the ground; the grass is paler.",
            "树叶变色，有些落在地上，草变得枯黄。",
        ),
        ("season",),
        "easy",
    )


TEMPLATES = (move_light, day_to_night, rain, snow, fog, autumn)
