"""`imgedit qualify`: try a judge on edits of known quality, alone, and print its card."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from itertools import chain
from pathlib import Path

from pytest_imgedit.config.options import Tables, assign
from pytest_imgedit.config.settings import Settings, make_settings, read_tables
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.results import JudgeInfo, SuiteInfo
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.identity import Identity
from pytest_imgedit.protocols.rubric import Rubric
from pytest_imgedit.report import tables, terminal
from pytest_imgedit.report.progress import RunProgress
from pytest_imgedit.run.controls import Trials, control_trials
from pytest_imgedit.run.hooks import no_hooks
from pytest_imgedit.run.placement import groups_of
from pytest_imgedit.run.plan import Models, Request, RunPlan, ask_servers
from pytest_imgedit.run.pools import Launcher, connected, is_remote
from pytest_imgedit.run.preflight import check_executor, check_models, check_rubric
from pytest_imgedit.run.run import Run, RunContext
from pytest_imgedit.run.score import Scorer
from pytest_imgedit.stats.controls import controls_gate, describe_controls
from pytest_imgedit.stats.gates import Selection
from pytest_imgedit.store.store import Store
from pytest_imgedit.suites.base import load_suite
from pytest_imgedit.workers.hardware import Hardware


def qualify(
    judge: str | None,
    suite: str | None,
    gpus: str | None,
    config: Path | None,
    assigned: Sequence[str],
    out: Path,
) -> tuple[JsonObject, str, int]:
    """Have a judge score the controls of a suite; arguments take precedence over the config.

    Verdicts are kept in the store `out`, where runs with gates find them.
    """
    raw = read_tables(config)
    assign(raw, assigned, "--set")
    for section, key, value in (
        ("judge", "spec", judge),
        ("suite", "spec", suite),
        ("workers", "gpus", gpus),
    ):
        if value is not None:
            raw.setdefault(section, {})[key] = value
    settings = _settings(raw)
    models, hardware = (
        Models.of(settings),
        Hardware.here("none" if is_remote(settings) else settings.workers.gpus),
    )
    assert models.judge is not None
    check_executor(settings)
    check_models(settings, models, hardware)
    if not is_remote(settings):
        groups_of(models.judge, hardware)
    pairs = load_suite(settings.suite)
    check_rubric(settings, pairs)
    request = Request(settings, models, pairs, pairs.pairs, Selection({}, {}))
    with Store(out) as store:
        identity, rubric, trials = _try(request, store, hardware)
        works = chain.from_iterable(trials.controls.values())
        environments = {
            work.verdict.environment: store.environments[work.verdict.environment]
            for work in works
            if work.verdict
        }
    controls = describe_controls(control_trials(trials.controls), {}, settings.gates.alpha)
    gate = controls_gate(controls)
    judged = JudgeInfo(
        spec=identity.model.spec,
        **identity.told,
        rubric=settings.judge.rubric,
        rubric_sha256=rubric.sha256,
    )
    suite_info = SuiteInfo(
        name=pairs.name, sha256=pairs.sha256, pairs=len(pairs.pairs), remarks=pairs.remarks
    )
    document = {
        "judge": judged.model_dump(mode="json"),
        "suite": suite_info.model_dump(mode="json"),
        "environments": {
            digest: environment.model_dump() for digest, environment in environments.items()
        },
        "controls": controls.model_dump(mode="json"),
        "gate": asdict(gate),
    }
    lines = [
        f"judge {judged.spec}, rubric {settings.judge.rubric}, on suite {pairs.name}",
        f"fingerprint {judged.fingerprint}",
        *map(str, environments.values()),
        terminal.render_tables([tables.controls_table(controls)]).rstrip(),
        f"{gate.state}: {gate.why}",
    ]
    return document, "\n".join(lines), int(gate.state != "PASS")


def _settings(raw: Tables) -> Settings:
    """Check settings for the judge alone; raise `UsageError` for those of a judge that scores
    nothing.
    """
    raw["editor"] = {"spec": "identity"}  # none of the config's is needed
    settings = make_settings(raw)
    if not settings.judge.scores:
        raise UsageError(f"judge {settings.judge.spec!r} scores nothing, name another one")
    if str(Path.cwd()) not in sys.path:  # where the module of a custom judge may be
        sys.path.append(str(Path.cwd()))
    judge = settings.judge.model_copy(update={"controls": True, "repeats": 0})
    return settings.model_copy(update={"judge": judge})


def _try(request: Request, store: Store, hardware: Hardware) -> tuple[Identity, Rubric, Trials]:
    """Have the judge score the controls; return its identity, its rubric and the trials."""
    settings, models = request.settings, request.models
    folder = store.new_run()
    with (
        closing(RunProgress(folder / "run.log", sys.stderr, quiet=False)) as progress,
        connected(settings) as hosts,
    ):
        if hosts is not None:
            hardware = hosts.hardware
        launcher = Launcher(settings, hardware, hosts, folder, progress)
        editor, judge = (launcher.identify(model, store.fingerprints) for model in models)
        scorer = Scorer(settings, judge, store)
        by_role = {model.role: model for model in models}
        plan = RunPlan(request, store, hardware, by_role, editor, judge, (), scorer)
        ask_servers(plan)
        run = Run(
            plan,
            RunContext(lambda role: launcher.pool(judge.model, judge), progress, no_hooks),
        )
        run.execute()
    assert run.trials is not None
    return judge, scorer.rubric, run.trials
