"""Training data: drawn pairs from seeds that no suite can name, each beside a variant of itself."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from pytest_imgedit.core.images import Base64Image
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.scenes.canvas import Canvas
from pytest_imgedit.suites.scenes import TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from pytest_imgedit.scenes.scene import Scene
    from tools.train_embedded.text import Texts

    Template = Callable[[Random], Scene]

EVERY_TEMPLATE: list[tuple[str, Template]] = [
    (category, t) for category, every in TEMPLATES.items() for t in every
]
#: Shares of variants in which all draws are made anew (another scene of the same template), and in
#: which one draw is that changes the instruction (another target, side or colour; of the same
#: source, where the template allows it).
OTHER_SCENE, OTHER_TARGET = 0.15, 0.6
#: Later draws of a scene only place leaves, drops and flakes.
FIRST_DRAWS = 16
LANGUAGES = ("en", "zh")


class Draws(Random):
    """The draws of `Random(seed)` in their order, with some of them replaced by those of another
    stream.
    """

    def __init__(self, seed: str, changed: frozenset[int] = frozenset()) -> None:
        self.made, self.changed = 0, changed
        self.other = Random(f"{seed}:{sorted(changed)}")
        super().__init__(seed)

    def random(self) -> float:
        return float(self._choose(super().random(), self.other.random()))

    def _randbelow(self, n: int) -> int:
        """Draw below `n`: what `choice`, `sample` and `randrange` ask for. A whole number counts as
        one draw.
        """
        draw: Any = Random._randbelow  # type: ignore[attr-defined]
        own, other = (draw(stream, n) for stream in (self, self.other))
        return int(self._choose(own, other))

    def _choose(self, own: Any, replaced: Any) -> Any:
        self.made += 1
        return replaced if self.made - 1 in self.changed else own


def draw(scene: Scene, after: bool) -> NDArray[np.uint8]:
    """Draw one side of a scene: (128, 128, 3)."""
    canvas = Canvas()
    scene.draw(canvas, after)
    return np.asarray(canvas.finish())


def as_pair(scene: Scene, category: str, language: str) -> EditPair:
    """Return the pair that the suite would make of a scene, without its pictures."""
    return EditPair(
        id="scene",
        category=category,
        instruction=getattr(scene.instruction, language),
        source=Base64Image(""),
        description=getattr(scene.description, language),
        reference_text=getattr(scene.result, language),
    )


def make_scenes(seed: int, number: int) -> tuple[str, Scene, Scene]:
    """Make a scene and its variant: the same draws but for one, or for all.

    The seed text starts with `train`, which no seed of the suite `scenes` does.
    """
    chance = Random(f"train:{seed}:{number}")
    category, template = EVERY_TEMPLATE[chance.randrange(len(EVERY_TEMPLATE))]
    text = f"train:{seed}:{number}:scene"
    draws = Draws(text)
    scene = template(draws)
    kind = chance.random()
    if kind < OTHER_SCENE:
        return category, scene, template(Draws(text, frozenset(range(draws.made))))
    variants = [
        template(Draws(text, frozenset({place}))) for place in range(min(draws.made, FIRST_DRAWS))
    ]
    if kind < OTHER_SCENE + OTHER_TARGET:
        other = [variant for variant in variants if variant.instruction != scene.instruction]
        alike = [variant for variant in other if variant.description == scene.description]
        variants = alike or other or variants
    return category, scene, chance.choice(variants)


class Records(IterableDataset[dict[str, torch.Tensor]]):
    """Endless records, a different stream in each loader process.

    A record holds `images` (4, 128, 128, 3) uint8: source and reference of a scene, then of its
    variant; for each of scene and variant, in each language, the token ids of both models (see
    `Texts.encode`); and its `category`.
    """

    def __init__(self, seed: int, texts: Texts) -> None:
        self.seed, self.texts = seed, texts

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        info = get_worker_info()
        number, step = (0, 1) if info is None else (info.id, info.num_workers)
        while True:
            category, *scenes = make_scenes(self.seed, number)
            images = np.stack([draw(scene, after) for scene in scenes for after in (False, True)])
            pairs = [
                as_pair(scene, category, language) for scene in scenes for language in LANGUAGES
            ]
            encoded = [self.texts.encode(pair) for pair in pairs]
            yield {
                "images": torch.from_numpy(images),
                **{name: torch.stack([one[name] for one in encoded]) for name in encoded[0]},
                "category": torch.tensor(list(TEMPLATES).index(category)),
            }
            number += step
