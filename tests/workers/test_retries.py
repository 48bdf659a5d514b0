"""Which lost jobs get one more try."""

from types import SimpleNamespace

import pytest

from pytest_imgedit.workers.pool import MAX_IN_VAIN, Retries


class Renewing:
    def __init__(self):
        self.renewed = 0

    def renew(self, worker):
        self.renewed += 1


@pytest.mark.parametrize(
    ("kind", "failures", "expected"),
    [
        ("worker_died", 0, True),
        ("worker_died", 1, False),
        ("timeout", 0, True),
        ("timeout", 1, False),
        ("exception", 0, False),
        ("bad_image", 0, False),
        ("degenerate_output", 0, False),
        ("no_worker", 0, False),
    ],
)
def test_only_a_job_whose_process_went_is_tried_again_and_once(kind, failures, expected):
    pool = Renewing()
    assert Retries(pool).allow(failures, SimpleNamespace(jobs_done=3), kind) is expected
    assert pool.renewed == 0


def test_a_process_that_may_have_leaked_is_renewed_when_memory_runs_out():
    pool = Renewing()
    assert Retries(pool).allow(0, SimpleNamespace(jobs_done=1), "oom")
    assert pool.renewed == 1


def test_memory_that_runs_out_in_a_fresh_process_is_the_fault_of_the_job():
    pool = Renewing()
    assert not Retries(pool).allow(0, SimpleNamespace(jobs_done=0), "oom")
    assert pool.renewed == 0


def in_vain(pool):
    retries = Retries(pool)
    for _ in range(MAX_IN_VAIN):
        retries.allow(1, SimpleNamespace(jobs_done=0), "oom")
    return retries


def test_processes_are_not_renewed_any_more_once_that_has_not_helped():
    pool = Renewing()
    assert not in_vain(pool).allow(0, SimpleNamespace(jobs_done=5), "oom")
    assert pool.renewed == 0


def test_processes_are_renewed_again_once_it_has_helped():
    pool = Renewing()
    retries = in_vain(pool)
    retries.helped()
    assert retries.allow(0, SimpleNamespace(jobs_done=5), "oom")
