"""What passes between a trainer and its workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class DataProto:
    batch: Any = None
    non_tensor_batch: dict[str, Any] = field(default_factory=dict)
    meta_info: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.non_tensor_batch.values()), ()))

    def chunk(self, chunks: int) -> list[DataProto]:
        assert len(self) % chunks == 0, "only support equal chunk"
        parts = {
            name: np.array_split(values, chunks) for name, values in self.non_tensor_batch.items()
        }
        return [
            DataProto(self.batch, {name: part[n] for name, part in parts.items()}, self.meta_info)
            for n in range(chunks)
        ]

    @staticmethod
    def concat(data: list[DataProto]) -> DataProto:
        names = data[0].non_tensor_batch
        joined = {
            name: np.concatenate([part.non_tensor_batch[name] for part in data]) for name in names
        }
        return DataProto(None, joined, data[0].meta_info)
