"""The callback of the page on training loops runs as it stands there, with stand-ins for the model
and the tracker.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from folders import fill

pytestmark = pytest.mark.everyday

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


class Tracker:
    """Takes the place of a run of wandb."""

    def __init__(self):
        self.config, self.logged = SimpleNamespace(update=lambda values, **_: None), []

    def log(self, values, step):
        self.logged.append((step, values))


@pytest.fixture
def tracker(monkeypatch):
    tracker = Tracker()
    stand_in = SimpleNamespace(run=tracker, Table=lambda **table: table, Image=Path)
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    return tracker


@pytest.fixture
def evaluate(tmp_path, monkeypatch):
    """The function of the page, in a folder with benchmarks."""
    (tmp_path / "benchmarks").mkdir()
    fill(tmp_path)
    (tmp_path / "test_image_edit.py").rename(tmp_path / "benchmarks" / "test_image_edit.py")
    monkeypatch.chdir(tmp_path)
    source = next(
        block
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
        if "def evaluate" in block
    )
    names = {}
    exec(source, names)
    return names["evaluate"]


def test_the_page_s_callback_logs_a_subset_with_its_step(evaluate, tracker):
    evaluate("oracle", 500, "", "-k", "physics-0000")
    ((step, values),) = tracker.logged
    assert step == 500
    assert values["overall/score"] == values["physics/score"] == 10.0
    rows = [
        dict(zip(values["imgedit/pairs"]["columns"], row, strict=True))
        for row in values["imgedit/pairs"]["data"]
    ]
    assert [row["id"] for row in rows] == ["physics-0000"]
    assert all(row["edit"].is_file() and row["source"].is_file() for row in rows)


@pytest.mark.full
def test_a_run_that_could_not_start_is_not_logged(evaluate, tracker):
    from pytest_imgedit import UsageError

    with pytest.raises(UsageError, match=r"evaluation-1\.json"):
        evaluate("no-such-editor", 1, "")
    assert tracker.logged == []
