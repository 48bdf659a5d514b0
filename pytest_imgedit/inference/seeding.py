"""One seed for every generator that an editor may draw from."""

from __future__ import annotations

import random
import sys


def seed_all(seed: int) -> frozenset[str]:
    """Seed the global generators of Python, numpy and torch (on all devices) with `seed` in [0, 2**63).

    A library that is not imported yet is left alone; return the names of those that were seeded.
    """
    random.seed(seed)
    seeded = {"random"}
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)
        seeded.add("numpy")
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)
        seeded.add("torch")
    return frozenset(seeded)
