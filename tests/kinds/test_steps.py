"""Denoising steps, as pipelines tell a progress bar of them."""

import pytest
from later import Later

pytestmark = pytest.mark.everyday

pipeline = Later("pytest_imgedit.kinds.compute.pipeline")


def test_updates_count_up_to_the_total():
    told = []
    with pipeline.Steps(lambda step, steps: told.append((step, steps)), total=3) as bar:
        bar.update()
        bar.update(2)
    assert told == [(1, 3), (3, 3)]


def test_items_that_are_gone_through_count_when_they_are_done():
    told = []
    for item in pipeline.Steps(lambda step, steps: told.append((step, steps)), [10, 20]):
        told.append(item)
    assert told == [10, (1, 2), 20, (2, 2)]
