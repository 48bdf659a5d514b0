"""People's votes of GenAI-Arena through `boards.rate`, and its published board by its own method.

    python perf/genai_arena.py CLONE

CLONE is a clone of TIGER-AI-Lab/GenAI-Arena. Its votes are of text-to-image models and of editors,
between which there is no vote: `rate` refuses all together, and takes each part alone. A plain
unpenalised maximum of the same likelihood stands beside its ratings. Their own board is a logistic
regression with a ridge, in which a tie is half a win for each, by scikit-learn: it stops where no
slope of the mean loss is over 1e-4, short of the maximum. Each of its columns is computed anew and
compared with `leaderboard.csv`, and the maximum of the same loss too.

With `--tiny` votes are made up, and there is no published board. The exit code is 1 if a
difference is over `MOST` Elo.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from harness import finish, parser, table
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from pytest_imgedit.core.duel_votes import DuelVote
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.stats.boards import ELO, rate
from pytest_imgedit.stats.estimates import Floats

VOTES = Path("arena_elo", "clean_battle_20240220.json")
BOARD = Path("arena_elo", "results", "20240220", "leaderboard.csv")
#: Columns of the published board, and whether votes on named systems count.
COLUMNS = {"anony": False, "full": True}
WINNERS = {"model_a": "a", "model_b": "b", "tie": "tie", "tie (bothbad)": "tie"}
MOST = 0.01


def made_up() -> list[dict[str, Any]]:
    """Votes on two sets of systems."""
    generator = np.random.default_rng(0)
    names = list(WINNERS)
    rows = []
    for place in range(300):
        part = "ab"[place % 2]
        one, other = generator.choice(3, 2, replace=False).tolist()
        winner = names[int(generator.integers(len(names)))]
        row = {"model_a": f"{part}{one}", "model_b": f"{part}{other}", "winner": winner}
        rows.append({**row, "anony": True})
    return rows


def duel_votes(rows: list[dict[str, Any]]) -> list[DuelVote]:
    """Return votes as they are rated: model a is shown first. One of a system and itself is left
    out.
    """
    return [
        DuelVote(
            pair=str(place),
            a=row["model_a"],
            b=row["model_b"],
            winner=WINNERS[row["winner"]],  # type: ignore[arg-type]
            first="a",
            judge="people",
        )
        for place, row in enumerate(rows)
        if row["model_a"] != row["model_b"]
    ]


def parts(votes: list[DuelVote]) -> list[set[str]]:
    """Return the sets of systems that votes connect."""
    near = defaultdict(set)
    for vote in votes:
        near[vote.a].add(vote.b)
        near[vote.b].add(vote.a)
    found: list[set[str]] = []
    for name in sorted(near):
        if any(name in part for part in found):
            continue
        part = {name}
        waiting = [name]
        while waiting:
            new = near[waiting.pop()] - part
            part |= new
            waiting.extend(new)
        found.append(part)
    return found


def plain(votes: list[DuelVote]) -> dict[str, float]:
    """Maximise the likelihood of the model of `boards.rate`, vote by vote."""
    systems = sorted({vote.a for vote in votes} | {vote.b for vote in votes})
    a = np.array([systems.index(vote.a) for vote in votes])
    b = np.array([systems.index(vote.b) for vote in votes])
    outcome = np.array([("a", "tie", "b").index(vote.winner) for vote in votes])
    count = len(systems)

    def loss(parameters: Floats) -> float:
        theta = parameters[:count]
        order, log_tie = parameters[count:]
        tie = log_tie + (theta[a] + theta[b]) / 2
        logs = np.stack([theta[a] + order / 2, tie, theta[b] - order / 2])
        chosen = logs[outcome, np.arange(len(votes))]
        return float((logsumexp(logs, axis=0) - chosen).mean() + theta.mean() ** 2)

    found = minimize(loss, np.zeros(count + 2), method="BFGS", options={"gtol": 1e-9})
    theta = found.x[:count]
    ratings = ELO * (theta - theta.mean())
    return dict(zip(systems, ratings.tolist(), strict=True))


def published(rows: list[dict[str, Any]], tolerance: float) -> dict[str, float]:
    """Return ratings by the method of the published board: `compute_elo_mle_with_tie` of
    `elo_analysis.py`, which stops at a tolerance of 1e-4.

    Each vote counts twice, a tie as one win of each. A vote of a system and itself has only the
    sign of the second place.
    """
    systems = list(dict.fromkeys(row[name] for name in ("model_a", "model_b") for row in rows))
    number = {name: place for place, name in enumerate(systems)}
    design = np.zeros((len(rows), len(systems)))
    wins = np.zeros(len(rows))
    for place, row in enumerate(rows):
        design[place, number[row["model_a"]]] = math.log(10)
        design[place, number[row["model_b"]]] = -math.log(10)
        wins[place] = {"a": 2.0, "tie": 1.0, "b": 0.0}[WINNERS[row["winner"]]]

    def loss(weights: Floats) -> tuple[float, Floats]:
        logs = design @ weights
        value = float((2 * np.logaddexp(0, logs) - wins * logs).sum() + weights @ weights / 2)
        slopes = design.T @ (2 * expit(logs) - wins) + weights
        return value / (2 * len(rows)), slopes / (2 * len(rows))

    found = minimize(
        loss,
        np.zeros(len(systems)),
        jac=True,
        method="L-BFGS-B",
        options={"gtol": tolerance, "ftol": 64 * np.finfo(float).eps, "maxls": 50},
    )
    return dict(zip(systems, (1000 + 400 * found.x).tolist(), strict=True))


def against_board(clone: Path, rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the largest difference from each published column, as it is computed and at the
    maximum.
    """
    with (clone / BOARD).open(newline="", encoding="utf-8") as file:
        printed = list(csv.DictReader(file))
    found = {}
    for column, takes_named in COLUMNS.items():
        used = [row for row in rows if takes_named or row["anony"]]
        differences = {}
        for name, tolerance in (("as computed", 1e-4), ("at the maximum", 1e-10)):
            ratings = published(used, tolerance)
            differences[name] = max(
                abs(ratings[row["key"]] - float(row[f"Arena Elo rating ({column})"]))
                for row in printed
            )
        found[f"{len(printed)} systems, published column {column}"] = differences
    return found


def main() -> int:
    described = parser(__doc__)
    described.add_argument("clone", type=Path, nargs="?", help="a clone of GenAI-Arena")
    options = described.parse_args()
    if options.clone is None and not options.tiny:
        described.error("CLONE is missing, expected a clone of GenAI-Arena, or --tiny")
    rows = made_up() if options.tiny else json.loads((options.clone / VOTES).read_text("utf-8"))
    votes = duel_votes(rows)
    print(f"{len(rows)} votes, {len(rows) - len(votes)} of a system and itself")
    figures: dict[str, Any] = {"votes": len(rows), "refused": ""}
    try:
        rate(votes)
    except UsageError as error:
        figures["refused"] = str(error)
    print(figures["refused"] or "all votes together are rated")
    fits = {}
    for part in parts(votes):
        of_part = [vote for vote in votes if vote.a in part]
        board = rate(of_part)
        beside = plain(of_part)
        name = f"{len(part)} systems from {min(part)}, {len(of_part)} votes, unpenalised fit"
        fits[name] = max(abs(row.overall.elo - beside[row.system]) for row in board.rows)
        shown = []
        for row in board.rows:
            low, high = row.overall.ci95 or (math.nan, math.nan)
            interval = f"{low:.1f} to {high:.1f}"
            shown.append((row.system, f"{row.overall.elo:.1f}", interval, str(row.rank_interval)))
        table(("system", "Elo", "95%", "ranks"), shown)
        (first,) = board.first.values()
        (ties,) = board.ties.values()
        print(f"first of equals {first.share:.3f}, ties {ties.share:.3f}\n")
    boards = {} if options.tiny else against_board(options.clone, rows)
    compared = [(name, f"{difference:.1e}", "") for name, difference in fits.items()]
    for name, differences in boards.items():
        as_computed, at_maximum = differences.values()
        compared.append((name, f"{as_computed:.1e}", f"{at_maximum:.1f}"))
    table(("against", "largest difference", "of the maximum"), compared)
    largest = max(*fits.values(), *(board["as computed"] for board in boards.values()))
    finish(options, {**figures, "fits": fits, "boards": boards})
    return int(not figures["refused"] or largest > MOST)


if __name__ == "__main__":
    sys.exit(main())
