"""Further judges and metrics, which score the same edits as the judge of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_imgedit.core.measures import SCORE, SCORE_ONLY, further_score
from pytest_imgedit.core.results import Measure
from pytest_imgedit.kinds.base import Metric, Model
from pytest_imgedit.run.score import Scorer
from pytest_imgedit.run.work import Work


def named_measures(name: str, model: Model, declared: Mapping[str, Measure]) -> dict[str, Measure]:
    """Return what a further judge or metric measures edits by: a metric by `NAME`, a judge by
    `NAME.score` and by `NAME.ASPECT` for what it or its protocol has `declared`.
    """
    if isinstance(model, Metric):
        return {name: model.measure.model_copy(update={"is_main": True})}
    score = SCORE_ONLY[SCORE].model_copy(update={"is_main": True})
    aspects = {
        f"{name}.{aspect}": measure.model_copy(update={"is_main": False})
        for aspect, measure in declared.items()
    }
    return {further_score(name): score, **aspects}


@dataclass(frozen=True)
class FurtherScorer:
    """A further judge or a metric, by its `name` in the settings."""

    name: str
    scorer: Scorer

    @property
    def model(self) -> Model:
        return self.scorer.judge.model

    @property
    def is_judge(self) -> bool:
        """Whether it is a judge; else it is a metric."""
        return not isinstance(self.model, Metric)

    @property
    def measures(self) -> dict[str, Measure]:
        """What it measures edits by."""
        return named_measures(self.name, self.model, self.scorer.measures)

    @property
    def title(self) -> str:
        """What it is called in lines of a run."""
        return f"{self.model.role} {self.name}"

    def scorable(self, works: Sequence[Work]) -> list[Work]:
        """Return the works of pairs that have what it needs."""
        return [work for work in works if work.reference or not self.model.needs_reference]

    def take(self, works: Sequence[Work]) -> list[Work]:
        """Make a work of its own about each edit that it can score; `Work.scored` holds it."""
        taken = []
        for work in self.scorable(works):
            if work.edit is not None and (work.error is None or work.error.stage == "score"):
                work.scored[self.name] = replace(
                    work, verdict=None, error=None, failures=0, answers={}, scored={}
                )
                taken.append(work.scored[self.name])
        return taken
