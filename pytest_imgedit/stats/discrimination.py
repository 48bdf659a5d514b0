"""How well scores tell two kinds of edits of the same pairs apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Resamples of the bootstrap, always the same; clusters are drawn, not pairs.
RESAMPLES = 2_000


def auc(
    higher: Sequence[float], lower: Sequence[float], clusters: Sequence[str]
) -> tuple[float, tuple[float, float]]:
    """Area under the ROC curve, in [0, 1], with the 95% percentile interval of a bootstrap over
    clusters.

    The chance that a score of one pair in `higher` is over that of any pair in `lower`, a tie
    counting half: 0.5 where nothing is told apart. All three have one entry a pair, at least one.
    """
    first, second = (
        np.asarray(higher, dtype=np.float64)[:, None],
        np.asarray(lower, dtype=np.float64)[None, :],
    )
    wins = (first > second) + 0.5 * (first == second)
    _, cluster = np.unique(np.asarray(clusters), return_inverse=True)
    groups = int(cluster.max()) + 1
    drawn = np.random.default_rng(0).multinomial(groups, np.full(groups, 1 / groups), RESAMPLES)[
        :, cluster
    ]
    areas = ((drawn @ wins) * drawn).sum(axis=1) / drawn.sum(axis=1) ** 2
    low, high = np.quantile(areas, [0.025, 0.975])
    return float(wins.mean()), (float(low), float(high))
