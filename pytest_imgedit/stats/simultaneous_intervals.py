"""Error rates of single intervals at which the intervals of many systems hold together.

One cluster bootstrap, shared by all systems and columns, gives the joint distribution of their
errors. The 95% quantile of the largest |t| is turned into the error rate of a normal number, at
which single intervals are then computed with CR2 standard errors and Student's t
(`estimates.Estimate`). So the joint distribution comes from the bootstrap, and the correction for
few clusters from Bell and McCaffrey (2002), and Pustejovsky and Tipton (2018).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from pytest_imgedit.stats.estimates import ALPHA, ROUNDING, Clusters, Estimate, Floats

#: Resamples of the clusters; always the same random numbers.
RESAMPLES = 8_000
#: Resamples that are computed together.
ROWS = 250
#: With fewer clusters of equal weight the bootstrap knows too little of how the errors of systems
#: go together, and Bonferroni's inequality is used. Without this, all intervals of 8 systems over 4
#: clusters held in 88% of simulated leaderboards, those of 30 systems over 12 clusters in 92%.
ENOUGH_JOINTLY = 16


@dataclass(frozen=True)
class ClusterBootstrap:
    """Resamples of clusters; `clusters` are their sorted names.

    `draws` has the shape (`RESAMPLES`, clusters): how often a cluster was drawn, less 1.
    """

    clusters: NDArray[np.str_] | NDArray[np.int_]
    draws: NDArray[np.int8]

    @classmethod
    def of(cls, clusters: Clusters, categories: Sequence[str]) -> "ClusterBootstrap":
        """Draw the clusters of pairs with replacement, within each category, or among all if any
        has pairs of several categories.
        """
        names, cluster = np.unique(clusters, return_inverse=True)
        category_names, category = np.unique(categories, return_inverse=True)
        holds = np.zeros((len(names), len(category_names)), dtype=bool)
        holds[cluster, category] = True
        strata = holds.argmax(axis=1)  # the only category of each cluster
        if (holds.sum(axis=1) > 1).any():
            strata = np.zeros_like(strata)
        return cls(names, _draws(tuple(strata.tolist())))

    def errors(self, clusters: Clusters, means: Sequence[Estimate]) -> Floats:
        """Return the resampled errors of the means of systems over pairs of these clusters, in
        shape (`RESAMPLES`, systems).

        An error is the resampled mean minus the mean: Σ (draws of a cluster − 1)·(its deviation).
        """
        columns = np.searchsorted(self.clusters, np.unique(clusters))
        deviations = np.stack([mean.deviations for mean in means], axis=1)
        blocks = [
            self.draws[start : start + ROWS][:, columns] @ deviations
            for start in range(0, RESAMPLES, ROWS)
        ]
        return np.concatenate(blocks)


@lru_cache(maxsize=2)
def _draws(strata: tuple[int, ...]) -> NDArray[np.int8]:
    """Return how often each cluster is drawn in each resample, less 1, in shape (`RESAMPLES`,
    clusters).

    `strata` holds the stratum of each cluster. As many clusters as a stratum has are drawn among
    them with replacement, `ROWS` resamples at a time. In the data each is drawn once, so that the
    number less 1 is what a resample adds.
    """
    generator = np.random.default_rng(0)
    draws = np.zeros((RESAMPLES, len(strata)), dtype=np.int8)
    for stratum in sorted(set(strata)):
        members = np.flatnonzero(np.array(strata) == stratum)
        count = len(members)
        # Resample r of a block numbers its clusters from r·count on: one `bincount` counts them
        # all.
        offsets = np.arange(ROWS)[:, None] * count
        for start in range(0, RESAMPLES, ROWS):
            drawn = offsets + generator.integers(0, count, size=(ROWS, count))
            times = np.bincount(drawn.ravel(), minlength=ROWS * count).reshape(ROWS, count)
            # int8 holds it: over 128 draws of one cluster have a chance under 1e-200
            draws[start : start + ROWS, members] = times - 1
    return draws


def alpha_of_means(errors: Floats, even_clusters: float) -> float:
    """Return the error rate of each interval at which the intervals of all means hold with a chance
    of 95%.

    `errors` are those of `ClusterBootstrap.errors`, `even_clusters` is as in `_alpha_of_each`.
    """
    largest = _t_values(errors).max(axis=1)
    return _alpha_of_each(largest, errors.shape[1], even_clusters)


def alpha_of_differences(errors: Floats, even_clusters: float) -> float:
    """Return the error rate of each interval at which those of the differences of every two of
    at least two means hold with a chance of 95%.

    The arguments are those of `alpha_of_means`.
    """
    systems = errors.shape[1]
    largest = np.zeros(len(errors))
    for system in range(systems - 1):
        t_values = _t_values(errors[:, system + 1 :] - errors[:, [system]])
        largest = np.maximum(largest, t_values.max(axis=1))
    return _alpha_of_each(largest, systems * (systems - 1) // 2, even_clusters)


def _t_values(errors: Floats) -> Floats:
    """Return |t|: errors without sign, divided by the root of their mean square over resamples; 0
    where that is none but rounding.
    """
    spread = np.sqrt((errors**2).mean(axis=0))
    t_values = np.zeros_like(errors)
    np.divide(np.abs(errors), spread, out=t_values, where=spread > ROUNDING)
    return t_values


def _alpha_of_each(largest: Floats, count: int, even_clusters: float) -> float:
    """Return the error rate of each of `count` intervals, from the largest |t| of each resample.

    A normal number is beyond ± the 95% quantile of the largest |t| at that rate. The rate lies
    between Bonferroni's, `ALPHA / count`, and that of one interval alone, `ALPHA`. Under
    `ENOUGH_JOINTLY` clusters of equal weight (`Estimate.even_clusters`) it is Bonferroni's.
    """
    if even_clusters < ENOUGH_JOINTLY - ROUNDING:
        return ALPHA / count
    critical = float(np.quantile(largest, 1 - ALPHA))
    return float(np.clip(2 * ndtr(-critical), ALPHA / count, ALPHA))
