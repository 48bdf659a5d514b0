"""Weight and first paint of HTML reports: comparisons of 50 and 500 pairs at 1024².

    python perf/pages.py
    python perf/pages.py --tiny

Sources and edits are crops of the tests' photographs, the edits with other colours; a judge gives
random scores. The pages compare two runs, so that they show source, edit and the baseline's edit.
Three are measured: the copy (`--imgedit-html`), the single file (`--imgedit-html-embed`), and a
page that shows full-size images. Weight is that of the page and all images that it shows. First
paint is Chromium's first contentful paint. Scrolling ends when every card is drawn and its images
are loaded. Figures are medians of loads from disk.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from harness import evaluate, finish, parser, scratch, table
from PIL import Image, ImageEnhance, ImageOps
from playwright.sync_api import sync_playwright

from pytest_imgedit import Answer, Question, read_results
from pytest_imgedit.report import html
from pytest_imgedit.report.pictures import Picture, linked

PHOTOGRAPHS = Path(__file__).parent.parent / "tests" / "data" / "step1x"
CATEGORIES = ("physics", "environment", "social", "causal", "referential")


class RandomJudge:
    """Gives random scores."""

    def __init__(self, device: str) -> None: ...

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return [
            Answer(score=random.Random(question.pair_id).uniform(0, 10)) for question in questions
        ]


def write_pairs(folder: Path, count: int, side: int) -> None:
    """Write a suite, and two folders of finished edits."""
    photographs = [Image.open(path).convert("RGB") for path in sorted(PHOTOGRAPHS.glob("*.jpg"))]
    rows, draw = [], random.Random(count)
    for name in ("sources", "before", "now"):
        (folder / name).mkdir(parents=True)
    for number in range(count):
        photograph = photographs[number % len(photographs)]
        shorter = min(photograph.size)
        left, top = (draw.uniform(0, length - shorter * 0.8) for length in photograph.size)
        crop = photograph.crop(
            (int(left), int(top), int(left + shorter * 0.8), int(top + shorter * 0.8))
        )
        source = ImageOps.fit(crop, (side, side), Image.Resampling.BICUBIC)
        name = f"pair-{number:04}"
        source.save(folder / "sources" / f"{name}.jpg", quality=92)
        ImageEnhance.Color(source).enhance(1.8).save(
            folder / "before" / f"{name}.png", compress_level=1
        )
        ImageEnhance.Contrast(source).enhance(1.5).save(
            folder / "now" / f"{name}.png", compress_level=1
        )
        category = CATEGORIES[number % len(CATEGORIES)]
        rows.append(
            {
                "image": f"sources/{name}.jpg",
                "category": category,
                "instruction": "give it stronger colours",
            }
        )
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))


def pages(folder: Path, count: int, side: int) -> dict[str, Path]:
    """Make the runs; return the pages by what they are."""
    write_pairs(folder, count, side)
    options = [
        "--imgedit-suite=pairs.jsonl",
        "--imgedit-judge=pages:RandomJudge",
        "--imgedit-gpus=none",
    ]
    evaluate(folder, *options, "--imgedit-editor=folder:before", "--imgedit-save=before")
    compared = [*options, "--imgedit-editor=folder:now", "--imgedit-compare=before"]
    evaluate(folder, *compared, f"--imgedit-html={folder / 'copy.html'}")
    evaluate(
        folder, *compared, f"--imgedit-html={folder / 'embedded.html'}", "--imgedit-html-embed"
    )
    run = max(folder.glob(".imgedit/runs/*/results.json"), key=lambda path: path.stat().st_mtime_ns)
    full, in_store = (
        folder / "full.html",
        linked(folder / ".imgedit" / "blobs", folder / "full.html"),
    )

    def images(name: str) -> Picture | None:
        picture = in_store(name)
        return picture and replace(picture, thumbnail=str(picture.full))

    full.write_text(html.render(read_results(run), images))
    return {"copy": folder / "copy.html", "embedded": folder / "embedded.html", "full images": full}


@contextmanager
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        yield chromium
        chromium.close()


def measure(chromium: Any, path: Path) -> dict[str, Any]:
    """Load a page in a fresh context and scroll through it; return megabytes and seconds by what
    was measured.
    """
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(f"file://{path}")
    paints = "performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)"
    while not (painted := page.evaluate(paints)):
        time.sleep(0.02)
    started = time.perf_counter()
    while page.evaluate("drawn < shown.length"):
        page.evaluate("document.getElementById('more').scrollIntoView()")
        time.sleep(0.02)
    page.evaluate(
        "document.querySelectorAll('article img').forEach(image => { image.loading = 'eager'; })"
    )
    while not page.evaluate(
        "[...document.querySelectorAll('article img')].every(image => image.complete)"
    ):
        time.sleep(0.02)
    scrolled = time.perf_counter() - started
    shown = page.evaluate(
        "[...document.querySelectorAll('article img')].map(image => image.getAttribute('src'))"
    )
    context.close()
    files = {path.parent / unquote(source) for source in shown if not source.startswith("data:")}
    megabytes = sum(file.stat().st_size for file in {path, *files}) / 1e6
    return {
        "images": len(shown),
        "MB": megabytes,
        "first paint s": painted[0] / 1000,
        "scroll s": scrolled,
    }


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--pairs", type=int, nargs="*", default=(50, 500))
    described.add_argument("--times", type=int, default=5)
    options = described.parse_args()
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    counts, side = ((5,), 128) if options.tiny else (options.pairs, 1024)
    figures: dict[str, Any] = {}
    rows: list[tuple[Any, ...]] = []
    with scratch(options) as folder, browser() as chromium:
        for count in counts:
            for kind, path in pages(folder / str(count), count, side).items():
                loads = [measure(chromium, path) for _ in range(options.times)]
                figure = {
                    name: statistics.median(load[name] for load in loads) for name in loads[0]
                }
                figures[f"{count} pairs, {kind}"] = figure
                rows.append((count, kind, *figure.values()))
    table(("pairs", "page", "images", "MB", "first paint s", "scroll s"), rows)
    finish(options, figures)


if __name__ == "__main__":
    main()
