"""Pairs of several source images: the plan, the edits, and what is asked about them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from run_world import Drawn, World, edited, failed, judged, pairs_of, png

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.images import decode
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.run.first_questions import question_about
from pytest_imgedit.run.items import make_items
from pytest_imgedit.run.judge_trials import plan_trials
from pytest_imgedit.run.plan_checks import lacks_of
from pytest_imgedit.run.questions import make_question
from pytest_imgedit.stats import judge_qualification

EDITOR = """
class Editor:
    {max_sources}
    def __init__(self, *, device): pass
    def edit(self, request): return request.source
"""


def sources(pair, *further, edited=1):
    """A pair with further sources of these colours."""
    drawn = tuple(Drawn(color, side) for color, side in further)
    return replace(pair, further=drawn, edited_source=edited)


@pytest.fixture
def world(tmp_path):
    """Four pairs of one, two, three and four source images."""
    pairs = pairs_of("physics", "physics", "social", "causal")
    for number in (1, 2, 3):
        further = [(100 + place, 16) for place in range(number)]
        pairs[number] = sources(pairs[number], *further)
    return World(tmp_path, pairs)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write an own class that takes as many sources as a line says; return its spec."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, max_sources=""):
        text = EDITOR.format(max_sources=max_sources or "pass")
        (tmp_path / f"{name}.py").write_text(text)
        return f"{name}:Editor"

    return write


HINT = "a class that takes more says how many: max_sources = 3, or None for any"


def test_the_plan_names_the_pairs_with_too_many_sources(world, own):
    world.plan(editor={"spec": own("takes_two", "max_sources = 2")})
    assert [line for line in world.told.notes if "source images" in line] == [
        "warning: 2 of 4 pairs have more source images than the 2 that editor takes_two:Editor "
        f"takes (p2, p3); they end in errors ({HINT})"
    ]


def test_the_plan_is_silent_where_the_editor_takes_all(world, own):
    world.plan(editor={"spec": own("takes_any", "max_sources = None")})
    assert not [line for line in world.told.notes if "source images" in line]


def test_a_pair_counts_once_with_many_seeds(world, own):
    plan = world.plan(editor={"spec": own("takes_one"), "seeds": 3})
    (lack,) = lacks_of(plan)
    assert (lack.names, lack.pairs) == (["p1", "p2", "p3"], 4)


def test_a_run_in_which_no_pair_can_be_edited_is_refused(world, own):
    world.pairs = world.pairs[1:]
    with pytest.raises(UsageError) as refused:
        world.plan(editor={"spec": own("takes_only_one")})
    assert str(refused.value) == (
        "3 of 3 pairs have more source images than the one that editor takes_only_one:Editor "
        f"takes (p1, p2, p3); they end in errors ({HINT}); name an editor that takes them, or "
        "select other pairs"
    )


def test_a_shard_without_a_pair_to_edit_may_run_beside_others(world, own):
    plan = world.plan(editor={"spec": own("takes_one_of_a_shard")})
    shard = type("Shard", (), {"pairs": tuple(world.pairs)})
    request = replace(plan.request, pairs=tuple(world.pairs[1:]), shard=shard)
    works = [work for work in plan.works if work.error]
    (lack,) = lacks_of(replace(plan, request=request, works=tuple(works)))
    assert len(lack.names) == lack.most == 3


def test_pairs_with_too_many_sources_end_in_errors_that_gates_count(world, own):
    spec = own("takes_at_most_three", "max_sources = 3")
    run = world.run(editor={"spec": spec})
    ends = {work.pair.id: work.error and work.error.kind for work in run.plan.works}
    assert ends == {"p0": None, "p1": None, "p2": None, "p3": "too_many_sources"}
    assert run.plan.works[3].error.message == (
        f"the pair has 4 source images, editor {spec} takes at most 3 ({HINT})"
    )


# Edits of them


def test_the_store_has_the_thumbnails_of_all_sources_and_the_results_name_them(world):
    world.pairs = [sources(world.pairs[0], (100, 16), (101, 16), edited=2)]
    run = world.run(editor={"spec": "identity"})
    (work,) = run.plan.works
    assert work.edit.sources == 3
    (record,) = world.store.edits.records.values()
    assert (record.sources, record.composited) == (3, False)
    shas = [hashlib.sha256(png(color)).hexdigest() for color in (100, 0, 101)]
    assert [image.sha256 for image in work.sources] == shas
    for number, sha256 in enumerate(shas):
        path = world.store.blobs.path(sha256, ".thumbnail.webp")
        assert path.read_bytes() == b"WebP%d" % number
    (item,) = make_items(run.plan.works, True, "the user")
    names = ["source-1", "source", "source-3"]
    assert item.sources == dict(zip(names, (f"{s[:2]}/{s}.png" for s in shas), strict=True))
    assert (item.source, item.edited_source) == (item.sources["source"], 2)


@pytest.mark.parametrize("is_composited", [False, True])
def test_an_edit_with_transparent_pixels_is_marked_in_the_journal_and_in_the_results(
    world, is_composited
):
    def edit(message):
        reply = edited(message)
        for made in reply["edits"]:
            made["composited"] = is_composited
        return reply

    world.pairs = world.pairs[:1]
    world.edit = edit
    world.run(editor={"spec": "identity"})
    (record,) = world.store.edits.records.values()
    stored = world.plan(editor={"spec": "identity"}).works[0].edit
    assert record.composited is stored.composited is is_composited


def test_a_pair_that_changes_its_edited_source_is_another_pair_for_a_baseline(world):
    def content(pair):
        world.pairs = [pair]
        (work,) = world.plan(editor={"spec": "identity"}).works
        return work.inputs.parts

    pair = world.pairs[0]
    one = content(pair)
    assert len(one) == 6  # as baselines of one source were saved
    contents = {
        one,
        content(sources(pair, (100, 16), (101, 16))),
        content(sources(pair, (101, 16), (100, 16))),
        content(sources(pair, (100, 16), (101, 16), edited=2)),
    }
    assert len(contents) == 4


def test_the_editor_is_told_which_source_is_edited(world):
    asked = []

    def edit(message):
        asked.extend(message["edits"])
        return edited(message)

    world.pairs = [sources(world.pairs[0], (100, 16), (101, 16), edited=2)]
    world.edit = edit
    world.run(editor={"spec": "identity"})
    (fields,) = asked
    assert EditRequest(**fields).sources == (png(100), png(0), png(101))


def test_a_broken_second_source_is_told_with_its_row(world):
    world.pairs = [replace(sources(world.pairs[0], (100, 16)), row="pairs.json, row 1")]
    world.edit = lambda message: failed("bad_image", "source-2: cut short")
    (work,) = world.run(editor={"spec": "identity"}).plan.works
    assert work.error.kind == "bad_image"
    assert work.error.message == "pairs.json, row 1: source-2: cut short"


# What is asked about them

TEMPLATE = """
[[calls]]
name = "a"
user = "{}{{{{ edited }}}}{{{{ instruction }}}}"
[calls.reply]
form = "number"
names = ["a"]
[score]
item = "a"
"""


@pytest.mark.parametrize(
    ("shows", "warned"),
    [("{{ source }}", ["p1, p2, p3"]), ("{% for image in sources %}{{ image }}{% endfor %}", [])],
)
def test_a_protocol_that_hides_sources_from_the_judge_is_named(world, own, shows, warned):
    (world.folder / "mine.toml").write_text(TEMPLATE.format(shows))
    world.raw["protocols"] = {"mine": {"file": str(world.folder / "mine.toml")}}
    editor = {"spec": own("takes_all_of_them", "max_sources = None")}
    world.plan(editor=editor, judge={"protocol": "mine"})
    lines = [line for line in world.told.notes if "does not show the judge" in line]
    assert [line.partition("pairs (")[2].partition(")")[0] for line in lines] == warned


PROTOCOL = "all_sources:ShowsAll"
ORDER = ["source-1", "source", "source-3", "edited"]


@pytest.fixture
def judged_with_all(tmp_path):
    """A world of pairs of three sources of unlike sizes, the second of which is edited; the judge
    is shown all of them.
    """
    pairs = [
        EditPair(f"p{n}", "physics", f"change {n}", Drawn(n, 24), further=further, edited_source=2)
        for n, further in enumerate([(Drawn(90, 16), Drawn(99, 40))] * 60)
    ]
    return World(tmp_path, pairs, judge={"protocol": PROTOCOL})


def test_controls_of_the_judge_are_made_of_the_edited_source_and_shown_beside_all(judged_with_all):
    world = judged_with_all
    world.pairs = world.pairs[:4]
    plan = world.plan(judge={"controls": True, "protocol": PROTOCOL})
    with world.store:
        trials = plan_trials(
            plan.scorer,
            plan.settings,
            plan.request.suite,
            pairs=plan.request.pairs,
            run_works=plan.works,
        )
        assert {"identity", "blank", "noise"} <= trials.controls.keys()
        for name, judgements in trials.controls.items():
            if name not in judge_qualification.EDITED:
                continue
            (ask,) = plan.scorer.asks(judgements[0])
            question = make_question(plan.judge, world.store, ask)
            assert [name for _, name in question.parts] == ORDER
            assert sorted(question.images) == sorted(ORDER)
            assert decode(question.images["edited"]).size == (24, 24)
        untouched = trials.controls["identity"][0]
        edited = decode(world.store.blobs.get(untouched.edit.blob))
        assert edited.tobytes() == decode(untouched.work.pair.source.read()).tobytes()


def test_a_canary_shows_the_other_sources_beside_a_picture_in_place_of_the_edit(judged_with_all):
    asked = []

    def answer(message):
        asked.extend(message["questions"])
        return judged(message, finish_reason="stop")

    judged_with_all.judge = answer
    run = judged_with_all.run()
    assert run.scorer.facts["canary"].rounds == 2
    first, second = asked[:2]
    assert [name for _, name in first["parts"]] == ORDER
    assert first["images"]["edited"] == second["images"]["source"] == png(0, 24)
    assert second["images"]["edited"] == png(1, 24)
    assert first["images"]["source-3"] == second["images"]["source-3"] == png(99, 40)


def test_the_first_question_shows_as_many_pictures_as_any_of_the_largest_source(judged_with_all):
    world = judged_with_all
    world.pairs[0] = replace(world.pairs[0], further=(), edited_source=1)
    plan = world.plan()
    first = question_about(plan.request.pairs, plan.scorer.protocol)
    assert sorted(first.images) == sorted(ORDER)
    assert first.size == (40, 40)
    measured = question_about(plan.request.pairs, None)
    assert measured.images == ("source", "edited", "source-1", "source-3")
