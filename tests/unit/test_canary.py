"""Hosts whose editors differ are found before their first job."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.images import decode, encode_png
from pytest_imgedit.workers.base import Slot, Worker
from pytest_imgedit.workers.canary import Canaries, canary_edit
from pytest_imgedit.workers.messages import edit_request


def worker(host, gpu="H200"):
    made = Worker(Slot("edit-0", ("0",), host))
    made.environment = {"gpu": gpu}
    return made


def shifted(levels, size=(16, 16)):
    return encode_png(Image.fromarray(np.full((size[1], size[0], 3), 100 + levels, dtype=np.uint8)))


def test_the_canary_is_an_edit_like_any_other():
    request = edit_request(canary_edit())
    assert request.source.size == (256, 256)
    assert decode(canary_edit()["source"]).mode == "RGB"


def test_equal_edits_of_equal_hosts_need_no_word():
    canaries = Canaries(decides=True)
    assert canaries.compare(worker("a"), shifted(0)) is None
    assert canaries.compare(worker("b"), shifted(0)) is None


def test_hosts_of_equal_gpus_and_libraries_must_make_equal_pixels():
    canaries = Canaries(decides=True)
    canaries.compare(worker("a"), shifted(0))
    with pytest.raises(UsageError, match=r"GPU 0 of b and GPU 0 of a edit the canary pair by 1 of 255.*equal pixels"):
        canaries.compare(worker("b"), shifted(1))


def test_hosts_of_other_gpus_may_differ_by_rounding():
    canaries = Canaries(decides=True)
    canaries.compare(worker("a"), shifted(0))
    assert "by 2 of 255" in canaries.compare(worker("b", "A100"), shifted(2))
    with pytest.raises(UsageError, match="expected at most 4 on average"):
        canaries.compare(worker("c", "A100"), shifted(40))
    with pytest.raises(UsageError, match="in size"):
        canaries.compare(worker("d", "A100"), shifted(0, (8, 16)))


def test_editors_of_the_users_own_are_told_of_only():
    canaries = Canaries(decides=False)
    canaries.compare(worker("a"), shifted(0))
    assert "by 100 of 255" in canaries.compare(worker("b"), shifted(100))
    assert "could not edit the canary pair" in canaries.compare(worker("b"), None)
