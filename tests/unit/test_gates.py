"""Gates: each state, what turns it, and which pairs without a score leave it open."""

from __future__ import annotations

import pytest

from pytest_imgedit.config import GatesSettings
from pytest_imgedit.errors import UsageError
from pytest_imgedit.stats.gates import Observation, check_fields, coverage, errors_allowed, fail_under, max_drop


def scores(*values, category="physics"):
    return [Observation(category, f"{category}-{place}", value) for place, value in enumerate(values)]


def drops(*values):
    return [Observation("physics", str(place), value, -10.0, 10.0) for place, value in enumerate(values)]


EVEN = (7.0, 7.2, 6.8, 7.1, 6.9, 7.0, 7.2, 6.8, 7.1, 6.9)  # mean 7, SE 0.045
WIDE = (2.0, 10.0, 9.0, 4.0, 10.0, 8.0, 5.0, 10.0, 3.0, 9.0)  # mean 7, SE 0.98


@pytest.mark.parametrize(
    ("values", "limit", "settings", "state", "why"),
    [
        pytest.param(EVEN, 6.5, {}, "PASS", "physics 7.00 >= 6.5", id="over"),
        pytest.param(EVEN, 7.2, {}, "FAIL", "physics 7.00 < 7.2 (p ", id="under"),
        pytest.param(EVEN, 7.02, {}, "PASS", "physics 7.00, not shown to be under 7.02 (p ", id="perhaps-under"),
        pytest.param(WIDE, 7.5, {}, "INCONCLUSIVE", "physics 7.00 < 7.5: 10 pairs would show 2.", id="too-wide"),
        pytest.param(WIDE, 7.5, {"margin": 3}, "PASS", "physics 7.00, not shown to be under 7.5", id="margin"),
        pytest.param(
            EVEN, 6.95, {"strict": True}, "INCONCLUSIVE", "physics 7.00 >= 6.95, but that is not shown", id="strict"
        ),
        pytest.param(EVEN, 6.5, {"strict": True}, "PASS", "physics 7.00 >= 6.5", id="strict-over"),
        pytest.param(EVEN, 7.06, {}, "PASS", "physics 7.00, not shown to be under 7.06 (p 0.1", id="doubt"),
        pytest.param(EVEN, 7.06, {"alpha": 0.2}, "FAIL", "physics 7.00 < 7.06 (p 0.1", id="alpha"),
        pytest.param((5.0, 5.0), 6, {}, "INCONCLUSIVE", "physics 5.00 < 6: too few pairs (2) to show", id="two"),
        pytest.param((5.0,) * 5, 6, {}, "FAIL", "physics 5.00 < 6 (p 0.031)", id="five"),
        pytest.param((5.0,) * 7, 5, {}, "INCONCLUSIVE", "physics 5.00 >= 5: too few pairs (7)", id="seven"),
        pytest.param((5.0,) * 8, 5, {}, "PASS", "physics 5.00 >= 5", id="equal"),
        pytest.param((None, None), 5, {}, "INVALID", "physics has no mean score in this run", id="none"),
    ],
)
def test_fail_under(values, limit, settings, state, why):
    (gate,) = fail_under(GatesSettings(fail_under={"physics": limit}, **settings), scores(*values))
    assert gate.state == state
    assert gate.why.startswith(why)


@pytest.mark.parametrize(
    ("values", "limit", "state", "why"),
    [
        pytest.param([0.0] * 8, 0, "PASS", "physics did not move against main", id="same"),
        pytest.param([-1.0] * 6, 0, "FAIL", "physics fell by 1.00 against main, 0 allowed (p ", id="fell"),
        pytest.param([-1.0] * 8, 2, "PASS", "physics fell by 1.00 against main, 2 allowed", id="allowed"),
        pytest.param(
            [-0.4, 0.3] * 4, 0, "PASS", "physics fell by 0.05 against main, not shown to be more than 0", id="odds"
        ),
        pytest.param([1.0] * 8, 0, "PASS", "physics rose by 1.00 against main", id="rose"),
        pytest.param(
            [-4.0, 4.0, -3.0, 2.0, 1.0, -2.0, 1.0, -1.64], 0, "INCONCLUSIVE", "physics fell by 0.33", id="wide"
        ),
        pytest.param([-1.0] * 4, 0, "INCONCLUSIVE", "physics fell by 1.00 against main*too few pairs (4)", id="few"),
    ],
)
def test_max_drop(values, limit, state, why):
    (gate,) = max_drop(GatesSettings(max_drop={"physics": limit}), drops(*values), "main")
    assert gate.state == state
    start, _, rest = why.partition("*")
    assert gate.why.startswith(start)
    assert rest in gate.why


def test_pairs_of_few_source_images_are_too_few_however_many():
    alike = [Observation("physics", str(place % 3), 5.0) for place in range(30)]
    (gate,) = fail_under(GatesSettings(fail_under={"physics": 4}), alike)
    assert gate.why == "physics 5.00 >= 4: too few source images (3) to show anything at alpha 0.05"


def test_gates_of_a_kind_share_one_chance_of_a_false_alarm():
    fell = [-0.9, -1.1, -1.0, -1.2, -0.8]  # p = 2^-5
    both = [*drops(*fell), *(Observation("social", f"s{n}", -value) for n, value in enumerate(fell))]
    alone = max_drop(GatesSettings(max_drop={"physics": 0}), both, "main")
    assert [gate.state for gate in alone] == ["FAIL"]
    shared = max_drop(GatesSettings(max_drop={"physics": 0, "social": 0}), both, "main")
    assert [gate.p for gate in shared] == [2 / 32, 1.0]
    assert [gate.state for gate in shared] == ["INCONCLUSIVE", "INCONCLUSIVE"]  # 5 pairs never reach 0.05 / 2


def test_what_all_pairs_show_is_found_at_the_smallest_alpha_too():
    fields = {f"c{number}": 0.0 for number in range(6)}
    fallen = [Observation(field, f"{field}-{n}", -5 + n % 3) for field in fields for n in range(20)]
    gates = max_drop(GatesSettings(max_drop=fields, alpha=0.0005), fallen, "main")
    assert {gate.state for gate in gates} == {"FAIL"}


NEAR = tuple(6.906 + 0.41 * (n - 9) / 9 for n in range(19))  # p 0.06 that this is under 7


@pytest.mark.parametrize(
    ("values", "limit", "settings", "state"),
    [
        pytest.param([*EVEN, None], 6.0, {}, "PASS", id="one-of-eleven"),
        pytest.param([*EVEN, *[None] * 9], 6.0, {}, "INCONCLUSIVE", id="could-fail"),
        pytest.param([*EVEN, None], 7.2, {}, "INCONCLUSIVE", id="could-pass"),
        pytest.param([*NEAR, None], 7, {}, "INCONCLUSIVE", id="a-6.5-would-fail-but-no-0-and-no-10"),
        pytest.param([8.9] * 10 + [8.8] * 10 + [None] * 3, 7, {}, "PASS", id="within-margin"),
        pytest.param([8.9] * 10 + [8.8] * 10 + [None] * 3, 7, {"strict": True}, "INCONCLUSIVE", id="strict"),
        pytest.param([8.9] * 10 + [8.8] * 10 + [None] * 5, 7.4, {"margin": 0.2}, "INCONCLUSIVE", id="beyond-margin"),
    ],
)
def test_pairs_without_a_score_leave_a_gate_open_that_they_could_turn(values, limit, settings, state):
    (gate,) = fail_under(GatesSettings(fail_under={"physics": limit}, **settings), scores(*values))
    assert gate.state == state
    missing = sum(value is None for value in values)
    assert state == "PASS" or gate.why.endswith(f", which the pairs without a score ({missing} in the run) could turn")


@pytest.mark.parametrize(
    ("allowed", "state"), [(0, "FAIL"), (1, "PASS"), (0.25, "PASS"), (0.2, "FAIL")], ids=["0", "1", "25%", "20%"]
)
def test_coverage_counts_errors_and_bounds_the_score(allowed, state):
    gate = coverage(GatesSettings(max_errors=allowed), scores(8.0, 6.0, 4.0, None), errors=1)
    assert gate.state == state
    assert gate.why.startswith("1 of 4 pairs without a score, ")
    assert gate.why.endswith("(with theirs, overall would be between 4.50 and 7.00)")


def test_a_run_without_any_score_is_invalid_however_many_errors_are_allowed():
    assert coverage(GatesSettings(max_errors=1.0), scores(None, None, None), errors=3).state == "INVALID"


def test_fraction_of_errors_is_rounded_down():
    assert errors_allowed(0.1, 50) == 5
    assert errors_allowed(0.1, 59) == 5
    assert errors_allowed(3, 50) == 3


def test_gate_on_an_unknown_field_lists_the_known():
    check_fields("fail_under", ["overall", "物理"], ["physics"])
    with pytest.raises(UsageError, match=r"max_drop: unknown field 'phys', expected one of: overall, physics"):
        check_fields("max_drop", ["phys"], ["physics"])
