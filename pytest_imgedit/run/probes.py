"""Probes of a run: what its workers compute, compared with stored results and with the baseline.

A probe is the digest of what a loaded model makes of a fixed request (`Environment.probe`).
"""

from collections.abc import Iterable, Sequence

from pytest_imgedit.core.environments import Environment, Reuse
from pytest_imgedit.core.text import counted
from pytest_imgedit.kinds.base import Role
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.work import Work
from pytest_imgedit.stats import comparison
from pytest_imgedit.store.baselines import refuse


def refuse_other_probe(plan: RunPlan, role: Role, here: Environment) -> None:
    """Raise `UsageError` for a loaded model that computes otherwise than the baseline's, if
    `gates.environment` is `same`; a model of another recipe may compute otherwise.
    """
    baseline = plan.request.baseline
    if baseline is None or plan.settings.gates.environment == "any":
        return
    model = baseline.editor if role == "editor" else baseline.judge
    if model.recipe != plan.identities[role].digest:
        return
    stage = "edits" if role == "editor" else "verdicts"
    before = comparison.places_of(stage, baseline.environments)
    differences = "; ".join(comparison.other_probes(stage, before, [here]))
    if differences:
        refuse(baseline, f'computed otherwise (gates.environment="same"): {differences}')


def probed(plan: RunPlan, works: Iterable[Work], role: Role) -> list[tuple[Work, Environment]]:
    """Return the works whose edit or verdict was computed by a model with a probe, and its
    environment.
    """
    computed: list[tuple[Work, Environment]] = []
    for work in works:
        result = work.edit if role == "editor" else work.verdict
        if result is None:
            continue
        environment = plan.store.environments[result.environment]
        if environment.probe:
            computed.append((work, environment))
    return computed


def unlike(
    plan: RunPlan, works: Sequence[Work], role: Role, here: Sequence[Environment]
) -> list[Work]:
    """Return the works whose edit or verdict has another probe than the loaded workers `here`."""
    unlike_works: list[Work] = []
    for work, environment in probed(plan, works, role):
        if any(environment.has_other_probe(loaded) for loaded in here):
            unlike_works.append(work)
    return unlike_works


def reuse_line(role: Role, count: int, reuse: Reuse) -> str:
    """Say what becomes of this many stored edits, or verdicts of the judge, with another probe."""
    stored = counted(count, "stored edit" if role == "editor" else "stored verdict")
    difference = f"another probe than the {role} has now on this type of GPU"
    if reuse == "exact":
        return f"{stored} with {difference}: made again (--imgedit-reuse=exact)"
    return (
        f"warning: {stored} with {difference}: reused (--imgedit-reuse={reuse}); "
        "--imgedit-reuse=exact makes them again"
    )
