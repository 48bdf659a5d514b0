"""`imgedit export`: the edits of a run under readable names."""

from __future__ import annotations

from pathlib import Path

from pytest_imgedit.cli.printed import Printed
from pytest_imgedit.cli.runs import find_run
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.files import write_json
from pytest_imgedit.core.results import Item, SeedResult
from pytest_imgedit.core.sanitize import counted
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.store.baselines import read_results
from pytest_imgedit.store.blobs import Blobs

LIST = "edits.json"


def export(reference: str, folder: Path, out: Path) -> Printed:
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
        _export(item, place, result, blobs, folder)
        for item in results.items
        for place, result in enumerate(item.seeds)
    ]
    document: JsonObject = {
        "run": results.run.id,
        "suite": results.suite.name,
        "editor": results.editor.spec,
    }
    document["edits"] = rows
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / LIST, document)
    missing = [row for row in rows if row["file"] is None]
    lines = [
        f"wrote {counted(len(rows) - len(missing), 'edit')} of run {results.run.id} and {LIST} to "
        f"{folder}"
    ]
    lines += [f"no edit of {row['id']} (seed {row['seed']}): {row['error']}" for row in missing]
    return Printed(document, "\n".join(lines), 1 if missing else 0)


def _export(item: Item, place: int, result: SeedResult, blobs: Blobs, folder: Path) -> JsonObject:
    """Copy one edit; return its row of the list."""
    row: JsonObject = {
        "id": item.id,
        "category": item.category,
        "instruction": item.instruction,
        "seed": result.seed,
        "file": None,
        "score": None if result.verdict is None else result.verdict.score,
        "aspects": {} if result.verdict is None else dict(result.verdict.aspects),
        "error": None if result.error is None else str(result.error),
    }
    if result.edit is None:
        return row
    data = blobs.get(result.edit.blob)
    if data is None:
        return {
            **row,
            "error": f"{blobs.path(result.edit.blob)} is not in the store any more, or damaged",
        }
    name = Path(item.category, f"seed{result.seed}" if place else "", f"{item.id}.png")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return {**row, "file": str(name)}
