"""Records on the training device, drawn by loader processes while training runs."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader

from tools.train_embedded.edits import Drawn
from tools.train_embedded.records import LANGUAGES, Records

if TYPE_CHECKING:
    from tools.train_embedded.text import Texts

CHUNK = 32


@dataclass(frozen=True)
class Batch:
    """Pairs of a pool: pictures on [0, 1], token ids, categories as indices; `rows` says where they
    are in it.
    """

    drawn: Drawn
    prompt: torch.Tensor
    tail: torch.Tensor
    tail_length: torch.Tensor
    category: torch.Tensor
    rows: torch.Tensor
    side: torch.Tensor

    def join(self, other: Batch) -> Batch:
        """Append the pairs of another batch."""
        names = ("prompt", "tail", "tail_length", "category", "rows", "side")
        columns = {name: torch.cat([getattr(self, name), getattr(other, name)]) for name in names}
        return Batch(self.drawn.join(other.drawn), **columns)


class Pool:
    """Grows up to `capacity` records; batches are drawn from those that are there, with
    replacement.

    A record counts twice: its variant is a pair of its own, of which the first is the variant. A
    share `chinese` of the batches' rows have Chinese texts.
    """

    def __init__(
        self,
        texts: Texts,
        seed: int,
        capacity: int,
        workers: int,
        device: str,
        *,
        chinese: float = 0.2,
    ) -> None:
        self.capacity, self.device, self.chinese = capacity, device, chinese
        self.size = 0
        self.columns: dict[str, torch.Tensor] = {}
        self._loader = DataLoader(
            Records(seed, texts),
            batch_size=CHUNK,
            num_workers=workers,
            prefetch_factor=4 if workers else None,
        )
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        for chunk in self._loader:
            if not self.columns:
                self.columns = {
                    name: torch.empty(
                        (self.capacity, *values.shape[1:]), dtype=values.dtype, device=self.device
                    )
                    for name, values in chunk.items()
                }
            count = min(CHUNK, self.capacity - self.size)
            for name, values in chunk.items():
                self.columns[name][self.size : self.size + count].copy_(values[:count])
            self.size += count
            if self.size >= self.capacity:
                return

    def wait(self, size: int) -> None:
        """Wait until the pool holds `size` records; raise if drawing has stopped before."""
        while self.size < min(size, self.capacity):
            if not self._thread.is_alive():
                raise RuntimeError(f"drawing stopped at {self.size} records, expected {size}")
            time.sleep(0.2)

    def images(self, rows: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """Return pictures (B, 3, 128, 128) on [0, 1]; `place` is 0 to 3 within each record."""
        return self.columns["images"][rows, place].permute(0, 3, 1, 2).float() / 255

    def sample(self, size: int) -> Batch:
        """Draw a batch."""
        rows = torch.randint(self.size, (size,), device=self.device)
        return self.at(rows, torch.randint(2, (size,), device=self.device))

    def at(self, rows: torch.Tensor, side: torch.Tensor) -> Batch:
        """Return the pairs of records: the scene's own (`side` 0) or its variant's (1)."""
        own, other = side * 2, 2 - side * 2
        drawn = Drawn(*(self.images(rows, place) for place in (own, own + 1, other, other + 1)))
        chinese = (torch.rand(len(rows), device=self.device) < self.chinese).long()
        text = side * len(LANGUAGES) + chinese
        return Batch(
            drawn,
            self.columns["prompt"][rows, text].long(),
            self.columns["tail"][rows, text].long(),
            self.columns["tail_length"][rows, text],
            self.columns["category"][rows],
            rows,
            side,
        )
