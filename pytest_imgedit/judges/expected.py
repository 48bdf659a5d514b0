"""Expected grades: the mean over the probabilities of the numbers that a judge could have answered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_imgedit.errors import SetupError
from pytest_imgedit.rubrics.reply import NUMBER, number_places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

GRADES = range(11)
#: Below this probability of a number, or of a point after it, it is not asked what would follow.
NEGLIGIBLE = 1e-3


@dataclass(frozen=True)
class Place:
    """Where an aspect's number stands in a reply: the step that chose its first token, and the words before it.

    `lead` is what that token holds before the `number`.
    """

    aspect: str
    step: int
    before: str
    lead: str
    number: str

    def encode(self, tokenizer: Any, text: str) -> list[int]:
        """Return the tokens of a `text` that stands in place of the number, behind what leads to it."""
        ids: list[int] = tokenizer.encode(f"{self.lead}{text}", add_special_tokens=False)
        return ids


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
        number = NUMBER.match(reply, start)
        lead, written = reply[len(before) : start], number[0] if number else ""
        places.append(Place(aspect, step, reply[: len(before)], lead, written))
    return places


def expected_grade(
    tokenizer: Any, probabilities: torch.Tensor, place: Place, after: Callable[[str], torch.Tensor]
) -> tuple[float, float]:
    """Return Σv·p(v)/Σp(v) over the numbers v that could stand here, and the mass 1 − Σp(v) that lies off the scale.

    The numbers are 0 to 10 and, where the judge may go on with a point after the number that it chose, those with one
    decimal too; what it may write after that does not count. `probabilities` (V,) are those of the first token;
    `after(text)` gives those of the token that follows `text` in this place. Where a tokenizer writes 10 as 1 and 0,
    what starts with 1 is divided by what follows. The mean is that of G-Eval (arXiv 2303.16634), whose grades have no
    decimals.
    """
    ids = {grade: place.encode(tokenizer, f"{grade}") for grade in GRADES}
    mass = {float(grade): float(probabilities[ids[grade][0]]) for grade in GRADES}
    if any(len(ids[grade]) != 1 for grade in GRADES[:-1]) or len(ids[10]) > 2:
        raise SetupError(f"the tokenizer splits {place.lead + '7'!r} into {ids[7]}, expected one token a digit")
    if ids[10][:1] == ids[1]:
        mass[10.0] = mass[1.0] * float(after("1")[ids[10][1]]) if mass[1.0] > NEGLIGIBLE else 0.0
        mass[1.0] -= mass[10.0]
    if _goes_on(tokenizer, place, after):
        for grade in GRADES[:-1]:
            if mass[float(grade)] > NEGLIGIBLE:
                _divide(tokenizer, place, grade, mass, after)
    total = sum(mass.values())
    if total <= 0:
        return 0.0, 1.0
    return sum(value * p for value, p in mass.items()) / total, max(0.0, 1 - total)


def _decimals(tokenizer: Any, place: Place, grade: int) -> dict[int, list[int]]:
    """Tokens that make `grade` a number with each decimal; none with a tokenizer that reads such a number otherwise."""
    head = place.encode(tokenizer, f"{grade}")
    found = {decimal: place.encode(tokenizer, f"{grade}.{decimal}") for decimal in range(10)}
    fits = all(ids[: len(head)] == head and len(ids) > len(head) for ids in found.values())
    return {decimal: ids[len(head) :] for decimal, ids in found.items()} if fits else {}


def _goes_on(tokenizer: Any, place: Place, after: Callable[[str], torch.Tensor]) -> bool:
    """Tell whether the judge may well write a point after the whole number that it chose."""
    whole = place.number.partition(".")[0]
    if not whole or int(whole) >= GRADES[-1]:
        return False
    points = {ids[0] for ids in _decimals(tokenizer, place, int(whole)).values()}
    following = after(whole) if points else None
    return following is not None and sum(float(following[token]) for token in points) > NEGLIGIBLE


def _divide(
    tokenizer: Any, place: Place, grade: int, mass: dict[float, float], after: Callable[[str], torch.Tensor]
) -> None:
    """Divide the mass of a whole number between itself and the numbers with a decimal that start with it."""
    following = after(f"{grade}")
    decimals = _decimals(tokenizer, place, grade)
    points = {ids[0] for ids in decimals.values()}
    behind = {}
    if any(len(ids) > 1 for ids in decimals.values()) and sum(float(following[token]) for token in points) > NEGLIGIBLE:
        behind = dict.fromkeys(points, after(f"{grade}."))
    whole = mass[float(grade)]
    for decimal, (first, *rest) in decimals.items():
        chance = whole * float(following[first])
        if rest:
            chance *= float(behind[first][rest[0]]) if first in behind else 0.0
        value = grade + decimal / 10
        mass[value] = mass.get(value, 0.0) + chance
    mass[float(grade)] -= whole * sum(float(following[token]) for token in points)
