"""`imgedit explain`, `export`, `report`, `runs` and `schema`: what a store and its finished runs
hold.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from pytest_imgedit.cli.comparable import store_of
from pytest_imgedit.config.settings import RunSettings
from pytest_imgedit.core import errors, files
from pytest_imgedit.core.results import Item, Results, SeedResult
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import counted, first_of, number, printable
from pytest_imgedit.report import duel_cards, outputs, tables, terminal, write
from pytest_imgedit.report.parameters import Settings, differing, parameters_of, settings_of
from pytest_imgedit.report.read import read_results
from pytest_imgedit.stats.outcome import outcome
from pytest_imgedit.store.baselines import Baseline
from pytest_imgedit.store.blobs import Blobs
from pytest_imgedit.store.journal import EditRecord, Journal, ModelRecord, VerdictRecord
from pytest_imgedit.store.run_references import find_run, no_runs
from pytest_imgedit.store.store import finished_runs

#: Columns of `imgedit runs`.
_HEADER = ("run", "name", "finished", "suite", "editor", "pairs", "overall", "state")
#: The list of the edits that `imgedit export` writes.
LIST = "edits.json"
Stored = EditRecord | VerdictRecord
#: By the type of a record: its kind, and the model that decided it.
_KINDS = {EditRecord: ("edit", "editor"), VerdictRecord: ("verdict", "judge")}
#: The fewest characters that stand for a key.
MIN_PREFIX = 4


def list_runs(out: Path) -> tuple[JsonObject, str, int]:
    """List the finished runs of a store, and name those that cannot be read.

    The exit code is 1 if there are any of these. Raises `UsageError` without a store.
    """
    if not files.is_folder(out):
        raise errors.UsageError(no_runs(out))
    rows: list[JsonObject] = []
    settings: list[Settings] = []
    broken: list[str] = []
    for path in finished_runs(out):
        try:
            results = read_results(path)
        except errors.UsageError as error:
            broken.append(str(error))
        else:
            rows.append(_run_row(results))
            settings.append(settings_of(results))
    table = _runs_table(rows, settings) if rows else f"{out}: no finished run"
    lines = [table]
    lines += map(printable, broken)
    return {"runs": rows, "broken": broken}, "\n".join(lines), int(bool(broken))


def _run_row(results: Results) -> JsonObject:
    """Return what `imgedit runs` tells of a finished run."""
    conclusion = outcome(results)
    return {
        "id": results.run.id,
        "name": results.run.name,
        "finished": results.run.finished,
        "suite": results.suite.name,
        "editor": results.editor.spec,
        "judge": results.judge.spec,
        "parameters": parameters_of(results),
        "files": results.editor.files,
        "pairs": len(results.items),
        "overall": results.overall.macro.mean,
        "duels": duel_cards.share_won(results),
        "state": conclusion.state,
        "outcome": conclusion.line,
    }


def _runs_table(rows: Sequence[JsonObject], settings: Sequence[Settings]) -> str:
    """Render a line for each run, with its share of duels if one has duels, and with its parameters
    if runs of one suite and editor differ.
    """
    header = list(_HEADER)
    table = [
        [
            row["id"],
            row["name"] or "–",
            tables.human_time(row["finished"]),
            row["suite"],
            row["editor"],
            str(row["pairs"]),
            number(row["overall"]),
            row["state"],
        ]
        for row in rows
    ]
    if any(row["duels"] for row in rows):
        place = header.index("state")
        header.insert(place, "duels")
        for cells, row in zip(table, rows, strict=True):
            cells.insert(place, row["duels"])
    parameters = differing(
        (row["suite"], row["editor"], of_run) for row, of_run in zip(rows, settings, strict=True)
    )
    if any(parameters):
        header.append("parameters")
        for cells, text in zip(table, parameters, strict=True):
            cells.append(text)
    return terminal.render_table(header, table)


def render_again(
    reference: str, out: Path, html: Path | None, md: Path | None, html_embed: bool
) -> tuple[JsonObject, str, int]:
    """Write the reports of a run anew, from its results.json and the images in its store.

    `html` and `md` are further copies; with `html_embed`, pages hold their thumbnails. If the run's
    folder is not writable, only the copies are written. The exit code is 1 if the run did not pass.
    Raises `UsageError` for a run that is not in a store, and if a copy cannot be written.
    """
    path = find_run(reference, out)
    results = read_results(path)
    settings = RunSettings(html_path=html, md_path=md, html_embed=html_embed)
    store = store_of(path)
    kept = outputs.inputs(store if path.name == "results.json" else path, results.suite.name)
    write.check_copies(settings, kept)
    blobs = _blobs(path, store, out)
    folder = path.parent
    why_kept = ""
    is_writable = files.is_writable(folder)
    if is_writable:
        reports = write.write_reports(results, folder, blobs, settings)
        reports["results"] = str(path)
    else:  # another user's
        why_kept = (
            f"{folder}: {files.why_denied(folder)}, so that the reports in it stay as they are"
        )
        reports = _existing_reports(path)
    problems = write.write_copies(results, folder, blobs, settings, kept, are_written=is_writable)
    if problems:
        raise errors.UsageError(problems[0])
    conclusion = outcome(results)
    copies = list(map(str, settings.copies.values()))
    lines = [f"{name}: {report}" for name, report in reports.items()]
    lines += copies
    if why_kept:
        hint = "" if copies else "; --html or --md writes them elsewhere"
        lines.append(printable(f"{why_kept}{hint}"))
    lines.append(conclusion.line)
    document = {
        "reports": reports,
        "copies": copies,
        "unwritten": why_kept or None,
        "state": conclusion.state,
        "outcome": conclusion.line,
    }
    return document, "\n".join(lines), int(conclusion.fails)


def _blobs(path: Path, store: Path, out: Path) -> Path:
    """Return the folder of images of a run's store, or else of the store that `--out` names.

    Raises `UsageError` if neither has one; the message names the `path` of the run's results.
    """
    for folder in (store, out):
        blobs = folder / "blobs"
        if blobs.is_dir():
            return blobs
    raise errors.UsageError(
        f"{path}: not in a store, and {out} is none: expected the run's store as --out"
    )


def _existing_reports(path: Path) -> dict[str, str]:
    """Return the paths of a results.json and of the reports that are beside it."""
    paths = write.paths(path.parent)
    paths["results"] = path
    return {name: str(report) for name, report in paths.items() if report.is_file()}


def export(reference: str, folder: Path, out: Path) -> tuple[JsonObject, str, int]:
    """Copy the edits of a run to `<category>/<id>.png`, with a list of them in `edits.json`.

    Edits of a pair's second and later seeds are `<category>/seed<N>/<id>.png`. The editor
    `folder:DIR` reads such a folder. An edit that failed, or is no longer whole in the store, is in
    the list without a file, and the exit code is 1. Raises `UsageError` for a folder that is not
    empty, so that edits of two runs never mix; after an error the folder is as it was.
    """
    path = find_run(reference, out)
    results = read_results(path)
    outputs.check_empty(folder)
    outputs.check_folder(folder, outputs.inputs(out, results.suite.name))
    blobs = Blobs(store_of(path) / "blobs")
    if not blobs.folder.is_dir():
        raise errors.UsageError(f"{path}: not in a store, which has the edits")
    is_new = not folder.exists()
    with outputs.naming(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            document = _export_all(results, blobs, folder)
        except BaseException:  # nothing stays, so that the folder can be named again
            _remove(folder, is_new)
            raise
    rows = document["edits"]
    missing = [row for row in rows if row["file"] is None]
    written = counted(len(rows) - len(missing), "edit")
    lines = [f"wrote {written} of run {results.run.id} and {LIST} to {folder}"]
    lines += [f"no edit of {row['id']} (seed {row['seed']}): {row['error']}" for row in missing]
    return document, "\n".join(map(printable, lines)), int(bool(missing))


def _export_all(results: Results, blobs: Blobs, folder: Path) -> JsonObject:
    """Copy all edits, and write their list; return it.

    Raises `OSError` if a file cannot be written.
    """
    rows: list[JsonObject] = []
    for item in results.items:
        for index, result in enumerate(item.seeds):
            rows.append(_export(item, index, result, blobs, folder))
    document = {
        "run": results.run.id,
        "suite": results.suite.name,
        "editor": results.editor.spec,
        "base_seed": results.run.options.editor.seed,
        "edits": rows,
    }
    files.write_json(folder / LIST, document)
    return document


def _remove(folder: Path, is_new: bool) -> None:
    """Remove what a folder holds, and the folder too if it `is_new`."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if is_new:
        shutil.rmtree(folder, ignore_errors=True)


def _export(item: Item, index: int, result: SeedResult, blobs: Blobs, folder: Path) -> JsonObject:
    """Copy the edit at an index of a pair's seeds, if it is there; return its row of the list."""
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
        row["score"] = result.verdict.score
        row["aspects"] = dict(result.verdict.aspects)
    if result.error is not None:
        row["error"] = str(result.error)
    if result.edit is None:
        return row
    data = blobs.get(result.edit.blob)
    if data is None:
        path = blobs.path(result.edit.blob)
        row["error"] = f"{path} is not in the store any more, or damaged"
        return row
    name = Path(item.category, f"seed{result.seed}" if index else "", f"{item.id}.png")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    files.write_bytes(folder / name, data, durable=False)
    row["file"] = str(name)
    return row


def explain(reference: str, out: Path) -> tuple[JsonObject, str, int]:
    """Show the recipe and the environment of the record in the store `out` that a reference names.

    A reference is the first characters of the key of an edit or a verdict, or of the SHA-256 of an
    edited image. Raises `UsageError` without a store, for a reference that is too short, and if no
    record matches, or several with different recipes.
    """
    record = _find_record(reference, out)
    kind, model = _KINDS[type(record)]
    models = Journal(out / "models.jsonl", ModelRecord, reads_only=True).records
    recipe = getattr(models.get(str(record.recipe.get(model))), "recipe", None)
    text = _explanation(kind, record, model, recipe)
    return {"kind": kind, **record.model_dump(), model: recipe}, text, 0


def _find_record(reference: str, out: Path) -> Stored:
    """Return the record that a reference names, of several that differ by their environment the
    newest; raise `UsageError` as `explain` says.
    """
    if not files.is_folder(out):
        raise errors.UsageError(no_runs(out))
    if len(reference) < MIN_PREFIX:
        raise errors.UsageError(
            f"{reference!r}: expected at least {MIN_PREFIX} characters of a key, as results.json "
            "has it"
        )
    edits = Journal(out / "edits.jsonl", EditRecord, reads_only=True).records
    verdicts = Journal(out / "verdicts.jsonl", VerdictRecord, reads_only=True).records
    records: list[Stored] = []
    records += edits.values()
    records += verdicts.values()
    matches = [record for record in records if _is_meant(record, reference)]
    if not matches:
        raise errors.UsageError(f"{reference}: no edit or verdict in {out} has such a key or image")
    if len({record.content for record in matches}) > 1:
        keys = []
        for record in matches:
            kind, _ = _KINDS[type(record)]
            keys.append(f"{kind} {record.key[:12]}")
        raise errors.UsageError(
            f"{reference}: {len(matches)} records begin so, expected one: {first_of(keys)}"
        )
    return matches[-1]


def _is_meant(record: Stored, reference: str) -> bool:
    names = (record.key, record.content, getattr(record, "blob", ""))
    return any(name.startswith(reference) for name in names)


def _explanation(kind: str, record: Stored, model: str, recipe: JsonObject | None) -> str:
    """Return lines on what a record holds and depends on; `recipe` is that of the model, `None` if
    its record is gone.
    """
    lines = [f"{kind} {record.key}"]
    if isinstance(record, EditRecord):
        lines.append(
            f"image {record.blob}, {record.width}x{record.height}, {record.seconds:g} s on "
            f"{record.worker}"
        )
    else:
        lines.append(
            f"score {number(record.measured)}, {record.asked} asked, in a batch of "
            f"{record.batch_size}"
        )
        if record.finish_reason:
            lines.append(f"finish reason {record.finish_reason}")
    lines += ["", "computed on:", f"  {record.environment}"]
    if record.environment.processor:
        lines.append(f"  images prepared by {record.environment.processor}")
    if record.environment.probe:
        lines.append(f"  probe {record.environment.probe}")
    if record.environment.compiled is not None:
        lines.append(f"  networks {'compiled' if record.environment.compiled else 'not compiled'}")
    lines += ["", f"decided by the {model}:"]
    if recipe is not None:
        lines += _listed(recipe)
    else:
        lines.append("  its record is not in this store any more")
    asked = {name: value for name, value in record.recipe.items() if name != model}
    lines += ["", "and by what was asked:"]
    lines += _listed(asked)
    if record.code:
        lines += ["", "and by modules that were imported while it ran:"]
        lines += _listed(record.code)
    return "\n".join(lines)


def _listed(values: JsonObject, indent: str = "  ") -> list[str]:
    """Return the lines of a table, those of inner ones indented more; values are JSON."""
    lines = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            lines.append(f"{indent}{name}:")
            lines += _listed(value, indent + "  ")
        elif isinstance(value, list) and any(isinstance(entry, list | dict) for entry in value):
            lines.append(f"{indent}{name}:")
            for entry in value:
                lines.append(f"{indent}  {json.dumps(entry, ensure_ascii=False)}")
        else:
            lines.append(f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}")
    return lines


def schema(baseline: bool) -> tuple[JsonObject, str, int]:
    """Print the JSON schema of results, or of a baseline."""
    model = Baseline if baseline else Results
    document = model.model_json_schema(mode="serialization")
    return document, files.to_json(document), 0
