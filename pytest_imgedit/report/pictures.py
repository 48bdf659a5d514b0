"""Where a page finds its images: in the store, in a folder beside it, or inside it."""

import base64
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

from pytest_imgedit.core import files
from pytest_imgedit.store.blobs import Blobs

_BLOB = re.compile(r"[0-9a-f]{2}/([0-9a-f]{64})(\.(?:png|jpg|webp))")


@dataclass(frozen=True, slots=True)
class Picture:
    """URLs of an image: its thumbnail, and the full image if a page can link to it."""

    thumbnail: str
    full: str | None


#: Returns the picture of a blob by its name below the store's `blobs` folder; `None` if the name is
#: not that of an image.
Locate = Callable[[str], Picture | None]


def linked(blobs: Path, page: Path) -> Locate:
    """Link to the images in the store, by their paths from the page's folder."""
    prefix = _store_url(blobs, page)
    return _by_thumbnail(
        blobs,
        lambda thumbnail, name: Picture(
            f"{prefix}/{thumbnail.relative_to(blobs)}", f"{prefix}/{name}"
        ),
    )


def folder_of(page: Path) -> Path:
    """Return the folder of the thumbnails of a page."""
    return page.with_name(f"{page.stem}_files")


def copied(blobs: Path, page: Path) -> Locate:
    """Copy thumbnails into `PAGE_files` beside the page, so that both can be moved together.

    The images themselves stay in the store. To locate one raises `OSError` if it cannot be copied.
    """
    folder = folder_of(page)
    prefix = _store_url(blobs, page)

    def copy(thumbnail: Path, name: str) -> Picture:
        folder.mkdir(parents=True, exist_ok=True)
        files.write_bytes(folder / thumbnail.name, thumbnail.read_bytes(), durable=False)
        return Picture(quote(f"{folder.name}/{thumbnail.name}"), f"{prefix}/{name}")

    return _by_thumbnail(blobs, copy)


def embedded(blobs: Path) -> Locate:
    """Embed thumbnails in the page itself; each is read once."""

    def embed(thumbnail: Path, _: str) -> Picture:
        data = base64.b64encode(thumbnail.read_bytes()).decode()
        return Picture(f"data:image/webp;base64,{data}", None)

    return cache(_by_thumbnail(blobs, embed))


def _store_url(blobs: Path, page: Path) -> str:
    """Return the URL of the store's `blobs` from the page's folder."""
    return quote(os.path.relpath(blobs.resolve(), page.parent.resolve()))


def _by_thumbnail(blobs: Path, picture: Callable[[Path, str], Picture]) -> Locate:
    """Return a function that finds or makes the thumbnail of a blob by its name, and returns what
    `picture` makes of both; `None` for a name of no image, or an image without a thumbnail.
    """
    store = Blobs(blobs)

    def locate(name: str) -> Picture | None:
        match = _BLOB.fullmatch(name)
        if match is None or not (blobs / name).is_file():
            return None
        digest, suffix = match.groups()
        path = store.made_thumbnail(digest, suffix)
        return None if path is None else picture(path, name)

    return locate
