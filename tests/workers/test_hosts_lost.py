"""Hosts whose connections break, or that are other than expected."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_hosts import LocalTransport
from waiting import wait_until

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.versions import __version__
from pytest_imgedit.workers import hosts
from pytest_imgedit.workers.base import ENDED, NotStarted, Slot
from pytest_imgedit.workers.hosts import Agent, Host, Hosts
from pytest_imgedit.workers.ray import AgentActor

SLOT = Slot("edit-0", ())


class QuietAgent(Agent):
    """Starts workers that send what they are sent, and print nothing."""

    def __init__(self, versions=None):
        super().__init__()
        self.told, self.inboxes, self.asked = versions or {}, {}, []

    def versions(self, python, names, paths, patience):
        self.asked.append((python, names))
        return (
            self.told if python != "/bin/false" else super().versions(python, names, (), patience)
        )

    def start(self, number, slot, launch):
        if launch.python == "/bin/false":
            raise NotStarted("edit-0: /bin/false does not start as a worker")
        self.inboxes[number] = []

    def send(self, number, message):
        self.inboxes[number].append(message)

    def news(self, number):
        time.sleep(0.01)
        said, self.inboxes[number] = self.inboxes[number], []
        return said, ["a line"] if said else [], True

    def close(self, number):
        return "exit status 0", ["goodbye"]


def host_of(agent):
    return Host("a", "none", LocalTransport(agent))


def test_a_worker_of_a_host_is_heard_until_it_is_closed():
    worker = host_of(QuietAgent()).start(SLOT, None, 1, 1)
    heard = []
    worker.send({"op": "load"})
    worker.listen(heard.append)
    wait_until(lambda: heard == [{"op": "load"}])
    assert (worker.alive(), worker.lines()) == (True, ["a line"])
    assert worker.close() == "exit status 0"
    assert worker.lines() == ["goodbye"]


def test_a_host_that_is_lost_ends_its_workers():
    host = host_of(QuietAgent())
    worker = host.start(SLOT, None, 1, 1)
    heard = []
    host.transport.lost = True
    worker.listen(heard.append)
    wait_until(lambda: heard == [ENDED])
    assert host.lost
    assert not worker.alive()
    assert worker.close() == "host a is gone"
    with pytest.raises(NotStarted, match="host a: the connection ended"):
        host.start(SLOT, None, 1, 1)


def test_a_worker_that_does_not_come_up_leaves_its_host():
    host = host_of(QuietAgent())
    with pytest.raises(NotStarted, match="host a: edit-0: /bin/false does not start as a worker"):
        host.start(SLOT, "/bin/false", 1, 1)
    assert not host.lost


def test_a_host_tells_the_versions_of_an_interpreter():
    agent = QuietAgent({"torch": "2.9"})
    assert host_of(agent).versions("python3", ["torch"]) == {"torch": "2.9"}
    assert agent.asked == [("python3", ["torch"])]
    with pytest.raises(
        UsageError, match="host a: /bin/false did not tell the versions of its packages within 60 s"
    ):
        host_of(agent).versions("/bin/false", ["torch"])
    lost = host_of(agent)
    lost.transport.lost = True
    with pytest.raises(UsageError, match="host a: the connection ended"):
        lost.versions(None, ["torch"])


def test_an_agent_tells_versions_by_a_process_of_the_interpreter():
    names = ("pytest-imgedit", "no-such-package")
    assert Agent().versions(None, names, (), 60) == {"pytest-imgedit": __version__}
    with pytest.raises(UsageError, match="/bin/false did not tell the versions of its packages "):
        Agent().versions("/bin/false", names, (), 60)


def test_a_host_of_another_version_or_without_its_gpus_is_refused(monkeypatch):
    with pytest.raises(NotStarted, match="host a: --imgedit-gpus=7: "):
        Host("a", "7", LocalTransport(Agent()))
    monkeypatch.setattr(Agent, "describe", lambda *_: ("0.0.1", None, None))
    with pytest.raises(
        NotStarted, match=rf"host a has pytest-imgedit 0\.0\.1, expected {__version__} as here"
    ):
        host_of(Agent())


class Cluster(Hosts):
    """Hosts by name with the versions that they have; `away` says how often one cannot be had after
    it was lost.
    """

    def __init__(self, versions, away=0):
        super().__init__()
        self.tries, self.away, self.known = 0, away, versions
        self.connect_all(list(versions))

    def connect(self, name):
        self.tries += 1
        if len(self.known) < self.tries <= len(self.known) + self.away:
            raise NotStarted("host a: Connection refused")
        return Host(name, "none", LocalTransport(QuietAgent(self.known[name])))


def test_hosts_of_unlike_libraries_are_refused():
    versions = {"a": {"torch": "2.9.0", "pillow": "12.1"}, "b": {"torch": "2.9.1"}}
    line = (
        "pillow is 12.1 on a and absent on b, expected the same major and minor version on all "
        "hosts"
    )
    with pytest.raises(UsageError, match=line):
        Cluster(versions).versions(None, False, ["torch", "pillow"])
    with pytest.raises(UsageError, match=r"torch is 2\.8 on c and 2\.9\.0 on a"):
        Cluster({"c": {"torch": "2.8"}, **versions}).versions(None, False, ["torch", "pillow"])
    del versions["a"]["pillow"]
    assert Cluster(versions).versions(None, False, ["torch", "pillow"]) == {"torch": "2.9.0"}


def test_a_lost_host_is_waited_for(monkeypatch):
    monkeypatch.setattr(hosts, "WAITS", (0.01, 0.01, 0.01))
    rebooting = Cluster({"a": {}}, away=3)
    rebooting.get("a").lost = True
    assert not rebooting.get("a").lost
    assert rebooting.tries == 5
    gone = Cluster({"a": {}}, away=99)
    gone.get("a").lost = True
    with pytest.raises(NotStarted, match="Connection refused"):
        gone.get("a")
    assert gone.tries == 5


def test_a_host_that_is_let_go_is_not_waited_for():
    gone = Cluster({"a": {}}, away=99)
    gone.get("a").lost = True
    gone.close()
    with pytest.raises(NotStarted):
        gone.get("a")
    assert gone.tries == 2


@given(st.permutations(range(8)))
def test_messages_reach_a_worker_in_the_order_in_which_they_were_sent(order):
    class Actor(AgentActor):
        def send(self, number, message):
            handled.append(message)

    handled, actor = [], Actor()
    for number in order:
        actor.post(number, "send", (0, number))
    assert handled == list(range(8))
