"""A line per category, once the last of its pairs has a score or an error."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from pytest_imgedit.core.text import shorten
from pytest_imgedit.report.progress import RunProgress
from pytest_imgedit.run.items import make_items
from pytest_imgedit.run.work import Work, grouped

#: The lines of more categories than these are in the log alone.
MOST_SHOWN = 12
#: What a line calls the pairs without a score.
_WORDS = {"edit_error": "failed", "judge_error": "failed"}
#: How many characters of the suite's name of a category a line shows.
MOST_OF_LABEL = 40


class Categories:
    """Follows the categories of a run, and names each once when it is finished.

    A category for which the run computes nothing is not named. `labels` are the suite's own names.
    """

    def __init__(
        self, works: Sequence[Work], labels: Mapping[str, str], progress: RunProgress
    ) -> None:
        self._works = grouped(works, lambda work: work.pair.category)
        self._open = {category: list(group) for category, group in self._works.items()}
        self._labels = labels
        self._computed: set[str] = set()
        self._say = progress.note if len(self._works) <= MOST_SHOWN else progress.log

    def computed(self, work: Work) -> None:
        """Note that this run has made an edit or a verdict, or has failed to."""
        self._computed.add(work.pair.category)

    def scored(self, work: Work) -> None:
        """Note a verdict or its error, and name its category if that was the last one."""
        self.computed(work)
        self._look(work.pair.category)

    def look(self) -> None:
        """Name the categories whose last pair has failed, or has a stored verdict."""
        for category in self._computed & self._open.keys():
            self._look(category)

    def _look(self, category: str) -> None:
        """Name a category if none of its judgements is open any more, and it was not named yet."""
        still_open = self._open.get(category, [])
        while still_open and not still_open[-1].judgement.is_open:
            still_open.pop()
        if not still_open and self._open.pop(category, None) is not None:
            self._say(self._line(category))

    def _line(self, category: str) -> str:
        """Return the line of a category: how many pairs are scored, how many are in another state,
        and the mean score.
        """
        items = make_items(self._works[category], needs_verdict=True, stopped_by="")
        scores = [item.score for item in items if item.score is not None]
        states = Counter(_WORDS.get(item.status, item.status) for item in items)
        total = len(items) - states.pop("not_needed", 0)
        scored = states.pop("scored", 0)
        label = shorten(self._labels.get(category, ""), MOST_OF_LABEL)
        name = f"{category} {label}".rstrip()
        parts = [f"{name}: {scored} of {total} scored"]
        for state, number in sorted(states.items()):
            parts.append(f"{number} {state}")
        if scores:
            parts.append(f"mean {fmean(scores):.2f}")
        return ", ".join(parts)
