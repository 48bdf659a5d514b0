"""A suite goes to other processes of a session as JSON."""

from __future__ import annotations

import json

import pytest
from test_suites import PNG, row, write

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.suites.base import load_suite
from pytest_imgedit.suites.handover import from_index, to_index


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"src_img_b64": None, "image": "a.png", "reference_b64": PNG},
        {"note": "x", "tags": ["a"], "difficulty": "hard"},
    ],
)
def test_a_suite_comes_back_as_it_was(tmp_path, more):
    suite = load_suite(
        SuiteSettings(
            spec=str(write(tmp_path / "s.json", [row(**more), row(id="物理 1")])), limit=1
        )
    )
    again = from_index(json.loads(json.dumps(to_index(suite))))
    assert again == suite
    assert [pair.fields for pair in again.pairs] == [pair.fields for pair in suite.pairs]


def test_a_suite_of_drawn_images_is_drawn_by_each_process():
    assert to_index(load_suite(SuiteSettings(spec="scenes:n=1"))) is None
