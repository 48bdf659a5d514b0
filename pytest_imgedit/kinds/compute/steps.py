"""Denoising steps as a pipeline makes them, in the place of its progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self


class Steps:
    """Takes what pipelines tell a progress bar, and passes each step and their number on to
    `on_step`.
    """

    def __init__(
        self,
        on_step: Callable[[int, int], None],
        items: Sequence[Any] | None = None,
        total: int | None = None,
    ) -> None:
        self._on_step, self._items, self._step = on_step, [] if items is None else items, 0
        self._steps = len(self._items) if total is None else total

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            yield item
            self.update()

    def update(self, count: int = 1) -> None:
        """Count steps that are done."""
        self._step += count
        self._on_step(self._step, self._steps)

    def close(self) -> None: ...

    def set_description(self, text: str) -> None: ...
