"""Workers on other hosts: on a real Ray cluster of several nodes."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

RAY = "--imgedit-executor=ray"
HALF_A_SECOND = "--imgedit-set=editor.delay=0.5"
SLOW = ("--imgedit-editor=fakes:Slow", HALF_A_SECOND, "--imgedit-stage=edit")
SUITE = (
    "--imgedit-suite=scenes",
    "--imgedit-set=editor.num_inference_steps=1",
    "--imgedit-editor=scenes",
)
MODELS = (*SUITE, "--imgedit-judge=scenes", "--imgedit-limit=2")


CLUSTER = """
import sys
from ray.cluster_utils import Cluster

made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
others = [made.add_node(num_cpus=1) for _ in range(2)]
print(made.address, flush=True)
for line in sys.stdin:
    made.remove_node(others.pop(), allow_graceful=False)
made.shutdown()
"""


class RayCluster:
    """A Ray cluster of three nodes with a CPU each, made in a process of its own, which can have
    but one.
    """

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLUSTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.address = self.process.stdout.readline().decode().strip()

    def kill_a_node(self):
        self.process.stdin.write(b"kill\n")
        self.process.stdin.flush()

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


@pytest.fixture
def cluster(monkeypatch):
    for name, value in {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    made = RayCluster()
    yield made
    made.close()


def outcome(bench):
    """What a run must not owe to where its workers are."""
    return {
        name: (
            item["score"],
            item["seeds"][0]["edit"]["blob"],
            item["seeds"][0]["verdict"]["replies"]["aspects"],
        )
        for name, item in bench.items.items()
    }


def places(count):
    return f"--imgedit-set=workers.cpu_workers={count}"


@pytest.fixture(autouse=True)
def mark(bench, monkeypatch):
    """Mark the processes of this test, on all hosts, as other tests have workers at the same
    time.
    """
    monkeypatch.setenv("MARK", str(bench.path))


def workers_left(bench) -> list[psutil.Process]:
    """Processes of this test's workers that are there."""
    left = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
            is_marked = process.environ().get("MARK") == str(bench.path)
        except psutil.Error:
            continue
        if is_marked and any(part in words for part in ("supervisor.py", "sys.stdin.readline")):
            left.append(process)
    return left


@pytest.mark.full
def test_the_same_pairs_end_alike_on_this_machine_and_on_ray(bench, cluster):
    bench.run_subprocess(*MODELS)
    expected = outcome(bench)
    assert len(expected) == 10
    address = f"--imgedit-set=workers.ray_address={cluster.address}"
    bench.run_subprocess(*MODELS, RAY, places(2), address, "--imgedit-fresh")
    assert outcome(bench) == expected
    assert {worker["device"] for worker in bench.results["workers"]} == {
        "CPU of ray-0",
        "CPU of ray-1",
    }
    assert [host["name"] for host in bench.results["run"]["hosts"]] == ["ray-0", "ray-1"]
    assert all(
        host["versions"] == bench.results["run"]["versions"]
        for host in bench.results["run"]["hosts"]
    )
    bench.wait_for(lambda: not workers_left(bench))


@pytest.mark.full
def test_without_an_address_ray_starts_on_this_machine(bench):
    run = bench.start(*SLOW, RAY, places(2), "-k", "physics")
    bench.wait_for(lambda: bench.stored_edits() >= 1)
    processes = [psutil.Process(run.pid), *bench.children(run)]
    listening = {
        one.laddr.ip
        for process in processes
        for one in process.net_connections("tcp")
        if one.status == "LISTEN"
    }
    assert listening
    assert listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    run.communicate(timeout=120)
    assert run.returncode == 0
    assert {worker["device"] for worker in bench.results["workers"]} == {
        "CPU of ray-0",
        "CPU of ray-1",
    }
    bench.wait_for(lambda: not workers_left(bench))


@pytest.mark.full
def test_a_lost_node_loses_no_edit(bench, cluster):
    run = bench.start(*SLOW, RAY, places(3), f"--imgedit-set=workers.ray_address={cluster.address}")
    bench.wait_for(lambda: bench.stored_edits() >= 3)
    cluster.kill_a_node()
    run.communicate(timeout=120)
    assert run.returncode == 0
    assert not bench.error_kinds
    assert any(
        "ray-" in line and "died" in line
        for line in (bench.runs[-1] / "run.log").read_text().splitlines()
    )


@pytest.mark.full
def test_ctrl_c_drains_workers_of_ray_too(bench):
    run = bench.start(*SLOW, RAY, places(2))
    bench.wait_for(lambda: bench.stored_edits() >= 1)
    bench.interrupt(run)
    run.communicate(timeout=60)
    assert run.returncode == 2
    assert not bench.error_kinds or set(bench.error_kinds.values()) == {"interrupted"}
    bench.wait_for(lambda: not workers_left(bench))


@pytest.mark.full
def test_no_worker_outlives_a_run_that_is_killed(bench):
    run = bench.start(*SLOW, RAY, places(1))
    bench.wait_for(lambda: bench.stored_edits() >= 1)
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    bench.wait_for(lambda: not workers_left(bench))


def test_ray_takes_no_list_of_gpus(bench):
    bench.refuses("--imgedit-gpus=0-1: with the executor 'ray', *", RAY, "--imgedit-gpus=0-1")
    bench.refuses(
        "workers.ray_address: expected it with *", "--imgedit-set=workers.ray_address=auto"
    )


@pytest.mark.full
def test_a_cluster_that_is_not_there_is_refused_in_one_line(bench):
    result = bench.run_subprocess(*MODELS, RAY, "--imgedit-set=workers.ray_address=127.0.0.1:9")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: workers.ray_address: 127.0.0.1:9: *refused"])
