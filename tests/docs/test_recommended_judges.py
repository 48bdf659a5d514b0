"""Which judge to take: what configs, README and commands name stands in the table of judges.md."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from pytest_imgedit.cli.init import configs

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "judges.md").read_text()
README = (ROOT / "README.md").read_text()
VLLM = (ROOT / "docs" / "vllm.md").read_text()
CONFIGS = {
    name: (files("pytest_imgedit.benchmark") / "configs" / f"{name}.toml").read_text("utf-8")
    for name in configs()
}
#: A spec that a line of a config gives, or would give without its comment mark.
SPEC = re.compile(r'^(?:# )?spec = "((?:qwen-vl|openai):[^"]+)"', re.MULTILINE)
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("\n## ")[0].splitlines()
    if line.startswith("|")
][2:]


def model(spec):
    """The model of a judge's spec as the table writes it: without its owner and its format."""
    return re.split(r"[#/:]", spec)[-1].removesuffix("-FP8").removesuffix("-Instruct")


def listed():
    """The judges of the table; a row may be of two sizes of one family."""
    return {name.partition(" (")[0] for row in ROWS for name in row[0].split("; ")}


def named():
    specs = [
        (f"config {name}", spec) for name, text in CONFIGS.items() for spec in SPEC.findall(text)
    ]
    specs += [("README", spec) for spec in re.findall(r"--imgedit-judge=(\S+)", README)]
    specs += [("README", name) for name in re.findall(r"\bserve (Qwen\S+)", README)]
    specs += [("judges.md", name) for name in re.findall(r"^vllm serve (\S+)", PAGE, re.MULTILINE)]
    return specs


def test_every_config_and_the_readme_name_a_judge():
    assert {place for place, _ in named()} == {
        "README",
        "judges.md",
        *(f"config {name}" for name in CONFIGS),
    }


@pytest.mark.parametrize(("place", "spec"), named())
def test_judge_that_is_named_stands_in_the_table(place, spec):
    assert model(spec) in listed(), place


def test_the_table_is_short_and_each_figure_has_a_source():
    assert 0 < len(ROWS) <= 12
    for _judge, figure, source, _weights, _cost in ROWS:
        assert bool(figure) == bool(source)
    assert "published, not measured by us" in PAGE


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_config_says_for_what_its_judge_is(name):
    text = CONFIGS[name]
    assert "while a model trains" in text.lower()
    served = [spec for spec in SPEC.findall(text) if spec.startswith("openai:")]
    head = text.partition("\n[")[0].lower()
    assert "for gates and boards" in head
    assert bool(served) != ("docs/judges.md names judges" in head)
    for spec in served:
        assert f"vllm serve {spec.partition('#')[2]} " in VLLM
