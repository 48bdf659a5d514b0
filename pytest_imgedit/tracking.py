"""Logs finished runs to Weights & Biases (wandb), which this package does not require.

In a `conftest.py`, this logs every run to a run of wandb:

    from pytest_imgedit.tracking import pytest_imgedit_run_finished

A training loop that has a run of wandb already calls `log_run` with its step.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.results import Item, Results
from pytest_imgedit.core.text import escaped, one_line, readable
from pytest_imgedit.store.blobs import Blobs

#: Seconds that wandb has for a run that the hook logs.
PATIENCE = 10.0
#: Seconds by which wandb's own deadlines end earlier, so that its error is told.
_MARGIN = 2.0
#: Number of pairs, worst first, whose source and edit are logged as thumbnails.
PICTURES = 16


def pytest_imgedit_run_finished(results: Results, store: Path) -> str | None:
    """Log a finished run to the active run of wandb, or else to a new one; return `None`.

    The environment variables of wandb choose its project, entity and mode. If wandb fails, or takes
    more than `PATIENCE` seconds, the returned text says so instead, and the run's outcome stays.
    Raises `UsageError` if wandb is not installed.
    """
    wandb = _wandb()
    logged: Future[None] = Future()

    def log() -> None:
        """Log the run, and put the end of that into `logged`."""
        try:
            if wandb.run is not None:
                log_run(results, store, wandb.run)
            else:
                # By default wandb waits 90 s for its start, and without limit for its end.
                seconds = PATIENCE - _MARGIN
                limits = {"init_timeout": seconds, "finish_timeout": seconds}
                with wandb.init(name=results.run.id, job_type="imgedit", settings=limits) as run:
                    log_run(results, store, run)
            logged.set_result(None)
        except BaseException as error:  # wandb may try to end the interpreter
            logged.set_exception(error)

    threading.Thread(target=log, daemon=True).start()
    try:
        logged.result(PATIENCE)
    except TimeoutError:
        reason = f"no answer in {PATIENCE:g} s"
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
    else:
        return None
    return f"wandb: {reason}; the run is not logged there, pytest --imgedit-stage=report logs it"


def log_run(results: Results, store: Path, run: Any = None, step: int | None = None) -> None:
    """Log a finished run to `run`, a run of wandb, by default the active one.

    Scalars are the means of each measure by group, such as `physics/score`, on the scale of the
    measure. The table `imgedit/pairs` has a row a pair, worst score first, and the thumbnails in
    the `store` of the first 16 that have an edit. The config `imgedit` names run, suite, editor and
    judge. `step` must not be under a step that was logged before, or wandb drops the values.

    Raises `UsageError` if wandb is not installed or no run of it is active.
    """
    wandb = _wandb()
    run = run or wandb.run
    if run is None:
        raise UsageError("log_run: wandb has no active run, expected wandb.init() before, or run=")
    origin = {
        "run": results.run.id,
        "suite": results.suite.name,
        "editor": results.editor.spec,
        "judge": results.judge.spec,
    }
    shown = {name: escaped(text) for name, text in origin.items()}
    run.config.update({"imgedit": shown}, allow_val_change=True)
    table = {"imgedit/pairs": _table(wandb, results, Blobs(store / "blobs"))}
    run.log({**means(results), **table}, step=step)


def means(results: Results) -> dict[str, float]:
    """Return the mean of each measure over each group as `GROUP/MEASURE`, and the share of duels
    won as `GROUP/duel.MEASURE`, without those that are not known.
    """
    known = {
        escaped(f"{group}/{name}"): row.mean
        for name, measured in results.measures.items()
        for group, row in measured.rows.items()
    }
    rows_of_duels = {} if results.duel is None else results.duel.measures
    for name, rows in rows_of_duels.items():
        known |= {escaped(f"{group}/duel.{name}"): row.share for group, row in rows.items()}
    return {name: value for name, value in known.items() if value is not None}


def worst_first(items: tuple[Item, ...]) -> list[Item]:
    """Return items in the order of their scores: first those that lack one though they were needed,
    last those that were not needed.
    """

    def rank(item: Item) -> tuple[bool, bool, float]:
        is_scored = item.score is not None
        return (item.status == "not_needed", is_scored, item.score or 0.0)

    return sorted(items, key=rank)


def _table(wandb: Any, results: Results, blobs: Blobs) -> Any:
    """Return a table of wandb with a row for each pair, worst first, and `PICTURES` pairs of
    thumbnails at most; a value that a pair lacks is an empty cell.
    """
    columns = ["id", "category", "status", "instruction"]
    columns += map(escaped, results.measures)
    shown = {name for item in results.items if item.edits for name in item.sources}
    sources = sorted(shown | {"source"}, key=lambda name: (len(name), name))
    columns += [*sources, "edit"]
    rows: list[list[Any]] = []
    pictured = 0
    for item in worst_first(results.items):
        pictures: dict[str, Any] = {}
        if item.edits and pictured < PICTURES:
            images = item.sources | {"edit": f"{item.edits[0].blob}.png"}
            for name, blob in images.items():
                pictures[name] = _thumbnail(wandb, blobs, Path(blob))
            pictured += 1
        row: list[Any] = [item.id, item.category, item.status, readable(item.instruction)]
        row += [item.value(name) for name in results.measures]
        row += [pictures.get(name) for name in (*sources, "edit")]
        rows.append(row)
    return wandb.Table(columns=columns, data=rows)


def _thumbnail(wandb: Any, blobs: Blobs, blob: Path) -> Any:
    """Return the thumbnail of a blob as an image of wandb; `None` if the store has none."""
    path = blobs.made_thumbnail(blob.stem, blob.suffix)
    return None if path is None else wandb.Image(str(path))


def _wandb() -> Any:
    """Return the module wandb; raise `UsageError` if it is not installed."""
    try:
        import wandb
    except ModuleNotFoundError as error:
        raise UsageError(
            "pytest_imgedit.tracking needs the package wandb: pip install 'pytest-imgedit[wandb]'"
        ) from error
    return wandb
