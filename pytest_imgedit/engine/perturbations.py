"""Changes to a question that should not matter to a judge."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_imgedit.core.images import as_jpeg, resampled
from pytest_imgedit.engine.work import Work

Parts = tuple[tuple[str, str], ...]

#: What changes from one repeat to the next, in turn: `batch`, other neighbours in the batch; `order`, the edit is
#: shown before the source, each with the words before it; `jpeg`, both images at quality 90; `resize`, both images
#: at 95% of their size and back.
PERTURBATIONS = ("batch", "order", "jpeg", "resize")
_IMAGE = {"jpeg": as_jpeg, "resize": resampled}


def perturbed(work: Work, parts: Parts, images: Mapping[str, bytes]) -> tuple[Parts, dict[str, bytes]]:
    """Change what the judge is shown as the work's perturbation says."""
    change = _IMAGE.get(work.perturbation)
    if change is not None:
        images = {name: change(data) for name, data in images.items()}
    return swap_images(parts) if work.perturbation == "order" else parts, dict(images)


def swap_images(parts: Parts) -> Parts:
    """Show the first edited image where the first source stands and the other way round, with the words before each."""
    places: dict[str, tuple[int, int]] = {}
    for index, (kind, name) in enumerate(parts):
        if kind == "image" and name in ("source", "edited") and name not in places:
            caption = index - 1 if index and parts[index - 1][0] == "text" else index
            places[name] = (caption, index)
    if len(places) < 2:
        return parts
    first, second = sorted(places.values())
    return (
        *parts[: first[0]],
        *parts[second[0] : second[1] + 1],
        *parts[first[1] + 1 : second[0]],
        *parts[first[0] : first[1] + 1],
        *parts[second[1] + 1 :],
    )
