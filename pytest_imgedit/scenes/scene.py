"""What a drawn scene is, and the colours and words that scenes share."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from pytest_imgedit.scenes.canvas import Canvas, Rgb


class Text(NamedTuple):
    """One text in English and Chinese."""

    en: str
    zh: str


class Color(NamedTuple):
    """A colour with its names."""

    en: str
    zh: str
    rgb: Rgb


COLORS = (
    Color("red", "红色", (208, 54, 48)),
    Color("blue", "蓝色", (48, 98, 196)),
    Color("green", "绿色", (58, 150, 76)),
    Color("yellow", "黄色", (236, 194, 54)),
    Color("purple", "紫色", (132, 74, 168)),
    Color("orange", "橙色", (232, 130, 44)),
)

ORDINALS = (
    Text("first", "第一个"),
    Text("second", "第二个"),
    Text("third", "第三个"),
    Text("fourth", "第四个"),
)


@dataclass(frozen=True)
class Scene:
    """One pair before and after: `draw(canvas, False)` draws the source, `draw(canvas, True)` the
    reference.

    All choices were made when the scene was made, so both drawings differ only in what the
    instruction asks for and what follows from it.
    """

    draw: Callable[[Canvas, bool], None]
    instruction: Text
    description: Text
    result: Text
    tags: tuple[str, ...]
    difficulty: str


def pick_colors(rng: Random, count: int) -> list[Color]:
    """Choose different colours."""
    return rng.sample(COLORS, count)
