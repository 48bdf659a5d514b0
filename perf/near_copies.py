"""Find the threshold under which an edit is a near-copy of its source, and what it finds.

    python perf/near_copies.py FOLDER [--references FOLDER]

FOLDER holds photographs and the edits of public models: `pairs.jsonl` with `id` and `image`, the
edits `edits/MODEL/ID.jpg`, and `labels.json`, a list of the edits, by `id` and `editor`, that a
person found to do nothing. Edits that are not listed were not looked at: those that are flagged are
printed, to be looked at. The threshold is fixed on every other photograph, a little over the
largest change of a listed edit, and tried on the rest. References of other pairs (a folder with a
`pairs.jsonl` of `image` and `reference`) and of the embedded suite are edits that do something.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness import table

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core.images import decode
from pytest_imgedit.kinds.change import change
from pytest_imgedit.kinds.edit_checks import COPY_CHANGE, is_near_copy
from pytest_imgedit.suites import scenes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from PIL import Image

SUITES = ("full", "n=250,seed=1", "n=250,seed=2", "n=250,seed=3")
#: Side in pixels of the pair whose comparison is timed, and how often.
TIMED_SIDE, TIMES = 1024, 20


class Edit(NamedTuple):
    """An edit of a photograph of the first (0) or the second half (1)."""

    change: float
    half: int
    name: str
    is_listed: bool


class Reference(NamedTuple):
    """A reference image that shows another scene than its source."""

    change: float
    name: str


def opened(path: Path) -> Image.Image:
    return decode(path.read_bytes())


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def edits_of(folder: Path) -> Iterator[Edit]:
    labels = json.loads((folder / "labels.json").read_text("utf-8"))
    listed = {(label["id"], label["editor"]) for label in labels}
    for position, pair in enumerate(rows_of(folder / "pairs.jsonl")):
        source = opened(folder / pair["image"])
        for path in sorted(folder.glob(f"edits/*/{pair['id']}.jpg")):
            editor = path.parent.name
            yield Edit(
                change(source, opened(path)),
                position % 2,
                f"{pair['id']} {editor}",
                (pair["id"], editor) in listed,
            )


def references_of(folder: Path) -> Iterator[Reference]:
    for pair in rows_of(folder / "pairs.jsonl"):
        source, reference = opened(folder / pair["image"]), opened(folder / pair["reference"])
        yield Reference(change(source, reference), pair["id"])


def drawn_references(argument: str) -> Iterator[Reference]:
    for pair in scenes.load(argument, SuiteSettings()):
        assert pair.reference is not None
        source, reference = decode(pair.source.read()), decode(pair.reference.read())
        yield Reference(change(source, reference), pair.id)


def show_edits(edits: Sequence[Edit]) -> None:
    """Print the threshold of the first half, and what it finds on both."""
    largest = max(edit.change for edit in edits if edit.is_listed and edit.half == 0)
    print(f"threshold: {COPY_CHANGE}; listed edits of the first half change up to {largest}")
    rows = []
    for half, name in enumerate(("first half: the threshold", "second half: held out")):
        listed = [edit for edit in edits if edit.half == half and edit.is_listed]
        others = [edit for edit in edits if edit.half == half and not edit.is_listed]
        found = sum(is_near_copy(edit.change) for edit in listed)
        flagged = sum(is_near_copy(edit.change) for edit in others)
        rows.append((name, f"{found} of {len(listed)}", f"{flagged} of {len(others)}"))
    table(("photographs", "listed edits found", "other edits flagged"), rows)
    print("listed and missed, not listed and flagged, and the next ten by their change:")
    unlike = [edit for edit in edits if is_near_copy(edit.change) != edit.is_listed]
    following = [edit for edit in sorted(edits) if not is_near_copy(edit.change)][:10]
    table(
        ("change", "half", "edit", "listed"),
        [(edit.change, edit.half + 1, *edit[2:]) for edit in sorted({*unlike, *following})],
    )


def show_references(name: str, references: Sequence[Reference]) -> tuple[object, ...]:
    """Return a row of the table of references."""
    flagged = sum(is_near_copy(reference.change) for reference in references)
    least = min(references)
    return name, len(references), flagged, least.change, least.name


def milliseconds(folder: Path) -> float:
    """Return the CPU time of a comparison of a pair, decoded and `TIMED_SIDE` pixels wide and
    high.
    """
    path = next(folder.glob("edits/*/*.jpg"))
    edited = opened(path).resize((TIMED_SIDE, TIMED_SIDE))
    source = opened(next(folder.glob(f"source/{path.stem}.*"))).resize((TIMED_SIDE, TIMED_SIDE))
    change(source, edited)
    started = time.process_time()
    for _ in range(TIMES):
        change(source, edited)
    return 1000 * (time.process_time() - started) / TIMES


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="photographs, edits and labels")
    parser.add_argument("--references", type=Path, help="photographs with reference images")
    options = parser.parse_args()
    show_edits(list(edits_of(options.folder)))
    rows = [show_references(f"scenes:{suite}", list(drawn_references(suite))) for suite in SUITES]
    if options.references is not None:
        rows.append(show_references("photographs", list(references_of(options.references))))
    table(("references", "n", "flagged", "least change", "of"), rows)
    print(
        f"CPU time of {TIMED_SIDE}x{TIMED_SIDE} pixels: {milliseconds(options.folder):.0f} ms a "
        "pair, decoded"
    )


if __name__ == "__main__":
    main()
