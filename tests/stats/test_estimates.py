"""Statistics against scipy, hand-worked examples and simulation."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from documents import a_baseline, an_item
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from pytest_imgedit.core.measures import SCORE_ONLY
from pytest_imgedit.stats import decision
from pytest_imgedit.stats.comparison import PairedItems, compare
from pytest_imgedit.stats.estimates import complete, draft, estimate, sign_flip
from pytest_imgedit.stats.gate_values import Observation
from pytest_imgedit.stats.holm import holm
from pytest_imgedit.store.baselines import reduced


def own_clusters(values):
    return [str(index) for index in range(len(values))]


def summarize(*drafted, **counts):
    return complete([draft(*drafted, **counts)])[0]


@given(st.lists(st.floats(0, 10), min_size=2, max_size=30))
def test_without_shared_sources_the_interval_is_students(values):
    summary, found = summarize(values, own_clusters(values)), estimate(values, own_clusters(values))
    assert summary.mean == pytest.approx(np.mean(values))
    assert summary.std == pytest.approx(np.std(values, ddof=1))
    assert summary.median == pytest.approx(np.median(values))
    half = scipy_stats.t.ppf(0.975, len(values) - 1) * scipy_stats.sem(values)
    assert found.interval() == pytest.approx(
        (np.mean(values) - half, np.mean(values) + half), abs=1e-7
    )


def cr2_by_matrices(values, names):
    """The CR2 variance and Satterthwaite's degrees of freedom of a mean of independent pairs, with
    whole matrices.
    """
    n, scores = len(values), np.array(values)
    inside = [np.flatnonzero(np.array(names) == name) for name in dict.fromkeys(names)]
    residual = np.eye(n) - np.full((n, n), 1 / n)
    variance, columns = 0.0, []
    for members in inside:
        block = residual[np.ix_(members, members)]
        roots, vectors = np.linalg.eigh(block)
        adjusted = vectors @ np.diag(roots**-0.5) @ vectors.T
        weights = np.full(len(members), 1 / n) @ adjusted
        variance += float((weights @ (residual @ scores)[members]) ** 2)
        columns.append(residual[:, members] @ weights)
    gram = np.array(columns) @ np.array(columns).T
    return variance, np.trace(gram) ** 2 / (gram**2).sum()


def test_uneven_clusters_are_no_surer_than_cr2():
    generator = np.random.default_rng(0)
    for sizes in ([20, *[1] * 9], [30, *[2] * 19], [10, 10, 10, 10, *[1] * 16], [1, 2, 3]):
        names = [str(place) for place, size in enumerate(sizes) for _ in range(size)]
        values = generator.normal(5, 1, len(names)).tolist()
        variance, freedom = cr2_by_matrices(values, names)
        found = estimate(values, names)
        assert found.se**2 >= variance - 1e-12
        assert found.freedom <= freedom + 1e-9
    even = [str(place // 3) for place in range(30)]
    values = generator.normal(5, 1, 30).tolist()
    assert (estimate(values, even).se ** 2, estimate(values, even).freedom) == pytest.approx(
        cr2_by_matrices(values, even)
    )


@pytest.mark.parametrize("sizes", [[20, *[1] * 9], [30, *[2] * 19], [10, 10, 10, 10, *[1] * 16]])
def test_intervals_of_uneven_clusters_cover_the_truth(sizes):
    generator, covered = np.random.default_rng(1), [0, 0]
    names = [str(place) for place, size in enumerate(sizes) for _ in range(size)]
    for _ in range(300):
        shared = np.repeat(generator.normal(0, 1, len(sizes)), sizes)
        values = np.clip(6 + shared + generator.normal(0, 0.5, len(names)), 0, 10)
        found = estimate(values.tolist(), names)
        for place, (low, high) in enumerate((found.interval(), found.bounded_interval(0, 10))):
            covered[place] += low <= 6 <= high
    assert min(covered) / 300 >= 0.93


def test_standard_error_of_clusters_by_hand():
    # mean 4; cluster sums of deviations: (-3 - 1) = -4 and (1 + 3) = 4; √(2/1 · (16 + 16)) / 4 = 2
    assert estimate([1.0, 3.0, 5.0, 7.0], ["a", "a", "b", "b"]).se == pytest.approx(2.0)


def test_repeating_every_pair_does_not_shrink_the_interval():
    values = [1.0, 4.0, 6.0, 9.0]
    once = summarize(values, own_clusters(values))
    twice = summarize(values * 2, own_clusters(values) * 2)
    assert twice.ci95 == pytest.approx(once.ci95)


def test_small_and_empty_groups_have_no_interval():
    assert summarize([], [], errors=3).mean is None
    assert summarize([], [], errors=3).n == 3
    one = summarize([4.0], ["a"])
    assert (one.mean, one.std, one.ci95) == (4.0, None, None)
    assert summarize([4.0, 5.0], ["a", "a"]).ci95 is None


def whole(*groups):
    """Summarize categories, each a list of (score, cluster), as a run does."""
    scores, names, categories = zip(
        *((score, name, str(place)) for place, group in enumerate(groups) for score, name in group),
        strict=True,
    )
    return complete([replace(draft(scores, names), mean=estimate(scores, names, categories))])[0]


def test_macro_weighs_categories_alike():
    overall = whole([(2.0, str(place)) for place in range(50)], [(8.0, "x"), (8.0, "y")])
    assert overall.mean == 5.0
    assert overall.n == 52
    assert (overall.median, overall.min, overall.max) == (2.0, 2.0, 8.0)


def test_a_summary_without_an_estimate_has_no_mean_and_the_spread_of_pairs():
    (summary,) = complete([replace(draft([2.0, 4.0], ["a", "b"]), mean=None)])
    assert (summary.mean, summary.ci95, summary.se, summary.mde) == (None, None, None, None)
    assert (summary.n, summary.std, summary.max) == (2, 2**0.5, 4.0)


def test_macro_standard_error_by_hand():
    # SEs 1 and 2, the smaller of which is raised to the pooled √2.5, both with the freedom of both,
    # as pairs are few: √(2.5 + 4) / 2; Welch-Satterthwaite freedom (2.5 + 4)² / (2.5² + 4²) · 2
    overall = whole([(1.0, "a"), (3.0, "b")], [(4.0, "c"), (8.0, "d")])
    assert overall.se == pytest.approx(6.5**0.5 / 2)
    found = estimate([1.0, 3.0, 4.0, 8.0], ["a", "b", "c", "d"], ["x", "x", "y", "y"])
    assert found.freedom == pytest.approx(42.25 / 11.125)


def test_the_macro_standard_error_of_many_pairs_is_that_of_its_categories():
    values = [float(n) for n in range(8)], [2.0 * n for n in range(8)]
    found = estimate([*values[0], *values[1]], [str(n) for n in range(16)], ["x"] * 8 + ["y"] * 8)
    assert found.se == pytest.approx((6 / 8 + 24 / 8) ** 0.5 / 2)


def test_a_small_category_whose_values_are_near_each_other_promises_no_more_than_the_others():
    """Of a category of 3 pairs, which has a fifth of the weight of 83, the interval held the truth
    in 92% of runs.
    """
    generator, held = np.random.default_rng(1), 0
    categories = [f"c{n // 20}" for n in range(83)]
    for _ in range(400):
        values = np.round(generator.normal(0, 1.5, 83)).tolist()
        low, high = estimate(values, [str(n) for n in range(83)], categories).interval()
        held += low <= 0 <= high
    assert held / 400 >= 0.94


def test_a_small_category_costs_no_more_power_than_its_own_error():
    """With the two degrees of freedom of 3 wide pairs, 48% of runs found that all fell by 1 point,
    and 87% without them.
    """
    generator, found = np.random.default_rng(2), 0
    categories, clusters = [f"c{n // 20}" for n in range(83)], [str(n) for n in range(83)]
    for _ in range(400):
        values = generator.normal(-1, 2.8, 83)
        found += estimate(values.tolist(), clusters, categories).p_below(0) <= 0.025
    assert found / 400 >= 0.55


def test_a_small_category_of_thrice_the_variance_gives_no_more_false_alarms():
    generator, alarms = np.random.default_rng(3), 0
    categories, clusters = [f"c{n // 20}" for n in range(83)], [str(n) for n in range(83)]
    for _ in range(600):
        values = generator.normal(0, [1.0] * 80 + [3**0.5] * 3)
        alarms += estimate(values.tolist(), clusters, categories).p_below(0) <= 0.025
    assert alarms / 600 <= 0.025 + 2 * (0.025 / 600) ** 0.5


def test_more_pairs_alone_do_not_tell_that_a_small_category_has_no_spread():
    values, clusters = [*np.arange(20.0), *[5.0] * 20], [str(n) for n in range(40)]
    categories = ["wide"] * 20 + ["equal"] * 20
    found, cautious = (estimate(values, clusters, categories, enough) for enough in (8, 24))
    assert found.se == pytest.approx(35**0.5 / 20**0.5 / 2)
    assert cautious.se == pytest.approx((52.5 / 20) ** 0.5 / 2)


def test_categories_that_share_their_sources_are_no_further_evidence():
    values, names = [1.0, 4.0, 6.0, 9.0], ["a", "b", "c", "d"]
    once = estimate(values, names)
    thrice = estimate(values * 3, names * 3, ["x"] * 4 + ["y"] * 4 + ["z"] * 4)
    assert thrice.se == pytest.approx(once.se)
    assert thrice.freedom == once.freedom
    assert thrice.interval() == pytest.approx(once.interval())
    apart = estimate(values * 3, [f"{n}" for n in range(12)], ["x"] * 4 + ["y"] * 4 + ["z"] * 4)
    assert apart.se == pytest.approx(once.se / 3**0.5)


def test_macro_intervals_over_shared_sources_cover_the_truth():
    generator, covered = np.random.default_rng(3), 0
    names = [str(n) for n in range(20)] * 5
    categories = [str(k) for k in range(5) for _ in range(20)]
    for _ in range(400):
        values = 5 + np.tile(generator.normal(0, 1, 20), 5) + generator.normal(0, 1, 100)
        low, high = estimate(list(values), names, categories).interval()
        covered += low <= 5 <= high
    assert 0.91 <= covered / 400 <= 0.98


@pytest.mark.parametrize("n", [6, 13, 14, 40])
def test_p_value_is_the_larger_of_students_and_the_sign_flips(n):
    values = np.random.default_rng(n).normal(-0.4, 1, n)
    student = scipy_stats.ttest_1samp(values, 0, alternative="less").pvalue
    flips = scipy_stats.permutation_test(
        (values,),
        lambda x: x.mean(),
        permutation_type="samples",
        alternative="less",
        n_resamples=2**14,
        rng=1,
    ).pvalue
    found = estimate(list(values), own_clusters(values))
    assert sign_flip(found.sums) == pytest.approx(flips, abs=1e-9 if n <= 13 else 0.02)
    assert found.p_below(0) == pytest.approx(max(student, flips), abs=1e-9 if n <= 13 else 0.02)
    assert estimate(list(-values), own_clusters(values)).p_above(0) == found.p_below(0)


def test_sign_flip_by_hand():
    # of the 8 ways to flip -1, -2, -3 only the observed sum is as low as -6; of -1, 1, 2 four are
    # at most 2 - 2 = 0
    assert sign_flip(np.array([-1.0, -2.0, -3.0])) == 1 / 8
    assert sign_flip(np.array([-1.0, 1.0, 2.0])) == 7 / 8


def test_few_pairs_that_all_fell_alike_prove_nothing():
    assert estimate([-1.0, -1.0, -1.0], ["a", "b", "c"]).p_below(0) == 1 / 8
    assert estimate([-1.0, -1.0, -1.0], ["a", "b", "c"]).mde(0.05) is None
    assert estimate([-1.0] * 8, own_clusters([0] * 8)).p_below(0) == 1 / 256
    assert estimate([-1.0] * 7, own_clusters([0] * 7)).mde(0.05) is None
    assert estimate([-1.0] * 8, own_clusters([0] * 8)).mde(0.05) is None  # no spread was seen
    assert estimate([-1.0, -1.1] * 4, own_clusters([0] * 8)).mde(0.05) is not None
    assert estimate([-1.0, -1.1] * 4, own_clusters([0] * 8)).mde(0.001) is None
    assert estimate([-1.0], ["a"]).p_below(0) == 1


def test_rounding_is_no_spread():
    flat = estimate([7.1] * 10 + [8.3] * 10, own_clusters(range(20)), ["a"] * 10 + ["b"] * 10)
    assert (flat.se, flat.mde(0.05)) == (0.0, None)
    assert flat.p_below(7.7) == 1


def test_mde_by_hand():
    # SE of 16 values of spread 2 is 0.5; (t(.95, 15) + t(.8, 15)) · 0.5
    values = [4.0, 8.0] * 8
    error = np.std(values, ddof=1) / 4
    expected = (scipy_stats.t.ppf(0.95, 15) + scipy_stats.t.ppf(0.8, 15)) * error
    assert estimate(values, own_clusters(values)).mde(0.05) == pytest.approx(expected)


def test_holm_by_hand():
    # 0.01·4, max(0.04, 0.02·3), max(…, 0.03·2), max(…, 0.5·1)
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(values):
    adjusted = holm(values)
    assert all(after >= before for before, after in zip(values, adjusted, strict=True))
    order = np.argsort(values, kind="stable")
    assert list(np.array(adjusted)[order]) == sorted(adjusted)


def test_intervals_cover_the_truth_as_often_as_they_say():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(600):
        shared = generator.normal(0, 1, 20).repeat(3)
        values = 5 + shared + generator.normal(0, 0.5, 60)
        low, high = estimate(list(values), [str(index // 3) for index in range(60)]).interval()
        covered += low <= 5 <= high
    assert 0.92 <= covered / 600 <= 0.98


def test_work_is_linear_in_tags_of_few_pairs_each(monkeypatch):
    """Bounds how often an observation is looked at: 150 pairs, each with 3 tags of its own."""
    items = [
        an_item(f"p{number}", "physics", number % 10).model_copy(
            update={"tags": tuple(f"object {number}-{part}" for part in range(3))}
        )
        for number in range(150)
    ]
    looks = Counter()
    groups_of, is_in = decision.groups_of, Observation.is_in
    monkeypatch.setattr(decision, "groups_of", lambda item: looks.update("g") or groups_of(item))
    monkeypatch.setattr(
        Observation, "is_in", lambda pair, group: looks.update("i") or is_in(pair, group)
    )
    _, overall, measured = decision.summarize_items(items, SCORE_ONLY)
    assert len(measured["score"].rows) == 2 + 450
    assert overall.micro.n == 150
    baseline = a_baseline()
    paired = PairedItems(
        baseline.model_copy(update={"items": tuple(map(reduced, items))}),
        [reduced(item) for item in items],
        SCORE_ONLY,
    )
    assert len(compare(paired, 0.05).measures["score"]) == 2 + 450
    assert looks.total() < 30 * 150
