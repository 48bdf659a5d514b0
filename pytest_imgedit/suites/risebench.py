"""RISEBench (arXiv 2504.02826): `risebench:DIR`, where DIR holds `data_total.json` or
`datav2_total_w_subtask.json`.
"""

from collections.abc import Iterator
from pathlib import Path

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import errors, pairs, sanitize
from pytest_imgedit.suites import native, rows

FILES = ("data_total.json", "datav2_total_w_subtask.json")


def load(argument: str, settings: SuiteSettings) -> Iterator[pairs.EditPair]:
    """Return the pairs of a RISEBench folder.

    The suffix `_reasoning` of categories (causal, logical, spatial, temporal) is dropped.
    `reference_img` is the reference image, `reference` or `reference_txt` the reference text.
    Raises `UsageError` if the folder or a field is missing.
    """
    folder = Path(argument)
    path = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if path is None:
        raise errors.UsageError(f"suite risebench:{argument}: no {' or '.join(FILES)} in {folder}")
    problems: list[errors.UsageError] = []
    return rows.make_pairs(rows.read_rows(path, problems), _pair, problems)


def _pair(row: rows.Row) -> pairs.EditPair:
    values = row.values
    for name in ("index", "category", "instruction", "image"):
        if not isinstance(values.get(name), str) or not values[name].strip():
            raise row.error(f"{name!r} is {values.get(name)!r}, expected text")
    if mark := sanitize.steering(values["index"]):
        raise row.error(f"'index' is {values['index']!a} with {mark}, expected printable text")
    reference = values.get("reference_img")
    if reference is not None and not isinstance(reference, str):
        raise row.error(f"'reference_img' is {reference!r}, expected text")
    return pairs.EditPair(
        id=pairs.slug(values["index"]),
        category=pairs.category_slug(values["category"]),
        instruction=values["instruction"].strip(),
        source=native.beside(row, values["image"]),
        reference=native.beside(row, reference) if reference else None,
        reference_text=str(values.get("reference_txt") or values.get("reference") or ""),
        tags=(values["subtask"],) if values.get("subtask") else (),
        row=str(row),
    )
