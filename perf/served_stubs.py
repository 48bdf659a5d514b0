"""The part of served_judge.py with `--stubs`: items and edits a CPU second of all processes of a
run against servers that answer after 20 ms, beside those of another checkout.

Pictures have 1024 x 1024 pixels, of which as many are noise as give their files 0.6 MB, then
1.8 MB; smaller ones, which are made faster, hold as much (`--side 448` and 776). Edits are put into
the store before. Items without start-up are those of a run less those of a run that asks very
little. No body may be asked twice, but for those of the canary.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import finish, scratch, table
from stub_runs import SIDE, Measured, Stubs, copy_store, measure, noise, stubs, write_suite
from stub_server import Answered, most_in_flight

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

HERE = Path(__file__).parents[1]
MEGABYTES = (0.6, 1.8)
#: The pair that a canary's questions are about, and how many it has.
CANARY_PAIR = "00000"
CANARY_QUESTIONS = 2
#: Requests in flight to served editors, and the edits of their part.
EDITORS = 8
EDITS = 100
COMMON = ("--imgedit-gpus=none",)


def add_options(described: argparse.ArgumentParser) -> None:
    """Add what `--stubs` takes."""
    described.add_argument("--stubs", type=int, default=0, help="servers that cost nothing")
    described.add_argument("--urls", type=int, help="of so many stubs (default: all)")
    described.add_argument("--concurrency", type=int, default=8, help="judge.concurrency")
    described.add_argument(
        "--distinct", type=int, help="pictures that the pairs share in turns (default: no sharing)"
    )
    described.add_argument("--side", type=int, default=SIDE, help="pixels of a picture's side")
    described.add_argument(
        "--megabytes",
        type=float,
        nargs="*",
        default=MEGABYTES,
        help="sizes of the pictures' files, as far as noise of that side fills them",
    )
    described.add_argument(
        "--before", type=Path, help="a checkout to compare with; it asks the first stub alone"
    )
    described.add_argument("--kill", action="store_true", help="also end a stub in the middle")


class Bench:
    """Runs of this checkout, and of the one before if there is one, in turns."""

    def __init__(self, options: argparse.Namespace, folder: Path, served: Stubs) -> None:
        self.options = options
        self.folder = folder
        self.served = served
        self.editors = 2 if options.tiny else EDITORS
        self.side: int = 64 if options.tiny else options.side
        self.megabytes: Sequence[float] = options.megabytes
        self.pairs: int = 12 if options.tiny else options.pairs or 600
        self.distinct: int = min(options.distinct or self.pairs, self.pairs)
        self.checkouts = {"now": HERE}
        if options.before:
            self.checkouts["before"] = options.before.resolve()

    def suite(self, megabytes: float) -> Path:
        """Return the suite with pictures of this size, written at the first call."""
        path = self.folder / f"suite-{megabytes}" / "pairs.jsonl"
        if path.exists():
            return path
        return write_suite(path.parent, self.pairs, self.distinct, megabytes, self.side)

    def urls(self, checkout: str) -> list[str]:
        """Return the URLs of the stubs that a checkout asks."""
        count = self.options.urls or len(self.served.urls)
        return self.served.urls[: 1 if checkout == "before" else count]

    def edited(self, checkout: str, megabytes: float) -> Path:
        """Return the folder with the store of a checkout that holds all edits."""
        folder = self.folder / f"edited-{checkout}-{megabytes}"
        if not folder.exists():
            finished_edits = self.suite(megabytes).parent / "finished"
            editor = f"--imgedit-editor=folder:{finished_edits}"
            self.run(folder, checkout, megabytes, editor, "--imgedit-stage=edit")
        return folder

    def judged(self, checkout: str, megabytes: float, *more: str, kills: bool = False) -> Measured:
        """Score stored edits in a copy of their store, which is thrown away."""
        from shutil import rmtree

        folder = self.folder / "judged"
        copy_store(self.edited(checkout, megabytes), folder)
        urls = self.urls(checkout)
        replaced = (self.pairs // 2, len(urls) - 1) if kills else None
        measured = self.run(
            folder,
            checkout,
            megabytes,
            f"--imgedit-editor=folder:{self.suite(megabytes).parent / 'finished'}",
            f"--imgedit-judge=openai:{','.join(urls)}#m",
            f"--imgedit-set=judge.concurrency={self.options.concurrency}",
            "--imgedit-stage=score",
            *more,
            replaced=replaced,
        )
        rmtree(folder)
        return measured

    def made(self, checkout: str, limit: int) -> Measured:
        """Make edits with a served editor in a store of their own, which is thrown away."""
        from shutil import rmtree

        folder = self.folder / "made"
        measured = self.run(
            folder,
            checkout,
            self.megabytes[0],
            f"--imgedit-editor=openai-images:{self.served.urls[0]}#m",
            f"--imgedit-set=editor.concurrency={self.editors}",
            "--imgedit-stage=edit",
            f"--imgedit-limit={limit}",
        )
        rmtree(folder)
        return measured

    def run(
        self,
        folder: Path,
        checkout: str,
        megabytes: float,
        *arguments: str,
        replaced: tuple[int, int] | None = None,
    ) -> Measured:
        """Run a checkout over the suite."""
        suite = f"--imgedit-suite={self.suite(megabytes)}"
        root = self.checkouts[checkout]
        return measure(folder, self.served, root, suite, *COMMON, *arguments, replaced=replaced)


def rates(few: Measured, full: Measured) -> dict[str, Any]:
    """Return the rates of a run; `few` is the same one that asked very little."""
    answered = len(full.answers)
    items = len(full.document["items"])
    more = items - len(few.document["items"])
    return {
        "items": items,
        "scored": full.scored,
        "asked": answered,
        "cpu_s": full.cpu_s,
        "start_up_cpu_s": few.cpu_s,
        "items_cpu_s": items / full.cpu_s,
        "items_cpu_s_without_start_up": more / (full.cpu_s - few.cpu_s),
        "items_cpu_s_while_asking": full.looks.questions_cpu_s(answered),
        "wall_s": full.document["wall_s"],
        "in_flight": most_in_flight(full.answers),
        "workers": full.looks.workers,
        "asked_twice": asked_twice(full.answers),
        "peak_at_a_quarter": full.looks.peak(answered / 4),
        "peak_when_asked": full.looks.peak(answered),
        "peak_at_the_end": full.looks.peak(float("inf")),
    }


def of_pairs(answers: Sequence[Answered]) -> list[Answered]:
    """Return the questions with pictures of the suite: those of a probe are much shorter."""
    longest = max((answer.length for answer in answers), default=0)
    return [answer for answer in answers if 2 * answer.length > longest]


def asked_twice(answers: Sequence[Answered]) -> int:
    """Return how many bodies were answered more than once, but for the canary's two."""
    counts = Counter((answer.pair, answer.digest) for answer in of_pairs(answers))
    repeated = Counter(pair for (pair, _), count in counts.items() if count > 1)
    of_canary = min(CANARY_QUESTIONS, repeated[CANARY_PAIR])
    return repeated.total() - of_canary


def bodies(measured: Measured) -> set[tuple[str, str]]:
    """Return pair and digest of each body, but for the pair of the canary."""
    answers = of_pairs(measured.answers)
    return {(answer.pair, answer.digest) for answer in answers if answer.pair != CANARY_PAIR}


def measure_judge(bench: Bench, megabytes: float) -> dict[str, Any]:
    """Measure the judge of each checkout with pictures of one size."""
    for checkout in bench.checkouts:
        bench.edited(checkout, megabytes)
    few = {name: bench.judged(name, megabytes, "--imgedit-limit=1") for name in bench.checkouts}
    full = {name: bench.judged(name, megabytes) for name in bench.checkouts}
    figures: dict[str, Any] = {name: rates(few[name], full[name]) for name in bench.checkouts}
    if "before" in full:
        figures["same_bodies"] = bodies(full["now"]) == bodies(full["before"])
    return figures


def measure_editors(bench: Bench) -> dict[str, Any]:
    """Measure served editors of each checkout; a run that edits very little starts them all."""
    few = {name: bench.made(name, bench.editors) for name in bench.checkouts}
    full = {name: bench.made(name, EDITS) for name in bench.checkouts}
    return {name: rates(few[name], full[name]) for name in bench.checkouts}


def measure_killed(bench: Bench) -> dict[str, Any]:
    """End a stub in the middle of a run and start it again; say what was lost or asked twice."""
    killed = bench.judged("now", bench.megabytes[0], kills=True)
    return {
        "items": len(killed.document["items"]),
        "scored": killed.scored,
        "asked_twice": asked_twice(killed.answers),
        "replaced": len(bench.served.ended),
        "wall_s": killed.document["wall_s"],
    }


def report(options: argparse.Namespace) -> None:
    """Measure what was asked for, print it and write the figures."""
    figures: dict[str, Any] = {"stubs": options.stubs}
    with scratch(options) as folder:
        picture = noise(0, options.megabytes[0], 64 if options.tiny else options.side)
        with stubs(folder / "stubs", options.stubs, picture) as served:
            bench = Bench(options, folder, served)
            figures |= {"pairs": bench.pairs, "distinct": bench.distinct}
            for megabytes in bench.megabytes:
                figures[f"judge, {megabytes} MB"] = measure_judge(bench, megabytes)
                finish(options, figures)  # what there is, should a later part fail
            if options.kill:
                figures["killed"] = measure_killed(bench)
            figures["editors"] = measure_editors(bench)
    _print(figures)
    finish(options, figures)
    _check(figures)


def _print(figures: dict[str, Any]) -> None:
    head = ["", "checkout", "items", "CPU s", "items/CPU s", "without start-up", "asking", "wall s"]
    head += ["in flight", "workers", "asked twice", "controller MiB", "worker MiB"]
    rows = []
    parts = {name: part for name, part in figures.items() if "now" in _dict(part)}
    for name, part in parts.items():
        for checkout in ("now", "before"):
            if checkout in part:
                rows.append((name, checkout, *_cells(part[checkout])))
    print(f"{figures['pairs']} pairs, {figures['distinct']} distinct; MiB at 1/4, asked, ended")
    table(head, rows)
    for name, part in parts.items():
        if "before" in part:
            print(f"{name}: {_ratio(part):.2f} times as many items a CPU second without start-up")
        if "same_bodies" in part:
            print(f"{name}: the bodies are {'the same' if part['same_bodies'] else 'others'}")
    if "killed" in figures:
        killed = figures["killed"]
        print(
            f"killed: {killed['replaced']} stub; {killed['scored']} of {killed['items']} scored, "
            f"{killed['asked_twice']} asked twice, {killed['wall_s']:.1f} s"
        )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _cells(row: dict[str, Any]) -> list[object]:
    peaks = [row["peak_at_a_quarter"], row["peak_when_asked"], row["peak_at_the_end"]]
    return [
        row["items"],
        row["cpu_s"],
        row["items_cpu_s"],
        row["items_cpu_s_without_start_up"],
        row["items_cpu_s_while_asking"],
        row["wall_s"],
        row["in_flight"],
        row["workers"],
        row["asked_twice"],
        " ".join(f"{peak['controller_mib']:.0f}" for peak in peaks),
        " ".join(f"{peak['worker_mib']:.0f}" for peak in peaks),
    ]


def _ratio(part: dict[str, Any]) -> float:
    key = "items_cpu_s_without_start_up"
    ratio: float = part["now"][key] / part["before"][key]
    return ratio


def _check(figures: dict[str, Any]) -> None:
    """End with an error if the run whose stub was ended lost a pair or asked one twice."""
    killed = figures.get("killed")
    if killed is None:
        return
    if not killed["replaced"]:
        raise SystemExit("no stub was ended: the run was over too soon")
    if killed["scored"] < killed["items"] or killed["asked_twice"]:
        raise SystemExit("a question was lost, or asked twice")
