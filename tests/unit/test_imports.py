"""What a user who does not use the plugin pays: next to nothing."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {
    "torch",
    "diffusers",
    "transformers",
    "jinja2",
    "pydantic",
    "numpy",
    "PIL",
    "rich",
    "scipy",
    "execnet",
    "pynvml",
}


def modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_plugin_imports_nothing_heavy():
    assert not modules_after("import pytest_imgedit.plugin") & HEAVY


def test_session_without_items_of_ours_imports_nothing_heavy(tmp_path):
    (tmp_path / "test_plain.py").write_text("def test_plain(): pass\n")
    code = f"import pytest; assert pytest.main(['-q', '-p', 'no:cacheprovider', r'{tmp_path}']) == 0"
    assert not modules_after(code) & (HEAVY - {"execnet"})  # pytest-xdist imports execnet


def test_controller_of_a_run_never_imports_torch(bench):
    code = (
        f"import os, pytest; os.chdir(r'{bench.path}')\n"
        "assert pytest.main(['-q', '--imgedit-limit=1', '-p', 'no:cacheprovider']) == 0"
    )
    imported = modules_after(code)
    assert "pytest_imgedit.stages.run" in imported
    assert not imported & {"torch", "diffusers", "transformers"}


def test_public_names_are_importable_from_the_package():
    import pytest_imgedit

    assert all(getattr(pytest_imgedit, name) is not None for name in pytest_imgedit.__all__)
