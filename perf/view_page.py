"""Weight, first paint and long tasks of the page of `imgedit view`: 6 runs of 5,000 pairs.

    python perf/view_page.py
    python perf/view_page.py --tiny

A judge gives random scores with a sentence to the edits of an editor that copies the source, of
synthetic images of 64x64. A long task is one of 50 ms or more, as Chromium's `longtask` entries
have it. First paint is Chromium's first contentful paint, of the list of runs and of the pairs by
runs; the page is then scrolled by the wheel. Figures are medians of three loads from disk.
"""

from __future__ import annotations

import json
import os
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import evaluate, finish, parser, scratch, table
from PIL import Image
from playwright.sync_api import sync_playwright

from pytest_imgedit import Answer, Question
from pytest_imgedit.cli.view import view

CATEGORIES = ("physics", "environment", "social", "causal", "referential")
#: Ticks of the wheel, in pixels, and the pause between two of them in milliseconds.
TICKS, STEP_PX, PAUSE_MS = 60, 120, 16
OBSERVE = """
window.longTasks = [];
new PerformanceObserver(list => window.longTasks.push(...list.getEntries().map(e => e.duration)))
  .observe({type: 'longtask', buffered: true});
"""


class RandomJudge:
    """Gives random grades with a sentence; `system` makes it another one for each run."""

    def __init__(self, device: str, system: int) -> None:
        self.system = system

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return [Answer(self._reply(question)) for question in questions]

    def _reply(self, question: Question) -> str:
        draw = random.Random(f"{self.system} {question.pair_id}")
        names = ("instruction", "preservation", "realism")
        grades = [f"{name}: {draw.randint(0, 10)}" for name in names]
        return "\n".join(["The edit follows the request in part.", *grades])


def write_suite(folder: Path, count: int) -> None:
    """Write images and a table of pairs."""
    (folder / "images").mkdir(parents=True)
    rows = []
    for number in range(count):
        draw = random.Random(number)
        colour = tuple(draw.randrange(256) for _ in range(3))
        path = f"images/{number:05}.png"
        Image.new("RGB", (64, 64), colour).save(folder / path)
        rows.append(
            {
                "id": f"pair-{number:05}",
                "image": path,
                "category": CATEGORIES[number % len(CATEGORIES)],
                "instruction": f"turn the background into a beach at sunset, number {number}",
            }
        )
    (folder / "pairs.json").write_text(json.dumps(rows))


def weight(folder: Path) -> float:
    """Return the size of a folder in MB."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def measure(chromium: Any, address: str) -> dict[str, float]:
    """Load a page, and scroll it: milliseconds, and the number and the longest of long tasks."""
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    page.add_init_script(OBSERVE)
    page.goto(address)
    page.wait_for_selector("tbody tr")
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    rows = page.evaluate("performance.now()")
    page.wait_for_timeout(1000)
    at_load = page.evaluate("window.longTasks.splice(0)")
    page.mouse.move(700, 600)
    for _ in range(TICKS):
        page.mouse.wheel(0, STEP_PX)
        page.wait_for_timeout(PAUSE_MS)
    page.wait_for_timeout(500)
    scrolled = page.evaluate("window.longTasks")
    page.close()
    return {
        "first paint, ms": paint,
        "rows by, ms": rows,
        "long tasks at load": len(at_load),
        "long tasks scrolled": len(scrolled),
        "longest, ms": max([*at_load, *scrolled], default=0),
    }


def main() -> None:
    options = parser(__doc__).parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH")))
    )
    count, systems = (60, 2) if options.tiny else (5000, 6)
    with scratch(options) as folder:
        write_suite(folder, count)
        for system in range(systems):
            evaluate(
                folder,
                "--imgedit-suite=pairs.json",
                "--imgedit-editor=identity",
                "--imgedit-judge=view_page:RandomJudge",
                f"--imgedit-set=judge.system={system}",
                f"--imgedit-name=system-{system}",
            )
        os.chdir(folder)
        document, _, _ = view([], None, serve=False)
        page = Path(document["page"]).absolute()
        keys = ",".join(document["runs"])
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
            )
            figures = {}
            for name, state in (("runs", ""), ("pairs", f"#view=pairs&runs={keys}&order=spread")):
                loads = [measure(chromium, page.as_uri() + state) for _ in range(3)]
                figures[name] = {
                    key: statistics.median(load[key] for load in loads) for key in loads[0]
                }
            chromium.close()
        mb = weight(page.parent)
    header = ("view", *next(iter(figures.values())))
    rows = [(name, *(f"{value:.0f}" for value in row.values())) for name, row in figures.items()]
    table(header, rows)
    print(f"{systems} runs of {count} pairs, load {os.getloadavg()[0]:.1f}: {mb:.1f} MB")
    finish(options, {"pages": figures, "megabytes": mb, "pairs": count, "runs": systems})


if __name__ == "__main__":
    main()
