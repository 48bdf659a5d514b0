"""What a plan lacks: edits of a folder, references, sources; said with a count before anything is edited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_imgedit.editors.base import SHOWN_REFERENCE, resolve_editor
from pytest_imgedit.editors.folder import describe_folder
from pytest_imgedit.errors import UsageError
from pytest_imgedit.judges.base import NEEDS_REFERENCE, resolve_judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_imgedit.config import Settings
    from pytest_imgedit.stages.plan import Work

#: How many pairs a line names.
NAMED = 3


def missing_lines(settings: Settings, plan: Sequence[Work]) -> list[str]:
    """Return one line for each thing that pairs of the plan lack; those pairs will end in an error.

    Raises `UsageError` if all pairs lack a finished image or a reference, so that a run could only fail.
    """
    editor, judge = resolve_editor(settings.editor.spec), None
    if settings.run.stage != "edit":
        judge = resolve_judge(settings.judge.spec)
    broken = [work for work in plan if work.error is not None and work.error.kind == "bad_image"]
    found = [("a source or reference that cannot be read", broken, broken[0].error if broken else "")]
    if editor.kind == "folder":
        without = [work for work in plan if work.error is not None and work.error.kind == "no_edit"]
        holds = describe_folder(editor.argument or "") if without else ""
        found.append((f"no finished image for {settings.editor.spec}", without, holds))
    bare = [work for work in plan if work.error is None and work.reference is None]
    if judge is not None and judge.kind in NEEDS_REFERENCE:
        found.append((f"no reference image, which judge {judge.kind!r} needs", bare, "name another judge"))
    if editor.kind in SHOWN_REFERENCE:
        found.append((f"no reference image, which editor {editor.kind!r} needs", bare, "name another editor"))
    lines, pairs = [], len({work.pair.id for work in plan})
    for what, works, more in found:
        names = list(dict.fromkeys(work.pair.id for work in works))
        if not names:
            continue
        shown = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
        line = f"{len(names)} of {pairs} pairs have {what} ({shown}); {more}"
        if len(names) == pairs and works is not broken:
            raise UsageError(line)
        lines.append(f"warning: {line}")
    return lines
