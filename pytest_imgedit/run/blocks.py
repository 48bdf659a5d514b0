"""The blocks of a run that ends as soon as its gates are decided."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import GateResult, Timing
from pytest_imgedit.run.work import Work, by_pair, make_items
from pytest_imgedit.stats.comparison import differences
from pytest_imgedit.stats.gates import Observation
from pytest_imgedit.stats.sequential import Looks, PlannedPair, in_parts
from pytest_imgedit.store.baselines import Baseline, reduced

#: Share of the pairs in the first block if models swap, as the cost of a swap is not known yet.
FIRST_SHARE = 0.2
#: Share of the time of editing that all swaps together may take.
SWAP_SHARE = 0.05


class Blocks:
    """Hands out a plan block by block, and decides the gates on means after each."""

    def __init__(
        self, gates: GatesSettings, plan: Sequence[Work], baseline: Baseline | None
    ) -> None:
        self.baseline = baseline
        self.works = by_pair(plan)
        self.parts = in_parts(
            [
                PlannedPair(
                    pair,
                    works[0].source.sha256 if works[0].source else pair,
                    works[0].pair.category,
                )
                for pair, works in self.works.items()
            ]
        )
        self.seen = self._looked = 0
        self._scores = Looks("fail_under", gates, self.parts)
        self._drops = Looks(
            "max_drop", gates, self.parts, "" if baseline is None else baseline.name
        )
        self._gates = len(gates.fail_under) + len(gates.max_drop)

    @property
    def is_over(self) -> bool:
        """Whether every gate is decided, or every pair was seen."""
        return self.seen == len(self.parts) or len(self.decided) == self._gates

    def take(self, workers: int | None, timing: Timing) -> list[Work]:
        """Return the works of the next block.

        If both models stay loaded, the block keeps the `workers` busy. If they swap (`None`), it is
        so large that all swaps together take at most `SWAP_SHARE` of the time of editing, by the
        `timing` of those so far.
        """
        count = len(self.parts)
        remaining = count - self.seen
        if workers is not None:
            size = workers * count / len(self.works)
        elif not timing.swaps:
            size = FIRST_SHARE * count
        else:
            swap = (timing.load_s + timing.swap_s) / timing.swaps
            editing = (timing.edit_s - timing.load_s) / self.seen * count
            swaps = int(SWAP_SHARE * editing / swap) if swap else remaining
            size = remaining / max(1, swaps - timing.swaps)
        block = self.parts[self.seen :][: math.ceil(size)]
        self.seen += len(block)
        works = [work for part in block for pair in part for work in self.works[pair.id]]
        timing.edits_cached += sum(work.edit is not None for work in works)
        return works

    def look(self) -> str:
        """Decide the gates by the blocks so far; return a line about it."""
        for number in range(self._looked, self.seen):
            pairs = [pair.id for pair in self.parts[number]]  # drawn by source
            items = make_items([work for pair in pairs for work in self.works[pair]], True, "")
            scores = [Observation(item.category, item.id, item.score) for item in items]
            self._scores.see(number, dict(zip(pairs, scores, strict=True)))
            if self.baseline is not None:
                drops = differences(self.baseline.items, [reduced(item) for item in items])
                self._drops.see(number, dict(zip(pairs, drops, strict=True)))
        self._looked = self.seen
        return (
            f"{sum(map(len, self.parts[: self.seen]))} of {len(self.works)} pairs seen, "
            f"{len(self.decided)} of {self._gates} gates decided"
        )

    @property
    def decided(self) -> dict[tuple[str, str], GateResult]:
        """The gates that are decided, by kind and field."""
        return {
            (looks.kind, field): gate
            for looks in (self._scores, self._drops)
            for field, gate in looks.decided.items()
        }

    def leave_out(self, pairs: Iterable[EditPair]) -> list[EditPair]:
        """Mark the work that was not needed; return the pairs that were."""
        for part in self.parts[self.seen :]:
            for pair in part:
                for work in self.works[pair.id]:
                    work.fail("edit", "not_needed", "every gate was decided before")
        seen = {pair.id for part in self.parts[: self.seen] for pair in part}
        return [pair for pair in pairs if pair.id in seen]
