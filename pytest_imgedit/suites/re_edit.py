"""RE-Edit (arXiv 2606.05172): `re-edit:DIR`, where DIR holds the files of the hub; unverified."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import errors, pairs
from pytest_imgedit.suites import native
from pytest_imgedit.suites.public import Query

SUFFIXES = (".parquet", ".json", ".jsonl")


def load(folder: Path, query: Query, settings: SuiteSettings) -> Iterator[pairs.EditPair]:
    """Return the pairs of all files of the first format of `SUFFIXES` that the folder has, read by
    the names of fields of the native format, which are those of the seeds; `[suite.fields]` maps
    others.

    Raises `UsageError` for a folder without such files, or a row without instruction or image.
    """
    for suffix in SUFFIXES:
        paths = sorted(folder.rglob(f"*{suffix}"))
        if paths:
            return chain.from_iterable(native.load(str(path), settings) for path in paths)
    raise errors.SpecError(
        f"suite {query.spec}: no {', '.join(SUFFIXES)} in {folder}, expected the data of RE-Edit"
    )
