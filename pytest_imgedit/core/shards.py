"""Parts of a run for several machines: which pairs belong to the shard `I/N`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

_SHARD = re.compile(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})", re.ASCII)


@dataclass(frozen=True)
class Shard:
    """The shard `index` of `count`; indices begin at 1."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read `I/N`; raises `ValueError` for anything else."""
        match = _SHARD.fullmatch(text)
        if match is None or int(match[1]) > int(match[2]):
            raise ValueError("expected I/N with I from 1 to N, such as 1/4")
        return cls(int(match[1]), int(match[2]))

    def has(self, pair_id: str) -> bool:
        """Tell whether a pair belongs to this shard: by the SHA-256 of its id, whatever else is
        selected.
        """
        return number_of(pair_id) % self.count == self.index - 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def number_of(pair_id: str) -> int:
    """Return the number by which a pair is assigned to a shard: the first 64 bits of the SHA-256 of
    its id.
    """
    return int.from_bytes(hashlib.sha256(pair_id.encode()).digest()[:8], "big")


def shards_of(pair_ids: Iterable[str], count: int) -> list[int]:
    """List the indices of the shards that have any of these pairs, in order."""
    return sorted({number_of(pair_id) % count + 1 for pair_id in pair_ids})
