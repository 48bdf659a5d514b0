"""The speed scripts run anywhere with --tiny; what they measure is not looked at here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "perf"


@pytest.mark.full
@pytest.mark.parametrize(
    ("script", "figures"),
    [
        ("edit_stage --variants eager", {"bare_s", "eager"}),
        ("scaling", {"processes_of_linear", "threads_of_linear"}),
        ("swap", {"swap", "transformers"}),
        ("judge_stage --images 1", {"first_run_items_s", "1 images"}),
        ("continuous_batching", {"continuous", "packed", "invariant"}),
        ("sharding --ways full", {"one GPU", "full"}),
        ("overhead", {"runs", "rates", "start_up_ms"}),
        ("threads --policies 1000", {"policies"}),
        ("batches --batch 2 --only embedded cosxl", {"embedded", "cosxl"}),
        ("headline --jobs 2", {"first", "again", "workers"}),
        ("start_up", {"cpu_seconds"}),
        ("judge_resume --items 2", {"items", "seconds"}),
        ("agreement", {"cpu_seconds", "difference"}),
        ("viescore", {"made-up"}),
        ("mmrb2", {"judge", "ceiling"}),
        ("arena_site", {"overall", "consistency"}),
        ("arena_parsers", {"json_repair", "genarena", "gedit-v2"}),
        ("judge_batches", {"empty caches", "filled caches"}),
        ("leaderboard_command", {"first", "one_more"}),
        ("duel_pica", {"pairs", "models", "steps"}),
        ("served_judge --stubs 2 --urls 1 --megabytes 0.6", {"judge, 0.6 MB", "editors"}),
        ("boards --processes 1", {"chain", "boards"}),
        ("genai_arena", {"refused", "fits"}),
        ("pages --times 1", {"5 pairs, copy", "5 pairs, embedded", "5 pairs, full images"}),
    ],
)
def test_script_writes_its_figures(tmp_path, script, figures):
    found = tmp_path / "figures.json"
    name, *options = script.split()
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--tiny", "--json", str(found), *options]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert figures <= set(json.loads(found.read_text()))
