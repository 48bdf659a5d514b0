"""Resamples written out, to check statistics that are computed from numbers of draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_imgedit.stats.resampling import Samples


def drawn_pairs(samples: Samples, column: int) -> tuple[NDArray[np.intp], list[tuple[int, int]]]:
    """The indices of the pairs in a sample, and for each the copy of its cluster."""
    pairs: list[int] = []
    copies: list[tuple[int, int]] = []
    for cluster, draws in enumerate(samples.draws[:, column].astype(int)):
        for copy in range(draws):
            members = np.flatnonzero(samples.cluster == cluster).tolist()
            pairs += members
            copies += [(cluster, copy)] * len(members)
    return np.array(pairs), copies
