"""What a run's gates are about to show, by earlier runs of the store: said before anything is spent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_imgedit.stats.planning import expected_mde
from pytest_imgedit.stats.sequential import at_the_end

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_imgedit.config import Settings
    from pytest_imgedit.pairs import EditPair
    from pytest_imgedit.store.runs import Store
    from pytest_imgedit.suites.base import Suite

#: How many runs are looked through, the newest first.
MOST = 10


def expected_lines(settings: Settings, suite: Suite, pairs: Sequence[EditPair], store: Store) -> list[str]:
    """One line a gate on a mean: the MDE to expect with these pairs, if an earlier run of the suite tells."""
    lines, gates = [], settings.gates
    earlier = list(_runs(settings, suite, store)) if gates.fail_under or gates.max_drop else []
    for kind in ("fail_under", "max_drop"):
        limits = getattr(gates, kind)
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


def _runs(settings: Settings, suite: Suite, store: Store) -> Iterator[dict[str, Any]]:
    """Read the newest runs of this suite with this judge; those that cannot be read tell nothing."""
    paths = sorted(store.folder.glob("runs/*/results.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in paths[:MOST]:
        try:
            document = json.loads(path.read_bytes())
            if (document["suite"]["name"], document["judge"]["spec"]) == (suite.name, settings.judge.spec):
                for kind in ("fail_under", "max_drop"):
                    expected_mde(kind, "overall", 0.05, 1, [document])
                yield document
        except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
            continue
