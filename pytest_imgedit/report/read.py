"""Reads the documents that outlive a run: results.json, and baselines; one that contradicts itself
is refused.
"""

import gc
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from pytest_imgedit.core import errors, pairs, strict_json
from pytest_imgedit.core.results import RESULTS_SCHEMA, Results
from pytest_imgedit.stats.contradictions import contradictions
from pytest_imgedit.store import baselines
from pytest_imgedit.store.baselines import Baseline
from pytest_imgedit.store.run_references import Found, find_either


def read_results(path: Path) -> Results:
    """Read a results.json; raises `UsageError`, which names the file and the place, for anything
    else, and for one that contradicts itself.
    """
    with _no_collections():
        return _results_of(path, baselines.read_document(path, (RESULTS_SCHEMA,)))


def read_whole(path: Path) -> Results | Baseline:
    """Read a results.json or a baseline; raises `UsageError` as `read_results` does."""
    with _no_collections():
        document = baselines.read_document(path, (baselines.SCHEMA, RESULTS_SCHEMA))
        if document["schema"] == baselines.SCHEMA:
            return baselines.baseline_of(path, document)
        return _results_of(path, document)


def as_baseline(path: Path) -> Baseline:
    """Read a baseline, or make one of a results.json; raises `UsageError` as `read_results`
    does.
    """
    with _no_collections():
        document = read_whole(path)
        return document if isinstance(document, Baseline) else baseline_from(document)


def baseline_from(results: Results) -> Baseline:
    """Make a baseline of results, under the name or the id of their run."""
    return baselines.make_baseline(results, results.run.name or pairs.slug(results.run.id))


def read_either(
    reference: str, out: Path, folder: Path, suite: Collection[str] = ()
) -> tuple[Baseline, Found]:
    """Return a run of the store `out`, or a baseline of a folder, and where it was found.

    `latest` is the newest run of all pairs of its suite, whose name or SHA-256 is in `suite` if
    that is given, or else the newest run. Raises `UsageError` if the run is not there, or cannot be
    read.
    """
    found = find_either(reference, out, folder, suite)
    return as_baseline(found.path), found


def _results_of(path: Path, document: strict_json.JsonObject) -> Results:
    """Return the results in a document; raises `UsageError` if it is not whole, or contradicts
    itself.
    """
    try:
        results = Results.model_validate(document)
    except ValidationError as error:
        raise errors.UsageError(
            f"{path}: not a whole results document: {errors.first_problem(error)}"
        ) from None
    problem = baselines.contradiction(path, contradictions(results))
    if problem:
        raise errors.UsageError(
            f"{problem}: changed by hand, or merged by git? run it again, which takes the scores "
            "from the store"
        )
    return results


@contextmanager
def _no_collections() -> Iterator[None]:
    """Pause the search for garbage in cycles: a large document makes none, and many objects to
    search.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
