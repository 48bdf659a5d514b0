"""Seconds of `imgedit agreement`'s bootstrap, against resamples that are written out.

    python perf/agreement.py
    python perf/agreement.py --tiny

Random ratings of 179 sources with 9 edits each, by three raters, and 2,000 resamples over sources.
The written-out resamples compute Spearman's ρ, Kendall's τ-b and pairwise accuracy with scipy and
numpy, one resample at a time; agreement within a source and that of raters are not in their time.
Then the raters' measures of crowds, with the peak of the memory that Python allocates.
CPU seconds of one process; the machine's other load does not count.
"""

from __future__ import annotations

import time
import tracemalloc
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
from harness import finish, parser, table
from scipy import stats

from pytest_imgedit.stats import resampling
from pytest_imgedit.stats.agreement import agreement
from pytest_imgedit.stats.estimates import ALPHA
from pytest_imgedit.stats.raters import RatingRows, rater_agreement

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_imgedit.stats.estimates import Floats

EDITS = 9
RATERS = 3
#: Raters, edits, and edits that each rates.
CROWDS = ((500, 12, 12), (5_000, 12, 12), (5_000, 24, 12), (5_000, 2_000, 10))


def ratings_and_scores(sources: int) -> tuple[Floats, Floats, list[str]]:
    """Draw ratings of 0, 1 … 4, in shape (raters, edits), scores of 0, 1 … 10, and the sources."""
    generator = np.random.default_rng(0)
    quality = generator.normal(2, 1, sources * EDITS)
    ratings = quality + generator.normal(0, 0.7, (RATERS, len(quality)))
    scores = 2.5 * quality + generator.normal(0, 2, len(quality))
    clusters = [str(edit // EDITS) for edit in range(len(quality))]
    return np.clip(ratings.round(), 0, 4), np.clip(scores.round(), 0, 10), clusters


def write_out_resamples(scores: Floats, ratings: Floats, clusters: list[str]) -> list[Floats]:
    """The ends of the intervals of the three measures, from one resample at a time."""
    samples = resampling.resample(clusters)
    members = [np.flatnonzero(samples.cluster == cluster) for cluster in range(samples.clusters)]
    measures = []
    for draws in samples.draws.T[1:].astype(int):
        drawn = np.repeat(np.arange(samples.clusters), draws)
        pairs = np.concatenate([members[cluster] for cluster in drawn])
        x, y = scores[pairs], ratings[pairs]
        ranked = y[:, None] > y[None, :]
        alike = np.sign(x[:, None] - x[None, :])[ranked]
        measures.append(
            (stats.spearmanr(x, y)[0], stats.kendalltau(x, y)[0], 0.5 + alike.mean() / 2)
        )
    return [np.quantile(values, [ALPHA / 2, 1 - ALPHA / 2]) for values in np.array(measures).T]


def rows_of(ratings: Floats) -> RatingRows:
    """The ratings of a table in shape (raters, edits)."""
    rater, edit = np.indices(ratings.shape).reshape(2, -1)
    return RatingRows(rater, edit, ratings.ravel())


def crowd(raters: int, edits: int, each: int) -> RatingRows:
    """Draw ratings of 1 to 5 by raters who each rate some of the edits."""
    generator = np.random.default_rng(0)
    quality = generator.normal(3, 1, edits)
    rated = np.array([generator.choice(edits, each, replace=False) for _ in range(raters)])
    ratings = np.round(quality[rated] + generator.normal(0, 1, rated.shape))
    rater = np.repeat(np.arange(raters), each)
    return RatingRows(rater, rated.ravel(), np.clip(ratings, 1, 5).ravel())


def cost_of_crowd(raters: int, edits: int, each: int) -> tuple[float, float]:
    """CPU seconds and peak MiB of the raters' measures."""
    ratings = crowd(raters, edits, each)
    clusters = [str(edit) for edit in range(edits)]
    seconds = cpu_seconds(lambda: rater_agreement(ratings, clusters))
    tracemalloc.start()
    rater_agreement(ratings, clusters)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return seconds, peak


def cpu_seconds(function: Callable[[], object]) -> float:
    started = time.process_time()
    function()
    return time.process_time() - started


def largest_difference(scores: Floats, means: Floats, clusters: list[str]) -> float:
    """The largest difference between ends of intervals from both ways."""
    result = agreement(scores.tolist(), means.tolist(), clusters)
    measures = (result.spearman, result.kendall, result.pairwise)
    written_out = write_out_resamples(scores, means, clusters)
    differences = [
        np.abs(np.subtract(measure.ci95 or np.nan, ends)).max()
        for measure, ends in zip(measures, written_out, strict=True)
    ]
    return float(max(differences))


def main() -> None:
    options = parser(__doc__).parse_args()
    sources, resamples = (20, 50) if options.tiny else (179, resampling.RESAMPLES)
    ratings, scores, clusters = ratings_and_scores(sources)
    means = resampling.rounded(ratings.mean(axis=0))
    untied = scores + np.random.default_rng(1).random(len(scores))
    with patch.object(resampling, "RESAMPLES", resamples):
        figures = {
            "resamples written out": cpu_seconds(
                lambda: write_out_resamples(scores, means, clusters)
            ),
            "judge": cpu_seconds(lambda: agreement(scores.tolist(), means.tolist(), clusters)),
            "judge, no ties": cpu_seconds(
                lambda: agreement(untied.tolist(), means.tolist(), clusters)
            ),
            "raters": cpu_seconds(lambda: rater_agreement(rows_of(ratings), clusters)),
        }
        difference = largest_difference(scores, means, clusters)
        sizes = ((20, 12, 12),) if options.tiny else CROWDS
        crowds = {
            f"{raters} raters, {each} of {edits} edits each": cost_of_crowd(raters, edits, each)
            for raters, edits, each in sizes
        }
    print(f"{len(scores)} edits of {sources} sources, {resamples} resamples")
    table(("", "CPU s"), list(figures.items()))
    print(f"ends of intervals differ by at most {difference:.1g}")
    table(("", "CPU s", "MiB"), [(name, *costs) for name, costs in crowds.items()])
    finish(options, {"cpu_seconds": figures, "difference": difference, "crowds": crowds})


if __name__ == "__main__":
    main()
