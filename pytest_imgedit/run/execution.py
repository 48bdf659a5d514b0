"""Plans a run and executes it."""

from collections.abc import Callable
from dataclasses import replace

from pytest_imgedit.run import forecast, plan_checks, pools
from pytest_imgedit.run.plan import RunPlan, make_plan
from pytest_imgedit.run.request import Request
from pytest_imgedit.store.store import Store


def prepare(
    request: Request, store: Store, launcher: pools.Launcher, note: Callable[[str], None]
) -> RunPlan:
    """Plan a run, check the plan and say what it will do; `note` takes the lines.

    Raises `UsageError` if the run could only fail.
    """
    for line in forecast.request_lines(request, store):
        note(line)
    for line in plan_checks.store_warnings(store):
        note(line)
    plan = make_plan(request, store, launcher, note)
    plan_checks.check_plan(plan)
    for line in plan_checks.plan_warnings(plan):
        note(line)
    for line in forecast.plan_lines(plan):
        note(line)
    if not plan.hardware.has_gpus:
        return plan
    peaks = forecast.known_peaks(plan.settings, plan.identities, request.suite, store)
    return replace(plan, peaks=peaks)
