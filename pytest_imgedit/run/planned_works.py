"""The works of a run: the images, recipe and key of each repetition of each selected pair."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from pytest_imgedit.core import environments, errors, images, requests, strict_json
from pytest_imgedit.core.pairs import EditPair, ImageSource
from pytest_imgedit.core.text import one_line
from pytest_imgedit.kinds.base import FinishedImages, Model
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.run.work import StoredImage, Work, file_prefix, grouped, source_of
from pytest_imgedit.store.store import Store

#: The kind of the error of a pair with more source images than the editor takes.
TOO_MANY_SOURCES = "too_many_sources"


def takes_sources_of(editor: Model, pair: EditPair) -> bool:
    """Tell whether an editor takes as many source images as a pair has."""
    return editor.max_sources is None or len(pair.sources) <= editor.max_sources


def make_works(
    pairs: Sequence[EditPair],
    suite_pairs: Sequence[EditPair],
    editor: Identity,
    store: Store,
    *,
    repetitions: int = 1,
    base_seed: int = 0,
) -> list[Work]:
    """List the work for the selected pairs and all their repetitions, in the order of the suite.

    `base_seed` is mixed into the seed of each edit. An image that cannot be read is an error of its
    pair alone.
    """
    reader = _InputReader(
        editor=editor,
        store=store,
        followers=_followers(suite_pairs) if editor.model.shown_reference == "next" else {},
        finished=editor.model.finished_images(suite_pairs),
    )
    works: list[Work] = []
    for pair in pairs:
        inputs = reader.read(pair)
        for repetition in range(repetitions):
            works.append(_make_work(pair, inputs, editor, pair.seed + repetition, base_seed))
    return works


@dataclass(kw_only=True)
class _Inputs:
    """The images of a pair as far as they can be read, and the `problem` for which it cannot be
    edited, if any, with the kind of its error.

    `shown` is what the editor is shown beside the sources, and `finished` the SHA-256 of a finished
    image.
    """

    source: StoredImage | None = None
    reference: StoredImage | None = None
    further: tuple[StoredImage, ...] = ()
    shown: ImageSource | None = None
    finished: str | None = None
    problem: str = ""
    error_kind: str = ""

    def refuse(self, kind: str, problem: str) -> None:
        self.error_kind = kind
        self.problem = problem


@dataclass(frozen=True, kw_only=True)
class _InputReader:
    """Reads the images of pairs into the store.

    `followers` are the pairs whose references are shown in place of a pair's own, and `finished`
    the images that an editor has finished before.
    """

    editor: Identity
    store: Store
    followers: Mapping[str, EditPair]
    finished: FinishedImages | None

    def read(self, pair: EditPair) -> _Inputs:
        """Return the images of a pair, or why it cannot be edited."""
        inputs = _Inputs()
        try:
            self._read_images(inputs, pair)
            self._choose_shown(inputs, pair)
        except errors.ImageError as error:
            inputs.refuse("bad_image", str(error))
        return inputs

    def _read_images(self, inputs: _Inputs, pair: EditPair) -> None:
        """Read the sources and the reference of a pair; raise `ImageError` for the first that
        cannot be read.
        """
        source = _keep(pair.source, self.store)
        reference = _keep(pair.reference, self.store)
        inputs.source = source  # only if the reference can be read too
        inputs.reference = reference
        further = [_keep(image, self.store) for image in pair.further]
        inputs.further = tuple(image for image in further if image is not None)

    def _choose_shown(self, inputs: _Inputs, pair: EditPair) -> None:
        """Choose what the editor is shown beside the sources, if anything, and refuse a pair with
        more sources than it takes.
        """
        model = self.editor.model
        if not takes_sources_of(model, pair):
            most = model.max_sources
            why = f" ({model.why_fewer_sources})" if model.why_fewer_sources else ""
            inputs.refuse(
                TOO_MANY_SOURCES,
                f"the pair has {len(pair.sources)} source images, editor {model.spec} takes "
                f"{'one' if most == 1 else f'at most {most}'}{why}",
            )
        elif model.shown_reference == "own":
            inputs.shown = inputs.reference
        elif pair.id in self.followers:
            inputs.shown = _keep(self.followers[pair.id].reference, self.store)
        elif self.finished is not None:
            _show_finished(inputs, self.finished.by_pair[pair.id])


def _show_finished(inputs: _Inputs, path: Path | str) -> None:
    """Show the finished image at a path, or refuse the pair if it cannot be read. A text instead of
    a path is the reason why there is no image.
    """
    kind = "bad_image" if inputs.source is None else "no_edit"
    if isinstance(path, str):
        inputs.refuse(kind, path)
        return
    inputs.shown = images.FileImage(path)
    try:
        inputs.finished = hashlib.sha256(inputs.shown.read()).hexdigest()
    except errors.ImageError as error:
        inputs.refuse(kind, str(error))


def _make_work(
    pair: EditPair, inputs: _Inputs, editor: Identity, seed: int, base_seed: int
) -> Work:
    """Make the work of one repetition of a pair, which has this `seed`; it ends in an error if the
    pair was refused.
    """
    work = Work(
        pair=pair,
        seed=seed,
        generator_seed=requests.job_seed(seed, pair.id, base_seed),
        source=inputs.source,
        reference=inputs.reference,
        further=inputs.further,
        shown=inputs.shown,
    )
    if inputs.problem:
        work.fail(inputs.error_kind, inputs.problem)
        return work
    work.recipe = edit_recipe(
        editor,
        pair,
        seed=work.generator_seed,
        source=_sha256(inputs.source),
        shown=_sha256(inputs.shown),
        finished=inputs.finished,
        further=[image.sha256 for image in inputs.further],
    )
    work.content = environments.key(work.recipe)
    return work


def edit_recipe(
    editor: Identity,
    pair: EditPair,
    *,
    seed: int,
    source: str | None,
    shown: str | None,
    finished: str | None = None,
    further: Sequence[str] = (),
) -> strict_json.JsonObject:
    """Return what decides an edit.

    `seed` is that of the generator; `source`, `shown`, `finished` and `further` are SHA-256 of
    encoded images. A `finished` image decides the edit without the instruction, the seed and the
    further source images.
    """
    recipe: strict_json.JsonObject = {"editor": editor.digest, "source": source}
    if finished is not None:
        recipe["image"] = finished
        return recipe
    recipe |= {
        "instruction": pair.editor_instruction,
        "seed": seed,
        "shown": shown,
        "batch_size": editor.model.batch_size,
    }
    if further:
        recipe["further"] = list(further)
        recipe["edited_source"] = pair.edited_source
    if editor.sees_pair:
        recipe |= {"pair": pair.id, "category": pair.category}
    return recipe


def in_batches_of(recipe: strict_json.JsonObject, batch_size: int) -> strict_json.JsonObject:
    """Return the recipe of an edit that is made with another batch size; that of a finished image
    has none.
    """
    return recipe | {"batch_size": batch_size} if "batch_size" in recipe else recipe


def hand_over(works: Iterable[Work], editor: Identity) -> None:
    """Assign works without an error to another editor of the same kind, and drop their edits."""
    for work in works:
        if work.error is None:
            work.recipe = work.recipe | {"editor": editor.digest}
            work.content = environments.key(work.recipe)
            work.edit = None


def _sha256(image: ImageSource | None) -> str | None:
    return image.sha256 if isinstance(image, StoredImage) else None


def _keep(image: ImageSource | None, store: Store) -> StoredImage | None:
    """Put an image into the store, if there is one; raise `ImageError` if it cannot be read."""
    if image is None:
        return None
    try:
        data = image.read()
        if not isinstance(data, bytes):
            raise TypeError(f"read() returned {type(data).__name__}, expected bytes")
    except (errors.ImageError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a user's image source can raise anything, SystemExit too
        raise errors.ImageError(f"{type(error).__name__}: {one_line(error)}") from error
    try:
        size = images.checked_size(data)
    except errors.ImageError as error:
        raise errors.ImageError(f"{file_prefix(image)}{error}") from None
    return StoredImage(
        store.blobs.put(data, durable=False), images.suffix_of(data), size, image, store
    )


def _followers(pairs: Sequence[EditPair]) -> dict[str, EditPair]:
    """Return, by id, the next pair of the same source, or else of the same category, if that has
    another reference.
    """
    followers: dict[str, EditPair] = {}
    by_category = grouped(pairs, attrgetter("category"))
    by_source = grouped(pairs, source_of)
    for group in list(by_category.values()) + list(by_source.values()):
        following_pairs = group[1:] + group[:1]
        for pair, following in zip(group, following_pairs, strict=True):
            if following.reference != pair.reference:
                followers[pair.id] = following
    return followers
