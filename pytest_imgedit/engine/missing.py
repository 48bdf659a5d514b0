"""What a plan lacks: edits of a folder, references, sources; said with a count before anything is edited."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.sanitize import first_of
from pytest_imgedit.engine.work import Work
from pytest_imgedit.kinds.base import Model

#: How many pairs a line names.
NAMED = 3


def missing_lines(editor: Model, judge: Model | None, plan: Sequence[Work], allowed: int) -> list[str]:
    """Return one line for each thing that pairs of the plan lack; those pairs will end in an error.

    Raises `UsageError` where a run could only fail: if all pairs lack a finished image or a reference, or if images of
    more pairs than are `allowed` to fail cannot be read.
    """
    broken = [work for work in plan if work.error is not None and work.error.is_any_of("bad_image")]
    found = [("a source or reference that cannot be read", broken, broken[0].error if broken else "")]
    without = [work for work in plan if work.error is not None and work.error.is_any_of("no_edit")]
    finished = editor.finished_images(work.pair for work in plan) if without else None
    found.append((f"no finished image for {editor.spec}", without, finished.summary if finished else ""))
    bare = [work for work in plan if work.error is None and work.reference is None]
    if judge is not None and judge.needs_reference:
        found.append((f"no reference image, which judge {judge.name!r} needs", bare, "name another judge"))
    if editor.shown_reference is not None:
        found.append((f"no reference image, which editor {editor.name!r} needs", bare, "name another editor"))
    lines, pairs = [], len({work.pair.id for work in plan})
    for what, works, more in found:
        names = list(dict.fromkeys(_name(work.pair, works is broken) for work in works))
        if not names:
            continue
        line = f"{len(names)} of {pairs} pairs have {what} ({first_of(names, NAMED)}); {more}"
        if len(names) == pairs and works is not broken:
            raise UsageError(line)
        if works is broken and len(names) > allowed:
            raise UsageError(f"{line}; mend them, or allow more than {allowed} with --imgedit-max-errors")
        lines.append(f"warning: {line}")
    return lines


def _name(pair: EditPair, with_row: bool) -> str:
    return f"{pair.id} in {pair.row}" if with_row and pair.row else pair.id
