"""A sample of the edits of one finished run is judged by the judge of another."""

from __future__ import annotations

import io
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from api_server import api_server, completion
from duel_judges import Knowing
from folders import fill
from in_process import run_in
from run_world import GRADES
from worker_threads import ThreadExecutor

from pytest_imgedit.config.settings import make_settings, read_tables
from pytest_imgedit.core import errors
from pytest_imgedit.report.read import read_results
from pytest_imgedit.run.rejudging import SAMPLE, rejudge
from pytest_imgedit.run.session import Session
from pytest_imgedit.stats.effects import JUDGE, effects
from pytest_imgedit.store.run_references import find_run

if TYPE_CHECKING:
    from pytest_imgedit.core.results import Results

pytestmark = pytest.mark.everyday

SUITE = "scenes:n=11"
PAIRS = 55
KNOWING = "duel_judges:Knowing"


def score(folder: Path, store: str, judge: str, *options: str) -> None:
    """Finish a run of half-done edits in a store."""
    models = ("--imgedit-editor=blend", f"--imgedit-judge={judge}")
    where = (f"--imgedit-suite={SUITE}", f"--imgedit-out={store}")
    code, printed = run_in(folder, *models, *where, *options)
    assert code == 0, printed


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs, each in a store of its own: one of all pairs by a judge that always
    says the same, and one of the same edits of 11 pairs by a judge that knows what is right.
    """
    folder = fill(tmp_path_factory.mktemp("finished"))
    score(folder, "a", "fakes:Constant")
    shutil.copytree(folder / "a", folder / "b")
    score(folder, "b", KNOWING, f"--imgedit-set=judge.truth={SUITE}", "-kphysics")
    return folder


@pytest.fixture
def runs(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Results, Results]:
    """Both runs, in a copy of the folder in which workers are threads."""
    folder = tmp_path / "here"
    shutil.copytree(finished, folder)
    monkeypatch.setattr("pytest_imgedit.workers.local.LocalExecutor", ThreadExecutor)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    Knowing.asked.clear()
    a, b = (read_results(find_run("latest", Path(store))) for store in "ab")
    return a, b


def asked(a: Results, b: Results, **judge: Any) -> tuple[dict[str, float], str]:
    """The scores of the sample, and what was printed, with the session's judge."""
    raw = read_tables(None)
    raw["judge"] = judge
    raw["run"] |= {"out": Path("a")}
    printed = io.StringIO()
    with closing(Session(make_settings(raw), Path())) as session:
        scores = rejudge(session, a, b, printed)
    return scores, printed.getvalue()


def test_at_most_50_pairs_are_asked_about_once(runs: tuple[Results, Results]) -> None:
    """Costly as the first to use the runs of this module, one of 55 pairs."""
    a, b = runs
    of_b = {item.id: item.score for item in b.items}
    b = b.model_copy(update={"items": a.items})
    scores, printed = asked(a, b)
    assert len(scores) == SAMPLE < PAIRS
    assert Knowing.asked == {"edit": SAMPLE}
    assert printed.startswith(
        "imgedit: plan: judge: 50 to 150 questions (50 edits), 0 in the store"
    )
    assert printed.index("plan: judge: ") < printed.index("score: 50 to do")
    assert {name: scores[name] for name in of_b if name in scores}.items() <= of_b.items()

    again, printed = asked(a, b)
    assert again == scores
    assert Knowing.asked == {"edit": SAMPLE}
    assert printed == "imgedit: plan: judge: 0 questions, 50 in the store\n"


def test_the_scores_are_those_that_effects_are_made_of(runs: tuple[Results, Results]) -> None:
    a, b = runs
    scores, _ = asked(a, b)
    told = effects(a, b, scores)
    assert told is not None
    (judge,) = (step for step in told.steps if step.name == JUDGE)
    assert (judge.before, judge.after) == (told.start, pytest.approx(told.end))
    assert told.unexplained == pytest.approx(0)


def test_pairs_without_a_score_in_both_are_not_asked_about(
    runs: tuple[Results, Results],
) -> None:
    a, b = runs
    names = [item.id for item in b.items[:3]]
    left = b.model_copy(update={"items": b.items[:3]})
    scores, _ = asked(a, left)
    assert sorted(scores) == sorted(names)
    gone = b.model_copy(update={"items": ()})
    with pytest.raises(errors.UsageError, match=r"--ask: runs .* share no pair with a score"):
        asked(a, gone)


def test_the_judge_of_the_session_is_asked_if_it_is_that_of_the_run(
    runs: tuple[Results, Results],
) -> None:
    a, b = runs
    untold = b.judge.model_copy(update={"spec": "https://***@host/judge"})
    secretive = b.model_copy(update={"judge": untold, "items": b.items[:2]})
    scores, _ = asked(a, secretive, spec=KNOWING, truth=SUITE)
    assert len(scores) == 2
    with pytest.raises(errors.UsageError) as caught:
        asked(a, secretive, spec=KNOWING, truth="scenes:n=1")
    line = str(caught.value)
    assert line.startswith(
        f"--ask: the judge of run {b.run.id} (https://***@host/judge) cannot be "
    )
    assert "another set of judge parameters: " in line
    assert "\n" not in line


def test_a_judge_that_has_changed_since_is_refused(runs: tuple[Results, Results]) -> None:
    a, b = runs
    changed = b.judge.model_copy(update={"fingerprint": "0" * 64})
    with pytest.raises(errors.UsageError, match="another judge's weights or code: 000000000000"):
        asked(a, b.model_copy(update={"judge": changed}))
    assert not Knowing.asked


def test_edits_that_are_gone_are_refused(runs: tuple[Results, Results]) -> None:
    a, b = runs
    shutil.rmtree("a/blobs")
    with pytest.raises(errors.UsageError, match=r"--ask: run .* lacks images: those of 11 of 11 "):
        asked(a, b)


def test_the_bill_of_a_server_has_tokens_and_a_price(runs: tuple[Results, Results]) -> None:
    a, _ = runs
    with api_server() as server:
        server.answer = lambda _: (200, completion(GRADES))
        spec = f"openai:{server.url}#m"
        score(Path(), "served", spec, "-kphysics")
        served = read_results(find_run("latest", Path("served")))
        before = len(server.asked)
        scores, printed = asked(a, served, spec=spec, price_in=2)
        count = len(server.asked) - before
    assert set(scores.values()) == {7.0}
    assert len(scores) == 11
    assert count == 11 + 1
    assert f"plan: judge: {count} to " in printed
    assert "(11 edits, 1 to try the server), 0 in the store; about " in printed
    assert " by judge.price_in and judge.price_out" in printed
