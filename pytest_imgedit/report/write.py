"""Writes every report of a run: into its folder, where the user asked for a copy, and for GitHub
Actions.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_imgedit.config.settings import RunSettings
from pytest_imgedit.core import errors, files, sanitize
from pytest_imgedit.core.results import Results
from pytest_imgedit.report import html, markdown, outputs, pictures
from pytest_imgedit.stats.outcome import Outcome


def write_reports(
    results: Results, folder: Path, blobs: Path, settings: RunSettings
) -> dict[str, str]:
    """Write report.md and report.html beside results.json; return the paths of the three by name.

    Raises `StoreError` if they cannot be written.
    """
    reports = paths(folder)
    locate = pictures.linked(blobs, reports["html"])
    with _store_errors(folder):
        texts = {"markdown": markdown.render(results)}
        if settings.html_embed:
            locate = pictures.embedded(blobs)
        texts["html"] = html.render(results, locate)
        for name, text in texts.items():
            files.write_text(reports[name], text)
    return {name: os.path.relpath(path) for name, path in reports.items()}


def paths(folder: Path) -> dict[str, Path]:
    """Return where the results and reports of a run are in its folder, by name."""
    return {
        "results": folder / "results.json",
        "markdown": folder / "report.md",
        "html": folder / "report.html",
    }


def write_copies(
    results: Results, folder: Path, blobs: Path, settings: RunSettings, kept: Sequence[Path]
) -> list[str]:
    """Write the copies of the reports that the user asked for; say of each that could not be
    written why.

    The run's `folder` must have its reports: a copy with the same content is read from there.
    """
    written = {"json": "results.json", "md": "report.md", "html": "report.html"}
    problems = []
    for format_, path in settings.copies.items():
        try:
            with outputs.naming(path):
                if format_ == "html" and not settings.html_embed:
                    text = html.render(results, pictures.copied(blobs, path))
                else:
                    text = (folder / written[format_]).read_bytes().decode()
            outputs.write(path, text, kept, format_)
        except errors.UsageError as error:
            problems.append(f"{error}; the run's reports are in {folder}")
    return problems


def check_copies(settings: RunSettings, kept: Sequence[Path]) -> None:
    """Raise `UsageError` if a copy cannot be written, or would replace another one, an input of
    `kept` or a part of a store.
    """
    outputs.check(settings.copies, kept)
    path = settings.html_path
    if path is not None and not settings.html_embed and not files.is_stream(path):
        outputs.check_folder(pictures.folder_of(path), kept)


def write_results(results: Results, folder: Path) -> None:
    """Write results.json, from which reports can be made at any time; raises `StoreError`."""
    with _store_errors(folder):
        files.write_text(folder / "results.json", results.to_json())


@contextmanager
def _store_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.StoreError(
            f"{folder}: {error.strerror}, so that the reports are not all there"
        ) from error


def add_to_github_summary(folder: Path) -> None:
    """Append the report.md of a run's `folder` to the file that `GITHUB_STEP_SUMMARY` names, if
    that can be written.
    """
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with suppress(OSError):
            files.append_bytes(Path(summary), (folder / "report.md").read_bytes() + b"\n")


def gate_commands(results: Results, outcome: Outcome) -> list[str]:
    """One `::error` line a gate that did not pass (`::warning` where it only warns), or one for the
    whole run.
    """
    open_gates = [gate for gate in results.gates if gate.state not in ("PASS", "NOT SELECTED")]
    if results.run.status != "complete" or (outcome.fails and not open_gates):
        return [command("error", "imgedit", outcome.line)]
    options = results.run.options.gates
    return [
        command(
            "warning" if options.only_warns(gate) else "error",
            f"imgedit {gate.kind} {gate.field}",
            f"{gate.state}: {gate.why}",
        )
        for gate in open_gates
    ]


def command(level: str, title: str, message: str) -> str:
    """Write a workflow command; what would end a part of it is escaped."""
    title, message = (sanitize.printable(text).replace("%", "%25") for text in (title, message))
    return f"::{level} title={title.replace(':', '%3A').replace(',', '%2C')}::{message}"
