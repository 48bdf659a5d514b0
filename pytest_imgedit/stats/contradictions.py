"""What a results document says twice, and not alike: its tables against its items, its items
against their repetitions, and counts against lists.

Here `told` is what a place of the document says, and `made` what its source makes it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from pytest_imgedit.core import repetitions
from pytest_imgedit.core.measures import OVERALL, SCORE, Field, groups_of
from pytest_imgedit.core.results import (
    ComparedPair,
    Comparison,
    Controls,
    Duel,
    GateResult,
    Item,
    MeasuredGroups,
    MovedPair,
    Results,
    Summary,
    Verdict,
)
from pytest_imgedit.stats.decision import MICRO
from pytest_imgedit.stats.duels import observe_wins
from pytest_imgedit.stats.estimates import Draft, Floats
from pytest_imgedit.stats.gate_limits import KINDS
from pytest_imgedit.stats.gate_values import allowed_pairs, estimate_group, measured_by
from pytest_imgedit.stats.judge_qualification import draft_control
from pytest_imgedit.stats.outcome import FAILED
from pytest_imgedit.store.baselines import reduced, unlike, unlike_digests

#: Sums that are added up in another order differ by less than this, relative to their size.
ROUNDING = 1e-9
#: Counts and statistics of a row that every version of the libraries computes alike from its
#: values. The other fields of a row rest on random draws or on a search.
_COUNTS = ("n", "scored", "errors", "refused")
_MOMENTS = ("std", "median", "min", "max")


def contradictions(results: Results) -> Iterator[str]:
    """Yield where results say something twice, and not alike."""
    yield from _selection_contradictions(results)
    for index, item in enumerate(results.items):
        yield from _item_contradictions(f"items.{index} ({item.id})", item, results)
    yield from _table_contradictions(results)
    yield from _environment_contradictions(results)
    for gate in results.gates:
        yield from _gate_contradictions(f"gates.{gate.kind} {gate.field}", gate, results)
    if results.comparison is not None:
        yield from _comparison_contradictions(results.comparison, results)
    if results.duel is not None:
        yield from _duel_contradictions(results.duel, results)
    if results.controls is not None:
        yield from _controls_contradictions(results.controls)
    if results.protocol is not None:
        touched = _count_touched(results)
        yield from unlike("protocol.touched", results.protocol.touched, touched, "its items")


def _needed(results: Results) -> list[Item]:
    return [item for item in results.items if item.status != "not_needed"]


def _selection_contradictions(results: Results) -> Iterator[str]:
    """Compare the selection with the items, or with the shard's list of pairs, and the state of a
    complete run with its end.
    """
    run = results.run
    selection = results.selection
    if run.status == "complete":
        yield from unlike("run.stopped_by", run.stopped_by, None, "its status")
        yield from unlike("run.trials_left", run.trials_left, 0, "its status")
    listed = [item.id for item in results.items]
    if selection.shard is not None:
        for name in set(listed) - set(selection.shard.ids):
            yield f"items ({name}): not among the ids of selection.shard"
        listed = list(selection.shard.ids)
    yield from unlike("selection.selected", selection.selected, len(listed), "its list of pairs")
    if selection.whole < selection.selected:
        yield f"selection.whole: {selection.whole}, selected: {selection.selected}"


def _item_contradictions(place: str, item: Item, results: Results) -> Iterator[str]:
    """Compare the status, the error, the score and the other values of an item with those of its
    seeds, and the number of these with the options.
    """
    seeds = item.seeds
    needs_verdict = results.run.options.run.stage != "edit"
    aspects = repetitions.aspects_of(seeds, needs_verdict)
    missing = set[str]()
    for name, further in results.further.items():
        outcomes = [seed.further.get(name) for seed in seeds]
        values = repetitions.values_of(name, further.role == "judge", outcomes)
        if values is None:
            missing.add(name)
        else:
            aspects |= values
    told = {
        "status": item.status,
        "error": item.error,
        "seeds": len(seeds),
        "further without values": {_owner(name, results) for name in item.missing},
    }
    made = {
        "status": repetitions.status_of(seeds, needs_verdict),
        "error": repetitions.first_error(seeds),
        "seeds": results.run.options.editor.seeds,
        "further without values": missing,
    }
    if told != made:
        for name in told:
            yield from unlike(f"{place}.{name}", told[name], made[name], "its seeds")
    numbers = {SCORE: item.score, **item.aspects}
    of_seeds = {SCORE: repetitions.score_of(seeds, needs_verdict), **aspects}
    if numbers != of_seeds:
        for name in numbers | of_seeds:
            number = numbers.get(name)
            yield from _unlike_numbers(f"{place}.{name}", number, of_seeds.get(name), "its seeds")
    if item.status == "scored" and item.score is None:
        yield f"{place}.status: scored, its score: none"
    sources = 1 + len(item.further)
    if item.further and item.edited_source > sources:
        yield f"{place}.edited_source: {item.edited_source}, its sources: {sources}"


def _owner(measure: str, results: Results) -> str:
    """Return the further judge or metric that a measure comes from; the measure itself if there is
    none.
    """
    owners = (name for name in results.further if measure.startswith(f"{name}."))
    return max(owners, key=len, default=measure)


class _Columns:
    """The items of a run in columns, and the rows of tables that they make.

    `members` are the positions of the items of each group. `clusters` numbers the sources, and
    `refused` and `failed` tell how items ended; each has one entry an item.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.index = {item.id: index for index, item in enumerate(items)}
        members: dict[str, list[int]] = {}
        for index, item in enumerate(items):
            for group in groups_of(item):
                members.setdefault(group, []).append(index)
        self.members = {group: np.array(indices) for group, indices in members.items()}
        names = dict.fromkeys(item.cluster for item in items)
        numbers = {name: number for number, name in enumerate(names)}
        self.clusters = np.array([numbers[item.cluster] for item in items], dtype=np.intp)
        self.refused = np.array([item.status == "refused" for item in items], dtype=bool)
        self.failed = np.array([item.status in FAILED for item in items], dtype=bool)

    def rows(self, name: str) -> dict[str, dict[str, float | None]]:
        """Return the rows of a measure by group, with that over all pairs, `MICRO`.

        Rows count the items that the measure applies to. The mean of `overall` is that of the
        category means; groups that the measure does not apply to have no row.
        """
        values = np.array([item.value(name) for item in self.items], dtype=np.float64)
        applies = np.zeros(len(self.items), dtype=bool)
        failed = self.failed.copy()
        for item in measured_by(self.items, name):
            index = self.index[item.id]
            applies[index] = True
            failed[index] |= name in item.missing
        rows = {}
        for group, indices in self.members.items():
            if applies[indices].any():
                rows[group] = self._row(indices[applies[indices]], values, failed)
        if OVERALL in rows:
            rows[MICRO] = dict(rows[OVERALL])
            means = [row["mean"] for group, row in rows.items() if group in self.categories]
            mean = repetitions.mean_score(means)
            rows[OVERALL]["mean"] = mean
            if mean is None:  # a category has no value, so there is no mean to have clusters
                rows[OVERALL]["clusters"] = 0
        return rows

    @cached_property
    def categories(self) -> set[str]:
        return {item.category for item in self.items}

    def _row(
        self, indices: NDArray[np.intp], values: Floats, failed: NDArray[np.bool_]
    ) -> dict[str, float | None]:
        """Return the counts and moments of the items at these positions; `None` is what too few
        values leave unknown. `values`, NaN where unknown, and `failed` have one entry an item.
        """
        is_known = ~np.isnan(values[indices])
        known = values[indices[is_known]]
        without = indices[~is_known]
        refused = int(self.refused[without].sum())
        clusters = self.clusters[indices[is_known]]
        row: dict[str, float | None] = {
            "n": len(indices),
            "scored": len(known),
            "errors": int(failed[without].sum()) - refused,
            "refused": refused,
            "clusters": len(np.unique(clusters)),
            "mean": None,
            "std": None,
            "median": None,
            "min": None,
            "max": None,
        }
        if len(known):
            row["mean"] = float(known.mean())
            row["std"] = float(np.std(known, ddof=1)) if len(known) > 1 else None
            row["median"] = float(np.median(known))
            row["min"] = float(known.min())
            row["max"] = float(known.max())
        return row


def _table_contradictions(results: Results) -> Iterator[str]:
    """Compare the table of each measure with the items, and the copies of the score's table with
    that table.
    """
    columns = _Columns(_needed(results))
    for name in dict.fromkeys(name for item in columns.items for name in item.aspects):
        if name not in results.measures:
            yield f"measures.{name}: not there, its items: there"
    for name, measured in results.measures.items():
        if columns.items or name != SCORE:  # without items, the score has a table of nothing
            yield from _measure_contradictions(name, measured, columns)
    if SCORE in results.measures:
        yield from _copy_contradictions(results)
    else:
        yield f"measures.{SCORE}: not there, expected in all results"


def _copy_contradictions(results: Results) -> Iterator[str]:
    """Compare `categories` and `overall` with the table of the score, which they repeat."""
    score = results.measures[SCORE]
    told = {f"categories.{name}": row for name, row in results.categories.items()}
    told |= {"overall.macro": results.overall.macro, "overall.micro": results.overall.micro}
    made = {"overall.macro": score.rows.get(OVERALL), "overall.micro": score.micro}
    for name, row in score.rows.items():
        if name != OVERALL and "=" not in name:
            made[f"categories.{name}"] = row
    for place in told | made:
        for key in Summary.__dataclass_fields__:
            told_number = getattr(told.get(place), key, None)
            made_number = getattr(made.get(place), key, None)
            yield from unlike(f"{place}.{key}", told_number, made_number, f"measures.{SCORE}")


def _measure_contradictions(
    name: str, measured: MeasuredGroups, columns: _Columns
) -> Iterator[str]:
    """Compare the table of a measure with the items."""
    told = {**measured.rows, MICRO: measured.micro}
    made = columns.rows(name)
    for group in told | made:
        place = f"measures.{name}.rows.{group}" if group else f"measures.{name}.micro"
        if group not in told or group not in made:
            yield from unlike(place, group in told, group in made, "its items")
            continue
        for key, number in made[group].items():
            yield from _unlike_numbers(
                f"{place}.{key}", getattr(told[group], key), number, "its items"
            )


def _row_contradictions(place: str, told: Summary, made: Draft) -> Iterator[str]:
    """Compare a row of the controls with the draft that its trials make."""
    for name in _COUNTS:
        told_count = getattr(told, name)
        made_count = getattr(made.summary, name)
        yield from unlike(f"{place}.{name}", told_count, made_count, "its items")
    for name in _MOMENTS:
        told_moment = getattr(told, name)
        made_moment = getattr(made.summary, name)
        yield from _unlike_numbers(f"{place}.{name}", told_moment, made_moment, "its items")
    mean = made.mean
    clusters = 0 if mean is None else mean.clusters
    yield from _unlike_numbers(
        f"{place}.mean", told.mean, None if mean is None else mean.mean, "its items"
    )
    yield from _unlike_numbers(
        f"{place}.se", told.se, None if mean is None else mean.se, "its items"
    )
    yield from unlike(f"{place}.clusters", told.clusters, clusters, "its items")


def _environment_contradictions(results: Results) -> Iterator[str]:
    """Compare the environments with their digests, and their numbers of edits, verdicts and further
    verdicts with the items.
    """
    yield from unlike_digests(results.environments)
    edits: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    further: Counter[str] = Counter()
    for item in results.items:
        edits.update(edit.environment for edit in item.edits)
        verdicts.update(verdict.environment for verdict in item.verdicts)
        for seed in item.seeds:
            for outcome in seed.further.values():
                if isinstance(outcome, Verdict):
                    further[outcome.environment] += 1
    counts = {"edits": edits, "verdicts": verdicts, "further": further}
    named = chain(results.environments, edits, verdicts, further)
    for digest in dict.fromkeys(filter(None, named)):
        environment = results.environments.get(digest)
        for kind, count in counts.items():
            told = getattr(environment, kind, 0)
            yield from unlike(f"environments.{digest}.{kind}", told, count[digest], "its items")


def _gate_contradictions(place: str, gate: GateResult, results: Results) -> Iterator[str]:
    """Compare a gate on errors or on a mean with the options, the items and the tables; other gates
    are not compared.
    """
    if gate.kind == "max_errors":
        yield from _errors_gate_contradictions(place, gate, results)
    elif gate.kind in KINDS:
        yield from _mean_gate_contradictions(place, gate, results)


def _errors_gate_contradictions(place: str, gate: GateResult, results: Results) -> Iterator[str]:
    """Compare the gate on errors with the options and the items; a shard allows the errors of the
    pairs of all shards.
    """
    shard = results.selection.shard
    pairs = len(_needed(results)) if shard is None else len(shard.ids)
    failed = sum(item.status in FAILED for item in results.items)
    limit = allowed_pairs(results.run.options.gates.max_errors, pairs)
    yield from unlike(f"{place}: limit", gate.limit, limit, "options.gates")
    yield from unlike(f"{place}: value", gate.value, failed, "its items")
    expected = "PASS" if failed <= limit else "FAIL"
    if gate.state in ("PASS", "FAIL") and gate.state != expected:
        yield f"{place}: {gate.state}, {failed} of its items without a score, {limit} allowed"


def _mean_gate_contradictions(place: str, gate: GateResult, results: Results) -> Iterator[str]:
    """Compare a gate on a mean with the options and the tables, and its state with its p.

    Only the limit is compared if the gate has no p, was not selected, or may have been decided
    before the end, on the pairs of that time.
    """
    options = results.run.options.gates
    limits = getattr(options, gate.kind)
    if gate.field in limits:
        yield from unlike(f"{place}: limit", gate.limit, limits[gate.field], "options.gates")
    if options.until == "decided" or gate.p is None or gate.state == "NOT SELECTED":
        return
    measure, group = Field.parse(gate.field)
    if gate.kind == "fail_under" and measure in results.measures:
        row = results.measures[measure].rows.get(group)
        yield from _unlike_numbers(
            f"{place}: value", gate.value, getattr(row, "mean", None), "its table"
        )
    if gate.kind == "max_drop" and results.comparison is not None:
        compared = results.comparison.measures.get(measure, {}).get(group)
        difference = getattr(compared, "difference", None)
        yield from _unlike_numbers(f"{place}: value", gate.value, difference, "its comparison")
    if gate.kind == "min_win" and results.duel is not None:
        duels = results.duel.measures.get(measure, {}).get(group)
        share = getattr(duels, "share", None)
        yield from _unlike_numbers(f"{place}: value", gate.value, share, "its duel")
    is_significant = gate.p <= options.alpha_of(gate.kind)
    if is_significant and gate.state in ("PASS", "INCONCLUSIVE"):
        yield f"{place}: {gate.state}, its p {gate.p:.2g} is that of FAIL"
    if not is_significant and gate.state == "FAIL":
        yield f"{place}: FAIL, its p {gate.p:.2g} is not"


def _comparison_contradictions(comparison: Comparison, results: Results) -> Iterator[str]:
    """Compare the comparison's pairs with the items, and its lists and its row of all pairs with
    its pairs.
    """
    items = {item.id: item for item in _needed(results)}
    scores = {name: reduced(item).score for name, item in items.items()}
    listed = comparison.pairs.keys() | comparison.failed_alike.keys()
    known = listed & items.keys()
    yield from unlike("comparison.pairs", len(known), len(items), "the number of its items")
    yield from unlike("comparison.pairs", len(listed), len(items), "the number of its items")
    if comparison.size < len(listed):
        yield f"comparison.size: {comparison.size}, its pairs: {len(listed)}"
    for name, pair in comparison.pairs.items():
        now = scores.get(name)
        difference = None if now is None or pair.before is None else round(now - pair.before, 6)
        place = f"comparison.pairs.{name}.difference"
        yield from unlike(place, pair.difference, difference, "its item")
    for moved in comparison.fell + comparison.rose:
        yield from _moved_pair_contradictions(
            moved, comparison.pairs.get(moved.id), scores.get(moved.id)
        )
    for name in set(comparison.collapsed) - comparison.pairs.keys():
        yield f"comparison.collapsed: {name}, which is not among its pairs"
    for name, status in comparison.failed_alike.items():
        of_item = items[name].status if name in items else None
        yield from unlike(f"comparison.failed_alike.{name}", status, of_item, "its item")
    for group, row in comparison.rows.items():
        of_score = comparison.measures.get(SCORE, {}).get(group)
        yield from unlike(f"comparison.rows.{group}", row, of_score, "comparison.measures.score")
    compared = sum(pair.difference is not None for pair in comparison.pairs.values())
    if OVERALL in comparison.rows:
        n = comparison.rows[OVERALL].n
        yield from unlike("comparison.rows.overall.n", n, compared, "its pairs")


def _duel_contradictions(duel: Duel, results: Results) -> Iterator[str]:
    """Compare the duels with the items, and their counts and rows with their votes."""
    items = {item.id: item for item in _needed(results)}
    for name in duel.pairs.keys() - items.keys():
        yield f"duel.pairs.{name}: there, its item: not there"
    seen = [item for name, item in items.items() if name in duel.pairs]
    identical = sum(all(seed.is_identical for seed in duel.pairs[item.id].seeds) for item in seen)
    yield from unlike("duel.identical", duel.identical, identical, "its pairs")
    errors = sum(duel.pairs[item.id].value(SCORE) is None for item in seen)
    yield from unlike("duel.errors", duel.errors, errors, "its pairs")
    for name, rows in duel.measures.items():
        observations = observe_wins(duel.pairs, seen, name)
        for group, row in rows.items():
            place = f"duel.measures.{name}.{group}"
            n = sum(pair.value is not None for pair in observations if pair.is_in(group))
            yield from unlike(f"{place}.n", row.n, n, "its pairs")
            share = estimate_group(group, observations)
            made = None if share is None else share.mean
            yield from _unlike_numbers(f"{place}.share", row.share, made, "its pairs")


def _moved_pair_contradictions(
    moved: MovedPair, pair: ComparedPair | None, score: float | None
) -> Iterator[str]:
    """Compare a pair that fell or rose most with the list of all pairs, and with its item's
    score.
    """
    place = f"comparison, {moved.id}"
    before = None if pair is None else pair.before
    difference = None if pair is None else pair.difference
    yield from unlike(f"{place}.now", moved.now, score, "its item")
    yield from unlike(f"{place}.before", moved.before, before, "comparison.pairs")
    yield from unlike(f"{place}.difference", moved.difference, difference, "comparison.pairs")


def _controls_contradictions(controls: Controls) -> Iterator[str]:
    """Compare the counts and the rows of the controls with their trials."""
    clusters = {trial.pair: trial.cluster for trial in controls.trials}
    yield from unlike("controls.pairs", controls.pairs, len(clusters), "its trials")
    sources = len(set(clusters.values()))
    yield from unlike("controls.sources", controls.sources, sources, "its trials")
    tried = {trial.control for trial in controls.trials}
    yield from unlike("controls.has_oracle", controls.has_oracle, "oracle" in tried, "its trials")
    told = {row.control for row in controls.rows}
    for name in told ^ tried:
        yield from unlike(f"controls.rows.{name}", name in told, name in tried, "its trials")
    for row in controls.rows:
        made = draft_control(row.control, controls.trials)
        yield from _row_contradictions(f"controls.rows.{row.control}", row, made)


def _count_touched(results: Results) -> int:
    """Count the replies that `compat` replaced, and the pairs that it dropped."""
    count = 0
    for item in _needed(results):
        if item.is_judged:
            count += item.status == "dropped"
            count += sum(len(verdict.touched) for verdict in item.verdicts)
    return count


def _unlike_numbers(
    place: str, told: float | None, made: float | None, source: str
) -> Iterator[str]:
    """Yield a contradiction if two numbers differ by more than another order of summing changes, or
    only one is `None`.
    """
    is_close = (
        told is not None
        and made is not None
        and math.isclose(told, made, rel_tol=ROUNDING, abs_tol=ROUNDING)
    )
    if not is_close:
        yield from unlike(place, told, made, source)
