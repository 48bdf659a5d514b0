"""GEdit-Bench (arXiv 2504.17761): `gedit:DIR`, where DIR holds the parquet files of the hub."""

from collections.abc import Iterator
from pathlib import Path

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import pairs
from pytest_imgedit.suites import cells
from pytest_imgedit.suites.parquet import ParquetImage, hub_rows
from pytest_imgedit.suites.public import Query, require_all, required
from pytest_imgedit.suites.rows import SuiteRow, make_pairs

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
LANGUAGES = ("en", "cn")


def load(folder: Path, query: Query, settings: SuiteSettings) -> Iterator[pairs.EditPair]:
    """Return the pairs of one language, `language=en` or `cn`, of `subset=full` or `intersection`.

    The source is `input_image`, the resized one, as in the authors' script. Pairs of the
    intersection have the tag `intersection`. Raises `UsageError` for a folder without these files,
    or without one of the groups.
    """
    language = query.choice("language", LANGUAGES)
    subset = query.choice("subset", ("full", "intersection"))
    rows = hub_rows(folder, query.spec, "stepfun-ai/GEdit-Bench")
    chosen = [row for row in rows if _language(row) == language]
    if subset == "intersection":
        chosen = list(filter(_is_in_intersection, chosen))
    made = list(make_pairs(chosen, _pair, []))
    require_all(query.spec, GROUPS, {pair.category: pair for pair in made})
    return iter(made)


def _language(row: SuiteRow) -> str:
    """Return the language of a row; raises `UsageError` unless it is one of `LANGUAGES`."""
    language = required(row, "instruction_language", cells.as_name)
    if language not in LANGUAGES:
        raise row.error(
            f"'instruction_language' is {language!r:.40}, expected one of {', '.join(LANGUAGES)}"
        )
    return language


def _is_in_intersection(row: SuiteRow) -> bool:
    return row.read("Intersection_exist", cells.as_truth) is True


def _pair(row: SuiteRow) -> pairs.EditPair:
    """Make the pair of a row; raises `UsageError` if it lacks its image or a text."""
    image = row.values.get("input_image")
    if not isinstance(image, ParquetImage):
        raise row.error("no image 'input_image', expected one")
    key = required(row, "key", cells.as_identifier)
    return pairs.EditPair(
        id=pairs.slug(key),
        category=required(row, "task_type", cells.as_name),
        instruction=required(row, "instruction", cells.as_text),
        source=image,
        tags=("intersection",) if _is_in_intersection(row) else (),
        own_id=key,
        fields={"language": _language(row)},
        row=str(row),
    )
