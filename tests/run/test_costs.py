"""The bill of a run: what its plan says that will be asked is what is asked."""

from __future__ import annotations

import io
import math
import re
from dataclasses import dataclass, replace

import pytest
from documents import a_run
from PIL import Image
from run_world import Drawn, World, edited, judged, pairs_of, png

from pytest_imgedit.run import canary
from pytest_imgedit.run.costs import Bill, with_known_tokens
from pytest_imgedit.run.run import BlockRun

JUDGE = "openai:http://localhost:1/v1#gpt-4o"
OTHER = "openai:http://localhost:2/v1#gpt-4o"
EDITOR = "openai-images:http://localhost:1/v1#m"
GATED = {"gates": {"fail_under": {"overall": 5.0}}, "judge": {"controls": "auto"}}
TWO = {"judges": {"second": {"spec": OTHER}}}
CALLS = {"judge": {"protocol": "twice"}}
#: Replies that every grammar of these tests reads, by the words at the end of a question.
BOTH = "instruction: 7\npreservation: 7\nrealism: 7"
PROTOCOL = """
[[calls]]
name = "done"
user = "{{ source }}{{ edited }} Was it done? {{ instruction }} Answer with a number from 0 to 10."
reply = { form = "number", names = ["done"] }
[[calls]]
name = "kept"
user = "{{ source }}{{ edited }} Was the rest kept? Answer with a number from 0 to 10."
reply = { form = "number", names = ["kept"] }
[score]
item = "min(done, kept)"
"""


def tiles(width, height):
    """Tokens of an image as OpenAI counts them for GPT-4o."""
    scale = min(1, 768 / min(width, height))
    return 85 + 170 * math.ceil(width * scale / 512) * math.ceil(height * scale / 512)


def patches(side, fewest):
    """Tokens of an image as Qwen's models count them: patches of `side` pixels."""
    return lambda width, height: max(fewest, round(width / side) * round(height / side))


RULES = {"gpt-4o": tiles, "Qwen/Qwen3-VL-8B": patches(32, 64), "qwen2.5-vl": patches(28, 1)}


class Server:
    """Answers every question, and counts questions and tokens as a real server does: of texts, a
    token for each word and mark, and one for the end of a reply.
    """

    def __init__(self, tokens_of_image=tiles, unreadable=0, cut=0, refused=0):
        self.tokens_of_image, self.unreadable, self.cut = tokens_of_image, unreadable, cut
        self.refused = refused
        self.asked = self.tokens_in = self.tokens_out = 0

    def __call__(self, message):
        reply = judged(message)
        for question, answer in zip(message["questions"], reply["answers"], strict=True):
            self.asked += 1
            texts = [question["system"], *(text for kind, text in question["parts"])]
            if "number from 0 to 10." in texts[-1]:
                answer["reply"] = "7"
            if self.unreadable:
                self.unreadable -= 1
                answer["reply"] = "I cannot say"
            if self.cut:
                self.cut -= 1
                answer["cut"] = True
            if self.refused:
                self.refused -= 1
                answer |= {"error": "I would rather not", "refused": True}
            sizes = [
                Image.open(io.BytesIO(question["images"][name])).size
                for kind, name in question["parts"]
                if kind == "image"
            ]
            answer["tokens_in"] = sum(map(_words, texts)) + sum(
                self.tokens_of_image(*size) for size in sizes
            )
            answer["tokens_out"] = _words(answer["reply"]) + 1
            answer["model"] = "m"
            self.tokens_in += answer["tokens_in"]
            self.tokens_out += answer["tokens_out"]
        return reply


def _words(text):
    return len(re.findall(r"\w+|[^\w ]", text))


@dataclass
class Said:
    """A bill as a line of the plan says it."""

    lowest: int
    highest: int
    parts: str
    stored: int
    tokens: tuple[float, float] | None


def bills(world, of="judge"):
    """What the newest plan says of a judge."""
    number = r"([\d,]+)(?: to ([\d,]+))?"
    pattern = (
        rf"plan: {of}: {number} questions?(?: \((.*?)\))?, ([\d,]+) in the store"
        rf"(?:; about {number} input and {number} output tokens)?"
    )
    matches = [re.match(pattern, note) for note in world.told.notes]
    low, high, parts, stored, tokens_in, _, tokens_out, _ = [each for each in matches if each][
        -1
    ].groups()

    def value(text):
        return int(text.replace(",", ""))

    tokens = None if tokens_in is None else (value(tokens_in), value(tokens_out))
    return Said(value(low), value(high or low), parts or "", value(stored), tokens)


def world_of(folder, count=6, side=16, with_references=False):
    pairs = pairs_of(*["physics", "social"] * (count // 2))
    pairs = [replace(pair, source=Drawn(n, side)) for n, pair in enumerate(pairs)]
    if with_references:
        pairs = [
            replace(pair, reference=Drawn(100 + n, side), reference_text=f"done {n}")
            for n, pair in enumerate(pairs)
        ]
    world = World(folder, pairs=pairs, editor={"spec": EDITOR}, judge={"spec": JUDGE})
    (folder / "twice.toml").write_text(PROTOCOL)
    world.raw["protocols"] = {"twice": {"file": folder / "twice.toml"}}

    def draw(message):
        reply = edited(message)
        for edit, made in zip(message["edits"], reply["edits"], strict=True):
            made |= {"image": png((edit["seed"] + int(edit["pair_id"][1:])) % 251, side)}
            made |= {"width": side, "height": side}
        return reply

    world.edit = draw
    return world


def run(world, server=None, other=None, **raw):
    """Run, and return the server that was asked."""
    world.judge, world.further[OTHER] = server or Server(), other or Server()
    for name, table in raw.items():
        world.raw[name] = {**world.raw.get(name, {}), **table}
    world.run()
    return world.judge


def assert_right(said, server):
    """What was asked is the lower end, with tokens within 1.3 times."""
    assert server.asked == said.lowest
    assert said.lowest <= server.asked <= said.highest
    if said.lowest:
        for expected, counted in zip(
            said.tokens, (server.tokens_in, server.tokens_out), strict=True
        ):
            assert 1 / 1.3 <= expected / counted <= 1.3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("side", [64, 128, 512, 640, 1024])
def test_tokens_are_near_what_servers_count(tmp_path, rule, side):
    world = world_of(tmp_path, 2, side)
    server = run(world, Server(RULES[rule]), judge={"spec": f"openai:http://localhost:1/v1#{rule}"})
    assert_right(bills(world), server)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("side", [512, 768, 1024])
def test_tokens_of_a_model_of_another_name_are_between_the_rules(tmp_path, rule, side):
    world = world_of(tmp_path, 2, side)
    server = run(world, Server(RULES[rule]), judge={"spec": "openai:http://localhost:1/v1#m"})
    assert_right(bills(world), server)


@pytest.mark.parametrize("with_references", [False, True])
@pytest.mark.full
def test_trial_of_a_gated_run_is_counted(tmp_path, with_references):
    world = world_of(tmp_path, 20, 128, with_references)
    server = run(world, **GATED)
    said = bills(world)
    assert_right(said, server)
    assert said.parts.startswith("20 edits, ")
    assert " trials" in said.parts
    assert server.asked >= 20 * 4


def test_resumed_run_is_asked_about_the_rest(tmp_path):
    world = world_of(tmp_path, side=128)
    pairs, world.pairs = world.pairs, world.pairs[:2]
    run(world)
    world.pairs = pairs
    server = run(world)
    said = bills(world)
    assert_right(said, server)
    assert (server.asked, said.parts, said.stored) == (4, "4 edits", 2)


def test_run_that_stopped_between_two_calls_is_asked_the_other(tmp_path):
    world = world_of(tmp_path)
    run(world, **CALLS)
    kept = tmp_path / "store" / "verdicts.jsonl"
    lines = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(lines[:-3]))
    server = run(world)
    assert_right(bills(world), server)
    assert (server.asked, bills(world).stored) == (3, 9)


def test_each_of_two_judges_has_a_bill(tmp_path):
    world, other = world_of(tmp_path, side=128), Server()
    server = run(world, other=other, **TWO, **GATED)
    assert_right(bills(world), server)
    assert_right(bills(world, "judge second"), other)
    assert server.asked > other.asked == 6


def test_second_judge_that_is_the_same_is_asked_nothing(tmp_path):
    world = world_of(tmp_path)
    world.further[JUDGE] = Server()
    run(world, judges={"second": {"spec": JUDGE}})
    assert bills(world, "judge second").lowest == world.further[JUDGE].asked == 0


def test_each_call_of_a_protocol_is_a_question(tmp_path):
    world = world_of(tmp_path, side=128)
    server = run(world, **CALLS)
    assert_right(bills(world), server)
    assert (server.asked, bills(world).parts) == (12, "12 for 6 edits")


@pytest.mark.full
def test_run_of_which_all_is_stored_is_asked_nothing(tmp_path):
    world = world_of(tmp_path, 20)
    before = run(world, **GATED)
    server = run(world)
    assert bills(world) == Said(0, 0, "", before.asked, None)
    assert server.asked == 0


@pytest.mark.everyday
def test_fresh_run_is_asked_everything_again(tmp_path):
    world = world_of(tmp_path, 20)
    run(world, **GATED)
    server = run(world, run={"fresh": True})
    assert_right(bills(world), server)
    assert bills(world).stored == 0


@pytest.mark.parametrize("faults", [{"unreadable": 1}, {"cut": 2}, {"unreadable": 99}, {"cut": 99}])
def test_questions_put_again_stay_within_the_range(tmp_path, faults):
    world = world_of(tmp_path)
    server = run(world, Server(**faults))
    said = bills(world)
    assert said.lowest == 6 < server.asked <= said.highest == 6 * (1 + 2 + 2)


def test_refused_questions_are_not_put_again(tmp_path):
    world = world_of(tmp_path)
    server = run(world, Server(refused=3))
    assert server.asked == bills(world).lowest == 6


def test_nothing_is_put_again_where_the_settings_forbid_it(tmp_path):
    world = world_of(tmp_path)
    run(world, judge={"reasks": 0, "variant": "compat"})
    said = bills(world)
    assert said.lowest == said.highest == 6


def test_repeats_are_counted(tmp_path):
    world = world_of(tmp_path, side=128)
    server = run(world, judge={"repeats": 2})
    assert_right(bills(world), server)
    assert bills(world).parts == "6 edits, 12 repeats"


def test_seeds_are_counted(tmp_path):
    world = world_of(tmp_path, side=128)
    server = run(world, editor={"seeds": 3})
    assert_right(bills(world), server)
    assert server.asked == 18


@pytest.mark.parametrize("fresh", [False, True])
def test_edits_that_equal_a_control_are_judged_once(tmp_path, fresh):
    world = world_of(tmp_path)
    server = run(world, editor={"spec": "identity"}, run={"fresh": fresh}, **GATED)
    assert server.asked == bills(world).lowest


def test_canary_is_counted_for_batches_of_any_size(tmp_path, monkeypatch):
    monkeypatch.setattr(canary, "EVERY", 25)
    world = world_of(tmp_path, 60)
    server = run(world)
    assert_right(bills(world), server)
    assert bills(world).parts == "60 edits, 8 of the canary"


def test_tokens_of_an_earlier_run_are_the_mean_of_all_its_questions(tmp_path):
    world = world_of(tmp_path, 60)
    world.pairs = [replace(pair, source=Drawn(0)) for pair in world.pairs]
    world.judge = server = Server()
    scorer = world.run().scorer
    assert server.asked == 60 + 2  # of one picture, a round of the canary is one question
    bill = Bill(lowest=1, highest=1, parts=(), stored=0, tokens=(0.0, 0.0))
    known = with_known_tokens(bill, scorer, [a_run(judge=scorer.facts)])
    assert known.tokens == (server.tokens_in / 62, server.tokens_out / 62)


def test_requests_to_a_served_editor_are_counted(tmp_path):
    world, asked = world_of(tmp_path), []
    draw = world.edit

    def count(message):
        asked.extend(message["edits"])
        return draw(message)

    world.edit = count
    pairs, world.pairs = world.pairs, world.pairs[:2]
    run(world)
    world.pairs = pairs
    asked.clear()
    run(world)
    says = [note for note in world.told.notes if note.startswith("plan: editor: ")][-1]
    assert says == "plan: editor: 4 requests, 2 in the store"
    assert len(asked) == 4


@pytest.mark.parametrize("limit", [1.0, 7.0, 9.5])
def test_run_that_may_end_early_is_asked_up_to_all(tmp_path, limit):
    world = world_of(tmp_path, 60)
    world.judge = server = Server()
    plan = world.plan(gates={"fail_under": {"overall": limit}, "until": "decided"})
    with world.store:
        BlockRun(plan, plan.blocks, world.context(plan)).execute()
    said = bills(world)
    assert said.lowest == 0 < server.asked <= said.highest


def test_report_has_no_bill(tmp_path):
    world = world_of(tmp_path)
    run(world)
    world.told.notes.clear()
    run(world, run={"stage": "report"})
    assert not [note for note in world.told.notes if "questions" in note or "requests" in note]


def test_cost_is_a_range_too(tmp_path):
    world = world_of(tmp_path, side=1024)
    world.plan(judge={"spec": JUDGE, "price_in": 2.0, "price_out": 8.0})
    (line,) = [note for note in world.told.notes if note.startswith("plan: judge: ")]
    assert line == (
        "plan: judge: 6 to 30 questions (6 edits), 0 in the store; about 12,000 to 60,000 input "
        "and 81 to 400 output tokens, about 0.0248 to 0.124 by judge.price_in and judge.price_out"
    )
