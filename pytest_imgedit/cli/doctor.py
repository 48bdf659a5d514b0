"""`imgedit doctor` and `imgedit qualify`: the machine, its models, or a judge, before a run."""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from pytest_imgedit.cli.people import card_lines, failed_lines, measure
from pytest_imgedit.config.options import Tables, assign
from pytest_imgedit.config.settings import Settings, make_settings, read_tables
from pytest_imgedit.core import errors, provenance, results
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.base import GIB, ROLES, Model, Role
from pytest_imgedit.kinds.user_code import find_user_modules
from pytest_imgedit.report import tables, terminal
from pytest_imgedit.run import placement, pools, settings_checks
from pytest_imgedit.run.first_requests import doubt_of_model
from pytest_imgedit.run.qualification import qualify_judge
from pytest_imgedit.run.request import resolve
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.session import Session
from pytest_imgedit.run.stored_replies import doubts_of_store
from pytest_imgedit.stats.judge_qualification import controls_gate
from pytest_imgedit.suites.base import load_suite
from pytest_imgedit.workers.hardware import Hardware

_FITS = {True: "fits", False: "does not fit", None: "whether they fit is not known"}


def examine(config: Path | None) -> tuple[JsonObject, str, int]:
    """Look at packages, memory and GPUs, and at the suite and the models of a config; without one,
    at the embedded ones.

    The exit code is 1 if there is a problem. Raises `UsageError` for a config that cannot be read.
    """
    find_user_modules(config)
    settings = make_settings(read_tables(config))
    machine = Hardware.here("auto")
    document = _machine(machine)
    document["elsewhere"] = None
    if pools.is_remote(settings):
        document["elsewhere"] = settings.workers.ray_address or "a Ray cluster"
    problems = list(_package_problems())
    pairs: Sequence[EditPair] = ()
    with _noting(problems):
        pairs = load_suite(settings.suite).pairs
        document["suite"] = {"spec": settings.suite.spec, "pairs": len(pairs)}
        problems += doubts_of_store(settings, pairs)
    with _noting(problems):
        with settings_checks.naming_gpus(settings):
            machine = Hardware.here(settings.workers.gpus)
        settings_checks.check_executor(settings)
    document["models"] = _models(settings, machine, pairs, problems)
    document["problems"] = list(dict.fromkeys(problems))
    return document, _text(document), int(bool(problems))


@contextmanager
def _noting(problems: list[str], prefix: str = "") -> Iterator[None]:
    """Add the message of a `UsageError` to the problems, so that the next check follows."""
    try:
        yield
    except errors.UsageError as error:
        problems.append(f"{prefix}{error}")


def _models(
    settings: Settings, machine: Hardware, pairs: Sequence[EditPair], problems: list[str]
) -> list[JsonObject]:
    """Describe the models of a config that can be made, and add what is wrong with any of them to
    the problems. Served ones are asked first as in a run over the pairs.
    """
    models: list[tuple[Role, Settings, str]] = [(role, settings, "") for role in ROLES]
    models += [
        (entry.role, entry.settings, entry.section)
        for entry in settings.additional_scorers.values()
    ]
    rows: list[JsonObject] = []
    for role, model_settings, section in models:
        with _noting(problems):
            model = resolve(role, model_settings, section)
            settings_checks.check_models(model_settings, [model], machine, section)
            with _noting(problems, f"{section or role}: "):
                rows.append(_model(model, settings, machine, problems))
                if pools.python_of(settings, role) is None:
                    model.reach()
                    doubt = doubt_of_model(model, model_settings, pairs, section or role)
                    if doubt:
                        raise errors.UsageError(f"the first request failed: {doubt}")
    return rows


def _machine(machine: Hardware) -> JsonObject:
    """Describe this machine, and the versions of what runs on it."""
    info = provenance.machine(gpu.product for gpu in machine.gpus)
    return {
        "versions": provenance.versions(),
        "machine": info.model_dump(mode="json"),
        "memory_gib": round(_host_memory(), 1),
        "disk_free_gib": round(shutil.disk_usage(Path.cwd()).free / GIB, 1),
        "gpus": [asdict(gpu) for gpu in machine.gpus],
    }


def _host_memory() -> float:
    """Return the memory of this machine in GiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB


def _package_problems() -> Iterator[str]:
    """Yield the requirements of this package that the environment does not meet, or that the
    package itself is not installed.
    """
    try:
        requirements = list(map(Requirement, requires("pytest-imgedit") or ()))
    except PackageNotFoundError:
        yield "package pytest-imgedit is not installed, so that pytest does not find the plugin"
        return
    for requirement in requirements:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        package = f"package {requirement.name}"
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            yield f"{package} is not installed, expected {requirement.specifier}"
        else:
            if not requirement.specifier.contains(installed, prereleases=True):
                yield f"{package} is {installed}, expected {requirement.specifier}"


def _model(model: Model, settings: Settings, hardware: Hardware, problems: list[str]) -> JsonObject:
    """Describe a model: where its weights are, what they take, whether they fit, which is not known
    of other machines, and what the plan of a run would remark.

    Weights that do not fit are added to the problems.
    """
    row: JsonObject = {
        "role": model.role,
        "spec": model.spec,
        "weights_gib": None,
        "folder": None,
        "fits": None,
        "remarks": list(model.remarks),
    }
    if model.checkpoint is None:
        return row
    row["folder"] = str(model.checkpoint.local_folder)
    if not hardware.has_gpus and "dtype" not in model.params:
        model = model.with_params(dtype="float32")
    row["weights_gib"] = round((model.memory().reads or 0) / GIB, 2)
    if not pools.is_remote(settings):
        row["fits"] = _fits(model, hardware, problems)
    return row


def _fits(model: Model, hardware: Hardware, problems: list[str]) -> bool | None:
    """Return whether the weights of a model fit into its GPUs, or into the memory of this machine
    if they stay there; `None` if the memory of the GPUs is not known.

    Weights that do not fit are added to the problems.
    """
    model = placement.settle(model, hardware)
    need = placement.need_of(model, hardware)
    needed = need.memory.weights
    memories = _group_memories(need, hardware)
    where = f" of GPU memory{need.hint}"
    if not need.groups or needed is None:  # on the CPU, or offloaded to host memory
        needed = need.memory.kept * len(need.groups) or model.memory().reads or 0
        memories = [_host_memory()]
        where = " of host memory"
    if not memories:
        return None
    smallest = min(memories)
    fits = needed / GIB <= smallest
    if not fits:
        problems.append(
            f"{model.role} {model.spec}: {needed / GIB:.1f} GiB of weights do not fit into "
            f"{smallest:.1f} GiB{where}"
        )
    return fits


def _group_memories(need: placement.Need, hardware: Hardware) -> list[float]:
    """Return the memory in GiB of each group of GPUs that a model would take, without groups that
    have a GPU of unknown memory.
    """
    totals = {gpu.name: gpu.total_gib for gpu in hardware.gpus}
    memories = []
    for _, group in need.groups:
        if all(name in totals for name in group):
            memories.append(sum(totals[name] for name in group))
    return memories


def _text(document: JsonObject) -> str:
    """Return the lines that `imgedit doctor` prints of its document."""
    machine = document["machine"]
    lines = [
        " · ".join(f"{name} {number}" for name, number in document["versions"].items()),
        f"{machine['system']} {machine['architecture']}, {machine['cpus']} CPUs, "
        f"{document['memory_gib']} GiB memory, "
        f"{document['disk_free_gib']} GiB free on disk",
        _gpu_table(document["gpus"]),
    ]
    if document["elsewhere"]:
        lines.append(
            f"workers run on {document['elsewhere']}, which is not looked at: all that is said is "
            "of this machine"
        )
    if "suite" in document:
        lines.append(f"suite {document['suite']['spec']}: {document['suite']['pairs']} pairs")
    lines += [f"{row['role']} {row['spec']}: {_weights(row)}" for row in document["models"]]
    lines += [f"remark: {remark}" for row in document["models"] for remark in row["remarks"]]
    lines += [f"problem: {problem}" for problem in document["problems"]]
    if not document["problems"]:
        lines.append("no problem found")
    return "\n".join(lines).rstrip()


def _gpu_table(gpus: Sequence[JsonObject]) -> str:
    """Render a row for each GPU, or a line that says that there is none."""
    if not gpus:
        return "no GPU visible: editors and judges run on the CPU"
    rows = [
        (gpu["name"], gpu["product"], str(gpu["free_gib"]), str(gpu["total_gib"])) for gpu in gpus
    ]
    return terminal.render_table(("GPU", "product", "free GiB", "total GiB"), rows)


def _weights(row: JsonObject) -> str:
    if row["weights_gib"] is None:
        return "no weights to look for"
    return f"{row['weights_gib']} GiB of weights in {row['folder']}, {_FITS[row['fits']]}"


def qualify(
    judge: str | None,
    suite: str | None,
    people: str | None,
    gpus: str | None,
    *,
    config: Path | None,
    assigned: Sequence[str],
    out: Path,
) -> tuple[JsonObject, str, int]:
    """Have a judge score the controls of a suite, or choose between the edits that people chose
    between; arguments take precedence over the config.

    Verdicts are kept in the store `out`, where runs with gates find them. The exit code is 1 unless
    the judge passes.
    """
    if people is not None and suite is not None:
        raise errors.UsageError(
            "--suite: not with --people, whose choices have sources and instructions, expected one "
            "of both"
        )
    find_user_modules(config)
    raw = read_tables(config)
    assign(raw, assigned, "--set")
    for section, key, value in (
        ("judge", "spec", judge),
        ("suite", "spec", suite),
        ("workers", "gpus", gpus),
        ("run", "out", out),
    ):
        if value is not None:
            raw.setdefault(section, {})[key] = value
    settings = _settings_of_judge(raw)
    if people is not None:
        return _qualify_by_people(settings, people)
    return _qualify_by_controls(settings)


def _qualify_by_people(settings: Settings, spec: str) -> tuple[JsonObject, str, int]:
    untried = settings.judge.model_copy(update={"controls": False})
    suite = settings.suite.model_copy(update={"spec": spec})
    asking = settings.model_copy(update={"judge": untried, "suite": suite})
    measured, path = measure(asking, spec)
    card = measured.card
    info = _judge_info(measured.scorer)
    document = {
        "judge": info.model_dump(mode="json"),
        "card": card.model_dump(mode="json"),
        "failed": Counter(error.kind for _, error in measured.failed),
    }
    lines = [_judge_line(measured.scorer), f"fingerprint {info.fingerprint}"]
    lines += failed_lines(measured.failed)
    lines += card_lines(card, path)
    return document, "\n".join(lines), int(any(way.state != "PASS" for way in card.ways))


def _qualify_by_controls(settings: Settings) -> tuple[JsonObject, str, int]:
    session = Session(settings, Path())
    with closing(session):
        qualification = qualify_judge(session, sys.stderr)
    scorer = qualification.scorer
    gate = controls_gate(qualification.controls)
    judge_info = _judge_info(scorer)
    loaded = session.suite
    suite_info = results.SuiteInfo(
        name=loaded.name, sha256=loaded.sha256, pairs=len(loaded.pairs), remarks=loaded.remarks
    )
    environments = qualification.environments
    document = {
        "judge": judge_info.model_dump(mode="json"),
        "suite": suite_info.model_dump(mode="json"),
        "environments": {
            digest: environment.model_dump() for digest, environment in environments.items()
        },
        "controls": qualification.controls.model_dump(mode="json"),
        "gate": asdict(gate),
    }
    lines = [
        f"{_judge_line(scorer)}, on suite {suite_info.name}",
        f"fingerprint {judge_info.fingerprint}",
    ]
    lines += [str(environment) for environment in environments.values()]
    table = tables.controls_table(qualification.controls)
    lines.append(terminal.render_tables([table]).rstrip())
    lines.append(f"{gate.state}: {gate.why}")
    return document, "\n".join(lines), int(gate.state != "PASS")


def _judge_line(scorer: Scorer) -> str:
    return f"judge {_judge_info(scorer).spec}, protocol {scorer.protocol.label}"


def _judge_info(scorer: Scorer) -> results.JudgeInfo:
    """Return what identifies a judge and its protocol."""
    return results.JudgeInfo(
        spec=scorer.identity.model.spec,
        **scorer.identity.told,
        protocol=scorer.protocol.name,
        variant=scorer.protocol.variant,
        protocol_sha256=scorer.protocol.sha256,
    )


def _settings_of_judge(raw: Tables) -> Settings:
    """Return settings for a trial of the judge alone, from tables that are changed for it; raise
    `UsageError` if the judge does not score edits.
    """
    raw["editor"] = {"spec": "identity"}  # none of the config's is needed
    raw.setdefault("run", {})["stage"] = "all"
    settings = make_settings(raw)
    if not settings.judge.scores:
        raise errors.UsageError(
            f"judge {settings.judge.spec!r} does not score edits; choose another judge"
        )
    judge = settings.judge.model_copy(update={"controls": True, "repeats": 0})
    return settings.model_copy(update={"judge": judge})
