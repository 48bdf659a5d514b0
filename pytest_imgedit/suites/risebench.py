"""RISEBench (arXiv 2504.02826): `risebench:DIR`, where DIR holds `datav2_total_w_subtask.json` or
`data_total.json`.
"""

from collections.abc import Iterator
from pathlib import Path

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import errors, pairs
from pytest_imgedit.core.images import FileImage
from pytest_imgedit.protocols.prompts import find
from pytest_imgedit.suites import rows
from pytest_imgedit.suites.public import Query, require_all, require_images, text_of, texts_of

#: All 360 pairs, and the 64 of the repository.
FILES = ("datav2_total_w_subtask.json", "data_total.json")
CATEGORIES = ("temporal", "causal", "spatial", "logical")
#: Fields on which the calls depend if they hold anything.
DECIDING = ("consistency_free", "reasoning_img", "reference_img", "reference_txt")


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


def _pair(row: rows.Row, columns: set[str]) -> pairs.EditPair:
    texts = texts_of(row, ("index", "category", "instruction", "image"))
    reference, subtask = text_of(row, "reference_img"), text_of(row, "subtask")
    return pairs.EditPair(
        id=pairs.slug(texts["index"]),
        category=pairs.category_slug(texts["category"]),
        instruction=texts["instruction"],
        source=rows.image_below(row, texts["image"]),
        reference=rows.image_below(row, reference) if reference else None,
        reference_text=text_of(row, "reference_txt") or text_of(row, "reference"),
        tags=(subtask,) if subtask else (),
        own_id=texts["index"],
        fields=_deciding(row, columns),
        row=str(row),
    )


def _deciding(row: rows.Row, columns: set[str]) -> dict[str, str]:
    """Return the fields on which the calls depend; raises `UsageError` for a list or an object.

    The authors' code asks of two columns only whether the file has them at all.
    """
    values = {name: row.values.get(name) for name in DECIDING}
    for name, value in values.items():
        if isinstance(value, list | dict):
            raise row.error(f"{name!r} is {value!r:.40}, expected text, a number, true or false")
    fields = {name: str(value) for name, value in values.items() if value is not None}
    if "reasoning_wo_ins" in columns:
        fields["reasoning_wo_ins"] = "yes"
    if "consistency_free" in columns:
        fields["has_consistency_free"] = "yes"
    return fields
