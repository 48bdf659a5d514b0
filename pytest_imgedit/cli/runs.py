"""`imgedit compare`, `export`, `report`, `runs` and `schema`: what finished runs hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import ValidationError

from pytest_imgedit.config.settings import GatesSettings, RunSettings
from pytest_imgedit.config.toml_file import configs_of
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.files import is_folder, to_json, write_json
from pytest_imgedit.core.pairs import in_order
from pytest_imgedit.core.results import Item, Results, SeedResult
from pytest_imgedit.core.sanitize import counted, number
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.report import tables, terminal
from pytest_imgedit.report.tables import human_time
from pytest_imgedit.report.write import write_reports
from pytest_imgedit.run.preflight import check_copies
from pytest_imgedit.stats import collapse, gates
from pytest_imgedit.stats.comparison import compare, differences, environment_differences
from pytest_imgedit.stats.outcome import outcome
from pytest_imgedit.store.baselines import (
    FOLDER,
    Baseline,
    as_baseline,
    read_baseline,
    read_results,
    unlike_items,
    unlike_judges,
    unlike_losses,
)
from pytest_imgedit.store.blobs import Blobs
from pytest_imgedit.store.store import finished_runs

#: The list of the edits that `imgedit export` writes.
LIST = "edits.json"


def find_run(reference: str, out: Path) -> Path:
    """Return the results.json that a reference means: a path, an id in the store `out`, or `latest`
    there.
    """
    known = [path for path in finished_runs(out) if path.is_file()]
    if reference == "latest":
        if not known:
            raise UsageError(f"latest: {no_runs(out)}")
        return known[-1]
    for path in (out / "runs" / reference, Path(reference)):
        if _exists(path / "results.json"):
            return path / "results.json"
    if _exists(path) and (path.suffix == ".json" or path.parent != Path()):
        return path
    if not known:
        raise UsageError(f"{reference[:200]}: no such file, and {no_runs(out)}")
    raise UsageError(
        f"{reference[:200]}: no such run, expected a path, latest, or one of the {len(known)} ids "
        f"in {out}/runs"
    )


def no_runs(out: Path) -> str:
    """Say that a store has no finished run, and what makes one."""
    return (
        f"{out} has no finished run: run pytest with the plugin first, or name another store "
        "with --out"
    )


def _exists(path: Path) -> bool:
    """Tell whether a file is there, of whatever kind: reading it says what is wrong with it."""
    try:
        return path.exists() and not path.is_dir()
    except OSError:  # a name that is too long
        return False


def list_runs(out: Path) -> tuple[JsonObject, str, int]:
    """List the finished runs of a store."""
    if not is_folder(out):
        raise UsageError(f"{str(out)[:200]}: no such folder, expected a store")
    rows: list[JsonObject] = []
    broken: list[str] = []
    for path in finished_runs(out):
        try:
            results = read_results(path)
        except UsageError as error:
            broken.append(str(error))
            continue
        conclusion = outcome(results)
        rows.append(
            {
                "id": results.run.id,
                "finished": results.run.finished,
                "suite": results.suite.name,
                "editor": results.editor.spec,
                "judge": results.judge.spec,
                "pairs": len(results.items),
                "overall": results.overall.macro.mean,
                "state": conclusion.state,
                "outcome": conclusion.line,
            }
        )
    table = [
        (
            row["id"],
            human_time(row["finished"]),
            row["suite"],
            row["editor"],
            str(row["pairs"]),
            number(row["overall"]),
            row["state"],
        )
        for row in rows
    ]
    header = ("run", "finished", "suite", "editor", "pairs", "overall", "state")
    text = terminal.render_table(header, table) if rows else f"{out}: no finished run"
    return {"runs": rows, "broken": broken}, "\n".join([text, *broken]), int(bool(broken))


def render_again(
    reference: str, out: Path, html: Path | None, md: Path | None, html_embed: bool
) -> tuple[JsonObject, str, int]:
    """Write the reports of a run anew, from its results.json and the images in its store."""
    path = find_run(reference, out)
    results = read_results(path)
    settings = RunSettings(html_path=html, md_path=md, html_embed=html_embed)
    store = path.absolute().parent.parent.parent
    check_copies(settings.copies, store if path.name == "results.json" else path)
    blobs = next(filter(Path.is_dir, (store / "blobs", out / "blobs")), None)
    if blobs is None:
        raise UsageError(
            f"{path}: not in a store, and {out} is none: expected the run's store as --out"
        )
    reports = {**write_reports(results, path.parent, blobs, settings), "results": str(path)}
    conclusion = outcome(results)
    copies = list(map(str, settings.copies))
    lines = [*(f"{name}: {report}" for name, report in reports.items()), *copies, conclusion.line]
    document = {
        "reports": reports,
        "copies": copies,
        "state": conclusion.state,
        "outcome": conclusion.line,
    }
    return document, "\n".join(lines), int(conclusion.fails)


def export(reference: str, folder: Path, out: Path) -> tuple[JsonObject, str, int]:
    """Copy the edits of a run to `<category>/<id>.png`, with a list of them in `edits.json`.

    The second and further edits of a pair, those of other seeds, are `<category>/seed<N>/<id>.png`.
    The editor `folder:DIR` reads such a folder. An edit that failed, or is not whole in the store
    any more, is in the list without a file. Raises `UsageError` for a folder that holds anything,
    so that no edit of another run stays between these.
    """
    path = find_run(reference, out)
    results = read_results(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder}: is there already, expected a new or an empty folder")
    blobs = Blobs(path.absolute().parent.parent.parent / "blobs")
    if not blobs.folder.is_dir():
        raise UsageError(f"{path}: not in a store, which has the edits")
    rows = [
        _export(item, index, result, blobs, folder)
        for item in results.items
        for index, result in enumerate(item.seeds)
    ]
    document = {
        "run": results.run.id,
        "suite": results.suite.name,
        "editor": results.editor.spec,
        "edits": rows,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / LIST, document)
    missing = [row for row in rows if row["file"] is None]
    lines = [
        f"wrote {counted(len(rows) - len(missing), 'edit')} of run {results.run.id} and {LIST} to "
        f"{folder}"
    ]
    lines += [f"no edit of {row['id']} (seed {row['seed']}): {row['error']}" for row in missing]
    return document, "\n".join(lines), int(bool(missing))


def _export(item: Item, index: int, result: SeedResult, blobs: Blobs, folder: Path) -> JsonObject:
    """Copy the edit at an index of a pair's seeds; return its row of the list."""
    row: JsonObject = {
        "id": item.id,
        "category": item.category,
        "instruction": item.instruction,
        "seed": result.seed,
        "file": None,
        "score": None,
        "aspects": {},
        "error": None,
    }
    if result.verdict is not None:
        row |= {"score": result.verdict.score, "aspects": dict(result.verdict.aspects)}
    if result.error is not None:
        row["error"] = str(result.error)
    if result.edit is None:
        return row
    data = blobs.get(result.edit.blob)
    if data is None:
        path = blobs.path(result.edit.blob)
        return {**row, "error": f"{path} is not in the store any more, or damaged"}
    name = Path(item.category, f"seed{result.seed}" if index else "", f"{item.id}.png")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return {**row, "file": str(name)}


def compare_runs(
    before: str,
    now: str,
    max_drop: Sequence[str],
    max_collapsed: str | None,
    alpha: float,
    margin: float,
    out: Path,
) -> tuple[JsonObject, str, int]:
    """Compare two runs or baselines pair by pair, and apply gates on drops and on collapsed
    pairs.
    """
    try:
        settings = GatesSettings.model_validate(
            {
                "max_drop": list(max_drop),
                "max_collapsed": max_collapsed or 0,
                "alpha": alpha,
                "margin": margin,
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).replace("_", "-")
        raise UsageError(f"--{name}: {first['msg'].removeprefix('Value error, ')}") from None
    a, b = read_either(before, out), read_either(now, out)
    refuse_to_compare(
        a, b, f"{before} and {now}", gated=bool(max_drop or max_collapsed is not None)
    )
    observations = differences(a.items, b.items)
    gates.check_fields(
        "--max-drop", settings.max_drop, in_order(pair.category for pair in observations)
    )
    results = gates.max_drop(settings, observations, a.name)
    tail, fallen = collapse.max_collapsed(
        settings, collapse.moves_between(a.items, b.items), a.name
    )
    comparison = compare(a, b.items, alpha, results, environment_differences(a, b), fallen)
    if max_collapsed is not None:
        results.append(tail)
    shown = terminal.render_tables([tables.comparison_table(comparison, len(b.items))])
    lines = [f"{b.name}: editor {b.editor.spec}, run {b.run}", shown.rstrip()]
    lines += [f"{gate.state}: {gate.why}" for gate in results]
    document = {
        "comparison": comparison.model_dump(mode="json"),
        "gates": [asdict(gate) for gate in results],
    }
    return document, "\n".join(lines), int(any(gate.state != "PASS" for gate in results))


def refuse_to_compare(a: Baseline, b: Baseline, names: str, gated: bool = False) -> None:
    """Raise `UsageError` if two baselines are of other pairs or verdicts, or, where `gated`, of
    unlike losses.
    """
    items = [(item.id, item.sha256, [seed.seed for seed in item.seeds]) for item in b.items]
    reason = unlike_judges(a, dict(b.judge), b.seeds) or unlike_items(a, items)
    if gated:
        reason = reason or unlike_losses(a, b.editor.lossy)
    if reason:
        raise UsageError(f"{names} cannot be compared, {reason}")


def baselines_folder() -> Path:
    """Return the folder of the baselines that the config of this repository names, or the usual
    one.
    """
    for file in configs_of(Path.cwd(), Path.cwd()).values():
        folder = file.tables.get("gates", {}).get("baselines")
        if isinstance(folder, str):
            return Path(folder)
    return FOLDER


def read_either(reference: str, out: Path) -> Baseline:
    """Read a run, or else a baseline."""
    try:
        path = find_run(reference, out)
    except UsageError as error:
        if reference == "latest":
            raise
        try:
            return read_baseline(reference, baselines_folder(), Path.cwd())
        except UsageError as baseline_error:
            raise UsageError(f"{error}; and {baseline_error}") from None
    return as_baseline(path)


def schema(baseline: bool) -> tuple[JsonObject, str, int]:
    """Print the JSON schema of results, or of a baseline."""
    document = (Baseline if baseline else Results).model_json_schema(mode="serialization")
    return document, to_json(document), 0
