"""People's choices between two edits."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pytest_imgedit.core.pairs import ImageSource

#: The better of two edits.
Winner = Literal["a", "b", "tie"]
#: The category of choices whose file names none.
NO_CATEGORY = "all"


@dataclass(frozen=True, slots=True)
class Vote:
    """What a person chose; `rater` is empty if it is not known who."""

    winner: Winner
    rater: str = ""


def majority(winners: Iterable[Winner]) -> Winner:
    """Return the edit that more people chose than anything else, or else a tie."""
    counts = Counter(winners).most_common(2)
    if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return "tie"
    return counts[0][0]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Two edits of one source, and what people chose.

    `source` is the edited image, `None` if it is not known, and `further` are other source images.
    `row` is where the choice stands, such as `votes.csv:3`.
    """

    id: str
    a: ImageSource
    b: ImageSource
    votes: Sequence[Vote]
    category: str = NO_CATEGORY
    source: ImageSource | None = None
    further: tuple[ImageSource, ...] = ()
    instruction: str = ""
    row: str = field(default="", compare=False)

    @property
    def images(self) -> list[ImageSource]:
        """All its images."""
        images = (self.source, *self.further, self.a, self.b)
        return [image for image in images if image is not None]


@dataclass(frozen=True)
class Choices:
    """A named set of choices; `remarks` say what was left out.

    `sha256` covers ids, categories, instructions and votes, but no image.
    """

    name: str
    choices: Sequence[Choice]
    remarks: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        rows = [
            [
                choice.id,
                choice.category,
                choice.instruction,
                [[vote.winner, vote.rater] for vote in choice.votes],
            ]
            for choice in self.choices
        ]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
