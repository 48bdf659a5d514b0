"""Whether a served editor obeys the seeds that it is sent, tried once a store and recipe."""

import hashlib
from collections.abc import Sequence

from pytest_imgedit.core import environments, errors
from pytest_imgedit.core.results import SeedTrial
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.kinds.server_answers import read_image
from pytest_imgedit.store.store import Store


def is_due(editor: Identity, store: Store) -> bool:
    """Tell whether an editor is sent seeds that were not tried yet."""
    return editor.model.sends_seeds and result_of(editor, store) is None


def store_trial(editor: Identity, store: Store, answers: Sequence[bytes]) -> None:
    """Store what three answers of a server show: to one request, to the same again, and to the same
    with another seed. Answers that hold no image leave the trial to the next run.
    """
    try:
        first, same, other = map(_digest, answers)
    except errors.OutputError:
        return
    trial = SeedTrial(repeats=same == first, varies=other != first)
    recipe = _subject(editor) | trial.model_dump()
    store.remember(environments.key(_subject(editor)), recipe)


def _digest(answer: bytes) -> str:
    """Return the SHA-256 of the pixels in an answer; raises `OutputError` if it holds no image."""
    image = read_image(answer)
    return hashlib.sha256(repr(image.size).encode() + image.tobytes()).hexdigest()


def _subject(editor: Identity) -> dict[str, str]:
    return {"seeds_of": editor.digest}


def result_of(editor: Identity, store: Store) -> SeedTrial | None:
    """Return what an earlier trial, or that of this run, has shown; `None` without one."""
    record = store.models.records.get(environments.key(_subject(editor)))
    if record is None:
        return None
    return SeedTrial(repeats=record.recipe["repeats"], varies=record.recipe["varies"])
