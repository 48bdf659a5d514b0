"""GEdit-Bench (arXiv 2504.17761): `gedit:DIR`, where DIR holds the parquet files of the hub."""

from collections.abc import Iterator
from pathlib import Path

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import errors, pairs
from pytest_imgedit.suites.parquet import ParquetImage, parquet_rows
from pytest_imgedit.suites.public import Query, require_all, texts_of
from pytest_imgedit.suites.rows import Row, make_pairs

GROUPS = (
    "background_change",
    "color_alter",
    "material_alter",
    "motion_change",
    "ps_human",
    "style_change",
    "subject-add",
    "subject-remove",
    "subject-replace",
    "text_change",
    "tone_transfer",
)
COLUMNS = ("key", "task_type", "instruction", "instruction_language")


def load(folder: Path, query: Query, settings: SuiteSettings) -> Iterator[pairs.EditPair]:
    """Return the pairs of one language, `language=en` or `cn`, of `subset=full` or `intersection`.

    The source is `input_image`, the resized one, as in the authors' script. Pairs of the
    intersection have the tag `intersection`. Raises `UsageError` for a folder without these files,
    or without one of the groups.
    """
    language = query.choice("language", ("en", "cn"))
    subset = query.choice("subset", ("full", "intersection"))
    files = sorted(folder.rglob("*.parquet"))
    if not files:
        raise errors.UsageError(
            f"suite {query.spec}: no parquet files in {folder}, expected those of the hub's data "
            "set stepfun-ai/GEdit-Bench"
        )
    rows = [row for file in files for row in parquet_rows(file)]
    chosen = [row for row in rows if texts_of(row, COLUMNS)["instruction_language"] == language]
    if subset == "intersection":
        chosen = list(filter(_is_in_intersection, chosen))
    require_all(query.spec, GROUPS, {row.values["task_type"]: row for row in chosen})
    return make_pairs(chosen, _pair, [])


def _is_in_intersection(row: Row) -> bool:
    value = row.values.get("Intersection_exist")
    if value is not None and not isinstance(value, bool):
        raise row.error(f"'Intersection_exist' is {value!r:.40}, expected true or false")
    return bool(value)


def _pair(row: Row) -> pairs.EditPair:
    image = row.values.get("input_image")
    if not isinstance(image, ParquetImage):
        raise row.error("no image 'input_image', expected one")
    key = row.values["key"]
    return pairs.EditPair(
        id=pairs.slug(key),
        category=row.values["task_type"],
        instruction=row.values["instruction"],
        source=image,
        tags=("intersection",) if _is_in_intersection(row) else (),
        own_id=key,
        fields={"language": row.values["instruction_language"]},
        row=str(row),
    )
