"""One seed decides what an editor draws, whatever generator it draws from."""

from __future__ import annotations

import random
import sys

import numpy as np

from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.compute.seeding import seed_all
from pytest_imgedit.workers.editing import EditCalls


class Drawing:
    """An editor that draws from global generators, and imports one of them at its first edit."""

    def edit(self, request):
        import numpy

        shift = int(numpy.random.randint(0, 200)) + random.randrange(50)
        return request.source.point(lambda value: (value + shift) % 256)


def edited(model, seed, source):
    request = EditRequest("a", "physics", "x", source, seed)
    return np.asarray(EditCalls(model).edit_alone(request)).tobytes()


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
    from PIL import Image

    late, source = Late(), Image.linear_gradient("L").convert("RGB")
    assert EditCalls(late).edit_alone(EditRequest("a", "physics", "x", source, 7)) == 7
    assert late.calls == 2
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def test_what_is_not_imported_is_not_seeded(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    seed_all(1)
    assert "torch" not in sys.modules
