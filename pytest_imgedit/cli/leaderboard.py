"""`imgedit leaderboard`: systems ranked over the pairs that their runs share."""

import os
import shutil
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from pytest_imgedit.cli.boards import BoardOptions, board
from pytest_imgedit.cli.comparable import (
    read_all,
    refuse_partial,
    refuse_to_compare,
    refuse_twice,
    suites_of,
)
from pytest_imgedit.core import errors
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import printable
from pytest_imgedit.report import leaderboard_page, outputs, terminal
from pytest_imgedit.report import leaderboard_tables as tables
from pytest_imgedit.report.view_page import pairs_url
from pytest_imgedit.stats.leaderboard import RankedRuns, rank_runs
from pytest_imgedit.store.baselines import Baseline

#: What renders each format.
_RENDERERS = {"md": tables.markdown, "csv": tables.csv_of}


def leaderboard(
    references: Sequence[str],
    reference: str | None,
    *,
    measure: Sequence[str],
    md: Path | None,
    csv: Path | None,
    html: Path | None,
    out: Path,
    **options: Any,
) -> tuple[JsonObject, str, int]:
    """Rank runs or baselines over the pairs that all of them have, or, with the option
    `duel`, systems by votes, as `boards.board` does; write a file in each format that has a path.

    The `reference` of differences takes part too. `measure` names measures; without any they are
    all that the runs share. `options` are those of `BoardOptions`, by name. Raises `UsageError`
    for runs that cannot be compared.
    """
    chosen = {"md": md, "csv": csv, "html": html}
    paths = {kind: path for kind, path in chosen.items() if path is not None}
    of_duels = BoardOptions(**options)
    if of_duels.duel:
        if measure:
            raise errors.UsageError(
                "--measure: votes have no measures, and all their dimensions are shown, expected "
                "--duel without it"
            )
        return board(references, reference, of_duels, paths, out)
    if not references:
        raise errors.UsageError("leaderboard: no RUN, expected one or more, or --duel")
    outputs.check(paths, outputs.inputs(out))  # before the runs are read, which takes long
    runs, base = _read_runs(references, reference, out)
    kept = outputs.inputs(out, *suites_of(runs))
    outputs.check(paths, kept)
    ranked = rank_runs(runs, base, measure)
    lines = _terminal_lines(ranked)
    for kind, path in paths.items():
        if kind == "html":
            url = pairs_url(path, out, [run.run for run in ranked.runs.values()])
            text = leaderboard_page.render(ranked, url)
        else:
            text = _RENDERERS[kind](ranked)
        outputs.write(path, text, kept)
        lines.append(f"{kind}: {os.path.relpath(path)}")
    return tables.as_json(ranked), "\n".join(lines), 0


def _read_runs(
    references: Sequence[str], reference: str | None, out: Path
) -> tuple[list[Baseline], Baseline | None]:
    """Return the runs and the reference of differences, which is added to the runs if it is not
    among them, and is `None` if none is named.

    Raises `UsageError` for a run that occurs twice, ended early, or is unlike another one.
    """
    names = list(references)
    if reference is not None:
        names.append(reference)
    runs = list(zip(names, read_all(names, out), strict=True))
    base = None
    if reference is not None:
        _, base = runs.pop()
        twin = next((run for _, run in runs if run.run == base.run), None)
        if twin is None:
            runs.append((reference, base))
        else:
            base = twin
    for _, run in runs:
        refuse_partial(run)
    refuse_twice([name for name, _ in runs], [run for _, run in runs])
    for (name, run), (other_name, other) in combinations(runs, 2):
        refuse_to_compare(run, other, f"{name} and {other_name}", only_common=True)
    return [run for _, run in runs], base


def _terminal_lines(ranked: RankedRuns) -> list[str]:
    """Return lines that show the first measure, the main measures in short form if there are
    several, and notes.
    """
    name, first = next(iter(ranked.measures.items()))
    board = tables.measure_table(name, first, ranked.reference)
    width = shutil.get_terminal_size().columns
    # A narrow terminal has no room for the last of these.
    dispensable = ["95% CI of diff", "missing"]
    dispensable += tables.categories(first)
    shown = terminal.render_table(board.header, board.rows, width, dispensable)
    lines = [
        printable(f"{tables.title(ranked)}, {tables.judge(ranked)}"),
        "",
        printable(board.title),
        shown,
    ]
    lines += map(printable, board.notes)
    summary = tables.summary_table(ranked)
    if summary is not None:
        lines += [
            "",
            printable(summary.title),
            terminal.render_table(summary.header, summary.rows, width),
        ]
    lines.append("")
    lines += map(printable, tables.notes(ranked))
    return lines
