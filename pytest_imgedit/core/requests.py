"""Requests to editors and judges, their answers, and the protocols of their classes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Generic, Literal, Protocol

from PIL import Image
from typing_extensions import TypeVar

from pytest_imgedit.core.errors import ImageError
from pytest_imgedit.core.images import decode, encode_jpeg
from pytest_imgedit.core.pairs import in_order_of_sources, named_images
from pytest_imgedit.core.strict_json import JsonObject

#: Images are encoded (`bytes`) in the controller and on the wire, and decoded in workers.
ImageT = TypeVar("ImageT", default=Image.Image)


#: The names of images that are edits, in a question about one and in one about two.
EDITS = ("edited", "first", "second")


def decoded(name: str, data: bytes) -> Image.Image:
    """Return an image; raises `ImageError`, which begins with its name, if it does not decode."""
    try:
        return decode(data)
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from None


def token_cost(tokens: Iterable[float], prices: Iterable[float]) -> float:
    """Return the cost of tokens in and out, by the prices of a million of each."""
    return sum(count * price for count, price in zip(tokens, prices, strict=True)) / 1e6


@dataclass(frozen=True)
class EditRequest(Generic[ImageT]):
    """A request to an editor: an RGB source of shape (H, W, 3), an instruction, and a seed in [0,
    2**63).

    `source` is the image to edit. `further` are the pair's other source images in their order,
    among which the one to edit has the place `edited_source`, which begins at 1; only editors that
    take several get any. `sources` are all of them, in the order that instructions refer to.

    Only the controls `oracle`, `blend`, `damaged` and `shuffled` get a `reference`, and the editor
    `folder`, whose finished image it is.
    """

    pair_id: str
    category: str
    instruction: str
    source: ImageT
    seed: int
    reference: ImageT | None = None
    further: tuple[ImageT, ...] = ()
    edited_source: int = 1

    @property
    def sources(self) -> tuple[ImageT, ...]:
        """All source images in the pair's order."""
        return in_order_of_sources(self.source, self.further, self.edited_source)

    @property
    def named_sources(self) -> dict[str, ImageT]:
        """All source images by their names, `source` and `source-N`, in the pair's order."""
        return named_images(self.source, self.further, None, self.edited_source)

    @classmethod
    def decoded(cls, fields: JsonObject) -> EditRequest:
        """Return the request that the fields of an `EditRequest[bytes]` make, with its images
        decoded; raises `ImageError`, which begins with the image's name, if one does not decode.
        """
        encoded = EditRequest[bytes](**{**fields, "further": tuple(fields["further"])})
        images = {name: decoded(name, data) for name, data in encoded.named_sources.items()}
        for image in images.values():
            image.info.clear()  # what is said of sources is not said of edits
        source = images.pop("source")
        reference = encoded.reference and decoded("reference", encoded.reference)
        return EditRequest(
            **{**fields, "source": source, "reference": reference, "further": (*images.values(),)}
        )


class Editor(Protocol):
    """Each worker builds an editor once, as `Class(argument, device=…, **params)`; the argument is
    passed only if the spec has one.

    `device` is `"cpu"`, `"cuda"`, or `"balanced"` (spread over all GPUs that the worker sees). An
    editor may have a method `self_check()`, which the worker calls once after building it; a
    `SetupError` from it ends the run. It may return its probe: the digest, as text, of an edit of a
    fixed request. A worker with another probe than the first one of its type of GPU ends the run.
    The global generators of Python, numpy and torch are seeded with the request's seed before every
    edit.

    If an editor has an attribute `on_step`, the worker sets it to a function, which the editor may
    call with (step, steps) during an edit.

    An editor that takes several source images of a pair (`request.sources`) says how many by a
    class attribute: `max_sources = 3`, or `None` for any number. Without it, pairs with more than
    one end in an error.

    An editor that can make several edits in one call also has a method `edit_batch(requests)`,
    which returns one image per request, in order, or an exception for each that failed. It gets at
    most `editor.batch_size` requests, with as many sources of the same sizes. If it runs out of
    memory, it is called again with half as many. Each image must equal that of `edit` up to
    rounding. An editor that draws from a global generator is called for one edit at a time, since
    the generators are seeded for the first request only.
    """

    def edit(self, request: EditRequest) -> Image.Image:
        """Return the edited image. An exception becomes the error of this pair only."""


@dataclass(frozen=True)
class Preparation:
    """How the images of a question are prepared; by default the judge decides.

    With `at_source_size` each edit is resized to the size of the source, bicubically. With
    `max_side` images are made smaller, keeping their shape, until no side is longer, in pixels. A
    judge sends images in `codec`, JPEG with `quality`, and makes none smaller, if `codec` is set. A
    server that takes a level of detail is told `detail`.

    With `source_pixels` every source image of more pixels is made smaller, bicubically and about in
    its shape. With `source_multiple` its sides are then cut to multiples of that number of pixels.
    Neither changes an edit or the reference.
    """

    codec: Literal["", "png", "jpeg"] = ""
    quality: int = 75
    max_side: int | None = None
    at_source_size: bool = False
    detail: Literal["", "low", "high"] = ""
    source_pixels: int | None = None
    source_multiple: int = 1

    @property
    def recipe(self) -> JsonObject:
        """Its fields, as they decide replies; those of source images only if they say something, so
        that stored replies from before they existed keep their keys.
        """
        fields = asdict(self)
        if self.source_pixels is None:
            del fields["source_pixels"]
        if self.source_multiple == 1:
            del fields["source_multiple"]
        return fields

    def resizes(self, name: str) -> bool:
        """Tell whether an image is one of the sources, and these have a rule for their size."""
        has_rule = self.source_pixels is not None or self.source_multiple > 1
        return has_rule and name.startswith("source")

    def source_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the width and height in which a source image of this size is shown, in pixels."""
        width, height = size
        if self.source_pixels is not None and width * height > self.source_pixels:
            ratio = math.sqrt(self.source_pixels / (width * height))
            width, height = int(width * ratio), int(height * ratio)
        multiple = self.source_multiple
        return max(multiple, width - width % multiple), max(multiple, height - height % multiple)

    def sent(self, image: Image.Image) -> Image.Image:
        """Return an image as it is after its way through the codec."""
        return decode(encode_jpeg(image, self.quality)) if self.codec == "jpeg" else image

    def resized(self, images: Mapping[str, Image.Image]) -> dict[str, Image.Image]:
        """Return the images in the sizes in which a judge is shown them."""
        source = images.get("source")
        sizes: dict[str, tuple[int, int]] = {}
        if self.at_source_size and source is not None:
            sizes |= dict.fromkeys(EDITS, source.size)
        for name, image in images.items():
            if self.resizes(name):
                sizes[name] = self.source_size(image.size)
        return {name: self.resized_to(image, sizes.get(name)) for name, image in images.items()}

    def resized_to(self, image: Image.Image, size: tuple[int, int] | None) -> Image.Image:
        """Return an image in a `size` in pixels, if it is to have one, and then with no side longer
        than `max_side`.
        """
        if size is not None:
            image = image.resize(size)
        if self.max_side is not None:
            image = image.copy()  # a thumbnail is made in place
            image.thumbnail((self.max_side, self.max_side))
        return image


@dataclass(frozen=True)
class Question(Generic[ImageT]):
    """A question to a judge about one edit, or two of a duel: one call of a protocol.

    `images` holds RGB images by name: those that the call shows, and for a judge that measures
    `source`, `edited`, `reference` if the pair has one, and each source that is not the edited one
    as `source-N`, where N is its place. `system` is the system prompt, empty for none. `parts` is
    the user's turn in order: texts as `("text", words)` and images as `("image", name)`. `aspects`
    names the lines of the reply that hold a grade from 0 to 10; it is empty for replies in another
    form. `preparation` says how images are sent; they have their sizes already. A reply may be at
    least `max_new_tokens` long.
    """

    pair_id: str
    category: str
    instruction: str
    images: Mapping[str, ImageT]
    system: str = ""
    parts: tuple[tuple[str, str], ...] = ()
    aspects: tuple[str, ...] = ()
    preparation: Preparation = field(default_factory=Preparation)
    max_new_tokens: int = 0

    @property
    def fields(self) -> JsonObject:
        """Its fields as plain values, as they go over the wire."""
        return {**vars(self), "preparation": vars(self.preparation)}

    @classmethod
    def encoded(cls, fields: JsonObject) -> Question[bytes]:
        """Return the question that these `fields` make, with its images as they are."""
        return Question(**{**fields, "preparation": Preparation(**fields["preparation"])})

    @classmethod
    def decoded(cls, fields: JsonObject) -> Question:
        """Return the question that the fields of a `Question[bytes]` make, with its images decoded
        and in the sizes of its `preparation`.

        Raises `ImageError`, which begins with the image's name, if one does not decode.
        """
        preparation = Preparation(**fields["preparation"])
        images = {name: decoded(name, data) for name, data in fields["images"].items()}
        prepared = {"images": preparation.resized(images), "preparation": preparation}
        return Question(**{**fields, **prepared})


@dataclass(frozen=True)
class Answer:
    """A judge's answer: the raw `reply`, or a `score` in [0, 10] with its aspects from a judge that
    measures; the `score` of a metric is on its own scale.

    A reply that is `cut`, since it reached a limit on its length, is not read.

    The protocol reads the reply of an answer without a score. `expected` may then hold an expected
    grade in [0, 10] for each of the question's `aspects`; they replace the grades in the reply.
    `off_scale` is the largest probability in [0, 1] that the judge gave to anything but a grade. A
    judge of a kind with `grades_by_digits` leaves both to the protocol: `digits` holds the
    probabilities (10,) of the digits 0 to 9 for each place in the reply, in characters, where a
    token is one digit. `error` says why there is neither a reply nor a score; `refused`, that a
    content filter is the reason, and `final`, that every further question would fail, too. `model`
    is what a server says has answered. `tokens_in` and `tokens_out` count the tokens of an answer
    that is paid for. `finish_reason` is why a server says that the reply has ended, `none` if it
    says nothing. `batch_size` is the number of questions of the call; the worker sets it.
    """

    reply: str = ""
    score: float | None = None
    aspects: Mapping[str, float] = field(default_factory=dict)
    expected: Mapping[str, float] = field(default_factory=dict)
    off_scale: float = 0.0
    digits: Mapping[int, Sequence[float]] = field(default_factory=dict)
    error: str | None = None
    refused: bool = False
    final: bool = False
    model: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    cut: bool = False
    finish_reason: str = ""
    batch_size: int = 1


class Judge(Protocol):
    """Each worker builds a judge once, as `Class(argument, device=…, **params)`; the argument is
    passed only if the spec has one.

    A judge may set `batch_size: int`, the most questions of one call, which is used if
    `judge.batch_size` is `"auto"`. It thereby declares that an answer does not depend on the other
    questions of its batch. A judge that runs out of memory may raise that error: it is called again
    with batches of half the size.
    """

    def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Return one answer per question, in order."""


def job_seed(seed: int, pair_id: str, base: int = 0) -> int:
    """Return the generator's seed for a pair: 63 bits of the SHA-256 of its seed and id, and of the
    base seed unless that is 0.

    So the noise of different pairs, and of different base seeds, is independent.
    """
    text = f"{base}:{seed}:{pair_id}" if base else f"{seed}:{pair_id}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
