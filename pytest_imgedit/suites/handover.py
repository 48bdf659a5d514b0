"""A suite as JSON that another process of the same session reads: its texts, and the locations of
its images.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_imgedit.core.images import FileImage
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.suites import base, rows


def to_index(suite: base.Suite) -> JsonObject | None:
    """Return the suite as JSON; `None` if an image is neither a file nor a row of one."""
    images = [image for pair in suite.pairs for image in pair.images.values()]
    if not all(isinstance(image, FileImage | rows.RowImage) for image in images):
        return None
    return {
        "name": suite.name,
        "sha256": suite.sha256,
        "counts": dict(suite.counts),
        "remarks": list(suite.remarks),
        "pairs": [_row(pair) for pair in suite.pairs],
    }


def _row(pair: EditPair) -> JsonObject:
    """Return a pair as JSON, in which the paths of its images are texts."""
    row = asdict(pair)
    for image in (row["source"], row["reference"], *row["further"]):
        if image is not None:
            image["path"] = str(image["path"])
    return row


def from_index(index: JsonObject) -> base.Suite:
    """Return the suite of which `to_index` made this JSON."""
    return base.Suite(
        name=index["name"],
        pairs=tuple(_pair(row) for row in index["pairs"]),
        sha256=index["sha256"],
        counts=index["counts"],
        remarks=tuple(index["remarks"]),
    )


def _pair(row: JsonObject) -> EditPair:
    """Return the pair of which `_row` made this JSON."""
    values = dict(row)
    values["tags"] = tuple(row["tags"])
    values["source"] = _image(row["source"])
    values["reference"] = _image(row["reference"])
    values["further"] = tuple(_image(image) for image in row["further"])
    return EditPair(**values)


def _image(image: JsonObject | None) -> Any:
    """Return an image in a row of a file, if it has the name of a field, or else an image file."""
    if image is None:
        return None
    kind = rows.RowImage if "name" in image else FileImage
    return kind(**{**image, "path": Path(image["path"])})
