"""`imgedit qualify`: try a judge on edits of known worth, alone, and print its card."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_imgedit.checks import check_models, check_rubric
from pytest_imgedit.cli.printed import Printed
from pytest_imgedit.config import make_settings
from pytest_imgedit.config_file import ConfigFile
from pytest_imgedit.core.results import JudgeInfo, SuiteInfo
from pytest_imgedit.models.identity import identify
from pytest_imgedit.options import assign
from pytest_imgedit.redaction import Redactor, mask_secrets
from pytest_imgedit.report import tables, terminal
from pytest_imgedit.report.progress import RunProgress
from pytest_imgedit.rubrics.rubric import load_rubric
from pytest_imgedit.stages.controls import controls_gate, describe_controls
from pytest_imgedit.stages.flow import Flow
from pytest_imgedit.stages.placement import groups_of, model_of
from pytest_imgedit.stages.pools import identify_role
from pytest_imgedit.stages.score import Scorer
from pytest_imgedit.store.runs import Store
from pytest_imgedit.suites.base import load_suite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_imgedit.config import Settings


def qualify(
    judge: str | None, suite: str | None, gpus: str | None, config: Path | None, assigned: Sequence[str], out: Path
) -> Printed:
    """Have a judge score the controls of a suite; what is given here goes before the config.

    Verdicts are kept in the store `out`, where runs with gates find them.
    """
    settings = _settings(judge, suite, gpus, config, assigned)
    check_models(settings)
    groups_of(settings, model_of(settings, "judge"))
    pairs = load_suite(settings.suite)
    check_rubric(settings, pairs)
    with Store(out) as store:
        folder = store.new_run()
        progress = RunProgress(folder / "run.log", sys.stderr, quiet=False)
        try:
            identity = identify_role(settings, "judge", store.fingerprints)
            rubric = load_rubric(settings.judge.rubric, settings.rubrics)
            scorer = Scorer(settings.judge, identity, rubric, store, Redactor.of(settings))
            flow = Flow(settings, store, folder, progress, lambda _: None, lambda _: None)
            flow.work([], scorer, pairs, pairs.pairs, lambda control: identify(control, store.fingerprints))
        finally:
            progress.close()
        assert flow.trials is not None
        verdicts = [work.verdict for works in flow.trials.controls.values() for work in works if work.verdict]
        made_in = {verdict.environment: store.environments[verdict.environment] for verdict in verdicts}
    controls = describe_controls(flow.trials.controls, {}, settings.gates.alpha)
    gate, model = controls_gate(controls), scorer.judge.model
    judged = JudgeInfo(
        spec=model.spec,
        fingerprint=scorer.judge.fingerprint,
        commit=scorer.judge.commit,
        params=mask_secrets(scorer.judge.params),
        rubric=settings.judge.rubric,
        rubric_sha256=rubric.sha256,
    )
    suite_info = SuiteInfo(name=pairs.name, sha256=pairs.sha256, pairs=len(pairs.pairs), remarks=pairs.remarks)
    document = {
        "judge": judged.model_dump(mode="json"),
        "suite": suite_info.model_dump(mode="json"),
        "environments": {digest: environment.model_dump() for digest, environment in made_in.items()},
        "controls": controls.model_dump(mode="json"),
        "gate": asdict(gate),
    }
    lines = [
        f"judge {model.spec}, rubric {settings.judge.rubric}, on suite {pairs.name}",
        f"fingerprint {scorer.judge.fingerprint}",
        *map(str, made_in.values()),
        terminal.render_tables([tables.controls_table(controls)]).rstrip(),
        f"{gate.state}: {gate.why}",
    ]
    return Printed(document, "\n".join(lines), int(gate.state != "PASS"))


def _settings(
    judge: str | None, suite: str | None, gpus: str | None, config: Path | None, assigned: Sequence[str]
) -> Settings:
    file = ConfigFile.empty() if config is None else ConfigFile.read_config(config)
    raw: dict[str, Any] = {section: dict(table) for section, table in file.tables.items()}
    assign(raw, assigned, "--set")
    for section, key, value in (("judge", "spec", judge), ("suite", "spec", suite), ("workers", "gpus", gpus)):
        if value is not None:
            raw.setdefault(section, {})[key] = value
    raw["run"] = {**raw.get("run", {}), "config_file": file}
    raw["editor"] = {"spec": "identity"}  # none of the config's is needed
    settings = make_settings(raw)
    judging = settings.judge.model_copy(update={"controls": True, "repeats": 0})
    if str(Path.cwd()) not in sys.path:  # where a judge of the user's own may stand
        sys.path.append(str(Path.cwd()))
    return settings.model_copy(update={"judge": judging})
