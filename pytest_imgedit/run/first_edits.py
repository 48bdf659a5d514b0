"""The small edits that try a served editor before the first edit of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.run import seed_trial
from pytest_imgedit.run.first_questions import grey
from pytest_imgedit.run.work import Work
from pytest_imgedit.store.store import Store

SIZE = (512, 512)
INSTRUCTION = "Draw a small red circle in the middle of the picture."
SEED = 1
OTHER_SEED = 2


@dataclass(frozen=True)
class FirstEdits:
    """The small edits of a run, all of one `request`: none, the `first`, or three that also try the
    seeds.

    The request is short and harmless: a grey picture, and as many further ones as any edit of the
    run has.
    """

    first: EditRequest[bytes] | None = None
    tries_seeds: bool = False

    @property
    def count(self) -> int:
        if self.first is None:
            return 0
        return 1 + len(self.others)

    @property
    def others(self) -> list[EditRequest[bytes]]:
        """The edits after the first: the same again, and one of another seed."""
        if self.first is None or not self.tries_seeds:
            return []
        return [self.first, replace(self.first, seed=OTHER_SEED)]


def plan_first_edits(editor: Identity, store: Store, missing: Sequence[Work]) -> FirstEdits:
    """Plan the small edits that come before the `missing` ones, which are those of a run."""
    if not missing:
        return FirstEdits()
    request = small_edit(max(len(work.further) for work in missing))
    return FirstEdits(request, seed_trial.is_due(editor, store))


def small_edit(further: int = 0) -> EditRequest[bytes]:
    """Return the request for a small edit, with this many further sources."""
    picture = grey(SIZE)
    return EditRequest(
        pair_id="first",
        category="first",
        instruction=INSTRUCTION,
        source=picture,
        further=(picture,) * further,
        seed=SEED,
    )
