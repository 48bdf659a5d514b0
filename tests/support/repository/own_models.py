"""The editor and the judge of this repository."""

import os
from pathlib import Path

from PIL import ImageOps

from pytest_imgedit import Answer


class Painter:
    def __init__(self, *, device):
        pass

    def edit(self, request):
        with Path(os.environ["EDITED"]).open("a") as file:
            file.write(f"{request.pair_id}\n")
        return ImageOps.invert(request.source)


class Grader:
    def __init__(self, *, device, low="none"):
        self.low = low

    def answer(self, questions):
        grades = {
            "bags-0": 9.0,
            "bags-1": 8.0,
            "bags-2": 7.0,
            "shoes-0": 6.0,
            "shoes-1": 7.5,
            "shoes-2": 8.5,
        }
        return [
            Answer(score=0.0 if q.pair_id == self.low else grades[q.pair_id]) for q in questions
        ]
