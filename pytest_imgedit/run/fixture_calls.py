"""Both ends of a fixture's call of the editor or the judge: the client and the server."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from PIL import Image

from pytest_imgedit.core import environments, errors, results, strict_json
from pytest_imgedit.core.images import decode, encode_png
from pytest_imgedit.core.pairs import EditPair, category_slug
from pytest_imgedit.kinds import base, registry
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.run import edit, pools, score
from pytest_imgedit.run.planned_works import make_works
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.work import Judgement, Work, missing_edits

#: A requested edit: the source as a PNG, the instruction, the seed.
EditCall = tuple[bytes, str, int]
#: A requested verdict: source, edit and reference as PNGs, the instruction, the category.
ScoreCall = tuple[bytes, bytes, bytes | None, str, str]


class EditWorkers:
    """Edits images with the run's editor and its workers; edits are stored like any other.

    `answer` makes the edits, here or in another process, and returns them as PNGs, in order.
    """

    def __init__(self, answer: Callable[[Sequence[EditCall]], Sequence[bytes]]) -> None:
        self._answer = answer

    def edit(self, source: Image.Image, instruction: str, seed: int = 0) -> Image.Image:
        """Edit one RGB image; raises `EditFailed` if the editor fails."""
        return self.edit_batch([(source, instruction)], seed)[0]

    def edit_batch(
        self, requests: Sequence[tuple[Image.Image, str]], seed: int = 0
    ) -> list[Image.Image]:
        """Edit (image, instruction) pairs on all workers at once, in order; raises `EditFailed` if
        one fails.

        Sources of one size go into one call of the editor (`editor.batch_size`).
        """
        calls = [(encode_png(source), instruction, seed) for source, instruction in requests]
        return list(map(decode, self._answer(calls)))


class RewardModel:
    """Scores edits with the run's judge, protocol and workers; verdicts are stored like any other.

    `answer` reaches the verdicts, here or in another process, and returns their fields, in order.
    """

    def __init__(
        self, answer: Callable[[Sequence[ScoreCall]], Sequence[strict_json.JsonObject]]
    ) -> None:
        self._answer = answer

    def score(
        self,
        source: Image.Image,
        edited: Image.Image,
        instruction: str,
        category: str = "default",
        reference: Image.Image | None = None,
    ) -> results.Verdict:
        """Score one edit by what the protocol asks in a category; raises `EditFailed` without a
        readable verdict.
        """
        return self.score_batch([(source, edited, instruction)], category, [reference])[0]

    def score_batch(
        self,
        edits: Sequence[tuple[Image.Image, Image.Image, str]],
        category: str | Sequence[str] = "default",
        references: Sequence[Image.Image | None] | None = None,
    ) -> list[results.Verdict]:
        """Score (source, edited image, instruction) in batches, in order; raises `EditFailed` if
        one fails.

        `category` is one for all edits, or a sequence with one per edit, like `references`. Raises
        `ValueError` if their number differs from that of the edits.
        """
        categories = [category] * len(edits) if isinstance(category, str) else category
        images = [None] * len(edits) if references is None else references
        calls: list[ScoreCall] = []
        for (source, edited, instruction), name, image in zip(
            edits, categories, images, strict=True
        ):
            reference = None if image is None else encode_png(image)
            slug = category_slug(name)
            calls.append((encode_png(source), encode_png(edited), reference, instruction, slug))
        return [results.Verdict(**verdict) for verdict in self._answer(calls)]


@dataclass(frozen=True, slots=True)
class _Bytes:
    data: bytes

    def read(self) -> bytes:
        return self.data


#: The editor of images that a caller has brought along.
_CALLER = Identity(
    model=registry.CustomEditor("call"),
    fingerprint="",
    params={},
    digest=environments.key({"kind": "call"}),
    recipe={"kind": "call"},
    here=environments.Environment(device="cpu", versions={}),
)


class SessionCalls:
    """Answers calls with the session's workers, one call at a time; stored results start none."""

    def __init__(self, workers: pools.SessionWorkers) -> None:
        self.workers, self.settings, self.store = workers, workers.settings, workers.store
        self._one_at_a_time = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        """Answer no more calls, once the current one has ended."""
        with self._one_at_a_time:
            self._is_closed = True

    def edit(self, calls: Sequence[EditCall]) -> list[bytes]:
        """Return the edited images as PNGs; raises `EditFailed` for the first that failed."""
        pairs = [_pair(source, instruction, seed=seed) for source, instruction, seed in calls]
        with self._calling("editor"):
            identity = self.workers.identity("editor")
            works = make_works(
                pairs, pairs, identity, self.store, base_seed=self.settings.editor.seed
            )
            for work in works:
                work.edit = edit.stored_edit(work, identity, self.store, self.settings.run.reuse)
            # Calls for the same edit share one work.
            pending = {work.content: work for work in missing_edits(works)}
            if pending:
                pool = self.workers.pool("editor", len(pending))
                stage = edit.EditStage(identity, pool, self.store, _ignore)
                stage.run(list(pending.values()))
        return [self._image(pending.get(work.content, work)) for work in works]

    def _image(self, work: Work) -> bytes:
        data = self.store.blobs.get(work.edit.blob) if work.edit else None
        if data is None:
            raise errors.EditFailed(str(work.error))
        return data

    def score(self, calls: Sequence[ScoreCall]) -> list[strict_json.JsonObject]:
        """Return the fields of the verdicts; raises `EditFailed` for the first that failed."""
        pairs = [
            _pair(source, instruction, category=category, reference=reference)
            for source, _, reference, instruction, category in calls
        ]
        with self._calling("judge"):
            works = make_works(pairs, pairs, _CALLER, self.store)
            scorer = Scorer(self.settings, self.workers.identity("judge"), self.store)
            for work, (_, edited, *_) in zip(works, calls, strict=True):
                work.edit = results.Edit(self.store.blobs.put(edited), 0.0, "call")
                scorer.recall(work.judgement, self.settings.run.reuse)
            pending = [work.judgement for work in works if not (work.verdict or work.error)]
            if pending:
                pool = self.workers.pool("judge", len(pending))
                score.ScoreStage(scorer, pool, _ignore, time.perf_counter).run(pending)
        failed = next((work for work in works if work.verdict is None), None)
        if failed is not None:
            raise errors.EditFailed(str(failed.error))
        return [asdict(work.verdict) for work in works if work.verdict is not None]

    @contextmanager
    def _calling(self, role: base.Role) -> Iterator[None]:
        """Let one call at a time run in the block; raise `EditFailed` after the end of the session.

        If hosts or workers refuse to start, or fail alike on all of the call, the workers of its
        role are ended, and `EditFailed` is raised.
        """
        with self._one_at_a_time:
            if self._is_closed:
                raise errors.EditFailed("the session has ended")
            try:
                yield
            except (errors.UsageError, errors.FailsAlike) as error:
                self.workers.release(role)
                if not self.workers.pools:
                    self.workers.close()  # the connections to hosts too
                raise errors.EditFailed(str(error)) from None


def _ignore(ended: Work | Judgement) -> None: ...


def _pair(
    source: bytes,
    instruction: str,
    seed: int = 0,
    category: str = "default",
    reference: bytes | None = None,
) -> EditPair:
    """Return the pair of a call, with an id by its source and instruction."""
    return EditPair(
        f"call-{hashlib.sha256(source + instruction.encode()).hexdigest()[:16]}",
        category,
        instruction,
        _Bytes(source),
        reference=None if reference is None else _Bytes(reference),
        seed=seed,
    )
