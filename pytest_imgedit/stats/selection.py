"""Which gates a selection of pairs can decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.core.results import GateResult

Kind = Literal["fail_under", "max_drop"]


@dataclass(frozen=True)
class Selection:
    """How many pairs of each category are selected, and how many there are.

    Pairs that a user's mark skips are in neither: they do not count at all. `skipped` is their
    number.
    """

    selected: Mapping[str, int]
    whole: Mapping[str, int]
    skipped: int = 0

    @classmethod
    def of(
        cls, selected: Iterable[str], counts: Mapping[str, int], skipped: Iterable[str]
    ) -> Selection:
        """Count categories: those of the selected pairs, `counts` of all pairs, and those of the
        skipped ones.
        """
        left_out = Counter(skipped)
        whole = {
            name: count - left_out[name] for name, count in counts.items() if count > left_out[name]
        }
        return cls(Counter(selected), whole, left_out.total())

    @property
    def is_part(self) -> bool:
        """Tell whether pairs that count are not selected."""
        return sum(self.selected.values()) < sum(self.whole.values())

    def counts(self, field: str) -> tuple[int, int]:
        """Return how many pairs of a gate's field are selected, and how many there are."""
        if field == "overall":
            return sum(self.selected.values()), sum(self.whole.values())
        return self.selected.get(field, 0), self.whole.get(field, 0)


def narrow(
    gates: GatesSettings, selection: Selection, asked: Collection[str]
) -> tuple[GatesSettings, list[GateResult]]:
    """Split gates into those that the selected pairs decide, and those that are NOT SELECTED.

    Gates of the command line (`asked`) are decided on whatever is selected. Those of a config rest
    if none of their pairs is selected, or only some and `gates.partial` is `skip`.
    """
    kept: dict[Kind, dict[str, float]] = {"fail_under": {}, "max_drop": {}}
    resting: list[GateResult] = []
    for kind, limits in kept.items():
        for field, limit in getattr(gates, kind).items():
            some, whole = selection.counts(field)
            is_whole = some == whole > 0 and (some >= 2 or field == "overall")
            if f"gates.{kind}" in asked or is_whole or (gates.partial == "decide" and some >= 2):
                limits[field] = limit
            else:
                why = f"{field}: {some} of its {whole} pairs are selected"
                resting.append(GateResult(field, kind, limit, None, "NOT SELECTED", why))
    update: dict[str, Any] = dict(kept.items())
    if (
        gates.min_coverage
        and "gates.min_coverage" not in asked
        and selection.is_part
        and gates.partial == "skip"
    ):
        update["min_coverage"] = 0.0
        some, whole = selection.counts("overall")
        why = f"min_coverage: {some} of {whole} pairs are selected"
        resting.append(
            GateResult("overall", "min_coverage", gates.min_coverage, None, "NOT SELECTED", why)
        )
    if not (kept["fail_under"] or kept["max_drop"]) and "gates.until" not in asked:
        update["until"] = "all"
    return gates.model_copy(update=update), resting
