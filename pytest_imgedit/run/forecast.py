"""What is said of a run before anything is edited: what it lacks, and what earlier runs tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import Results
from pytest_imgedit.core.sanitize import first_of
from pytest_imgedit.kinds.base import Model, Role
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.run.placement import Peak
from pytest_imgedit.run.work import Work
from pytest_imgedit.stats.planning import expected_mde
from pytest_imgedit.stats.sequential import at_the_end
from pytest_imgedit.store.baselines import read_results
from pytest_imgedit.store.store import Store, finished_runs
from pytest_imgedit.suites.base import Suite

#: How many pairs a line names.
NAMED = 3


def missing_lines(
    editor: Model, judge: Model | None, plan: Sequence[Work], allowed: int
) -> list[str]:
    """Return one line for each thing that pairs of the plan lack; those pairs will end in an error.

    Raises `UsageError` where a run could only fail: if all pairs lack a finished image or a
    reference, or if images of more pairs than are `allowed` to fail cannot be read.
    """
    broken = [work for work in plan if work.error is not None and work.error.is_any_of("bad_image")]
    found = [
        ("a source or reference that cannot be read", broken, broken[0].error if broken else "")
    ]
    without = [work for work in plan if work.error is not None and work.error.is_any_of("no_edit")]
    finished = editor.finished_images(work.pair for work in plan) if without else None
    found.append(
        (f"no finished image for {editor.spec}", without, finished.summary if finished else "")
    )
    bare = [work for work in plan if work.error is None and work.reference is None]
    if judge is not None and judge.needs_reference:
        found.append(
            (f"no reference image, which judge {judge.name!r} needs", bare, "name another judge")
        )
    if editor.shown_reference is not None:
        found.append(
            (f"no reference image, which editor {editor.name!r} needs", bare, "name another editor")
        )
    lines, pairs = [], len({work.pair.id for work in plan})
    for what, works, more in found:
        names = list(dict.fromkeys(_name(work.pair, works is broken) for work in works))
        if not names:
            continue
        line = f"{len(names)} of {pairs} pairs have {what} ({first_of(names, NAMED)}); {more}"
        if len(names) == pairs and works is not broken:
            raise UsageError(line)
        if works is broken and len(names) > allowed:
            raise UsageError(
                f"{line}; mend them, or allow more than {allowed} with --imgedit-max-errors"
            )
        lines.append(f"warning: {line}")
    return lines


def _name(pair: EditPair, with_row: bool) -> str:
    if with_row and pair.row:
        return f"{pair.id} in {pair.row}"
    return pair.id


#: How many runs are looked through, the newest first.
MOST = 10


def expected_lines(
    settings: Settings, suite: Suite, pairs: Sequence[EditPair], store: Store
) -> list[str]:
    """One line a gate on a mean: the MDE to expect with these pairs, if an earlier run of the suite
    tells.
    """
    lines, gates = [], settings.gates
    earlier = []
    if gates.fail_under or gates.max_drop:
        earlier = [
            results
            for results in _newest(suite, store)
            if results.judge.spec == settings.judge.spec
        ]
    kinds: tuple[tuple[Literal["fail_under", "max_drop"], dict[str, float]], ...] = (
        ("fail_under", gates.fail_under),
        ("max_drop", gates.max_drop),
    )
    for kind, limits in kinds:
        for field, limit in limits.items():
            count = sum(field in ("overall", pair.category) for pair in pairs)
            found = expected_mde(
                kind, field, at_the_end(gates).alpha_of(kind) / len(limits), count, earlier
            )
            gate = f"plan: {kind} {field}:{limit:g}"
            if found is None:
                lines.append(
                    f"{gate}: what {count} pairs could show is not known yet; imgedit plan "
                    "--power tells"
                )
            else:
                lines.append(
                    f"{gate}: {count} pairs are about to show {found[0]:.2f} beyond the limit, by "
                    f"run {found[1]}"
                )
    return lines


def known_peaks(
    settings: Settings, models: Mapping[Role, Identity], suite: Suite, store: Store
) -> dict[Role, Peak]:
    """Return what the newest runs of the store tell of the GPU memory that workers of these models
    take.

    A run of the whole suite counts whose model has the same weights, parameters, GPUs a worker, and
    setting of its batch size.
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
    used = [
        worker
        for worker in results.workers
        if worker.stage == stage and worker.gpu_peak is not None
    ]
    if not used:
        return None
    asked = (
        1 if before[0] == "auto" else int(str(before[0]))
    )  # one that ran out of memory has ended with less
    batch_size = max(asked, *(worker.batch_size for worker in used))
    return Peak(max(worker.gpu_peak or 0 for worker in used), results.run.id, batch_size)


def _newest(suite: Suite, store: Store) -> Iterator[Results]:
    """Read the newest runs of a suite; those that cannot be read tell nothing."""
    for path in finished_runs(store.folder)[: -MOST - 1 : -1]:
        with suppress(UsageError, OSError):
            results = read_results(path)
            if results.suite.name == suite.name:
                yield results
