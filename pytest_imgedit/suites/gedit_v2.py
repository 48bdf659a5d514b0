"""GEditBench v2 (arXiv 2603.28547): `gedit-v2:DIR`, where DIR holds the hub's parquet files."""

from collections.abc import Iterator
from pathlib import Path

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import pairs
from pytest_imgedit.suites import cells
from pytest_imgedit.suites.parquet import ParquetImage, hub_rows
from pytest_imgedit.suites.public import Query, required
from pytest_imgedit.suites.rows import SuiteRow, make_pairs

#: The category of pairs of a file without the column `task`, which the authors' loader never reads.
_NO_TASK = "edit"


def load(folder: Path, query: Query, settings: SuiteSettings) -> Iterator[pairs.EditPair]:
    """Return all pairs; the category is the column `task`, where the files have it.

    Raises `UsageError` for a folder without these files, and for a row without its key, its image
    or its instruction.
    """
    return make_pairs(hub_rows(folder, query.spec, "GEditBench-v2/GEditBench-v2"), _pair, [])


def _pair(row: SuiteRow) -> pairs.EditPair:
    """Make the pair of a row; raises `UsageError` if it lacks its image or a text."""
    image = row.values.get("source_image")
    if not isinstance(image, ParquetImage):
        raise row.error("no image 'source_image', expected one")
    key = required(row, "key", cells.as_identifier)
    return pairs.EditPair(
        id=pairs.slug(key),
        category=row.read("task", cells.as_name) or _NO_TASK,
        instruction=required(row, "instruction", cells.as_text),
        source=image,
        own_id=key,
        row=str(row),
    )
