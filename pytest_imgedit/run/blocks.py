"""A plan's work in blocks, for a run that ends as soon as its gates are decided."""

import math
from collections.abc import Iterable, Sequence

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.core.measures import SCORE, SCORE_ONLY
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import GateResult, Timing
from pytest_imgedit.run.items import make_items
from pytest_imgedit.run.work import Work, by_pair
from pytest_imgedit.stats import comparison, sequential
from pytest_imgedit.stats.gate_values import Observation
from pytest_imgedit.store.baselines import Baseline, reduced

#: Share of the pairs in the first block if models swap, as the cost of a swap is not known yet.
FIRST_SHARE = 0.2
#: Share of the time of editing that all swaps together may take.
SWAP_SHARE = 0.05


class Blocks:
    """Hands out a plan block by block, and decides the gates on means after each.

    Blocks consist of `parts` of the pairs, and `seen` is the number of parts handed out so far.
    """

    def __init__(
        self, gates: GatesSettings, works: Sequence[Work], baseline: Baseline | None
    ) -> None:
        self.baseline = baseline
        self.works = by_pair(works)
        planned_pairs = [_planned_pair(repetitions) for repetitions in self.works.values()]
        self.parts = sequential.in_parts(planned_pairs)
        self.seen = 0
        self._looked = 0
        self._scores = sequential.Looks("fail_under", gates, self.parts)
        name = "" if baseline is None else baseline.name
        self._drops = sequential.Looks("max_drop", gates, self.parts, name)
        self._gates = len(gates.fail_under) + len(gates.max_drop)

    @property
    def is_over(self) -> bool:
        """Whether every gate is decided, or every pair was seen."""
        return self.seen == len(self.parts) or len(self.decided) == self._gates

    @property
    def decided(self) -> dict[tuple[str, str], GateResult]:
        """The gates that are decided, by kind and field."""
        decided: dict[tuple[str, str], GateResult] = {}
        for looks in (self._scores, self._drops):
            for field, gate in looks.decided.items():
                decided[looks.kind, field] = gate
        return decided

    def take(self, workers: int | None, timing: Timing) -> list[Work]:
        """Return the works of the next block.

        If both models stay loaded, the block keeps the `workers` busy. If they swap (`None`), it is
        so large that all swaps together take at most `SWAP_SHARE` of the time of editing, by the
        `timing` of those so far.
        """
        if workers is None:
            size = self._size_for_swaps(timing)
        else:
            # Parts that hold a pair for each worker, on average.
            size = workers * len(self.parts) / len(self.works)
        block = self.parts[self.seen :][: math.ceil(size)]
        self.seen += len(block)
        works = [work for pair_id in _ids(block) for work in self.works[pair_id]]
        timing.edits_cached += sum(work.edit is not None for work in works)
        return works

    def _size_for_swaps(self, timing: Timing) -> float:
        """Return how many parts the next block has if the models swap before it is judged: first
        `FIRST_SHARE` of all, then the remaining ones spread over the swaps that are still allowed.
        """
        count = len(self.parts)
        if not timing.swaps:
            return FIRST_SHARE * count
        remaining = count - self.seen
        seconds_a_swap = (timing.load_s + timing.swap_s) / timing.swaps
        most_swaps = remaining
        if seconds_a_swap:
            seconds_of_editing = (timing.edit_s - timing.load_s) / self.seen * count
            most_swaps = int(SWAP_SHARE * seconds_of_editing / seconds_a_swap)
        return remaining / max(1, most_swaps - timing.swaps)

    def look(self) -> str:
        """Decide the gates by the blocks so far; return a line about it."""
        for number in range(self._looked, self.seen):
            self._see(number)
        self._looked = self.seen
        return (
            f"{len(_ids(self.parts[: self.seen]))} of {len(self.works)} pairs seen, "
            f"{len(self.decided)} of {self._gates} gates decided"
        )

    def _see(self, number: int) -> None:
        """Give the gates the scores of a part, and their differences from the baseline, if there is
        one.
        """
        pair_ids = [pair.id for pair in self.parts[number]]
        works = [work for pair_id in pair_ids for work in self.works[pair_id]]
        items = make_items(works, needs_verdict=True, stopped_by="")
        scores = [Observation(item.category, item.id, item.score) for item in items]
        self._scores.see(number, dict(zip(pair_ids, scores, strict=True)))
        if self.baseline is None:
            return
        paired = comparison.PairedItems(
            self.baseline, [reduced(item) for item in items], SCORE_ONLY
        )
        compared_ids = [item.id for item in paired.compared]
        self._drops.see(number, dict(zip(compared_ids, paired.differences[SCORE], strict=True)))

    def leave_out(self, pairs: Iterable[EditPair]) -> list[EditPair]:
        """Mark the work that was not needed; return the pairs that were."""
        for pair_id in _ids(self.parts[self.seen :]):
            for work in self.works[pair_id]:
                work.fail("not_needed", "every gate was decided before")
        seen = set(_ids(self.parts[: self.seen]))
        return [pair for pair in pairs if pair.id in seen]


def _planned_pair(works: Sequence[Work]) -> sequential.PlannedPair:
    """Return a pair of these works; pairs of one source are drawn together."""
    first = works[0]
    source = first.pair.id if first.source is None else first.source.sha256
    return sequential.PlannedPair(first.pair.id, source, first.pair.category)


def _ids(parts: Iterable[Sequence[sequential.PlannedPair]]) -> list[str]:
    return [pair.id for part in parts for pair in part]
