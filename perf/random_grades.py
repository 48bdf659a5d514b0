"""A Qwen-VL judge of random weights whose replies become grades, so that a run at full size has
scores.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_imgedit.kinds.qwen_vl import QwenVLJudge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_imgedit.core.requests import Answer, Question
    from pytest_imgedit.kinds.qwen_decoder.decoding import Prompt


class RandomGrades(QwenVLJudge):
    """Gives each reply a score from 0 to 10 by its hash."""

    def __init__(self, *, model: str, device: str, **params: Any) -> None:
        super().__init__(model, device=device, **params)

    @staticmethod
    def warm_up(*, model: str, device: str, **params: Any) -> None:  # type: ignore[override]
        """Read weights while other workers compute."""
        QwenVLJudge.warm_up(model, device=device, **params)

    def answer(
        self, questions: Sequence[Question], prepared: Sequence[Prompt] | None = None
    ) -> list[Answer]:
        """Ask, and grade the replies."""
        answers = super().answer(questions, prepared=prepared)
        return [
            replace(answer, score=hashlib.sha256(answer.reply.encode()).digest()[0] % 11, cut=False)
            for answer in answers
        ]
