"""Pools of workers as a plan wants them, on machines whose sizes are made up."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.environments import Environment
from pytest_imgedit.kinds.base import GIB, Memory
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.kinds.registry import CustomEditor
from pytest_imgedit.run.pools import Launcher
from pytest_imgedit.workers.base import Slot, Worker
from pytest_imgedit.workers.hardware import Hardware, HostHardware
from pytest_imgedit.workers.pool import Pool


class Large(CustomEditor):
    """An editor of 60 GiB, which each worker keeps in host memory if `keeps` says so."""

    def memory(self):
        return Memory(60 * GIB, kept=60 * GIB if self.params.get("keeps") else 0, reads=60 * GIB)


def connected(*machines, gpus=("0",)):
    """A host on each of these machines, by name, of 128 GiB."""
    found = [
        HostHardware(name=f"host-{n}", machine=machine, gpus=gpus, memory=128 * GIB, cores=9)
        for n, machine in enumerate(machines)
    ]
    return Hardware(tuple(found), remote=True)


def pool(hardware, model, **workers):
    settings = Settings.model_validate({"workers": workers})
    identity = Identity(
        model=model,
        fingerprint="",
        params={},
        digest="",
        recipe={},
        here=Environment(device="cuda", versions={}),
    )
    hosts = SimpleNamespace(all=[]) if hardware.remote else None
    return Launcher(settings, hardware, hosts, Path(), SimpleNamespace()).pool(model, identity)


@pytest.mark.parametrize(
    ("machines", "keeps", "expected"),
    [
        ("aa", False, 2),
        ("aaaaaaaaaaa", False, 1),  # 6 GiB for each process, and the weights
        ("aa", True, 1),
        ("ab", True, 2),
        ("abb", True, 1),
    ],
)
def test_all_models_of_a_machine_load_at_once_where_its_memory_allows(machines, keeps, expected):
    made = pool(connected(*machines), Large("m:C", None, {"keeps": keeps}))
    assert made.load_concurrency == expected
    assert [slot.machine for slot in made.slots] == list(machines)


@pytest.mark.parametrize(("keeps", "expected"), [(False, 2), (True, 1)])
def test_weights_that_ranks_keep_in_host_memory_count_for_each_group(keeps, expected):
    hardware = connected("a", gpus=("0", "1", "2", "3"))
    assert pool(hardware, Large("m:C", None, {"keeps": keeps}, gpus=2)).load_concurrency == expected


def test_a_count_of_the_config_is_taken_as_it_is():
    assert pool(connected("aa"), Large("m:C"), load_concurrency=7).load_concurrency == 7


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize(
    ("cores", "batch", "threads"), [(1, 1, 1), (9, 1, 4), (1, 8, 1), (9, 8, 2), (9, 3, 1)]
)
def test_threads_depend_on_cores_and_batches_but_not_on_workers(workers, cores, batch, threads):
    here = Hardware((HostHardware(cores=cores),))
    made = pool(here, CustomEditor("m:C", batch_size=batch), cpu_workers=workers)
    assert [slot.name for slot in made.slots] == ["edit-0", "edit-1", "edit-2", "edit-3"][:workers]
    assert made.executor.threads == threads


def test_each_host_without_gpus_has_as_many_workers_as_the_config_says():
    made = pool(connected("a", "b", gpus=()), CustomEditor("m:C"), cpu_workers=2)
    assert [slot.host for slot in made.slots] == ["host-0", "host-1", "host-0", "host-1"]


def test_deadlines_name_the_settings_that_they_come_from():
    made = pool(Hardware((HostHardware(),)), CustomEditor("m:C"), edit_timeout=5, load_timeout=7)
    limits = {
        state: (limit.seconds, limit.option) for state, limit in made.timeouts.deadlines.items()
    }
    assert limits["busy"] == (5, "workers.edit_timeout")
    assert limits["starting"] == limits["loading"] == (7, "workers.load_timeout")


def test_where_not_all_load_at_once_each_machine_loads_one():
    watcher = SimpleNamespace(stopping=False, worker_changed=lambda worker: None)
    made, sent = Pool(None, (), {}, load_concurrency=1, deadlines={}, watcher=watcher), []
    for name, machine in ("edit-0", "a"), ("edit-1", "a"), ("edit-2", "b"):
        connection = SimpleNamespace(
            send=lambda message, name=name: sent.append((name, message["op"]))
        )
        made.workers.append(
            Worker(Slot(name, ("0",), machine=machine), connection=connection, state="waiting")
        )
    made._load_or_drop()
    made._load_or_drop()
    assert sent == [("edit-0", "load"), ("edit-2", "load")]
    made.workers[0].state = "idle"
    made._load_or_drop()
    assert sent[2:] == [("edit-1", "load")]
