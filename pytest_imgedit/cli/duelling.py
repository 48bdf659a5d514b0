"""What `imgedit compare --duel` has a judge decide: which of two runs has the better edits."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pytest_imgedit.cli.comparable import baseline_store, baselines_folder
from pytest_imgedit.cli.judge_options import JudgeOptions
from pytest_imgedit.config.settings import GatesSettings, Settings, make_settings
from pytest_imgedit.core import errors, redaction
from pytest_imgedit.core.results import RESULTS_SCHEMA, Duel, GateResult, JudgeInfo, Results
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.report.read import read_results
from pytest_imgedit.run.baselines import ComparedWith
from pytest_imgedit.run.duels import Opponent
from pytest_imgedit.run.run_duel import FinishedEdits, has_measured, have_decided
from pytest_imgedit.run.session import Session
from pytest_imgedit.stats.decision import decide_duel
from pytest_imgedit.store.baselines import (
    SCHEMA,
    Baseline,
    read_document,
    unlike_items,
    unlike_rewrites,
)
from pytest_imgedit.store.store import Store, blobs_around

#: Keys of `[gates]` that a config has for duels too; all others are options of the command.
_OF_CONFIG = ("baselines", "baseline_store", "max_near_copies")


@dataclass(frozen=True)
class Dueled:
    """What comes of duels: their tables, the gates on them, and the judge that decided."""

    duel: Duel
    gates: Sequence[GateResult]
    judge: JudgeInfo
    gave_scores: bool

    @property
    def document(self) -> JsonObject:
        return {
            "duel": self.duel.model_dump(mode="json"),
            "duel_judge": self.judge.model_dump(mode="json"),
        }

    @property
    def lines(self) -> list[str]:
        """Who decided, and what to do about a judge that is asked for choices and gives scores."""
        lines = [f"duels decided by judge {self.judge.spec}"]
        if self.gave_scores:
            lines.append(
                f"judge {self.judge.spec} answered with scores, expected which edit is better: "
                "score the edits of the later run by it first (pytest --imgedit-stage=score), and "
                "put that run here, whose scores are then compared"
            )
        return lines


def refuse_to_duel(
    before: Baseline, now: Baseline, names: str, *, only_common: bool = False
) -> None:
    """Raise `UsageError` if the edits of two runs are not of the same pairs or instructions. Their
    judges and seeds may differ; `names` are what the message calls the two. With `only_common`,
    pairs of one of them are ignored.
    """
    contents = {}
    for name, content in now.contents.items():
        if name in before.contents:
            contents[name] = replace(content, seeds=before.contents[name].seeds)
        elif not only_common:
            contents[name] = content
    is_rewritten = now.editor.rewrites is not None
    reason = unlike_rewrites(before, is_rewritten) or unlike_items(before, contents)
    if reason:
        raise errors.UsageError(f"{names} cannot be compared, {reason}")


def duel_runs(
    before: tuple[Baseline, Path],
    now: Path,
    options: JudgeOptions,
    gates: GatesSettings,
    out: Path,
) -> Dueled:
    """Have a judge decide which edits are better, those of a run or those of the baseline or run
    `before`, both with the files that they were read from; the plan and the progress go to stderr.

    Raises `UsageError` before any model loads if the later one is no run, and if edits are gone.
    """
    baseline, path = before
    results = _results_of(now)
    known = KnownJudge(results.judge, results.run.id, partial(has_measured, results))
    settings = settings_of_duels(known, results.suite.name, options, gates, out)
    edits = FinishedEdits(results, blobs_around(now, Store(out)))
    session = Session(settings, Path(), edits.suite)
    others = session.baselines.other_edits(ComparedWith(baseline, path=path), session.store)
    others = replace(others, option="--duel")
    edits.require_images()
    others.require_edits(baseline, [item.id for item in edits.items])
    with closing(session):
        decided = have_decided(session, edits, Opponent(baseline, others.edit_of), sys.stderr)
    duel, on_duels = decide_duel(session.settings.gates, results.items, decided.facts)
    return Dueled(duel, on_duels, JudgeInfo(**decided.judge), decided.gave_scores)


def _results_of(path: Path) -> Results:
    """Return a run; raise `UsageError` for a baseline, which has no texts to ask about."""
    try:
        return read_results(path)
    except errors.UsageError:
        document = read_document(path, (SCHEMA, RESULTS_SCHEMA))
        if document["schema"] != SCHEMA:
            raise
        raise errors.UsageError(
            f"--duel: {path} is a baseline, which has no texts to ask a judge about, expected a "
            f"run as the later one, such as its own: {document['run']}"
        ) from None


@dataclass(frozen=True)
class KnownJudge:
    """What a run tells of its judge: `measured` says whether one of a spec gave scores in it, and
    `option` is what asks for duels.
    """

    info: JudgeInfo
    run: str
    measured: Callable[[str], bool]
    option: str = "--duel"

    @property
    def table(self) -> dict[str, Any]:
        """The spec and the parameters as a config has them; raises `UsageError` if they have a
        secret, which results do not tell.
        """
        known = {"spec": self.info.spec, **self.info.params}
        if _has_mask(known):
            raise errors.UsageError(
                f"{self.option}: run {self.run} does not tell the secrets of its judge "
                f"({self.info.spec}): name the judge by --config=FILE or --judge=SPEC"
            )
        if self.info.variant is not None:
            known["variant"] = self.info.variant
        return known

    def protocol_of(self, spec: str) -> str:
        """Return the protocol by which single edits are judged where scores decide: that of the run
        for its own judge, if that turned out to measure, else the built-in one.
        """
        if self.info.protocol is not None and self.measured(spec):
            return self.info.protocol
        return "aspects"


def settings_of_duels(
    known: KnownJudge, suite: str, options: JudgeOptions, gates: GatesSettings, out: Path
) -> Settings:
    """Return settings for duels of edits of a suite, by the judge of the options or else the
    `known` one; raise `UsageError` if the judge does not score edits, or has a secret that results
    do not tell.
    """
    raw = options.tables(out)
    for name in ("judges", "metrics"):  # additional ones decide no duel
        raw.pop(name, None)
    raw["editor"] = {"spec": "identity"}
    raw["suite"] = {"spec": suite}
    raw["run"]["stage"] = "all"
    judge = raw.setdefault("judge", {})
    if "spec" not in judge:
        judge = raw["judge"] = known.table | judge
    judge["protocol"] = known.protocol_of(str(judge["spec"]))
    settings = make_settings(raw)
    if not settings.judge.scores:
        raise errors.UsageError(
            f"judge {settings.judge.spec!r} does not score edits; choose another judge"
        )
    return _with_gates(settings, gates)


def _has_mask(value: object) -> bool:
    """Tell whether a secret in a value was masked."""
    if isinstance(value, Mapping):
        return any(map(_has_mask, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_mask, value))
    return isinstance(value, str) and redaction.MASK in value


def _with_gates(settings: Settings, gates: GatesSettings) -> Settings:
    """Return settings with the gates of the command, and the judge tried by default."""
    of_config = {name: getattr(settings.gates, name) for name in _OF_CONFIG}
    of_config["baselines"] = of_config["baselines"] or baselines_folder()
    of_config["baseline_store"] = of_config["baseline_store"] or baseline_store()
    judge = settings.judge
    if judge.controls == "auto":
        judge = judge.model_copy(update={"controls": True})
    judge = judge.model_copy(update={"repeats": 0})
    gates = gates.model_copy(update=of_config)
    return settings.model_copy(update={"gates": gates, "judge": judge})
