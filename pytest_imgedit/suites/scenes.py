"""The suite `scenes`: how many pairs of each template, and images that are drawn on each read."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import errors, images, pairs
from pytest_imgedit.scenes import causal, environment, physics, referential, social
from pytest_imgedit.scenes.canvas import Canvas
from pytest_imgedit.scenes.scene import Scene

TEMPLATES: dict[str, tuple[Callable[[Random], Scene], ...]] = {
    "physics": physics.TEMPLATES,
    "environment": environment.TEMPLATES,
    "social": social.TEMPLATES,
    "causal": causal.TEMPLATES,
    "referential": referential.TEMPLATES,
}
#: Pairs of each category, if none are asked for.
_DEFAULT_COUNT = 20
FULL = {"physics": 50, "environment": 50, "social": 70, "causal": 50, "referential": 50}


@dataclass(frozen=True, slots=True)
class SceneImage:
    """The source or the reference of a scene, drawn as 128x128 PNG on each `read`."""

    category: str
    index: int
    seed: int
    after: bool

    def read(self) -> bytes:
        canvas = Canvas()
        make_scene(self.category, self.index, self.seed).draw(canvas, self.after)
        return images.encode_png(canvas.finish())


@lru_cache(maxsize=64)
def make_scene(category: str, index: int, seed: int) -> Scene:
    """Return scene number `index` of a category; the same arguments always give the same scene."""
    templates = TEMPLATES[category]
    return templates[index % len(templates)](Random(f"{seed}:{category}-{index:04d}"))


def load(argument: str, settings: SuiteSettings) -> Iterator[pairs.EditPair]:
    """Yield the pairs of `scenes` (20 of each category), `scenes:full` (270), or
    `scenes:n=…,seed=…`.
    """
    counts, seed = _parse(argument)
    for category, count in counts.items():
        for index in range(count):
            scene = make_scene(category, index, seed)
            yield pairs.EditPair(
                id=f"{category}-{index:04d}",
                category=category,
                instruction=getattr(scene.instruction, settings.language),
                source=SceneImage(category, index, seed, after=False),
                description=getattr(scene.description, settings.language),
                reference=SceneImage(category, index, seed, after=True),
                reference_text=getattr(scene.result, settings.language),
                tags=scene.tags,
                difficulty=scene.difficulty,
                seed=seed,
            )


def _parse(argument: str) -> tuple[dict[str, int], int]:
    """Return the number of pairs of each category, and the seed, that an argument asks for; raises
    `UsageError` for another argument.
    """
    if argument == "full":
        return FULL, 0
    values = {"n": _DEFAULT_COUNT, "seed": 0}
    for part in filter(None, argument.split(",")):
        key, _, text = part.partition("=")
        is_number = re.fullmatch(r"[0-9]{1,6}", text) is not None
        if key not in values or not is_number or (key == "n" and int(text) < 1):
            raise errors.SpecError(
                f"suite scenes:{argument}: {part!r}, expected full, or n=NUMBER and seed=NUMBER of "
                "up to six digits"
            )
        values[key] = int(text)
    return dict.fromkeys(TEMPLATES, values["n"]), values["seed"]
