"""The blocks of a run that ends as soon as its gates are decided: which pairs come next, and what
they decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import GateResult, Timing
from pytest_imgedit.run.work import Work, make_items
from pytest_imgedit.stats.comparison import differences
from pytest_imgedit.stats.gates import Observation
from pytest_imgedit.stats.sequential import Looks, PlannedPair, in_parts
from pytest_imgedit.store.baselines import Baseline, reduced

#: Share of the pairs in the first block where models swap, whose cost is not known yet.
FIRST_SHARE = 0.2
#: Share of the time of editing that all swaps together may take.
SWAP_SHARE = 0.05


class Blocks:
    """Hands out a plan block by block, and decides the gates on means after each."""

    def __init__(
        self, gates: GatesSettings, plan: Sequence[Work], baseline: Baseline | None
    ) -> None:
        self.baseline = baseline
        self.works: dict[str, list[Work]] = {}
        for work in plan:
            self.works.setdefault(work.pair.id, []).append(work)
        self.parts = in_parts(
            [
                PlannedPair(
                    name,
                    works[0].source.sha256 if works[0].source else name,
                    works[0].pair.category,
                )
                for name, works in self.works.items()
            ]
        )
        self.seen = self._looked = 0
        self._scores = Looks("fail_under", gates, self.parts)
        self._drops = Looks(
            "max_drop", gates, self.parts, "" if baseline is None else baseline.name
        )
        self._wanted = len(gates.fail_under) + len(gates.max_drop)

    @property
    def is_over(self) -> bool:
        """Tell whether nothing is left to do: every gate is decided, or every pair was seen."""
        return self.seen == len(self.parts) or len(self.decided) == self._wanted

    def take(self, workers: int | None, timing: Timing) -> list[Work]:
        """Return the work of the next block: as much as keeps so many `workers` busy, where both
        models stay loaded.

        Where they do not (`None`), it is as much as swaps need: all of them together are to take
        `SWAP_SHARE` of the time of editing at most, by what `timing` tells of those that were made.
        """
        left = len(self.parts) - self.seen
        if workers is not None:
            size = math.ceil(workers * len(self.parts) / len(self.works))
        elif not timing.swaps:
            size = math.ceil(FIRST_SHARE * len(self.parts))
        else:
            swap = (timing.load_s + timing.swap_s) / timing.swaps
            whole = (timing.edit_s - timing.load_s) / self.seen * len(self.parts)
            swaps = int(SWAP_SHARE * whole / swap) if swap else left
            size = math.ceil(left / max(1, swaps - timing.swaps))
        start, self.seen = self.seen, min(self.seen + size, len(self.parts))
        taken = [pair.id for part in self.parts[start : self.seen] for pair in part]
        works = [work for name in taken for work in self.works[name]]
        timing.edits_cached += sum(work.edit is not None for work in works)
        return works

    def look(self) -> str:
        """Decide what the blocks so far decide; return a line about it."""
        for number in range(self._looked, self.seen):
            works = {pair.id: self.works[pair.id] for pair in self.parts[number]}
            items = make_items([work for own in works.values() for work in own], True, "")
            scores = [
                Observation(item.category, item.id, item.score) for item in items
            ]  # parts are drawn by source
            self._scores.see(number, dict(zip(works, scores, strict=True)))
            if self.baseline is not None:
                moved = differences(self.baseline.items, [reduced(item) for item in items])
                self._drops.see(number, dict(zip(works, moved, strict=True)))
        self._looked = self.seen
        pairs = sum(map(len, self.parts[: self.seen]))
        return (
            f"{pairs} of {len(self.works)} pairs seen, {len(self.decided)} of {self._wanted} "
            "gates decided"
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
        return [pair for pair in pairs if self.works[pair.id][0].is_needed]
