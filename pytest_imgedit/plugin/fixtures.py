"""Fixtures for benchmarks and for tests of a user's own; their docstrings are their
documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_imgedit.plugin import junit, state

if TYPE_CHECKING:
    from pytest_imgedit.core import items, pairs
    from pytest_imgedit.run.finish import FinishedRun
    from pytest_imgedit.run.fixture_calls import EditWorkers, RewardModel


@pytest.fixture
def edit_pair(request: pytest.FixtureRequest) -> pairs.EditPair:
    """One pair of the suite: a test that requests it runs once for every pair.

    >>> def test_instruction_is_short(edit_pair):
    ...     assert len(edit_pair.instruction) < 300
    """
    pair: pairs.EditPair = request.param
    return pair


@pytest.fixture
def edit_result(
    edit_pair: pairs.EditPair, imgedit_run: FinishedRun, request: pytest.FixtureRequest
) -> items.ItemResult:
    """How this pair ended: score, aspects, edits, verdicts or error, and `source`, `edited` and
    `reference` as images; `sources` are all source images in the pair's order.

    Score, aspects, error, the difference to a baseline and the share of duels won go to JUnit as
    properties. A test of a pair that was not needed, or was dropped, is skipped. While the run's
    errors stay within `--imgedit-max-errors`, a test of a pair that ended in an error, and was not
    interrupted, is reported as xfailed with the reason.

    >>> def test_image_edit(edit_result):
    ...     edit_result.check()
    >>> def test_edit_keeps_size(edit_result):
    ...     assert edit_result.edited.size == edit_result.source.size
    """
    result = imgedit_run.items.get(edit_pair.id)
    if result is None:
        pytest.fail(f"the run holds no result for {edit_pair.id}", pytrace=False)

    # pytest's `record_property` warns under junit_family=xunit2
    results = imgedit_run.results
    request.node.user_properties.extend(
        junit.item_properties(result, results.comparison, results.duel)
    )
    if result.status == "not_needed":
        pytest.skip(f"not needed: {result.error.message if result.error else ''}")
    if result.status == "dropped":
        pytest.skip(str(result.error))
    if (
        result.error is not None
        and result.status != "interrupted"
        and state.errors_tolerated(request.config)
    ):
        pytest.xfail(str(result.error))
    return result


@pytest.fixture(scope="session")
def imgedit_run(request: pytest.FixtureRequest) -> FinishedRun:
    """The finished run over all selected pairs: `items` by id, and `results`, which results.json
    holds.

    >>> def test_physics_is_not_the_weakest(imgedit_run):
    ...     means = {name: row.mean for name, row in imgedit_run.results.categories.items()}
    ...     assert means["physics"] > min(means.values())
    """
    run = state.finished_run(request.config)
    if run is None:
        pytest.fail("nothing was run", pytrace=False)
    return run


@pytest.fixture(scope="session")
def edit_workers(request: pytest.FixtureRequest) -> EditWorkers:
    """The run's editor and its workers, for a test's own images; `edit` and `edit_batch`.

    The workers of the run keep running, so each model is loaded once per session. If editor and
    judge do not fit on the GPUs together, calling one ends the workers of the other: edit all
    images first, then score them. Under `pytest -n`, the controller answers the calls.

    >>> def test_edit_keeps_size(edit_workers, photo):
    ...     assert edit_workers.edit(photo, "make it snow").size == photo.size
    """
    from pytest_imgedit.run.fixture_calls import EditWorkers

    return EditWorkers(state.calls_of(request.config, "edit_workers").edit)


@pytest.fixture(scope="session")
def reward_model(request: pytest.FixtureRequest) -> RewardModel:
    """The run's judge, protocol and workers, for a test's own edits; `score` and `score_batch`. See
    `edit_workers`.

    >>> def test_untouched_image_scores_low(reward_model, photo):
    ...     assert reward_model.score(photo, photo, "make it snow", "environment").score < 3
    """
    from pytest_imgedit.run.fixture_calls import RewardModel

    return RewardModel(state.calls_of(request.config, "reward_model").score)
