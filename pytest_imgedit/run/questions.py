"""The questions about an edit: what they show and ask, and what decides their answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pytest_imgedit.core import errors, requests, strict_json
from pytest_imgedit.core.images import as_jpeg, resampled
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.protocols.protocol import Call, Parts
from pytest_imgedit.run.work import Judgement, StoredImage, Work
from pytest_imgedit.store.store import Store

#: What changes from one repeat to the next, in turn: `batch`, other neighbours in the batch;
#: `order`, the edit is shown before the source, each with the words before it; `jpeg`, both images
#: at quality 90; `resize`, both images at 95% of their size and back.
PERTURBATIONS = ("batch", "order", "jpeg", "resize")
#: How the perturbations of images change the bytes of one.
_CHANGES = {"jpeg": as_jpeg, "resize": resampled}


def swap_images(parts: Parts) -> Parts:
    """Swap the first source and the first edited image, each with the text before it; parts that
    lack one of them stay as they are.
    """
    spans: dict[str, tuple[int, int]] = {}
    for index, (kind, name) in enumerate(parts):
        if kind == "image" and name in ("source", "edited"):
            has_caption = index > 0 and parts[index - 1][0] == "text"
            spans.setdefault(name, (index - has_caption, index + 1))
    if len(spans) < 2:
        return parts
    (first, first_end), (second, second_end) = sorted(spans.values())
    before = parts[:first]
    between = parts[first_end:second]
    after = parts[second_end:]
    return before + parts[second:second_end] + between + parts[first:first_end] + after


@dataclass(eq=False)
class Ask:
    """One call about a judgement, on its way through the stage; `call` is `None` for a judge that
    measures.

    `failures` counts lost jobs, `reminders` holds the re-asks so far, and `doublings` counts how
    often a reply may be twice as long, since one was cut.
    """

    judgement: Judgement
    call: Call | None
    failures: int = 0
    reminders: list[str] = field(default_factory=list)
    doublings: int = 0

    @property
    def name(self) -> str:
        return self.call.name if self.call else ""

    @property
    def pair(self) -> EditPair:
        return self.judgement.pair

    @property
    def parts(self) -> Parts:
        """What is shown, as the judgement's perturbation has it."""
        parts = self.call.parts if self.call else ()
        return swap_images(parts) if self.judgement.perturbation == "order" else parts


def reply_recipe(identity: Identity, ask: Ask) -> strict_json.JsonObject:
    """Return all that decides an answer, but for the environment: images, rendered question, model.

    The text of a reminder is not among it: only an answer that needed one depends on it. Nor is
    what the protocol makes of a reply.
    """
    judgement = ask.judgement
    pair = ask.pair
    recipe: strict_json.JsonObject = {"judge": identity.digest}
    if ask.call is not None:
        recipe["asked"] = ask.call.recipe
        if identity.model.expects_grades and identity.model.grades_by_digits:
            recipe["scale"] = list(ask.call.grammar.scale)  # expected grades are those of one scale
    if identity.sees_pair:
        recipe |= {"pair": pair.id, "category": pair.category, "instruction": pair.instruction}
    if judgement.perturbation:
        recipe |= {"repeat": judgement.repeat, "perturbation": judgement.perturbation}
    recipe["images"] = {name: image.sha256 for name, image in _shown(identity, ask).items()}
    return recipe | judgement.edits


def _shown(identity: Identity, ask: Ask) -> dict[str, StoredImage]:
    """Return the images beside the edit that decide an answer: all for a judge that is shown more
    than the question.
    """
    images = ask.judgement.images
    if ask.call is None or identity.sees_pair:
        return images
    needed = set(ask.call.images)
    if ask.call.preparation.at_source_size:  # an edit that is resized depends on the source
        needed.add("source")
    return {name: image for name, image in images.items() if name in needed}


def make_question(identity: Identity, store: Store, ask: Ask) -> requests.Question[bytes]:
    """Build the question of a call about an edit, or about two; raise `ImageError` if an image
    cannot be read.
    """
    judgement = ask.judgement
    images = _read(identity, ask)
    for name, edit in judgement.edits.items():
        data = None if edit is None else store.blobs.get(edit)
        if data is None:
            raise errors.ImageError(
                f"the {name} image is not in the store any more, or was damaged"
            )
        images[name] = data
    needed = ask.call.images if ask.call else ("source",)
    for name in needed:
        if name not in images:
            raise errors.ImageError(f"no image {name!r}")
    change = _CHANGES.get(judgement.perturbation, bytes)
    return _question(identity, ask, {name: change(data) for name, data in images.items()})


def make_question_about(identity: Identity, ask: Ask, picture: bytes) -> requests.Question[bytes]:
    """Build the question of a call about a picture in place of an edit; raise `ImageError` if an
    image cannot be read.
    """
    return _question(identity, ask, _read(identity, ask) | {"edited": picture})


def _read(identity: Identity, ask: Ask) -> dict[str, bytes]:
    return {name: image.read() for name, image in _shown(identity, ask).items()}


def _question(
    identity: Identity, ask: Ask, images: Mapping[str, bytes]
) -> requests.Question[bytes]:
    """Build the question of a call from its images; the last reminder follows what is shown."""
    parts = tuple(ask.parts)
    if ask.reminders:
        parts += (("text", f"\n{ask.reminders[-1]}"),)
    question = requests.Question(
        pair_id=ask.pair.id,
        category=ask.pair.category,
        instruction=ask.pair.instruction,
        images=images,
        parts=parts,
        max_new_tokens=_length(identity, ask),
    )
    if ask.call is None:
        return question
    return replace(
        question,
        system=ask.call.system,
        aspects=ask.call.grammar.graded,
        preparation=ask.call.preparation,
    )


def _length(identity: Identity, ask: Ask) -> int:
    """Return how long a reply may be at least, in tokens: twice as long for each doubling; 0 leaves
    it to the judge.
    """
    length = ask.call.max_new_tokens if ask.call else 0
    if not ask.doublings:
        return length
    return int(2**ask.doublings) * max(length, identity.model.reply_limit)


def shown_size(work: Work, name: str, preparation: requests.Preparation) -> tuple[int, int]:
    """Return the size in which an image is shown; an edit to be made has that of its source."""
    width, height = _unscaled_size(work, name, preparation)
    if preparation.max_side is None:
        return width, height
    scale = min(1.0, preparation.max_side / max(1, width, height))
    return round(width * scale), round(height * scale)


def _unscaled_size(work: Work, name: str, preparation: requests.Preparation) -> tuple[int, int]:
    """Return the size of an image before it is scaled to a longest side; (0, 0) for one that the
    pair lacks.
    """
    is_edit = name in requests.EDITS
    if is_edit and work.edit is not None and not preparation.at_source_size:
        return work.edit.width, work.edit.height
    image = work.images.get("source" if is_edit else name)
    if image is None:
        return 0, 0
    return preparation.source_size(image.size) if preparation.resizes(name) else image.size
