"""Checks of a finished plan: what could only fail is refused, and what is doubtful is said."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_imgedit.core import errors
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import ComputedIn, EditorInfo, JudgeInfo
from pytest_imgedit.core.text import counted, first_of
from pytest_imgedit.kinds.base import Model
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.run import edit, pools
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.planned_works import TOO_MANY_SOURCES, takes_sources_of
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.stored_replies import doubts, replies_to
from pytest_imgedit.run.work import Work, by_pair, missing_edits
from pytest_imgedit.stats import comparison
from pytest_imgedit.stats.gate_values import allowed_pairs
from pytest_imgedit.stats.identical_edits import Alike, largest_alike
from pytest_imgedit.store.baselines import (
    Baseline,
    PairContent,
    content_sha256,
    refuse,
    unlike_further,
    unlike_items,
    unlike_judges,
    unlike_losses,
)
from pytest_imgedit.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Lack:
    """A `problem` that pairs have, for which they will end in an error.

    `names` are those of the pairs, of `pairs` in all. `most` is the largest number of them with
    which the run may start; a refusal names the `remedy` too.
    """

    problem: str
    names: Sequence[str]
    pairs: int
    advice: str
    most: int
    remedy: str = ""

    @property
    def line(self) -> str:
        count = f"{len(self.names)} of {self.pairs} pairs"
        return f"{count} have {self.problem} ({first_of(self.names)}); {self.advice}"


def store_warnings(store: Store) -> Iterator[str]:
    """Yield lines about what is wrong with a store."""
    if store.warning:
        yield f"warning: {store.warning}"
    for journal in (store.edits, store.verdicts):
        if journal.torn:
            yield f"warning: {journal.path}: dropped a torn last line"


def check_plan(plan: RunPlan, lacks: Sequence[Lack]) -> None:
    """Raise `UsageError` if a run could only fail, or if its verdicts could not be compared with
    the baseline; `lacks` are those of its pairs.
    """
    for lack in lacks:
        if len(lack.names) > lack.most:
            raise errors.UsageError(lack.line + lack.remedy)
    _check_stored_edits(plan)
    opponent = plan.request.opponent
    baseline = opponent.baseline if opponent is not None else plan.request.baseline
    if baseline is not None and plan.judge is not None:
        _check_baseline(plan, baseline, plan.judge)
    _check_references(plan)
    if plan.request.baseline is not None:
        known = {scorer.name: scorer.facts for scorer in plan.additional_scorers}
        refuse(plan.request.baseline, unlike_further(plan.request.baseline, known))


def unlike_scores(plan: RunPlan, baseline: Baseline) -> str | None:
    """Say why the scores of a run cannot be compared with the baseline; `None` if they can."""
    facts = {} if plan.scorer is None else plan.scorer.facts
    return unlike_judges(baseline, facts, plan.settings.editor.seeds)


def plan_warnings(plan: RunPlan, lacks: Sequence[Lack]) -> Iterator[str]:
    """Yield lines about what is doubtful in a plan that `check_plan` has let pass."""
    yield from plan.request.suite.remarks
    for lack in lacks:
        yield f"warning: {lack.line}"
    alike = _alike_images(plan.works)
    if alike is not None:
        yield f"warning: {alike}"
    yield from edit.probe_lines(plan.works, plan.store)
    if plan.settings.run.stage in ("all", "edit"):
        yield from edit.batch_lines(plan.editor.model, plan.works)
    if plan.judge is not None and plan.scorer is not None:
        yield from _judge_warnings(plan, plan.judge, plan.scorer)
    for remark in plan.models["editor"].remarks:
        yield f"plan: {remark}"
    warm_up = plan.models["editor"].warm_up_line
    if warm_up and missing_edits(plan.works):
        yield f"plan: {warm_up}"


def _judge_warnings(plan: RunPlan, judge: Identity, scorer: Scorer) -> Iterator[str]:
    """Yield a line about a judge that is not tried with other instructions, and lines about stored
    replies that would not be taken today.
    """
    blindness = judge.model.blind_to_words
    if plan.settings.tries_judge and blindness:
        yield (
            f"warning: judge {judge.model.spec} is not tried with other instructions: {blindness}"
        )
    if not judge.model.measures:
        yield from _unseen_sources(plan, scorer)
    if not plan.settings.run.fresh:
        for line in doubts(replies_to(scorer, plan.works), scorer.protocol.variant):
            yield f"plan: {line}"


def _unseen_sources(plan: RunPlan, scorer: Scorer) -> Iterator[str]:
    """Yield a line if no call of the protocol shows all source images of some pairs."""
    unseen: list[str] = []
    for pair in plan.request.pairs:
        if pair.further:
            calls = scorer.protocol.checked_calls(pair)
            shown = {name for call in calls for name in call.images}
            if not shown.issuperset(pair.source_names):
                unseen.append(pair.id)
    if unseen:
        yield (
            f"warning: protocol {scorer.protocol.label} does not show the judge all source images "
            f"of {counted(len(unseen), 'pair')} ({first_of(unseen)}): what an edit takes from the "
            "others is not judged; {{ sources }} places all of them in a template"
        )


def lacks_of(plan: RunPlan) -> Iterator[Lack]:
    """Yield what pairs lack: images that can be read, few enough sources for the editor, finished
    images for an editor of such, and references that the judge or the editor needs.
    """
    yield from _unreadable_images(plan)
    yield from _too_many_sources(plan)
    yield from _unfinished_images(plan)
    yield from _missing_references(plan)


def _unreadable_images(plan: RunPlan) -> Iterator[Lack]:
    """Yield a lack if images of pairs cannot be read; the run may start with as many such pairs as
    `gates.max_errors` allows of the pairs of all shards.
    """
    request = plan.request
    broken = [work for work in plan.works if work.error and work.error.kind == "bad_image"]
    if broken and broken[0].error is not None:
        selected = request.pairs if request.shard is None else request.shard.pairs
        yield Lack(
            problem="a source or reference that cannot be read",
            names=_names(broken, with_row=True),
            pairs=_pair_count(plan),
            advice=broken[0].error.message,
            most=allowed_pairs(plan.settings.gates.max_errors, len(selected)),
            remedy="; fix them, or raise --imgedit-max-errors",
        )


def _too_many_sources(plan: RunPlan) -> Iterator[Lack]:
    """Yield a lack if pairs have more source images than the editor takes; the run may start unless
    all pairs have, those of all shards.
    """
    request = plan.request
    editor = request.models["editor"]
    refused = [work for work in plan.works if work.error and work.error.kind == TOO_MANY_SOURCES]
    if not refused:
        return
    count = _pair_count(plan)
    selected = request.pairs if request.shard is None else request.shard.pairs
    some_can_be_edited = any(takes_sources_of(editor, pair) for pair in selected)
    limit = "one" if editor.max_sources == 1 else str(editor.max_sources)
    why = f" ({editor.why_fewer_sources})" if editor.why_fewer_sources else ""
    yield Lack(
        problem=f"more source images than the {limit} that editor {editor.spec} takes",
        names=_names(refused),
        pairs=count,
        advice=f"they end in errors{why}",
        most=count if some_can_be_edited else count - 1,
        remedy="; name an editor that takes them, or select other pairs",
    )


def _unfinished_images(plan: RunPlan) -> Iterator[Lack]:
    """Yield a lack if an editor of finished images has none for some pairs."""
    request = plan.request
    editor = request.models["editor"]
    unfinished = [work for work in plan.works if work.error and work.error.kind == "no_edit"]
    finished = editor.finished_images(request.suite.pairs) if unfinished else None
    if finished is not None:
        count = _pair_count(plan)
        yield Lack(
            problem=f"no finished image for {editor.spec}",
            names=_names(unfinished),
            pairs=count,
            advice=finished.summary,
            most=count - 1,
        )


def _missing_references(plan: RunPlan) -> Iterator[Lack]:
    """Yield a lack for the judge and the editor each, if it needs references that pairs lack."""
    models = plan.request.models
    editor = models["editor"]
    judge = None if plan.settings.run.stage == "edit" else models.get("judge")
    users: list[Model] = []
    if judge is not None and judge.needs_reference:
        users.append(judge)
    if editor.shown_reference is not None:
        users.append(editor)
    unreferenced = [work for work in plan.works if work.reference is None and _may_be_edited(work)]
    if not unreferenced:
        return
    count = _pair_count(plan)
    for user in users:
        yield Lack(
            problem=f"no reference image, which {user.role} {user.name!r} needs",
            names=_names(unreferenced),
            pairs=count,
            advice=f"name another {user.role}",
            most=count - 1,
        )


def _pair_count(plan: RunPlan) -> int:
    return len({work.pair.id for work in plan.works})


def _may_be_edited(work: Work) -> bool:
    """Tell whether a work has no error, or only that of a stage that makes no edits."""
    return work.error is None or work.error.kind == "not_edited"


def _names(works: Sequence[Work], with_row: bool = False) -> list[str]:
    """Return the ids of the pairs of works, each once; `with_row` adds where the suite has them."""
    names = [_name(work.pair, with_row) for work in works]
    return list(dict.fromkeys(names))


def _name(pair: EditPair, with_row: bool) -> str:
    return f"{pair.id} in {pair.row}" if with_row and pair.row else pair.id


def _alike_images(works: Sequence[Work]) -> Alike | None:
    """Return the finished images that are one and the same file though their sources differ, those
    of most sources; `None` if there are none.
    """
    return largest_alike(
        (work.pair.id, work.source.sha256, work.recipe["image"])
        for work in works
        if work.source is not None and "image" in work.recipe
    )


def _check_stored_edits(plan: RunPlan) -> None:
    """Raise `UsageError` if a stage that makes no edits has none to go on with.

    A run with workers on other hosts is let pass.
    """
    stage = plan.settings.run.stage
    if stage not in ("score", "report") or pools.is_remote(plan.settings):
        return
    if not any(work.edit for work in plan.works):
        raise errors.UsageError(
            f"--imgedit-stage={stage}: {plan.store.folder} has no edit of these pairs by this "
            "editor, make them with --imgedit-stage=edit"
        )


def _check_references(plan: RunPlan) -> None:
    """Raise `UsageError` for an additional judge or a metric that needs a reference image, if no
    pair has one.
    """
    if any(work.reference for work in plan.works):
        return
    for scorer in plan.additional_scorers:
        if scorer.model.needs_reference:
            raise errors.UsageError(
                f"{scorer.model.role} {scorer.name!r}: no pair has a reference image, with which "
                "it compares"
            )


def _check_baseline(plan: RunPlan, baseline: Baseline, judge: Identity) -> None:
    """Raise `UsageError` if the verdicts of the run could not be compared with the baseline."""
    settings = plan.settings
    if plan.request.baseline is not None:
        refuse(baseline, unlike_scores(plan, baseline))
    if settings.gates.max_drop:
        refuse(baseline, unlike_losses(baseline, plan.editor.lossy))
    contents = {pair_id: _content(works) for pair_id, works in by_pair(plan.works).items()}
    changed = unlike_items(baseline, contents)
    if changed:
        refuse(baseline, f"{changed}; save a new baseline by --imgedit-save")
    may_compute_elsewhere = settings.gates.environment == "any" or pools.is_remote(settings)
    if settings.run.stage == "all" and missing_edits(plan.works) and not may_compute_elsewhere:
        _check_environment(baseline, plan.editor, judge)


def _content(works: Sequence[Work]) -> PairContent:
    """Return what the pair of works consists of, as baselines keep it."""
    pair = works[0].pair
    inputs = works[0].inputs
    return PairContent(
        category=pair.category,
        source=inputs.source,
        further=inputs.further,
        edited_source=inputs.edited_source,
        sha256=content_sha256(inputs.parts),
        seeds=tuple(work.seed for work in works),
        is_plain=not (pair.description or pair.reference_text or inputs.reference),
    )


def _check_environment(baseline: Baseline, editor: Identity, judge: Identity) -> None:
    """Raise `UsageError` if the run would compute in another environment than its baseline."""
    batch_sizes = (editor.model.batch_size,) if editor.model.pads_batches else ()
    here = comparison.Computed(
        EditorInfo(
            spec=editor.model.spec,
            recipe=editor.digest,
            dtype=editor.recipe.get("dtype"),
            batch_sizes=batch_sizes,
        ),
        JudgeInfo(
            spec=judge.model.spec,
            recipe=judge.digest,
            dtype=judge.recipe.get("dtype"),
            decoder=judge.recipe.get("decoder"),
        ),
        {
            "editor": ComputedIn(**editor.here.model_dump(), edits=1, verdicts=0),
            "judge": ComputedIn(**judge.here.model_dump(), edits=0, verdicts=1),
        },
    )
    differences = comparison.environment_differences(baseline, here)
    if differences:
        listed = "; ".join(differences)
        refuse(baseline, f'computed in another environment (gates.environment="same"): {listed}')
