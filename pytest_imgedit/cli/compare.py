"""`imgedit compare`: whether scores fell between two runs."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import ValidationError

from pytest_imgedit.config.settings import GatesSettings
from pytest_imgedit.config.toml_file import configs_of
from pytest_imgedit.core import errors
from pytest_imgedit.core.measures import SCORE_ONLY, groups_in
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.report import measure_tables, tables, terminal
from pytest_imgedit.stats import collapse, gates
from pytest_imgedit.stats.comparison import PairedItems, compare, environment_differences
from pytest_imgedit.store.baselines import (
    FOLDER,
    Baseline,
    as_baseline,
    unlike_further,
    unlike_items,
    unlike_judges,
    unlike_losses,
    unlike_rewrites,
)
from pytest_imgedit.store.references import find_either


def compare_runs(
    before: str,
    now: str,
    max_drop: Sequence[str],
    max_collapsed: str | None,
    alpha: float,
    margin: float,
    out: Path,
) -> tuple[JsonObject, str, int]:
    """Compare two runs or baselines pair by pair, and apply gates on drops and on collapsed
    pairs.
    """
    try:
        settings = GatesSettings.model_validate(
            {
                "max_drop": list(max_drop),
                "max_collapsed": max_collapsed or 0,
                "alpha": alpha,
                "margin": margin,
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise errors.UsageError(
            f"--{str(first['loc'][0]).replace('_', '-')}: "
            f"{first['msg'].removeprefix('Value error, ')}"
        ) from None
    a, b = read_either(before, out), read_either(now, out)
    refuse_to_compare(
        a, b, f"{before} and {now}", gated=bool(max_drop or max_collapsed is not None)
    )
    measures = {**SCORE_ONLY, **b.measures}
    gates.check_fields("--max-drop", settings.max_drop, groups_in(b.items), measures)
    paired = PairedItems(a, b.items, measures)
    results = gates.max_drop(settings, paired.differences, a.name, measures)
    tail, fallen = collapse.max_collapsed(settings, paired.moves, a.name)
    comparison = compare(paired, alpha, results, environment_differences(a, b), fallen)
    if max_collapsed is not None:
        results.append(tail)
    lines = [
        f"{b.name}: editor {b.editor.spec}, run {b.run}",
        terminal.render_tables(
            [
                tables.comparison_table(comparison, len(b.items)),
                *measure_tables.compared_tables(comparison, measures, brief=False),
            ]
        ).rstrip(),
        *(f"{gate.state}: {gate.why}" for gate in results),
    ]
    document = {
        "comparison": comparison.model_dump(mode="json"),
        "gates": [asdict(gate) for gate in results],
    }
    return document, "\n".join(lines), int(any(gate.state != "PASS" for gate in results))


def refuse_to_compare(a: Baseline, b: Baseline, names: str, gated: bool = False) -> None:
    """Raise `UsageError` if two baselines are of other pairs or verdicts, or, where `gated`, of
    unlike losses.
    """
    items = [(item.id, item.sha256, [seed.seed for seed in item.seeds]) for item in b.items]
    losses = unlike_losses(a, b.editor.lossy) if gated else None
    reason = (
        unlike_judges(a, dict(b.judge), b.seeds)
        or unlike_further(a, {name: dict(judge) for name, judge in b.further.items()})
        or unlike_rewrites(a, b.editor.rewrites is not None)
        or unlike_items(a, items)
        or losses
    )
    if reason:
        raise errors.UsageError(f"{names} cannot be compared, {reason}")


def baselines_folder() -> Path:
    """Return the folder of the baselines that the config of this repository names, or the usual
    one.
    """
    files = configs_of(Path.cwd(), Path.cwd()).values()
    named = (file.tables.get("gates", {}).get("baselines") for file in files)
    return next((Path(folder) for folder in named if isinstance(folder, str)), FOLDER)


def read_either(reference: str, out: Path) -> Baseline:
    """Read a run or a baseline."""
    return as_baseline(find_either(reference, out, baselines_folder()))
