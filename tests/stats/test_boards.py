"""Boards: against closed forms, plain maximum likelihood, and votes that no rating fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from pytest_imgedit.core.choices import Winner
from pytest_imgedit.core.duel_votes import DuelVote
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.stats.boards import ELO, Board, EloDifference, RatedSystem, rate
from pytest_imgedit.stats.davidson import fit
from pytest_imgedit.stats.vote_counts import Coded, Tally

pytestmark = pytest.mark.everyday


def by_system(board: Board) -> dict[str, RatedSystem]:
    return {row.system: row for row in board.rows}


def elo(board: Board) -> dict[str, float]:
    return {row.system: row.overall.elo for row in board.rows}


def decided(a: str, b: str, outcome: str, pair: str = "") -> list[DuelVote]:
    """Votes of unknown order: `a` wins, `b` wins or a tie, a letter each, of a pair each."""
    winners: dict[str, Winner] = {"a": "a", "b": "b", "=": "tie"}
    return [
        DuelVote(pair=pair or f"p{place}", a=a, b=b, winner=winners[letter])
        for place, letter in enumerate(outcome)
    ]


def drawn(
    thetas: Sequence[float] = (0.6, 0.1, -0.2, -0.5),
    *,
    prompts: int = 40,
    orders: dict[str, float] | None = None,
    ties: dict[str, float] | None = None,
    seed: int = 0,
) -> list[DuelVote]:
    """Votes by the model of all pairs of systems `s0`, … in both orders: δ by judge, and log ν by
    dimension.
    """
    generator = np.random.default_rng(seed)
    orders = orders or {"x": 0.5, "y": -0.3}
    ties = ties or {"instruction": -0.5, "quality": 0.4}
    winners: tuple[Winner, ...] = ("a", "tie", "b")
    votes = []
    for prompt in range(prompts):
        for i in range(len(thetas)):
            for j in range(len(thetas)):
                for judge, delta in orders.items():
                    for dimension, log_tie in ties.items():
                        if i == j:
                            continue
                        logs = np.array([thetas[i] + delta / 2, 0, thetas[j] - delta / 2])
                        logs[1] = log_tie + (thetas[i] + thetas[j]) / 2
                        shares = np.exp(logs - logsumexp(logs))
                        outcome = generator.choice(3, p=shares)
                        vote = DuelVote(
                            pair=f"p{prompt}",
                            a=f"s{i}",
                            b=f"s{j}",
                            winner=winners[outcome],
                            first="a",
                            judge=judge,
                            dimension=dimension,
                            category=f"c{prompt % 2}",
                        )
                        votes.append(vote)
    return votes


def test_a_chain_is_exact():
    votes = []
    for place in range(15):
        votes += decided(f"m{place:02d}", f"m{place + 1:02d}", "aaab")
    found = elo(rate(votes))
    for place in range(16):
        expected = (7.5 - place) * math.log(3) * ELO
        assert found[f"m{place:02d}"] == pytest.approx(expected, abs=1e-6)


def plain_fit(votes: Sequence[DuelVote]) -> tuple[np.ndarray, dict[str, float], dict[str, float]]:
    """Maximise the same likelihood vote by vote: θ in the order of names, δ by judge, ν by
    dimension.
    """
    systems = sorted({vote.a for vote in votes} | {vote.b for vote in votes})
    judges = sorted({vote.judge for vote in votes})
    dimensions = sorted({vote.dimension for vote in votes})
    a = np.array([systems.index(vote.a) for vote in votes])
    b = np.array([systems.index(vote.b) for vote in votes])
    judge = np.array([judges.index(vote.judge) for vote in votes])
    dimension = np.array([dimensions.index(vote.dimension) for vote in votes])
    sign = np.array([{"a": 0.5, "b": -0.5, "": 0.0}[vote.first] for vote in votes])
    outcome = np.array([{"a": 0, "tie": 1, "b": 2}[vote.winner] for vote in votes])
    ends = np.cumsum([len(systems), len(judges)])

    def loss(parameters: np.ndarray) -> float:
        theta, delta, log_tie = np.split(parameters, ends)
        shift = sign * delta[judge]
        logs = np.stack(
            [theta[a] + shift, log_tie[dimension] + (theta[a] + theta[b]) / 2, theta[b] - shift]
        )
        chosen = logs[outcome, np.arange(len(votes))]
        return -float((chosen - logsumexp(logs, axis=0)).mean()) + float(theta.mean() ** 2)

    size = len(systems) + len(judges) + len(dimensions)
    found = minimize(loss, np.zeros(size), method="BFGS", options={"gtol": 1e-8})
    theta, delta, log_tie = np.split(found.x, ends)
    first = dict(zip(judges, (1 / (1 + np.exp(-delta))).tolist(), strict=True))
    ties = dict(zip(dimensions, (1 / (1 + 2 * np.exp(-log_tie))).tolist(), strict=True))
    return theta - theta.mean(), first, ties


def test_a_board_is_the_maximum_of_the_likelihood():
    votes = drawn(prompts=25)
    board = rate(votes)
    theta, first, ties = plain_fit(votes)
    for place, value in enumerate(theta):
        assert elo(board)[f"s{place}"] == pytest.approx(value * ELO, abs=0.01)
    assert {name: chance.share for name, chance in board.first.items()} == pytest.approx(
        first, abs=1e-5
    )
    assert {name: chance.share for name, chance in board.ties.items()} == pytest.approx(
        ties, abs=1e-5
    )
    only = [vote for vote in votes if vote.dimension == "quality"]
    for place, value in enumerate(plain_fit(only)[0]):
        row = by_system(board)[f"s{place}"]
        assert row.dimensions["quality"].elo == pytest.approx(value * ELO, abs=0.01)
    of_category = [vote for vote in votes if vote.category == "c1"]
    for place, value in enumerate(plain_fit(of_category)[0]):
        row = by_system(board)[f"s{place}"]
        assert row.categories["c1"].elo == pytest.approx(value * ELO, abs=0.01)


def test_names_and_the_order_of_votes_move_nothing():
    votes = drawn(prompts=20)
    board = rate(votes, reference="s1")
    names = {"s0": "zebra", "s1": "m", "s2": "a", "s3": "k"}
    renamed = [
        replace(
            vote,
            a=names[vote.b],
            b=names[vote.a],
            first="b",
            winner={"a": "b", "b": "a", "tie": "tie"}[vote.winner],
            pair=f"{int(vote.pair[1:]) * 7 % 20}",
            judge={"x": "b", "y": "a"}[vote.judge],
        )
        for vote in votes
    ]
    generator = np.random.default_rng(3)
    shuffled = [renamed[place] for place in generator.permutation(len(renamed)).tolist()]
    again = rate(shuffled, reference="m")
    assert [names[row.system] for row in board.rows] == [row.system for row in again.rows]
    for row, other in zip(board.rows, again.rows, strict=True):
        assert other.overall.elo == pytest.approx(row.overall.elo, abs=1e-8)
        assert other.overall.ci95 == pytest.approx(row.overall.ci95, abs=1e-6)
        assert (other.rank_interval, other.groups) == (row.rank_interval, row.groups)
        assert (other.wins, other.ties, other.losses) == (row.wins, row.ties, row.losses)
        for name, rating in row.dimensions.items():
            assert other.dimensions[name].ci95 == pytest.approx(rating.ci95, abs=1e-6)
        if row.difference is not None and other.difference is not None:
            assert other.difference.p == pytest.approx(row.difference.p)
    assert again.first["b"].share == pytest.approx(board.first["x"].share)


def test_a_preference_for_the_first_is_told_from_the_systems():
    votes = drawn((0.0, 0.0, 0.0), prompts=150, orders={"x": math.log(7 / 3)})
    board = rate(votes)
    assert max(abs(rating) for rating in elo(board).values()) < 25
    assert board.first["x"].share == pytest.approx(0.7, abs=0.03)
    low, high = board.first["x"].ci95 or (0.0, 0.0)
    assert low < 0.7 < high
    assert high - low < 0.08


def test_two_systems_with_ties_have_the_closed_form():
    board = rate(decided("new", "old", "aaaaaa==bbb"))
    assert elo(board)["new"] - elo(board)["old"] == pytest.approx(math.log(2) * ELO)
    nu = 2 / math.sqrt(6 * 3)
    assert board.ties["score"].share == pytest.approx(nu / (2 + nu))
    assert board.rows[0].wins == 6
    assert (board.rows[0].ties, board.rows[0].losses) == (2, 3)
    assert (board.votes, board.pairs, board.clusters) == (11, 11, 11)
    assert (board.first, board.rows[0].dimensions, board.rows[0].categories) == ({}, {}, {})


def test_an_interval_of_two_systems_is_that_of_the_log_odds():
    votes = decided("new", "old", "a" * 60 + "b" * 40)
    row = by_system(rate(votes, reference="old"))["new"]
    assert row.difference is not None
    assert row.difference.ci95 is not None
    width = row.difference.ci95[1] - row.difference.ci95[0]
    # the standard error of log odds is 1/√(100·0.6·0.4)
    assert width == pytest.approx(2 * 1.984 * math.sqrt(100 / 99 / 24) * ELO, rel=0.01)


def test_pairs_of_a_source_are_not_counted_twice():
    votes = drawn(prompts=30)
    doubled = votes + [replace(vote, pair=f"{vote.pair}+", cluster=vote.pair) for vote in votes]
    once, twice = rate(votes), rate(doubled)
    assert twice.pairs == 2 * once.pairs
    assert twice.clusters == once.clusters
    for row, other in zip(once.rows, twice.rows, strict=True):
        assert other.overall.ci95 == pytest.approx(row.overall.ci95, abs=1e-6)


def test_weights_are_numbers_of_votes():
    votes = drawn(prompts=8)
    coded = Coded.of(votes)
    times = np.arange(len(votes)) % 3 + 1
    weighted, _ = fit(Tally.of(replace(coded, weight=times.astype(float))))
    repeated, _ = fit(Tally.of(Coded.of(np.repeat(np.array(votes), times).tolist())))
    assert weighted.parameters == pytest.approx(repeated.parameters)


def test_parts_that_no_vote_connects_are_named():
    votes = decided("a", "b", "ab") + decided("b", "c", "ab") + decided("d", "e", "ab")
    with pytest.raises(UsageError, match=r"2 parts that no vote connects: a, b, c \| d, e:"):
        rate(votes)
    crowd = [vote for n in range(9) for vote in decided("hub", f"m{n}", "ab")]
    with pytest.raises(UsageError, match=r": hub, m0, m1, m2, m3 and 5 more \| d, e:"):
        rate(crowd + decided("d", "e", "ab"))


@pytest.mark.parametrize(
    ("outcome", "said"), [("aaa", "best won every vote"), ("bbb", "best lost every vote")]
)
def test_a_system_that_won_or_lost_every_vote_is_named(outcome, said):
    votes = decided("x", "y", "aab") + decided("y", "z", "ab") + decided("best", "y", outcome)
    with pytest.raises(UsageError, match=rf"no finite rating fits: {said} against the rest: add"):
        rate(votes)
    one_tie = decided("best", "y", f"{outcome}=") + decided("x", "y", "ab")
    assert elo(rate(one_tie + decided("x", "best", "ab")))


def test_ties_can_leave_no_finite_rating_either():
    with pytest.raises(UsageError, match="no finite rating fits: the votes and ties of 1 system"):
        rate(decided("a", "b", "aa="))
    with pytest.raises(UsageError, match="every vote is a tie"):
        rate(decided("a", "b", "=="))


def test_dimensions_and_categories_that_cannot_be_fitted_are_noted():
    votes = drawn(prompts=20)
    extra = [
        replace(vote, dimension="text", category="c0") for vote in decided("s0", "s1", "aaa", "p1")
    ]
    board = rate(votes + extra)
    assert set(board.rows[0].dimensions) == {"instruction", "quality"}
    (note,) = board.notes
    assert note.startswith("dimension text has no ratings of its own: 3 parts that no vote connec")
    assert board.ties["text"].share == 0.0


def test_scores_are_left_out_beside_dimensions():
    votes = drawn(prompts=20)
    sums = [replace(vote, dimension="score", winner="a") for vote in votes[:50]]
    board, plain = rate(votes + sums), rate(votes)
    assert elo(board) == elo(plain)
    assert board.votes == plain.votes
    assert board.notes == ("50 votes on score left out: it sums up the other dimensions",)


def test_differences_from_a_reference_are_corrected_by_holm():
    votes = drawn((0.22, 0.08, 0.0), prompts=40, seed=1)
    rows = by_system(rate(votes, reference="s2"))
    assert rows["s2"].difference is None
    fitted, _ = fit(Tally.of(Coded.of(votes)))
    single = []
    for place in (0, 1):
        own = fitted.difference(place, 2)
        single.append(2 * min(own.p_below(0), own.p_above(0)))
        other = rows[f"s{place}"].difference
        assert other is not None
        assert other.elo == pytest.approx(own.mean * ELO)
        low, high = own.interval() or (0.0, 0.0)
        assert other.ci95 == pytest.approx((low * ELO, high * ELO))
    adjusted = [row.difference.p for row in (rows["s0"], rows["s1"]) if row.difference]
    assert 0.001 < single[0] < single[1] / 2.5
    assert adjusted == pytest.approx([2 * single[0], single[1]], rel=0.05)
    with pytest.raises(UsageError, match="reference 's9' is not among the systems"):
        rate(votes, reference="s9")


def test_one_source_tells_no_interval():
    votes = [replace(vote, cluster="only") for vote in drawn(prompts=15)]
    board = rate(votes, reference="s0")
    assert board.clusters == 1
    assert all(row.overall.ci95 is None for row in board.rows)
    assert all(row.rank_interval == (1, 4) for row in board.rows)
    assert {chance.ci95 for chance in (*board.first.values(), *board.ties.values())} == {None}
    assert by_system(board)["s1"].difference.p == 1.0


def test_a_judge_that_always_prefers_the_first_says_nothing():
    votes = [replace(vote, winner=vote.first) for vote in drawn(prompts=20, orders={"x": 0.0})]
    board = rate(votes)
    assert elo(board) == pytest.approx(dict.fromkeys(elo(board), 0.0), abs=1e-9)
    assert board.first["x"].share == 1.0
    assert board.rows[0].rank_interval == (1, 4)
    (note,) = board.notes
    assert note.startswith("1 judge (x) preferred the edit shown first, or the other, in every")


def test_a_judge_whose_orders_tell_nothing_has_no_chance():
    votes = [replace(vote, first="") for vote in drawn(prompts=20)]
    assert rate(votes).first == {}
    # s0 is always shown first: the order cannot be told from s0
    two = [replace(vote, first="a") for vote in decided("s0", "s1", "aab")]
    board = rate(two)
    assert board.first == {}
    assert "do not tell an order effect" in board.notes[0]


def test_an_order_effect_that_would_be_infinite_is_left_out():
    # with one, `new` shown first wins without end, and the votes in the other order are even
    votes = [replace(vote, first="a") for vote in decided("new", "old", "aaa")]
    votes += [replace(vote, first="b") for vote in decided("new", "old", "ab")]
    board = rate(votes)
    assert board.rows[0].overall.elo == pytest.approx(math.log(4) / 2 * ELO)
    assert board.first == {}
    (note,) = board.notes
    assert note.startswith("no order effect is fitted")


def test_judges_of_few_votes_share_an_order_effect():
    votes = drawn((0.3, 0.0, -0.3), prompts=60, orders={"x": math.log(3)}, seed=2)
    people = [replace(vote, judge=f"p{place // 2}") for place, vote in enumerate(votes)]
    board, alone = rate(people), rate(votes)
    assert elo(board) == pytest.approx(elo(alone))
    assert board.first == {}
    (note,) = board.notes
    assert note.startswith("360 judges (p0, p1, p10, p100, p101 and 355 more) of fewer than 50 vo")
    assert note.endswith(f"chance of {alone.first['x'].share:.2f}")


def test_clear_differences_are_told():
    board = rate(drawn((1.5, 0.0, -1.5), prompts=30))
    assert [row.system for row in board.rows] == ["s0", "s1", "s2"]
    assert [row.rank_interval for row in board.rows] == [(1, 1), (2, 2), (3, 3)]
    assert [row.groups for row in board.rows] == [(1,), (2,), (3,)]


def test_votes_of_a_system_and_itself_and_no_votes_are_refused():
    with pytest.raises(UsageError, match="no vote to rate systems by"):
        rate([])
    vote = DuelVote(pair="p", a="x", b="x", winner="a", row="v.csv:3")
    with pytest.raises(UsageError, match=r"v\.csv:3: a vote between x and itself"):
        rate([vote])


def test_a_share_against_each_system_counts_ties_half() -> None:
    votes = [*decided("x", "y", "aab="), *decided("y", "z", "ab"), *decided("z", "x", "ab=")]
    rows = by_system(rate(votes))
    assert rows["x"].against == {"y": 2.5 / 4, "z": 0.5}
    assert rows["y"].against == {"x": 1.5 / 4, "z": 0.5}


def test_clusters_that_all_say_the_same_tell_no_interval() -> None:
    votes = [*decided("x", "y", "ab", pair="p"), *decided("x", "y", "ab", pair="q")]
    board = rate(votes, reference="x")
    assert [row.overall.ci95 for row in board.rows] == [None, None]
    assert by_system(board)["y"].difference == EloDifference(0.0, None, 1.0)
