"""The tables and lines that every report shows of a run's results; each report escapes their
texts.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from operator import attrgetter, itemgetter
from typing import NamedTuple

from pytest_imgedit.core.measures import OVERALL, SCORE, further_score
from pytest_imgedit.core.reply import SCALE
from pytest_imgedit.core.results import (
    Canary,
    Comparison,
    Controls,
    Edit,
    EditorInfo,
    FurtherInfo,
    ItemError,
    JudgeInfo,
    Noise,
    ProtocolTable,
    Results,
    ReuseInfo,
    Summary,
)
from pytest_imgedit.core.sanitize import (
    counted,
    first_of,
    interval,
    number,
    shorten,
    signed,
)
from pytest_imgedit.kinds.folder import has_finished_edits
from pytest_imgedit.stats.alike import alike_edits
from pytest_imgedit.stats.outcome import copies_line, failed_alike, is_said

CATEGORY_HEADER = (
    "category",
    "n",
    "scored",
    "errors",
    "refused",
    "mean",
    "95% CI",
    "std",
    "median",
    "min",
    "max",
)
WORKER_HEADER = (
    "worker",
    "device",
    "stage",
    "done",
    "a call",
    "busy s",
    "load s",
    "GPU GiB",
    "host GiB",
)
#: The row of the mean over all pairs.
MICRO = "overall (micro)"
#: Measures of the judge that the table of scores has beside the score, at most.
MOST_MAIN = 4
#: Published rows that a brief table has.
PUBLISHED_SHOWN = 5
PUBLISHED_HEADER = (
    *("model", "row", "value", "made of", "provider", "order", "sampling", "rewriting", "source"),
)
PROTOCOL_HEADER = ("row", "n", "value", "95% CI", "scale")
COMPARISON_HEADER = (
    "category",
    "n",
    "before",
    "now",
    "diff",
    "95% CI",
    "p of drop",
    "finding",
    "MDE",
)
#: Columns of words, which are aligned to the left.
WORDS = (
    *("run", "name", "commit", "finished", "chart", "suite", "editor", "state", "GPU", "product"),
    *(
        "parameters",
        "category",
        "group",
        "groups",
        "system",
        "measure",
        "gate",
        "worker",
        "device",
        "stage",
        "finding",
        "control",
        "judge",
    ),
    "judged again",
    *("row", "model", "made of", "provider", "order", "sampling", "rewriting", "source"),
)
#: How notes begin that only reports and `-v` show: what statistics mean, and what the outcome says
#: too.
DETAILS = ("p-values: ", "collapsed: ")
#: Columns that say nothing of a row whose measured columns are empty.
COUNTS = ("n", "scored", "errors", "refused", "pending", "scale")
_SHOWN = {"PASS": "told apart", "INVALID": "not told apart", "INCONCLUSIVE": "not shown"}


def human_time(text: str) -> str:
    """Write an ISO 8601 time as a person would, in UTC; any other text stays as it is."""
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%d %b %Y, %H:%M} UTC"
    except ValueError:
        return text


def judge_name(results: Results) -> str:
    """Name the judge and its protocol, if it has one."""
    judge = results.judge
    if judge.protocol is None:
        return judge.spec
    scoring = ", expected grades" if judge.params.get("scoring") == "expected" else ""
    answered = ", ".join(judge.returned)
    by = f", answered by {answered}" if answered and not judge.spec.endswith(f"#{answered}") else ""
    return f"{judge.spec}, protocol {judge.protocol}@{judge.variant}{scoring}{by}"


def main_measures(results: Results) -> list[str]:
    """Return the main measures whose means are not those of the score: those of all further judges
    and metrics, which were asked for, and at most `MOST_MAIN` of the judge.
    """
    of_score = {group: row.mean for group, row in results.measures[SCORE].rows.items()}
    names = [
        name
        for name, measured in results.measures.items()
        if measured.is_main
        and any(row.mean != of_score.get(group) for group, row in measured.rows.items())
    ]
    own = [name for name in names if not is_further(name, results)]
    return [*(name for name in names if name not in own), *own[:MOST_MAIN]]


def is_further(name: str, results: Results) -> bool:
    """Tell whether a measure is a metric, or the score of a further judge."""
    return name in results.further or name in map(further_score, results.further)


def category_header(results: Results) -> tuple[str, ...]:
    """Return the columns of the table of scores: those of the score, and the main measures."""
    names = (shorten(name, 40) for name in main_measures(results))
    return (*CATEGORY_HEADER, *names)


def category_rows(results: Results) -> list[tuple[str, ...]]:
    """One row a category, in the columns of `category_header`; the suite's own name of it stands
    beside its slug.
    """
    labels = results.suite.labels
    return [
        (
            *_row(f"{name} {shorten(labels.get(name, ''), 40)}".rstrip(), summary),
            *_main_means(results, name),
        )
        for name, summary in results.categories.items()
    ]


def overall_rows(results: Results) -> list[tuple[str, ...]]:
    """The row `overall`, whose mean is that of the categories; and where these are uneven in a
    measure that is shown, the row of the mean over pairs.
    """
    shown = [results.measures[name] for name in main_measures(results)]
    rows = [(*_row(OVERALL, results.overall.macro), *_main_means(results, OVERALL))]
    if any(measured.is_uneven for measured in (results.measures[SCORE], *shown)):
        means = (number(measured.micro.mean, measured.decimals) for measured in shown)
        rows.append((*_row(MICRO, results.overall.micro), *means))
    return rows


def _row(name: str, summary: Summary) -> tuple[str, ...]:
    return (
        name,
        *map(str, (summary.n, summary.scored, summary.errors, summary.refused)),
        number(summary.mean),
        interval(summary.ci95),
        *map(number, (summary.std, summary.median, summary.min, summary.max)),
    )


def _main_means(results: Results, group: str) -> list[str]:
    means = []
    for name in main_measures(results):
        measured = results.measures[name]
        row = measured.rows.get(group)
        means.append(number(None if row is None else row.mean, measured.decimals))
    return means


def worker_rows(results: Results) -> list[tuple[str, ...]]:
    """What each worker did, in the columns of `WORKER_HEADER`; memory is its peak."""
    return [
        (
            *(worker.name, worker.device, worker.stage, str(worker.jobs), str(worker.batch_size)),
            *(number(worker.busy_s, 1), number(worker.load_s, 1)),
            *map(_gib, (worker.gpu_peak, worker.host_peak)),
        )
        for worker in results.workers
    ]


def _gib(size: int | None) -> str:
    return "–" if size is None else f"{size / 2**30:.1f}"


def remarks(results: Results, verbose: bool = True) -> Iterator[str]:
    """Lines that follow the table of scores; the MDE is among them if `verbose` or if there is a
    noise floor to compare it with.
    """
    yield from _spread(results)
    yield from _edits(results)
    yield from _expected_grades(results)
    if verbose or results.noise is not None:
        yield from _sensitivity(results)
    yield from _usage("judge", results.judge)
    for name, further in results.further.items():
        yield from _further(name, further, results)


def _usage(label: str, judge: JudgeInfo) -> Iterator[str]:
    if usage := judge.usage:
        cost = "" if usage.cost is None else f", cost {usage.cost:.4g}"
        yield f"{label}: {usage.tokens_in:,} tokens in, {usage.tokens_out:,} out{cost}"
    if judge.canary is not None:
        yield from _canary(label, judge.canary)


def _canary(label: str, canary: Canary) -> Iterator[str]:
    """Say whether a served judge answered the same questions alike before, during and after."""
    failed = f", {counted(canary.failed, 'question')} without an answer" if canary.failed else ""
    yield (
        f"{label}, canary: {canary.differing} of {counted(canary.repeats, 'repeated answer')} "
        f"differ in their words, the server's own noise{failed}"
    )
    for grade in canary.grades:
        yield (
            f"warning: {label}, canary: {grade.name} of the {grade.picture} picture was "
            f"{grade.before:g} before the run and is {grade.after:g} after it: the judge may be "
            "another one"
        )
    if len(canary.models) > 1:
        models = ", then ".join(canary.models)
        yield f"warning: {label}, canary: the server answered as {models}"


def _further(name: str, further: FurtherInfo, results: Results) -> Iterator[str]:
    """Describe a further judge or metric: its spec, its agreement with the judge, and its
    failures.
    """
    label = f"{further.role} {name}"
    facts = [f"{label}: {further.spec}"]
    agreement = further.agreement
    if agreement is not None and agreement.spearman is not None:
        facts.append(
            f"Spearman {agreement.spearman:.2f} ({interval(agreement.ci95)}) with the "
            f"judge over {counted(agreement.n, 'pair')}"
        )
    if agreement is not None and agreement.difference is not None:
        facts.append(f"its mean less that of the judge {agreement.difference:+.2f}")
    yield " · ".join(facts)
    outcomes = [seed.further.get(name) for item in results.items for seed in item.seeds]
    failures = [outcome for outcome in outcomes if isinstance(outcome, ItemError)]
    if failures:
        edits = sum(outcome is not None for outcome in outcomes)
        yield (
            f"{label}: {len(failures)} of {counted(edits, 'edit')} without a value, such as "
            f"{failures[0]}"
        )
    yield from _usage(label, further)


def _spread(results: Results) -> Iterator[str]:
    means = [(name, row.mean) for name, row in results.categories.items() if row.mean is not None]
    best, highest = max(means, key=itemgetter(1), default=("", 0.0))
    worst, lowest = min(means, key=itemgetter(1), default=("", 0.0))
    if highest != lowest:
        yield f"best: {best} {highest:.2f} · worst: {worst} {lowest:.2f}"
    scores = [item.score for item in results.items if item.score is not None]
    if len(scores) >= 3 and len(set(scores)) == 1:
        yield f"no spread: all {len(scores)} scores are {scores[0]:.2f}"


def _edits(results: Results) -> Iterator[str]:
    """Say what is noticed of the edits of a run, and of the servers that made them."""
    edits = [edit for item in results.items for edit in item.edits]
    yield from _near_copies(edits, results)
    yield from _reframed(edits)
    yield from _seeds(results.editor)
    yield from _alike(results)
    yield from _leaks(edits)
    yield from _other_environments(results.reuse)


def _near_copies(edits: Sequence[Edit], results: Results) -> Iterator[str]:
    """Count near-copies of the source, unless the outcome or a gate does."""
    copies = sum(edit.near_copy for edit in edits)
    line = copies_line(copies, len(edits))
    if copies and not is_said(line, results):
        yield line


def _reframed(edits: Sequence[Edit]) -> Iterator[str]:
    """Count the edits of another aspect ratio."""
    reframed = sum(edit.reframed for edit in edits)
    if reframed:
        have = "has" if reframed == 1 else "have"
        yield (
            f"reframed: {reframed} of {counted(len(edits), 'edit')} {have} another aspect ratio "
            "than the source (over 3%)"
        )


def _alike(results: Results) -> Iterator[str]:
    """Warn of finished edits that are one image, unless a gate does."""
    if not has_finished_edits(results.editor.spec):
        return
    alike = alike_edits(results.items)
    if alike is not None and not is_said(str(alike), results):
        yield f"warning: {alike}"


def _leaks(edits: Sequence[Edit]) -> Iterator[str]:
    """Count the edits that are the reference of their pair."""
    leaks = sum(edit.leaked for edit in edits)
    if leaks:
        equal = "equals" if leaks == 1 else "equal"
        yield f"leaks: {leaks} of {counted(len(edits), 'edit')} {equal} the reference of the pair"


def _other_environments(reuse: ReuseInfo) -> Iterator[str]:
    """Count the edits and verdicts of the store that other environments computed."""
    counts = []
    if reuse.edits:
        counts.append(counted(reuse.edits, "edit"))
    if reuse.verdicts:
        counts.append(counted(reuse.verdicts, "verdict"))
    if counts:
        yield f"other environments: {' and '.join(counts)} ({'; '.join(reuse.differences)})"


def _seeds(editor: EditorInfo) -> Iterator[str]:
    """Name a server that ignores the seeds that it is sent."""
    trial = editor.seeds
    if trial is None or (trial.repeats and trial.varies):
        return
    found = "two seeds gave one image" if trial.repeats else "one seed gave two images"
    yield f"warning: the server of editor {editor.spec} ignores seeds: {found}"


def _expected_grades(results: Results) -> Iterator[str]:
    verdicts = [
        (verdict.score, verdict.greedy, verdict.off_scale or 0.0)
        for item in results.items
        for verdict in item.verdicts
        if verdict.greedy is not None
    ]
    if verdicts:
        expected, greedy, off_scale = zip(*verdicts, strict=True)
        yield (
            f"scores are made of expected grades: mean {sum(expected) / len(verdicts):.2f}, of "
            f"the greedy replies {sum(greedy) / len(verdicts):.2f}; at most {max(off_scale):.1%} "
            "off the scale"
        )


def _sensitivity(results: Results) -> Iterator[str]:
    """Say what these pairs could show, and how far the judge's own noise reaches."""
    parts, lines = [], []
    if results.overall.macro.mde:  # zero says only that no spread was seen
        parts.append(f"{results.overall.macro.mde:.2f} below a threshold")
        known = [(name, row.mde) for name, row in results.categories.items() if row.mde]
        if len(known) > 1:
            name, widest = max(known, key=itemgetter(1))
            parts[0] += f" ({name} {widest:.2f})"
    if results.comparison is not None and (mde := results.comparison.rows["overall"].mde):
        parts.append(f"{mde:.2f} below the baseline")
    if parts:
        lines.append(f"MDE of the overall score, at 80% power: {', '.join(parts)}")
    if results.noise is not None and results.noise.floor is not None:
        lines.append(f"judge's noise floor {results.noise.floor:.2f}")
    if lines:
        yield " · ".join(lines)


def timing_line(results: Results) -> str:
    """Say how long each stage took and what came from the store."""
    timing = results.timing
    swap = f"swap {timing.swap_s:.1f} s ({counted(timing.swaps, 'swap')}) · "
    further = f" · further judges and metrics {timing.further_s:.1f} s" if timing.further_s else ""
    trials = f" · trials of the judge {timing.trials_s:.1f} s" if timing.trials_s else ""
    shares = [("editing", timing.edit_gpu_busy), ("scoring", timing.score_gpu_busy)]
    busy = ", ".join(f"{share:.0%} while {stage}" for stage, share in shares if share is not None)
    gpus = f" · GPUs busy {busy}" if busy else ""
    return (
        f"edit {timing.edit_s:.1f} s ({timing.edits} edited, {timing.edits_cached} from the "
        f"store) · {swap if timing.swaps else ''}score {timing.score_s:.1f} s ({timing.verdicts} "
        f"scored, {timing.verdicts_cached} from the store){trials}{further}{gpus}"
    )


def error_lines(results: Results, most: int = 10) -> list[str]:
    """One line for each of the first `most` reasons why pairs have no score, with these pairs."""
    pairs: dict[str, list[str]] = {}
    for item in results.items:
        if item.status in ("edit_error", "judge_error", "refused", "dropped"):
            pairs.setdefault(str(item.error), []).append(item.id)
    lines = [f"{_named(ids)}: {reason}" for reason, ids in pairs.items()]
    if others := sum(map(len, list(pairs.values())[most:])):
        return [*lines[:most], f"and {counted(others, 'pair')} more"]
    return lines


def _named(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{len(ids)} pairs ({first_of(ids)})"


def provenance_lines(results: Results) -> list[str]:
    """Name the models and the software that made the edits and verdicts, so that a reader can
    repeat the run.
    """
    run, seeds = results.run, counted(results.run.options.editor.seeds, "seed")
    changes = " with changes" if run.commit and run.commit.dirty else ""
    commit = f"commit {run.commit.sha[:10]}{changes}" if run.commit else ""
    gpus = ", ".join(f"{count} x {name}" for name, count in Counter(run.machine.gpus).items())
    versions = (f"{name} {version}" for name, version in run.versions.items())
    return [
        f"editor: {_model(results.editor.spec, results.editor)}, {seeds} a pair",
        f"judge: {_model(judge_name(results), results.judge)}",
        "; ".join(filter(None, (commit, gpus or "CPU", *versions))),
    ]


def _model(name: str, model: EditorInfo | JudgeInfo) -> str:
    params = (
        f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in model.params.items()
    )
    weights = f"fingerprint {model.fingerprint[:12]}" if model.fingerprint else ""
    return ", ".join(filter(None, (name, *params, model.dtype, weights)))


class Table(NamedTuple):
    """A table of texts, with lines that follow it; the HTML report folds one that `is_detail`.

    Where a table is cut, the rows with the lowest `urgency` stay, one number a row; without, the
    first rows.
    """

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: list[str]
    is_detail: bool = False
    urgency: Sequence[float] = ()


def urgency(value: float | None, lower_is_better: bool = False) -> float:
    """Return the urgency of a mean or a difference; what has none comes first."""
    if value is None:
        return float("-inf")
    return -value if lower_is_better else value


def with_numbers(made: Iterable[Table | None]) -> Iterator[Table]:
    """Yield tables without the rows of those in which nothing was measured; of these only the
    notes stay, if they have any.
    """
    for table in made:
        if table is None:
            continue
        measured = [
            place for place, name in enumerate(table.header) if name not in (*WORDS, *COUNTS)
        ]
        is_empty = all(row[place] in ("–", "") for row in table.rows for place in measured)
        if measured and is_empty:
            table = table._replace(rows=[], urgency=())
        if table.rows or table.notes:
            yield table


def further_tables(results: Results, brief: bool = False) -> list[Table]:
    """The tables that a run has beside its scores; if `brief`, without the details of protocols."""
    return list(
        with_numbers(
            (
                protocol_table(results, brief),
                published_table(results, brief),
                controls_table(results.controls) if results.controls else None,
                noise_table(results.noise) if results.noise else None,
            )
        )
    )


def protocol_table(results: Results, brief: bool) -> Table | None:
    """The protocol's own rows; `None` if they say no more than the table of scores."""
    protocol, mean = results.protocol, results.overall.macro.mean
    if protocol is None:
        return None
    says_more = mean is None or [round(row.value, 9) for row in protocol.rows] != [round(mean, 9)]
    is_told = protocol.touched or protocol.problem or not protocol.sees_change
    if not is_told and not (says_more and protocol.rows):
        return None
    totals = f", {protocol.totals}" if protocol.totals else ""
    return Table(
        f"protocol {protocol.name}{totals}{_subset(results)}",
        PROTOCOL_HEADER,
        [
            (
                row.name,
                str(row.n),
                number(row.value, row.decimals),
                interval(row.ci95),
                f"{row.scale[0]:g} to {row.scale[1]:g}",
            )
            for row in protocol.rows
            if not (brief and row.is_detail)
        ],
        list(_protocol_notes(protocol)),
    )


def _protocol_notes(protocol: ProtocolTable) -> Iterator[str]:
    if protocol.problem:
        yield protocol.problem
    if any(row.scale != SCALE for row in protocol.rows):
        yield "the table of categories and all gates are on a scale from 0 to 10"
    if not protocol.sees_change:
        yield (
            "no call of this protocol shows what was changed: its score cannot tell an untouched "
            "source from an edit"
        )
    if protocol.touched:
        yield (
            f"compat: the authors' rule stands for replies that could not be read: "
            f"{protocol.touched}"
        )


def published_table(results: Results, brief: bool) -> Table | None:
    """Numbers that others have published for the protocol, and what they say of how they were
    made; the highest first. The title says so if the run has fewer pairs.
    """
    if results.protocol is None:
        return None
    everything = sorted(results.protocol.published, key=attrgetter("value"), reverse=True)
    rows = everything[:PUBLISHED_SHOWN] if brief else everything
    left = len(everything) - len(rows)
    return Table(
        f"published for {results.protocol.name.partition('@')[0]} by others' settings"
        f"{_subset(results)}",
        PUBLISHED_HEADER,
        [
            (
                row.model,
                row.row,
                f"{row.value:g}",
                f"{counted(row.pairs, 'pair')}, judge {row.judge}, {row.date}",
                row.provider,
                row.order,
                row.sampling,
                row.rewriting,
                row.source,
            )
            for row in rows
        ],
        [f"and {left} more (-v, and the reports)"] if left else [],
    )


def _subset(results: Results) -> str:
    """Say that a run has not all pairs that published rows are of."""
    published = [] if results.protocol is None else results.protocol.published
    whole = max((row.pairs for row in published), default=0)
    judged = sum(item.is_judged for item in results.items)
    return "" if judged >= whole else f" (this run: {judged} of {counted(whole, 'pair')})"


def comparison_table(comparison: Comparison, pairs: int) -> Table:
    """One row a category and `overall` against the baseline, for a run of so many `pairs`."""
    commit = f", commit {comparison.commit.sha[:10]}" if comparison.commit else ""
    whole = counted(comparison.size, "pair")
    part = "" if comparison.size == pairs else f" ({pairs} of its {whole})"
    ordered = sorted(comparison.rows.items(), key=lambda row: row[0] == "overall")
    return Table(
        f"against baseline {comparison.name}: editor {comparison.editor}, run {comparison.run}"
        f"{commit}{part}",
        COMPARISON_HEADER,
        [
            (
                field,
                str(row.n),
                number(row.before),
                number(row.now),
                signed(row.difference),
                interval(row.ci95, signs=True),
                p_value(row.p),
                f"rose, p {p_value(row.p_rise)}" if row.finding == "rose" else row.finding,
                number(row.mde),
            )
            for field, row in ordered
        ],
        list(_comparison_notes(comparison)),
        urgency=[urgency(row.difference) for _, row in ordered],
    )


def _comparison_notes(comparison: Comparison) -> Iterator[str]:
    yield "p-values: one-sided, Holm-corrected; intervals: two-sided, uncorrected"
    alike = sum(pair.alike for pair in comparison.pairs.values())
    if any(row.now is not None for row in comparison.rows.values()):
        edits = counted(len(comparison.pairs), "edit")
        yield f"{alike} of {edits} {'is' if alike == 1 else 'are'} unchanged"
    yield from failed_alike(comparison)
    if comparison.environment:
        yield f"computed in other environments: {'; '.join(comparison.environment)}"
    if collapsed := comparison.collapsed:
        yield f"collapsed: {first_of(collapsed)}"
    for verb, moved in (("fell", comparison.fell), ("rose", comparison.rose)):
        if moved:
            named = (f"{pair.id} {pair.before:.2f} → {pair.now:.2f}" for pair in moved)
            yield f"{verb} most: {', '.join(named)}"


def p_value(p: float | None) -> str:
    return "<0.001" if p is not None and p < 0.001 else number(p, 3)


def controls_table(controls: Controls) -> Table:
    """One row a control, best first."""
    return Table(
        f"controls: the judge on edits of known quality, {counted(controls.pairs, 'pair')}",
        ("control", "n", "errors", "pending", "mean", "95% CI", "AUC", "judge"),
        [
            (
                row.control if row.below == "oracle" else f"{row.control} < {row.below}",
                *map(str, (row.n, row.errors, row.pending)),
                number(row.mean),
                interval(row.ci95),
                "–" if row.auc is None else f"{row.auc:.2f} ({interval(row.auc_ci95)})",
                "not all asked" if row.pending else _SHOWN.get(row.state or "", "–"),
            )
            for row in controls.rows
        ],
        [],
    )


def noise_table(noise: Noise) -> Table:
    """One row a repeat of the judging."""
    return Table(
        "judge's noise: the same edits judged again",
        ("judged again", "n", "errors", "pending", "changed", "SD", "shift"),
        [
            (
                row.perturbation,
                *map(str, (row.n, row.errors, row.pending, row.changed)),
                number(row.sd),
                signed(row.shift),
            )
            for row in noise.rows
        ],
        ["the noise floor is that of all rows but order, in which no two runs differ"],
    )
