"""From the suite's pairs to items, and from the selected items to what has to be run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_imgedit.config.options import options_needing
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.plugin import command_line, shipped, xdist
from pytest_imgedit.plugin.state import (
    NEAR,
    PROBLEM,
    ROLE_OF_FIXTURE,
    SESSION,
    in_one_line,
    is_xdist_worker,
    session_of,
)

if TYPE_CHECKING:
    from pytest_imgedit.core.pairs import EditPair

#: What to do where no test wants a result.
REMEDY = "pytest --imgedit runs the shipped item, imgedit init writes one of your own"
#: What `@pytest.mark.imgedit` on a test may name.
_CRITERIA = ("category", "tag", "difficulty")
#: Items of pairs that belong to other shards.
ELSEWHERE = pytest.StashKey[Sequence[pytest.Item]]()


class _NoSuite:
    """Stands for the pair of an item where the suite cannot be had."""


def pair_of(item: pytest.Item) -> EditPair | None:
    """Return the pair of an item; `None` for items of other tests."""
    pair: EditPair | None = _parameter(item)  # a test may bring its own values for `edit_pair`
    return pair if hasattr(pair, "keywords") else None


def _parameter(item: pytest.Item) -> Any:
    return getattr(getattr(item, "callspec", None), "params", {}).get("edit_pair")


def parametrizes_pairs_itself(metafunc: pytest.Metafunc) -> bool:
    """Tell whether a test brings its own values for `edit_pair`."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else ()
        if isinstance(names, str):
            names = names.replace(" ", "").split(",")
        if "edit_pair" in names:
            return True
    return False


def parameters(metafunc: pytest.Metafunc) -> list[Any]:
    """Return one parameter for each pair that a test is for.

    If the suite cannot be read, the reason is stored in the stash, and the test gets a single
    parameter that stands for it. If its marks match no pair, it gets one that is skipped.
    """
    config = metafunc.config
    try:
        _settle_config(config, metafunc.definition)
        suite = session_of(config).suite
        pairs = _pairs_of_marks(metafunc.definition, suite.pairs)
    except UsageError as error:  # raised here, it would be a collection error with a traceback
        config.stash.setdefault(PROBLEM, in_one_line(error))
        return [pytest.param(_NoSuite(), id="no-suite", marks=pytest.mark.imgedit)]
    if not pairs:
        reason = f"no pair of suite {suite.name} is what the mark imgedit asks for"
        return [pytest.param(None, id="no-pair", marks=pytest.mark.skip(reason=reason))]
    return [_parameter_of(pair) for pair in pairs]


def _parameter_of(pair: EditPair) -> Any:
    marks = _marks(pair.category_names, tuple(pair.tags), pair.difficulty)
    return pytest.param(pair, id=pair.id, marks=marks)


def _settle_config(config: pytest.Config, item: pytest.Item) -> None:
    """Remember the folder of the first item, whose config the session uses.

    Raises `UsageError` if another item's folder has another config.
    """
    folder = config.invocation_params.dir if item.path == shipped.PATH else item.path.parent
    first = config.stash.setdefault(NEAR, folder)
    if folder != first:
        files = [command_line.find_config(config, path).path for path in (first, folder)]
        if len({file and file.resolve() for file in files}) > 1:
            names = " and ".join(str(file or "no config") for file in files)
            raise UsageError(
                f"{names}, for {first} and {folder}: expected one config a session, run them apart"
            )


def _pairs_of_marks(definition: pytest.Item, pairs: Sequence[EditPair]) -> list[EditPair]:
    """Return the pairs that match all `imgedit` marks of a test.

    Raises `UsageError` for a malformed mark, and for a value that the suite lacks but that is close
    to one of its own.
    """
    from pytest_imgedit.core.text import did_you_mean

    selected = list(pairs)
    place = f"{definition.nodeid.replace('::', ' ')}: mark imgedit"
    for mark in definition.iter_markers("imgedit"):
        if mark.args:
            raise UsageError(
                f"{place}({mark.args[0]!r:.40}), expected category=, tag= or difficulty="
            )
        for name, value in mark.kwargs.items():
            if name not in _CRITERIA:
                near = did_you_mean(name, _CRITERIA)
                raise UsageError(f"{place}({name}=…), expected one of {', '.join(_CRITERIA)}{near}")
            wanted = _values_of_criterion(place, name, value)
            present: set[str] = set()
            for pair in pairs:
                present |= _values_of_pair(pair, name)
            for word in wanted - present:
                near = did_you_mean(word, present)
                if near:
                    raise UsageError(f"{place}({name}={word!r}): the suite has none such{near}")
            selected = [pair for pair in selected if wanted & _values_of_pair(pair, name)]
    return selected


def _values_of_criterion(place: str, name: str, value: Any) -> set[str]:
    """Return the values that a mark names for a criterion, categories as slugs; raises `UsageError`
    unless they are a text or a list of texts.
    """
    from pytest_imgedit.core.pairs import category_slug

    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(isinstance(text, str) for text in values):
        raise UsageError(f"{place}({name}={value!r:.40}), expected text or a list of it")
    if name == "category":
        return {category_slug(text) for text in values}
    return set(values)


def _values_of_pair(pair: EditPair, criterion: str) -> set[str]:
    """Return the values that a pair has for one of `_CRITERIA`."""
    if criterion == "tag":
        return set(pair.tags)
    return {pair.category if criterion == "category" else pair.difficulty}


@cache
def _marks(
    names: tuple[str, ...], tags: tuple[str, ...], difficulty: str
) -> tuple[pytest.MarkDecorator, ...]:
    """Return a mark for each combination of a category name and a tag, by which `-m` finds a
    pair.
    """
    marks = []
    for name in names:
        mark = partial(pytest.mark.imgedit, category=name, difficulty=difficulty)
        if tags:
            marks += [mark(tag=tag) for tag in tags]
        else:
            marks.append(mark())
    return tuple(marks)


def make_plan(config: pytest.Config, items: Sequence[pytest.Item]) -> xdist.Plan:
    """Return what the selected items need from a run.

    Items that request `edit_pair` alone need no run. If no item has a pair, for example because the
    only test requests `imgedit_run`, all pairs are needed. Raises pytest's `UsageError` if the
    suite or the config cannot be read; an xdist worker returns a plan with that problem instead.
    """
    problem = problem_of(config, items)
    if problem is not None:
        return xdist.Plan(problem=problem)
    wanting = _wanting_results(items)
    running = [item for item in wanting if not _is_skipped(item)]
    elsewhere = _wanting_results(config.stash.get(ELSEWHERE, ()))
    ids = _pair_ids(running)
    others = _pair_ids(item for item in elsewhere if not _is_skipped(item))
    skipped = sorted(set(_pair_ids(wanting) + _pair_ids(elsewhere)) - set(ids + others))
    try:
        if running:
            _settle_config(config, running[0])
        if running and not ids and not others:
            ids, others = _ids_of_suite(config, skipped)
    except UsageError as error:
        if not is_xdist_worker(config):
            raise pytest.UsageError(in_one_line(error)) from None
        return xdist.Plan(problem=in_one_line(error))
    return xdist.Plan(
        items=[item.nodeid for item in running],
        ids=ids,
        others=others,
        skipped=skipped,
        calls=_called_fixtures(items),
        near=str(config.stash.get(NEAR, config.invocation_params.dir)),
    )


def _ids_of_suite(config: pytest.Config, skipped: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the ids of all pairs of the suite that are not skipped: those of this shard, and those
    of other shards.
    """
    ids = [pair.id for pair in session_of(config).suite.pairs if pair.id not in skipped]
    shard = session_of(config).settings.run.shard
    if shard is None:
        return ids, []
    ids_here = [name for name in ids if shard.has(name)]
    ids_elsewhere = [name for name in ids if not shard.has(name)]
    return ids_here, ids_elsewhere


def _called_fixtures(items: Iterable[pytest.Item]) -> list[str]:
    """Return the fixtures of `ROLE_OF_FIXTURE` that items request."""
    requested: set[str] = set()
    for item in items:
        if not _is_skipped(item):
            requested.update(getattr(item, "fixturenames", ()))
    return [name for name in ROLE_OF_FIXTURE if name in requested]


def _wanting_results(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    return [item for item in items if "imgedit_run" in getattr(item, "fixturenames", ())]


def _pair_ids(items: Iterable[pytest.Item]) -> list[str]:
    pairs = [pair_of(item) for item in items]
    return list(dict.fromkeys(pair.id for pair in pairs if pair is not None))


def take_shard(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--imgedit-shard`, deselect items of other shards and store them in the stash."""
    if config.option.imgedit_shard is None or PROBLEM in config.stash:
        return
    shard = session_of(config).settings.run.shard
    assert shard is not None
    elsewhere = []
    for item in items:
        pair = pair_of(item)
        if pair is not None and not shard.has(pair.id):
            elsewhere.append(item)
    if not elsewhere:
        return
    config.stash[ELSEWHERE] = elsewhere
    config.hook.pytest_deselected(items=elsewhere)
    deselected = set(elsewhere)
    items[:] = [item for item in items if item not in deselected]


def problem_of(config: pytest.Config, items: Sequence[pytest.Item]) -> str | None:
    """Return why there are no items of pairs; `None` if there are some, if only other items were
    selected, or if no reason is known.
    """
    if items and not any(isinstance(_parameter(item), _NoSuite) for item in items):
        return None
    return config.stash.get(PROBLEM, None)


def refuse_gates_without_items(config: pytest.Config) -> None:
    """Raise pytest's `UsageError` for options that need an evaluation, such as gates."""
    for option in options_needing("items"):
        if config.getoption(option.dest) is not None:
            raise pytest.UsageError(
                f"{option.flag}: no selected test requests edit_result, {REMEDY}"
            )


def _is_skipped(item: pytest.Item) -> bool:
    """Tell whether a mark keeps pytest from running an item.

    It asks what pytest itself asks before an item. A mark that cannot be evaluated skips nothing.
    """
    from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks

    try:
        xfail = evaluate_xfail_marks(item)
        is_run = xfail is None or xfail.run or bool(item.config.option.runxfail)
        return evaluate_skip_marks(item) is not None or not is_run
    except pytest.fail.Exception:
        return False


def hints(config: pytest.Config) -> list[str]:
    """Return a line of advice if options ask for an evaluation that no collected test needs, or if
    `-k` or `-m` selects no pair; otherwise nothing.
    """
    if SESSION not in config.stash:
        is_meant = command_line.explicit_options(config) or _is_empty_benchmark(config)
        if is_meant and not config.option.collectonly:
            return [
                f"no collected test requests edit_result, so that nothing was evaluated: {REMEDY}"
            ]
        return []
    expression = config.option.keyword or config.option.markexpr
    session = config.pluginmanager.get_plugin("session")
    if not expression or session is None or session.testscollected or PROBLEM in config.stash:
        return []
    suite = session_of(config).suite
    categories = ", ".join(suite.categories)
    near = _nearest_name(expression, suite.pairs)
    return [
        f"{expression!r} selects none of {len(suite.pairs)} pairs; categories: {categories}{near}"
    ]


def _is_empty_benchmark(config: pytest.Config) -> bool:
    """Tell whether pytest was to run a folder of benchmarks, and found no test in it."""
    session = config.pluginmanager.get_plugin("session")
    folders = [Path(argument.partition("::")[0]) for argument in config.args]
    is_benchmark = any(
        folder.absolute().name == "benchmarks" or (folder / "imgedit.toml").exists()
        for folder in folders
    )
    return is_benchmark and session is not None and not session.items and not session.testsfailed


def _nearest_name(expression: str, pairs: Sequence[EditPair]) -> str:
    """Return a hint at the category or tag that a `-k` or `-m` expression probably means; an empty
    text if no word of it is close to one.
    """
    from pytest_imgedit.core.text import did_you_mean

    names: dict[str, None] = {}
    for pair in pairs:
        names |= dict.fromkeys(pair.category_names)
        names |= dict.fromkeys(pair.tags)
    syntax = ("and", "or", "not", "imgedit") + _CRITERIA
    for word in re.findall(r"[\w-]+", expression):
        near = "" if word in syntax else did_you_mean(word, names)
        if near:
            return near
    return ""
