"""How GEdit v2's published ratings by judges rank models as its arena of people does, with the
interval over models.

    python perf/arena_site.py CLONE
    python perf/arena_site.py --tiny

CLONE is a clone of ZhangqiJiang07/gedit2_web, the source of that arena's site, or its
`src/pages/index.tsx` alone; nothing of it is in this repository. The site gives Spearman's ρ of the
overall ratings, .929, without an interval. With --tiny and no CLONE, the table is made up.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
from harness import finish, parser, table

from pytest_imgedit.stats.resampling import Statistic, resample, spearman, with_interval

PAGE = Path("src", "pages", "index.tsx")
COLUMNS = ("overall", "instruction", "quality", "consistency")
PEOPLE = "arena"


def read(clone: Path) -> dict[str, dict[str, float]]:
    """Return the ratings of each model in the table of the site, by column."""
    page = clone if clone.is_file() else clone / PAGE
    rows = re.findall(r"\{\s*rank: \d+,.*?\}", page.read_text("utf-8"), re.DOTALL)
    if not rows:
        raise SystemExit(f"{page}: no table of models, expected rows with `rank: 1`")
    return {field(row, "model"): {name: number(row, name) for name in ratings()} for row in rows}


def ratings() -> tuple[str, ...]:
    return (*COLUMNS, PEOPLE)


def field(row: str, name: str) -> str:
    """Return the text of a field in a row of the page."""
    found = re.search(rf"\b{name}: '([^']*)'", row)
    if found is None:
        raise SystemExit(f"a row lacks {name}: {row[:200]}")
    return found[1]


def number(row: str, name: str) -> float:
    """Return the number that a field begins with, such as 1,126 of `1,126 (-13/+15)`."""
    return float(field(row, name).split()[0].replace(",", ""))


def made_up() -> dict[str, dict[str, float]]:
    """Return ratings of eight models, drawn at random."""
    draw = random.Random(0)
    return {
        f"model {place}": {name: draw.gauss(1000, 100) for name in ratings()} for place in range(8)
    }


def correlation(models: dict[str, dict[str, float]], column: str) -> Statistic:
    """Return Spearman's ρ of a column and people's arena, over models."""
    rated = np.array([[model[column], model[PEOPLE]] for model in models.values()])
    return with_interval(spearman(rated[:, 0], rated[:, 1], resample(list(models))))


def main() -> None:
    described = parser(__doc__)
    described.add_argument("clone", type=Path, nargs="?")
    options = described.parse_args()
    if options.clone is None and not options.tiny:
        described.error("expected the clone of the site, or --tiny")
    models = made_up() if options.clone is None else read(options.clone)
    found = {name: correlation(models, name) for name in COLUMNS}
    rows = []
    for name, statistic in found.items():
        low, high = statistic.ci95 or (None, None)
        rows.append((name, statistic.value, low, high))
    print(f"{len(models)} models")
    table(("ratings", "Spearman's ρ with people", "95% from", "to"), rows)
    finish(
        options,
        {name: {"rho": one.value, "ci95": one.ci95} for name, one in found.items()},
    )


if __name__ == "__main__":
    main()
