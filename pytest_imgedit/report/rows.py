"""From results to the rows and lines that every report shows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from pytest_imgedit.core.results import EditorInfo, JudgeInfo, Results, Summary
from pytest_imgedit.core.sanitize import counted, first_of, interval, number, printable
from pytest_imgedit.stats.outcome import copies_line, outcome

CATEGORY_HEADER = (
    "category",
    "n",
    "scored",
    "errors",
    "mean",
    "95% CI",
    "std",
    "median",
    "min",
    "max",
)
#: Columns of words, which are aligned to the left.
WORDS = (
    *(
        "run",
        "commit",
        "finished",
        "chart",
        "suite",
        "editor",
        "state",
        "GPU",
        "product",
        "category",
        "gate",
        "worker",
    ),
    *("device", "stage", "finding", "control", "judge", "judged again"),
)
#: How many pairs a reason names that several have.
NAMED = 3
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


def _row(name: str, summary: Summary) -> tuple[str, ...]:
    return (
        name,
        str(summary.n),
        str(summary.scored),
        str(summary.errors),
        number(summary.mean),
        interval(summary.ci95),
        *map(number, (summary.std, summary.median, summary.min, summary.max)),
    )


def category_rows(results: Results) -> list[tuple[str, ...]]:
    """One row a category, as `CATEGORY_HEADER` says."""
    return [_row(name, summary) for name, summary in results.categories.items()]


def overall_rows(results: Results) -> list[tuple[str, ...]]:
    """Macro (every category weighs the same) and micro (every pair weighs the same)."""
    overall = results.overall
    return [_row("overall (macro)", overall.macro), _row("overall (micro)", overall.micro)]


def best_and_worst(results: Results) -> str | None:
    """Name the categories with the highest and the lowest mean; `None` if no two differ."""
    means = {name: row.mean for name, row in results.categories.items() if row.mean is not None}
    if len(means) < 2:
        return None
    best, worst = max(means, key=lambda name: means[name]), min(means, key=lambda name: means[name])
    if means[best] == means[worst]:
        return None
    return f"best: {best} {means[best]:.2f} · worst: {worst} {means[worst]:.2f}"


def human_time(text: str) -> str:
    """Write an ISO 8601 time as a person would, in UTC; any other text stays as it is."""
    try:
        time = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return printable(text)
    return f"{time:%d %b %Y, %H:%M} UTC"


def judge_name(results: Results) -> str:
    """Name the judge, and the rubric that was put to it, if one was."""
    judge = results.judge
    scoring = ", expected grades" if judge.params.get("scoring") == "expected" else ""
    if judge.rubric is None:
        return str(judge.spec)
    return f"{judge.spec}, rubric {judge.rubric}{scoring}"


def timing_line(results: Results) -> str:
    """Say how long each stage took and what came from the store."""
    timing = results.timing
    shares = [("editing", timing.edit_gpu_busy), ("scoring", timing.score_gpu_busy)]
    busy = ", ".join(f"{share:.0%} while {stage}" for stage, share in shares if share is not None)
    gpus = f" · GPUs busy {busy}" if busy else ""
    trials = f" · trials of the judge {timing.trials_s:.1f} s" if timing.trials_s else ""
    swaps = timing.swaps
    swap = f"swap {timing.swap_s:.1f} s ({counted(swaps, 'swap')}) · " if swaps else ""
    return (
        f"edit {timing.edit_s:.1f} s ({timing.edits} edited, {timing.edits_cached} from the "
        "store) · "
        f"{swap}"
        f"score {timing.score_s:.1f} s ({timing.verdicts} scored, {timing.verdicts_cached} from "
        "the store)"
        f"{trials}{gpus}"
    )


def usage_line(results: Results) -> str | None:
    """Say what a judge behind a server took; `None` for others."""
    usage = results.judge.usage
    if not usage:
        return None
    cost = "" if usage.cost is None else f", cost {usage.cost:.4g}"
    return f"judge: {usage.tokens_in:,} tokens in, {usage.tokens_out:,} out{cost}"


def edit_lines(results: Results) -> list[str]:
    """Count the edits that hardly differ from their source and those of another aspect ratio, where
    there are any.
    """
    edits = [edit for item in results.items for edit in item.edits]
    copies, reframed = sum(edit.near_copy for edit in edits), sum(edit.reframed for edit in edits)
    line = copies_line(copies, len(edits))
    lines = [f"near-copies: {line}"] if copies and line not in outcome(results).line else []
    changed = (
        f"reframed: {reframed} of {len(edits)} edits have another aspect ratio than their "
        "source (over 3%)"
    )
    if reframed:
        return [*lines, changed]
    return lines


def reuse_line(results: Results) -> str | None:
    """Say how many edits and verdicts were computed in another environment than this one; `None` if
    none was.
    """
    reuse = results.reuse
    counts = [
        f"{count} {name}"
        for name, count in (("edits", reuse.edits), ("verdicts", reuse.verdicts))
        if count
    ]
    if counts:
        return f"other environments: {' and '.join(counts)} ({'; '.join(reuse.differences)})"
    return None


def worker_rows(results: Results) -> list[tuple[str, ...]]:
    """What each worker did, as `WORKER_HEADER` says; memory is the most that it used."""
    return [
        (
            *(worker.name, worker.device, worker.stage, str(worker.jobs), str(worker.batch_size)),
            *(
                f"{worker.busy_s:.1f}",
                f"{worker.load_s:.1f}",
                _gib(worker.gpu_peak),
                _gib(worker.host_peak),
            ),
        )
        for worker in results.workers
    ]


def _gib(size: int | None) -> str:
    if size is None:
        return "–"
    return f"{size / 2**30:.1f}"


def error_lines(results: Results, most: int = 10) -> list[str]:
    """One line for each reason why pairs have no score, with these pairs, for the first `most`
    reasons.
    """
    pairs: dict[str, list[str]] = {}
    for item in results.items:
        if item.status in ("edit_error", "judge_error"):
            pairs.setdefault(str(item.error), []).append(item.id)
    lines = [f"{_named(ids)}: {reason}" for reason, ids in pairs.items()]
    left = sum(map(len, list(pairs.values())[most:]))
    return lines[:most] + ([f"… and {counted(left, 'pair')} more"] if left else [])


def _named(ids: Sequence[str]) -> str:
    if len(ids) == 1:
        return ids[0]
    return f"{len(ids)} pairs ({first_of(ids, NAMED)})"


def flat_line(results: Results) -> str | None:
    """Say so if all scores are the same number; `None` for fewer than three, or if two differ."""
    scores = [item.score for item in results.items if item.score is not None]
    if len(scores) < 3 or len(set(scores)) > 1:
        return None
    return f"no spread: all {len(scores)} scores are {scores[0]:.2f}"


def provenance_lines(results: Results) -> list[str]:
    """Say with what the edits and verdicts were made, so that a reader can repeat the run."""
    run, seeds = results.run, results.run.options.editor.seeds
    if run.commit:
        commit = f"commit {run.commit.sha[:10]}{' with changes' if run.commit.dirty else ''}"
    else:
        commit = ""
    gpus = ", ".join(f"{count} x {name}" for name, count in Counter(run.machine.gpus).items())
    versions = (f"{name} {version}" for name, version in run.versions.items())
    lines = [
        f"editor: {_made_with(results.editor.spec, results.editor)}, {counted(seeds, 'seed')} a "
        "pair",
        f"judge: {_made_with(judge_name(results), results.judge)}",
        "; ".join(filter(None, (commit, gpus or "CPU", *versions))),
    ]
    return list(map(printable, lines))


def _made_with(name: str, model: EditorInfo | JudgeInfo) -> str:
    """Write what a model is called with its parameters, number format and fingerprint."""
    params = [
        f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in model.params.items()
    ]
    weights = f"fingerprint {model.fingerprint[:12]}" if model.fingerprint else ""
    return ", ".join(filter(None, (name, *params, model.dtype or "", weights)))


def mde_line(results: Results) -> str | None:
    """Say what these pairs could show, and how far the judge's own noise reaches; `None` where
    neither is known.
    """
    parts = []
    macro, rows = results.overall.macro, results.categories
    known = {name: row.mde for name, row in rows.items() if row.mde}
    if macro.mde:  # zero says only that no spread was seen
        widest = max(known, key=lambda name: known[name]) if len(known) > 1 else None
        parts.append(
            f"{macro.mde:.2f} below a threshold"
            + (f" ({widest} {known[widest]:.2f})" if widest else "")
        )
    if results.comparison is not None and (below := results.comparison.rows["overall"].mde):
        parts.append(f"{below:.2f} below the baseline")
    found = ["MDE of the overall score, at 80% power: " + ", ".join(parts)] if parts else []
    if results.noise is not None and results.noise.floor is not None:
        found.append(f"judge's noise floor {results.noise.floor:.2f}")
    return " · ".join(found) or None


def expected_line(results: Results) -> str | None:
    """Say so if scores are expectations, beside what the greedy replies gave; `None` if no score is
    one.
    """
    verdicts = [
        verdict for item in results.items for verdict in item.verdicts if verdict.greedy is not None
    ]
    if not verdicts:
        return None
    expected = sum(verdict.score for verdict in verdicts) / len(verdicts)
    greedy = sum(verdict.greedy or 0.0 for verdict in verdicts) / len(verdicts)
    off = max(verdict.off_scale or 0.0 for verdict in verdicts)
    return (
        f"scores are made of expected grades: mean {expected:.2f}, of the greedy replies "
        f"{greedy:.2f}; "
        f"at most {off:.1%} off the scale"
    )


def remarks(results: Results, verbose: bool = True) -> list[str]:
    """Lines that follow the table of scores; `verbose` adds the MDE, as does a noise floor to
    compare it with.
    """
    shows_mde = verbose or results.noise is not None
    lines = [best_and_worst(results), flat_line(results), *edit_lines(results), reuse_line(results)]
    lines += [expected_line(results), mde_line(results) if shows_mde else None, usage_line(results)]
    return [line for line in lines if line is not None]
