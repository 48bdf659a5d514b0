"""Scenes of people and what they do together."""

from random import Random

from pytest_imgedit.scenes.canvas import Canvas, darker
from pytest_imgedit.scenes.scene import ORDINALS, Scene, Text, pick_colors
from pytest_imgedit.scenes.shapes import (
    FLOORS,
    GREY_HAIR,
    WALLS,
    WOOD,
    Facing,
    Look,
    Pose,
    figure,
    outdoors,
    person_look,
    room,
    shadow,
    table,
)


def queue_faces_counter(rng: Random) -> Scene:
    """Everyone in a queue faces the counter."""
    side = rng.choice((-1, 1))
    count = rng.choice((3, 4))
    shirts, looks = pick_colors(rng, count), [person_look(rng) for _ in range(count)]
    away = set(rng.sample(range(count), rng.choice((1, 2))))
    wall, floor = rng.choice(WALLS), rng.choice(FLOORS)
    toward: Facing = "left" if side < 0 else "right"
    backward: Facing = "right" if side < 0 else "left"

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, floor, 86)
        counter = 64 + side * 50
        c.rect(counter - 14, 66, counter + 14, 106, WOOD, radius=1)
        c.rect(counter - 16, 63, counter + 16, 68, darker(WOOD, 0.3), radius=1)
        for place in range(count):
            x = 64 + side * (22 - place * 25)
            turned = place in away and not after
            shadow(c, x, 108, 9, 2)
            figure(
                c,
                x,
                108,
                58,
                shirts[place].rgb,
                look=looks[place],
                pose=Pose(backward if turned else toward),
            )

    return Scene(
        draw,
        Text("Make everyone in the queue face the counter.", "让队伍里的每个人都面向柜台。"),
        Text(
            f"{count} people queue at a counter; not all look at it.",
            f"{count}个人在柜台前排队，有人没有面向柜台。",
        ),
        Text("All people in the queue face the counter.", "队伍里的人都面向柜台。"),
        ("gaze", "queue"),
        "medium" if len(away) == 1 else "hard",
    )


def give_seat(rng: Random) -> Scene:
    """The young person stands up and the elder sits down."""
    young, elder = pick_colors(rng, 2)
    looks = [person_look(rng), person_look(rng)]
    side = rng.choice((-1, 1))
    seat_x = 64 + side * rng.uniform(12, 18)
    stand_x = seat_x - side * rng.uniform(36, 42)

    def draw(c: Canvas, after: bool) -> None:
        room(c, (206, 214, 222), (126, 128, 136), 92)
        for wx in (20, 64, 108):
            c.rect(wx - 16, 14, wx + 16, 44, (170, 206, 230), radius=3)
        c.rect(seat_x - 15, 66, seat_x + 15, 90, (66, 92, 148), radius=3)
        c.rect(seat_x - 17, 86, seat_x + 17, 94, (52, 76, 128), radius=2)
        c.line([(stand_x + side * 14, 8), (stand_x + side * 14, 112)], (196, 178, 92), 2)
        old = Look(looks[1].skin, GREY_HAIR)
        seated, standing = (old, looks[0]) if after else (looks[0], old)
        shirts = (elder.rgb, young.rgb) if after else (young.rgb, elder.rgb)
        figure(c, seat_x, 112, 60, shirts[0], look=seated, pose=Pose(sitting=True, cane=after))
        shadow(c, stand_x, 112, 9, 2)
        figure(c, stand_x, 112, 62, shirts[1], look=standing, pose=Pose(cane=not after))

    return Scene(
        draw,
        Text("The young person gives the seat to the elder.", "年轻人给老人让座。"),
        Text(
            f"A young person in {young.en} sits; an elder in {elder.en} with a cane stands.",
            f"穿{young.zh}衣服的年轻人坐着，穿{elder.zh}衣服、拄拐杖的老人站着。",
        ),
        Text(
            f"The elder in {elder.en} sits with the cane and the young person in {young.en} "
            "stands.",
            f"穿{elder.zh}衣服的老人坐着，穿{young.zh}衣服的年轻人站着。",
        ),
        ("courtesy", "swap"),
        "hard",
    )


def match_dress(rng: Random) -> Scene:
    """The odd one dresses as the group does."""
    team, odd = pick_colors(rng, 2)
    count = 4
    looks = [person_look(rng) for _ in range(count)]
    who = rng.randrange(count)
    hats = rng.random() < 0.5
    what = Text("hat", "帽子") if hats else Text("shirt", "衣服")

    def draw(c: Canvas, after: bool) -> None:
        outdoors(c, 74)
        for place in range(count):
            x = 20 + place * 29
            own = odd if place == who and not after else team
            shirt = (110, 114, 122) if hats else own.rgb
            shadow(c, x, 110, 10, 2)
            figure(
                c, x, 110, 62, shirt, look=looks[place], pose=Pose(hat=own.rgb if hats else None)
            )

    return Scene(
        draw,
        Text(
            f"One person's {what.en} does not fit the group: match it to the others.",
            f"有一个人的{what.zh}和大家不一样：让它和其他人一致。",
        ),
        Text(
            f"Four people; three wear a {team.en} {what.en}, one wears a {odd.en} one.",
            f"四个人，三个人的{what.zh}是{team.zh}，一个人的是{odd.zh}。",
        ),
        Text(f"All four wear a {team.en} {what.en}.", f"四个人的{what.zh}都是{team.zh}。"),
        ("dress", "group"),
        "easy",
    )


def share_umbrella(rng: Random) -> Scene:
    """Two people stand together under one umbrella in the rain."""
    umbrella, first, second = pick_colors(rng, 3)
    looks = [person_look(rng), person_look(rng)]
    side = rng.choice((-1, 1))
    x = 64 - side * rng.uniform(12, 18)
    drops = [(rng.uniform(0, 130), rng.uniform(0, 120)) for _ in range(60)]

    def draw(c: Canvas, after: bool) -> None:
        outdoors(c, 80, sky=(150, 158, 168), ground=(112, 122, 116))
        for dx, dy in drops:
            c.line([(dx, dy), (dx - 2, dy + 6)], (204, 214, 224), 0.6)
        other = x + side * (20 if after else 48)
        centre = x + side * 10
        for px, shirt, look in ((x, first, looks[0]), (other, second, looks[1])):
            shadow(c, px, 114, 9, 2)
            figure(c, px, 114, 60, shirt.rgb, look=look)
        c.line([(centre, 38), (centre, 86)], (70, 62, 58), 1.6)
        c.polygon(
            [
                (centre - 27, 52),
                (centre - 17, 40),
                (centre, 34),
                (centre + 17, 40),
                (centre + 27, 52),
            ],
            umbrella.rgb,
        )
        for dx in (-18, 0, 18):
            c.ellipse(centre + dx, 52.5, 9, 3, darker(umbrella.rgb, 0.25))

    return Scene(
        draw,
        Text("Let the two people share the umbrella.", "让两个人一起打伞。"),
        Text(
            f"In the rain one person holds a {umbrella.en} umbrella and one in {second.en} gets "
            "wet.",
            f"雨中一个人打着{umbrella.zh}的伞，另一个穿{second.zh}衣服的人淋着雨。",
        ),
        Text(
            f"Both stand close together under the {umbrella.en} umbrella.",
            f"两个人靠近站在{umbrella.zh}的伞下。",
        ),
        ("courtesy", "distance"),
        "hard",
    )


def raise_hands(rng: Random) -> Scene:
    """One person, or all, raise a hand."""
    count = 4
    shirts, looks = pick_colors(rng, count), [person_look(rng) for _ in range(count)]
    who = rng.choice((None, 0, 1, 2, 3))
    wall, floor = rng.choice(WALLS), rng.choice(FLOORS)

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, floor, 88)
        c.rect(34, 8, 94, 36, (62, 92, 78), radius=2)
        for place in range(count):
            x = 20 + place * 29
            shadow(c, x, 112, 10, 2)
            up = after and who in (None, place)
            figure(c, x, 112, 60, shirts[place].rgb, look=looks[place], pose=Pose(hand_up=up))

    if who is None:
        asked = Text("Everyone raises a hand.", "让每个人都举起手。")
        result = Text("All four people have one hand up.", "四个人都举着一只手。")
    else:
        asked = Text(
            f"Let the {ORDINALS[who].en} person from the left raise a hand.",
            f"让左起{ORDINALS[who].zh}人举手。",
        )
        result = Text(
            f"Only the {ORDINALS[who].en} person from the left, in {shirts[who].en}, has a hand "
            "up.",
            f"只有左起{ORDINALS[who].zh}、穿{shirts[who].zh}衣服的人举着手。",
        )
    return Scene(
        draw,
        asked,
        Text("Four people stand side by side with their hands down.", "四个人并排站着，手都放下。"),
        result,
        ("gesture", "group"),
        "easy" if who is None else "medium",
    )


def serve_guest(rng: Random) -> Scene:
    """The guest without a cup gets one like the others have."""
    count = 3
    cup, *shirts = pick_colors(rng, count + 1)
    looks = [person_look(rng) for _ in range(count)]
    who = rng.randrange(count)
    wall, floor = rng.choice(WALLS), rng.choice(FLOORS)

    def draw(c: Canvas, after: bool) -> None:
        room(c, wall, floor, 84)
        for place in range(count):
            figure(c, 26 + place * 38, 108, 66, shirts[place].rgb, look=looks[place])
        table(c, 64, 84, 120, 116)
        for place in range(count):
            if after or place != who:
                x = 34 + place * 38
                c.rect(x - 4, 74, x + 4, 84, cup.rgb, radius=1)
                c.arc(x + 4, 79, 3, -90, 90, fill=darker(cup.rgb), width=1.2)

    return Scene(
        draw,
        Text(
            "One guest has no cup: give that guest the same as the others have.",
            "有一位客人没有杯子：给他一个和别人一样的。",
        ),
        Text(
            f"Three guests at a table; two of them have a {cup.en} cup.",
            f"桌边有三位客人，其中两位有{cup.zh}的杯子。",
        ),
        Text(f"Each of the three guests has a {cup.en} cup.", f"三位客人面前都有{cup.zh}的杯子。"),
        ("fairness", "group"),
        "medium",
    )


TEMPLATES = (queue_faces_counter, give_seat, match_dress, share_umbrella, raise_hands, serve_guest)
