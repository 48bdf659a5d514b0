"""What editors and judges are asked, what they answer, and what a class must have to be one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol

from PIL import Image
from typing_extensions import TypeVar

from pytest_imgedit.core.images import decode
from pytest_imgedit.core.strict_json import JsonObject

#: Images are encoded (`bytes`) in the controller and on the wire, and decoded in workers.
ImageT = TypeVar("ImageT", default=Image.Image)


@dataclass(frozen=True)
class EditRequest(Generic[ImageT]):
    """What an editor is asked for: RGB source of shape (H, W, 3), instruction, and a seed in [0,
    2**63).

    `reference` is there for the controls `oracle` and `shuffled`, and as the finished image for
    `folder`, only.
    """

    pair_id: str
    category: str
    instruction: str
    source: ImageT
    seed: int
    reference: ImageT | None = None

    @classmethod
    def decoded(cls, fields: JsonObject) -> EditRequest:
        """Read the fields of an `EditRequest[bytes]`; raises `ImageError` for an image that does
        not decode.
        """
        reference = fields["reference"]
        images = {"source": decode(fields["source"])}
        if reference is not None:
            images["reference"] = decode(reference)
        return EditRequest(**{**fields, **images})


class Editor(Protocol):
    """Built once a worker as `Class(argument, device=…, **params)`; the argument only if the spec
    has one.

    `device` is `"cpu"`, `"cuda"`, or `"balanced"` (spread over all GPUs that the worker sees). An
    editor may have a method `self_check()`, which a worker calls once after building it:
    `SetupError` from it ends the run. The global generators of Python, numpy and torch are seeded
    with the request's seed before every edit.

    An editor with an attribute `on_step` is given a function there, which it may call with (step,
    steps) as it goes.

    An editor that can make several edits in one call has a method `edit_batch(requests)` too, which
    returns one image a request, in order, or an exception in the place of one that failed. It gets
    at most `editor.batch_size` requests, whose sources are of one size. If it runs out of memory,
    it is called again with half as many. Each image must be that which `edit` returns, to rounding.
    One that draws from a global generator is called for one edit at a time, as these are seeded for
    the first request alone.
    """

    def edit(self, request: EditRequest) -> Image.Image:
        """Return the edited image. What it raises becomes the error of this pair alone."""


@dataclass(frozen=True)
class Question(Generic[ImageT]):
    """What a judge is asked about one edit.

    `images` holds RGB images by name: `source`, `edited`, and `reference` where the pair has one.
    `system` is the system prompt; `parts` is the user's turn in order: texts as `("text", words)`
    and images as `("image", name)`; `aspects` are the names of the numbers that the rubric reads
    from the reply.
    """

    pair_id: str
    category: str
    instruction: str
    images: Mapping[str, ImageT]
    system: str = ""
    parts: tuple[tuple[str, str], ...] = ()
    aspects: tuple[str, ...] = ()

    @classmethod
    def decoded(cls, fields: JsonObject) -> Question:
        """Read the fields of a `Question[bytes]`; raises `ImageError` for an image that does not
        decode.
        """
        images = {name: decode(data) for name, data in fields["images"].items()}
        return Question(**{**fields, "images": images})


@dataclass(frozen=True)
class Answer:
    """A judge's answer: the raw `reply`, or a `score` in [0, 10] with its aspects from a judge that
    measures.

    A reply that is `cut`, which would have gone on but for a limit on its length, is not read.

    The rubric parses the reply of an answer without a score. `expected` may then hold an expected
    grade in [0, 10] for every aspect, from which the score is made in place of those that the reply
    names, with `off_scale` the largest probability that the judge gave to something else than a
    grade. `error` says why there is neither. `tokens_in` and `tokens_out` count what the answer
    cost, where that is paid for. `batch_size` is how many were asked at once; the worker sets it.
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
    batch_size: int = 1


class Judge(Protocol):
    """Built once a worker as `Class(argument, device=…, **params)`; the argument only if the spec
    has one.

    A judge may set `batch_size: int`, the most questions that it wants at once; it is used where
    `judge.batch_size` is `"auto"`. With that it declares that an answer does not depend on the
    other questions of its batch. A judge that runs out of memory may let that out: it is asked
    again in batches of half the size.
    """

    def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Return one answer a question, in order."""


def job_seed(seed: int, pair_id: str, base: int = 0) -> int:
    """Derive the generator's seed of a pair: 63 bits of the SHA-256 of its seed and id, and of a
    base seed but for 0.

    So the noise of one pair is independent of that of all others, and that of one base seed of that
    of any other.
    """
    text = f"{base}:{seed}:{pair_id}" if base else f"{seed}:{pair_id}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
