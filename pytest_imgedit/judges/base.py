"""What a judge is, and how a spec becomes one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from pytest_imgedit.editors.base import guess_scheme, require_argument
from pytest_imgedit.registry import resolve
from pytest_imgedit.scenes import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from PIL import Image

    from pytest_imgedit.registry import Target

BUILTIN = {
    "none": "pytest_imgedit.judges.none:NoJudge",
    "openai": "pytest_imgedit.judges.openai:OpenAIJudge",
    "qwen-vl": "pytest_imgedit.judges.qwen_vl:QwenVLJudge",
    "reference": "pytest_imgedit.judges.reference:ReferenceJudge",
    "scenes": "pytest_imgedit.judges.qwen_vl:QwenVLJudge",
}
NEEDS_ARGUMENT = {"openai": "URL#MODEL", "qwen-vl": "MODEL"}
#: Judges that can score nothing without a reference image.
NEEDS_REFERENCE = ("reference",)
#: Judges that measure, so that no rubric is put to them.
MEASURING = ("reference",)


@dataclass(frozen=True)
class Question:
    """What a judge is asked about one edit.

    `images` holds RGB images by name: `source`, `edited`, and `reference` where the pair has one. `system`
    is the system prompt; `parts` is the user's turn in order: texts as `("text", words)` and images as
    `("image", name)`; `aspects` are the names of the numbers that the rubric reads from the reply.
    """

    pair_id: str
    category: str
    instruction: str
    images: Mapping[str, Image.Image]
    system: str = ""
    parts: tuple[tuple[str, str], ...] = ()
    aspects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A judge's answer: the raw `reply`, or a `score` in [0, 10] with its aspects from a judge that measures.

    A reply that is `cut`, which would have gone on but for a limit on its length, is not read.

    The rubric parses the reply of an answer without a score. `expected` may then hold an expected grade in [0, 10] for
    every aspect, from which the score is made in place of those that the reply names, with `off_scale` the largest
    probability that the judge gave to something else than a grade. `error` says why there is neither. `tokens_in` and
    `tokens_out` count what the answer cost, where that is paid for.
    """

    reply: str = ""
    score: float | None = None
    aspects: Mapping[str, float] = field(default_factory=dict)
    expected: Mapping[str, float] = field(default_factory=dict)
    off_scale: float = 0.0
    error: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cut: bool = False


class Judge(Protocol):
    """Built once a worker as `Class(argument, device=…, **params)`; the argument only if the spec has one.

    A judge may set `batch_size: int`, the most questions that it wants at once; it is used where
    `judge.batch_size` is `"auto"`. A judge that runs out of memory may let that out: it is asked again in batches
    of half the size.
    """

    def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Return one answer a question, in order."""


def resolve_judge(spec: str) -> Target:
    """Find the class behind a judge's spec without importing it; raise `UsageError` if there is none."""
    target = resolve("judge", spec, BUILTIN, lambda name: guess_scheme(name, "qwen-vl", "openai"))
    require_argument(target, "judge", NEEDS_ARGUMENT)
    return replace(target, kind="qwen-vl", argument=str(WEIGHTS / "judge")) if spec == "scenes" else target
