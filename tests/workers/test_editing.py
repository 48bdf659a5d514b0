"""How a worker calls its editor: batches that halve where memory runs out, and errors of one edit
alone.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from pytest_imgedit.core.errors import SetupError
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.workers.editing import EditCalls

SOURCE = Image.new("RGB", (8, 8))


def requests(count):
    return [EditRequest(f"p{n}", "physics", str(n), SOURCE, n) for n in range(count)]


class Batching:
    """An editor that returns each request's instruction; `calls` are the sizes of its calls."""

    def __init__(self, room=100, spoils=()):
        self.room, self.spoils, self.calls = room, spoils, []

    def edit(self, request):
        (value,) = self._made([request])
        if isinstance(value, Exception):
            raise value
        return value

    def edit_batch(self, requests):
        return self._made(requests)

    def _made(self, requests):
        self.calls.append(len(requests))
        if len(requests) > self.room:
            raise RuntimeError("CUDA out of memory")
        return [
            ValueError("no") if r.instruction in self.spoils else r.instruction for r in requests
        ]


class Alone:
    def edit(self, request):
        return request.instruction


def values(outputs):
    return [str(output.value) for output in outputs]


def test_several_requests_go_into_one_call():
    editor = Batching()
    outputs = EditCalls(editor, 4).edit(requests(6))
    assert editor.calls == [4, 2]
    assert values(outputs) == list("012345")
    assert [output.batch_size for output in outputs] == [4, 4, 4, 4, 2, 2]


@pytest.mark.everyday
def test_a_batch_that_does_not_fit_is_halved_down_to_one():
    editor = Batching(room=1)
    calls = EditCalls(editor, 4)
    assert values(calls.edit(requests(4))) == list("0123")
    assert editor.calls == [4, 2, 1, 1, 1, 1]
    assert calls.batch_size == 1


def test_a_single_edit_that_does_not_fit_is_tried_twice_and_is_an_error():
    editor = Batching(room=0)
    (output,) = EditCalls(editor, 1).edit(requests(1))
    assert "out of memory" in values([output])[0]
    assert editor.calls == [1, 1]


def test_an_exception_in_the_place_of_an_image_is_the_error_of_that_edit():
    editor = Batching(spoils="1")
    assert values(EditCalls(editor, 3).edit(requests(3))) == ["0", "no", "2"]
    assert editor.calls == [3]


def test_an_editor_whose_batches_fail_is_asked_one_by_one_from_then_on(capsys):
    class Raises(Batching):
        def edit_batch(self, requests):
            self.calls.append(len(requests))
            raise KeyError("a bug")

    editor = Raises()
    EditCalls(editor, 3).edit(requests(6))
    assert editor.calls == [3, 1, 1, 1, 1, 1, 1]


def test_a_batch_that_raises_is_made_one_by_one(capsys):
    class Raises(Batching):
        def edit_batch(self, requests):
            self.calls.append(len(requests))
            raise KeyError("a bug")

    editor = Raises(spoils="1")
    assert values(EditCalls(editor, 3).edit(requests(3))) == ["0", "no", "2"]
    assert editor.calls == [3, 1, 1, 1]
    assert "a bug" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [None, ["0"], "012"])
def test_a_batch_of_another_length_is_made_one_by_one(wrong):
    class Wrong(Batching):
        def edit_batch(self, requests):
            return wrong

    assert values(EditCalls(Wrong(), 3).edit(requests(3))) == ["0", "1", "2"]


def test_more_edits_a_call_than_an_editor_can_are_refused():
    with pytest.raises(
        SetupError, match=r"editor\.batch_size: found 4, but Alone has no method edit_batch"
    ):
        EditCalls(Alone(), 4)


class Padded(Batching):
    """An editor whose calls are padded; `place_counts` says that its edits depend on their
    place.
    """

    def __init__(self, place_counts=False, **options):
        super().__init__(**options)
        self.place_counts = place_counts

    def is_batch_invariant(self, size):
        if size > self.room:
            raise RuntimeError("CUDA out of memory")
        return not self.place_counts


def test_a_call_for_fewer_edits_is_padded():
    editor = Padded()
    outputs = EditCalls(editor, 4, pads=True).edit(requests(5))
    assert editor.calls == [4, 4]
    assert values(outputs) == list("01234")
    assert {output.batch_size for output in outputs} == {4}


def test_an_edit_of_a_padded_call_costs_what_the_call_took(monkeypatch):
    times = iter([0.0, 8.0])
    monkeypatch.setattr("pytest_imgedit.workers.editing.clock", lambda: next(times))
    assert [output.seconds for output in EditCalls(Padded(), 4, pads=True).edit(requests(2))] == [
        4.0,
        4.0,
    ]


def test_after_memory_ran_out_calls_are_padded_to_the_smaller_size():
    editor = Padded()
    calls = EditCalls(editor, 4, pads=True)
    editor.room = 2
    assert [output.batch_size for output in calls.edit(requests(3))] == [2, 2, 2]
    assert editor.calls == [4, 2, 2]


@pytest.mark.parametrize(
    ("editor", "size"),
    [(Padded(), 4), (Padded(place_counts=True), 1), (Padded(room=2), 2), (Padded(room=1), 1)],
)
@pytest.mark.everyday
def test_a_batch_size_is_tried_before_it_is_padded_to(editor, size, capsys):
    assert EditCalls(editor, 4, pads=True).batch_size == size


@pytest.mark.parametrize("generator", ["random", "numpy", "torch"])
@pytest.mark.everyday
def test_an_editor_that_draws_from_a_global_generator_is_asked_one_by_one(generator, capsys):
    import torch  # here, as importing it takes longer than all of these tests

    draw = {"random": random.random, "numpy": np.random.rand, "torch": lambda: torch.rand(1)}[
        generator
    ]

    class Draws(Batching):
        def _made(self, requests):
            draw()
            return super()._made(requests)

    editor = Draws()
    calls = EditCalls(editor, 3)
    assert values(calls.edit(requests(3))) == list("012")
    assert (editor.calls, calls.batch_size) == ([3, 1, 1, 1], 1)
    assert "drew from a global generator" in capsys.readouterr().err


class Compiling:
    """An editor that compiles during its first `compiles` edits, by the counter of PyTorch's
    compiler; an edit is the number of the call.
    """

    def __init__(self, counters, compiles=1):
        self.counters, self.compiles, self.calls = counters, compiles, 0

    def edit(self, request):
        self.calls += 1
        self.counters["stats"]["unique_graphs"] += self.calls <= self.compiles
        return str(self.calls)


@pytest.fixture
def counters(monkeypatch):
    stats = {"stats": Counter()}
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(counters=stats))
    return stats


def test_an_edit_during_which_something_was_compiled_is_made_again(counters):
    assert values(EditCalls(Compiling(counters)).edit(requests(3))) == ["2", "3", "4"]


def test_an_editor_that_always_compiles_is_asked_twice_an_edit_and_no_more(counters):
    assert values(EditCalls(Compiling(counters, 99)).edit(requests(2))) == ["2", "4"]


def test_nothing_is_made_again_where_nothing_compiles(counters):
    assert values(EditCalls(Compiling(counters, 0)).edit(requests(2))) == ["1", "2"]
