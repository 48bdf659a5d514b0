"""p values of a family of tests."""

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for the chance of any false alarm in the family (Holm, 1979), in the
    order given.

    The k-th smallest of m is multiplied by m − k + 1; it is at most 1, and no less than the one
    before.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
