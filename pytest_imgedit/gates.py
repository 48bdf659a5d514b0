"""Rules over a run that decide the exit code."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_imgedit.errors import UsageError
from pytest_imgedit.pairs import category_slug

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_imgedit.config import GatesSettings
    from pytest_imgedit.stats import Summary


@dataclass(frozen=True)
class GateResult:
    """What a gate found: `value` against `limit` and, in one line, why it is in its state."""

    field: str
    kind: Literal["fail_under", "max_errors"]
    limit: float
    value: float | None
    state: Literal["PASS", "FAIL", "INVALID"]
    why: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_fields(fields: Iterable[str], categories: Iterable[str]) -> None:
    """Raise `UsageError` if a gate names neither `overall` nor a category of the suite."""
    known = ["overall", *categories]
    for field in fields:
        if field != "overall" and category_slug(field) not in known:
            raise UsageError(f"gates.fail_under: unknown field {field!r}, expected one of: {', '.join(known)}")


def check_counts(fields: Iterable[str], counts: Mapping[str, int]) -> None:
    """Raise `UsageError` if a gated category has fewer than the two pairs that make a mean worth gating."""
    for field in map(category_slug, fields):
        if field != "overall" and counts.get(field, 0) < 2:
            raise UsageError(
                f"gates.fail_under: {field!r} has {counts.get(field, 0)} of the selected pairs, expected at least 2"
            )


def errors_allowed(limit: float, pairs: int) -> int:
    """Turn `--imgedit-max-errors` into a count: a float is a fraction of the pairs, rounded down."""
    return int(limit * pairs + 1e-9) if isinstance(limit, float) else limit


def evaluate(
    settings: GatesSettings, categories: Mapping[str, Summary], overall: Summary, scores_expected: bool = True
) -> list[GateResult]:
    """Evaluate all gates; `overall` is the macro summary. A field without a score is INVALID, which fails too."""
    allowed = errors_allowed(settings.max_errors, overall.n)
    state: Literal["PASS", "FAIL", "INVALID"] = "PASS" if overall.errors <= allowed else "FAIL"
    lack = "a score" if scores_expected else "an edit"
    why = f"{overall.errors} of {overall.n} pairs without {lack}, {allowed} allowed"
    if scores_expected and overall.scored == 0 and state == "PASS":
        state, why = "INVALID", "no pair has a score"  # missing data never passes
    gates = [GateResult("overall", "max_errors", allowed, overall.errors, state, why)]
    for field, limit in settings.fail_under.items():
        name = category_slug(field) if field != "overall" else field
        summary = overall if name == "overall" else categories.get(name)
        if summary is None or summary.mean is None:
            gates.append(
                GateResult(name, "fail_under", limit, None, "INVALID", f"{name} has no mean score in this run")
            )
            continue
        state = "PASS" if summary.mean >= limit else "FAIL"
        sign = ">=" if state == "PASS" else "<"
        gates.append(
            GateResult(name, "fail_under", limit, summary.mean, state, f"{name} {summary.mean:.3f} {sign} {limit:g}")
        )
    return gates
