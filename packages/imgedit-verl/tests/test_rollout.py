"""The example edits in a rollout and rewards its edits, with editor and judge in an interpreter of
their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image
from required import require

PACKAGE = Path(__file__).parent.parent
ROOT = PACKAGE.parent.parent


def test_a_rollout_is_edited_and_rewarded_and_what_fails_is_masked(tmp_path):
    require(
        "IMGEDIT_INSTALLED_PYTHON" in os.environ,
        "no IMGEDIT_INSTALLED_PYTHON, an interpreter with the wheel",
    )
    photo = min((ROOT / "tests" / "data" / "step1x").glob("*.jpg"))
    shutil.copy(photo, tmp_path)
    Image.new("RGB", (4, 4)).save(tmp_path / "small.png")
    names = [photo.name, "small.png"]
    command = [
        sys.executable,
        str(PACKAGE / "examples" / "rl_rollout.py"),
        *names,
        "--gpus=0",
        "--steps=2",
    ]
    command += [
        f"--editor={ROOT / 'pytest_imgedit' / 'scenes' / 'weights' / 'editor'}",
        "--judge=scenes",
    ]
    command += [f"--python={os.environ['IMGEDIT_INSTALLED_PYTHON']}"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rewarded = [
        line.split(": ") for line in done.stdout.splitlines() if line.partition(": ")[0] in names
    ]
    assert [name for name, _ in rewarded] == names
    assert 0 <= float(rewarded[0][1]) <= 1
    assert rewarded[1][1] == "masked"
    assert (tmp_path / ".imgedit" / "verdicts.jsonl").read_text().count("\n") == 1
