"""What earlier runs of the store tell of a run before it starts: what its gates are about to show, and its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Results
from pytest_imgedit.engine.placement import Peak
from pytest_imgedit.kinds.base import Role
from pytest_imgedit.kinds.identity import Identity
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
    earlier = []
    if gates.fail_under or gates.max_drop:
        earlier = [results for results in _newest(suite, store) if results.judge.spec == settings.judge.spec]
    kinds: tuple[tuple[Literal["fail_under", "max_drop"], dict[str, float]], ...] = (
        ("fail_under", gates.fail_under),
        ("max_drop", gates.max_drop),
    )
    for kind, limits in kinds:
        for field, limit in limits.items():
            count = sum(field in ("overall", pair.category) for pair in pairs)
            found = expected_mde(kind, field, at_the_end(gates).alpha_of(kind) / len(limits), count, earlier)
            gate = f"plan: {kind} {field}:{limit:g}"
            if found is None:
                lines.append(f"{gate}: what {count} pairs could show is not known yet; imgedit plan --power tells")
            else:
                lines.append(
                    f"{gate}: {count} pairs are about to show {found[0]:.2f} beyond the limit, by run {found[1]}"
                )
    return lines


def known_peaks(settings: Settings, models: Mapping[Role, Identity], suite: Suite, store: Store) -> dict[Role, Peak]:
    """Return what the newest runs of the store tell of the GPU memory that workers of these models take.

    A run of the whole suite counts whose model has the same weights, parameters, GPUs a worker, and setting of its
    batch size.
    """
    peaks: dict[Role, Peak] = {}
    for results in _newest(suite, store):
        if results.selection.selected < results.selection.whole:
            continue
        for role, identity in models.items():
            if (peak := _peak_of(role, results, settings, identity)) is not None:
                peaks.setdefault(role, peak)
    return peaks


def _peak_of(role: Role, results: Results, settings: Settings, identity: Identity) -> Peak | None:
    model = results.editor if role == "editor" else results.judge
    options = results.run.options
    before: tuple[object, object]
    now: tuple[object, object]
    if role == "editor":
        before = (options.editor.batch_size, options.workers.get("gpus_per_worker"))
        now = (identity.model.batch_size, settings.workers.gpus_per_worker)
    else:
        before = (options.judge.get("batch_size"), options.judge.get("gpus_per_replica"))
        now = (settings.judge.batch_size, settings.judge.gpus_per_replica)
    told = identity.told
    if before != now or (model.fingerprint, model.params) != (told["fingerprint"], told["params"]):
        return None
    stage = "edit" if role == "editor" else "score"
    used = [worker for worker in results.workers if worker.stage == stage and worker.gpu_peak is not None]
    if not used:
        return None
    asked = 1 if before[0] == "auto" else int(str(before[0]))  # one that ran out of memory has ended with less
    batch_size = max(asked, *(worker.batch_size for worker in used))
    return Peak(max(worker.gpu_peak or 0 for worker in used), results.run.id, batch_size)


def _newest(suite: Suite, store: Store) -> Iterator[Results]:
    """Read the newest runs of a suite; those that cannot be read tell nothing."""
    for path in finished_runs(store.folder)[: -MOST - 1 : -1]:
        with suppress(UsageError, OSError):
            results = read_results(path)
            if results.suite.name == suite.name:
                yield results
