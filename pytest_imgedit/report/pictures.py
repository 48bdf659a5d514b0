"""Where a page finds its images: in the store, in a folder beside it, or inside it."""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from urllib.parse import quote

_BLOB = re.compile(r"[0-9a-f]{2}/([0-9a-f]{64})\.(?:png|jpg|webp)")


@dataclass(frozen=True, slots=True)
class Picture:
    """URLs of an image: of its thumbnail, and of all its pixels where a page can lead to them."""

    thumbnail: str
    full: str | None


#: Gives the picture for the name of a blob below the store's `blobs` folder; `None` where there is
#: none.
Locate = Callable[[str], Picture | None]


def linked(blobs: Path, page: Path) -> Locate:
    """Find images where the store has them, by their paths from the page's folder."""
    prefix = _way(blobs, page)

    def locate(name: str) -> Picture | None:
        thumbnail = _thumbnail(blobs, name)
        if thumbnail is None:
            return None
        return Picture(f"{prefix}/{thumbnail.relative_to(blobs)}", f"{prefix}/{name}")

    return locate


def copied(blobs: Path, page: Path) -> Locate:
    """Copy thumbnails into `PAGE_files` beside the page, so that both can be moved together; raises
    `OSError`.

    The images themselves stay in the store.
    """
    folder, prefix = page.with_name(f"{page.stem}_files"), _way(blobs, page)

    def locate(name: str) -> Picture | None:
        thumbnail = _thumbnail(blobs, name)
        if thumbnail is None:
            return None
        folder.mkdir(exist_ok=True)
        shutil.copyfile(thumbnail, folder / thumbnail.name)
        return Picture(quote(f"{folder.name}/{thumbnail.name}"), f"{prefix}/{name}")

    return locate


def _way(blobs: Path, page: Path) -> str:
    """Return the URL of the store's `blobs` from the page's folder."""
    return quote(os.path.relpath(blobs.resolve(), page.parent.resolve()))


def embedded(blobs: Path) -> Locate:
    """Put thumbnails into the page itself."""

    @cache
    def locate(name: str) -> Picture | None:
        thumbnail = _thumbnail(blobs, name)
        if thumbnail is None:
            return None
        return Picture(
            f"data:image/webp;base64,{base64.b64encode(thumbnail.read_bytes()).decode()}", None
        )

    return locate


def _thumbnail(blobs: Path, name: str) -> Path | None:
    """Return the thumbnail of a blob, made now if it is missing; `None` for what is no blob or no
    image.
    """
    from pytest_imgedit.core.errors import ImageError, StoreError
    from pytest_imgedit.core.images import decode, thumbnail
    from pytest_imgedit.store.blobs import Blobs

    match = _BLOB.fullmatch(name)
    if match is None or not (blobs / name).is_file():
        return None
    store, sha256 = Blobs(blobs), match[1]
    if store.thumbnail(sha256) is None:
        data = (
            store.get(sha256, PurePath(name).suffix) or b""
        )  # of no other bytes than its name says
        with suppress(ImageError, StoreError):
            store.put_thumbnail(sha256, thumbnail(decode(data)))
    return store.thumbnail(sha256)
