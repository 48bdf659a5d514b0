"""What a plan says of GPUs for the judge alone (`workers.judge_gpus`): how long a run takes with
and without them, by earlier runs of the store.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pytest_imgedit.config.settings import WorkersSettings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.text import counted
from pytest_imgedit.kinds.base import Role
from pytest_imgedit.run.costs import SAME_QUESTIONS, Billing
from pytest_imgedit.run.duels import plan_duels
from pytest_imgedit.run.durations import Durations, Pace, pace_of
from pytest_imgedit.run.forecast import is_same_model, newest_runs, planned_trials
from pytest_imgedit.run.placement import place
from pytest_imgedit.run.plan import RunPlan
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.work import Judgement, missing_edits
from pytest_imgedit.workers.gpus import parse_gpus
from pytest_imgedit.workers.hardware import Hardware, HostHardware

#: Estimates that differ by a smaller share, or by fewer seconds, are equal.
NOTABLE = 0.05
NOTABLE_SECONDS = 10.0


def lines(plan: RunPlan) -> Iterator[str]:
    """Yield a line if GPUs for the judge alone would save time, or if the run has some: how long
    it takes with and without them.

    Nothing is said where models would stay side by side without them, and where earlier runs of the
    store do not tell the pace of both.
    """
    if not _may_swap(plan):
        return
    durations = estimate(plan)
    if durations is None or not durations.edits + durations.waiting + durations.later:
        return
    [host] = plan.hardware.hosts
    told = _comparison(durations, host, plan.settings.workers)
    if told:
        subject = "editing and judging take" if durations.edits else "judging takes"
        yield f"plan: {subject} about {told} ({_facts(durations)})"


def _comparison(durations: Durations, host: HostHardware, workers: WorkersSettings) -> str:
    """Say how long a run takes with and without GPUs for the judge alone; an empty text if it has
    none, and they would save nothing.
    """
    gpus = len(host.gpus)
    own = len(host.judge_gpus)
    best = durations.best(gpus)
    swapping = durations.one_after_the_other(gpus)
    least = durations.side_by_side(gpus, best) if best else swapping
    if not own:
        if not _saves(least, swapping):
            return ""
        chosen = _last_numbers(workers.gpus, gpus, best)
        return (
            f"{_time(swapping)} one after the other, and about {_time(least)} with "
            f"workers.judge_gpus={chosen}"
        )
    seconds = durations.side_by_side(gpus, own)
    told = f"{_time(seconds)} with workers.judge_gpus={workers.judge_gpus}"
    if _saves(seconds, swapping) or _saves(swapping, seconds):
        told += f", and about {_time(swapping)} on all {gpus} GPUs without it"
    else:
        told += f", as on all {gpus} GPUs without it"
    if best and _saves(least, min(seconds, swapping)):
        told += f"; about {_time(least)} with {counted(best, 'GPU')} for the judge"
    return told


def estimate(plan: RunPlan) -> Durations | None:
    """Return how long the edits and verdicts of a plan take, by the newest runs of the store with
    the same models on the same type of GPUs; `None` if these do not tell.
    """
    assert plan.scorer is not None
    edits = len(missing_edits(plan.works))
    paces = _known_paces(plan, plan.scorer)
    if "judge" not in paces or (edits and "editor" not in paces):
        return None
    editor = plan.models["editor"]
    billing = Billing(plan.settings.run)
    trials = planned_trials(plan)
    later = _count(billing, plan.scorer, trials.judgements)
    if plan.duelling is not None:
        duels = plan_duels(plan.duelling, trials)
        later += _count(billing, duels.scorer, duels.judgements)
    stored = [Judgement(work) for work in plan.works if work.edit is not None]
    return Durations(
        editor=paces.get("editor"),
        judge=paces["judge"],
        edits=edits,
        waiting=_count(billing, plan.scorer, stored),
        later=later,
        editor_gpus=editor.gpus,
        judge_gpus=plan.models["judge"].gpus,
        edits_a_call=editor.batch_size if editor.pads_batches else 1,
    )


def _may_swap(plan: RunPlan) -> bool:
    """Tell whether a run would change models on its GPUs without GPUs for the judge alone, and
    could have these.
    """
    hardware = plan.hardware
    if plan.scorer is None or plan.settings.run.stage not in ("all", "score"):
        return False
    if plan.blocks is not None or hardware.remote or plan.settings.workers.placement != "auto":
        return False
    if any(model.role == "judge" for model in plan.request.additional.values()):
        return False
    models = [plan.models["editor"], plan.models["judge"]]
    if any(model.is_served for model in models):
        return False
    [host] = hardware.hosts
    if len(host.gpus) < 2:
        return False
    shared = Hardware((replace(host, judge_gpus=()),))
    try:
        return place(models, shared, "auto", plan.peaks).mode == "swap"
    except UsageError:
        return False


def _known_paces(plan: RunPlan, scorer: Scorer) -> dict[Role, Pace]:
    """Return the paces of the models in the newest runs that tell them, on the same types of GPUs,
    which have to be known.
    """
    products = {gpu.product for gpu in plan.hardware.gpus}
    paces: dict[Role, Pace] = {}
    for results in newest_runs(plan.request.suite, plan.store):
        if not products or set(results.run.machine.gpus) != products:
            continue
        for role, identity in plan.identities.items():
            if role in paces or not is_same_model(role, results, plan.settings, identity):
                continue
            if role == "judge" and any(
                getattr(results.judge, name) != scorer.facts[name] for name in SAME_QUESTIONS
            ):
                continue
            pace = pace_of(role, results)
            if pace is not None:
                paces[role] = pace
        if len(paces) == len(plan.identities):
            break
    return paces


def _count(billing: Billing, scorer: Scorer, judgements: Iterable[Judgement]) -> int:
    """Count the judgements that the store does not have."""
    asks = billing.questions(scorer, judgements).asks
    return len({id(ask.judgement) for ask in asks})


def _saves(seconds: float, others: float) -> bool:
    """Tell whether one way takes notably less than another."""
    return others - seconds > max(NOTABLE * others, NOTABLE_SECONDS)


def _last_numbers(gpus: str, count: int, last: int) -> str:
    """Return the last GPUs of a list as `--imgedit-gpus` takes it, which names `count`."""
    numbers = (list(range(count)) if gpus == "auto" else parse_gpus(gpus))[-last:]
    first, end = min(numbers), max(numbers)
    if last > 1 and sorted(numbers) == list(range(first, end + 1)):
        return f"{first}-{end}"
    return ",".join(str(number) for number in numbers)


def _facts(durations: Durations) -> str:
    """Say by which runs, and how long an edit and a verdict take."""
    judge = durations.judge
    runs = [judge.run]
    facts = f"a verdict takes {_seconds(judge.job)}"
    if durations.editor is not None and durations.edits:
        runs.insert(0, durations.editor.run)
        facts = f"an edit takes {_seconds(durations.editor.job)}, a verdict {_seconds(judge.job)}"
    runs = list(dict.fromkeys(runs))
    noun = "run" if len(runs) == 1 else "runs"
    return f"by {noun} {' and '.join(runs)}: {facts}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2g} s"


def _time(seconds: float) -> str:
    """Format a duration, such as `42 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    number, unit = (seconds / 60, "min") if seconds < 90 * 60 else (seconds / 3600, "h")
    return f"{number:.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"
