"""Summary statistics of scores, with intervals that respect pairs sharing a source image."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit  # scipy.stats has it too, and takes half a second to import

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Summary:
    """What a table row says: counts, and statistics of the scored pairs on the 0..10 scale.

    `std` is the sample standard deviation (n − 1), `None` under two pairs; `ci95` the 95% interval of the mean,
    `se` the standard error of the mean, both `None` under two clusters (pairs that share a source image are
    one cluster); all statistics are `None` where nothing was scored.
    """

    n: int
    scored: int
    errors: int
    mean: float | None = None
    std: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    ci95: tuple[float, float] | None = None
    se: float | None = None
    clusters: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarize(scores: Sequence[float], clusters: Sequence[str], errors: int = 0, pending: int = 0) -> Summary:
    """Summarize the scores of a category, one a pair; `clusters` names the source image of each pair.

    `errors` counts pairs that ended without a score, `pending` those that were never to get one in this run.
    """
    n = len(scores) + errors + pending
    if not scores:
        return Summary(n, 0, errors)
    values = np.asarray(scores, dtype=np.float64)
    mean = float(values.mean())
    error, groups = standard_error(values, clusters), len(set(clusters))
    return Summary(
        n=n,
        scored=len(scores),
        errors=errors,
        mean=mean,
        std=float(values.std(ddof=1)) if len(scores) > 1 else None,
        median=float(np.median(values)),
        min=float(values.min()),
        max=float(values.max()),
        ci95=None if error is None else interval(mean, error, groups - 1),
        se=error,
        clusters=groups,
    )


def standard_error(values: NDArray[np.float64], clusters: Sequence[str]) -> float | None:
    """Cluster-robust standard error of a mean; `None` under two clusters.

    √[G/(G−1) · Σ_g(Σ_{i∈g}(s_i − s̄))²] / n over G clusters (Miller, arXiv 2411.00640, eq. 4, with the
    small-sample factor).
    """
    _, inverse = np.unique(np.asarray(clusters), return_inverse=True)
    groups = int(inverse.max()) + 1
    if groups < 2:
        return None
    sums = np.bincount(inverse, weights=values - values.mean())
    return float(np.sqrt(groups / (groups - 1) * (sums**2).sum()) / len(values))


def interval(mean: float, error: float, freedom: float) -> tuple[float, float]:
    """95% interval of a mean from Student's t with `freedom` degrees of freedom."""
    half = float(stdtrit(freedom, 0.975)) * error
    return (mean - half, mean + half)


def macro(categories: Sequence[Summary], counts: tuple[int, int, int]) -> Summary:
    """Summarize over categories, each with the same weight; `counts` is (n, scored, errors) over all pairs.

    Mean of the category means with SE = √ΣSE²/K. `std`, `median`, `min` and `max` are over the category means.
    Categories without a scored pair leave the macro mean undefined rather than shrink it.
    """
    n, scored, errors = counts
    means = [category.mean for category in categories if category.mean is not None]
    if not means or len(means) != len(categories):
        return Summary(n, scored, errors)
    values = np.asarray(means)
    mean = float(values.mean())
    errors_of = [(category.se, category.clusters - 1) for category in categories if category.se is not None]
    squares = sum(error**2 for error, _ in errors_of)
    error = np.sqrt(squares) / len(means) if len(errors_of) == len(means) else None
    # Welch-Satterthwaite degrees of freedom; equal scores everywhere leave them undefined and the SE zero.
    fourths = sum(error**4 / freedom for error, freedom in errors_of)
    freedom = squares**2 / fourths if fourths > 0 else 1.0
    return Summary(
        n, scored, errors, mean,
        std=float(values.std(ddof=1)) if len(means) > 1 else None,
        median=float(np.median(values)),
        min=float(values.min()),
        max=float(values.max()),
        ci95=None if error is None else interval(mean, float(error), freedom),
        se=None if error is None else float(error),
        clusters=sum(category.clusters for category in categories),
    )  # fmt: skip
