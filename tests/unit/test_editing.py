"""How a worker calls its editor: batches that halve where memory runs out, and errors of one edit alone."""

from __future__ import annotations

import pytest
from PIL import Image

from pytest_imgedit.core.errors import SetupError
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.workers.editing import USUAL_BATCH, BatchLimits, EditCalls

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
        return [ValueError("no") if r.instruction in self.spoils else r.instruction for r in requests]


class Alone:
    def edit(self, request):
        return request.instruction


def values(outputs):
    return [str(output.value) for output in outputs]


def test_several_requests_go_into_one_call():
    editor = Batching()
    outputs = EditCalls(editor, BatchLimits(4)).edit(requests(6))
    assert editor.calls == [4, 2]
    assert values(outputs) == list("012345")
    assert [output.batch_size for output in outputs] == [4, 4, 4, 4, 2, 2]


def test_a_batch_that_does_not_fit_is_halved_down_to_one():
    editor = Batching(room=1)
    calls = EditCalls(editor, BatchLimits(4))
    assert values(calls.edit(requests(4))) == list("0123")
    assert editor.calls == [4, 2, 1, 1, 1, 1]
    assert calls.batch_size == 1


def test_a_single_edit_that_does_not_fit_is_tried_twice_and_is_an_error():
    editor = Batching(room=0)
    (output,) = EditCalls(editor, BatchLimits(1)).edit(requests(1))
    assert "out of memory" in values([output])[0]
    assert editor.calls == [1, 1]


def test_an_exception_in_the_place_of_an_image_is_the_error_of_that_edit():
    editor = Batching(spoils="1")
    assert values(EditCalls(editor, BatchLimits(3)).edit(requests(3))) == ["0", "no", "2"]
    assert editor.calls == [3]


def test_an_editor_whose_batches_fail_is_asked_one_by_one_from_then_on(capsys):
    class Raises(Batching):
        def edit_batch(self, requests):
            self.calls.append(len(requests))
            raise KeyError("a bug")

    editor = Raises()
    EditCalls(editor, BatchLimits(3)).edit(requests(6))
    assert editor.calls == [3, 1, 1, 1, 1, 1, 1]


def test_a_batch_that_raises_is_made_one_by_one(capsys):
    class Raises(Batching):
        def edit_batch(self, requests):
            self.calls.append(len(requests))
            raise KeyError("a bug")

    editor = Raises(spoils="1")
    assert values(EditCalls(editor, BatchLimits(3)).edit(requests(3))) == ["0", "no", "2"]
    assert editor.calls == [3, 1, 1, 1]
    assert "a bug" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [None, ["0"], "012"])
def test_a_batch_of_another_length_is_made_one_by_one(wrong):
    class Wrong(Batching):
        def edit_batch(self, requests):
            return wrong

    assert values(EditCalls(Wrong(), BatchLimits(3)).edit(requests(3))) == ["0", "1", "2"]


def test_an_editor_without_batches_makes_one_edit_a_call():
    calls = EditCalls(Alone(), BatchLimits("auto", jobs=100))
    assert (calls.batch_size, calls.remark) == (1, "")


def test_more_edits_a_call_than_an_editor_can_are_refused():
    with pytest.raises(SetupError, match=r"editor\.batch_size: found 4, but Alone has no method edit_batch"):
        EditCalls(Alone(), BatchLimits(4))


@pytest.mark.parametrize(("named", "expected"), [(None, USUAL_BATCH), (3, 3)])
def test_an_editor_may_name_the_edits_of_a_call(named, expected):
    editor = Batching()
    if named is not None:
        editor.batch_size = named
    assert EditCalls(editor, BatchLimits("auto")).batch_size == expected


@pytest.mark.parametrize("named", [0, "all", 2.0])
def test_a_batch_size_that_is_no_count_is_refused(named):
    editor = Batching()
    editor.batch_size = named
    with pytest.raises(SetupError, match=r"Batching\.batch_size is .*, expected a count of at least 1"):
        EditCalls(editor, BatchLimits("auto"))


class Measuring(Batching):
    def measure_batch_size(self, most, memory):
        self.asked = (most, memory)
        return 4, "4 edits a call"


def test_an_editor_that_measures_is_asked_where_there_is_enough_to_do():
    editor = Measuring()
    calls = EditCalls(editor, BatchLimits("auto", jobs=50, memory=7))
    assert (calls.batch_size, calls.remark, editor.asked) == (4, "4 edits a call", (USUAL_BATCH, 7))


def test_for_a_few_edits_nothing_is_measured():
    assert EditCalls(Measuring(), BatchLimits("auto", jobs=3)).batch_size == 1


def test_a_batch_size_of_the_config_is_taken_as_it_is():
    assert EditCalls(Measuring(), BatchLimits(2, jobs=50)).batch_size == 2
