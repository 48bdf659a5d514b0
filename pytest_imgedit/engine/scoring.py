"""From an edit to a question, and from an answer to a verdict: what one judge and one rubric make of a work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pytest_imgedit.config.settings import JudgeSettings
from pytest_imgedit.core.environments import Reuse, key
from pytest_imgedit.core.errors import ImageError, ReplyError
from pytest_imgedit.core.protocol import AnswerMessage, QuestionMessage
from pytest_imgedit.core.redaction import Redactor
from pytest_imgedit.core.reply import SCALE
from pytest_imgedit.core.results import Usage, Verdict
from pytest_imgedit.core.sanitize import shorten
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.engine.perturbations import perturbed
from pytest_imgedit.engine.reuse import reusable
from pytest_imgedit.engine.work import Work
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.protocols.rubric import Rubric
from pytest_imgedit.store.records import VerdictRecord
from pytest_imgedit.store.store import Store
from pytest_imgedit.workers.base import Worker

#: What a record of a verdict holds of it.
_SAID = ("reply", "aspects", "score", "batch_size", "greedy", "off_scale", "measured")


class BadScore(ReplyError):
    """A number of the judge's own that is no score; asking again would not help."""


def verdict_recipe(judge: Identity, rubric: Rubric, work: Work) -> JsonObject:
    """Return all that decides a verdict, but for the environment: images, rendered prompts, score formula, judge.

    The text of a reminder is not among it: only a verdict that needed one depends on it.
    """
    pair = work.pair
    recipe: JsonObject = {"judge": judge.digest}
    shown = {
        "source": work.source.sha256 if work.source else None,
        "edited": work.edit.blob if work.edit else None,
        "reference": work.reference.sha256 if work.reference else None,
    }
    if not judge.model.measures:
        system, parts = rubric.render(pair)
        asked = {"system": system, "parts": [list(part) for part in parts]}
        recipe["asked"] = {**asked, "aspects": list(rubric.aspects), "formula": rubric.score}
        if not judge.sees_pair:  # it is shown the prompt, and nothing else of the pair
            names = {text for kind, text in parts if kind == "image"}
            shown = {name: sha256 for name, sha256 in shown.items() if name in names}
    if judge.sees_pair:
        recipe |= {"pair": pair.id, "category": pair.category, "instruction": pair.instruction}
    if work.perturbation:
        recipe |= {"repeat": work.repeat, "perturbation": work.perturbation}
    return {**recipe, **shown}


class Scorer:
    """Scores edits with one judge and one rubric. Replies are kept without the secrets that `redactor` knows."""

    def __init__(
        self, settings: JudgeSettings, judge: Identity, rubric: Rubric, store: Store, redactor: Redactor
    ) -> None:
        self.settings, self.judge, self.rubric, self.store, self.redactor = settings, judge, rubric, store, redactor
        self.first_at = 0.0  # when the first batch was scored, by the run's clock
        self.tokens = {"tokens_in": 0, "tokens_out": 0}  # what answers cost, re-asks and unreadable ones too

    @property
    def usage(self) -> Usage | None:
        """The tokens of this run's answers and their cost; `None` for a judge that is not paid by tokens."""
        prices = self.judge.model.requirements.prices
        if prices is None:
            return None
        cost = (self.tokens["tokens_in"] * prices[0] + self.tokens["tokens_out"] * prices[1]) / 1e6
        return Usage(**self.tokens, cost=round(cost, 6) if any(prices) else None)

    def stored_verdict(self, work: Work, policy: Reuse) -> Verdict | None:
        """Return the verdict that an earlier run reached, if the policy lets it count.

        One that took reminders counts only while these read the same and as many are allowed.
        """

        def could_be(record: VerdictRecord) -> bool:
            reminded = record.asked > 1
            return not reminded or (
                record.reminder == self.rubric.reminder and record.asked <= 1 + self.settings.reasks
            )

        records = self.store.verdicts.of_content(key(verdict_recipe(self.judge, self.rubric, work)))
        record = reusable(records, self.judge.here, policy, could_be)
        return None if record is None else self._verdict_of(record)

    def _verdict_of(self, record: VerdictRecord) -> Verdict:
        self.store.environments[record.environment.digest] = record.environment
        said = record.model_dump(include={*_SAID, "key"})
        return Verdict(**said, environment=record.environment.digest)

    def question(self, work: Work) -> QuestionMessage:
        """Build the message that asks about one edit; raise `ImageError` if an image cannot be read."""
        system, parts = self.rubric.render(work.pair)
        edited = self.store.blobs.get(work.edit.blob) if work.edit else None
        if edited is None or work.source is None:
            raise ImageError("the edited image is not in the store any more, or was damaged")
        images = {"source": work.source.read(), "edited": edited}
        if work.reference is not None:
            images["reference"] = work.reference.read()
        parts, images = perturbed(work, parts, images)
        return {
            "pair": work.pair.id,
            "category": work.pair.category,
            "instruction": work.pair.instruction,
            "images": images,
            "system": system,
            "aspects": list(self.rubric.aspects),
            "parts": [*parts, *(("text", f"\n{text}") for text in work.reminders[-1:])],
        }

    def read(self, work: Work, answer: AnswerMessage) -> bool:
        """Turn an answer into the work's verdict or error; return whether it is to be asked again instead."""
        self.tokens["tokens_in"] += answer["tokens_in"]
        self.tokens["tokens_out"] += answer["tokens_out"]
        try:
            work.verdict = self._verdict(answer)
        except ReplyError as error:
            readable = answer["error"] is not None or isinstance(error, BadScore)
            if not readable and len(work.reminders) < self.settings.reasks:
                work.reminders.append(self.rubric.remind("it was too long" if answer["cut"] else str(error)))
                return True
            reply = None if readable else self.redactor.text(answer["reply"])
            kind = "judge" if answer["error"] is not None else "bad_score" if readable else "unreadable_reply"
            work.fail("score", kind, shorten(self.redactor.text(str(error))), reply)
        return False

    def _verdict(self, answer: AnswerMessage) -> Verdict:
        if answer["error"] is not None:
            raise ReplyError(answer["error"])
        if answer["score"] is not None:
            return self._measured(answer, answer["score"])
        if answer["cut"]:  # in the middle of a number, or of a thought
            raise ReplyError("the reply was cut short, expected a larger judge.max_new_tokens or shorter replies")
        reply, (aspects, score) = self.redactor.text(answer["reply"]), self.rubric.read(answer["reply"])
        if not answer["expected"]:
            return Verdict(reply, aspects, score, answer["batch_size"])
        expected = self._expected(answer["expected"])
        off_scale = min(1.0, max(0.0, answer["off_scale"]))
        return Verdict(reply, expected, self.rubric.combine(expected), answer["batch_size"], score, off_scale)

    def _measured(self, answer: AnswerMessage, score: float) -> Verdict:
        if not (math.isfinite(score) and SCALE[0] <= score <= SCALE[1]):
            raise BadScore(f"the judge's score is {score}, expected a number from 0 to 10")
        if not all(map(math.isfinite, answer["aspects"].values())):
            raise BadScore(f"the judge's aspects are {answer['aspects']}, expected finite numbers")
        reply = self.redactor.text(answer["reply"])
        return Verdict(reply, answer["aspects"], score, answer["batch_size"], measured=True)

    def _expected(self, grades: Mapping[str, float]) -> dict[str, float]:
        """Check the expected grades of an answer; raise `BadScore` if they are not one in [0, 10] for each aspect."""
        values = {name: grades.get(name, math.nan) for name in self.rubric.aspects}
        for name, value in values.items():
            if not SCALE[0] <= value <= SCALE[1]:
                raise BadScore(f"the expected grade of {name!r} is {value}, expected a number from 0 to 10")
        return values

    def keep(self, works: Sequence[Work], worker: Worker) -> None:
        """Store the verdicts that a worker reached; each then names its record."""
        if not (reached := [work for work in works if work.verdict is not None]):
            return  # by a worker that may never have loaded
        environment, code = worker.computes_in, self.judge.code_beside(worker.code)
        records = []
        for work in reached:
            recipe = verdict_recipe(self.judge, self.rubric, work)
            record = VerdictRecord(
                key=key(recipe, environment),
                content=key(recipe),
                recipe=recipe,
                environment=environment,
                **{name: getattr(work.verdict, name) for name in _SAID},
                asked=1 + len(work.reminders),
                reminder=self.rubric.reminder if work.reminders else "",
                code=code,
            )
            records.append(record)
            work.verdict = self._verdict_of(record)
        self.store.verdicts.append(records)
