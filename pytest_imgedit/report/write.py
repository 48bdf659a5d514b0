"""Writes every report of a run: into its folder, where the user asked for a copy, and for GitHub
Actions.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_imgedit.config.settings import RunSettings
from pytest_imgedit.core import errors, files
from pytest_imgedit.core.results import Results
from pytest_imgedit.core.text import printable, shorten
from pytest_imgedit.report import html, markdown, outputs, pictures
from pytest_imgedit.stats.outcome import Outcome

#: The most bytes that a step may append to `GITHUB_STEP_SUMMARY`: GitHub drops a longer page.
SUMMARY_BYTES = 1024 * 1024
#: Bytes of these that are left to what else the step appends.
SPARE_BYTES = 32 * 1024
#: The most errors, and the most warnings, of a step that GitHub shows.
ANNOTATIONS = 10


def write_reports(
    results: Results, folder: Path, blobs: Path, settings: RunSettings
) -> dict[str, str]:
    """Write report.md and report.html beside results.json; return the paths of the three by name,
    from the working directory.

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
    results: Results,
    folder: Path,
    blobs: Path,
    settings: RunSettings,
    kept: Sequence[Path],
    *,
    are_written: bool = True,
) -> list[str]:
    """Write the copies of the reports that the user asked for; return a line for each that could
    not be written.

    If the reports `are_written` into the run's `folder`, a copy with the same content is read from
    there.
    """
    report_names = {"json": "results", "md": "markdown", "html": "html"}
    problems = []
    for format_, path in settings.copies.items():
        try:
            with outputs.naming(path):
                if format_ == "html" and not settings.html_embed:
                    text = html.render(results, pictures.copied(blobs, path))
                elif are_written:
                    text = paths(folder)[report_names[format_]].read_bytes().decode()
                else:
                    text = _render(format_, results, blobs)
            outputs.write(path, text, kept, format_)
        except errors.UsageError as error:
            problems.append(f"{error}; the run's reports are in {folder}")
    return problems


def _render(format_: str, results: Results, blobs: Path) -> str:
    """Render a report as one file."""
    if format_ == "html":
        return html.render(results, pictures.embedded(blobs))
    if format_ == "md":
        return markdown.render(results)
    return results.to_json()


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
    """Turn the error of a write into a `StoreError` that names the run's folder."""
    try:
        yield
    except OSError as error:
        raise errors.StoreError(
            f"{folder}: {error.strerror}, so that the reports are not all there"
        ) from error


def add_to_github_summary(results: Results) -> str:
    """Append the Markdown report to the file that `GITHUB_STEP_SUMMARY` names, if that can be
    written; it is cut to what GitHub shows of a step, less what the file already holds.

    Returns why nothing was appended if the file is full; otherwise an empty text.
    """
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if not summary:
        return ""
    path = Path(summary)
    held = 0
    with suppress(OSError):
        held = path.stat().st_size
    why = f"GitHub shows {SUMMARY_BYTES // 1024:,} KiB of a step; report.md has all"
    for most in (SUMMARY_BYTES - SPARE_BYTES, SUMMARY_BYTES):
        # one byte less, so that the page stays under the bound
        text = markdown.render_within(results, most - held - 1, why)
        if text:
            with suppress(OSError):
                files.append_bytes(path, f"{text}\n".encode())
            return ""
    return f"GITHUB_STEP_SUMMARY: nothing was appended to {held:,} bytes: {why}"


def gate_commands(results: Results, outcome: Outcome) -> list[str]:
    """Return an `::error` line for each gate that did not pass (`::warning` where it only warns), a
    FAIL first; one line for the whole run if that is not complete, or fails without such a gate.
    """
    open_gates = [gate for gate in results.gates if gate.state not in ("PASS", "NOT SELECTED")]
    open_gates.sort(key=lambda gate: gate.state != "FAIL")
    if results.run.status != "complete" or (outcome.fails and not open_gates):
        message = "; ".join((outcome.line,) + outcome.notes)
        return [command("error", "imgedit", message)]
    commands = []
    for gate in open_gates:
        level = "warning" if results.run.options.gates.only_warns(gate) else "error"
        title = f"imgedit {gate.kind} {gate.field}"
        commands.append(command(level, title, f"{gate.state}: {gate.why}"))
    return commands


def shown(commands: Sequence[str]) -> list[str]:
    """Return the commands that GitHub will show, errors first: at most `ANNOTATIONS` of a level,
    the last of which counts the others if there are more.
    """
    kept: list[str] = []
    for level in ("error", "warning"):
        alike = [line for line in commands if line.startswith(f"::{level} ")]
        if len(alike) > ANNOTATIONS:
            more = len(alike) - ANNOTATIONS + 1
            told = f"{more} more are in the log and in report.md: GitHub shows {ANNOTATIONS} a step"
            alike[ANNOTATIONS - 1 :] = [command(level, "imgedit", told)]
        kept += alike
    return kept


def command(level: str, title: str, message: str) -> str:
    """Return a workflow command; what would end a part of it is escaped."""
    title = _command_text(title, most=200).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{_command_text(message, most=4000)}"


def _command_text(text: str, most: int) -> str:
    return printable(shorten(text, most)).replace("%", "%25")
