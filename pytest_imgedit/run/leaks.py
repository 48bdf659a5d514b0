"""Which edits are their pair's reference image."""

from collections.abc import Iterable
from dataclasses import replace

from pytest_imgedit.core import errors, images
from pytest_imgedit.kinds.edit_checks import is_same
from pytest_imgedit.run.work import Work
from pytest_imgedit.store.store import Store


def mark_leaks(works: Iterable[Work], store: Store) -> None:
    """Mark the edits that equal the reference of their pair, unless it hardly differs from the
    source.

    The reference does not decide an edit, and is not in its record: a stored edit is compared with
    the reference that its pair has now.
    """
    last, image = "", None  # the repetitions of a pair follow each other
    for work in works:
        edit, reference = work.edit, work.reference
        if edit is None or reference is None or edit.near_copy:
            continue
        if reference.size != (edit.width, edit.height):
            continue
        try:
            if image is None or reference.sha256 != last:
                last, image = reference.sha256, images.decode(reference.read())
            edited = images.decode(store.blobs.get(edit.blob) or b"")
            work.edit = replace(edit, leaked=is_same(edited, image))
        except errors.ImageError:
            continue  # what cannot be read is compared with nothing
