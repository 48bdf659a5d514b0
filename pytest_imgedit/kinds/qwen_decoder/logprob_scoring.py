"""Expected grades: the mean over the probabilities of the numbers that a judge could have answered
with.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_imgedit.core.errors import SetupError
from pytest_imgedit.core.reply import NUMBER, number_places

if TYPE_CHECKING:
    import torch

    from pytest_imgedit.kinds.qwen_decoder.decoding import Decoded, Decoder, Prompt

GRADES = range(11)
#: Below this probability of a number, or of a point after it, it is not asked what would follow.
NEGLIGIBLE = 1e-3


@dataclass(frozen=True)
class Place:
    """Where an aspect's `number` stands in a reply, empty if there is none: the `step` that chose
    its first token, which holds the text `lead` before it.
    """

    aspect: str
    step: int
    lead: str
    number: str

    def encode(self, tokenizer: Any, text: str) -> list[int]:
        """Return the tokens of `text` in place of the number, with `lead` before it."""
        return list(tokenizer.encode(f"{self.lead}{text}", add_special_tokens=False))


def find_places(tokenizer: Any, tokens: Sequence[int], aspects: Sequence[str]) -> list[Place]:
    """Return where the aspects' numbers are among the tokens of a reply, in the order of `aspects`;
    an empty list if the reply has no place for one of them.
    """
    texts = [
        tokenizer.decode(tokens[: end + 1], skip_special_tokens=True) for end in range(len(tokens))
    ]
    reply = texts[-1] if texts else ""
    starts = number_places(reply, aspects)
    if set(starts) != set(aspects):
        return []
    places = []
    for aspect in aspects:
        start = starts[aspect]
        step = 0
        written = ""  # before that step
        while len(texts[step]) <= start:
            written = texts[step]
            step += 1
        match = NUMBER.match(reply, start)
        number = match[0] if match else ""
        places.append(Place(aspect, step, lead=reply[len(written) : start], number=number))
    return places


class PlaceInReply(NamedTuple):
    """A place, and the position of its reply in a batch."""

    row: int
    place: Place


#: The index of a place, and a text that may stand there.
Written = tuple[int, str]


@dataclass(frozen=True, kw_only=True)
class Replies:
    """The replies of a batch to `prompts`, as a decoder `decoded` them, with the `places` of their
    numbers.
    """

    decoder: Decoder
    tokenizer: Any
    prompts: Sequence[Prompt]
    decoded: Decoded
    places: Sequence[PlaceInReply]

    def chances(self) -> list[tuple[Place, torch.Tensor]]:
        """Return each place with the probabilities (V,) of its first token."""
        logits = self.decoded.logits
        return [(place, logits[row][place.step].softmax(-1)) for row, place in self.places]

    def after(self, texts: Sequence[Written]) -> list[torch.Tensor]:
        """Return the probabilities (V,) of the token after each text: those of the reply if it goes
        on after this text, else those that the decoder is asked for.
        """
        logits: dict[Written, torch.Tensor] = {}
        unknown: dict[Written, Prompt] = {}
        for index, text in texts:
            row, place = self.places[index]
            tokens = self.decoded.tokens[row]
            written = place.encode(self.tokenizer, text)
            end = place.step + len(written)
            if tokens[place.step : end] == written and end < len(self.decoded.logits[row]):
                logits[index, text] = self.decoded.logits[row][end]
            else:
                reply = tokens[: place.step] + written
                unknown[index, text] = self.prompts[row].followed_by(reply)
        logits |= self._look_up(unknown)
        return [logits[key].softmax(-1) for key in texts]

    def _look_up(self, unknown: dict[Written, Prompt]) -> dict[Written, torch.Tensor]:
        """Return the logits (V,) after each prompt; decode as many prompts at a time as the batch
        had.
        """
        logits: dict[Written, torch.Tensor] = {}
        size = len(self.prompts)
        for start in range(0, len(unknown), size):
            batch = dict(islice(unknown.items(), start, start + size))
            decoded = self.decoder.decode(list(batch.values()), 1, keep_logits=True)
            for key, steps in zip(batch, decoded.logits, strict=True):
                logits[key] = steps[0]
        return logits


def expected_grades(
    tokenizer: Any,
    asked: Sequence[tuple[Place, torch.Tensor]],
    after: Callable[[Sequence[Written]], Sequence[torch.Tensor]],
) -> list[tuple[float, float]]:
    """Return Σv·p(v)/Σp(v) over the numbers v that could stand in each place, and the mass 1 −
    Σp(v) off the scale; 0 and 1 for a place without any mass on the scale.

    The numbers are 0 to 10 and, where the judge may go on with a point after the number that it
    chose (beside a 10, after the most probable other one), those with one decimal too; what it may
    write after that does not count. `asked` holds the places, each with the probabilities (V,) of
    its first token. `after` takes pairs of the index of a place and a text that may stand there,
    and returns the probabilities (V,) of the token after each; it is called at most three times,
    for all places together. Where a tokenizer writes 10 as 1 and 0, what starts with 1 is divided
    by what follows. The mean is that of G-Eval (arXiv 2303.16634), whose grades have no decimals.
    Raise `SetupError` for a tokenizer with other tokens for digits.
    """
    grades: dict[int, tuple[float, float]] = {}
    # A generator a place, run side by side, so that the questions of all go to `after` together.
    running = {
        index: _expect(tokenizer, place, chances) for index, (place, chances) in enumerate(asked)
    }
    answers: dict[int, Any] = dict.fromkeys(running)  # `None` starts a generator
    while running:
        texts: list[Written] = []
        for index, asking in list(running.items()):
            try:
                wanted = asking.send(answers[index])
            except StopIteration as end:
                grades[index] = end.value
                del running[index]
            else:
                texts += [(index, text) for text in sorted(wanted)]
        answers = {index: {} for index in running}
        if texts:
            for (index, text), following in zip(texts, after(texts), strict=True):
                answers[index][text] = following
    return [grades[index] for index in range(len(asked))]


#: Yields texts that may stand in a place, and is sent the probabilities (V,) of the token after
#: each.
Asking = Generator[set[str], dict[str, "torch.Tensor"], Any]


def _expect(tokenizer: Any, place: Place, probabilities: torch.Tensor) -> Asking:
    """Yield what has to be known; return the mean of one place and the mass off the scale, as
    `expected_grades` says.

    `probabilities` (V,) are those of the place's first token.
    """
    ids = {grade: place.encode(tokenizer, f"{grade}") for grade in GRADES}
    mass = {float(grade): float(probabilities[ids[grade][0]]) for grade in GRADES}
    if any(len(ids[grade]) != 1 for grade in GRADES[:-1]) or len(ids[10]) > 2:
        raise SetupError(
            f"the tokenizer splits {place.lead + '7'!r} into {ids[7]}, expected one token a digit"
        )
    splits_ten = ids[10][:1] == ids[1]
    may_be_ten = splits_ten and mass[1.0] > NEGLIGIBLE
    probe = _probe(place, mass, splits_ten)
    decimals = {} if probe is None else _decimals(tokenizer, place, probe)
    texts = {f"{probe}"} if decimals else set()
    if may_be_ten:
        texts.add("1")
    after = yield texts
    first_tokens = dict(mass)  # before any is divided
    if splits_ten:
        mass[10.0] = 0.0  # so far it was that of its first token, 1
    if may_be_ten:
        mass[10.0] = mass[1.0] * float(after["1"][ids[10][1]])
        mass[1.0] -= mass[10.0]
    if decimals and _decimal_chance(after[f"{probe}"], decimals) > NEGLIGIBLE:
        yield from _divide(tokenizer, place, mass, first_tokens, after)
    total = sum(mass.values())
    if total <= 0:
        return 0.0, 1.0
    mean = sum(value * probability for value, probability in mass.items()) / total
    return mean, max(0.0, 1 - total)


def _probe(place: Place, mass: dict[float, float], splits_ten: bool) -> int | None:
    """Return the whole number whose continuation tells whether this judge writes decimals; `None`
    if the reply has no number in this place, or a 10 beside which no other is probable.

    It is the one that the judge chose, since what follows that is known; beside a 10 it is the most
    probable other one, but not the 1 that a 10 starts with.
    """
    chosen = place.number.partition(".")[0]
    if chosen and int(chosen) < GRADES[-1]:
        return int(chosen)
    others = [
        grade
        for grade in GRADES[:-1]
        if mass[float(grade)] > NEGLIGIBLE and not (splits_ten and grade == 1)
    ]
    if chosen and others:
        return max(others, key=lambda grade: mass[float(grade)])
    return None


def _decimals(tokenizer: Any, place: Place, grade: int) -> dict[int, list[int]]:
    """Return the tokens that make `grade` a number with a decimal, by the decimal; none if the
    tokenizer does not write them after those of `grade`.
    """
    head = place.encode(tokenizer, f"{grade}")
    written = {decimal: place.encode(tokenizer, f"{grade}.{decimal}") for decimal in range(10)}
    if any(ids[: len(head)] != head or len(ids) == len(head) for ids in written.values()):
        return {}
    return {decimal: ids[len(head) :] for decimal, ids in written.items()}


def _decimal_chance(following: torch.Tensor, decimals: dict[int, list[int]]) -> float:
    """Return the probability that what follows a whole number gives it a decimal."""
    first_tokens = {ids[0] for ids in decimals.values()}
    return sum(float(following[token]) for token in first_tokens)


def _divide(
    tokenizer: Any,
    place: Place,
    mass: dict[float, float],
    first_tokens: dict[float, float],
    after: dict[str, torch.Tensor],
) -> Asking:
    """Yield what has to be known, and divide in `mass` that of each whole number between itself and
    the numbers with a decimal that start with it.

    `first_tokens` holds the probabilities of the whole numbers' first tokens, before any was
    divided, and `after` those (V,) of the token after a whole number, where they are known already.
    """
    decimals = {
        grade: _decimals(tokenizer, place, grade)
        for grade in GRADES[:-1]
        if mass[float(grade)] > NEGLIGIBLE
    }
    asked = yield {f"{grade}" for grade in decimals} - set(after)
    following = {**after, **asked}
    points = {grade: _decimal_chance(following[f"{grade}"], ids) for grade, ids in decimals.items()}
    with_point: set[str] = set()
    for grade, ids in decimals.items():
        needs_second_token = any(len(tokens) > 1 for tokens in ids.values())
        if points[grade] > NEGLIGIBLE and needs_second_token:
            with_point.add(f"{grade}.")
    after_point = yield with_point
    for grade, ids in decimals.items():
        for decimal, tokens in ids.items():
            chance = first_tokens[float(grade)] * float(following[f"{grade}"][tokens[0]])
            if len(tokens) > 1 and f"{grade}." in after_point:
                chance *= float(after_point[f"{grade}."][tokens[1]])
            elif len(tokens) > 1:  # the point is negligible
                chance = 0.0
            value = grade + decimal / 10
            mass[value] = mass.get(value, 0.0) + chance
        mass[float(grade)] -= first_tokens[float(grade)] * points[grade]
