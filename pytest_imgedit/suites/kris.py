"""KRIS-Bench (arXiv 2505.16707): `kris:DIR`, where DIR holds a folder for each category."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import pairs
from pytest_imgedit.protocols.kris import TYPES
from pytest_imgedit.protocols.prompts import find
from pytest_imgedit.suites import cells
from pytest_imgedit.suites.public import (
    Query,
    keyed_rows,
    require_all,
    require_images,
    required,
    text_of,
)
from pytest_imgedit.suites.rows import SuiteRow, image_below

CATEGORIES = tuple(category for categories in TYPES.values() for category in categories)
_FRAME = re.compile(r"\d-(?P<frame>\d+)")


def load(folder: Path, query: Query, settings: SuiteSettings) -> Iterator[pairs.EditPair]:
    """Yield the pairs of every `annotation.json`.

    The explanation is the reference text, `gt_img` the reference image. Pairs of
    `temporal_prediction` and `multi-element_composition` have several source images. `totals` of
    the query chooses the protocol. Raises `UsageError` for other `totals`, for a folder without a
    category, and for a row without an image or a text.
    """
    query.choice("totals", ("paper", "bagel"))  # checked here, used by `protocols.loading`
    first = find(
        folder, (f"{CATEGORIES[0]}/annotation.json",), f"KRIS-Bench for suite {query.spec}"
    )
    root = first.parent.parent
    paths = {category: root / category / "annotation.json" for category in CATEGORIES}
    present = {category: path for category, path in paths.items() if path.is_file()}
    require_all(query.spec, CATEGORIES, present)
    for category, path in paths.items():
        for key, row in keyed_rows(path, "the pairs of KRIS-Bench").items():
            yield _pair(query, category, key, row)


def _pair(query: Query, category: str, key: str, row: SuiteRow) -> pairs.EditPair:
    """Make the pair of a row, whose key is its name within the category; raises `UsageError` if an
    image is not there, or a text is missing.
    """
    names = row.read("ori_img", _names)
    reference_name = text_of(row, "gt_img")
    source, *further = [image_below(row, name) for name in names]
    reference = image_below(row, reference_name) if reference_name else None
    images = [source, *further]
    if reference is not None:
        images.append(reference)
    require_images(query.spec, images)
    fields: dict[str, str] = {}
    if category == "temporal_prediction":
        fields["frames"] = ",".join(_frames(row, names))
    return pairs.EditPair(
        id=pairs.slug(f"{category}-{key}"),
        category=category,
        instruction=required(row, "ins_en", cells.as_text),
        source=source,
        further=tuple(further),
        reference=reference,
        reference_text=text_of(row, "explain_en"),
        own_id=key,
        fields=fields,
        row=str(row),
    )


def _frames(row: SuiteRow, names: list[str]) -> list[str]:
    """Return the number of the frame in the name of each image; raises `UsageError` if one has
    none.
    """
    frames = []
    for name in names:
        match = _FRAME.search(name)
        if match is None:
            raise row.error(f"'ori_img' is {names!r:.80}, expected names such as 3-1.png")
        frames.append(match["frame"])
    return frames


def _names(value: object) -> list[str]:
    """Read the name of an image, or a list of them; raises `ValueError` for anything else, and for
    none.
    """
    is_name = isinstance(value, str) and not value.lstrip().startswith("[")
    if is_name and not cells.is_missing(value):
        value = [value]
    with suppress(ValueError):
        names = cells.as_texts(value)
        if names:
            return names
    raise ValueError("expected one image or several")
