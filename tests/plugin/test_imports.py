"""What a user who does not use the plugin pays: next to nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.everyday

TESTS = Path(__file__).parent.parent
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
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_plugin_imports_nothing_heavy():
    assert not modules_after("import pytest_imgedit.plugin.hooks") & HEAVY


def test_worker_process_imports_what_it_edits_with_alone():
    assert modules_after("import pytest_imgedit.workers.process") & HEAVY == {"numpy", "PIL"}


def test_session_without_items_of_ours_imports_nothing_heavy(tmp_path):
    (tmp_path / "test_plain.py").write_text("def test_plain(): pass\n")
    code = (
        f"import pytest; assert pytest.main(['-q', '-p', 'no:cacheprovider', r'{tmp_path}']) == 0"
    )
    assert not modules_after(code) & (HEAVY - {"execnet"})  # pytest-xdist imports execnet


@pytest.mark.parametrize(("role", "further"), [("editor", {"diffusers"}), ("judge", set())])
@pytest.mark.full
def test_worker_of_an_embedded_model_imports_nothing_that_it_never_uses(role, further):
    """It loads a model in a fresh process, which is five seconds of imports."""
    imported = modules_after(
        "from pytest_imgedit.kinds.registry import make_model\n"
        "from pytest_imgedit.workers.process import hide\n"
        f"model = make_model({role!r}, 'scenes', {{}})\n"
        "assert {'scipy', 'sklearn'} <= {*model.requirements.unused_packages}, 'one needs the other'\n"
        "hide(model.requirements.unused_packages)\n"
        "model.target.build('cpu', model.worker_params)\n"
        "for name in model.requirements.unused_packages: assert sys.modules.pop(name) is None, "
        "name\n"
    )
    heavy = {
        "torch",
        "transformers",
        "diffusers",
        "accelerate",
        "scipy",
        "peft",
        "torchvision",
        "ray",
        "openai",
    }
    assert imported & heavy == {"torch", "transformers", "accelerate", *further}
    assert not imported & {"pytest", "execnet"}


def test_controller_of_a_run_never_imports_torch(bench):
    code = (
        f"import os, pytest; os.chdir(r'{bench.path}')\n"
        "assert pytest.main(['-q', '--imgedit-limit=1', '-p', 'no:cacheprovider']) == 0"
    )
    imported = modules_after(code)
    assert "pytest_imgedit.run.run" in imported
    assert not imported & {"torch", "diffusers", "transformers"}


@pytest.mark.full
def test_collecting_these_tests_imports_no_pytorch():
    """Each worker of pytest-xdist collects all of them; it takes four seconds of CPU time."""
    options = ["--co", "-qq", "-p", "no:cacheprovider", str(TESTS)]
    imported = modules_after(f"import pytest; assert pytest.main({options}) == 0")
    assert "later" in imported
    heavy = {"torch", "diffusers", "transformers", "safetensors", "accelerate", "peft"}
    assert not imported & heavy


def test_settings_that_no_item_needs_cost_nothing(tmp_path):
    (tmp_path / "test_plain.py").write_text("def test_plain(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nimgedit_config = nowhere.toml\n")
    code = (
        f"import pytest; assert pytest.main(['-q', '-p', 'no:cacheprovider', r'{tmp_path}']) == 0"
    )
    imported = modules_after(code)
    assert not imported & (HEAVY - {"execnet"})
    assert "pytest_imgedit.run.session" not in imported
    assert "pytest_imgedit.config.settings" not in imported


def test_public_names_are_importable_from_the_package():
    import pytest_imgedit

    assert all(getattr(pytest_imgedit, name) is not None for name in pytest_imgedit.__all__)
    assert set(pytest_imgedit._HOME) < set(pytest_imgedit.__all__)
