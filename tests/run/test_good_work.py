"""The gate of the README on good work and on bad: pytest and `imgedit compare` give one exit code."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from pytest_imgedit.cli.main import main
from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.suites.base import load_suite

if TYPE_CHECKING:
    from conftest import Bench

README = (Path(__file__).parents[2] / "README.md").read_text()
SAVE, COMPARE = re.search(r"## A gate in CI.*?```sh\n(.*?)```", README, re.DOTALL)[1].splitlines()
#: A judge that tells right edits from wrong ones, until it is dead.
JUDGE = """
from pathlib import Path
from blind_judges import Good

class Mortal(Good):
    def score(self, question):
        return 10.0 if Path("dead").exists() else super().score(question)
"""
MODELS = ("--imgedit-judge=mortal:Mortal", "--imgedit-set=judge.truth=scenes:n=10")


def draw_edits(folder: Path, seed: int, ruined: int = 0) -> None:
    """Write an edit of each pair that is done to four fifths, more or less by the seed; the first
    of every category are `ruined`.
    """
    generator, counts = np.random.default_rng(seed), {}
    for pair in load_suite(SuiteSettings(spec="scenes:n=10")).pairs:
        counts[pair.category] = counts.get(pair.category, 0) + 1
        source, reference = (
            Image.open(io.BytesIO(image.read())).convert("RGB")
            for image in (pair.source, pair.reference)
        )
        edit = Image.blend(source, reference, float(np.clip(generator.normal(0.8, 0.15), 0, 1)))
        if counts[pair.category] <= ruined:
            edit = Image.effect_noise(source.size, 90).convert("RGB")
        path = folder / pair.category / f"{pair.id}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        edit.save(path)


@pytest.fixture
def saved(bench: Bench) -> Bench:
    """A folder with the README's baseline."""
    (bench.path / "mortal.py").write_text(JUDGE)
    draw_edits(bench.path / "before", 0)
    result = bench.run(*options(SAVE), "--imgedit-editor=folder:before", *MODELS)
    assert result.ret == 0
    return bench


def options(command: str) -> list[str]:
    return [word for word in command.split() if word.startswith("--")]


@pytest.mark.parametrize(
    ("edits", "judge", "gate", "code"),
    [
        pytest.param({"seed": 0}, "alive", ("max_drop", "PASS"), 0, id="equal-commit"),
        pytest.param({"seed": 1}, "alive", ("max_drop", "INCONCLUSIVE"), 0, id="noise-only"),
        pytest.param({"seed": 1, "ruined": 2}, "alive", ("max_drop", "FAIL"), 1, id="ruined"),
        pytest.param({"seed": 1}, "dead", ("controls", "INVALID"), 1, id="dead-judge"),
    ],
)
@pytest.mark.full_for("equal-commit", "noise-only", "dead-judge")
def test_good_work_passes_and_bad_work_fails_in_pytest_and_in_compare(
    saved, monkeypatch, capsys, edits, judge, gate, code
):
    draw_edits(saved.path / "now", **edits)
    (saved.path / judge).touch()
    result = saved.run(*options(COMPARE), "--imgedit-editor=folder:now", *MODELS, "--imgedit-fresh")
    assert result.ret == code
    assert gate in [(made["kind"], made["state"]) for made in saved.results["gates"]]
    drop = next(word for word in options(COMPARE) if "max-drop" in word)
    monkeypatch.chdir(saved.path)
    capsys.readouterr()
    assert main(["compare", "main", "latest", drop.replace("imgedit-", "")]) == code
    assert f"\n{gate[1]}" in capsys.readouterr().out
