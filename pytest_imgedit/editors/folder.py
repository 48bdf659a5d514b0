"""Finished images from a folder, for models that cannot run here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_imgedit.errors import ImageError, SetupError
from pytest_imgedit.images import FileImage, decode

if TYPE_CHECKING:
    from PIL import Image

    from pytest_imgedit.editors.base import EditRequest

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


class FolderEditor:
    """Reads `DIR/<category>/<id>.png`, else `DIR/<id>.png` (or .jpg, .jpeg, .webp)."""

    def __init__(self, folder: str, *, device: str) -> None:
        del device
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise SetupError(f"editor folder:{folder}: no such folder")

    def edit(self, request: EditRequest) -> Image.Image:
        """Raises `ImageError` if there is no image for the pair, or if it cannot be read."""
        path = find_image(self.folder, request.category, request.pair_id)
        if path is None:
            raise ImageError(f"no image in {self.folder}, expected {request.category}/{request.pair_id}.png")
        return decode(FileImage(path).read())


def find_image(folder: Path, category: str, pair_id: str) -> Path | None:
    """Return the finished image of a pair: that of its category's folder before that of the folder itself."""
    for base in (folder / category / pair_id, folder / pair_id):
        for suffix in SUFFIXES:
            path = base.with_name(base.name + suffix)
            if path.is_file():
                return path
    return None
