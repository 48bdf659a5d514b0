"""Tests of this repository's own, beside the benchmark item."""

import pytest


@pytest.mark.imgedit(category="bags")
def test_bags_keep_their_size(edit_result):
    assert edit_result.edited.size == edit_result.source.size


def test_run_has_a_mean(imgedit_run):
    assert imgedit_run.results.overall.macro.n > 0
