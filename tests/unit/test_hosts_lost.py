"""Hosts whose connections stand still, break, or never come about."""

import threading

import psutil
import pytest
from waiting import wait_until

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.workers.base import NotStarted
from pytest_imgedit.workers.remote import hosts, ssh
from pytest_imgedit.workers.remote.hosts import Host, Hosts
from pytest_imgedit.workers.remote.ssh import SshHosts


def test_what_is_sent_waits_for_no_connection():
    sent, stands = [], threading.Event()

    def send_out(message):
        stands.wait(10)
        sent.append(message)

    host = Host("a", send_out)
    host.send({"op": "terminate", "id": 0})
    host.send({"op": "close", "id": 0})
    assert not sent
    stands.set()
    wait_until(lambda: len(sent) == 2)
    assert [message["op"] for message in sent] == ["terminate", "close"]


def test_a_connection_that_breaks_while_it_is_spoken_to_is_a_lost_host():
    def send_out(message):
        raise OSError("cannot send (already closed?)")

    host = Host("a", send_out)
    host.send({"op": "terminate", "id": 0})
    wait_until(lambda: host.lost)
    host.send({"op": "close", "id": 0})  # and is dropped


def test_a_host_that_is_lost_while_it_is_asked_tells_no_versions():
    def send_out(message):
        raise OSError("cannot send (already closed?)")

    with pytest.raises(UsageError, match="host a: its interpreter did not tell the versions of its packages"):
        Host("a", send_out).versions(None, ["torch"])


def test_answers_find_their_questions():
    sent = []
    host = Host("a", sent.append)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(host.versions("python3", ["torch"])))
    asking.start()
    wait_until(lambda: bool(sent))
    host.hear({"op": "versions", "id": sent[0]["id"], "versions": {"torch": "2.9"}})
    asking.join(10)
    assert answers == [{"torch": "2.9"}]
    assert (sent[0]["python"], sent[0]["names"]) == ("python3", ["torch"])


def test_hosts_of_unlike_libraries_are_refused(monkeypatch):
    told = {"a": {"torch": "2.9.0", "pillow": "12.1"}, "b": {"torch": "2.9.1"}, "c": {"torch": "2.8"}}
    monkeypatch.setattr(Host, "versions", lambda host, python, names: told[host.name])
    found = Hosts()
    for name, gpus in (("c", []), ("a", ["0"]), ("b", ["0"])):
        host = Host(name, lambda message: None)
        host.told = {"gpus": gpus}
        found.all.append(host)
    line = "pillow is 12.1 on a and absent on b, expected the same major and minor version on all hosts"
    with pytest.raises(UsageError, match=line):
        found.versions(None, True, ["torch", "pillow"])
    with pytest.raises(UsageError, match=r"torch is 2\.8 on c and 2\.9\.0 on a"):
        found.versions(None, False, ["torch", "pillow"])
    del told["a"]["pillow"]
    assert found.versions(None, True, ["torch", "pillow"]) == {"torch": "2.9.0"}


class Rebooting(Hosts):
    """One host that is away for the first tries after it was lost."""

    def __init__(self, away):
        super().__init__()
        self.tries, self.away = 0, away
        self.connect_all(["a"])

    def connect(self, name):
        self.tries += 1
        if 1 < self.tries <= 1 + self.away:
            raise NotStarted("host a: Connection refused")
        return Host(name, lambda message: None)


def test_a_lost_host_is_waited_for(monkeypatch):
    monkeypatch.setattr(hosts, "WAITS", (0.01, 0.01, 0.01))
    found = Rebooting(away=3)
    found.get("a").hear(None)
    assert not found.get("a").lost
    assert found.tries == 5
    gone = Rebooting(away=99)
    gone.get("a").hear(None)
    with pytest.raises(NotStarted, match="Connection refused"):
        gone.get("a")
    assert gone.tries == 5


def test_a_host_that_is_let_go_is_not_waited_for():
    found = Rebooting(away=99)
    found.get("a").hear(None)
    found.close()
    with pytest.raises(NotStarted):
        found.get("a")
    assert found.tries == 2


def test_a_host_that_never_answers_is_ended_and_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(ssh, "PATIENCE", 2.0)
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nsleep 600\n")
    silent.chmod(0o755)
    with pytest.raises(UsageError, match=r"^host localhost: no answer within 2 s$"):
        SshHosts([f"popen//python={silent}"], "none", tmp_path)
    wait_until(
        lambda: not [one for one in psutil.Process().children(recursive=True) if one.name() in ("silent", "sleep")]
    )
