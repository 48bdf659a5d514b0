"""ImgEdit-Bench, basic (arXiv 2505.20275): `imgedit:DIR`, where DIR holds the authors' files."""

from collections.abc import Iterator
from pathlib import Path

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import pairs
from pytest_imgedit.protocols.prompts import find
from pytest_imgedit.suites import cells
from pytest_imgedit.suites.public import (
    Query,
    keyed_rows,
    require_all,
    require_images,
    required,
)
from pytest_imgedit.suites.rows import SuiteRow, image_below

TYPES = (
    "add",
    "adjust",
    "extract",
    "replace",
    "remove",
    "background",
    "style",
    "compose",
    "action",
)
#: In the repository, and in `Benchmark.tar` of the hub.
FILES = ("Basic/basic_edit.json", "singleturn/singleturn.json", "basic_edit.json")
FIELDS = {"id": cells.as_text, "prompt": cells.as_text, "edit_type": cells.as_name}


def load(folder: Path, query: Query, settings: SuiteSettings) -> Iterator[pairs.EditPair]:
    """Yield the pairs of `basic_edit.json`, which names images below the same folder, or below the
    one that holds `animal/` and so on.

    Raises `UsageError` for a folder without the file, a type, or an image, and for a row of another
    type.
    """
    path = find(folder, FILES, f"those of ImgEdit-Bench for suite {query.spec}")
    rows = keyed_rows(path, "the pairs of ImgEdit-Bench")
    texts = {key: _texts(row) for key, row in rows.items()}
    require_all(query.spec, TYPES, {fields["edit_type"]: key for key, fields in texts.items()})
    first, fields = next(iter(texts.items()))
    root = _root_of_images(folder, query, rows[first], fields["id"])
    images = {key: image_below(rows[key], fields["id"], root) for key, fields in texts.items()}
    require_images(query.spec, images.values())
    for key, fields in texts.items():
        if fields["edit_type"] not in TYPES:
            raise rows[key].error(
                f"edit_type {fields['edit_type']!r:.40}, expected one of {', '.join(TYPES)}"
            )
        yield pairs.EditPair(
            id=pairs.slug(key),
            category=fields["edit_type"],
            instruction=fields["prompt"],
            source=images[key],
            own_id=key,
            row=str(rows[key]),
        )


def _root_of_images(folder: Path, query: Query, row: SuiteRow, name: str) -> Path:
    """Return the folder at or below `folder` from which `name`, the path of a row's image, leads to
    it.

    Raises `UsageError` if there is none, and for a path that leads out.
    """
    image_below(row, name, folder)  # refuses a path that leads out, which `find` would follow
    image = find(folder, (name,), f"the images of ImgEdit-Bench for suite {query.spec}")
    return image.parents[len(Path(name).parts) - 1]


def _texts(row: SuiteRow) -> dict[str, str]:
    return {name: required(row, name, read) for name, read in FIELDS.items()}
