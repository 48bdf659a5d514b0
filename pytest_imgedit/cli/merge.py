"""`imgedit merge`: the shards of a run, as `--imgedit-shard` makes them, as one run."""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from pytest_imgedit.cli.comparable import names_of, read_either, refuse_to_compare, store_of
from pytest_imgedit.cli.merge_stores import ShardRun, collect, new_store, read_stores
from pytest_imgedit.config.settings import RunSettings, Settings
from pytest_imgedit.core import errors, files, pairs, provenance, strict_json
from pytest_imgedit.core.results import (
    Canary,
    ComputedIn,
    FurtherInfo,
    HostOrigin,
    JudgeInfo,
    Measure,
    ProtocolCall,
    Results,
    ReuseInfo,
    RunInfo,
    Timing,
    Usage,
    WorkerInfo,
)
from pytest_imgedit.kinds.user_code import find_user_modules
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.protocols.protocol import Protocol
from pytest_imgedit.report import outputs, terminal, write
from pytest_imgedit.report.read import read_results
from pytest_imgedit.run.assemble import RunFacts, assemble
from pytest_imgedit.stats.comparison import Computed, other_probes, places_of
from pytest_imgedit.stats.outcome import outcome
from pytest_imgedit.store.baselines import Baseline, make_baseline
from pytest_imgedit.store.run_references import find_run

#: What a judge has told in the run of a shard, not what it is.
_ANSWERED: dict[str, Any] = {"usage": None, "returned": {}, "canary": None, "people": ()}


def read_shards(paths: Iterable[Path]) -> list[ShardRun]:
    """Read the shards of one run, in their order, without those that have no pairs.

    Raises `UsageError` for a run that is no whole shard, for shards of unlike runs or of unlike
    environments, and if one is missing or occurs twice.
    """
    runs = [(path, read_results(path)) for path in paths]
    shards = [_finished_shard(path, results) for path, results in runs]
    first = shards[0]
    for shard in shards[1:]:
        _refuse_unlike(first, shard)
    _refuse_environments(shards)
    return [shard for shard in _in_order(shards) if shard.results.items]


def _in_order(shards: Sequence[ShardRun]) -> list[ShardRun]:
    """Return the shards of one run by their indices; raise `UsageError` if one is missing or occurs
    twice. A shard that has no pairs may be missing.
    """
    by_index: dict[int, ShardRun] = {}
    for shard in shards:
        twin = by_index.setdefault(shard.info.index, shard)
        if twin is not shard:
            raise errors.UsageError(
                f"{shard.path}: shard {shard.info}, as {twin.path} is: expected each shard once"
            )
    info = shards[0].info
    missing = [
        f"{index}/{info.count}"
        for index in pairs.shards_of(info.ids, info.count)
        if index not in by_index
    ]
    if missing:
        raise errors.UsageError(f"shards {', '.join(missing)} are missing, expected all of the run")
    return [by_index[index] for index in sorted(by_index)]


def _finished_shard(path: Path, results: Results) -> ShardRun:
    """Return a run as a shard.

    Raises `UsageError` unless it is one, is finished, has the pairs of this shard and no others,
    and is in a store, which one without pairs need not be.
    """
    info = results.selection.shard
    store = store_of(path)
    if info is None:
        raise errors.UsageError(
            f"{path}: a run of all its pairs, expected one with --imgedit-shard=I/N"
        )
    if results.run.status != "complete":
        raise errors.UsageError(f"{path}: shard {info} was {results.run.stopped}; run it again")
    shard = pairs.Shard(info.index, info.count)
    expected = {pair_id for pair_id in info.ids if shard.has(pair_id)}
    misplaced = expected ^ {item.id for item in results.items}
    if misplaced:
        raise errors.UsageError(
            f"{path}: pair {min(misplaced)!r} is not in the shard that it belongs to"
        )
    if results.items and not files.is_folder(store / "runs"):
        raise errors.UsageError(f"{path}: not in a store, which has the images")
    return ShardRun(path, results, info, store)


def _refuse_unlike(first: ShardRun, other: ShardRun) -> None:
    """Raise `UsageError` if two shards cannot be of one run."""
    facts = _shared_facts(first)
    for name, fact in _shared_facts(other).items():
        if fact != facts[name]:
            raise errors.UsageError(
                f"{other.path}: another {name} than in {first.path}, expected shards of one run"
            )


def _shared_facts(shard: ShardRun) -> dict[str, object]:
    """Return what all shards of a run have in common, by what messages call it."""
    results = shard.results
    options = results.run.options
    return {
        "suite": results.suite.sha256,
        "number of shards": shard.info.count,
        "selection": (shard.info.ids, results.selection.whole),
        "stage": options.run.stage,
        "editor": _identified(results.editor, compiled=None, batch_sizes=(), seeds=None),
        "judge": _identified(results.judge, **_ANSWERED),
        "further judge or metric": {
            name: _identified(further, **_ANSWERED, agreement=None)
            for name, further in results.further.items()
        },
        "seeds or batch size of the editor": options.editor,
        "options of the judge": options.judge,
        "gates": options.gates,
    }


def _identified(model: Any, **ignored: object) -> Any:
    """Return an editor or judge with equal values in the fields that do not identify it.

    A fingerprint identifies it wherever its files are, so that its spec does not count then.
    """
    if model.fingerprint is not None:
        ignored["spec"] = ""
    return model.model_copy(update=ignored)


def _refuse_environments(shards: Sequence[ShardRun]) -> None:
    """Raise `UsageError` if results were computed where those of another shard would not count
    (`--imgedit-reuse`).
    """
    for kind in ("edits", "verdicts"):
        computed = [
            (shard, environment)
            for shard in shards
            for environment in shard.results.environments.values()
            if getattr(environment, kind)
        ]
        for shard, environment in computed:
            first_shard, first = computed[0]
            if not environment.bare.serves(first.bare, shard.results.reuse.policy):
                unlike = list(environment.differences(first))
                unlike += other_probes(kind, [environment.bare], [first.bare])
                raise errors.UsageError(
                    f"{shard.path}: {kind} of another environment than in {first_shard.path}: "
                    f"{'; '.join(unlike)}"
                )


def _probe_lines(shards: Sequence[ShardRun]) -> Iterator[str]:
    """Yield a warning for each shard whose model computed otherwise than that of the first shard on
    one type of GPU, which the policy allows.
    """
    for kind in ("edits", "verdicts"):
        here = places_of(kind, shards[0].results.environments)
        for shard in shards[1:]:
            there = places_of(kind, shard.results.environments)
            for text in other_probes(kind, there, here):
                yield f"warning: shard {shard.info}: {text}"


def merge_results(shards: Sequence[ShardRun], baseline: Baseline | None) -> Results:
    """Return the results of all shards as those of one run, with its gates decided.

    Times are those of the slowest shard. Gates that the run did not select are those of the first.
    """
    first = shards[0].results
    by_id = {item.id: item for shard in shards for item in shard.results.items}
    items = [by_id[pair_id] for pair_id in shards[0].info.ids]
    results = assemble(items, _facts(shards, baseline))
    decided = {(gate.kind, gate.field) for gate in results.gates}
    resting = tuple(gate for gate in first.gates if (gate.kind, gate.field) not in decided)
    return results.model_copy(update={"gates": results.gates + resting})


def _facts(shards: Sequence[ShardRun], baseline: Baseline | None) -> RunFacts:
    """Join what the shards know of the run besides its items."""
    first = shards[0].results
    parts = [shard.results for shard in shards]
    controls = [part.controls for part in parts if part.controls is not None]
    trials = [trial for control in controls for trial in control.trials]
    sections = [section for part in parts for section in part.sections]
    measures: dict[str, Measure] = {}
    for part in parts:
        for name, measured in part.measures.items():
            measures[name] = measured.bare
    calls: Sequence[ProtocolCall] = ()
    sees_change = True
    if first.protocol is not None:
        calls = first.protocol.calls
        sees_change = first.protocol.sees_change
    return RunFacts(
        run=_run_info(shards),
        suite=first.suite,
        selection=first.selection.model_copy(update={"shard": None}),
        computed=_computed(parts),
        further={name: _further(name, parts) for name in first.further},
        measures=measures,
        gates=first.run.options.gates,
        expects_scores=first.run.options.run.stage != "edit",
        has_agreement=any(scorer.agreement is not None for scorer in first.further.values()),
        reuse=_reuse(parts),
        timing=_timing([part.timing for part in parts]),
        workers=_workers(shards),
        baseline=baseline,
        trials=trials,
        untried=controls[0].untried if controls else "",
        noise=first.noise,
        protocol=_protocol(first),
        calls=calls,
        sees_change=sees_change,
        sections=sections,
    )


def _reuse(parts: Sequence[Results]) -> ReuseInfo:
    """Add up what the shards reused, under the policy of the first."""
    differences = chain.from_iterable(part.reuse.differences for part in parts)
    return ReuseInfo(
        policy=parts[0].reuse.policy,
        edits=sum(part.reuse.edits for part in parts),
        verdicts=sum(part.reuse.verdicts for part in parts),
        differences=tuple(dict.fromkeys(differences)),
    )


def _workers(shards: Sequence[ShardRun]) -> list[WorkerInfo]:
    """Return the workers of all shards, whose devices name their shard too."""
    return [
        worker.model_copy(update={"device": f"{worker.device}, shard {shard.info}"})
        for shard in shards
        for worker in shard.results.workers
    ]


def _protocol(first: Results) -> Protocol | None:
    """Return the protocol of the judge; `None` for results without a table of one, for a judge that
    follows none, and for a protocol that is not known here.
    """
    judge = first.judge
    if first.protocol is None or judge.protocol is None:
        return None
    find_user_modules(None)  # which may register protocols
    settings = Settings.model_validate(
        {"judge": {"protocol": judge.protocol, "variant": judge.variant}}
    )
    try:
        return load_protocol(settings)
    except errors.UsageError:
        return None


def _computed(parts: Sequence[Results]) -> Computed:
    """Join editor, judge and environments, whose counts are added up.

    Whether the editor was compiled is `None` if the shards differ in that.
    """
    editor = parts[0].editor
    are_alike = len({part.editor.compiled for part in parts}) == 1
    batch_sizes = {size for part in parts for size in part.editor.batch_sizes}
    merged_editor = editor.model_copy(
        update={
            "compiled": editor.compiled if are_alike else None,
            "batch_sizes": tuple(sorted(batch_sizes)),
        }
    )
    judges = [part.judge for part in parts]
    environments: dict[str, ComputedIn] = {}
    for part in parts:
        for digest, environment in part.environments.items():
            if digest in environments:
                environment = _added(environment, environments[digest])
            environments[digest] = environment
    return Computed(merged_editor, judges[0].model_copy(update=_answered(judges)), environments)


def _added(environment: ComputedIn, earlier: ComputedIn) -> ComputedIn:
    """Add up what was computed in one environment."""
    return environment.model_copy(
        update={
            "edits": environment.edits + earlier.edits,
            "verdicts": environment.verdicts + earlier.verdicts,
            "further": environment.further + earlier.further,
        }
    )


def _further(name: str, parts: Sequence[Results]) -> FurtherInfo:
    """Join what the shards know of an additional judge or a metric."""
    judges = [part.further[name] for part in parts]
    return judges[0].model_copy(update=_answered(judges))


def _answered(judges: Sequence[JudgeInfo]) -> dict[str, Any]:
    """Add up the tokens of a judge in all shards, its answers by model, and its canaries;
    join what people's choices say of it.
    """
    returned: Counter[str] = Counter()
    for judge in judges:
        returned.update(judge.returned)
    canaries = [judge.canary for judge in judges if judge.canary is not None]
    people = dict.fromkeys(row for judge in judges for row in judge.people)
    return {
        "usage": _usage(judges),
        "canary": _canary(canaries),
        "returned": dict(returned),
        "people": tuple(people),
    }


def _canary(canaries: Sequence[Canary]) -> Canary | None:
    """Join the canaries of one judge, whose counts are added up; `None` without any."""
    if not canaries:
        return None
    grades = [grade for canary in canaries for grade in canary.grades]
    models = [model for canary in canaries for model in canary.models]
    totals = {
        name: sum(getattr(canary, name) for canary in canaries)
        for name in ("rounds", "answers", "repeats", "differing", "failed")
    }
    return Canary(grades=tuple(grades), models=tuple(dict.fromkeys(models)), **totals)


def _usage(judges: Sequence[JudgeInfo]) -> Usage | None:
    """Add up tokens and costs, as far as they are counted; `None` if none are.

    The cost is `None` if that of any counted tokens is not known.
    """
    used = [judge.usage for judge in judges if judge.usage is not None]
    if not used:
        return None
    costs = [usage.cost for usage in used if usage.cost is not None]
    is_cost_known = len(costs) == len(used)
    tokens_in = sum(usage.tokens_in for usage in used)
    tokens_out = sum(usage.tokens_out for usage in used)
    return Usage(
        tokens_in=tokens_in, tokens_out=tokens_out, cost=sum(costs) if is_cost_known else None
    )


def _run_info(shards: Sequence[ShardRun]) -> RunInfo:
    """Describe the whole run, which ends now on this machine; the shards are its hosts.

    It has a name or a commit if all shards have the same one.
    """
    runs = [shard.results.run for shard in shards]
    first = runs[0]
    names = {run.name for run in runs}
    commits = {run.commit.sha if run.commit else None for run in runs}
    hosts = [
        HostOrigin(name=f"shard {shard.info}", versions=run.versions, machine=run.machine)
        for shard, run in zip(shards, runs, strict=True)
    ]
    return first.model_copy(
        update={
            "name": first.name if len(names) == 1 else "",
            "started": min(run.started for run in runs),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": provenance.versions(),
            "machine": provenance.machine(()),
            "hosts": tuple(hosts),
            "commit": first.commit if len(commits) == 1 else None,
        }
    )


def _timing(parts: Sequence[Timing]) -> Timing:
    """Add up counts, and take the longest times; the busy share of all GPUs is not known."""
    merged = Timing()
    for name in Timing.model_fields:
        values = [getattr(part, name) for part in parts]
        if name.endswith("_s"):
            setattr(merged, name, max(values))
        elif not name.endswith("_busy"):
            setattr(merged, name, sum(values))
    return merged


def merge(references: Sequence[str], out: Path) -> tuple[strict_json.JsonObject, str, int]:
    """Join shards to one run in the new store `out`, write its reports, and decide its gates.

    A reference is a run, or a store, which means its newest run. The exit code is 1 if a gate
    fails. Raises `UsageError` for shards of unlike runs, for a store that lacks what its results
    name, and if `out` is not empty.
    """
    outputs.check_folder(out)
    shards = read_shards(_path_of(reference) for reference in references)
    outputs.check_empty(out)
    results = _compared_results(shards)
    stores = read_stores(shards)
    with new_store(out) as store:
        folder = store.new_run()
        run = results.run.model_copy(update={"id": folder.name})
        results = results.model_copy(update={"run": run})
        collect(stores, store)
        write.write_results(results, folder)
        written = write.write_reports(results, folder, store.blobs.folder, RunSettings())
    merged_folder = out / "runs" / folder.name
    reports = {
        name: os.path.relpath(merged_folder / Path(path).name) for name, path in written.items()
    }
    summary_problem = write.add_to_github_summary(results)
    conclusion = outcome(results)
    lines = list(_probe_lines(shards))
    width = shutil.get_terminal_size().columns
    lines.append(terminal.render(results, width, color=False).rstrip())
    lines.append(f"imgedit: {conclusion.line}")
    if summary_problem:
        lines.append(f"warning: {summary_problem}")
    lines += [f"{report}: {path}" for report, path in reports.items()]
    document = {
        "run": results.run.id,
        "reports": reports,
        "state": conclusion.state,
        "outcome": conclusion.line,
    }
    return document, "\n".join(lines), int(conclusion.fails)


def _path_of(reference: str) -> Path:
    """Return the results.json of a run; of a store, that of its newest run."""
    folder = Path(reference)
    if files.is_folder(folder / "runs"):
        return find_run("latest", folder)
    return find_run(reference, folder)


def _compared_results(shards: Sequence[ShardRun]) -> Results:
    """Return the results of the whole run, compared with the baseline of its gates.

    Raises `UsageError` for a baseline that cannot be compared.
    """
    first = shards[0].results
    gates = first.run.options.gates
    name = gates.compare
    if name is None:
        return merge_results(shards, None)
    if name == "latest" and first.comparison is not None:
        name = first.comparison.run  # the shards are newer
    baseline = read_either(name, shards[0].store, names_of(first.suite))
    results = merge_results(shards, baseline)
    refuse_to_compare(
        baseline,
        make_baseline(results, "merge"),
        f"{name} and these runs",
        gated=bool(gates.max_drop),
    )
    return results
