"""What a user writes, for mypy, which reports a comment below that silences nothing: both mistakes are
to be found, and nothing else.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image

import pytest_imgedit
from pytest_imgedit import (
    Answer,
    Editor,
    EditPair,
    EditRequest,
    FileImage,
    FinishedRun,
    ItemResult,
    Judge,
    Question,
)


class Mine:
    def __init__(self, *, device: str) -> None:
        self.device = device

    def edit(self, request: EditRequest) -> Image.Image:
        return request.source

    def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        print(questions[0].instruction)
        print(EditRequest("a", "b", "c", Image.new("RGB", (9, 9)), 0).instructions)  # type: ignore[attr-defined]
        return [Answer(score=5.0) for _ in questions]


def load(argument: str, settings: object) -> Iterator[EditPair]:
    yield EditPair("a", "physics", "fall", FileImage(Path(argument)))


def test_mine(edit_result: ItemResult, imgedit_run: FinishedRun) -> None:
    size: tuple[int, int] = edit_result.edited.size
    assert imgedit_run.items, size


editor: Editor = Mine(device="cpu")
judge: Judge = Mine(device="cpu")
print(pytest_imgedit.nothing)  # type: ignore[attr-defined]
