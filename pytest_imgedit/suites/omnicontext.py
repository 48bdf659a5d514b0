"""OmniContext (arXiv 2506.18871): `omnicontext:DIR`, where DIR holds the hub's parquet files."""

from collections.abc import Iterator
from pathlib import Path

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import pairs
from pytest_imgedit.protocols.omnicontext_rows import TASKS
from pytest_imgedit.suites import cells
from pytest_imgedit.suites.parquet import hub_rows, listed_images
from pytest_imgedit.suites.public import Query, require_all, required
from pytest_imgedit.suites.rows import SuiteRow, make_pairs

#: The language of the pairs that the authors' statistics count.
LANGUAGE = "en"


def load(folder: Path, query: Query, settings: SuiteSettings) -> Iterator[pairs.EditPair]:
    """Return the pairs of one language, `language=en` by default, or of another that the data hold.

    The first of `input_images` is the source, the others are further sources. Raises `UsageError`
    for a folder without these files, without one of the tasks, and for a row without an image or a
    text.
    """
    rows = hub_rows(folder, query.spec, "OmniGen2/OmniContext")
    languages = {_language(row) for row in rows} - {LANGUAGE}
    language = query.choice("language", (LANGUAGE, *sorted(languages)))
    chosen = [row for row in rows if _language(row) == language]
    made = list(make_pairs(chosen, _pair, []))
    require_all(query.spec, TASKS, {pair.category: pair for pair in made})
    return iter(made)


def _language(row: SuiteRow) -> str:
    return required(row, "instruction_language", cells.as_name)


def _pair(row: SuiteRow) -> pairs.EditPair:
    """Make the pair of a row; raises `UsageError` if it lacks an image or a text.

    Keys are those of results on disk, where each task has a folder.
    """
    source, *further = listed_images(row, "input_images")
    key = required(row, "key", cells.as_identifier)
    task = required(row, "task_type", cells.as_name)
    return pairs.EditPair(
        id=pairs.slug(f"{task}-{key}"),
        category=task,
        instruction=required(row, "instruction", cells.as_text),
        source=source,
        further=tuple(further),
        own_id=key,
        fields={"language": _language(row)},
        row=str(row),
    )
