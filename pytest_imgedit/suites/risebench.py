"""RISEBench (arXiv 2504.02826): `risebench:DIR`, where DIR holds `datav2_total_w_subtask.json` or
`data_total.json`.
"""

from collections.abc import Iterator
from pathlib import Path, PurePath

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import errors, pairs
from pytest_imgedit.core.images import FileImage
from pytest_imgedit.kinds.folder import SUFFIXES
from pytest_imgedit.protocols.prompts import find
from pytest_imgedit.suites import cells, rows
from pytest_imgedit.suites.public import (
    Query,
    require_all,
    require_images,
    required,
    text_of,
)

#: All 360 pairs, and the 64 of the repository.
FILES = ("datav2_total_w_subtask.json", "data_total.json")
CATEGORIES = ("temporal", "causal", "spatial", "logical")


def load(folder: Path, query: Query, settings: SuiteSettings) -> Iterator[pairs.EditPair]:
    """Return the pairs of a RISEBench folder.

    The suffix `_reasoning` of categories is dropped, the subtask is a tag. `reference_img` is the
    reference image, `reference_txt` or `reference` the reference text. Raises `UsageError` if the
    file, a field, a category or an image is missing.
    """
    path = find(folder, FILES, f"the pairs of RISEBench for suite {query.spec}")
    problems: list[errors.UsageError] = []
    everything = list(rows.read_rows(path, problems))
    rows.raise_problems(problems)
    columns = {name for row in everything for name in row.values}
    made = [_pair(row, columns) for row in everything]
    require_all(query.spec, CATEGORIES, {pair.category: pair for pair in made})
    images = (image for pair in made for image in pair.images.values())
    require_images(query.spec, (image for image in images if isinstance(image, FileImage)))
    return iter(made)


def _pair(row: rows.SuiteRow, columns: set[str]) -> pairs.EditPair:
    """Make the pair of a row of a file with these columns; raises `UsageError` if a field is
    missing, or of a wrong type.
    """
    index = required(row, "index", cells.as_identifier)
    category = required(row, "category", cells.as_name)
    reference = text_of(row, "reference_img")
    subtask = text_of(row, "subtask")
    tags = (subtask,) if subtask else ()
    return pairs.EditPair(
        id=pairs.slug(index),
        category=pairs.category_slug(category),
        instruction=required(row, "instruction", cells.as_text),
        source=rows.image_below(row, required(row, "image", cells.as_text)),
        reference=rows.image_below(row, reference) if reference else None,
        reference_text=text_of(row, "reference_txt") or text_of(row, "reference"),
        tags=tags,
        own_id=index,
        fields=_deciding(row, columns),
        row=str(row),
    )


def _deciding(row: rows.SuiteRow, columns: set[str]) -> dict[str, str]:
    """Return the fields on which the calls depend: truths, and texts that are there.

    The authors' code asks of two columns only whether the file has them at all. It counts a cell of
    `consistency_free` that is missing as true, but not one that says false. Raises `UsageError` for
    a cell that is neither.
    """
    is_free = row.read("consistency_free", cells.as_truth)
    fields = {name: text_of(row, name) for name in ("reference_img", "reference_txt")}
    fields["consistency_free"] = "True" if is_free else ""
    fields["reasoning_img"] = "True" if row.read("reasoning_img", _shows_image) else ""
    if "reasoning_wo_ins" in columns:
        fields["reasoning_wo_ins"] = "yes"
    if "consistency_free" in columns and is_free is not False:
        fields["has_consistency_free"] = "yes"
    return {name: text for name, text in fields.items() if text}


def _shows_image(value: object) -> bool | None:
    """Read whether an image is shown, which the name of one says too; `None` for a missing
    value.
    """
    if isinstance(value, str) and PurePath(value.strip()).suffix.lower() in SUFFIXES:
        return True
    return cells.as_truth(value)
