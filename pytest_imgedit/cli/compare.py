"""`imgedit compare`: whether scores fell between two runs."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_imgedit.cli.comparable import read_all, refuse_to_compare, suites_of
from pytest_imgedit.cli.leaderboard import leaderboard
from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.core import errors
from pytest_imgedit.core.measures import OVERALL, SCORE_ONLY, Field, groups_in
from pytest_imgedit.core.results import Comparison, GateResult, Measure
from pytest_imgedit.core.sanitize import number, printable, signed
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.report import comparison_page, measure_tables, outputs, tables, terminal
from pytest_imgedit.report.view import pairs_url
from pytest_imgedit.stats import collapse, controls, gates, rules
from pytest_imgedit.stats.comparison import PairedItems, compare, environment_differences
from pytest_imgedit.stats.outcome import WORST_FIRST, fails

#: The most columns of the verdict.
WIDTH = 80
#: What the verdict says of a finding; a gate's state is said first.
_FINDINGS = {
    "same": ", no pair differs",
    "no change shown": ", not told apart",
    "unknown": ", too few pairs to tell",
}


def compare_runs(
    references: Sequence[str], html: Path | None, out: Path, **options: Any
) -> tuple[JsonObject, str, int]:
    """Compare two runs or baselines pair by pair, and apply gates on drops and on collapsed pairs
    as pytest does, with the trial of the later run's judge. `options` are those of gates, by name.

    More of them are ranked in a leaderboard, whose reference is the first.
    """
    is_gated = bool(options["max_drop"] or options["max_collapsed"] is not None)
    if len(references) > 2:
        if is_gated:
            raise errors.UsageError("gates compare two runs, not a leaderboard of more: name two")
        return leaderboard(references, references[0], (), None, None, html, out)
    if len(references) < 2:
        raise errors.UsageError(f"compare {references[0]}: expected two or more runs or baselines")
    before, now = references
    try:
        settings = GatesSettings.model_validate(
            {**options, "max_collapsed": options["max_collapsed"] or 0}
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise errors.UsageError(
            f"--{str(first['loc'][0]).replace('_', '-')}: "
            f"{first['msg'].removeprefix('Value error, ')}"
        ) from None
    a, b = read_all((before, now), out)
    refuse_to_compare(a, b, f"{before} and {now}", gated=is_gated)
    kept = outputs.inputs(out, *suites_of((a, b)))
    paths = {} if html is None else {"html": html}
    outputs.check(paths, kept)
    measures = {**SCORE_ONLY, **b.measures}
    gates.check_fields("--max-drop", settings.max_drop, groups_in(b.items), measures)
    paired = PairedItems(a, b.items, measures)
    is_judge_tried = controls.passed(b.controls)
    results = rules.max_drop(settings, paired.differences, a.name, measures, is_judge_tried)
    tail, fallen = collapse.max_collapsed(settings, paired.moves, a.name)
    comparison = compare(paired, settings.alpha, results, environment_differences(a, b), fallen)
    if is_gated:
        results.append(tail)
        if b.controls is not None:
            results.append(controls.controls_gate(b.controls))
    verdict = _verdict(comparison, measures, results, settings)
    title = f"{b.name}: editor {b.editor.spec}, run {b.run}"
    shown = [
        tables.comparison_table(comparison, len(b.items)),
        *measure_tables.compared_tables(comparison, measures, brief=False),
    ]
    lines = [
        verdict,
        *(
            printable(
                f"{gate.state}{' (warning)' if settings.only_warns(gate) else ''}: {gate.why}"
            )
            for gate in results
        ),
        printable(title),
        terminal.render_tables(shown).rstrip(),
    ]
    if html is not None:
        url = pairs_url(html, out, (a.run, b.run))
        outputs.write(html, comparison_page.render(title, verdict, results, shown, url), kept)
        lines.append(f"html: {os.path.relpath(html)}")
    document = {
        "comparison": comparison.model_dump(mode="json"),
        "gates": [asdict(gate) for gate in results],
    }
    return document, "\n".join(lines), int(any(fails(gate, settings) for gate in results))


def _verdict(
    comparison: Comparison,
    measures: Mapping[str, Measure],
    gates: Sequence[GateResult],
    settings: GatesSettings,
) -> str:
    """Say in at most 80 columns which state the gates have, and how the overall mean of the first
    measure moved that both have.
    """
    head = ""
    if gates:
        worst = min(gates, key=lambda gate: WORST_FIRST.index(gate.state))
        only_warns = worst.state != "PASS" and not any(fails(gate, settings) for gate in gates)
        head = f"{worst.state}{' (warning)' if only_warns else ''}: "
    for name, rows in comparison.measures.items():
        row, measure = rows[OVERALL], measures[name]
        if row.difference is None:
            continue
        now, before = (number(value, measure.decimals) for value in (row.now, row.before))
        finding = _FINDINGS.get(row.finding, "")
        if row.finding in ("fell", "rose"):
            is_better = (row.finding == "fell") == measure.lower_is_better
            finding = f", shown to be {'better' if is_better else 'worse'}"
        moved = f"{now}, was {before}: {signed(row.difference, measure.decimals)}{finding}"
        field = str(Field(name, OVERALL))
        return printable(f"{head}{field[: WIDTH - len(head) - len(moved) - 1]} {moved}")
    return f"{head}no pair has a value on both sides"
