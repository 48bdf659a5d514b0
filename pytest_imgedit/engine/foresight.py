"""What a run's gates are about to show, by earlier runs of the store: said before anything is spent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Results
from pytest_imgedit.stats.planning import expected_mde
from pytest_imgedit.stats.sequential import at_the_end
from pytest_imgedit.store.documents import read_results
from pytest_imgedit.store.store import Store, finished_runs
from pytest_imgedit.suites.base import Suite

#: How many runs are looked through, the newest first.
MOST = 10


def expected_lines(settings: Settings, suite: Suite, pairs: Sequence[EditPair], store: Store) -> list[str]:
    """One line a gate on a mean: the MDE to expect with these pairs, if an earlier run of the suite tells."""
    lines, gates = [], settings.gates
    earlier = list(_runs(settings, suite, store)) if gates.fail_under or gates.max_drop else []
    kinds: tuple[tuple[Literal["fail_under", "max_drop"], dict[str, float]], ...] = (
        ("fail_under", gates.fail_under),
        ("max_drop", gates.max_drop),
    )
    for kind, limits in kinds:
        for field, limit in limits.items():
            count = sum(field in ("overall", pair.category) for pair in pairs)
            found = expected_mde(kind, field, at_the_end(gates).alpha / len(limits), count, earlier)
            gate = f"plan: {kind} {field}:{limit:g}"
            if found is None:
                lines.append(f"{gate}: what {count} pairs could show is not known yet; imgedit plan --power tells")
            else:
                lines.append(
                    f"{gate}: {count} pairs are about to show {found[0]:.2f} beyond the limit, by run {found[1]}"
                )
    return lines


def _runs(settings: Settings, suite: Suite, store: Store) -> Iterator[Results]:
    """Read the newest runs of this suite with this judge; those that cannot be read tell nothing."""
    for path in finished_runs(store.folder)[: -MOST - 1 : -1]:
        with suppress(UsageError, OSError):
            results = read_results(path)
            if (results.suite.name, results.judge.spec) == (suite.name, settings.judge.spec):
                yield results
