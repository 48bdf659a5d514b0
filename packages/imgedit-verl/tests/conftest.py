"""Tiny checkpoints, for the tests of this package; run from the root of the repository."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
#: verl wants an older transformers than all else is tested with, so it has an environment of its
#: own.
collect_ignore = (
    ["easyr1"] if find_spec("verl") else ["easyr1", "test_worker.py", "test_rollout.py"]
)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Build a tiny checkpoint by its name in `tiny_models`."""
    import tiny_models  # takes seconds

    root = tmp_path_factory.mktemp("tiny")

    def build(name: str) -> Path:
        if not (root / name).exists():
            tiny_models.BUILDERS[name](root / name)
        return root / name

    return build
