"""Writes every report of a run: into its folder, where the user asked for a copy, and for GitHub
Actions.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_imgedit.config.settings import RunSettings
from pytest_imgedit.core import errors, files, sanitize
from pytest_imgedit.core.results import Results
from pytest_imgedit.report import html, markdown, pictures
from pytest_imgedit.stats.outcome import Outcome


def write_reports(
    results: Results, folder: Path, blobs: Path, settings: RunSettings
) -> dict[str, str]:
    """Write report.md and report.html beside results.json, and copies; return the paths of the
    three by name.

    Raises `StoreError` if one of the run's own files cannot be written, and `UsageError` for a
    copy, after the run's own files are written.
    """
    text = markdown.render(results)
    reports = {
        "results": folder / "results.json",
        "markdown": folder / "report.md",
        "html": folder / "report.html",
    }
    inside = pictures.embedded(blobs) if settings.html_embed else None  # reads each image once
    with _store_errors(folder):
        files.write_text(reports["markdown"], text)
        files.write_text(
            reports["html"],
            html.render(results, inside or pictures.linked(blobs, reports["html"])),
        )
    for path in settings.copies:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path == settings.json_path:
                path.write_text(files.to_json(results.model_dump(mode="json")), encoding="utf-8")
            elif path == settings.md_path:
                path.write_text(text, encoding="utf-8")
            else:
                path.write_text(
                    html.render(results, inside or pictures.copied(blobs, path)), encoding="utf-8"
                )
        except OSError as error:
            raise errors.UsageError(
                f"{path}: {error.strerror}; the run's reports are in {folder}"
            ) from error
    return {name: os.path.relpath(path) for name, path in reports.items()}


def write_results(results: Results, folder: Path) -> None:
    """Write results.json, from which reports can be made at any time; raises `StoreError`."""
    with _store_errors(folder):
        files.write_json(folder / "results.json", results.model_dump(mode="json"))


@contextmanager
def _store_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.StoreError(
            f"{folder}: {error.strerror}, so that the reports are not all there"
        ) from error


def add_to_github_summary(results: Results) -> None:
    """Append the Markdown report to the file that `GITHUB_STEP_SUMMARY` names, if that can be
    written.
    """
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with suppress(OSError), Path(summary).open("a", encoding="utf-8") as file:
            file.write(markdown.render(results) + "\n")


def gate_commands(results: Results, outcome: Outcome) -> list[str]:
    """One `::error` line a gate that did not pass (`::warning` where it only warns), or one for the
    whole run.
    """
    open_gates = [gate for gate in results.gates if gate.state not in ("PASS", "NOT SELECTED")]
    if results.run.status != "complete" or (outcome.fails and not open_gates):
        return [_command("error", "imgedit", outcome.line)]
    options = results.run.options.gates
    return [
        _command(
            "warning" if options.only_warns(gate) else "error",
            f"imgedit {gate.kind} {gate.field}",
            f"{gate.state}: {gate.why}",
        )
        for gate in open_gates
    ]


def _command(level: str, title: str, message: str) -> str:
    """Write a workflow command; what would end a part of it is escaped."""
    title, message = (sanitize.printable(text).replace("%", "%25") for text in (title, message))
    return f"::{level} title={title.replace(':', '%3A').replace(',', '%2C')}::{message}"


def check_writable(path: Path) -> None:
    """Raise `UsageError` if a report could not be written to this path."""
    try:
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        target = path if path.exists() else folder
    except OSError as error:  # for example, the name is too long
        raise errors.UsageError(
            f"{str(path)[:200]}: {error.strerror}, expected the path of a file"
        ) from None
    if path.is_dir() or not folder.is_dir() or not os.access(target, os.W_OK):
        raise errors.UsageError(f"{path}: cannot be written, expected the path of a file")
