"""`imgedit merge`: the shards of a run as one run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from pytest_imgedit.cli.printed import Printed
from pytest_imgedit.cli.runs import baselines_folder, find_run, refuse_to_compare
from pytest_imgedit.config.settings import RunSettings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.files import is_folder
from pytest_imgedit.engine.merge import collect, merge_results, read_shards
from pytest_imgedit.report import terminal
from pytest_imgedit.report.write import add_to_github_summary, write_reports, write_results
from pytest_imgedit.stats.gates import outcome
from pytest_imgedit.store.baselines import make_baseline, read_baseline
from pytest_imgedit.store.store import Store


def merge(references: Sequence[str], out: Path) -> Printed:
    """Join shards to one run in the new store `out`, write its reports, and decide its gates.

    A reference is a run, or a store, which means its newest run. Raises `UsageError` for shards of unlike runs.
    """
    shards = read_shards(map(_find, references))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: is there already, expected a new or an empty folder")
    name = shards[0].results.run.options.gates.compare
    baseline = None if name is None else read_baseline(name, baselines_folder(), Path.cwd())
    results = merge_results(shards, baseline)
    if baseline is not None:
        is_gated = bool(results.run.options.gates.max_drop)
        refuse_to_compare(baseline, make_baseline(results, "merge"), f"{name} and these runs", is_gated)
    with Store(out) as store:
        folder = store.new_run()
        results = results.model_copy(update={"run": results.run.model_copy(update={"id": folder.name})})
        collect(shards, store)
        write_results(results, folder)
        reports = write_reports(results, folder, store.blobs.folder, RunSettings())
    add_to_github_summary(results)
    verdict = outcome(results)
    lines = [
        terminal.render(results, shutil.get_terminal_size().columns, color=False, verbose=False).rstrip(),
        f"imgedit: {verdict.line}",
        *(f"{report}: {path}" for report, path in reports.items()),
    ]
    document = {"run": results.run.id, "reports": reports, "state": verdict.state, "outcome": verdict.line}
    return Printed(document, "\n".join(lines), int(verdict.fails))


def _find(reference: str) -> Path:
    store = Path(reference)
    return find_run("latest" if is_folder(store / "runs") else reference, store)
