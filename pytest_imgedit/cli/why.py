"""`imgedit why`: what differs between two runs, and what each difference did to the score."""

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pytest_imgedit.cli.comparable import names_of, read_document, suites_of
from pytest_imgedit.cli.judge_options import JudgeOptions
from pytest_imgedit.config.settings import make_settings
from pytest_imgedit.core import errors
from pytest_imgedit.core.results import PublishedRow, Results
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import did_you_mean, first_of
from pytest_imgedit.protocols.loading import CLASSES, IN_TOML, published_rows
from pytest_imgedit.report import outputs, published_causes, why_page
from pytest_imgedit.report.causes import Side, causes_of
from pytest_imgedit.report.why_page import Explanation, Step
from pytest_imgedit.run.rejudging import rejudge
from pytest_imgedit.run.session import Session
from pytest_imgedit.stats.effects import Effect, effects
from pytest_imgedit.store.run_references import LATEST

_RENDERERS = {"md": why_page.markdown, "html": why_page.page}


def why(
    before: str,
    now: str,
    *,
    ask: bool,
    md: Path | None,
    html: Path | None,
    out: Path,
    **options: Any,
) -> tuple[JsonObject, str, int]:
    """Say what differs between a run and another one, a baseline or a published row, and what that
    did to the score; write a file in each format that has a path. The `options` are those of
    `JudgeOptions`, for `ask`.

    The exit code is 0, whether they differ or not. Raises `UsageError` for what cannot be read, for
    a baseline against a published row, and for `--ask` with anything but two runs.
    """
    judge = JudgeOptions.take(options)
    if not ask:
        judge.refuse_without("--ask", "nothing to ask")
    asking = judge if ask else None
    chosen = {"md": md, "html": html}
    paths = {kind: path for kind, path in chosen.items() if path is not None}
    outputs.check(paths, outputs.inputs(out))  # before the runs are read, which takes long
    if find_published(before) is not None:
        raise errors.UsageError(
            f"{before[:200]}: a published row, expected a run first and the row as B"
        )
    published = find_published(now)
    if published is None:
        sides = _read_sides(before, now, out)
        explanation = _explain_runs(sides[0], sides[1], asking, out)
    elif asking is not None:
        raise errors.UsageError(f"--ask: {now[:200]} is one published number, expected two runs")
    else:
        sides = [Side.of(read_document(before, out))]
        explanation = _explain_published(before, sides[0], *published)
    kept = outputs.inputs(out, *suites_of([side.kept for side in sides]))
    outputs.check(paths, kept)
    lines = [why_page.text(explanation)]
    for kind, path in paths.items():
        outputs.write(path, _RENDERERS[kind](explanation), kept)
        lines.append(f"{kind}: {os.path.relpath(path)}")
    return explanation.document, "\n".join(lines), 0


def find_published(reference: str) -> tuple[str, list[PublishedRow]] | None:
    """Return the protocol and the rows of the model that `PROTOCOL/MODEL` names; `None` if it
    begins with no protocol, or is a path.

    Raises `UsageError` for a model that has no row.
    """
    protocol, slash, model = reference.partition("/")
    if not slash or protocol not in (*IN_TOML, *CLASSES) or os.path.lexists(reference):
        return None
    rows = published_rows(protocol)
    found = [row for row in rows if row.model.casefold() == model.casefold()]
    if found:
        return protocol, found
    models = sorted({row.model for row in rows})
    listed = first_of(models) if models else "none"
    raise errors.UsageError(
        f"{reference[:200]}: no published row of this model, expected one of {listed}"
        f"{did_you_mean(model, models)}"
    )


def _read_sides(before: str, now: str, out: Path) -> list[Side]:
    """Return both sides; `latest` is the newest run of the other one's suite."""
    if before == LATEST and now != LATEST:
        second = Side.of(read_document(now, out))
        return [Side.of(read_document(before, out, names_of(second.kept.suite))), second]
    first = Side.of(read_document(before, out))
    return [first, Side.of(read_document(now, out, names_of(first.kept.suite)))]


def _explain_runs(before: Side, now: Side, asking: JudgeOptions | None, out: Path) -> Explanation:
    """Explain the difference between the overall scores of two runs or baselines; raise
    `UsageError` if a judge is to be asked about a baseline.
    """
    notes = [
        f"not stated by {name}, a baseline: {', '.join(side.unstated)}"
        for name, side in (("A", before), ("B", now))
        if side.unstated
    ]
    start = before.overall
    end = now.overall
    steps: list[Step] = []
    unexplained = None if start is None or end is None else end - start
    effect_notes = ["no steps: they take the results.json of both runs"]
    if before.results is not None and now.results is not None:
        effect_notes = [_without_overall(start, end)]
        found = effects(before.results, now.results)
        if found is not None and asking is not None:
            rejudged = _rejudge(asking, before.results, now.results, out)
            found = effects(before.results, now.results, rejudged)
        if found is not None:
            steps = [_rounded(step) for step in found.steps]
            start = found.start
            end = found.end
            unexplained = found.unexplained
            effect_notes = list(found.notes)
    elif asking is not None:
        raise errors.UsageError("--ask: a baseline keeps no edits, expected two runs")
    return Explanation(
        before=_title(before),
        now=_title(now),
        causes=causes_of(before, now),
        value="overall",
        start=start,
        end=end,
        steps=steps,
        unexplained=unexplained,
        notes=notes,
        effect_notes=effect_notes,
    )


def _rejudge(judge: JudgeOptions, before: Results, now: Results, out: Path) -> dict[str, float]:
    """Have B's judge score a sample of A's edits; see `rejudging.rejudge`. Raises `UsageError` if
    `judge` is another one.
    """
    if judge.judge not in (None, now.judge.spec):
        raise errors.UsageError(
            f"--judge={judge.judge[:200]}: not the judge of B, expected {now.judge.spec}"
        )
    settings = make_settings(judge.tables(out))
    with closing(Session(settings, Path())) as session:
        return rejudge(session, before, now, sys.stderr)


def _rounded(step: Effect) -> Step:
    """Return a step whose numbers are printed alike where they are but a last bit apart."""
    return Step(step.name, round(step.before, 9), round(step.after, 9))


def _without_overall(start: float | None, end: float | None) -> str:
    """Say why there are no steps between two overall numbers."""
    if start is None:
        return "no steps: A has no overall score"
    if end is None:
        return "no steps: B has no overall score"
    return "no steps: a category without a score makes no number of all categories"


def _explain_published(
    reference: str, side: Side, protocol: str, rows: Sequence[PublishedRow]
) -> Explanation:
    """Explain the difference between a run's value of a row and a published one, of the `rows` of a
    model. Raises `UsageError` for a baseline, which keeps no such values.
    """
    run: Results | None = side.results
    if run is None:
        raise errors.UsageError(
            f"{reference[:200]}: a baseline, expected a run beside a published row"
        )
    row = published_causes.choose_row(run, rows)
    start = published_causes.value_of(run, protocol, row)
    notes = [f"not stated: {', '.join(published_causes.unstated(row))}"]
    others = published_causes.others_line(row, rows)
    if others:
        notes.append(others)
    effect_notes = ["no steps: what is published is one number"]
    if start is None:
        effect_notes = [f"A has no row {row.row} of {protocol}: no values are compared"]
    return Explanation(
        before=_title(side),
        now=published_causes.title_of(protocol, row),
        causes=published_causes.published_causes(run, protocol, row),
        value=f"{row.row} of {protocol}",
        start=start,
        end=row.value,
        unexplained=None if start is None else row.value - start,
        notes=notes,
        effect_notes=effect_notes,
    )


def _title(side: Side) -> str:
    """Return a side in words: its name, its run, its editor and its judge."""
    kept = side.kept
    name = f"{kept.name}, run {kept.run}" if kept.is_named else f"run {kept.run}"
    return f"{name}: editor {kept.editor.spec}, judge {kept.judge.spec}"
