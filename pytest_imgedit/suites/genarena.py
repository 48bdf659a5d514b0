"""GenArena: `genarena:DIR`, where DIR holds a folder of the hub's parquet files for each subset."""

from collections.abc import Iterator
from pathlib import Path

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import pairs
from pytest_imgedit.core.errors import SpecError
from pytest_imgedit.suites import cells
from pytest_imgedit.suites.parquet import listed_images, parquet_rows
from pytest_imgedit.suites.public import Query, required
from pytest_imgedit.suites.rows import SuiteRow, make_pairs

#: Digits in the names of finished edits, which are `000000.png` and so on in each subset.
_DIGITS = 6
#: Stands for every subset that is there.
_ALL = "all"


def load(folder: Path, query: Query, settings: SuiteSettings) -> Iterator[pairs.EditPair]:
    """Return the pairs of every subset, or of one: `subset=basic`, `reasoning` or `multiref`.

    The first of `input_images` is the source, the others are further sources. A pair is called
    `basic-000012`, and `000012` in its subset. Raises `UsageError` for a folder without these
    files, and for a row without an index, an image or a text.
    """
    files_by_subset = _subsets(folder, query.spec)
    subset = query.choice("subset", (_ALL, *files_by_subset))
    chosen = files_by_subset if subset == _ALL else [subset]
    rows = (row for name in chosen for file in files_by_subset[name] for row in parquet_rows(file))
    return make_pairs(rows, _pair, [])


def _subsets(folder: Path, spec: str) -> dict[str, list[Path]]:
    """Return the parquet files of each subset, by the name of its folder; raises `UsageError` if
    there are none.
    """
    files_by_subset: dict[str, list[Path]] = {}
    for file in sorted(folder.glob("*/data-*.parquet")):
        files_by_subset.setdefault(file.parent.name, []).append(file)
    if not files_by_subset:
        raise SpecError(
            f"suite {spec}: no parquet files SUBSET/data-*.parquet in {folder}, expected those of "
            "the hub's data set rhli/genarena"
        )
    return files_by_subset


def _pair(row: SuiteRow) -> pairs.EditPair:
    """Make the pair of a row; raises `UsageError` if it lacks its index, an image or a text."""
    subset = row.path.parent.name
    source, *further = listed_images(row, "input_images")
    number = f"{row.read('index', _as_index):0{_DIGITS}}"
    return pairs.EditPair(
        id=pairs.slug(f"{subset}-{number}"),
        category=required(row, "task_type", cells.as_name),
        instruction=required(row, "instruction", cells.as_text),
        source=source,
        further=tuple(further),
        tags=(subset,),
        own_id=number,
        fields={"subset": subset},
        row=str(row),
    )


def _as_index(value: object) -> int:
    """Read a whole number of at least 0; raises `ValueError` for anything else."""
    index = cells.as_whole(value)
    if index is None or index < 0:
        raise ValueError("expected a whole number of at least 0")
    return index
