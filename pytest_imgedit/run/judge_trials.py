"""Trials of the judge: edits of known quality, and the run's own edits to be judged again."""

import hashlib
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from pytest_imgedit.config.settings import RunSettings, Settings
from pytest_imgedit.core import requests, results
from pytest_imgedit.core.false_instructions import CLASSES, change_word
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.kinds.base import Model
from pytest_imgedit.kinds.identity import Identity, identify
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.run.edit import edit_request, store_edit, stored_edit
from pytest_imgedit.run.judge_repeats import plan_repeats
from pytest_imgedit.run.planned_works import make_works
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.work import (
    Judgement,
    SelectedShard,
    Work,
    grouped,
    missing_edits,
    source_of,
)
from pytest_imgedit.stats import estimates, judge_qualification
from pytest_imgedit.store.store import Store
from pytest_imgedit.suites.base import Suite
from pytest_imgedit.workers import base, editing

#: Number of pairs of each category on which the judge is tried, and the minimum of all pairs.
SAMPLE = 4
ALTOGETHER = 20
#: Number of source images at most with which a judge is asked about words of a class.
MOST_OF_A_CLASS = 10
#: A pair, and itself with words that its right edit does not follow.
OtherWords = tuple[EditPair, EditPair]


def _plan_controls(
    scorer: Scorer,
    settings: Settings,
    suite: Suite,
    *,
    pairs: Sequence[EditPair],
    run_works: Sequence[Work],
    shard: SelectedShard | None,
    makes_edits: bool,
) -> tuple[dict[str, list[Work]], str]:
    """Edit a sample of pairs with every control, here and now; return the works to score, by
    control, and what the judge is not asked about. Without `makes_edits`, edits that the store
    lacks are not made: the works then only say what the judge will be asked about.

    The sample is drawn from the pairs of the suite that have a reference, whichever `pairs` are
    selected, so that one trial serves all runs of the suite. If fewer than `ENOUGH` pairs have one,
    the sample is drawn from the selected pairs, without the controls that need references; then the
    edits of `run_works` stand for right ones. The sample is decided by ids; a shard takes its part
    of it. Edits are stored like any other; stage `report` uses stored ones only.
    """
    store = scorer.store
    run = settings.run
    drawn_from = [pair for pair in suite.pairs if pair.reference is not None]
    if len(drawn_from) < min(estimates.ENOUGH, len(suite.pairs)):
        drawn_from = list(pairs if shard is None else shard.pairs)
    sample = _sample(drawn_from)
    has_oracle = all(pair.reference is not None for pair in sample)
    words, untried = _other_words(scorer.model, sample, drawn_from, suite.pairs)
    trials: dict[str, list[Work]] = {}
    for name in judge_qualification.EDITED:
        control = make_model("editor", name, {})
        if control.shown_reference is not None and not has_oracle:
            continue
        members = sample
        if name == "oracle":
            members = sample + _outside_sample(sample, words)
        if shard is not None:
            members = [pair for pair in members if shard.tries(pair)]
        works = _of_control(control, members, suite, store, run)
        if makes_edits:
            identity = identify(control, store.fingerprints)
            _make_edits(missing_edits(works), identity, store, run.stage)
        trials[name] = works
    right_works = trials["oracle"] if has_oracle else first_works(run_works)
    trials |= _judged_by_other_words(right_works, words)
    return {name: works for name, works in trials.items() if works}, untried


def _outside_sample(
    sample: Sequence[EditPair], words: Mapping[str, Sequence[OtherWords]]
) -> list[EditPair]:
    """Return each pair outside the sample whose right edit is judged by other words."""
    sampled = {pair.id for pair in sample}
    outside: dict[str, EditPair] = {}
    for pair, _ in chain.from_iterable(words.values()):
        if pair.id not in sampled:
            outside[pair.id] = pair
    return list(outside.values())


def _judged_by_other_words(
    right_works: Iterable[Work], words: Mapping[str, Sequence[OtherWords]]
) -> dict[str, list[Work]]:
    """Return works of the right edits with the words that they do not follow, by control; a pair
    without a right edit has none.
    """
    work_by_pair = {work.pair.id: work for work in right_works if work.error is None}
    works: dict[str, list[Work]] = {}
    for name, changes in words.items():
        works[name] = [
            replace(work_by_pair[pair.id], pair=changed)
            for pair, changed in changes
            if pair.id in work_by_pair
        ]
    return works


def _other_words(
    judge: Model,
    sample: Sequence[EditPair],
    drawn_from: Sequence[EditPair],
    pairs: Sequence[EditPair],
) -> tuple[dict[str, list[OtherWords]], str]:
    """Return pairs with other words by control, and a text that names the words that the judge is
    not asked about: all for a judge that is blind to words, and those that too few source images
    have.

    Whole instructions are changed in the sample, into those of other `pairs`; single words in pairs
    of the sample first.
    """
    if judge.blind_to_words:
        return {}, f"other instructions: {judge.blind_to_words}"
    enough = min(estimates.ENOUGH, len({source_of(pair) for pair in sample}))
    words: dict[str, list[OtherWords]] = {}
    few: list[str] = []
    swaps: list[OtherWords] = []
    for pair in sample:
        swapped = _with_other_words(pair, pairs)
        if swapped is not None:
            swaps.append((pair, swapped))
    if len({source_of(pair) for pair, _ in swaps}) >= enough:
        words[judge_qualification.COUNTERFACTUAL] = swaps
    else:
        few.append("instructions")
    for name in CLASSES:
        changes = _changes_of_class(name, chain(sample, _in_hash_order(drawn_from)))
        if len(changes) >= estimates.ENOUGH:
            words[f"{judge_qualification.COUNTERFACTUAL} {name}"] = changes
        elif changes:
            few.append(name)
    if not few:
        return words, ""
    listed = ", ".join(few)
    return words, f"other {listed} (fewer than {estimates.ENOUGH} source images have some)"


def _changes_of_class(name: str, pairs: Iterable[EditPair]) -> list[OtherWords]:
    """Change a word of a class in the first pair of each source image that has one, in up to
    `MOST_OF_A_CLASS` of them.
    """
    by_source: dict[Hashable, OtherWords] = {}
    for pair in pairs:
        if len(by_source) == MOST_OF_A_CLASS:
            break
        changed = _with_another_word(pair, name)
        if changed is not None:
            by_source.setdefault(source_of(pair), (pair, changed))
    return list(by_source.values())


def _of_control(
    control: Model, pairs: Sequence[EditPair], suite: Suite, store: Store, run: RunSettings
) -> list[Work]:
    """List the works of a control with its stored edits; pairs that it has nothing to show for are
    left out.
    """
    identity = identify(control, store.fingerprints)
    works = [
        work
        for work in make_works(pairs, suite.pairs, identity, store)
        if control.shown_reference is None or work.shown is not None or work.error
    ]
    for work in works:
        if work.error is None:
            work.edit = stored_edit(work, identity, store, run.reuse)
    return works


def first_works(works: Iterable[Work]) -> list[Work]:
    """Return the first work of each pair that has not failed."""
    first: dict[str, Work] = {}
    for work in works:
        if work.error is None:
            first.setdefault(work.pair.id, work)
    return list(first.values())


def _with_another_word(pair: EditPair, name: str) -> EditPair | None:
    """Return a pair with one word of a class changed, in its expected result too; `None` if the
    instruction has no such word, or the expected result would still tell.
    """
    changed = change_word(pair.instruction, name)
    if changed is None:
        return None
    text = pair.reference_text
    result = re.sub(re.escape(changed.old), changed.new, text, flags=re.IGNORECASE)
    if text and result == text:
        return None
    return replace(pair, instruction=changed.instruction, reference_text=result)


def _with_other_words(pair: EditPair, pairs: Sequence[EditPair]) -> EditPair | None:
    """Return a pair with the instruction of another one, of the same source or else of the same
    category; `None` if there is none, or if all of them may be true of its edit too.
    """
    others = [other for other in pairs if not _may_be_true(other, pair)]
    near = [other for other in others if other.source == pair.source]
    near += [other for other in others if other.category == pair.category]
    if not near:
        return None
    nearest = near[0]
    return replace(pair, instruction=nearest.instruction, reference_text=nearest.reference_text)


def _may_be_true(other: EditPair, pair: EditPair) -> bool:
    """Tell whether the instruction of `other` may describe a right edit of `pair`: it has the same
    words or the same result, or one contains the other.
    """
    words = _words(pair.instruction)
    other_words = _words(other.instruction)
    has_same_result = pair.reference is not None and other.reference == pair.reference
    return words <= other_words or other_words <= words or has_same_result


def _words(text: str) -> frozenset[str]:
    """Return the words of a text; of a script without spaces, its characters."""
    return frozenset(re.findall(r"[a-z0-9]+|[^\W\da-z_]", text.casefold()))


def _make_edits(works: Sequence[Work], control: Identity, store: Store, stage: str) -> None:
    """Make edits with a control in this process, and store them. Works without an edit end in an
    error: those that failed, and all in stage `report`.
    """
    editor = control.model.target.build("cpu", {})
    worker = base.Worker(base.Slot("controls", ()), environment=control.here)
    for work in works:
        if stage == "report":
            work.fail("not_edited", "the store has no such edit, and stage 'report' makes none")
            continue
        store.remember(control.digest, control.recipe)
        try:
            output = editing.make_edit(
                editor.edit,
                requests.EditRequest.decoded(vars(edit_request(work))),
                control.model.may_be_blank,
            )
        except Exception as error:  # such as an image that does not decode
            kind, message = editing.describe(error)
            work.fail(kind, message)
        else:
            store_edit(work, control, worker, output, store)


def _sample(pairs: Sequence[EditPair]) -> list[EditPair]:
    """Choose `SAMPLE` pairs of each category, or if there are few categories, so many of each that
    they are `ALTOGETHER`; a category with fewer pairs gives all that it has.
    """
    groups = grouped(_in_hash_order(pairs), lambda pair: pair.category).values()
    size = max(SAMPLE, math.ceil(ALTOGETHER / max(1, len(groups))))
    return [pair for group in groups for pair in group[:size]]


def _in_hash_order(pairs: Iterable[EditPair]) -> list[EditPair]:
    """Return pairs in the order of the hashes of their ids."""
    return sorted(pairs, key=lambda pair: hashlib.sha256(pair.id.encode()).digest())


def control_trials(judgements: Mapping[str, Sequence[Judgement]]) -> list[results.ControlTrial]:
    """Return the judge's score of every control on every pair."""
    trials: list[results.ControlTrial] = []
    for name, judged in judgements.items():
        trials += [_control_trial(name, judgement) for judgement in judged]
    return trials


def _control_trial(control: str, judgement: Judgement) -> results.ControlTrial:
    """Return the judge's score of a control on a pair; pairs of one source are one cluster."""
    source = judgement.work.source
    return results.ControlTrial(
        control=control,
        pair=judgement.pair.id,
        cluster=source.sha256 if source else judgement.pair.id,
        score=None if judgement.verdict is None else judgement.verdict.score,
        pending=judgement.is_open,
    )


@dataclass(frozen=True)
class Trials:
    """Judgements of edits of known quality by control, repeated judgements of the run's own edits,
    and what the judge is not asked about.
    """

    controls: dict[str, list[Judgement]] = field(default_factory=dict)
    untried: str = ""
    repeats: list[Judgement] = field(default_factory=list)

    @property
    def of_controls(self) -> list[Judgement]:
        """The judgements of all controls."""
        return list(chain.from_iterable(self.controls.values()))

    @property
    def judgements(self) -> list[Judgement]:
        return self.of_controls + self.repeats

    @property
    def remaining(self) -> int:
        """The number of trials that were cut off when the run was stopped."""
        return sum(
            judgement.verdict is None and judgement.error is None for judgement in self.judgements
        )


def plan_trials(
    scorer: Scorer,
    settings: Settings,
    suite: Suite,
    *,
    pairs: Sequence[EditPair],
    run_works: Sequence[Work],
    shard: SelectedShard | None = None,
    makes_edits: bool = True,
) -> Trials:
    """Return the trials of a judge: edits of known quality, if the settings try it on them, and
    repeats of the judgements of `run_works`.

    `pairs` are those of the run. The edits that the store lacks are made here and now, unless
    `makes_edits` is false.
    """
    controls: dict[str, list[Judgement]] = {}
    untried = ""
    if settings.tries_judge:
        edits, untried = _plan_controls(
            scorer,
            settings,
            suite,
            pairs=pairs,
            run_works=run_works,
            shard=shard,
            makes_edits=makes_edits,
        )
        for name, works in edits.items():
            controls[name] = [Judgement(work) for work in works]
    has_order = not scorer.model.measures
    repeats = plan_repeats(run_works, settings.judge.repeats, has_order)
    return Trials(controls, untried, repeats)
