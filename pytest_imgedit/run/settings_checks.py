"""Checks of settings before anything starts, which raise one line each."""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec

from pytest_imgedit.config.options import options_needing
from pytest_imgedit.config.settings import AdditionalScorer, Settings
from pytest_imgedit.core import errors, redaction
from pytest_imgedit.core.expected_grades import one_digit_numbers
from pytest_imgedit.core.measures import OVERALL, SCORE_ONLY
from pytest_imgedit.core.pairs import in_order
from pytest_imgedit.core.results import Measure
from pytest_imgedit.core.text import did_you_mean
from pytest_imgedit.kinds.base import ROLES, Model, Site
from pytest_imgedit.protocols.loading import load_duel_protocol, load_protocol, protocol_name
from pytest_imgedit.protocols.protocol import Protocol
from pytest_imgedit.run.duels import duel_measures
from pytest_imgedit.run.placement import groups_of
from pytest_imgedit.run.pools import is_remote, python_of
from pytest_imgedit.run.scorer import named_measures
from pytest_imgedit.stats import gate_values
from pytest_imgedit.stats.gate_limits import KINDS
from pytest_imgedit.store.baselines import (
    Baseline,
    refuse,
    unlike_judges,
    unlike_rewrites,
)
from pytest_imgedit.suites.base import Suite
from pytest_imgedit.workers.hardware import Hardware


@contextmanager
def naming_gpus(settings: Settings) -> Iterator[None]:
    """If the config sets the GPUs, name its location in a `UsageError` about them."""
    try:
        yield
    except errors.UsageError as error:
        location = settings.place("workers", "gpus")
        if not location:
            raise
        raise errors.UsageError(
            str(error).replace("--imgedit-gpus=", f"{location}workers.gpus=")
        ) from None


def check_models(
    settings: Settings, models: Iterable[Model], hardware: Hardware, section: str = ""
) -> None:
    """Raise `UsageError` if a model, its protocol or an interpreter is missing or wrong; `section`
    of a config names it, by default that of its role.

    Hosts are not connected yet, so that they may have GPUs.
    """
    is_here = not is_remote(settings)
    may_have_gpus = settings.workers.gpus != "none" and (not is_here or hardware.has_gpus)
    for model in models:
        site = Site(
            may_have_gpus=may_have_gpus,
            is_here=is_here and python_of(settings, model.role) is None,
            suite=settings.suite.spec,
            is_named=model.role != "editor" or "spec" in settings.editor.model_fields_set,
        )
        if settings.run.stage != "edit":
            site = replace(
                site,
                protocol=protocol_name(settings),
                is_custom_protocol=protocol_name(settings) in settings.protocols,
            )
        try:
            model.check(site)
        except errors.SettingError as error:
            raise _located(error, settings, model, section or model.role) from None
    load_protocol(settings)
    _check_interpreters(settings)


def _located(
    error: errors.SettingError, settings: Settings, model: Model, table: str
) -> errors.UsageError:
    """Return the error of a setting of a model with where a config has the setting, in a `table`,
    and with the setting that a mistyped one may mean.
    """
    key, _, _ = error.key.partition(".")
    location = settings.place(table, key)
    if error.key == "spec":
        return errors.UsageError(f"{location}{error}")
    reason = str(error).replace(" is taken", f" is taken by {model.spec}", 1)
    if reason.startswith("no such argument") and "did you mean" not in reason:
        section_settings = settings.editor if model.role == "editor" else settings.judge
        reason += did_you_mean(error.key, type(section_settings).model_fields)
    return errors.UsageError(f"{location}{table}.{error.key}: {reason}")


def _check_interpreters(settings: Settings) -> None:
    """Raise `UsageError` if an interpreter of the workers of this machine is not there."""
    if is_remote(settings):
        return
    for role in ROLES:
        python = python_of(settings, role)
        if python is not None and shutil.which(python) is None:
            key = f"{role}_python"
            raise errors.UsageError(
                f"{settings.place('workers', key)}workers.{key}: no interpreter {python!r}"
            )


def check_executor(settings: Settings) -> None:
    """Raise `UsageError` if the executor is not installed or does not support the settings."""
    workers = settings.workers
    if is_remote(settings):
        if workers.gpus not in ("auto", "none"):
            raise errors.UsageError(
                f"--imgedit-gpus={workers.gpus}: with the executor 'ray', expected auto or none"
            )
        if find_spec("ray") is None:
            raise errors.UsageError("--imgedit-executor=ray: ray is not installed, pip install ray")
    elif workers.ray_address is not None:
        raise errors.UsageError(
            f"{settings.place('workers', 'ray_address')}workers.ray_address: expected it with "
            "--imgedit-executor=ray only"
        )


def check_judge_gpus(settings: Settings, judge: Model | None) -> None:
    """Raise `UsageError` if the judge cannot use the GPUs that are set for it alone."""
    workers = settings.workers
    if workers.judge_gpus is None:
        return
    setting = f"{settings.place('workers', 'judge_gpus')}workers.judge_gpus"
    if is_remote(settings):
        raise errors.UsageError(f"{setting}: on this machine only, expected the executor 'local'")
    if workers.placement != "auto":
        raise errors.UsageError(
            f"{setting}: not with workers.placement={workers.placement!r}, the judge is beside the "
            "editors"
        )
    if judge is not None and judge.is_served:
        raise errors.UsageError(
            f"{setting}: judge {judge.spec} takes no GPU here, a server computes for it"
        )


def check_protocol(settings: Settings, suite: Suite, model: Model) -> None:
    """Raise `UsageError` if the calls of the protocol cannot be made for a pair of the suite, or if
    the judge expects grades that their replies do not have.
    """
    if settings.run.stage == "edit" or model.measures:
        return
    protocol = load_protocol(settings)
    protocol.check(suite.pairs)
    if not model.expects_grades:
        return
    if model.grades_by_digits:
        _check_digits(protocol, suite)
        return
    for call in protocol.calls(suite.pairs[0]):
        if not call.grammar.graded:
            raise errors.UsageError(
                f"judge.scoring='expected': protocol {protocol.name} takes replies to its call "
                f"{call.name!r} that are no lines with grades from 0 to 10, expected 'greedy'"
            )


def measures_of_duels(
    settings: Settings, suite: Suite, judge: Model | None
) -> Mapping[str, Measure] | None:
    """Return what the duels of a run are judged by, `None` without duels; raises `UsageError` if
    the calls of the duel protocol cannot be made for a pair of the suite.
    """
    if not settings.gates.duel or judge is None:
        return None
    if judge.measures or not judge.compares:
        return duel_measures(None)
    protocol = load_duel_protocol(settings)
    protocol.check(suite.pairs)
    return duel_measures(protocol)


def _check_digits(protocol: Protocol, suite: Suite) -> None:
    """Raise `UsageError` unless expected grades can be made of the digits in replies: to all calls
    for a pair of each category, read strictly, with scales of one-digit numbers.
    """
    setting = "judge.scoring='expected'"
    if protocol.variant == "compat":
        raise errors.UsageError(
            f"{setting}: judge.variant='compat' reads grades wherever the authors' script does, "
            "expected judge.variant='strict' or judge.scoring='greedy'"
        )
    first_pairs = {pair.category: pair for pair in reversed(suite.pairs)}
    for pair in first_pairs.values():
        for call in protocol.calls(pair):
            if not one_digit_numbers(call.grammar.scale):
                low, high = call.grammar.scale
                raise errors.UsageError(
                    f"{setting}: protocol {protocol.name} grades from {low:g} to {high:g} in its "
                    f"call {call.name!r}, expected a scale of one-digit whole numbers over a "
                    "server, such as 1 to 5 (10 may be two tokens): choose another judge.protocol, "
                    "or judge.scoring='greedy'"
                )


def check_additional(
    scorer: AdditionalScorer, suite: Suite, model: Model, hardware: Hardware
) -> None:
    """Raise `UsageError` if an additional judge or a metric cannot be used as it is set."""
    settings = scorer.settings
    check_models(settings, [model], hardware, scorer.section)
    if not is_remote(settings):
        groups_of(model, hardware)
    check_protocol(settings, suite, model)


def check_gates(
    settings: Settings,
    counts: Mapping[str, int],
    judge: Model | None,
    additional: Mapping[str, Model],
    duel_measures: Mapping[str, Measure] | None = None,
) -> None:
    """Raise `UsageError` for a gate on an unknown field or too few pairs, for one that compares
    without a baseline, and for an additional judge or metric with a name that the judge's values
    have; `counts` is by group.

    `duel_measures` are what the duels of the run are judged by, `None` if that is not known.
    """
    limits_of_gates = list(_limits(settings))
    measures = None
    if judge is not None and judge.aspects is not None:
        measures = declared_measures(settings, judge, additional)
    if judge is not None and any(limits for _, limits in limits_of_gates):
        groups = [OVERALL, *in_order(group for group in counts if group != OVERALL)]
        for kind, limits in limits_of_gates:
            of_kind = duel_measures if kind.endswith(("min_win", "min-win")) else measures
            gate_values.check_fields(kind, limits, groups, of_kind)
    check_counts(settings, counts)
    _check_duel(settings)
    if settings.gates.compare is not None:
        return
    for name in ("max_drop", "max_collapsed", "min_coverage"):
        limit = getattr(settings.gates, name)
        if limit or (f"gates.{name}" in settings.run.asked and limit != {}):
            raise errors.UsageError(
                f"gates.{name}: nothing to compare with, expected --imgedit-compare=REF too"
            )


def _check_duel(settings: Settings) -> None:
    """Raise `UsageError` for gates on duels of a run without them, and for duels of a run that is
    compared with none.
    """
    gates = settings.gates
    if gates.min_win and not gates.duel:
        ((name, _),) = [limits for limits in _limits(settings) if limits[1] is gates.min_win]
        raise errors.UsageError(f"{name}: no duels to win, expected --imgedit-duel too")
    if gates.duel and gates.compare is None:
        name = "--imgedit-duel" if "gates.duel" in settings.run.asked else "gates.duel"
        raise errors.UsageError(f"{name}: nothing to duel with, expected --imgedit-compare=REF too")


def declared_measures(
    settings: Settings, judge: Model, additional: Mapping[str, Model]
) -> Mapping[str, Measure]:
    """Return the measures that a run is known to have; a judge of the user's own may answer with
    others.

    Raises `UsageError` if two of them have one name.
    """
    measures = {**SCORE_ONLY, **_declared(settings, judge)}
    tables = settings.additional_scorers
    for name, model in additional.items():
        declared = _declared(tables[name].settings, model)
        named = named_measures(name, model, declared)
        twice = measures.keys() & named.keys()
        if twice:
            raise errors.UsageError(
                f"{tables[name].section}: the judge has a value {min(twice)!r} too, "
                "expected another name"
            )
        measures |= named
    return measures


def _declared(settings: Settings, judge: Model) -> Mapping[str, Measure]:
    return (judge.aspects or {}) if judge.measures else load_protocol(settings).measures


def check_partial(settings: Settings) -> None:
    """Raise `UsageError` for what a run cannot do that ends early, or is one of several shards."""
    gates = settings.gates
    run = settings.run
    repeats = settings.judge.repeats
    if gates.until == "decided":
        if not (gates.fail_under or gates.max_drop or gates.duel):
            raise errors.UsageError(
                "--imgedit-until=decided: no gate to decide, expected --imgedit-fail-under or "
                "--imgedit-max-drop"
            )
        _refuse_beside(
            "--imgedit-until=decided",
            {
                "--imgedit-duel": gates.duel,
                f"--imgedit-stage={run.stage}": run.stage != "all",
                f"--imgedit-save={run.save}": run.save is not None,
                f"--imgedit-min-coverage={gates.min_coverage:g}": gates.min_coverage > 0,
                f"--imgedit-max-collapsed={gates.max_collapsed}": (
                    "max_collapsed" in gates.model_fields_set
                ),
            },
        )
    if run.shard is not None and gates.duel:
        raise errors.UsageError(
            f"--imgedit-shard={run.shard}: not with --imgedit-duel: imgedit merge the shards, then "
            "imgedit compare A B --duel"
        )
    if run.shard is not None:
        _refuse_beside(
            f"--imgedit-shard={run.shard}",
            {
                "--imgedit-until=decided": gates.until == "decided",
                f"--imgedit-save={run.save}": run.save is not None,
                f"--imgedit-judge-repeats={repeats}": repeats > 0,
            },
        )


def _refuse_beside(option: str, others: Mapping[str, bool]) -> None:
    for other, is_set in others.items():
        if is_set:
            raise errors.UsageError(f"{option}: not with {other}, which is about all pairs")


def check_saving(settings: Settings) -> None:
    """Raise `UsageError` if edits are to be kept of no baseline."""
    if settings.run.save_edits and settings.run.save is None:
        raise errors.UsageError(
            "--imgedit-save-edits: no baseline whose edits it keeps, expected --imgedit-save=NAME "
            "too"
        )


def check_counts(settings: Settings, counts: Mapping[str, int]) -> None:
    """Raise `UsageError` if a gated group has too few pairs; `counts` is by group."""
    for kind, limits in _limits(settings):
        gate_values.check_counts(kind, limits, counts)


def _limits(settings: Settings) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the limits of gates on means, with the option or the key that sets them."""
    for key in KINDS:
        option = f"--imgedit-{key.replace('_', '-')}"
        name = option if f"gates.{key}" in settings.run.asked else f"gates.{key}"
        yield name, getattr(settings.gates, key)


def check_edits_only(settings: Settings) -> None:
    """Raise `UsageError` for what needs scores in a run that only edits."""
    judge = settings.judge
    for option in options_needing("scores"):
        assert option.toml is not None, "scores are needed by what a setting asks for"
        section, _, key = option.toml.partition(".")
        value = getattr(getattr(settings, section), key)
        if not value or (option.kind == "flag" and value is not True):
            continue
        name = option.toml if option.kind == "list" else option.flag
        if not judge.scores:
            raise errors.UsageError(
                f"judge {judge.spec!r} scores nothing, as {name} needs: name a judge, such as "
                "qwen-vl:MODEL"
            )
        raise errors.UsageError(
            f"--imgedit-stage=edit scores nothing, as {name} needs: drop one of them"
            f"{_unsetting(option.toml, value)}"
        )


def _unsetting(toml: str, value: object) -> str:
    """Return how to drop a setting that a config has; nothing for one of `run`, as no config has
    those that need scores.
    """
    if toml.startswith("run."):
        return ""
    empty = {dict: "{}", str: "''", bool: "false", int: "0"}[type(value)]
    return f" (where a config has it: --imgedit-set={toml}={empty})"


def check_baseline(settings: Settings, model: Model, baseline: Baseline) -> None:
    """Raise `UsageError` if the baseline has another judge, as far as is known without weights, or
    if only one of baseline and run has rewritten instructions. Where duels alone rest on the
    baseline, its judge may be any.
    """
    identity = {
        "spec": redaction.mask_shapes(settings.judge.spec),
        "params": redaction.mask_secrets(model.deciding("auto")),
        "protocol": None,
        "variant": None,
        "protocol_sha256": None,
    }
    if not model.measures:
        protocol = load_protocol(settings)
        identity["protocol"] = protocol.name
        identity["variant"] = protocol.variant
        identity["protocol_sha256"] = protocol.sha256
    judge = {} if duels_alone(settings) else identity
    refuse(baseline, unlike_judges(baseline, judge, settings.editor.seeds))
    refuse(baseline, unlike_rewrites(baseline, settings.editor.rewrites is not None))


def duels_alone(settings: Settings) -> bool:
    """Tell whether no gate on scores rests on the baseline, but duels do."""
    gates = settings.gates
    if not gates.duel or gates.max_drop or gates.min_coverage:
        return False
    return "max_collapsed" not in gates.model_fields_set
