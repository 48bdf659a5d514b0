"""Failures in a row that are alike: when they end a stage, and what that leaves."""

from __future__ import annotations

import pytest
from run_world import World, edited, failed, judged, pairs_of

from pytest_imgedit.core import errors
from pytest_imgedit.core.breaker import MOST_ALIKE, Breaker
from pytest_imgedit.run.edit import EditStage
from pytest_imgedit.run.items import make_items
from pytest_imgedit.run.run import BlockRun


def is_tripped(*failures):
    """Tell whether a stage ends after failures `(kind, message)` and, in place of `None`, a success."""
    breaker = Breaker("edits")
    for failure in failures:
        breaker.worked() if failure is None else breaker.failed(*failure)
        try:
            breaker.check()
        except errors.FailsAlike:
            return True
    return False


#: The questions of a round of the canary, and its rounds.
CANARY, ROUNDS = 2, 2
BROKEN = ("exception", "AttributeError: 'Mine' object has no attribute 'edit'")


def test_sixteen_failures_in_a_row_end_a_stage_and_fifteen_do_not():
    assert not is_tripped(*[BROKEN] * (MOST_ALIKE - 1))
    assert is_tripped(*[BROKEN] * MOST_ALIKE)


@pytest.mark.parametrize(
    "between",
    [
        None,
        ("refused", "the content filter refused"),
        ("timeout", "took longer than 600 s"),
        ("oom", "OutOfMemoryError: CUDA out of memory"),
        ("bad_image", "broken image: cut short"),
        ("exception", "ValueError: of another cause"),
        ("degenerate_output", BROKEN[1]),
    ],
)
def test_any_other_result_begins_the_row_anew(between):
    half = [BROKEN] * (MOST_ALIKE - 1)
    assert not is_tripped(*half, between, *half)
    assert is_tripped(*half, between, *half, BROKEN)


@pytest.mark.parametrize(
    "message",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/my photos/{n}.png'",
        "KeyError: 'pair-{n}'",
        "ValueError: sides of {n}x768 pixels",
        "RuntimeError: pair physics-{n:04} at 0x7f{n:08x} failed after {n}.5 s",
        "the editor returned an image of {n}x9 pixels, expected sides of at least 8",
        'OSError: cannot open "model {n}"',
    ],
)
def test_numbers_ids_and_paths_do_not_tell_failures_apart(message):
    assert is_tripped(*(("exception", message.format(n=n)) for n in range(MOST_ALIKE)))


@pytest.mark.parametrize(
    "words", ["the red one is missing", "bad category {n}", "expected {n}, found another"]
)
def test_other_words_tell_failures_apart(words):
    names = ("red", "green", "blue")
    failures = [
        ("exception", f"{names[n % 3]}: {words.format(n=names[n % 3])}")
        for n in range(3 * MOST_ALIKE)
    ]
    assert not is_tripped(*failures)


@pytest.mark.parametrize(
    "failure",
    [
        ("refused", "the content filter refused"),
        ("timeout", "took longer than 600 s"),
        ("oom", "OutOfMemoryError: CUDA out of memory"),
        ("bad_image", "broken image: cut short"),
        ("too_many_sources", "the pair has 2 source images, editor mine:Editor takes one"),
        ("worker_died", "worker edit-0 (CPU) died (SIGKILL); its last words: step 3"),
    ],
)
def test_what_does_not_speak_against_the_class_never_ends_a_stage(failure):
    assert not is_tripped(*[failure] * 3 * MOST_ALIKE)


@pytest.mark.parametrize(
    "failure",
    [
        ("degenerate_output", "the editor returned NoneType, expected a PIL image"),
        ("worker_died", "worker edit-0 (CPU) died (SIGSEGV); its last words: step 3"),
        ("no_worker", "could not load: ValueError: no such weights"),
    ],
)
def test_what_speaks_against_the_class_ends_a_stage(failure):
    assert is_tripped(*[failure] * MOST_ALIKE)


CLASS = """
from PIL import ImageOps
class Editor:
    def __init__(self, *, device): {init}
    def edit(self, request): {edit}
"""
FINE = "return ImageOps.invert(request.source)"


@pytest.mark.parametrize(
    ("init", "edit", "reason"),
    [
        ("pass", "return None", "the editor returned NoneType, expected a PIL image"),
        ("pass", "return [request.source]", "the editor returned list, expected a PIL image"),
        ("pass", "raise ValueError('of step 3')", "ValueError: of step 3"),
        (
            "pass",
            "return request.source.resize((7, 9))",
            "the editor returned an image of 7x9 pixels, expected sides of at least 8",
        ),
        ("raise OSError('no weights')", FINE, "could not load: OSError: no weights"),
    ],
)
@pytest.mark.everyday_for(
    "pass-return None-the editor returned NoneType, expected a PIL image",
    "raise OSError('no weights')-return ImageOps.invert(request.source)-could not load: OSError: no weights",
)
def test_a_broken_class_leaves_an_incomplete_run_and_the_mended_one_resumes(
    bench, init, edit, reason
):
    path = bench.path / "mine.py"
    options = ("--imgedit-editor=mine:Editor", "--imgedit-judge=fakes:Constant")
    path.write_text(CLASS.format(init=init, edit=edit))
    broken = bench.run(*options, "--imgedit-limit=4")
    assert broken.ret == 1
    broken.stdout.fnmatch_lines(
        [
            f"imgedit: INCOMPLETE: stopped: {reason[:40]}*",
            "20 of 20 items failed",
            f"stopped: {reason} (16 edits in a row failed alike)",
            "0 of 20 pairs edited, 0 scored",
            "fix that and run again to do the rest",
        ]
    )
    assert [item["status"] for item in bench.results["items"]].count("interrupted") == 4
    assert {item["score"] for item in bench.results["items"]} == {None}
    path.write_text(CLASS.format(init="pass", edit=FINE))
    bench.run(*options, "--imgedit-limit=4").assert_outcomes(passed=20)


@pytest.mark.parametrize("body", ["pass", "edit = None", "def edit_batch(self, requests): ..."])
def test_a_class_without_edit_ends_the_run_before_the_first_edit(bench, body):
    (bench.path / "mine.py").write_text(
        f"class Editor:\n    def __init__(self, *, device): ...\n    {body}\n"
    )
    result = bench.run(
        "--imgedit-editor=mine:Editor", "--imgedit-judge=fakes:Constant", "-kphysics"
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *mine:Editor*expected def edit(self, request)*"])


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, pairs_of(*["physics"] * 70))


def stopped(world, slots=1):
    """Run, expect that the run is stopped, and return the reason."""
    with pytest.raises(errors.FailsAlike) as stop:
        world.run(slots)
    return str(stop.value)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_edits_that_all_fail_alike_end_the_run_with_any_number_of_workers(world, slots):
    asked = []

    def fails(message):
        asked.append(message["edits"][0]["pair_id"])
        return failed("exception", f"ValueError: step {len(asked)} of 20")

    world.edit = fails
    assert stopped(world, slots) == ("ValueError: step 16 of 20 (16 edits in a row failed alike)")
    assert MOST_ALIKE <= len(asked) < MOST_ALIKE + slots
    assert not [line for line in world.log if "does judge" in line]
    assert {"close editor", "close judge"} <= set(world.log)


def test_fewer_pairs_all_fail_and_the_run_ends(world):
    world.pairs = world.pairs[: MOST_ALIKE - 1]
    world.edit = lambda message: failed("exception", "ValueError: broken")
    items = make_items(world.run().plan.works, True, "the user")
    assert [item.status for item in items] == ["edit_error"] * (MOST_ALIKE - 1)


def test_finished_edits_stay_and_a_later_run_makes_the_others(world):
    count = 0

    def breaks_later(message):
        nonlocal count
        count += 1
        return edited(message) if count <= 5 else failed("exception", "ValueError: broken")

    world.edit = breaks_later
    stopped(world)
    world.edit, count = edited, 0
    assert world.run().timing.edits_cached == 5


def test_pairs_of_another_kind_are_tried_before_a_stage_ends(world):
    """The queue is sorted by size: an editor that takes no large images is not broken."""

    def takes_the_second_half(message):
        number = int(message["edits"][0]["pair_id"][1:])
        return failed("exception", "ValueError: too large") if number < 35 else edited(message)

    world.edit = takes_the_second_half
    works = world.run().plan.works
    assert [work.edit is not None for work in works] == [False] * 35 + [True] * 35


def test_a_batch_is_stored_whole_before_a_stage_ends(world):
    plan = world.plan()
    pool = world.pool("editor", plan)
    pool.start(1)
    stage = EditStage(plan.editor, pool, world.store, lambda work: None)
    batch = list(plan.works[: MOST_ALIKE + 1])
    made = edited({"edits": [{"further": ()} for _ in batch]})
    broken = {"op": "failed", "kind": "exception", "message": "ValueError: broken"}
    made["edits"][:MOST_ALIKE] = [broken] * MOST_ALIKE
    with world.store:
        stage.finish(batch, pool.workers[0], made)
    assert batch[-1].edit is not None
    stage.breaker.check()


def test_a_judge_that_fails_alike_ends_the_run_and_the_edits_stay(world):
    world.raw["workers"] = {"placement": "swap"}
    world.judge = lambda message: failed("exception", "ValueError: no such rubric")
    assert stopped(world) == ("ValueError: no such rubric (16 verdicts in a row failed alike)")
    world.judge = judged
    assert world.run().timing.edits_cached == 70


def test_a_judge_that_fails_on_one_category_is_not_broken(world):
    world.raw["workers"] = {"placement": "swap"}
    world.pairs = pairs_of(*["physics"] * 80, *["social"] * 40)

    def knows_social(message):
        categories = {question["category"] for question in message["questions"]}
        if "physics" in categories:
            return failed("exception", "KeyError: 'physics'")
        return judged(message)

    world.judge = knows_social
    assert {work.verdict is not None for work in world.run().plan.works[80:]} == {True}


def test_a_worker_that_dies_of_many_pairs_is_replaced_while_others_succeed(world):
    """What a worker died of is tried again at the end, where no success comes between."""

    def dies_often(message):
        number = int(message["edits"][0]["pair_id"][1:])
        return failed("worker_died", "died (SIGSEGV)") if number % 2 else edited(message)

    world.edit = dies_often
    works = world.run().plan.works
    assert sum(work.edit is not None for work in works) == 35


def test_answers_that_tell_of_an_error_do_not_end_the_run(world):
    world.judge = lambda message: judged(message, error="500: the server is overloaded")
    items = make_items(world.run().plan.works, True, "the user")
    assert {item.status for item in items} == {"judge_error"}


def test_a_further_judge_that_fails_alike_takes_no_score_of_the_judge_with_it(world):
    spec = "openai:http://localhost:1/v1#other"
    world.further[spec] = lambda message: failed("exception", "ValueError: no such rubric")
    run = world.run(judges={"second": {"spec": spec}})
    assert {work.verdict.score for work in run.plan.works} == {7.0}
    assert run.failed_scorers == [
        "judge second could not score: ValueError: no such rubric (16 verdicts in a row failed "
        "alike)"
    ]


def out_of_quota_after(answers):
    """A judge whose account is exhausted after this many answers."""
    asked = []

    def judge(message):
        asked.extend(question["instruction"] for question in message["questions"])
        if len(asked) <= answers:
            return judged(message)
        return judged(message, error="the server answered 429: no quota", reply="", final=True)

    return judge, asked


@pytest.mark.parametrize("placement", ["swap", "resident"])
def test_answers_that_fail_for_good_end_the_questions_and_no_edit(world, placement):
    world.raw |= {"workers": {"placement": placement}, "judge": {"batch_size": 1}}
    world.judge, asked = out_of_quota_after(10)
    assert stopped(world) == (
        "the server answered 429: no quota (16 verdicts in a row failed alike)"
    )
    assert len(asked) == 10 + MOST_ALIKE
    assert len(world.store.edits.records) == 70
    world.judge, asked = out_of_quota_after(1000)
    run = world.run()
    assert run.timing.edits_cached == 70
    assert run.timing.verdicts_cached == 10 - CANARY
    assert len(asked) == 60 + CANARY + ROUNDS * CANARY
    assert all(work.verdict for work in run.plan.works)


def test_no_block_follows_answers_that_fail_for_good(world):
    world.judge, asked = out_of_quota_after(0)
    gates = {"until": "decided", "fail_under": {"overall": 5.0}}
    plan = world.plan(gates=gates, judge={"batch_size": 1})
    run = BlockRun(plan, plan.blocks, world.context(plan))
    with world.store, pytest.raises(errors.FailsAlike, match="no quota"):
        run.execute()
    assert len(asked) <= MOST_ALIKE + CANARY
    assert len(world.store.edits.records) < 70


@pytest.mark.parametrize(
    "between",
    [
        {"error": "the filter refused", "refused": True},
        {"error": "no answer within 60 s"},
        {"reply": "I cannot say"},
        {},
    ],
)
def test_any_other_answer_lets_the_questions_go_on(world, between):
    world.raw |= {"judge": {"batch_size": 1, "reasks": 0}}
    count = 0

    def judge(message):
        nonlocal count
        count += 1
        if count % (MOST_ALIKE - CANARY) == 0:
            return judged(message, **between)
        return judged(message, error="no quota", reply="", final=True)

    world.judge = judge
    assert len(world.run().plan.works) == 70
