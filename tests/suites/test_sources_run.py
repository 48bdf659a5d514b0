"""Runs over suites whose pairs have several sources: what the editor gets, and what is refused."""

from __future__ import annotations

import base64
import json

import pytest
from PIL import Image

SIZES = {"a": (40, 32), "b": (24, 48), "c": (56, 20)}
EDITOR = """
from PIL import ImageOps
class Several:
    max_sources = None
    def __init__(self, *, device): pass
    def edit(self, request):
        sizes = [image.size for image in request.sources]
        assert request.source is request.sources[request.edited_source - 1]
        with open("seen.txt", "a") as file:
            file.write(f"{request.pair_id} {sizes} {list(request.named_sources)}\\n")
        return ImageOps.invert(request.source)
"""
RUN = ("--imgedit-editor=several:Several", "--imgedit-judge=fakes:Constant")
ROWS = (
    {"id": "three", "instruction": "x", "image": ["a.png", "b.png", "c.png"], "edited_source": 2},
    {"id": "one", "instruction": "x", "image": "c.png"},
)
SEEN = [
    "one [(56, 20)] ['source']",
    "three [(40, 32), (24, 48), (56, 20)] ['source-1', 'source', 'source-3']",
]


@pytest.fixture
def several(bench):
    """A folder with an editor and three images; call it with rows to write a suite."""
    (bench.path / "several.py").write_text(EDITOR)
    for name, size in SIZES.items():
        Image.effect_noise(size, 60).convert("RGB").save(bench.path / f"{name}.png")

    def write(*rows):
        (bench.path / "s.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return "--imgedit-suite=s.jsonl"

    return write


def seen(bench):
    return sorted((bench.path / "seen.txt").read_text().splitlines())


def check_items(bench):
    three, one = bench.items["three"], bench.items["one"]
    (seed,) = three["seeds"]
    assert (seed["edit"]["width"], seed["edit"]["height"]) == SIZES["b"]
    assert seed["edit"]["sources"] == 3
    assert (three["edited_source"], len(three["further"])) == (2, 2)
    assert (one["edited_source"], one["further"]) == (1, [])


def test_an_edit_has_the_size_of_the_source_that_is_named(bench, several):
    bench.run(several(*ROWS), *RUN).assert_outcomes(passed=2)
    check_items(bench)
    assert seen(bench) == SEEN


def test_base64_sources_give_the_same_edits(bench, several):
    bench.run(several(*ROWS), *RUN).assert_outcomes(passed=2)
    edits = {name: item["seeds"][0]["edit"]["blob"] for name, item in bench.items.items()}
    rows = []
    for row in ROWS:
        paths = row["image"] if isinstance(row["image"], list) else [row["image"]]
        texts = [base64.b64encode((bench.path / path).read_bytes()).decode() for path in paths]
        rows.append({**row, "image": "", "image_b64": texts})
    bench.run(several(*rows), *RUN).assert_outcomes(passed=2)
    again = {name: item["seeds"][0]["edit"]["blob"] for name, item in bench.items.items()}
    assert again == edits
    assert bench.timing["edits"] == 0  # all are in the store


def test_processes_of_xdist_get_several_sources(bench, several):
    """Costly: two workers of xdist are processes."""
    bench.run_subprocess(several(*ROWS), *RUN, "-n", "2").assert_outcomes(passed=2)
    check_items(bench)
    assert seen(bench) == SEEN


def test_an_editor_of_one_source_gets_the_pairs_of_one_alone(bench, several):
    result = bench.run(several(*ROWS), "--imgedit-editor=fakes:Slow", *RUN[1:])
    assert result.ret == 1
    assert bench.error_kinds == {"three": "too_many_sources"}
    assert bench.items["one"]["status"] == "scored"


def test_selection_and_collection_are_as_with_one_source(bench, several):
    suite = several(*ROWS)
    result = bench.run(suite, *RUN, "--collect-only", "-q", "-k", "three")
    result.stdout.fnmatch_lines(["*test_image_edit[[]three]", "*1/2 tests collected*"])
    bench.run(suite, *RUN, "-k", "three").assert_outcomes(passed=1, deselected=1)
    assert seen(bench) == SEEN[1:]


@pytest.mark.parametrize("place", [1, 3])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(None, "No such file*", id="missing"),
        pytest.param(b"no image at all" * 9, "not an image in one of the formats *", id="garbage"),
        pytest.param(b"GIF89a" + bytes(40), "GIF image, expected one of PNG, *", id="gif"),
        pytest.param("folder", "Is a directory*", id="folder"),
    ],
)
def test_a_further_source_that_cannot_be_read_ends_the_run_before_it_begins(
    bench, several, place, data, reason
):
    bad = bench.path / "bad.png"
    if data == "folder":
        bad.mkdir()
    elif data is not None:
        bad.write_bytes(data)
    three, one = ROWS
    paths = [*three["image"]]
    paths[place - 1] = "bad.png"
    result = bench.run(several({**three, "image": paths}, one), *RUN)
    assert (result.ret, bench.stored_edits()) == (4, 0)
    result.stderr.fnmatch_lines(
        [
            "ERROR: 1 of 2 pairs have a source or reference that cannot be read (three in "
            f"s.jsonl:1); *bad.png: {reason}; fix them, or *"
        ]
    )


def test_pairs_of_one_edited_image_are_one_cluster(bench, several):
    rows = [
        {"id": f"p{n}", "instruction": "x", "image": [name, "a.png"], "edited_source": 2}
        for n, name in enumerate(("b.png", "c.png"))
    ]
    bench.run(several(*rows), *RUN).assert_outcomes(passed=2)
    assert bench.results["categories"]["all"]["clusters"] == 1
