"""`imgedit compare`: whether scores fell between two runs."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_imgedit.cli.comparable import (
    difference,
    read_with_paths,
    refuse_to_compare,
    suites_of,
)
from pytest_imgedit.cli.duelling import Dueled, duel_runs, refuse_to_duel
from pytest_imgedit.cli.judge_options import JudgeOptions
from pytest_imgedit.cli.leaderboard import leaderboard
from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.core import errors
from pytest_imgedit.core.measures import OVERALL, SCORE_ONLY, Field, groups_in
from pytest_imgedit.core.results import Comparison, ComparisonRow, GateResult, Measure
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import number, printable, signed
from pytest_imgedit.report import (
    comparison_page,
    duel_tables,
    measure_tables,
    outputs,
    tables,
    terminal,
)
from pytest_imgedit.report.parameters import model_differences
from pytest_imgedit.report.view_page import pairs_url
from pytest_imgedit.stats import collapsed_pairs, gate_rules, gate_values, judge_qualification
from pytest_imgedit.stats.comparison import PairedItems, compare, environment_differences
from pytest_imgedit.stats.outcome import WORST_FIRST, clip, fails, wins
from pytest_imgedit.store.baselines import Baseline

#: The most columns of the verdict.
WIDTH = 80
#: What the verdict says of a finding; a gate's state is said first.
_FINDINGS = {
    "same": ", no pair differs",
    "no change shown": ", not told apart",
    "unknown": ", too few pairs to tell",
}


@dataclass(frozen=True)
class _Compared:
    """Two runs by each of their `measures`, with the gates on scores that apply to the later one,
    and the duels of their edits, if there are any.

    Without a `comparison`, their scores cannot be compared, for the reason `incomparable`.
    """

    settings: GatesSettings
    comparison: Comparison | None = None
    measures: Mapping[str, Measure] = field(default_factory=dict)
    on_scores: Sequence[GateResult] = ()
    dueled: Dueled | None = None
    incomparable: str = ""

    @property
    def gates(self) -> list[GateResult]:
        """All gates, as pytest lists them."""
        on_duels = () if self.dueled is None else self.dueled.gates
        return [*self.on_scores, *on_duels]

    @property
    def remarks(self) -> list[str]:
        """Lines on the judge of duels, and on scores that are not compared."""
        lines = [] if self.dueled is None else self.dueled.lines
        if self.incomparable:
            lines.append(f"scores are not compared: {self.incomparable}")
        return lines

    @property
    def document(self) -> JsonObject:
        """The comparison, the gates and the duels; what there is not is `None`."""
        comparison = self.comparison
        document: JsonObject = {
            "comparison": None if comparison is None else comparison.model_dump(mode="json"),
            "gates": [asdict(gate) for gate in self.gates],
        }
        dueled = {"duel": None, "duel_judge": None}
        return document | (dueled if self.dueled is None else self.dueled.document)


def compare_runs(
    references: Sequence[str], html: Path | None, out: Path, **options: Any
) -> tuple[JsonObject, str, int]:
    """Compare two runs or baselines pair by pair, and apply gates on drops and on collapsed pairs
    as pytest does, with the trial of the later run's judge; with duels, have a judge decide which
    edits are better. `options` are those of gates and duels, by name.

    More than two are ranked in a leaderboard, whose reference is the first. The exit code is 1 if
    a gate fails. Raises `UsageError` for a single run, and for runs that cannot be compared.
    """
    is_duel = options.pop("duel")
    judge = JudgeOptions.take(options)
    if not is_duel:
        _refuse_without_duel(judge, options)
    is_gated = bool(options["max_drop"] or options["max_collapsed"] is not None)
    if len(references) != 2:
        _refuse_several(references, is_gated=is_gated, is_duel=is_duel)
        return leaderboard(
            references, references[0], measure=(), md=None, csv=None, html=html, out=out
        )
    settings = _gates_settings({**options, "duel": is_duel})
    (before, path_before), (now, path) = read_with_paths(references, out)
    kept = outputs.inputs(out, *suites_of((before, now)))
    paths = {} if html is None else {"html": html}
    outputs.check(paths, kept)
    names = " and ".join(references)
    compared = _compare_scores(before, now, names, settings, is_gated=is_gated)
    if is_duel:
        dueled = duel_runs((before, path_before), path, judge, settings, out)
        compared = replace(compared, dueled=dueled)

    verdict = _verdict(compared)
    title = f"{now.name}: editor {now.editor.spec}, run {now.run}"
    shown = list(_tables(compared, len(now.items)))
    models = {
        "editor": model_differences(before.editor, now.editor),
        "judge": model_differences(before.judge, now.judge),
    }
    remarks = [f"{role}: {', '.join(names)}" for role, names in models.items() if names]
    remarks += compared.remarks
    lines = [verdict, *_gate_lines(compared), printable(title), *map(printable, remarks)]
    lines.append(terminal.render_tables(shown).rstrip())
    if html is not None:
        url = pairs_url(html, out, (before.run, now.run))
        page = comparison_page.render(
            title, verdict, compared.gates, shown, pairs_url=url, remarks=remarks
        )
        outputs.write(html, page, kept)
        lines.append(f"html: {os.path.relpath(html)}")
    is_failed = any(fails(gate, settings) for gate in compared.gates)
    return {**compared.document, "models": models}, "\n".join(lines), int(is_failed)


def _refuse_without_duel(judge: JudgeOptions, options: Mapping[str, Any]) -> None:
    """Raise `UsageError` for an option of duels where there are none."""
    nothing = "nothing to decide"
    if options["min_win"]:
        raise errors.UsageError(f"--min-win: {nothing}, expected --duel too")
    judge.refuse_without("--duel", nothing)


def _refuse_several(references: Sequence[str], *, is_gated: bool, is_duel: bool) -> None:
    """Raise `UsageError` for a single run, and for gates and duels with more than two."""
    if len(references) < 2:
        raise errors.UsageError(f"compare {references[0]}: expected two or more runs or baselines")
    if is_duel:
        raise errors.UsageError("--duel: a duel is between two runs, not more: name two")
    if is_gated:
        raise errors.UsageError("gates compare two runs, not a leaderboard of more: name two")


def _compare_scores(
    before: Baseline, now: Baseline, names: str, settings: GatesSettings, *, is_gated: bool
) -> _Compared:
    """Compare the scores of two runs; of runs that duel, without gates on scores, they may be
    left out. Raises `UsageError`, which calls the runs by `names`, if they cannot be compared.
    """
    if settings.duel and not is_gated:
        refuse_to_duel(before, now, names)
        reason = difference(before, now)
        if reason is not None:
            return _Compared(settings, incomparable=reason)
    refuse_to_compare(before, now, names, gated=is_gated)
    return _compare(before, now, settings, is_gated)


def _gates_settings(options: Mapping[str, Any]) -> GatesSettings:
    """Return the settings of gates; raise `UsageError` for an option with a wrong value."""
    values = dict(options)
    values["max_collapsed"] = options["max_collapsed"] or 0  # none is allowed without the option
    try:
        return GatesSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-")
        problem = first["msg"].removeprefix("Value error, ")
        raise errors.UsageError(f"--{option}: {problem}") from None


def _compare(before: Baseline, now: Baseline, settings: GatesSettings, is_gated: bool) -> _Compared:
    """Compare two runs pair by pair; the gates on collapsed pairs and on the judge count only if
    `is_gated`.
    """
    measures = {**SCORE_ONLY, **now.measures}
    gate_values.check_fields("--max-drop", settings.max_drop, groups_in(now.items), measures)
    paired = PairedItems(before, now.items, measures)
    is_judge_tried = judge_qualification.passed(now.controls)
    results = gate_rules.max_drop(
        settings, paired.differences, before.name, measures, is_judge_tried
    )
    tail_gate, collapsed = collapsed_pairs.max_collapsed(settings, paired.moves, before.name)
    environment = environment_differences(before, now)
    comparison = compare(paired, settings.alpha, results, environment, collapsed)
    if is_gated:
        results.append(tail_gate)
        if now.controls is not None:
            results.append(judge_qualification.controls_gate(now.controls))
    return _Compared(settings, comparison, measures, results)


def _tables(compared: _Compared, pairs: int) -> Iterator[tables.Table]:
    """Yield the tables of duels, and those of scores with differences of so many pairs."""
    if compared.dueled is not None:
        yield from duel_tables.tables_of_duel(compared.dueled.duel, brief=False)
    if compared.comparison is not None:
        yield tables.comparison_table(compared.comparison, pairs)
        yield from measure_tables.compared_tables(
            compared.comparison, compared.measures, brief=False
        )


def _gate_lines(compared: _Compared) -> Iterator[str]:
    """Yield the state of each gate, and why it has it."""
    for gate in compared.gates:
        warning = " (warning)" if compared.settings.only_warns(gate) else ""
        yield printable(f"{gate.state}{warning}: {gate.why}")


def _verdict(compared: _Compared) -> str:
    """Say in at most 80 columns which state the gates have, and the share of duels that was won, or
    how the overall mean of the first measure moved that both have; if there is none, say so.
    """
    head = _worst_state(compared)
    if compared.dueled is not None:
        return clip(printable(f"{head}{wins(compared.dueled.duel) or 'no duel has a vote'}"), WIDTH)
    comparison = compared.comparison
    for name, rows in () if comparison is None else comparison.measures.items():
        row = rows[OVERALL]
        if row.difference is None:
            continue
        moved = _moved(row, compared.measures[name])
        field = str(Field(name, OVERALL))
        room = WIDTH - len(head) - len(moved) - 1  # for the blank
        return printable(f"{head}{field[:room]} {moved}")
    return f"{head}no pair has a value on both sides"


def _worst_state(compared: _Compared) -> str:
    """Return the worst state of the gates as the head of a verdict, marked as a warning if none of
    them fails; an empty text without gates.
    """
    if not compared.gates:
        return ""
    worst = min(compared.gates, key=lambda gate: WORST_FIRST.index(gate.state))
    is_failed = any(fails(gate, compared.settings) for gate in compared.gates)
    if worst.state == "PASS" or is_failed:
        return f"{worst.state}: "
    return f"{worst.state} (warning): "


def _moved(row: ComparisonRow, measure: Measure) -> str:
    """Say how the mean of a measure moved, and whether that is shown to be a change."""
    now = number(row.now, measure.decimals)
    before = number(row.before, measure.decimals)
    finding = _FINDINGS.get(row.finding, "")
    if row.finding in ("fell", "rose"):
        is_better = (row.finding == "fell") == measure.lower_is_better
        finding = f", shown to be {'better' if is_better else 'worse'}"
    return f"{now}, was {before}: {signed(row.difference, measure.decimals)}{finding}"
