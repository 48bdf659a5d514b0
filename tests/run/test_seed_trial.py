"""A server that ignores the seeds of a served editor is named."""

import pytest

from pytest_imgedit.core.results import EditorInfo, SeedTrial
from pytest_imgedit.report import tables


@pytest.mark.parametrize(
    ("trial", "lines"),
    [
        (None, []),
        (SeedTrial(repeats=True, varies=True), []),
        (SeedTrial(repeats=True, varies=False), ["two seeds gave one image"]),
        (SeedTrial(repeats=False, varies=True), ["one seed gave two images"]),
        (SeedTrial(repeats=False, varies=False), ["one seed gave two images"]),
    ],
)
def test_server_that_ignores_seeds_is_named(trial, lines):
    told = tables._seeds(EditorInfo(spec="openai-images:http://h/v1#m", seeds=trial))
    head = "warning: the server of editor openai-images:http://h/v1#m ignores seeds: "
    assert list(told) == [f"{head}{line}" for line in lines]
