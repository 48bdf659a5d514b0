"""A run in blocks, which ends as soon as its gates are decided (`--imgedit-until=decided`)."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_imgedit.engine.blocks import Blocks
from pytest_imgedit.engine.plan import RunPlan
from pytest_imgedit.engine.run import Run, Surroundings
from pytest_imgedit.engine.scoring import Scorer
from pytest_imgedit.engine.swap import Swap
from pytest_imgedit.engine.work import Work, missing_edits


class BlockRun(Run):
    """Edits and scores block by block until the gates are decided; models stay loaded where both fit.

    Where nothing is to be edited, the judge has the GPUs for itself.
    """

    def __init__(self, plan: RunPlan, blocks: Blocks, surroundings: Surroundings) -> None:
        super().__init__(plan, surroundings)
        self.blocks = blocks

    def edit_and_judge(self, missing: Sequence[Work], scorer: Scorer) -> None:
        self.timing.edits_cached = 0
        mode = self.place("editor", "judge").mode if missing else None
        swap = Swap(self.around.launch("judge"), self.clock, stays=mode != "swap")
        try:
            if swap.stays:
                self._stay_loaded(scorer, swap, bool(missing))
            else:
                self._swap_each_time(scorer)
            self.timing.edit_gpu_busy = self.timing.score_gpu_busy = None  # known of the last block only
            if not self.progress.stopping:
                self.finish([], self.blocks.leave_out(self.plan.request.pairs), scorer, swap)
        finally:
            if swap.stays:
                self.remember("score", swap.judge, 0.0)
            self.around.give_back("judge", swap.judge)

    def _swap_each_time(self, scorer: Scorer) -> None:
        while not self.blocks.is_over and not self.progress.stopping:
            works = self.blocks.take(None, self.timing)
            swap = Swap(self.around.launch("judge"), self.clock)
            try:
                if missing := missing_edits(works):
                    self.edit_missing(missing, swap, len(works))
                self._score_and_look(works, scorer, swap)
            finally:
                swap.judge.close()

    def _stay_loaded(self, scorer: Scorer, swap: Swap, edits_any: bool) -> None:
        editors = self.around.launch("editor") if edits_any else None
        try:
            if editors is not None:
                editors.start(len(missing_edits(self.plan.works)))
            while not self.blocks.is_over and not self.progress.stopping:
                works = self.blocks.take(1 if editors is None else len(editors.slots), self.timing)
                swap.edits_ended = None
                if missing := missing_edits(works):
                    self.edit_missing(missing, swap, len(swap.judge.slots), editors)
                self._score_and_look(works, scorer, swap)
        finally:
            if editors is not None:
                self.remember("edit", editors, 0.0)
                self.around.give_back("editor", editors)

    def _score_and_look(self, works: Sequence[Work], scorer: Scorer, swap: Swap) -> None:
        pending = self.take_stored_verdicts(works, scorer)
        if pending and not self.progress.stopping:
            self.score(pending, [], scorer, swap)
        if not self.progress.stopping:
            self.progress.note(self.blocks.look())
