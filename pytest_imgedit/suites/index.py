"""A suite as JSON that another process of the same session reads: texts, and where each image
is.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from pytest_imgedit.core.images import FileImage
from pytest_imgedit.core.pairs import EditPair, ImageSource
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.suites.base import Suite
from pytest_imgedit.suites.rows import RowImage

_TEXTS = [field.name for field in fields(EditPair) if field.name not in ("source", "reference")]


def to_index(suite: Suite) -> JsonObject | None:
    """Return the suite as JSON; `None` if an image is neither a file nor a row of one."""
    images = [
        image
        for pair in suite.pairs
        for image in (pair.source, pair.reference)
        if image is not None
    ]
    if not all(isinstance(image, FileImage | RowImage) for image in images):
        return None
    return {
        "name": suite.name,
        "sha256": suite.sha256,
        "counts": dict(suite.counts),
        "remarks": list(suite.remarks),
        "pairs": [_row(pair) for pair in suite.pairs],
    }


def _row(pair: EditPair) -> JsonObject:
    texts = {name: getattr(pair, name) for name in _TEXTS}
    return {**texts, "source": _place(pair.source), "reference": _place(pair.reference)}


def from_index(index: JsonObject) -> Suite:
    """Make the suite of its JSON again."""
    pairs = tuple(
        EditPair(
            **{
                **row,
                "tags": tuple(row["tags"]),
                **{name: _image(row[name]) for name in ("source", "reference")},
            }
        )
        for row in index["pairs"]
    )
    return Suite(index["name"], pairs, index["sha256"], index["counts"], tuple(index["remarks"]))


def _place(image: ImageSource | None) -> JsonObject | None:
    if image is None:
        return None
    assert isinstance(image, FileImage | RowImage)
    return {**asdict(image), "path": str(image.path)}


def _image(place: JsonObject | None) -> Any:
    if place is None:
        return None
    kind = RowImage if "name" in place else FileImage
    return kind(**{**place, "path": Path(place["path"])})
