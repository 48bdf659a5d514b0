"""Finished images from a folder, for models that cannot run here."""

from __future__ import annotations

from PIL import Image

from pytest_imgedit.core.errors import ImageError
from pytest_imgedit.core.requests import EditRequest


class FolderEditor:
    """Hands over a pair's finished image, which the harness puts in the request."""

    def __init__(self, folder: str, *, device: str) -> None:
        del folder, device

    def edit(self, request: EditRequest) -> Image.Image:
        """Raises `ImageError` for a request that is of no pair of the suite, such as a test's own photograph."""
        if request.reference is None:
            raise ImageError("editor folder: has finished images of the suite's pairs only")
        return request.reference
