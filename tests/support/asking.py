"""Workers of served models, asked from outside of an event loop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_imgedit.core.images import encode_png

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image

    from pytest_imgedit.core.requests import Answer, EditRequest, Question


class Asked:
    """The worker of a model, in an event loop of its own; images of questions and requests are
    encoded first.
    """

    def __init__(self, model: Any) -> None:
        self.worker = model.target.build("cpu", model.worker_params)
        self._runner = asyncio.Runner()

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        async def ask_all() -> list[Answer]:
            return await asyncio.gather(*(self.worker.ask(encoded(each)) for each in questions))

        return self._runner.run(ask_all())

    def edit(self, request: EditRequest) -> Image.Image:
        further = tuple(encode_png(image) for image in request.further)
        sent = replace(request, source=encode_png(request.source), further=further)
        return self._runner.run(self.worker.edit(sent))


def encoded(question: Question) -> Question[bytes]:
    """A question with its images as PNG."""
    images = {name: encode_png(image) for name, image in question.images.items()}
    return replace(question, images=images)
