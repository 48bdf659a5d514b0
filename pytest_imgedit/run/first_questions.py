"""The first question to a served judge: as large as any of its run, so that what fails for its size
fails before the first edit.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

from PIL import Image

from pytest_imgedit.core.errors import ImageError
from pytest_imgedit.core.images import MIN_SIDE, checked_size, encode_png
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.requests import Question
from pytest_imgedit.protocols.protocol import Call, Protocol
from pytest_imgedit.run.questions import Ask, shown_size

#: The value of each channel of a grey picture.
GREY = 128
#: How many pairs tell the size of pictures where no run has read them all.
SAMPLE = 20
#: The smallest picture, in pixels.
SMALLEST = (MIN_SIDE, MIN_SIDE)

Size = tuple[int, int]


def grey(size: Size) -> bytes:
    """Return a grey picture of this width and height, as PNG."""
    return encode_png(Image.new("RGB", size, (GREY, GREY, GREY)))


@dataclass(frozen=True)
class FirstQuestion:
    """The longest `call`, about `pair`, with as many grey pictures of the largest `size` as any
    call shows: those of the names `images`. A scorer that measures has no call.
    """

    pair: EditPair
    call: Call | None
    images: tuple[str, ...]
    size: Size

    def question(self) -> Question[bytes]:
        """Return the question with its pictures."""
        picture = grey(self.size)
        question = Question(
            pair_id=self.pair.id,
            category=self.pair.category,
            instruction=self.pair.instruction,
            images=dict.fromkeys(self.images, picture),
        )
        if self.call is None:
            return question
        added = [("image", name) for name in self.images if name not in self.call.images]
        return replace(
            question,
            system=self.call.system,
            parts=(*self.call.parts, *added),
            aspects=self.call.grammar.graded,
            preparation=self.call.preparation,
            max_new_tokens=self.call.max_new_tokens,
        )


def first_question(asks: Sequence[Ask]) -> FirstQuestion | None:
    """Return the first question of a run with these questions; `None` without any."""
    if not asks:
        return None
    sizes = [size for ask in asks for size in _sizes(ask)]
    return largest_question([(ask.pair, ask.call) for ask in asks], sizes)


def question_about(pairs: Sequence[EditPair], protocol: Protocol | None) -> FirstQuestion | None:
    """Return the question that is as large as any about pairs, of which the first `SAMPLE` tell the
    size of pictures; `None` without pairs. A scorer that measures has no protocol.
    """
    calls: list[tuple[EditPair, Call | None]] = []
    for pair in pairs:
        asked: Sequence[Call | None] = [None]
        if protocol is not None:
            asked = protocol.checked_calls(pair)
        calls += [(pair, call) for call in asked]
    return largest_question(calls, _source_sizes(pairs[:SAMPLE])) if calls else None


def _source_sizes(pairs: Iterable[EditPair]) -> Iterator[Size]:
    """Yield the sizes of sources that can be read."""
    for source in chain.from_iterable(pair.sources for pair in pairs):
        with suppress(ImageError, OSError):
            yield checked_size(source.read())


def largest_question(
    calls: Sequence[tuple[EditPair, Call | None]], sizes: Iterable[Size]
) -> FirstQuestion:
    """Return the question that is as long as the longest of calls about pairs, at least one, and
    shows as many pictures as any of them, of the largest of `sizes`.
    """
    pair, call = max(calls, key=lambda member: _length(member[1]))
    images: tuple[str, ...] = ()
    if call is None:
        pair = max((pair for pair, _ in calls), key=lambda pair: len(pair.images))
        images = tuple(dict.fromkeys(["source", "edited", *pair.images]))
    else:
        shown = [set(other.images) for _, other in calls if other is not None]
        most = max(shown, key=len)
        names = dict.fromkeys([*call.images, *sorted(most)])
        images = tuple(names)[: max(len(most), len(set(call.images)))]
    size = max([SMALLEST, *sizes], key=lambda size: size[0] * size[1])
    return FirstQuestion(pair, call, images, size)


def _length(call: Call | None) -> int:
    """Return the characters of a call."""
    if call is None:
        return 0
    return len(call.system) + sum(len(text) for kind, text in call.parts if kind == "text")


def _sizes(ask: Ask) -> list[Size]:
    """Return the sizes of the images that a question shows."""
    work = ask.judgement.work
    if ask.call is None:
        return [image.size for image in work.images.values()]
    return [shown_size(work, name, ask.call.preparation) for name in ask.call.images]
