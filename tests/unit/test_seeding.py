"""One seed decides what an editor draws, whatever generator it draws from."""

from __future__ import annotations

import random
import sys

import numpy as np

from pytest_imgedit.core.images import encode_png
from pytest_imgedit.inference.seeding import seed_all
from pytest_imgedit.workers.process import _Worker

JOB = {"op": "edit", "pair": "a", "category": "physics", "instruction": "x", "reference": None}


class Drawing:
    """An editor that draws from global generators, and imports one of them at its first edit."""

    def edit(self, request):
        import numpy

        shift = int(numpy.random.randint(0, 200)) + random.randrange(50)
        return request.source.point(lambda value: (value + shift) % 256)


def edited(model, seed, source):
    worker = _Worker(lambda message: None)
    worker.model = model
    message = {**JOB, "seed": seed, "source": encode_png(source)}
    return np.asarray(worker._edit(worker.read_ahead(message)[0].result())).tobytes()


def test_the_seed_alone_decides_what_a_class_draws(monkeypatch):
    from PIL import Image

    source = Image.linear_gradient("L").convert("RGB")
    first = edited(Drawing(), 5, source)
    random.random(), np.random.random()
    assert edited(Drawing(), 5, source) == first
    assert edited(Drawing(), 6, source) != first


def test_a_library_that_the_first_edit_imports_is_seeded_too(monkeypatch):
    class Late:
        calls = 0

        def edit(self, request):
            self.calls += 1
            monkeypatch.setitem(sys.modules, "torch", FakeTorch)
            return FakeTorch.seed

    class FakeTorch:
        seed = None

        @classmethod
        def manual_seed(cls, seed):
            cls.seed = seed

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    worker = _Worker(lambda message: None)
    worker.model = Late()
    from PIL import Image

    message = {**JOB, "seed": 7, "source": encode_png(Image.linear_gradient("L").convert("RGB"))}
    assert worker._edit(worker.read_ahead(message)[0].result()) == 7
    assert worker.model.calls == 2
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def test_what_is_not_imported_is_not_seeded(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert "torch" not in seed_all(1)
