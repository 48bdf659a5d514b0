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
    row = asdict(pair)
    for image in filter(None, (row["source"], row["reference"], *row["further"])):
        image["path"] = str(image["path"])
    return row


def from_index(index: JsonObject) -> base.Suite:
    """Return the suite that `to_index` wrote."""
    pairs = tuple(
        EditPair(
            **{
                **row,
                "tags": tuple(row["tags"]),
                "source": _image(row["source"]),
                "reference": _image(row["reference"]),
                "further": tuple(map(_image, row["further"])),
            }
        )
        for row in index["pairs"]
    )
    return base.Suite(
        index["name"], pairs, index["sha256"], index["counts"], tuple(index["remarks"])
    )


def _image(image: JsonObject | None) -> Any:
    if image is None:
        return None
    kind = rows.RowImage if "name" in image else FileImage
    return kind(**{**image, "path": Path(image["path"])})
