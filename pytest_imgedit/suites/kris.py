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
_FRAME = re.compile(r"(\d+)-(\d+)")


def load(folder: Path, query: Query, settings: SuiteSettings) -> Iterator[pairs.EditPair]:
    """Yield the pairs of every `annotation.json`.

    The explanation is the reference text, `gt_img` the reference image. Pairs of
    `temporal_prediction` and `multi-element_composition` have several source images. `totals` of
    the query chooses the protocol (`protocols.loading`). Raises `UsageError` for a folder without a
    category, or without an image.
    """
    query.choice("totals", ("paper", "bagel"))
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
    names = row.read("ori_img", _names)
    truth = text_of(row, "gt_img")
    files = [*names, truth] if truth else names
    images = [image_below(row, name) for name in files]
    require_images(query.spec, images)
    fields: dict[str, str] = {}
    if category == "temporal_prediction":
        fields["frames"] = ",".join(_frames(row, names))
    return pairs.EditPair(
        id=pairs.slug(f"{category}-{key}"),
        category=category,
        instruction=required(row, "ins_en", cells.as_text),
        source=images[0],
        further=tuple(images[1 : len(names)]),
        reference=images[-1] if truth else None,
        reference_text=text_of(row, "explain_en"),
        own_id=key,
        fields=fields,
        row=str(row),
    )


def _frames(row: SuiteRow, names: list[str]) -> list[str]:
    """Return the number of the frame in the name of each image; raises `UsageError` if one has
    none.
    """
    matches = map(_FRAME.search, names)
    frames = [match[2] for match in matches if match]
    if len(frames) != len(names):
        raise row.error(f"'ori_img' is {names!r:.80}, expected names such as 3-1.png")
    return frames


def _names(value: object) -> list[str]:
    """Read the name of an image, or a list of them."""
    is_one = isinstance(value, str) and not value.lstrip().startswith("[")
    with suppress(ValueError):
        if names := cells.as_texts([value] if is_one and not cells.is_missing(value) else value):
            return names
    raise ValueError("expected one image or several")
