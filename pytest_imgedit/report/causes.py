"""What differs between two runs: causes, and below each one what may follow from it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pytest_imgedit.core import errors
from pytest_imgedit.core.results import Item, JudgeInfo, ModelInfo, ProtocolCall, Results
from pytest_imgedit.core.text import first_of
from pytest_imgedit.kinds import registry
from pytest_imgedit.report.parameters import model_differences
from pytest_imgedit.report.read import baseline_from
from pytest_imgedit.stats.comparison import environment_differences, places_of
from pytest_imgedit.store.baselines import Baseline

Role = Literal["editor", "judge"]
#: How pairs end that have no score, in words.
_ENDINGS = {
    "refused": "refused pairs",
    "unreadable_reply": "pairs with an unreadable reply",
    "judge_error": "pairs that the judge failed on",
    "edit_error": "pairs that the editor failed on",
    "dropped": "pairs dropped by compat",
    "interrupted": "interrupted pairs",
    "not_needed": "pairs that were not needed",
    "edited": "pairs that were not judged",
}
#: What a baseline does not keep of its run.
_NOT_KEPT = (
    "base seed",
    "instructions sent to the editor",
    "images sent to the judge",
    "questions",
    "attempts",
    "table rule",
)
#: What a model makes depends on these facts of it.
_OF_MODEL = ("", " parameters", " weights", " precision", " environment")
#: How lines on environments begin that another model implies.
_IMPLIED = ("device ", "processor ", "decoder ")
#: The stage of each role, as environments name it.
_STAGES = {"editor": "edits", "judge": "verdicts"}
#: What verdicts depend on, beside the edits.
_OF_VERDICTS = (
    *(f"judge{part}" for part in _OF_MODEL),
    "answering model",
    "protocol",
    "variant",
    "questions",
    "sent images",
    "protocol version",
    "attempts",
)


@dataclass(frozen=True)
class Cause:
    """What differs, in one line, and what may follow from it, a line each."""

    line: str
    consequences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Side:
    """A run or a baseline: what a baseline keeps of it, and of a run the whole results."""

    kept: Baseline
    results: Results | None = None

    @classmethod
    def of(cls, document: Results | Baseline) -> "Side":
        """Return a side of what was read."""
        if isinstance(document, Baseline):
            return cls(document)
        return cls(baseline_from(document), document)

    @property
    def unstated(self) -> tuple[str, ...]:
        """What it does not state."""
        return () if self.results is not None else _NOT_KEPT

    @property
    def overall(self) -> float | None:
        """The mean of the category means of the score."""
        return self.kept.overall if self.results is None else self.results.overall.macro.mean


class _Fact(NamedTuple):
    """One thing that is compared: a line for each of its differences, and the facts from which they
    may follow, the likeliest first.
    """

    name: str
    lines: Sequence[str]
    follows: tuple[str, ...] = ()


def causes_of(before: Side, now: Side) -> list[Cause]:
    """Return what differs between two runs or baselines, in a fixed order: the suite, the editor,
    the judge, its protocol. What only one side states is no difference.
    """
    facts = [
        *_suite_facts(before.kept, now.kept),
        *_ending_facts(before, now),
        *_model_facts("editor", before.kept, now.kept),
        *_edit_facts(before, now),
        *_model_facts("judge", before.kept, now.kept),
        *_answer_facts(before.kept.judge, now.kept.judge),
        *_protocol_facts(before, now),
        _compared_fact(before, now),
    ]
    return _arranged([fact for fact in facts if fact.lines])


def _arranged(facts: Sequence[_Fact]) -> list[Cause]:
    """Put each fact that may follow from another one below the last line of its first cause."""
    by_name = {fact.name: fact for fact in facts}
    below: dict[str, list[str]] = {fact.name: [] for fact in facts}
    for fact in facts:
        root = _root(fact, by_name)
        if root is not fact:
            below[root.name] += fact.lines
    causes = []
    for fact in facts:
        if _root(fact, by_name) is fact:
            *others, last = fact.lines
            causes += [Cause(line) for line in others]
            causes.append(Cause(last, tuple(below[fact.name])))
    return causes


def _root(fact: _Fact, by_name: Mapping[str, _Fact]) -> _Fact:
    """Return the first cause of a fact, which may be itself."""
    for name in fact.follows:
        if name in by_name:
            return _root(by_name[name], by_name)
    return fact


def _of(role: Role) -> tuple[str, ...]:
    """Return the names of the facts of a model on which depends what it makes."""
    return tuple(f"{role}{part}" for part in _OF_MODEL)


def _change(name: str, before: object, now: object) -> list[str]:
    """Return the line of a difference; none if both are equal, or one is not known."""
    if before is None or now is None or before == now:
        return []
    return [f"{name}: {before} → {now}"]


def _suite_facts(before: Baseline, now: Baseline) -> Iterator[_Fact]:
    """Compare the suites, the contents of the pairs that both have, and which pairs they have."""
    known = [side.suite for side in (before, now) if side.suite is not None]
    lines = []
    if len({suite.sha256 for suite in known}) > 1:
        names = [f"{suite.name} ({suite.sha256[:12]})" for suite in known]
        lines = [f"suite: {' → '.join(names)}"]
    yield _Fact("suite", lines)

    changed: dict[str, list[str]] = {}
    both = [name for name in now.contents if name in before.contents]
    for name in both:
        part = now.contents[name].unlike(before.contents[name])
        if part:
            changed.setdefault(part, []).append(name)
    lines = [
        f"content of pairs: {part} of {len(names)} of {len(both)} ({first_of(names)})"
        for part, names in changed.items()
    ]
    yield _Fact("content", lines, ("suite",))

    lines = []
    for side, others, name in ((now, before, "B"), (before, now, "A")):
        missing = [pair for pair in others.contents if pair not in side.contents]
        if missing:
            lines.append(f"pairs missing in {name}: {len(missing)} ({first_of(missing)})")
    yield _Fact("missing", lines, ("suite",))


def _ending_facts(before: Side, now: Side) -> Iterator[_Fact]:
    """Compare which of the pairs that both have ended without a score, by the way they ended."""
    both = before.kept.contents.keys() & now.kept.contents.keys()
    is_whole = before.results is not None and now.results is not None
    sides = [_endings(side, is_whole) for side in (before, now)]
    for ending, title in _ENDINGS.items():
        there, here = ({pair for pair in both if side[pair] == ending} for side in sides)
        lines = []
        if there != here:
            names = first_of(sorted(there ^ here))
            lines = [f"{title}: {len(there)} → {len(here)} ({names})"]
        follows = ("content", *_of("editor"), "sent instructions", "seeds")
        if ending != "edit_error":
            follows = ("content", *_OF_VERDICTS, *follows, "edits")
        yield _Fact(ending, lines, follows)


def _endings(side: Side, is_whole: bool) -> dict[str, str]:
    """Return how each pair ended by its id; with `is_whole`, unreadable replies stand apart."""
    endings = {item.id: str(item.status) for item in side.kept.items}
    if is_whole and side.results is not None:
        for item in side.results.items:
            if item.error is not None and item.error.kind == "unreadable_reply":
                endings[item.id] = item.error.kind
    return endings


def _model_facts(role: Role, before: Baseline, now: Baseline) -> Iterator[_Fact]:
    """Compare editors or judges: what they are, what is set of them, and where they computed."""
    old: ModelInfo = getattr(before, role)
    new: ModelInfo = getattr(now, role)
    spec: list[str] = []
    if not _is_same(role, old, new):
        is_server = old.spec.rpartition("#")[1:] == new.spec.rpartition("#")[1:]
        spec = _change(
            f"{role} server" if "#" in old.spec and is_server else role, old.spec, new.spec
        )
    shared, single = _unlike_parameters(role, old, new)
    if not spec:
        shared, single = shared + single, []
    facts = [_Fact(role, spec), _Fact(f"{role} parameters", shared)]
    facts.append(_Fact(f"{role} further parameters", single, (role,)))
    of_files = (f"{role} parameters",) if old.files != new.files else ()
    prints = _bare_differences(old, new, params={}, files={}, recipe=None)
    weights = [f"{role} weights or code: {line}" for line in prints]
    facts.append(_Fact(f"{role} weights", weights, (role, *of_files)))

    places = _places(role, before, now)
    settings = (role, f"{role} parameters", f"{role} weights", f"{role} environment")
    precision = _change(f"{role} precision", old.dtype, new.dtype)
    facts.append(_Fact(f"{role} precision", precision, settings))
    implied = [line for line in places if line.startswith(_IMPLIED)]
    others = [f"{role} environment: {line}" for line in places if line not in implied]
    facts.append(_Fact(f"{role} environment", others))
    lines = [f"{role} {line}" for line in implied]
    facts.append(_Fact(f"{role} loading", lines, (role, f"{role} environment")))
    probes = _change(f"{role} probe", _probes(role, before), _probes(role, now))
    facts.append(_Fact(f"{role} probe", probes, _of(role)))
    if not any(fact.lines for fact in facts):
        recipe = _bare_differences(old, new, params={}, files={}, fingerprint=None)
        facts.append(_Fact(f"{role} recipe", [f"{role}: {line}" for line in recipe]))
    yield from facts


def _is_same(role: Role, before: ModelInfo, now: ModelInfo) -> bool:
    """Tell whether two specs name one model: one recipe, or one fingerprint of a kind that puts all
    of a model in it. Code of a user may make several models by their arguments.
    """
    if before.recipe is not None and before.recipe == now.recipe:
        return True
    if before.fingerprint is None or before.fingerprint != now.fingerprint:
        return False
    with suppress(errors.UsageError):  # a kind that is broken here tells nothing
        return None not in [registry.kind_of(role, model.spec) for model in (before, now)]
    return False


def _unlike_parameters(
    role: Role, before: ModelInfo, now: ModelInfo
) -> tuple[list[str], list[str]]:
    """Return the lines of parameters that both set, and of those that only one does."""
    both = before.params.keys() & now.params.keys()
    lines = []
    for is_shared in (True, False):
        params = [
            {name: value for name, value in model.params.items() if (name in both) == is_shared}
            for model in (before, now)
        ]
        old = before.model_copy(update={"params": params[0]})
        new = now.model_copy(update={"params": params[1]})
        lines.append(_bare_differences(old, new, fingerprint=None, recipe=None))
    shared, single = ([f"{role} parameter {line}" for line in part] for part in lines)
    return shared, single


def _bare_differences(before: ModelInfo, now: ModelInfo, **left_out: object) -> list[str]:
    """Return `model_differences` under one spec, with some fields replaced on both sides."""
    update = {"spec": "", **left_out}
    return model_differences(
        before.model_copy(update=update),
        now.model_copy(update=update),
    )


def _places(role: Role, before: Baseline, now: Baseline) -> list[str]:
    """Return how the places differ where a model computed, but for precision and probes."""
    stage = f"{_STAGES[role]}: "
    lines = []
    for line in environment_differences(before, now):
        text = line.removeprefix(stage)
        if line.startswith(stage) and not text.startswith(("dtype ", "probe ")):
            lines.append(text)
    return lines


def _probes(role: Role, side: Baseline) -> str | None:
    """Return the probes of a model, `None` if none is known."""
    places = places_of(_STAGES[role], side.environments)
    return ", ".join(sorted({place.probe for place in places if place.probe})) or None


def _edit_facts(before: Side, now: Side) -> Iterator[_Fact]:
    """Compare seeds, rewritten instructions, and the edits that were made of them."""
    seeds = _change("seeds a pair", before.kept.seeds, now.kept.seeds)
    if before.results is not None and now.results is not None:
        runs = before.results.run, now.results.run
        seeds += _change("base seed", *(run.options.editor.seed for run in runs))
    yield _Fact("seeds", seeds)
    rewrites = [(side.kept.editor.rewrites or "none")[:12] for side in (before, now)]
    yield _Fact("rewrites", _change("rewritten instructions", *rewrites))
    if before.results is not None and now.results is not None:
        sent = _unlike_items(before.results, now.results, lambda item: item.rewritten)
        lines = [f"instructions sent to the editor: {sent}"] if sent else []
        yield _Fact("sent instructions", lines, ("rewrites",))
    follows = ("content", *_of("editor"), "seeds", "rewrites", "sent instructions")
    yield _Fact("edits", _unlike_edits(before.kept, now.kept), follows)


def _unlike_items(before: Results, now: Results, value: Callable[[Item], object]) -> str:
    """Count the pairs of both whose value differs; an empty text if none does."""
    items = {item.id: item for item in before.items}
    both = [item for item in now.items if item.id in items]
    unlike = [item.id for item in both if value(item) != value(items[item.id])]
    return f"others for {len(unlike)} of {len(both)} pairs" if unlike else ""


def _unlike_edits(before: Baseline, now: Baseline) -> list[str]:
    """Count the edits of both sides that are other images."""
    there = {(item.id, seed.seed): seed.edit for item in before.items for seed in item.seeds}
    unlike = 0
    compared = 0
    for item in now.items:
        for seed in item.seeds:
            old = there.get((item.id, seed.seed))
            if old is not None and seed.edit is not None:
                compared += 1
                unlike += old != seed.edit
    return [f"edits: {unlike} of {compared} are other images"] if unlike else []


def _answer_facts(before: JudgeInfo, now: JudgeInfo) -> Iterator[_Fact]:
    """Compare which models have answered, as their servers name them, and how batches decode."""
    models = [", ".join(sorted(judge.returned)) or None for judge in (before, now)]
    yield _Fact("answering model", _change("answering model", *models), _of("judge"))
    systems = [
        ", ".join(judge.canary.models) or None if judge.canary is not None else None
        for judge in (before, now)
    ]
    lines = _change("system fingerprint", *systems)
    yield _Fact("system fingerprint", lines, ("answering model", *_of("judge")))


def _protocol_facts(before: Side, now: Side) -> Iterator[_Fact]:
    """Compare what the judge is asked, what it is sent, and what the tables make of its replies."""
    old = before.kept.judge
    new = now.kept.judge
    names = [judge.protocol or "none, the judge measures" for judge in (old, new)]
    measures = ("judge",) if None in (old.protocol, new.protocol) else ()
    yield _Fact("protocol", _change("protocol", *names), measures)
    yield _Fact("variant", _change("protocol variant", old.variant, new.variant))
    table_rule: list[str] = []
    if before.results is not None and now.results is not None:
        runs = before.results.run, now.results.run
        reasks = [run.options.judge.get("reasks") for run in runs]
        yield _Fact("attempts", _change("attempts after an unreadable reply", *reasks))
        tables = before.results.protocol, now.results.protocol
        if tables[0] is not None and tables[1] is not None:
            yield from _call_facts(tables[0].calls, tables[1].calls)
            table_rule = _change("table rule", tables[0].totals, tables[1].totals)
    digests = [judge.protocol_sha256 and judge.protocol_sha256[:12] for judge in (old, new)]
    yield _Fact(
        "protocol version",
        _change("protocol version, by the digest of its prompts", *digests),
        ("protocol", "variant", "questions", "sent images"),
    )
    yield _Fact("table rule", table_rule, ("protocol",))


def _call_facts(before: Sequence[ProtocolCall], now: Sequence[ProtocolCall]) -> Iterator[_Fact]:
    """Compare the questions of a protocol and how their images are sent."""
    asked = [
        "; ".join(f"{call.name or 'one'} ({', '.join(call.order)})" for call in calls)
        for calls in (before, now)
    ]
    yield _Fact("questions", _change("questions", *asked), ("protocol",))
    lines = []
    there = {call.name: _sent(call) for call in before}
    for call in now:
        name = (
            f"images sent to the judge ({call.name})" if call.name else "images sent to the judge"
        )
        lines += _change(name, there.get(call.name), _sent(call))
    yield _Fact("sent images", lines, ("protocol",))


def _sent(call: ProtocolCall) -> str:
    """Say how the images of a call are sent."""
    parts = [call.codec or "codec of the judge"]
    if call.codec == "jpeg":
        parts.append(f"quality {call.quality}")
    parts.append(f"up to {call.max_side} px a side" if call.max_side else "of any size")
    if call.at_source_size:
        parts.append("edits at the size of the source")
    if call.detail:
        parts.append(f"detail {call.detail}")
    return ", ".join(parts)


def _compared_fact(before: Side, now: Side) -> _Fact:
    """Compare which baselines two runs were compared with."""
    names = []
    for side in (before, now):
        comparison = None if side.results is None else side.results.comparison
        names.append(None if comparison is None else f"{comparison.name} (run {comparison.run})")
    return _Fact("compared", _change("baseline compared with", *names))
