"""The tables and lines that every report shows of a run's results; each report escapes their
texts.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import NamedTuple

from pytest_imgedit.core.measures import OVERALL, SCORE, further_score
from pytest_imgedit.core.reply import SCALE
from pytest_imgedit.core.results import (
    Canary,
    Comparison,
    ComparisonRow,
    ControlRow,
    Controls,
    Edit,
    EditorInfo,
    FurtherInfo,
    Item,
    ItemError,
    JudgeInfo,
    MeasuredGroups,
    MovedPair,
    Noise,
    NoiseRow,
    PeopleShare,
    ProtocolRow,
    ProtocolTable,
    PublishedRow,
    Results,
    ReuseInfo,
    Summary,
)
from pytest_imgedit.core.text import (
    counted,
    first_of,
    interval,
    number,
    percent,
    percent_interval,
    shorten,
    signed,
)
from pytest_imgedit.kinds.folder import has_finished_edits
from pytest_imgedit.report.parameters import named_file
from pytest_imgedit.stats.identical_edits import alike_edits
from pytest_imgedit.stats.outcome import copies_line, failed_alike, has_near_copy, is_said

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
    "model",
    "row",
    "value",
    "made of",
    "provider",
    "order",
    "sampling",
    "rewriting",
    "source",
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
    "run",
    "name",
    "commit",
    "finished",
    "chart",
    "suite",
    "editor",
    "state",
    "GPU",
    "product",
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
    "better edit",
    "judge",
    "judged again",
    "step",
    "row",
    "model",
    "made of",
    "provider",
    "order",
    "sampling",
    "rewriting",
    "source",
)
#: How notes begin that only reports and `-v` show: what statistics mean, and what the outcome says
#: too.
DETAILS = ("p-values: ", "collapsed: ")
#: The most characters of a name in a cell, and of a column's or a category's name.
LONGEST_NAME = 60
LONGEST_LABEL = 40
#: The smallest number of scores that show no spread if all are alike.
_ENOUGH_SCORES = 3
#: Columns that say nothing of a row whose measured columns are empty.
COUNTS = ("n", "scored", "errors", "refused", "pending", "scale")
_SHOWN = {"PASS": "told apart", "INVALID": "not told apart", "INCONCLUSIVE": "not shown"}


def human_time(text: str) -> str:
    """Return an ISO 8601 time as a person would write it, in UTC; any other text stays as it is."""
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%d %b %Y, %H:%M} UTC"
    except ValueError:
        return text


def judge_name(results: Results) -> str:
    """Return the spec of the judge, and if it has a protocol, that with what else the scores depend
    on: expected grades, and the model that answered.
    """
    judge = results.judge
    if judge.protocol is None:
        return judge.spec
    name = f"{judge.spec}, protocol {judge.protocol}@{judge.variant}"
    if judge.params.get("scoring") == "expected":
        name += ", expected grades"
    answered = ", ".join(judge.returned)
    if answered and not judge.spec.endswith(f"#{answered}"):
        name += f", answered by {answered}"
    return name


def main_measures(results: Results) -> list[str]:
    """Return the main measures whose means are not those of the score: those of all further judges
    and metrics, which were asked for, and at most `MOST_MAIN` of the judge.
    """
    further_names: list[str] = []
    judge_names: list[str] = []
    for name, measured in results.measures.items():
        if not measured.is_main or not _differs_from_score(measured, results):
            continue
        if is_further(name, results):
            further_names.append(name)
        else:
            judge_names.append(name)
    return further_names + judge_names[:MOST_MAIN]


def _differs_from_score(measured: MeasuredGroups, results: Results) -> bool:
    """Tell whether a measure has another mean than the score in some group."""
    score_rows = results.measures[SCORE].rows
    for group, row in measured.rows.items():
        score_mean = score_rows[group].mean if group in score_rows else None
        if row.mean != score_mean:
            return True
    return False


def is_further(name: str, results: Results) -> bool:
    """Tell whether a measure is a metric, or the score of a further judge."""
    return name in results.further or name in map(further_score, results.further)


def category_header(results: Results) -> tuple[str, ...]:
    """Return the columns of the table of scores: those of the score, and the main measures."""
    return CATEGORY_HEADER + tuple(shorten(name, LONGEST_LABEL) for name in main_measures(results))


def category_rows(results: Results) -> list[tuple[str, ...]]:
    """Return a row for each category, in the columns of `category_header`; the suite's own name of
    it stands beside its slug.
    """
    rows = []
    for name, summary in results.categories.items():
        label = shorten(results.suite.labels.get(name, ""), LONGEST_LABEL)
        rows.append(_row(f"{name} {label}".rstrip(), summary) + _main_means(results, name))
    return rows


def overall_rows(results: Results) -> list[tuple[str, ...]]:
    """Return the row `overall`, whose mean is that of the categories; and where these are uneven in
    a measure that is shown, the row of the mean over pairs.
    """
    rows = [_row(OVERALL, results.overall.macro) + _main_means(results, OVERALL)]
    shown = [results.measures[name] for name in main_measures(results)]
    is_uneven = results.measures[SCORE].is_uneven or any(measured.is_uneven for measured in shown)
    if is_uneven:
        means = tuple(number(measured.micro.mean, measured.decimals) for measured in shown)
        rows.append(_row(MICRO, results.overall.micro) + means)
    return rows


def _row(name: str, summary: Summary) -> tuple[str, ...]:
    """Return the cells of a group in the columns of `CATEGORY_HEADER`."""
    return (
        name,
        str(summary.n),
        str(summary.scored),
        str(summary.errors),
        str(summary.refused),
        number(summary.mean),
        interval(summary.ci95),
        number(summary.std),
        number(summary.median),
        number(summary.min),
        number(summary.max),
    )


def _main_means(results: Results, group: str) -> tuple[str, ...]:
    """Return the cells of a group in the columns of the main measures."""
    means = []
    for name in main_measures(results):
        measured = results.measures[name]
        row = measured.rows.get(group)
        means.append(number(None if row is None else row.mean, measured.decimals))
    return tuple(means)


def worker_rows(results: Results) -> list[tuple[str, ...]]:
    """Return what each worker did, in the columns of `WORKER_HEADER`; memory is its peak."""
    return [
        (
            worker.name,
            worker.device,
            worker.stage,
            str(worker.jobs),
            str(worker.batch_size),
            number(worker.busy_s, 1),
            number(worker.load_s, 1),
            _gib(worker.gpu_peak),
            _gib(worker.host_peak),
        )
        for worker in results.workers
    ]


def _gib(size: int | None) -> str:
    return "–" if size is None else f"{size / 2**30:.1f}"


def remarks(results: Results, verbose: bool = True) -> Iterator[str]:
    """Yield the lines that follow the table of scores; the line with the MDE and the noise floor is
    among them if `verbose`, or if the judge's noise was measured.
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
    """Yield a line on the tokens and the cost of a judge if they are known, those on how it agrees
    with people, and those on its canary.
    """
    usage = judge.usage
    if usage:
        cost = "" if usage.cost is None else f", cost {usage.cost:.4g}"
        yield f"{label}: {usage.tokens_in:,} tokens in, {usage.tokens_out:,} out{cost}"
    for share in judge.people:
        yield f"{label}: {people_line(share)}"
    if judge.canary is not None:
        yield from _canary(label, judge.canary)


def people_line(share: PeopleShare) -> str:
    """Say how a judge agrees with people's choices."""
    return (
        f"agrees with people in {percent(share.share)}{percent_interval(share.ci95)} of "
        f"{share.n:,} choices ({share.people})"
    )


def _canary(label: str, canary: Canary) -> Iterator[str]:
    """Yield how many repeated answers of a served judge differ, and a warning for each grade, and
    for the server's model, that is another one after the run.
    """
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
    """Yield lines on a further judge or metric: its spec with its agreement with the judge, its
    failures, and what `_usage` says of it.
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
    """Yield a line with the best and the worst category if they differ, and one if all scores are
    equal.
    """
    means = {name: row.mean for name, row in results.categories.items() if row.mean is not None}
    if means:
        best = max(means, key=means.__getitem__)
        worst = min(means, key=means.__getitem__)
        if means[best] != means[worst]:
            yield f"best: {best} {means[best]:.2f} · worst: {worst} {means[worst]:.2f}"
    scores = [item.score for item in results.items if item.score is not None]
    if len(scores) >= _ENOUGH_SCORES and len(set(scores)) == 1:
        yield f"no spread: all {len(scores)} scores are {scores[0]:.2f}"


def _edits(results: Results) -> Iterator[str]:
    """Yield lines on what is noticed of the edits of a run, and of the servers that made them."""
    edits = [edit for item in results.items for edit in item.edits]
    yield from _near_copies(results)
    yield from _reframed(edits)
    yield from _composited(edits)
    yield from _several_sources(results.items)
    yield from _seeds(results.editor)
    yield from _alike(results)
    yield from _leaks(edits)
    yield from _other_environments(results.reuse)


def _near_copies(results: Results) -> Iterator[str]:
    """Yield a line that counts near-copies of a source, unless the outcome or a gate does."""
    line = copies_line(results.items)
    if any(map(has_near_copy, results.items)) and not is_said(line, results):
        yield line


def _reframed(edits: Sequence[Edit]) -> Iterator[str]:
    """Yield a line that counts the edits with another aspect ratio than their source."""
    reframed = sum(edit.reframed for edit in edits)
    if reframed:
        have = "has" if reframed == 1 else "have"
        yield (
            f"reframed: {reframed} of {counted(len(edits), 'edit')} {have} another aspect ratio "
            "than the source (over 3%)"
        )


def _composited(edits: Sequence[Edit]) -> Iterator[str]:
    """Yield a line that counts the edits that were laid over white."""
    composited = sum(edit.composited for edit in edits)
    if composited:
        had = "the editor's image had transparent pixels"
        yield f"laid over white: {composited} of {counted(len(edits), 'edit')} ({had})"


def _several_sources(items: Sequence[Item]) -> Iterator[str]:
    """Yield a line that counts the pairs with several source images."""
    several = [len(item.sources) for item in items if item.further]
    if several:
        have = "has" if len(several) == 1 else "have"
        most = max(several)
        up_to = "up to " if min(several) < most else ""
        yield (
            f"several sources: {len(several)} of {counted(len(items), 'pair')} {have} "
            f"{up_to}{most} source images"
        )


def _alike(results: Results) -> Iterator[str]:
    """Yield a warning of finished edits that are one image, unless a gate says it."""
    if not has_finished_edits(results.editor.spec):
        return
    alike = alike_edits(results.items)
    if alike is not None and not is_said(str(alike), results):
        yield f"warning: {alike}"


def _leaks(edits: Sequence[Edit]) -> Iterator[str]:
    """Yield a line that counts the edits that equal the reference of their pair."""
    leaks = sum(edit.leaked for edit in edits)
    if leaks:
        equal = "equals" if leaks == 1 else "equal"
        yield f"leaks: {leaks} of {counted(len(edits), 'edit')} {equal} the reference of the pair"


def _other_environments(reuse: ReuseInfo) -> Iterator[str]:
    """Yield a line that counts the edits and verdicts of the store that other environments
    computed.
    """
    counts = []
    if reuse.edits:
        counts.append(counted(reuse.edits, "edit"))
    if reuse.verdicts:
        counts.append(counted(reuse.verdicts, "verdict"))
    if counts:
        yield f"other environments: {' and '.join(counts)} ({'; '.join(reuse.differences)})"


def _seeds(editor: EditorInfo) -> Iterator[str]:
    """Yield a warning of a server that ignores the seeds that it is sent, if a trial has shown
    it.
    """
    trial = editor.seeds
    if trial is None or (trial.repeats and trial.varies):
        return
    found = "two seeds gave one image" if trial.repeats else "one seed gave two images"
    yield f"warning: the server of editor {editor.spec} ignores seeds: {found}"


def _expected_grades(results: Results) -> Iterator[str]:
    """Yield a line that compares the scores made of expected grades with those of the greedy
    replies.
    """
    expected: list[float] = []
    greedy: list[float] = []
    off_scale: list[float] = []
    for item in results.items:
        for verdict in item.verdicts:
            if verdict.greedy is not None:
                expected.append(verdict.score)
                greedy.append(verdict.greedy)
                off_scale.append(verdict.off_scale or 0.0)
    if expected:
        yield (
            f"scores are made of expected grades: mean {sum(expected) / len(expected):.2f}, of "
            f"the greedy replies {sum(greedy) / len(greedy):.2f}; at most {max(off_scale):.1%} "
            "off the scale"
        )


def _sensitivity(results: Results) -> Iterator[str]:
    """Yield a line on what these pairs could show, and on how far the judge's own noise reaches."""
    detectable = list(_detectable(results))
    facts = []
    if detectable:
        facts.append(f"MDE of the overall score, at 80% power: {', '.join(detectable)}")
    if results.noise is not None and results.noise.floor is not None:
        facts.append(f"judge's noise floor {results.noise.floor:.2f}")
    if facts:
        yield " · ".join(facts)


def _detectable(results: Results) -> Iterator[str]:
    """Yield the smallest differences that these pairs detect; an MDE of zero says only that no
    spread was seen.
    """
    overall_mde = results.overall.macro.mde
    if overall_mde:
        mdes = {name: row.mde for name, row in results.categories.items() if row.mde}
        widest = ""
        if len(mdes) > 1:
            name = max(mdes, key=mdes.__getitem__)
            widest = f" ({name} {mdes[name]:.2f})"
        yield f"{overall_mde:.2f} below a threshold{widest}"
    if results.comparison is not None:
        compared_mde = results.comparison.rows[OVERALL].mde
        if compared_mde:
            yield f"{compared_mde:.2f} below the baseline"


def timing_line(results: Results) -> str:
    """Return a line on how long each stage took, what came from the store, and how busy the GPUs
    were.
    """
    timing = results.timing
    stages = [
        f"edit {timing.edit_s:.1f} s ({timing.edits} edited, {timing.edits_cached} from the store)"
    ]
    if timing.swaps:
        stages.append(f"swap {timing.swap_s:.1f} s ({counted(timing.swaps, 'swap')})")
    stages.append(
        f"score {timing.score_s:.1f} s "
        f"({timing.verdicts} scored, {timing.verdicts_cached} from the store)"
    )
    if timing.duel_s:
        stages.append(
            f"duels {timing.duel_s:.1f} s ({counted(timing.votes, 'vote')}, "
            f"{timing.votes_cached} from the store)"
        )
    if timing.trials_s:
        stages.append(f"trials of the judge {timing.trials_s:.1f} s")
    if timing.further_s:
        stages.append(f"further judges and metrics {timing.further_s:.1f} s")
    busy = []
    if timing.edit_gpu_busy is not None:
        busy.append(f"{timing.edit_gpu_busy:.0%} while editing")
    if timing.score_gpu_busy is not None:
        busy.append(f"{timing.score_gpu_busy:.0%} while scoring")
    if busy:
        stages.append(f"GPUs busy {', '.join(busy)}")
    return " · ".join(stages)


def error_lines(results: Results, most: int = 10) -> list[str]:
    """Return a line for each of the first `most` reasons why pairs have no score, with these pairs,
    and a line that counts the others.
    """
    ids_by_reason: dict[str, list[str]] = {}
    for item in results.items:
        if item.status in ("edit_error", "judge_error", "refused", "dropped"):
            ids_by_reason.setdefault(str(item.error), []).append(item.id)
    reasons = list(ids_by_reason.items())
    lines = [f"{_named(ids)}: {reason}" for reason, ids in reasons[:most]]
    others = sum(len(ids) for _, ids in reasons[most:])
    if others:
        lines.append(f"and {counted(others, 'pair')} more")
    return lines


def _named(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{len(ids)} pairs ({first_of(ids)})"


def provenance_lines(results: Results) -> list[str]:
    """Return lines on the models, and on the software and hardware that made the edits and
    verdicts, so that a reader can repeat the run.
    """
    run = results.run
    seeds = counted(run.options.editor.seeds, "seed")
    software = []
    if run.commit:
        changes = " with changes" if run.commit.dirty else ""
        software.append(f"commit {run.commit.sha[:10]}{changes}")
    gpus = [f"{count} x {name}" for name, count in Counter(run.machine.gpus).items()]
    software.append(", ".join(gpus) or "CPU")
    software += [f"{name} {version}" for name, version in run.versions.items()]
    return [
        f"editor: {_model(results.editor.spec, results.editor)}, {seeds} a pair",
        f"judge: {_model(judge_name(results), results.judge)}",
        "; ".join(software),
    ]


def _model(name: str, model: EditorInfo | JudgeInfo) -> str:
    """Return the name of a model with its parameters, their files, data type and fingerprint."""
    facts = [name]
    for key, value in model.params.items():
        facts.append(f"{key} {json.dumps(value, ensure_ascii=False)}")
    facts += [named_file(path, model.files) for path in model.files]
    if model.dtype:
        facts.append(model.dtype)
    if model.fingerprint:
        facts.append(f"fingerprint {model.fingerprint[:12]}")
    return ", ".join(facts)


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
    """Return the urgency of a mean or a difference: the worse, the lower; `None` is the lowest."""
    if value is None:
        return float("-inf")
    return -value if lower_is_better else value


def with_numbers(tables: Iterable[Table | None]) -> Iterator[Table]:
    """Yield tables that have rows or notes, those in which nothing was measured without their
    rows.
    """
    for table in tables:
        if table is None:
            continue
        if _is_unmeasured(table):
            table = table._replace(rows=[], urgency=())
        if table.rows or table.notes:
            yield table


def _is_unmeasured(table: Table) -> bool:
    """Tell whether a table has measured columns, and all are empty."""
    unmeasured_columns = WORDS + COUNTS
    measured = [
        position for position, name in enumerate(table.header) if name not in unmeasured_columns
    ]
    if not measured:
        return False
    return all(row[position] in ("–", "") for row in table.rows for position in measured)


def further_tables(results: Results, brief: bool = False) -> list[Table]:
    """Return the tables that a run has beside its scores; if `brief`, without the details of the
    protocol, and with the first of its published rows.
    """
    tables = [protocol_table(results, brief), published_table(results, brief)]
    if results.controls:
        tables.append(controls_table(results.controls))
    if results.noise:
        tables.append(noise_table(results.noise))
    return list(with_numbers(tables))


def protocol_table(results: Results, brief: bool) -> Table | None:
    """Return the protocol's own rows, if `brief` without details; `None` without a protocol, or if
    they say no more than the table of scores.
    """
    protocol = results.protocol
    if protocol is None:
        return None
    has_note = protocol.touched or protocol.problem or not protocol.sees_change
    if not has_note and not _adds_rows(protocol, results.overall.macro.mean):
        return None
    totals = f", {protocol.totals}" if protocol.totals else ""
    rows = [_protocol_row(row) for row in protocol.rows if not (brief and row.is_detail)]
    return Table(
        f"protocol {protocol.name}{totals}{_subset(results)}",
        PROTOCOL_HEADER,
        rows,
        list(_protocol_notes(protocol)),
    )


def _adds_rows(protocol: ProtocolTable, mean: float | None) -> bool:
    """Tell whether a protocol has rows other than one with the `mean` of the scores."""
    if len(protocol.rows) != 1 or mean is None:
        return bool(protocol.rows)
    (row,) = protocol.rows
    return round(row.value, 9) != round(mean, 9)


def _protocol_row(row: ProtocolRow) -> tuple[str, ...]:
    """Return the cells of a row in the columns of `PROTOCOL_HEADER`."""
    low, high = row.scale
    return (
        row.name,
        str(row.n),
        number(row.value, row.decimals),
        interval(row.ci95),
        f"{low:g} to {high:g}",
    )


def _protocol_notes(protocol: ProtocolTable) -> Iterator[str]:
    """Yield what a reader must know of a protocol's rows: its problem, another scale than that of
    the scores, blindness to the edit, and replies under the authors' rule.
    """
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
    """Return the numbers that others have published for the protocol, and what they say of how they
    were made, those of the most pairs first, and of these the highest; `None` without a protocol.

    If `brief`, only the first `PUBLISHED_SHOWN`. The title says if the run has fewer pairs.
    """
    if results.protocol is None:
        return None
    in_order = attrgetter("pairs", "value")
    everything = sorted(results.protocol.published, key=in_order, reverse=True)
    shown = everything[:PUBLISHED_SHOWN] if brief else everything
    hidden = len(everything) - len(shown)
    name, _, _ = results.protocol.name.partition("@")
    return Table(
        f"published for {name} by others' settings{_subset(results)}",
        PUBLISHED_HEADER,
        [_published_row(row) for row in shown],
        [f"and {hidden} more (-v, and the reports)"] if hidden else [],
    )


def _published_row(row: PublishedRow) -> tuple[str, ...]:
    """Return the cells of a row in the columns of `PUBLISHED_HEADER`."""
    return (
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


def _subset(results: Results) -> str:
    """Return, for a title, how many pairs a run judged of those behind the published rows; an empty
    text if it judged as many.
    """
    published = [] if results.protocol is None else results.protocol.published
    whole = max((row.pairs for row in published), default=0)
    judged = sum(item.is_judged for item in results.items)
    if judged >= whole:
        return ""
    return f" (this run: {judged} of {counted(whole, 'pair')})"


def comparison_table(comparison: Comparison, pairs: int) -> Table:
    """Return a row for each category and `overall`, which comes last, against the baseline, for a
    run of `pairs` pairs; the title says if the baseline has more.
    """
    title = f"against baseline {comparison.name}: editor {comparison.editor}, run {comparison.run}"
    if comparison.commit:
        title += f", commit {comparison.commit.sha[:10]}"
    if comparison.size != pairs:
        title += f" ({pairs} of its {counted(comparison.size, 'pair')})"
    overall_last = sorted(comparison.rows, key=lambda name: name == OVERALL)
    rows = {name: comparison.rows[name] for name in overall_last}
    return Table(
        title,
        COMPARISON_HEADER,
        [_comparison_row(name, row) for name, row in rows.items()],
        list(_comparison_notes(comparison)),
        urgency=[urgency(row.difference) for row in rows.values()],
    )


def _comparison_row(name: str, row: ComparisonRow) -> tuple[str, ...]:
    """Return the cells of a category in the columns of `COMPARISON_HEADER`; the finding of a rise
    has its p-value, since `p of drop` is that of a drop.
    """
    finding: str = row.finding
    if finding == "rose":
        finding = f"rose, p {p_value(row.p_rise)}"
    return (
        name,
        str(row.n),
        number(row.before),
        number(row.now),
        signed(row.difference),
        interval(row.ci95, signs=True),
        p_value(row.p),
        finding,
        number(row.mde),
    )


def _comparison_notes(comparison: Comparison) -> Iterator[str]:
    """Yield how the numbers are corrected, how many edits are unchanged, and which pairs failed,
    collapsed or moved most.
    """
    yield "p-values: one-sided, Holm-corrected; intervals: two-sided, uncorrected"
    if any(row.now is not None for row in comparison.rows.values()):
        alike = sum(pair.alike for pair in comparison.pairs.values())
        are = "is" if alike == 1 else "are"
        yield f"{alike} of {counted(len(comparison.pairs), 'edit')} {are} unchanged"
    yield from failed_alike(comparison)
    if comparison.environment:
        yield f"computed in other environments: {'; '.join(comparison.environment)}"
    if comparison.collapsed:
        yield f"collapsed: {first_of(comparison.collapsed)}"
    yield from _moved_most("fell", comparison.fell)
    yield from _moved_most("rose", comparison.rose)


def _moved_most(verb: str, pairs: Sequence[MovedPair]) -> Iterator[str]:
    if pairs:
        moves = [f"{pair.id} {pair.before:.2f} → {pair.now:.2f}" for pair in pairs]
        yield f"{verb} most: {', '.join(moves)}"


def p_value(p: float | None) -> str:
    return "<0.001" if p is not None and p < 0.001 else number(p, 3)


def controls_table(controls: Controls) -> Table:
    """Return a row for each control, the best first."""
    return Table(
        f"controls: the judge on edits of known quality, {counted(controls.pairs, 'pair')}",
        ("control", "n", "errors", "pending", "mean", "95% CI", "AUC", "judge"),
        [_control_row(row) for row in controls.rows],
        [],
    )


def _control_row(row: ControlRow) -> tuple[str, ...]:
    """Return the cells of a control; its name says below which it should be, unless that is the
    oracle.
    """
    name = row.control if row.below == "oracle" else f"{row.control} < {row.below}"
    auc = "–" if row.auc is None else f"{row.auc:.2f} ({interval(row.auc_ci95)})"
    finding = "not all asked" if row.pending else _SHOWN.get(row.state or "", "–")
    return (
        name,
        str(row.n),
        str(row.errors),
        str(row.pending),
        number(row.mean),
        interval(row.ci95),
        auc,
        finding,
    )


def noise_table(noise: Noise) -> Table:
    """Return a row for each repeat of the judging."""
    return Table(
        "judge's noise: the same edits judged again",
        ("judged again", "n", "errors", "pending", "changed", "SD", "shift"),
        [_noise_row(row) for row in noise.rows],
        ["the noise floor is that of all rows but order, in which no two runs differ"],
    )


def _noise_row(row: NoiseRow) -> tuple[str, ...]:
    """Return the cells of a repeat, in the columns of `noise_table`."""
    return (
        row.perturbation,
        str(row.n),
        str(row.errors),
        str(row.pending),
        str(row.changed),
        number(row.sd),
        signed(row.shift),
    )
