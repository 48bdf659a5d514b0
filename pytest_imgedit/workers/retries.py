"""Which lost jobs get one more try."""

from __future__ import annotations

from pytest_imgedit.workers.base import Worker
from pytest_imgedit.workers.pool import Pool

#: After so many jobs that ran out of memory in a fresh process too, the jobs are to blame and not
#: the processes.
MAX_IN_VAIN = 2


class Retries:
    """Gives a job a second try where a fresh process may finish it.

    A process that died or was ended has been replaced by then. One that is out of memory, also
    after freeing what it could, is replaced here if it has done jobs before, since it may have
    leaked. But loading a model takes its time, so that this stops once it has not helped.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool, self.in_vain = pool, 0

    def allow(self, failures: int, worker: Worker, kind: str) -> bool:
        """Decide on a job that failed on `worker` with an error of `kind`, after so many `failures`
        before.
        """
        if kind != "oom":
            return failures == 0 and kind in ("worker_died", "timeout")
        if worker.jobs_done == 0:
            self.in_vain += failures > 0
            return False
        if self.in_vain >= MAX_IN_VAIN:
            return False
        self.pool.renew(worker)
        return True

    def helped(self) -> None:
        """Hear that a second try went well."""
        self.in_vain = 0
