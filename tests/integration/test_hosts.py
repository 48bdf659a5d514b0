"""Workers on other hosts: over a real sshd on loopback, and on a real Ray cluster of several nodes."""

import json
import os
import shutil
import signal
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import psutil
import pytest
from folders import CONFIG
from required import require

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.workers.remote.ssh import parse_host

HALF_A_SECOND = "--imgedit-set=editor.delay=0.5"
SUITE = ("--imgedit-suite=scenes", "--imgedit-set=editor.num_inference_steps=1", "--imgedit-editor=scenes")
MODELS = (*SUITE, "--imgedit-judge=scenes", "--imgedit-limit=2")


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    """An sshd for this user alone; yields the ssh config that reaches it as `node-a` and `node-b`."""
    require(Path("/usr/sbin/sshd").exists(), "sshd (apt-get install openssh-server)")
    parted = Path("/run/sshd")  # where this sshd wants to part with its rights
    require(os.access(parted if parted.is_dir() else "/run", os.W_OK), f"the right to write to {parted}")
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    port = 20000 + os.getpid() % 10000
    settings = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "authorized",
        "PidFile": folder / "pid",
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "yes",
        "PasswordAuthentication": "no",
    }
    (folder / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    (folder / "ssh_config").write_text(
        f"Host node-a node-b\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {folder / 'user'}\n"
        "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    )
    parted.mkdir(exist_ok=True)
    process = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL)
    yield folder / "ssh_config"
    process.terminate()
    process.wait()


@pytest.fixture
def hosts(bench, sshd):
    """Write a config that names hosts, with more for their specs: `hosts("node-a", "node-b//gpus=0")`."""

    env = f"env:OMP_NUM_THREADS=1//env:MARK={bench.path}"

    def write(*names, python=sys.executable):
        specs = [f"ssh={name}//python={python}//ssh_config={sshd}//{env}" for name in names]
        (bench.path / "hosts.toml").write_text(f"{CONFIG}[workers]\nhosts = {json.dumps(specs)}\n")
        return "--imgedit-config=hosts.toml"

    return write


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
    """A Ray cluster of three nodes with a CPU each, made in a process of its own, which can have but one."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
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
        name: (item["score"], item["seeds"][0]["edit"]["blob"], item["seeds"][0]["verdict"]["reply"])
        for name, item in bench.items.items()
    }


@pytest.fixture(autouse=True)
def mark(bench, monkeypatch):
    """Mark the processes of this test, on all hosts, as other tests have workers at the same time."""
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
        if is_marked and any(part in words for part in ("supervisor.py", "ssh_exec.py", "sys.stdin.readline")):
            left.append(process)
    return left


@pytest.mark.full
def test_the_same_pairs_end_alike_on_this_machine_ssh_exec_and_on_ray(bench, hosts, cluster, monkeypatch):
    bench.run_subprocess(*MODELS)
    expected = outcome(bench)
    assert len(expected) == 10
    bench.run_subprocess(*MODELS, hosts("node-a", "node-b"), "--imgedit-fresh")
    assert outcome(bench) == expected
    assert {worker["device"] for worker in bench.results["workers"]} == {"CPU of node-a", "CPU of node-b"}
    assert [host["name"] for host in bench.results["run"]["hosts"]] == ["node-a", "node-b"]
    assert all(host["versions"] == bench.results["run"]["versions"] for host in bench.results["run"]["hosts"])
    ray = ("--imgedit-executor=ray", "--imgedit-set=workers.cpu_workers=2")
    bench.run_subprocess(*MODELS, *ray, f"--imgedit-set=workers.ray_address={cluster.address}", "--imgedit-fresh")
    assert outcome(bench) == expected
    assert {worker["device"] for worker in bench.results["workers"]} == {"CPU of ray-0", "CPU of ray-1"}
    bench.wait_for(lambda: not workers_left(bench))


@pytest.mark.full
def test_without_an_address_ray_starts_on_this_machine(bench):
    ray = ("--imgedit-executor=ray", "--imgedit-set=workers.cpu_workers=2", "-k", "physics")
    run = bench.start("--imgedit-editor=fakes:Slow", HALF_A_SECOND, *ray, "--imgedit-stage=edit")
    bench.wait_for(lambda: bench.stored_edits() >= 1)
    processes = [psutil.Process(run.pid), *bench.children(run)]
    listening = {
        one.laddr.ip for process in processes for one in process.net_connections("tcp") if one.status == "LISTEN"
    }
    assert listening
    assert listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    run.communicate(timeout=120)
    assert run.returncode == 0
    assert {worker["device"] for worker in bench.results["workers"]} == {"CPU of ray-0", "CPU of ray-1"}
    bench.wait_for(lambda: not workers_left(bench))


@pytest.mark.full
def test_a_lost_node_of_ray_loses_no_edit(bench, cluster):
    options = ("--imgedit-executor=ray", "--imgedit-set=workers.cpu_workers=3", "--imgedit-stage=edit")
    run = bench.start(
        "--imgedit-editor=fakes:Slow", HALF_A_SECOND, *options, f"--imgedit-set=workers.ray_address={cluster.address}"
    )
    bench.wait_for(lambda: bench.stored_edits() >= 3)
    cluster.kill_a_node()
    run.communicate(timeout=120)
    assert run.returncode == 0
    assert not bench.error_kinds
    assert any("ray-" in line and "died" in line for line in (bench.runs[-1] / "run.log").read_text().splitlines())


@pytest.mark.full
def test_a_connection_that_breaks_is_made_anew(bench, hosts):
    run = bench.start("--imgedit-editor=fakes:Slow", HALF_A_SECOND, hosts("node-a", "node-b"), "--imgedit-stage=edit")
    bench.wait_for(lambda: bench.stored_edits() >= 2)
    ssh = [child for child in bench.children(run) if child.name() == "ssh"]
    ssh[0].send_signal(signal.SIGKILL)
    run.communicate(timeout=120)
    assert run.returncode == 0
    assert not bench.error_kinds
    assert len(bench.items) == bench.stored_edits()
    bench.wait_for(lambda: not workers_left(bench))


@pytest.mark.full
def test_ctrl_c_drains_workers_of_other_hosts_too(bench, hosts):
    run = bench.start("--imgedit-editor=fakes:Slow", HALF_A_SECOND, hosts("node-a"), "--imgedit-stage=edit")
    bench.wait_for(lambda: bench.stored_edits() >= 1)
    bench.interrupt(run)
    run.communicate(timeout=60)
    assert run.returncode == 2
    assert not bench.error_kinds or set(bench.error_kinds.values()) == {"interrupted"}
    bench.wait_for(lambda: not workers_left(bench))


def test_no_worker_outlives_a_run_that_is_killed(bench, hosts):
    """Costly: waits for an end among all processes of the machine."""
    run = bench.start("--imgedit-editor=fakes:Slow", HALF_A_SECOND, hosts("node-a"), "--imgedit-stage=edit")
    bench.wait_for(lambda: bench.stored_edits() >= 1)
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    bench.wait_for(lambda: not workers_left(bench))


OWN = """
import time
from PIL import ImageOps

class Editor:
    def __init__(self, *, device, table=""):
        pass

    def edit(self, request):
        time.sleep(0.4)  # so that all hosts take part
        return ImageOps.solarize(request.source)
"""


@pytest.fixture
def other(bench, tmp_path):
    """A folder whose modules a host finds first; `own.py` is in the benchmark's own."""
    (bench.path / "own.py").write_text(OWN)
    (tmp_path / "other").mkdir()
    return tmp_path / "other"


@pytest.mark.full
def test_a_host_with_another_source_of_an_own_class_is_refused(bench, hosts, other):
    (other / "own.py").write_text(OWN + "# changed\n")
    option = hosts("node-a", f"node-b//env:PYTHONPATH={other}")
    result = bench.run_subprocess("--imgedit-editor=own:Editor", "--imgedit-limit=1", option)
    assert result.ret == 4
    line = f"ERROR: {other / 'own.py'}: another source on *, expected that of own where the run started"
    result.stderr.fnmatch_lines([line])
    assert bench.stored_edits() == 0


@pytest.mark.full
def test_a_host_without_a_file_that_a_parameter_names_is_refused(bench, hosts, other):
    (bench.path / "levels.txt").write_text("1 2 3")  # its workers start in another folder
    table = "--imgedit-set=editor.table=levels.txt"
    result = bench.run_subprocess("--imgedit-editor=own:Editor", table, "--imgedit-limit=1", hosts("node-a"))
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: levels.txt on *: no such file, expected SHA-256 *"])
    assert bench.stored_edits() == 0


@pytest.mark.full
def test_a_host_without_the_package_is_refused_in_one_line(bench, hosts):
    result = bench.run_subprocess(*MODELS, hosts("node-a", python="/usr/bin/python3"))
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: host node-a: /usr/bin/python3 cannot run workers: No module named *"])


def test_a_host_that_is_not_there_is_refused_in_one_line(bench, hosts):
    result = bench.run_subprocess(*MODELS, hosts("nowhere.invalid"))
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: host nowhere.invalid: *ould not resolve hostname *"])


def test_variables_of_hosts_stand_in_no_file_and_no_line(bench, monkeypatch):
    (bench.path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(bench.path / "tmp"))
    (bench.path / "hosts.toml").write_text(CONFIG + '[workers]\nhosts = ["popen//env:SOME_TOKEN=abcdefgh12345"]\n')
    options = ("--imgedit-editor=identity", "-k", "physics", "--imgedit-stage=edit", "--imgedit-config=hosts.toml")
    result = bench.run_subprocess(*options)
    assert result.ret == 0
    assert "abcdefgh12345" not in result.stdout.str() + result.stderr.str()
    assert not [path for path in bench.runs[-1].iterdir() if "abcdefgh12345" in path.read_text("utf-8", "replace")]
    bench.wait_for(lambda: not list((bench.path / "tmp").glob("imgedit-agent-*")))  # the agent has cleaned up


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("ssh=", "workers.hosts: 'ssh=': ssh says nothing, expected *"),
        ("ssh='a", 'workers.hosts: "ssh=\'a": No closing quotation, expected *'),
        ("ssh=a/b", "workers.hosts: 'ssh=a/b': no name of a host, expected *"),
        ("popen//gpus", "workers.hosts: 'popen//gpus': gpus says nothing, expected *"),
        ("cores//env:A_KEY=abc", "workers.hosts: 'cores//env:A_KEY=[*][*][*]': unknown key 'cores', expected *"),
        ("node-a", "workers.hosts: 'node-a': unknown key 'node-a', expected ssh=*"),
        ("python=python3", "workers.hosts: 'python=python3', expected ssh=*"),
        ("ssh=a//popen", "workers.hosts: 'ssh=a//popen', expected ssh=*"),
        ("ssh=a//cores=3", "workers.hosts: 'ssh=a//cores=3': unknown key 'cores', expected *"),
    ],
)
def test_specs_of_hosts_that_lead_nowhere_are_refused(spec, line):
    with pytest.raises(UsageError) as caught:
        parse_host(spec)
    assert fnmatch(str(caught.value), line)


def test_specs_of_hosts_are_checked_before_anything_starts(bench):
    for specs, line in (
        ('"ssh=a", "cores"', "*hosts.toml:2: workers.hosts: 'cores': unknown key 'cores', *"),
        ('"ssh=me@a", "ssh=you@a"', "*hosts.toml:2: workers.hosts: a is there twice, expected each host once"),
        ('"popen", "popen//gpus=0"', "*: workers.hosts: 'popen//gpus=0': localhost is there twice, expected each *"),
    ):
        (bench.path / "hosts.toml").write_text(f"[workers]\nhosts = [{specs}]\n")
        bench.refuses(line, "--imgedit-config=hosts.toml")


def test_ray_takes_no_list_of_gpus_or_hosts(bench):
    bench.refuses("--imgedit-gpus=0-1: with the executor 'ray', *", "--imgedit-executor=ray", "--imgedit-gpus=0-1")
    (bench.path / "hosts.toml").write_text(f'{CONFIG}[workers]\nhosts = ["popen"]\n')
    bench.refuses("*workers.hosts: not with *", "--imgedit-executor=ray", "--imgedit-config=hosts.toml")
    bench.refuses("workers.ray_address: expected it with *", "--imgedit-set=workers.ray_address=auto")


def test_a_cluster_that_is_not_there_is_refused_in_one_line(bench):
    result = bench.run_subprocess(*MODELS, "--imgedit-executor=ray", "--imgedit-set=workers.ray_address=127.0.0.1:9")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: workers.ray_address: 127.0.0.1:9: *refused"])
