"""How long editing and judging take, by the paces of earlier runs: on all GPUs one after the other,
or side by side, with GPUs for the judge alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_imgedit.core.results import Results, Timing, WorkerInfo
from pytest_imgedit.kinds.base import Role

#: While edits are made, a judge begins a batch when this share of it has come.
SHARE_OF_A_BATCH = 1 / 4
#: The most questions in the batch of an idle judge, which waits until their images are read; those
#: of further batches are read while it judges. A batch size that the user sets is kept.
IDLE_BATCH = 16


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What a worker of a model took in the run `run`, in seconds.

    `start` passed before it loaded, which took `load`. A `job` is an edit or a verdict, and `first`
    is what its first batch took beyond its jobs. A batch has up to `batch_size` jobs.
    """

    job: float
    start: float = 0.0
    load: float = 0.0
    first: float = 0.0
    batch_size: int = 1
    run: str = ""


def pace_of(role: Role, results: Results) -> Pace | None:
    """Return the mean pace of an editor's or a judge's workers in a run; `None` if none did a
    job.
    """
    stage = "edit" if role == "editor" else "score"
    workers = [
        worker
        for worker in results.workers
        if worker.stage == stage and not worker.further and worker.jobs
    ]
    if not any(worker.busy_s for worker in workers):
        return None
    batch_size = max(worker.batch_size for worker in workers)
    job = _mean(workers)
    first = 0.0
    if role == "judge":
        requested = results.run.options.judge.get("batch_size", "auto")
        first_batch = min(batch_size, IDLE_BATCH)
        if requested != "auto":
            first_batch = batch_size = int(str(requested))
        job, first = _steady_job(workers, results.timing, first_batch)
    waited = sum(max(0.0, worker.ready_s - worker.load_s) for worker in workers)
    return Pace(
        job=job,
        start=waited / len(workers),
        load=sum(worker.load_s for worker in workers) / len(workers),
        first=first,
        batch_size=batch_size,
        run=results.run.id,
    )


def _mean(workers: Sequence[WorkerInfo]) -> float:
    """Return the mean seconds of a job."""
    return sum(worker.busy_s for worker in workers) / sum(worker.jobs for worker in workers)


def _steady_job(
    workers: Sequence[WorkerInfo], timing: Timing, first_batch: int
) -> tuple[float, float]:
    """Return the seconds of a verdict after the first batch of each worker, of this many at most,
    and those that a first batch took beyond that.

    A run with one swap tells the seconds of the first batch. If that is not known, or was no slower
    than others, this is the mean of all verdicts, and 0.
    """
    unknown = _mean(workers), 0.0
    of_first = timing.first_verdict_s - timing.swap_s
    size = min(first_batch, math.ceil(timing.verdicts / len(workers)))
    others = sum(worker.jobs for worker in workers) - size * len(workers)
    if timing.swaps != 1 or of_first <= 0 or others <= 0:
        return unknown
    busy = sum(worker.busy_s for worker in workers)
    job = (busy - of_first * len(workers)) / others
    first = of_first - job * size
    return (job, first) if job > 0 and first > 0 else unknown


@dataclass(frozen=True, kw_only=True)
class Durations:
    """Estimates of how long a run takes, in seconds, from the start of its workers to the last
    verdict.

    It makes `edits` and judges them and those `waiting` in the store; `later` are judgements after
    these. A worker takes `editor_gpus` or `judge_gpus`. An editor that pads its batches makes
    `edits_a_call`. A run without edits to make needs no pace of an `editor`.
    """

    editor: Pace | None
    judge: Pace
    edits: int
    waiting: int = 0
    later: int = 0
    editor_gpus: int = 1
    judge_gpus: int = 1
    edits_a_call: int = 1

    def one_after_the_other(self, gpus: int) -> float:
        """Return the seconds if all GPUs edit, and then all judge."""
        edited = self._edited_at(gpus // self.editor_gpus)
        if not self.edits + self.waiting + self.later:
            return edited
        loaded = max(edited, self._judge_start) + self.judge.load
        judges = gpus // self.judge_gpus
        of_edits = self._judging(self.edits + self.waiting, judges)
        return loaded + self.judge.first + of_edits + self._judging(self.later, judges)

    def side_by_side(self, gpus: int, for_judge: int) -> float:
        """Return the seconds if `for_judge` of the GPUs judge the edits that the others make.

        The edits of the last batch are judged after the last edit, the others before, as far as the
        judge keeps up.
        """
        editors = (gpus - for_judge) // self.editor_gpus
        judges = for_judge // self.judge_gpus
        edited = self._edited_at(editors)
        part = max(1, int(self.judge.batch_size * SHARE_OF_A_BATCH))
        last = min(self.edits, max(part, editors))
        came = 0.0
        if self.waiting < part:
            came = min(edited, self._edited_at(editors, part - self.waiting))
        began = max(came, self._judge_start + self.judge.load) + self.judge.first
        judged = began + self._judging(self.edits + self.waiting - last, judges)
        after = self._judging(last, judges) + self._judging(self.later, judges)
        return max(edited, judged) + after

    def divisions(self, gpus: int) -> list[int]:
        """Return how many of the GPUs the judge may have for itself, so that all have work."""
        return [
            for_judge
            for for_judge in range(self.judge_gpus, gpus, self.judge_gpus)
            if (gpus - for_judge) % self.editor_gpus == 0
        ]

    def best(self, gpus: int) -> int:
        """Return how many of the GPUs the judge is to have for itself; 0 if all are to edit and
        then to judge.
        """
        best = 0
        least = self.one_after_the_other(gpus)
        for for_judge in self.divisions(gpus):
            seconds = self.side_by_side(gpus, for_judge)
            if seconds < least:
                best = for_judge
                least = seconds
        return best

    @property
    def _judge_start(self) -> float:
        """When the judge could load: a pace that was taken after a swap does not tell it, and its
        processes start as those of the editor do.
        """
        return max(self.judge.start, 0.0 if self.editor is None else self.editor.start)

    def _edited_at(self, workers: int, most: int | None = None) -> float:
        """Return when editors have made all edits, or the first `most` of them."""
        if self.editor is None or not self.edits:
            return 0.0
        edits = self.edits if most is None else min(most, self.edits)
        calls = math.ceil(edits / self.edits_a_call)
        rounds = math.ceil(calls / workers)
        seconds_a_call = self.editor.job * self.edits_a_call
        return self.editor.start + self.editor.load + rounds * seconds_a_call

    def _judging(self, count: int, judges: int) -> float:
        """Return how long so many verdicts take."""
        return math.ceil(count / judges) * self.judge.job
