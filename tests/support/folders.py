"""Makes the folder in which a test runs pytest as a user does."""

from __future__ import annotations

from pathlib import Path

TEST_FILE = Path(__file__).parents[2] / "pytest_imgedit" / "benchmark" / "test_image_edit.py"
FAKES = Path(__file__).parent / "fakes.py"
#: What runs are about unless a test asks for more: 50 pairs, and an editor and a judge that load no
#: model.
CONFIG = "[suite]\nspec = 'scenes:n=10'\n[editor]\nspec = 'identity'\n[judge]\nspec = 'reference'\n"


def fill(folder: Path) -> Path:
    """Put the benchmark file, `fakes.py`, a config and a `pytest.ini` that names it into a
    folder.
    """
    (folder / "test_image_edit.py").write_text(TEST_FILE.read_text())
    (folder / "fakes.py").write_text(FAKES.read_text())
    (folder / "imgedit.toml").write_text(CONFIG)
    (folder / "pytest.ini").write_text("[pytest]\nimgedit_config = imgedit.toml\n")
    return folder
