"""Workers killed at random, again and again: every pair ends in one state, and nothing finished is
done again.
"""

from __future__ import annotations

import sys

import pytest
from in_process import WITHOUT_OTHERS


@pytest.mark.full
def test_random_kills_lose_nothing_and_repeat_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(WITHOUT_OTHERS))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    chaos = __import__("chaos")
    figures = chaos.run(tmp_path, pairs=40, workers=3, seconds=12, interval=0.7, delay=0.3)
    assert figures["killed"] >= 5
    assert figures["scored"] >= 30
    del sys.modules["chaos"]
