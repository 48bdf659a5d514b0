"""The trainer's side of an editor in another interpreter, which a script stands in for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from imgedit_verl.config import Asked, ImageEditConfig
from imgedit_verl.process import EditorProcess
from PIL import Image

import pytest_imgedit

#: Answers `load` as it is told, and `edit` with the sources and problems that it is given.
INTERPRETER = """#!{python}
import os, sys
sys.path.insert(0, {package!r})
from pytest_imgedit.training import receive, send
while (message := receive(sys.stdin.buffer)) is not None:
    if message["op"] == "edit":
        outcomes = [[row["source"], row["problem"]] for row in message["asked"]]
        send(sys.stdout.buffer, {{"raised": "", "outcomes": outcomes}})
    elif {raised!r} == "exit":
        os._exit(3)
    else:
        send(sys.stdout.buffer, {{"raised": {raised!r}}})
"""


@pytest.fixture
def start(tmp_path):
    """Start an editor's process whose `load` raises what is given."""
    started = []

    def start(raised):
        package = str(Path(pytest_imgedit.__file__).parent.parent)
        python = tmp_path / "python"
        python.write_text(INTERPRETER.format(python=sys.executable, package=package, raised=raised))
        python.chmod(0o755)
        started.append(EditorProcess(ImageEditConfig("model", editor_python=str(python))))
        return started[-1]

    yield start
    for process in started:
        process._process.kill()  # it would end with this process only
        process._process.communicate()


def test_images_and_problems_come_back_in_order(start):
    process = start("")
    process.load()
    image = Image.effect_noise((16, 8), 50).convert("RGB")
    (edited, none), (nothing, problem) = process.edit(
        [Asked(image, "x"), Asked(None, "y", "no image")], seed=1
    )
    assert (edited.size, edited.tobytes()) == (image.size, image.tobytes())
    assert (none, nothing, problem) == ("", None, "no image")


@pytest.mark.parametrize(
    ("raised", "line"),
    [
        ("OSError: no weights", "OSError: no weights"),
        ("exit", r"\(.*python\) ended with exit status 3"),
    ],
)
def test_what_the_other_interpreter_raises_is_raised_here(start, raised, line):
    with pytest.raises(RuntimeError, match=line):
        start(raised).load()
