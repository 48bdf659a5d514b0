"""Suites of own loaders: what no pair can hold is refused by loader, pair and field before anything
starts.
"""

from __future__ import annotations

import pytest
from PIL import Image

OWN = """
import os, sys
import pytest
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.images import FileImage
from pathlib import Path
class Mute(Exception):
    def __str__(self): raise ValueError
class Source:
    def __init__(self, body): self.body = body
    def read(self): return self.body()
def throw(error): raise error
class Text(str): pass
good = FileImage(Path("a.png"))
def pair(name, **changes):
    return EditPair(**{**dict(id=name, category="physics", instruction="x", source=good), **changes})
"""
RUN = ("--imgedit-suite=own:load", "--imgedit-editor=noise", "--imgedit-judge=fakes:Constant")


@pytest.fixture
def own(bench):
    """Write a loader whose body is given; `changes` are those of its second pair."""

    def write(changes: str = "", body: str = "") -> None:
        Image.effect_noise((32, 32), 60).save(bench.path / "a.png")
        body = (
            body
            or f"    yield pair('one')\n    yield pair('two', {changes})\n    yield pair('three')\n"
        )
        (bench.path / "own.py").write_text(f"{OWN}def load(argument, settings):\n{body}")

    return write


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ("tags=None", "tags"),
        ("tags=5", "tags"),
        ("tags=(1, 2)", "tags"),
        ("tags=('a', None)", "tags"),
        ("tags=('\\ud800',)", "tags"),
        ("tags='abc'", "tags"),
        ("tags={'a': 1}", "tags"),
        ("description=None", "description"),
        ("reference_text='\\udfff'", "reference_text"),
        ("difficulty=3", "difficulty"),
        ("own_id=7", "own_id"),
        ("own_id='a\\u202eb'", "id"),
        ("own_category='\\ud800'", "own_category"),
        ("rewritten=['x']", "rewritten"),
        ("category='\\ud800'", "category"),
        ("category=None", "category"),
        ("seed=True", "seed"),
        ("seed=1.5", "seed"),
        ("source=None", "source"),
        ("source='a.png'", "source"),
        ("source=5", "source"),
        ("reference='a.png'", "reference"),
        ("further=good", "further"),
        ("further=None", "further"),
        ("further=('a.png',)", "further"),
        ("edited_source=2", "edited_source"),
        ("further=(good,), edited_source=0", "edited_source"),
        ("further=(good,), edited_source=3", "edited_source"),
        ("further=(good,), edited_source=True", "edited_source"),
        ("reference=Image", "reference"),
    ],
)
def test_field_that_no_pair_can_have_is_refused_by_its_name(bench, own, changes, field):
    own(changes if changes != "reference=Image" else "reference=object()")
    bench.refuses(f"suite own:load: *two*{field}*, expected *", *RUN)


@pytest.mark.parametrize(
    "body",
    [
        "    sys.exit(0)\n",
        "    pytest.exit('no', returncode=0)\n",
        "    throw(BaseException('no such luck'))\n",
        "    throw(Mute())\n",
        "    yield pair('one')\n    sys.exit(3)\n",
        "    return None\n",
        "    return 5\n",
        "    return [pair('one'), None]\n",
        "    throw(pytest.skip.Exception('no'))\n",
        "    throw(RecursionError())\n",
        "    throw(OSError('a', 'b\\nc'))\n",
        "    throw(MemoryError())\n",
    ],
)
def test_loader_that_ends_otherwise_is_refused_by_its_name(bench, own, body):
    own(body=body)
    bench.refuses("*own:load*", *RUN)


READS = {
    "text": "lambda: 'text'",
    "none": "lambda: None",
    "number": "lambda: 5",
    "array": "lambda: bytearray(100)",
    "exit": "lambda: sys.exit(0)",
    "pytest-exit": "lambda: pytest.exit('no', returncode=0)",
    "base": "lambda: throw(BaseException('no such luck'))",
    "mute": "lambda: throw(Mute())",
    "empty": "lambda: b''",
}


@pytest.mark.parametrize("field", ["source", "reference"])
def test_image_that_cannot_be_read_is_the_error_of_its_pair(bench, own, field):
    pairs = [f"    yield pair({name!r}, {field}=Source({body}))\n" for name, body in READS.items()]
    own(body="    yield pair('good')\n" + "".join(pairs))
    result = bench.run(*RUN, "--imgedit-max-errors=1.0")
    assert "INTERNALERROR" not in result.stdout.str()
    assert int(result.ret) == 0
    assert bench.items["good"]["status"] == "scored"
    broken = {name: item for name, item in bench.items.items() if item["error"]}
    assert set(broken) >= set(READS) - {"array", "empty"}
    if field == "source":
        assert {item["error"]["kind"] for item in broken.values()} == {"bad_image"}
    assert all("\n" not in item["error"]["message"] for item in broken.values())
    assert "str" in broken["text"]["error"]["message"]
