"""Expected grades: the mean over the probabilities of the numbers that a judge could have answered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_imgedit.errors import SetupError
from pytest_imgedit.rubrics.reply import number_places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

GRADES = range(11)
#: Below this probability of a first digit 1 it is not asked what would follow it.
NEGLIGIBLE = 1e-3


@dataclass(frozen=True)
class Place:
    """Where an aspect's number stands in a reply: the step that chose its first token, and the words before it."""

    aspect: str
    step: int
    before: str
    lead: str


def find_places(tokenizer: Any, tokens: Sequence[int], aspects: Sequence[str]) -> list[Place]:
    """Find the numbers of a reply among its tokens; empty if the reply does not hold every aspect's number."""
    texts = [tokenizer.decode(tokens[: end + 1], skip_special_tokens=True) for end in range(len(tokens))]
    reply = texts[-1] if texts else ""
    starts = number_places(reply, aspects)
    if set(starts) != set(aspects):
        return []
    places = []
    for aspect in aspects:
        start = starts[aspect]
        step = next(index for index, text in enumerate(texts) if len(text) > start)
        before = texts[step - 1] if step else ""
        places.append(Place(aspect, step, reply[: len(before)], reply[len(before) : start]))
    return places


def expected_grade(
    tokenizer: Any, probabilities: torch.Tensor, place: Place, after_one: Callable[[], torch.Tensor]
) -> tuple[float, float]:
    """Return Σs·p(s)/Σp(s) over s = 0..10, and the mass 1 − Σp(s) that lies off the scale (G-Eval, arXiv 2303.16634).

    `probabilities` (V,) are those of the number's first token, so that 9.5 counts with 9. Where a tokenizer writes
    10 as 1 and 0, what starts with 1 is divided by the probabilities (V,) that `after_one` gives of the next token.
    """
    ids = {grade: tokenizer.encode(f"{place.lead}{grade}", add_special_tokens=False) for grade in GRADES}
    mass = {grade: float(probabilities[ids[grade][0]]) for grade in GRADES}
    if any(len(ids[grade]) != 1 for grade in GRADES[:-1]) or len(ids[10]) > 2:
        raise SetupError(f"the tokenizer splits {place.lead + '7'!r} into {ids[7]}, expected one token a digit")
    if ids[10][:1] == ids[1]:
        mass[10] = mass[1] * float(after_one()[ids[10][1]]) if mass[1] > NEGLIGIBLE else 0.0
        mass[1] -= mass[10]
    total = sum(mass.values())
    if total <= 0:
        return 0.0, 1.0
    return sum(grade * p for grade, p in mass.items()) / total, max(0.0, 1 - total)
