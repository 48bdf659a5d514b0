"""Which edits are their pair's reference image."""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pytest_imgedit.core import errors, images
from pytest_imgedit.kinds.edit_checks import is_same
from pytest_imgedit.run.work import Work
from pytest_imgedit.store.store import Store

#: How many edits are decoded at a time, at most.
MOST_THREADS = 8


def mark_leaks(works: Iterable[Work], store: Store) -> None:
    """Mark the edits that equal the reference of their pair, unless it hardly differs from the
    source.

    The reference does not decide an edit, and is not in its record: a stored edit is compared with
    the reference that its pair has now. Decoding takes most of the time, and runs in threads.
    """
    edited = list(works)
    try:
        with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
            for _ in pool.map(lambda work: _mark_leak(work, store), edited):
                pass  # raises what was raised in a thread
    except RuntimeError as error:
        if errors.system_refusal(error) is None:
            raise
        for work in edited:  # no more threads
            _mark_leak(work, store)


def _mark_leak(work: Work, store: Store) -> None:
    """Mark the edit of a work if it equals the reference. An edit that is nearly its source stays
    as it is, and so does one of another size, or of an image that cannot be read.
    """
    edit = work.edit
    reference = work.reference
    if edit is None or reference is None or edit.near_copy:
        return
    if reference.size != (edit.width, edit.height):
        return
    try:
        wanted = images.decode(reference.read())
        edited = images.decode(store.blobs.get(edit.blob) or b"")
    except errors.ImageError:
        return
    work.edit = replace(edit, leaked=is_same(edited, wanted))
