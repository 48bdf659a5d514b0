"""The request for a run: checked settings, resolved models, and the selected pairs of a suite."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core import errors
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.results import GateResult
from pytest_imgedit.core.text import did_you_mean
from pytest_imgedit.kinds.base import Model, Role
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.run.duels import Opponent
from pytest_imgedit.run.work import SelectedShard
from pytest_imgedit.stats.gate_values import Selection
from pytest_imgedit.store.baselines import Baseline
from pytest_imgedit.suites.base import Suite


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a run is to do, with the selected pairs of a suite, or one `shard` of them.

    `resting` gates concern pairs outside the `selection`, which counts the pairs of all shards.
    The edits are put against those of the `opponent`, if there is one.
    `additional` are the additional judges and the metrics by name.
    """

    settings: Settings
    models: Mapping[Role, Model]
    suite: Suite
    pairs: Sequence[EditPair]
    selection: Selection
    resting: Sequence[GateResult] = ()
    baseline: Baseline | None = None
    opponent: Opponent | None = None
    shard: SelectedShard | None = None
    additional: Mapping[str, Model] = field(default_factory=dict)


def resolve_models(settings: Settings) -> dict[Role, Model]:
    """Resolve the specs of the editor and of the judge; a judge that could score is left out of a
    run that only edits.

    Raises `UsageError`, with its location, for a spec that names nothing.
    """
    models: dict[Role, Model] = {"editor": resolve("editor", settings)}
    if settings.run.stage != "edit" or not settings.judge.scores:
        models["judge"] = resolve("judge", settings)
    return models


def resolve_additional(settings: Settings) -> dict[str, Model]:
    """Resolve the specs of the additional judges and the metrics, by name; none if they do not
    score in this run.

    Raises `UsageError`, with its location, for a spec that names nothing that scores.
    """
    if not settings.has_additional_scores:
        return {}
    models = {
        name: resolve(scorer.role, scorer.settings, scorer.section)
        for name, scorer in settings.additional_scorers.items()
    }
    for name, model in models.items():
        if not model.scores:
            raise errors.UsageError(
                f"judge {name!r}: {model.spec!r} does not score edits; choose another judge"
            )
    return models


def resolve(role: Role, settings: Settings, section_name: str = "") -> Model:
    """Resolve the spec of the editor, a judge or a metric, and the batch size of edits.

    Raises `UsageError` with the location of the spec, in the section of this name of a config.
    """
    if role == "editor":
        model = _make_model(role, settings, section_name, settings.workers.gpus_per_worker)
        return replace(model, batch_size=_batch_size(model, settings))
    return _make_model(role, settings, section_name, settings.judge.gpus_per_replica)


def _make_model(role: Role, settings: Settings, section_name: str, gpus: int) -> Model:
    """Make a model by its spec; raise `UsageError` with the location of the spec, or of a parameter
    that looks like a misspelt `spec`.
    """
    section = settings.editor if role == "editor" else settings.judge
    try:
        return make_model(role, section.spec, section.params, gpus)
    except errors.UsageError as error:
        key = "spec"
        hint = ""
        for name in section.params:
            if did_you_mean(name, ["spec"]):
                key = name
                hint = f"; did you mean 'spec' by {name!r}?"
                break
        location = settings.place(section_name or role, key)
        raise errors.UsageError(f"{location}{error}{hint}") from None


def _batch_size(model: Model, settings: Settings) -> int:
    if settings.editor.batch_size != "auto":
        return settings.editor.batch_size
    if settings.workers.gpus_per_worker > 1:
        return 1
    return model.usual_batch
