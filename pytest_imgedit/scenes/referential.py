"""Scenes in which the instruction must be resolved to the one thing that it means."""

from collections.abc import Callable
from random import Random

from pytest_imgedit.scenes.canvas import Canvas, Rgb, darker, mix
from pytest_imgedit.scenes.scene import ORDINALS, Color, Scene, Text, pick_colors
from pytest_imgedit.scenes.shapes import FLOORS, WALLS, ball, box, room, shadow, table


def _act(rng: Random, color: Color) -> tuple[str, Text, Text]:
    """Choose what happens to the thing meant: repainted or removed; instruction frames hold
    `{}`.
    """
    if rng.random() < 0.6:
        return (
            "paint",
            Text(f"Paint {{}} {color.en}.", f"把{{}}涂成{color.zh}。"),
            Text(f"Only {{}} is {color.en} now.", f"只有{{}}变成了{color.zh}。"),
        )
    return "remove", Text("Remove {}.", "移走{}。"), Text("Only {} is gone.", "只有{}没有了。")


def _scene(
    draw: Callable[[Canvas, bool], None],
    act: tuple[str, Text, Text],
    name: Text,
    description: Text,
    *,
    tags: tuple[str, ...],
    difficulty: str,
) -> Scene:
    _, asked, result = act
    return Scene(
        draw,
        Text(asked.en.format(name.en), asked.zh.format(name.zh)),
        description,
        Text(result.en.format(name.en), result.zh.format(name.zh)),
        tags,
        difficulty,
    )


def nth_ball(rng: Random) -> Scene:
    """The n-th ball of a row, counted from one side."""
    color, new = pick_colors(rng, 2)
    count = rng.choice((4, 5))
    place, from_left = rng.randrange(4), rng.random() < 0.5
    which = place if from_left else count - 1 - place
    wall, floor, r = rng.choice(WALLS), rng.choice(FLOORS), rng.uniform(8.5, 10.5)
    lifts = [rng.uniform(-3, 3) for _ in range(count)]
    act = _act(rng, new)

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, floor, 72)
        for index in range(count):
            x, y = 64 + (index - (count - 1) / 2) * 24, 98 + lifts[index]
            if after and index == which and act[0] == "remove":
                continue
            shadow(c, x, y + r, r, 2.2)
            ball(c, x, y, r, new.rgb if after and index == which else color.rgb)

    side = Text("left", "左") if from_left else Text("right", "右")
    name = Text(
        f"the {ORDINALS[place].en} ball from the {side.en}", f"从{side.zh}数{ORDINALS[place].zh}球"
    )
    description = Text(
        f"{count} {color.en} balls lie in a row.", f"{count}个{color.zh}的球排成一排。"
    )
    return _scene(
        draw,
        act,
        name,
        description,
        tags=("ordinal",),
        difficulty="medium" if place in (0, 3) else "hard",
    )


def by_size(rng: Random) -> Scene:
    """The smaller or larger of two alike, beside other things."""
    color, other, new = pick_colors(rng, 3)
    smaller, boxes = rng.random() < 0.5, rng.random() < 0.5
    sizes = (rng.uniform(7, 9), rng.uniform(13, 16))
    swap = rng.random() < 0.5
    wall, floor = rng.choice(WALLS), rng.choice(FLOORS)
    act = _act(rng, new)

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, floor, 76)
        shadow(c, 64, 96, 9, 2)
        (ball if boxes else _cube)(c, 64, 88, 8, other.rgb)
        for index, size in enumerate(sizes):
            meant = (index == 0) == smaller
            if after and meant and act[0] == "remove":
                continue
            x = (32, 96)[index if not swap else 1 - index]
            shadow(c, x, 110, size * 1.1, 2.6)
            (_cube if boxes else ball)(
                c, x, 110 - size, size, new.rgb if after and meant else color.rgb
            )

    kind = Text("box", "盒子") if boxes else Text("ball", "球")
    rank = Text("smaller", "较小") if smaller else Text("larger", "较大")
    name = Text(
        f"the {rank.en} of the two {color.en} {_plural(kind.en)}",
        f"两个{color.zh}{kind.zh}中{rank.zh}的那个",
    )
    description = Text(
        f"Two {color.en} {_plural(kind.en)} of different sizes with another thing between them.",
        f"两个大小不同的{color.zh}{kind.zh}，中间有另一件东西。",
    )
    return _scene(draw, act, name, description, tags=("size", "comparison"), difficulty="medium")


def _plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith("x") else f"{noun}s"


def _cube(c: Canvas, x: float, y: float, r: float, color: Rgb) -> None:
    box(c, x, y + r, r * 1.7, r * 1.7, color=color)


def behind_box(rng: Random) -> Scene:
    """The ball behind or before a box, of two of one colour."""
    color, cover, new = pick_colors(rng, 3)
    x, w = rng.uniform(52, 76), rng.uniform(30, 38)
    back, side = rng.random() < 0.6, rng.choice((-1, 1))
    wall, floor, r = rng.choice(WALLS), rng.choice(FLOORS), rng.uniform(10, 12)
    back_x = x + w * (0.78 if side > 0 else -0.55)
    act = _act(rng, new)

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, floor, 74)
        if not (after and back and act[0] == "remove"):
            shadow(c, back_x, 86, r, 2.2)
            ball(c, back_x, 86 - r, r, new.rgb if after and back else color.rgb)
        shadow(c, x, 98, w * 0.6, 3)
        box(c, x, 98, w, 26, color=cover.rgb)
        if not (after and not back and act[0] == "remove"):
            shadow(c, x - side * w * 0.5, 114, r, 2.4)
            ball(c, x - side * w * 0.5, 114 - r, r, new.rgb if after and not back else color.rgb)

    where = Text("behind", "后面") if back else Text("in front of", "前面")
    name = Text(f"the ball {where.en} the box", f"盒子{where.zh}的球")
    description = Text(
        f"Two {color.en} balls, one behind and one in front of a {cover.en} box.",
        f"两个{color.zh}的球，一个在{cover.zh}的盒子后面，一个在前面。",
    )
    return _scene(draw, act, name, description, tags=("relation", "depth"), difficulty="medium")


def between(rng: Random) -> Scene:
    """The box between two marked others, in a row of boxes."""
    plain, left_mark, right_mark, new = pick_colors(rng, 4)
    spot = rng.randrange(3)
    act = _act(rng, new)
    wall, floor = rng.choice(WALLS), rng.choice(FLOORS)

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, floor, 78)
        for index in range(5):
            x = 16 + index * 23
            meant = index == spot + 1
            if after and meant and act[0] == "remove":
                continue
            color = {spot: left_mark, spot + 2: right_mark}.get(index, plain)
            shadow(c, x + 2, 106, 10, 2.2)
            box(c, x, 106, 14, 20, color=new.rgb if after and meant else color.rgb)

    name = Text(
        f"the box between the {left_mark.en} one and the {right_mark.en} one",
        f"{left_mark.zh}盒子和{right_mark.zh}盒子之间的盒子",
    )
    description = Text(
        f"Five boxes in a row: a {left_mark.en} one, a {right_mark.en} one and three {plain.en} "
        "ones.",
        f"一排五个盒子：一个{left_mark.zh}、一个{right_mark.zh}、三个{plain.zh}。",
    )
    return _scene(draw, act, name, description, tags=("relation", "between"), difficulty="hard")


def on_or_under(rng: Random) -> Scene:
    """The ball on or under a table, of two of one colour."""
    color, new = pick_colors(rng, 2)
    under = rng.random() < 0.5
    xs = rng.uniform(44, 58), rng.uniform(66, 84)
    r, wall, floor = rng.uniform(8.5, 10.5), rng.choice(WALLS), rng.choice(FLOORS)
    act = _act(rng, new)

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, floor, 92)
        table(c, 64, 66, 88, 112)
        for index, bottom in enumerate((66.0, 112.0)):
            meant = (index == 1) == under
            if after and meant and act[0] == "remove":
                continue
            if index == 1:
                shadow(c, xs[index], bottom, r, 2.2)
            ball(c, xs[index], bottom - r, r, new.rgb if after and meant else color.rgb)

    where = Text("under", "下面") if under else Text("on", "上面")
    name = Text(f"the ball {where.en} the table", f"桌子{where.zh}的球")
    description = Text(
        f"One {color.en} ball lies on a table and one under it.",
        f"一个{color.zh}的球在桌上，一个在桌下。",
    )
    return _scene(draw, act, name, description, tags=("relation",), difficulty="easy")


def tile(rng: Random) -> Scene:
    """One tile of a grid, named by row and column."""
    base, new = pick_colors(rng, 2)
    row, column = rng.randrange(3), rng.randrange(3)
    shades = [rng.uniform(0, 0.22) for _ in range(9)]
    act = (
        "paint",
        Text(f"Paint {{}} {new.en}.", f"把{{}}涂成{new.zh}。"),
        Text(f"Only {{}} is {new.en} now.", f"只有{{}}变成了{new.zh}。"),
    )

    def draw(c: Canvas, after: bool) -> None:
        c.rect(0, 0, 128, 128, (228, 224, 216))
        for index in range(9):
            y, x = 22 + (index // 3) * 30, 22 + (index % 3) * 30
            color = mix(base.rgb, (255, 255, 255), 0.25 + shades[index])
            if after and index == row * 3 + column:
                color = new.rgb
            c.rect(x, y, x + 26, y + 26, color, radius=2)
            c.line([(x + 2, y + 26), (x + 24, y + 26)], darker(color, 0.25), 1)

    rows, columns = (
        (("top", "上"), ("middle", "中"), ("bottom", "下")),
        (("left", "左"), ("middle", "中"), ("right", "右")),
    )
    name = Text(
        f"the tile in the {rows[row][0]} row and the {columns[column][0]} column",
        f"{rows[row][1]}排{columns[column][1]}列的方格",
    )
    description = Text(f"A grid of three by three {base.en} tiles.", f"三行三列的{base.zh}方格。")
    return _scene(draw, act, name, description, tags=("grid",), difficulty="medium")


TEMPLATES = (nth_ball, by_size, behind_box, between, on_or_under, tile)
