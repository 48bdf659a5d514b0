"""Gates on what a run holds: pairs without a score, the pairs of the baseline, and where both were computed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_imgedit.stats.gates import GateResult, estimate_field, filled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_imgedit.config import GatesSettings
    from pytest_imgedit.stats.gates import Observation, State


def allowed_pairs(limit: float, pairs: int) -> int:
    """Turn a limit on pairs into a count: a float is a fraction of the pairs, rounded down."""
    return int(limit * pairs + 1e-9) if isinstance(limit, float) else limit


def coverage(
    settings: GatesSettings, scores: Sequence[Observation], errors: int, scores_expected: bool = True
) -> GateResult:
    """Gate the pairs that ended in an error; where there are some, say what the overall score could have been."""
    n, scored = len(scores), sum(one.value is not None for one in scores)
    allowed = allowed_pairs(settings.max_errors, n)
    state: State = "PASS" if errors <= allowed else "FAIL"
    why = f"{errors} of {n} pairs without {'a score' if scores_expected else 'an edit'}, {allowed} allowed"
    if scores_expected and not scored and state == "PASS":
        state, why = "INVALID", "no pair has a score"  # missing data never passes
    elif scores_expected and scored and errors:
        worst, best = (estimate_field("overall", filled(scores, part)) for part in (0, 1))
        if worst is not None and best is not None:
            why += f" (with theirs, overall would be between {worst.mean:.2f} and {best.mean:.2f})"
    return GateResult("overall", "max_errors", allowed, errors, state, why)


def baseline_coverage(
    settings: GatesSettings, differences: Sequence[Observation], size: int, baseline: str
) -> GateResult:
    """Gate how many of the baseline's `size` pairs are compared."""
    compared = sum(pair.value is not None for pair in differences)
    state: State = "PASS" if compared >= settings.min_coverage * size - 1e-9 else "FAIL"
    why = f"{compared} of the {size} pairs of {baseline} are compared, {settings.min_coverage:.0%} asked for"
    return GateResult("overall", "min_coverage", settings.min_coverage, compared / size if size else 0.0, state, why)


def against_environment(
    settings: GatesSettings, found: Sequence[GateResult], differences: Sequence[str]
) -> list[GateResult]:
    """Refuse gates against a baseline that was computed in another environment, where `gates.environment` is `same`."""
    if settings.environment == "any" or not differences:
        return list(found)
    why = f"computed in other environments (gates.environment): {'; '.join(differences)}"
    return [replace(gate, state="INVALID", why=f"{gate.why}: {why}") for gate in found]
