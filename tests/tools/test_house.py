"""The figures of the package that CI prints."""

from __future__ import annotations

import pytest

from tools.house import levels, main

FILES = {
    "__init__.py": '"""Two\n\nlines."""\n',
    "run/__init__.py": "",
    "run/top.py": "from pkg.run import middle\nfrom pkg.run.low import x\n\ny = 1 if x else 2\n",
    "run/middle.py": "def f(a, b):\n    import pkg.run.low\n\n    return a and b\n",
    "run/below/low.py": "",
    "run/low.py": f"x = [{'1, ' * 40}]\n",
    "scenes/drawn.py": "z = 1 if 2 else 3\n",
}


@pytest.fixture
def package(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "pkg" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "pkg"


def test_levels_are_the_longest_chain_of_imports(package):
    assert levels(package / "run") == 3


def test_figures_leave_out_scenes(package, capsys):
    main(package)
    figures = dict(
        line.strip().split("  ", 1)[::-1] for line in capsys.readouterr().out.splitlines()
    )
    assert figures["statements"] == "8"
    assert figures["conditional expressions per 1,000 lines"] == "111.1"
    assert figures["boolean operators per 1,000 lines"] == "111.1"
    assert figures["lines over 100 columns"] == "1"
    assert figures["docstring lines of public names"] == "3"
    assert (figures["files in run/"], figures["levels of run/"]) == ("4", "3")
