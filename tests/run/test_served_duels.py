"""Duels that a server is asked about: what goes over the wire, how its replies are read, and what a
run asks again.
"""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from api_server import APIServer, completion
from partial_edits import right_edits
from pixel_server import PixelJudge, image_bytes, image_urls, text_of
from serving import serve

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.suites.base import load_suite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Bench

SCENES = "scenes:n=1"
SUITE = f"--imgedit-suite={SCENES}"
#: Pairs, each with two votes.
PAIRS, VOTES = 5, 10
KILLER = Path(__file__).parent.parent / "support" / "killer.py"


class Silent(APIServer):
    """Prints nothing of a connection that ends."""

    def handle_error(self, *_: Any) -> None: ...


class Served:
    """A judge of pixels behind a server. `reply` answers duels in its place; `is_dead` has every
    connection end without an answer. `most` is how many duels were in its hands at a time.
    """

    def __init__(self) -> None:
        self.judge = PixelJudge(right_edits(SCENES))
        self.server = Silent(self.answer)
        self.reply: Any = None
        self.is_dead: Any = lambda: False
        self.delay = 0.0
        self.now, self.most = 0, 0
        self._lock = threading.Lock()
        serve(self.server)

    def answer(self, fields: Any) -> tuple[int, Any]:
        if len(image_urls(fields)) < 3:
            return self.judge.answer(fields)
        with self._lock:
            if self.is_dead():
                raise ConnectionAbortedError
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(self.delay)
        with self._lock:
            self.now -= 1
        status, answer = self.judge.answer(fields)
        if self.reply is not None:
            answer = self.reply(fields)
        return status, answer

    def options(self, *more: str) -> tuple[str, ...]:
        settings = ("ask_first=false", "controls=false", "retries=0", *more)
        sets = tuple(f"--imgedit-set=judge.{setting}" for setting in settings)
        return SUITE, f"--imgedit-judge=openai:{self.server.url}#noisy-0.5", *sets

    @property
    def duels(self) -> list[Any]:
        """The requests that were about two edits."""
        return [fields for fields in self.server.asked if len(image_urls(fields)) == 3]

    def forget(self) -> None:
        self.server.asked.clear()
        self.judge.asked.clear()
        self.most = 0


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    with served.server:
        yield served
        served.server.shutdown()


def save(bench: Bench, served: Served, editor: str = "blend", name: str = "main") -> None:
    saving = (f"--imgedit-save={name}", "--imgedit-save-edits")
    bench.run(f"--imgedit-editor={editor}", *saving, *served.options())
    served.forget()


def duel(
    bench: Bench, served: Served, *more: str, editor: str = "oracle", name: str = "main"
) -> pytest.RunResult:
    against = (f"--imgedit-compare={name}", "--imgedit-duel")
    return bench.run(f"--imgedit-editor={editor}", *against, *served.options(), *more)


def votes(bench: Bench) -> list[dict[str, Any]]:
    """Return the votes of all pairs of the latest run."""
    pairs = bench.results["duel"]["pairs"].values()
    return [vote for pair in pairs for seed in pair["seeds"] for vote in seed["votes"]]


def parts(fields: Any) -> list[tuple[str, str]]:
    """Return what a request shows, in its order: text, and images as data URLs."""
    return [
        ("text", part["text"]) if part["type"] == "text" else ("image", part["image_url"]["url"])
        for part in fields["messages"][-1]["content"]
    ]


def without_question(fields: Any) -> Any:
    """Return a request without its last message."""
    return {**fields, "messages": fields["messages"][:-1]}


def test_a_request_shows_the_source_and_both_edits_and_its_twin_swaps_them_alone(
    bench: Bench, served: Served
) -> None:
    save(bench, served)
    duel(bench, served)
    blobs = {
        path.stem: path.read_bytes() for path in (bench.path / ".imgedit/blobs").rglob("*.png")
    }
    pairs = {pair.id: pair for pair in load_suite(SuiteSettings(spec=SCENES)).pairs}
    asked = {tuple(map(image_bytes, image_urls(fields))): fields for fields in served.duels}
    assert len(asked) == len(served.duels) == VOTES
    for name, found in bench.results["duel"]["pairs"].items():
        source = pairs[name].source.read()
        now, before = (blobs[found["seeds"][0][side]] for side in ("now", "before"))
        ours, twin = asked[source, now, before], asked[source, before, now]
        text = text_of(ours)
        assert f"Instruction: {pairs[name].instruction}\n" in text
        assert text.index("Source image:") < text.index("Edit A:") < text.index("Edit B:")
        _, first, second = image_urls(ours)
        swapped = {first: second, second: first}
        assert parts(twin) == [(kind, swapped.get(value, value)) for kind, value in parts(ours)]
        assert without_question(twin) == without_question(ours)


def test_names_of_runs_files_and_pairs_are_not_in_a_request(bench: Bench, served: Served) -> None:
    rights = [pair.reference for pair in load_suite(SuiteSettings(spec=SCENES)).pairs]
    names = [pair.id for pair in load_suite(SuiteSettings(spec=SCENES)).pairs]
    for folder in ("champion", "aardvark"):
        (bench.path / folder).mkdir()
        for name, right in zip(names, rights, strict=True):
            assert right is not None
            (bench.path / folder / f"{name}.png").write_bytes(right.read())
    save(bench, served)
    duel(bench, served, "--imgedit-name=winner", editor="folder:champion?{id}.png")
    first = sorted(json.dumps(fields) for fields in served.duels)
    assert len(first) == VOTES
    text = "".join(text_of(fields) + fields["messages"][0]["content"] for fields in served.duels)
    for word in ("champion", "winner", "main", "blend", "folder", ".png", "noisy", *names):
        assert word not in text

    served.forget()
    shutil.copy(bench.path / "benchmarks/baselines/main.json", bench.path / "old.json")
    again = ("--imgedit-name=loser", "--imgedit-fresh", "--imgedit-set=workers.cpu_workers=2")
    duel(bench, served, *again, editor="folder:aardvark?{id}.png", name="old.json")
    assert sorted(json.dumps(fields) for fields in served.duels) == first


@pytest.mark.parametrize(
    ("reply", "share_of_first"),
    [
        ("B (marginally better)", 0.0),
        ('```json\n{"reason": "A keeps more.", "better": "A"}\n```', 1.0),
        ('{"reason": "Image B is blurred.", "better": "Edit A', 1.0),
    ],
    ids=["words", "fence", "no end"],
)
@pytest.mark.everyday_for("words")
def test_a_reply_counts_as_a_person_would_read_it(
    bench: Bench, served: Served, reply: str, share_of_first: float
) -> None:
    save(bench, served)
    served.reply = lambda _: completion(reply)
    duel(bench, served)
    assert len(served.duels) == VOTES
    assert bench.results["duel"]["errors"] == 0
    assert bench.results["duel"]["first"]["score"]["share"] == share_of_first
    assert {vote["replies"]["duel"] for vote in votes(bench)} == {reply}


def cut(text: str) -> dict[str, Any]:
    """A reply that ended at its limit."""
    answer = completion(text)
    answer["choices"][0]["finish_reason"] = "length"
    return answer


@pytest.mark.parametrize("is_long_enough", [True, False], ids=["enough", "never"])
@pytest.mark.everyday_for("never")
def test_a_cut_reply_is_asked_again_with_twice_the_limit_and_then_an_error(
    bench: Bench, served: Served, is_long_enough: bool
) -> None:
    save(bench, served)

    def reply(fields: Any) -> dict[str, Any]:
        if is_long_enough and fields["max_tokens"] == 512:
            return completion('{"reason": "It is nearer.", "better": "B"}')
        return cut('{"reason": "A is better in that the b')

    served.reply = reply
    result = duel(bench, served)
    limits = [fields["max_tokens"] for fields in served.duels]
    found = bench.results["duel"]
    if is_long_enough:
        assert sorted(limits) == [256] * VOTES + [512] * VOTES
        assert found["first"]["score"]["share"] == 0.0
        return
    assert sorted(limits) == [256] * VOTES + [512] * VOTES + [1024] * VOTES
    assert found["errors"] == PAIRS
    assert {vote["error"]["kind"] for vote in votes(bench)} == {"unreadable_reply"}
    assert all("cut short" in vote["error"]["message"] for vote in votes(bench))
    assert result.ret == 1


def test_a_server_that_dies_half_way_is_asked_for_the_rest_alone(
    bench: Bench, served: Served
) -> None:
    save(bench, served)
    served.is_dead = lambda: served.judge.asked["duel"] >= 4
    assert duel(bench, served, "--imgedit-set=judge.concurrency=1").ret != 0
    assert served.judge.asked["duel"] == 4
    served.forget()
    served.is_dead = lambda: False
    duel(bench, served, "--imgedit-set=judge.concurrency=1")
    assert served.judge.asked == {"duel": VOTES - 4}
    assert bench.results["timing"]["votes_cached"] == 4
    assert bench.results["duel"]["measures"]["score"]["overall"]["share"] == 1.0


@pytest.mark.full
def test_a_run_that_is_killed_between_votes_asks_for_the_rest_alone(
    bench: Bench, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs over 2 CPU seconds, as a process is killed."""
    save(bench, served)
    journal = bench.path / ".imgedit" / "verdicts.jsonl"
    monkeypatch.setenv("KILL_AT", "half verdicts.jsonl 9")
    (bench.path / "conftest.py").write_text(KILLER.read_text())
    against = ("--imgedit-compare=main", "--imgedit-duel", "--imgedit-set=judge.concurrency=1")
    result = bench.run_subprocess("--imgedit-editor=oracle", *against, *served.options())
    assert result.ret == -signal.SIGKILL
    (bench.path / "conftest.py").unlink()
    whole, _, _half = journal.read_text().rpartition("\n")
    kept = sum('"second"' in record for record in whole.splitlines())
    assert 0 < kept < VOTES
    served.forget()
    duel(bench, served, "--imgedit-set=judge.concurrency=1")
    assert served.judge.asked["duel"] == VOTES - kept


def test_as_many_duels_are_asked_at_a_time_as_the_settings_allow(
    bench: Bench, served: Served
) -> None:
    save(bench, served)
    served.delay = 0.03
    duel(bench, served, "--imgedit-set=judge.concurrency=3")
    assert len(served.duels) == VOTES
    assert served.most == 3
