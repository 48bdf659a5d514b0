"""A run looks at its world once: each spec is resolved once, and NVML is opened once."""

from __future__ import annotations

import json

import pytest
from nvml_driver import driver

COUNTS = """
import json, pynvml
from pathlib import Path
from pytest_imgedit.kinds import registry
from pytest_imgedit.suites import base

found = {"specs": [], "nvml": 0}
resolve, start = registry.resolve, pynvml.nvmlInit


def counted(role, spec, *others):
    found["specs"].append([role, spec])
    return resolve(role, spec, *others)


def opened():
    found["nvml"] += 1
    return start()


registry.resolve = base.resolve = counted
pynvml.nvmlInit = opened


def pytest_unconfigure():
    Path("counts.json").write_text(json.dumps(found))
"""


@pytest.mark.parametrize(("gpus", "placement"), [(0, "auto"), (1, "auto"), (1, "swap")])
@pytest.mark.full
def test_a_run_of_five_pairs_resolves_each_spec_once_and_opens_nvml_once(bench, gpus, placement):
    options = (
        "--imgedit-limit=1",
        "--imgedit-gpus=auto",
        f"--imgedit-set=workers.placement={placement}",
    )
    (bench.path / "conftest.py").write_text((driver(gpus) if gpus else "") + COUNTS)
    bench.run_subprocess(*options).assert_outcomes(passed=5)
    assert {worker["device"] for worker in bench.results["workers"]} == {"GPU 0" if gpus else "CPU"}
    found = json.loads((bench.path / "counts.json").read_text())
    assert sorted(found["specs"]) == [
        ["editor", "identity"],
        ["judge", "reference"],
        ["suite", "scenes:n=10"],
    ]
    assert found["nvml"] == 1
    bench.run_subprocess(*options).assert_outcomes(passed=5)
    assert json.loads((bench.path / "counts.json").read_text()) == found  # also where all is stored
