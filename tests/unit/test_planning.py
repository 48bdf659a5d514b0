"""How many pairs would decide."""

from __future__ import annotations

from pytest_imgedit.stats.planning import pairs_needed


def needed(pairs, decides):
    return pairs_needed(pairs, lambda pair: pair[1], lambda pair: pair[0], decides)


def test_the_smallest_multiple_that_decides():
    pairs = [("a", str(n)) for n in range(10)]
    assert needed(pairs, lambda drawn: len(drawn) >= 30) == 30
    assert needed(pairs, lambda drawn: len(drawn) >= 31) == 40
    assert needed(pairs, lambda drawn: False) is None


def test_whole_clusters_are_drawn_within_their_categories():
    pairs = [*[("a", f"a{n // 2}") for n in range(8)], *[("b", f"b{n}") for n in range(4)]]
    runs = []
    needed(pairs, lambda drawn: bool(runs.append(drawn)))
    for drawn in runs:
        kinds = [pair[0] for pair, _ in drawn]
        assert kinds.count("a") == 2 * kinds.count("b")
        by_name = {}
        for pair, name in drawn:
            by_name.setdefault(name, []).append(pair)
        assert all(len({pair[1] for pair in group}) == 1 for group in by_name.values())
        assert {len(group) for name, group in by_name.items() if group[0][0] == "a"} == {2}
