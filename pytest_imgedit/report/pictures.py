"""Where a page finds its images: in the store, in a folder beside it, or inside it."""

from __future__ import annotations

import base64
import io
import os
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from urllib.parse import quote

#: Longest side in pixels, and quality, of images that are embedded in a page.
EMBEDDED_SIZE, EMBEDDED_QUALITY = 512, 80
_BLOB = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}\.(png|jpg|webp)")


def _is_blob(blobs: Path, name: str) -> bool:
    """Tell whether the store has this blob; a name that would lead elsewhere is none."""
    return bool(_BLOB.fullmatch(name)) and (blobs / name).is_file()


def linked(blobs: Path, page: Path) -> Callable[[str], str | None]:
    """Find images where the store has them, by the path from the page's folder."""
    prefix = quote(os.path.relpath(blobs.resolve(), page.parent.resolve()))
    return lambda name: f"{prefix}/{name}" if _is_blob(blobs, name) else None


def copied(blobs: Path, page: Path) -> Callable[[str], str | None]:
    """Copy images into `PAGE_files` beside the page, so that both can be moved together; raises `OSError`."""
    folder = page.with_name(f"{page.stem}_files")

    def locate(name: str) -> str | None:
        source, target = blobs / name, folder / name.rpartition("/")[2]
        if not _is_blob(blobs, name):
            return None
        if not target.exists() or target.stat().st_size != source.stat().st_size:
            folder.mkdir(exist_ok=True)
            shutil.copyfile(source, target)
        return quote(f"{folder.name}/{target.name}")

    return locate


def embedded(blobs: Path) -> Callable[[str], str | None]:
    """Put images into the page itself, as WebP of at most `EMBEDDED_SIZE` pixels a side."""
    from PIL import Image

    from pytest_imgedit.core.errors import ImageError
    from pytest_imgedit.core.images import decode

    @cache
    def locate(name: str) -> str | None:
        if not _is_blob(blobs, name):
            return None
        try:
            image = decode((blobs / name).read_bytes())
        except (OSError, ImageError):
            return None
        image.thumbnail((EMBEDDED_SIZE, EMBEDDED_SIZE), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        image.save(buffer, "WEBP", quality=EMBEDDED_QUALITY)
        return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"

    return locate
