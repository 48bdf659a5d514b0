"""Runs that go on: what they plan, in `runs/<id>/plan.json`, and how far they have come."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pytest_imgedit.core import errors, files, locks
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.store.store import Store

PLAN = "plan.json"
_JOURNALS = ("edits", "verdicts")
_BLOCK = 2**20


def write_plan(store: Store, run: Path, **facts: int | str) -> None:
    """Write what a run is about to do, with the sizes of the journals before it, from which
    `runs_going_on` counts; raise `OSError` if it cannot be written.
    """
    sizes = {name: _size(store.folder / f"{name}.jsonl") for name in _JOURNALS}
    files.write_json(run / PLAN, {**facts, "journals": sizes})


def runs_going_on(folder: Path) -> Iterator[JsonObject]:
    """Yield a row of the run that holds a store: its id, and in `running` what is done.

    There is none if nothing holds the store, or the run has not planned yet or is finished, or its
    files cannot be read. At most one run holds a store: the newest with a plan and no results.
    """
    holder = locks.holder(folder / "lock")
    for path in sorted(folder.glob(f"runs/*/{PLAN}"), reverse=True):
        if holder and not (path.parent / "results.json").exists():
            try:
                plan = files.read_object(path, "the plan of a run")
                done = {
                    name: _records_after(folder / f"{name}.jsonl", int(plan["journals"][name]))
                    for name in _JOURNALS
                }
                progress = (
                    f"running, {done['edits']} of {int(plan['edits'])} edits, "
                    f"{done['verdicts']} answers of the judge ({plan['editor']}; {holder})"
                )
            except (errors.UsageError, KeyError, TypeError, ValueError, OSError):
                return
            yield {"key": path.parent.name, "running": progress, "measures": []}
            return


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _records_after(path: Path, start: int) -> int:
    """Count the records, one a line, of a journal from the byte `start` on; 0 if there is no
    journal.
    """
    if not path.exists():
        return 0
    count = 0
    with path.open("rb") as file:
        file.seek(start)
        for block in iter(partial(file.read, _BLOCK), b""):
            count += block.count(b"\n")
    return count
