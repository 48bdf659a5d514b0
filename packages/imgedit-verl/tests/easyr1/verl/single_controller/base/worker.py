"""One rank of a worker group, told what it is by environment variables."""

import os


class Worker:
    def __init__(self, cuda_visible_devices: object = None) -> None:
        self._rank, self._world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def world_size(self) -> int:
        return self._world_size
