"""Expected grades out of the probabilities of single digits: where a grade stands in a reply, and
the mean over the numbers of its scale.
"""

import re
from collections.abc import Sequence

from pytest_imgedit.core.errors import ReplyError
from pytest_imgedit.core.reply import Grammar
from pytest_imgedit.core.reply_marks import answer_of

#: The most digits of a reply that are tried as the place of a grade.
_MOST_TRIED = 100
_LONE_DIGIT = re.compile(r"(?<![\d.])\d(?!\.?\d)", re.ASCII)


def one_digit_numbers(scale: tuple[float, float]) -> range:
    """Return the whole numbers of a scale; none for a scale that does not begin and end with whole
    numbers of one digit.
    """
    low, high = map(int, scale)
    is_of_digits = scale == (low, high) and 0 <= low < high <= 9
    return range(low, high + 1) if is_of_digits else range(0)


def expected_grade(chances: Sequence[float], numbers: range) -> tuple[float, float]:
    """Return Σs·p(s)/Σp(s) over the numbers of a scale, and the mass 1 − Σp(s) off the scale.

    `chances` (10,) are the probabilities of the digits in the place of the grade. Raises
    `ValueError` if no number has any. The mean is that of G-Eval (arXiv 2303.16634).
    """
    total = sum(chances[number] for number in numbers)
    if not total > 0:
        raise ValueError("no number of the scale has a probability")
    mean = sum(number * chances[number] for number in numbers) / total
    return mean, max(0.0, 1 - total)


def grade_places(reply: str, grammar: Grammar) -> dict[str, int]:
    """Return where the digit that the grammar reads as a grade stands in a reply, in characters, by
    the name of the grade.

    It is the only digit with which the grade alone changes: so the place is that of every form of
    the grammar, whatever else the reply holds. Raises `ReplyError` for a reply that cannot be read,
    and for a grade that is not written as one digit in one place.
    """
    grades = grammar.read(reply)
    places: dict[str, list[int]] = {name: [] for name in grades}
    for place in _lone_digits(reply, {f"{grade:g}" for grade in grades.values()}):
        name = _grade_at(place, reply, grammar, grades)
        if name is not None:
            places[name].append(place)
    for name, found in places.items():
        if len(found) != 1:
            raise ReplyError(
                f"{name!r} is {grades[name]:g}, expected one digit, without decimals, in one place"
            )
    return {name: place for name, (place,) in places.items()}


def _lone_digits(reply: str, wanted: set[str]) -> list[int]:
    """Return the places of wanted digits in the answer of a reply that are a number by themselves.

    Raises `ReplyError` for more than `_MOST_TRIED` of them.
    """
    matches = _LONE_DIGIT.finditer(answer_of(reply))
    places = [match.start() for match in matches if match[0] in wanted]
    if len(places) > _MOST_TRIED:
        raise ReplyError(
            f"{len(places)} digits that may be a grade, expected at most {_MOST_TRIED}"
        )
    return places


def _grade_at(place: int, reply: str, grammar: Grammar, grades: dict[str, float]) -> str | None:
    """Return the name of the only grade that follows the digit in a place; `None` if none does."""
    low, high = grammar.scale
    other = low if float(reply[place]) != low else high
    try:
        changed = grammar.read(f"{reply[:place]}{other:g}{reply[place + 1 :]}")
    except ReplyError:
        return None
    names = [name for name, grade in changed.items() if grade != grades[name]]
    if len(names) == 1 and changed[names[0]] == other:
        return names[0]
    return None
