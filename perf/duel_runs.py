"""Whole runs whose edits are put against those of an earlier run: what the gate of duels says of
equal, redrawn and half-done edits, and of judges that cannot choose.

python perf/duel_runs.py             # 200 runs of redrawn edits a judge, 5 minutes
python perf/duel_runs.py --runs 20

Sessions run in this process, on the suite `scenes` and on parts of photographs on which a ball is
to be painted. An edit goes a share of the way to the right one that is drawn for its pair and seed,
so that another base seed is another run of equal quality. The embedded judge measures; a server
with OpenAI's API judges pixels, with noise and a preference for the first of two equal edits of
0.5, 0.6 and 0.7 in turn. Exits 1 if a case does not hold.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from PIL import Image, ImageDraw

from pytest_imgedit.config.settings import make_settings
from pytest_imgedit.config.toml_file import ConfigFile
from pytest_imgedit.report import write
from pytest_imgedit.run.execution import SelectedIds, execute
from pytest_imgedit.run.run_outcome import ItemCounts
from pytest_imgedit.run.session import Session
from pytest_imgedit.stats import planning
from pytest_imgedit.workers import editing

TESTS = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS / "support"))
partial_edits, pixel_server, worker_threads = (
    import_module(name) for name in ("partial_edits", "pixel_server", "worker_threads")
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_imgedit.core.results import GateResult, Results

PREFERENCES = (0.5, 0.6, 0.7)
#: The least share of runs of equal quality that is to end with exit code 0.
ENOUGH = 0.95
QUALITY = 0.7
#: The embedded judge, and 25 pairs that it knows.
EMBEDDED = "scenes"
SCENES = "scenes:n=5"
PHOTOGRAPHS = "photographs, served"
PLACES = {"top": (0, 0), "right": (48, 0), "left": (0, 48), "bottom": (48, 48)}
COLOURS = ("red", "blue", "yellow", "green", "white")
#: Pixels of a side of a part of a photograph.
SIDE = 96


def paint_photographs(folder: Path) -> str:
    """Write a suite of 25 parts of photographs, each with the place and colour of a ball that is to
    be painted and a right edit; return its path.
    """
    rows = []
    photographs = sorted((TESTS / "data" / "step1x").glob("*.jpg"))[:4]
    for number in range(25):
        path = photographs[number % 4]
        place, corner = [*PLACES.items()][number // 7]
        left, top = 20 * (number // 4), 14 * (number // 4)
        source = Image.open(path).convert("RGB").resize((256, 256))
        source = source.crop((left, top, left + SIDE, top + SIDE))
        right = source.copy()
        colour = COLOURS[(number + number // 7) % 5]
        ImageDraw.Draw(right).ellipse((*corner, corner[0] + 47, corner[1] + 47), colour)
        source.save(folder / f"{number}.png")
        right.save(folder / f"right-{number}.png")
        row = {"id": f"p{number}", "category": place, "image": f"{number}.png"}
        row |= {"reference": f"right-{number}.png"}
        rows.append({**row, "instruction": f"put a {colour} ball at the {place}"})
    (folder / "photographs.json").write_text(json.dumps(rows), "utf-8")
    return str(folder / "photographs.json")


@dataclass(frozen=True)
class Ended:
    """A run that has ended: its folder, its results, whether pytest would fail, and the seconds."""

    folder: Path
    results: Results
    fails: bool
    seconds: float

    @property
    def states(self) -> dict[str, str]:
        """The states of the gates by kind."""
        return {gate.kind: gate.state for gate in self.results.gates}

    @property
    def win(self) -> GateResult:
        (gate,) = (gate for gate in self.results.gates if gate.kind == "min_win")
        return gate


@dataclass
class Arena:
    """A suite and a judge, whose runs share a store in a folder."""

    name: str
    folder: Path
    suite: str
    judge: str

    def run(
        self, *, quality: float = QUALITY, seed: int = 0, against: Ended | None = None, **more: Any
    ) -> Ended:
        """Run an editor of a quality; its edits are put `against` those of another run. `more` are
        settings by section.
        """
        editor = {"spec": "partial_edits:Partial", "truth": self.suite}
        raw: dict[str, dict[str, Any]] = {
            "suite": {"spec": self.suite},
            "editor": {**editor, "quality": quality, "seed": seed},
            "judge": {"spec": self.judge, "controls": False},
            "gates": {},
            "run": {"out": self.folder, "config_file": ConfigFile()},
        }
        if self.judge.startswith("openai:"):
            raw["judge"]["ask_first"] = False
        if against is not None:
            raw["gates"] = {"compare": str(against.folder / "results.json"), "duel": True}
        for section, table in more.items():
            raw[section] |= table
        return self._execute(raw, is_checked=against is None)

    def _execute(self, raw: dict[str, dict[str, Any]], *, is_checked: bool) -> Ended:
        started = time.perf_counter()
        session = Session(make_settings(raw), self.folder)
        try:
            if is_checked:
                session.check()  # for each run it would take a third of the time
            ids = SelectedIds([pair.id for pair in session.suite.pairs])
            outcome = execute(session, ids, file=io.StringIO(), quiet=True)
            fails = outcome.conclude(ItemCounts()).fails
        finally:
            session.close()
        results = outcome.run.results
        seconds = time.perf_counter() - started
        return Ended(session.store.folder / "runs" / results.run.id, results, fails, seconds)


@dataclass(frozen=True)
class Row:
    """A line of the table: a case and what was seen of it."""

    arena: str
    case: str
    seen: str
    holds: bool

    def __str__(self) -> str:
        return f"{self.arena:<22} {self.case:<28} {'ok' if self.holds else 'NO':<3} {self.seen}"


def equal_edits(arena: Arena, before: Ended, stub: Any) -> Row:
    """The same edits, made again: nothing is asked but the duels of controls."""
    if stub:
        stub.pairs.clear()
    again = arena.run(against=before, judge={"controls": True}, run={"fresh": True})
    duel = again.results.duel
    assert duel is not None
    same = sum(first == second for first, second in stub.pairs) if stub else 0
    holds = not again.fails and again.win.state == "PASS" and not same
    holds = holds and duel.identical == len(duel.pairs)
    seen = f"{told(again)}, {duel.identical} of {len(duel.pairs)} pairs identical"
    seen += f", {same} questions about two equal edits" if stub else ""
    return Row(arena.name, "byte-equal edits", seen, holds)


def half_done(arena: Arena, before: Ended) -> Row:
    half = arena.run(quality=QUALITY / 2, seed=10_000, against=before, judge={"controls": True})
    holds = half.fails and half.win.state == "FAIL"
    return Row(arena.name, "half-done edits", told(half), holds)


def invalid(arena: Arena, case: str) -> Row:
    """A judge that cannot choose."""
    before = arena.run()
    now = arena.run(seed=1, against=before, judge={"controls": True})
    holds = now.fails and now.states["duel_controls"] == "INVALID"
    (why,) = (gate.why for gate in now.results.gates if gate.kind == "duel_controls")
    return Row(arena.name, case, f"{told(now)}: {why}", holds)


def told(ended: Ended) -> str:
    share = "–" if ended.win.value is None else f"{ended.win.value:.2f}"
    states = ", ".join(f"{kind} {state}" for kind, state in ended.states.items())
    return f"exit {int(ended.fails)}, share won {share}, {states}"


def redrawn(arena: Arena, runs: int, first: int) -> Iterator[Ended]:
    """Yield runs of equal quality, each against the one before it."""
    before = arena.run(seed=first)
    for number in range(runs):
        now = arena.run(seed=first + 1 + number, against=before)
        yield now
        before = now


def each_against_each(arena: Arena, runs: int, first: int) -> Iterator[Ended]:
    """Yield runs of equal quality, each of a few against each: a slow judge that measures scores an
    edit once, whatever it is put against.
    """
    seen: list[Ended] = []
    for later in count():
        seen.append(arena.run(seed=first + later))
        for before in seen[:later]:
            if runs == 0:
                return
            runs -= 1
            yield arena.run(seed=first + later, against=before)


def of_redrawn(arenas: dict[str, Arena], runs: int, name: str) -> Iterator[Row]:
    """A row for each arena, with an equal share of the runs, and one for all."""
    ended: list[Ended] = []
    for place, (label, arena) in enumerate(arenas.items()):
        draw = each_against_each if arena.judge == EMBEDDED else redrawn
        share = runs // len(arenas) + (place < runs % len(arenas))
        found = [*draw(arena, share, 1000 * (1 + place))]
        ended += found
        yield Row(name, f"redrawn{label}", summary(found), holds=True)
    yield Row(name, "redrawn, all", summary(ended), share_of_zero(ended) >= ENOUGH)


def share_of_zero(ended: list[Ended]) -> float:
    return fmean(not one.fails for one in ended)


def is_failed(gate: GateResult) -> bool:
    return gate.state in ("FAIL", "INVALID")


def summary(ended: list[Ended]) -> str:
    """What came of runs of equal quality: exit codes, states of the gate of duels, failed gates,
    the lowest share that may be missed, shares that were won, and votes for the edit shown first.
    """
    states = Counter(one.win.state for one in ended)
    missed = [0.5 - one.win.mde for one in ended if one.win.mde is not None]
    won = [one.win.value for one in ended if one.win.value is not None]
    duels = [one.results.duel for one in ended]
    firsts = [duel.first["score"].share for duel in duels if duel and duel.first]
    failed = Counter(gate.kind for one in ended for gate in one.results.gates if is_failed(gate))
    text = f"exit 0 in {share_of_zero(ended):.1%} of {len(ended)}; duels "
    text += ", ".join(f"{state} {states[state]}" for state in sorted(states))
    if failed:
        text += "; failed gates " + ", ".join(f"{kind} {failed[kind]}" for kind in sorted(failed))
    text += f"; a share down to {fmean(missed):.2f} may be missed; won {fmean(won):.3f}"
    known = [share for share in firsts if share is not None]
    if known:
        text += f"; {fmean(known):.2f} of votes for the first"
    return text + f"; {fmean(one.seconds for one in ended):.2f} s a run"


def of_embedded(folder: Path, runs: int) -> Iterator[Row]:
    """Yield the cases of the embedded judge, which has no position to prefer."""
    for name in ("torch._dynamo", "transformers"):
        import_module(name)  # threads cannot import them at once
    arena = Arena("scenes, embedded", folder / "embedded", SCENES, EMBEDDED)
    before = arena.run()
    yield equal_edits(arena, before, None)
    yield half_done(arena, before)
    yield from of_redrawn({" by scores": arena}, runs, arena.name)


def of_served(folder: Path, runs: int) -> Iterator[Row]:
    """Yield the cases of the server."""
    photographs = paint_photographs(folder)
    right = partial_edits.right_edits(SCENES) | partial_edits.right_edits(photographs)
    with pixel_server.pixel_server(right) as (url, stub):
        for name, suite in (("scenes", SCENES), ("photographs", photographs)):
            arenas = {
                model: Arena(
                    f"{name}, served", folder / f"{name}-{model}", suite, f"openai:{url}#{model}"
                )
                for model in ("first", "worse", *(f"noisy-{value}" for value in PREFERENCES))
            }
            fair = arenas["noisy-0.5"]
            before = fair.run()
            yield equal_edits(fair, before, stub)
            yield half_done(fair, before)
            yield invalid(arenas["first"], "a judge that says A")
            yield invalid(arenas["worse"], "a judge that prefers worse")


def of_redrawn_photographs(folder: Path, runs: int) -> Iterator[Row]:
    """Yield the redrawn edits of photographs, as many runs by each preference of the server."""
    photographs = paint_photographs(folder)
    with pixel_server.pixel_server(partial_edits.right_edits(photographs)) as (url, _):
        arenas = {
            f", first {value}": Arena(
                PHOTOGRAPHS, folder / f"redrawn-{value}", photographs, f"openai:{url}#noisy-{value}"
            )
            for value in PREFERENCES
        }
        yield from of_redrawn(arenas, runs, PHOTOGRAPHS)


PARTS = {"embedded": of_embedded, "served": of_served, "redrawn": of_redrawn_photographs}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, help="runs of redrawn edits, each judge")
    parser.add_argument("--only", choices=PARTS, action="append", help="these cases alone")
    given = parser.parse_args()
    memory = Path("/dev/shm")
    started, failed = time.perf_counter(), 0
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name,
        patch("pytest_imgedit.workers.local.LocalExecutor", worker_threads.ThreadExecutor),
        patch.object(editing, "change", lambda *_: 50.0),  # most of the time, for no gate here
        patch.object(planning, "pairs_needed", lambda *_: None),
        patch.object(write, "write_reports", lambda *_: {}),
    ):
        for part in given.only or PARTS:
            for row in PARTS[part](Path(name), given.runs):
                print(row, flush=True)
                failed += not row.holds
    print(f"{time.perf_counter() - started:.0f} s")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
