"""The figures of the package that CI prints and limits."""

from __future__ import annotations

import pytest

from tools.house import main, measure

DENSE = "x = [1 for y in z if (w := y)]\n"
LARGE = f"x = [{'1, ' * 40}]\n"
LONG = "def long():\n" + "    pass\n" * 60
POSITIONAL = "def own(*numbers): ...\n\n\nown(1, 2, 3, 4, 5, 6)\nothers(1, 2, 3, 4, 5, 6)\n"


def places(tmp_path, text, name="code.py"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    found = measure(tmp_path).places
    return {figure: [line for _, line in lines] for figure, lines in found.items()}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(DENSE, {"dense statements": [1]}, id="dense"),
        pytest.param("x = 1 if y else 2\n", {}, id="one_choice"),
        pytest.param(f"if x:\n    {DENSE}", {"dense statements": [2]}, id="dense_in_a_body"),
        pytest.param(LARGE, {"large statements": [1]}, id="large"),
        pytest.param(f"def f():\n    {LARGE}", {"large statements": [2]}, id="large_in_a_body"),
        pytest.param("a, b = 1, 2\n", {"parallel assignments": [1]}, id="parallel"),
        pytest.param("a, b = f()\n", {}, id="unpacking"),
        pytest.param("f(*a, [*b])\n", {"stars": [1, 1]}, id="stars"),
        pytest.param(LONG, {"long functions": [1]}, id="long"),
        pytest.param("async " + LONG, {"long functions": [1]}, id="long_async"),
        pytest.param(POSITIONAL, {"calls by position": [4]}, id="own_functions_alone"),
    ],
)
def test_each_figure_counts_what_it_says(tmp_path, text, found):
    assert places(tmp_path, text) == found


def test_scenes_are_left_out(tmp_path):
    assert places(tmp_path, DENSE, "scenes/drawn.py") == {}


def test_a_figure_beyond_its_limit_fails(tmp_path, capsys):
    (tmp_path / "code.py").write_text("x = 1\n" * 1000)
    assert main([str(tmp_path)]) == 0
    (tmp_path / "code.py").write_text("x = 1\n" * 1000 + DENSE * 20)
    assert main(["--places", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "code.py:1001: dense statements" in shown
    assert "dense statements per 1,000 statements, at most" in shown
    assert "beyond" in shown
