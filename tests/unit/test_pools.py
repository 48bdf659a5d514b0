"""How many models load at a time, on machines whose sizes are made up."""

from types import SimpleNamespace

import pytest

from pytest_imgedit.config import Settings
from pytest_imgedit.models import checkpoint_kinds
from pytest_imgedit.models.identity import identify
from pytest_imgedit.models.specs import make_model
from pytest_imgedit.stages.pools import make_pool
from pytest_imgedit.workers.base import Slot, Worker
from pytest_imgedit.workers.hosts import Host, Hosts
from pytest_imgedit.workers.pool import Pool

GIB = 2**30


def connected(*machines, gpus=("0",)):
    """A host on each of these machines, by name, of 128 GiB."""
    found = Hosts()
    for number, machine in enumerate(machines):
        host = Host(f"host-{number}", lambda message: None)
        host.facts = {"gpus": gpus, "gpu_memory": [], "machine": machine, "memory": 128 * GIB, "cores": 9}
        found.all.append(host)
    return found


def pool(monkeypatch, folder, model, hosts, editor, **workers):
    """A pool of editors of 60 GiB."""
    monkeypatch.setattr(checkpoint_kinds, "component_bytes", lambda *_: {"transformer": 60 * GIB})
    given = {"editor": {"spec": f"diffusers:{model}", **editor}, "workers": {"hosts": ["popen"], **workers}}
    identity = identify(make_model("editor", f"diffusers:{model}", {}), folder / "cache.json")
    return make_pool(Settings.model_validate(given), "editor", identity, folder, SimpleNamespace(), hosts)


@pytest.mark.parametrize(
    ("machines", "editor", "expected"),
    [
        ("aa", {}, 2),
        ("aaaaaaaaaaa", {}, 1),  # 6 GiB for each process, and the weights
        ("aa", {"offload": "group"}, 1),
        ("ab", {"offload": "group"}, 2),
        ("abb", {"offload": "model"}, 1),
    ],
)
def test_all_models_of_a_machine_load_at_once_where_its_memory_allows(
    tiny, tmp_path, monkeypatch, machines, editor, expected
):
    made = pool(monkeypatch, tmp_path, tiny("instruct-pix2pix"), connected(*machines), editor)
    assert made.load_concurrency == expected
    assert [slot.machine for slot in made.slots] == list(machines)


@pytest.mark.parametrize(("shard", "expected"), [({}, 2), ({"cpu_offload": True}, 1)])
def test_weights_that_ranks_keep_in_host_memory_count_for_each_group(tiny, tmp_path, monkeypatch, shard, expected):
    hosts = connected("a", gpus=("0", "1", "2", "3"))
    made = pool(monkeypatch, tmp_path, tiny("instruct-pix2pix"), hosts, {"shard": shard}, gpus_per_worker=2)
    assert made.load_concurrency == expected


def test_where_not_all_load_at_once_each_machine_loads_one():
    watcher = SimpleNamespace(stopping=False, worker_changed=lambda worker: None)
    made, sent = Pool(None, (), {}, 1, {}, watcher), []
    for name, machine in ("edit-0", "a"), ("edit-1", "a"), ("edit-2", "b"):
        connection = SimpleNamespace(send=lambda message, name=name: sent.append((name, message["op"])))
        made.workers.append(Worker(Slot(name, ("0",), machine=machine), connection, "waiting"))
    made._load_waiting()
    made._load_waiting()
    assert sent == [("edit-0", "load"), ("edit-2", "load")]
    made.workers[0].state = "idle"
    made._load_waiting()
    assert sent[2:] == [("edit-1", "load")]
