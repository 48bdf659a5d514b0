"""Time of `imgedit leaderboard` over 20 runs of 500 pairs, and with one run more.

nice python perf/leaderboard_command.py
nice python perf/leaderboard_command.py --runs 10 --pairs 200

One small run is real; the others have its pairs many times under other ids, with random values.
"""

from __future__ import annotations

import copy
import hashlib
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import evaluate, finish, parser, scratch, table

from pytest_imgedit.core.results import Results
from pytest_imgedit.stats.decision import summarize_items

#: What an environment counts of the items that were computed in it.
COUNTS = ("edits", "verdicts")


def repeated(items: list[dict[str, Any]], pairs: int) -> Iterator[dict[str, Any]]:
    """Repeat items under further ids and source images until there are so many."""
    for number in range(pairs):
        item = copy.deepcopy(items[number % len(items)])
        digest = hashlib.sha256(f"{item['source']} {number}".encode()).hexdigest()
        yield {
            **item,
            "id": f"{item['id']}-{number}",
            "source": f"{digest[:2]}/{digest}.png",
        }


def with_values(
    items: list[dict[str, Any]], level: float, generator: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """Give items random values about a level, on the scale from 0 to 10."""
    for item in items:
        names = ("score", *item["aspects"])
        values = np.clip(np.round(generator.normal(level, 2, len(names)), 2), 0, 10).tolist()
        score, *aspects = values
        given = {"score": score, "aspects": dict(zip(item["aspects"], aspects, strict=True))}
        seeds = [{**seed, "verdict": {**seed["verdict"], **given}} for seed in item["seeds"]]
        yield {**item, **given, "seeds": seeds}


def write_runs(store: Path, document: dict[str, Any], runs: int, pairs: int) -> list[str]:
    """Write runs into a store; return their names."""
    generator = np.random.default_rng(1)
    items = list(repeated(document["items"], pairs))
    names = [f"system{number:02}" for number in range(runs)]
    selection = {**document["selection"], "selected": pairs}
    environments = {
        key: {name: pairs if name in COUNTS and value else value for name, value in one.items()}
        for key, one in document["environments"].items()
    }
    document = {**document, "selection": selection, "environments": environments}
    for number, name in enumerate(names):
        path = store / "runs" / name / "results.json"
        path.parent.mkdir(parents=True)
        level = 5 + 2 * number / runs
        run = {**document["run"], "id": f"id{number:02}", "name": name}
        values = list(with_values(items, level, generator))
        results = Results.model_validate({**document, "run": run, "items": values})
        scales = {name: table.bare for name, table in results.measures.items()}
        categories, overall, measures = summarize_items(results.items, scales)
        tables = {"categories": categories, "overall": overall, "measures": measures}
        path.write_text(results.model_copy(update=tables).to_json(), encoding="utf-8")
    return names


def seconds_of(store: Path, names: list[str]) -> dict[str, float]:
    """Wall and CPU time of the command with all formats."""
    formats = [f"--{kind}={store.with_name(f'board.{kind}')}" for kind in ("md", "csv", "html")]
    command = [sys.executable, "-m", "pytest_imgedit.cli.main", "leaderboard", *names, *formats]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(
        [*command, "--reference", names[0], "--out", str(store)], check=True, capture_output=True
    )
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"wall_s": wall, "cpu_s": after.ru_utime - before.ru_utime}


def main() -> None:
    options_parser = parser(__doc__)
    options_parser.add_argument("--runs", type=int, default=20, help="runs to rank (20)")
    options_parser.add_argument("--pairs", type=int, default=500, help="pairs of each (500)")
    options = options_parser.parse_args()
    if options.tiny:
        options.runs, options.pairs = 3, 20
    with scratch(options) as folder:
        document = evaluate(folder / "real", "--imgedit-limit=2", "--imgedit-editor=oracle")
        del document["wall_s"]
        store = folder / "store"
        names = write_runs(store, document, options.runs + 1, options.pairs)
        size = (store / "runs" / names[0] / "results.json").stat().st_size
        first = seconds_of(store, names[:-1])
        second = seconds_of(store, names)
    figures = {
        "runs": options.runs,
        "pairs": options.pairs,
        "measures": ["score", *document["items"][0]["aspects"]],
        "bytes_of_a_run": size,
        "first": first,
        "one_more": second,
    }
    table(
        ("runs", "wall s", "CPU s"),
        [(options.runs, *first.values()), (options.runs + 1, *second.values())],
    )
    finish(options, figures)


if __name__ == "__main__":
    main()
