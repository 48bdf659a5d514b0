"""Gates on what a run holds: pairs without a score, pairs of the baseline, near-copies, and where
it was computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_imgedit.core.results import GateOptions, GateResult, Item, State
from pytest_imgedit.stats.gates import Observation, estimate_field, filled
from pytest_imgedit.stats.outcome import copies_line


def allowed_pairs(limit: float, pairs: int) -> int:
    """Turn a limit on pairs into a count: a float is a fraction of the pairs, rounded down."""
    if isinstance(limit, float):
        return int(limit * pairs + 1e-9)
    return limit


def coverage(
    settings: GateOptions, scores: Sequence[Observation], errors: int, scores_expected: bool = True
) -> GateResult:
    """Gate the pairs that ended in an error; where there are some, say what the overall score could
    have been.
    """
    n, scored = len(scores), sum(one.value is not None for one in scores)
    allowed = allowed_pairs(settings.max_errors, n)
    state: State = "PASS" if errors <= allowed else "FAIL"
    why = (
        f"{errors} of {n} pairs without {'a score' if scores_expected else 'an edit'}, "
        f"{allowed} allowed"
    )
    if scores_expected and not scored and state == "PASS":
        state, why = "INVALID", "no pair has a score"  # missing data never passes
    elif scores_expected and scored and errors:
        worst, best = (estimate_field("overall", filled(scores, part)) for part in (0, 1))
        if worst is not None and best is not None:
            why += f" (with theirs, overall would be between {worst.mean:.2f} and {best.mean:.2f})"
    return GateResult("overall", "max_errors", allowed, errors, state, why)


def baseline_coverage(
    settings: GateOptions, differences: Sequence[Observation], size: int, baseline: str
) -> GateResult:
    """Gate how many of the baseline's `size` pairs are compared."""
    compared = sum(pair.value is not None for pair in differences)
    state: State = "PASS" if compared >= settings.min_coverage * size - 1e-9 else "FAIL"
    why = (
        f"{compared} of the {size} pairs of {baseline} are compared, "
        f"{settings.min_coverage:.0%} asked for"
    )
    return GateResult(
        "overall",
        "min_coverage",
        settings.min_coverage,
        compared / size if size else 0.0,
        state,
        why,
    )


def against_environment(
    settings: GateOptions, found: Sequence[GateResult], differences: Sequence[str]
) -> list[GateResult]:
    """Refuse gates against a baseline that was computed in another environment, where
    `gates.environment` is `same`.
    """
    if settings.environment == "any" or not differences:
        return list(found)
    why = f"computed in other environments (gates.environment): {'; '.join(differences)}"
    return [replace(gate, state="INVALID", why=f"{gate.why}: {why}") for gate in found]


def against_near_copies(
    settings: GateOptions, found: Sequence[GateResult], items: Sequence[Item]
) -> list[GateResult]:
    """Let no gate on scores pass where more than `gates.max_near_copies` of its edits hardly differ
    from their source.

    A judge that gives such edits a passing score does not look at them. What is shown to fail stays
    so.
    """
    return [_against_near_copies(settings, gate, items) for gate in found]


def _against_near_copies(
    settings: GateOptions, gate: GateResult, items: Sequence[Item]
) -> GateResult:
    if gate.kind not in ("fail_under", "max_drop") or gate.state not in ("PASS", "INCONCLUSIVE"):
        return gate
    edits = [
        edit for item in items if gate.field in ("overall", item.category) for edit in item.edits
    ]
    copies = sum(edit.near_copy for edit in edits)
    if copies <= settings.max_near_copies * len(edits):
        return gate
    allowed = f"gates.max_near_copies allows {settings.max_near_copies:.0%}"
    why = f"{copies_line(copies, len(edits))}, {allowed}"
    return replace(gate, state="INVALID", why=f"{gate.why}: {why}")
