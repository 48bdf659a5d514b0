"""A reply and its probabilities depend on the question alone: by itself, in any batch, at any
place, again later.
"""

from __future__ import annotations

import gc
import random
import weakref

import pytest
from later import Later
from test_packed import ask

from pytest_imgedit.core.errors import SetupError
from pytest_imgedit.kinds.qwen_vl import QwenVLJudge

torch = Later("torch")
decoding = Later("pytest_imgedit.kinds.qwen_decoder.decoding")
invariant = Later("pytest_imgedit.kinds.qwen_decoder.invariant")
packed = Later("pytest_imgedit.kinds.qwen_decoder.packed")

pytestmark = pytest.mark.everyday

MODELS = ["judge-qwen2.5-vl", "judge-qwen3-vl", "judge-qwen3-vl-moe"]


def batches(of=17):
    """Places of questions in batches of all sizes from 2 on, each at others than before."""
    chosen = random.Random(0)
    return [chosen.sample(range(of), size) for size in range(2, of + 1)]


@pytest.mark.parametrize("attention", ["auto", "sdpa"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.everyday_for("judge-qwen3-vl-bfloat16-sdpa")
def test_a_question_is_answered_alike_wherever_it_stands(tiny, model, dtype, attention):
    judge = QwenVLJudge(str(tiny(model)), device="cpu", dtype=dtype, attention=attention)
    prompts = [judge.preprocess(question) for question in ask(17)]

    def decode(places):
        found = judge.decoder.decode([prompts[place] for place in places], 4, keep_logits=True)
        return dict(
            zip(places, zip(found.tokens, found.logits, found.cut, strict=True), strict=True)
        )

    alone = {place: decode([place])[place] for place in range(17)}
    for places in batches():
        for place, (tokens, logits, cut) in decode(places).items():
            expected = alone[place]
            assert (tokens, cut) == (expected[0], expected[2])
            assert torch.equal(logits[: len(tokens)], expected[1][: len(tokens)]), (places, place)


@pytest.mark.parametrize("model", MODELS)
def test_what_it_answers_is_what_the_packed_decoder_answers(tiny, model):
    judge = QwenVLJudge(str(tiny(model)), device="cpu", max_new_tokens=9)
    packed_judge = QwenVLJudge(
        str(tiny(model)), device="cpu", max_new_tokens=9, batch_invariant=False
    )
    assert isinstance(judge.decoder, invariant.InvariantDecoder)
    prompts = [judge.preprocess(question) for question in ask(5)]
    ours, theirs = (
        one.decoder.decode(prompts, 9, keep_logits=True) for one in (judge, packed_judge)
    )
    assert (ours.tokens, ours.cut) == (theirs.tokens, theirs.cut)
    for mine, other, tokens in zip(ours.logits, theirs.logits, ours.tokens, strict=True):
        torch.testing.assert_close(mine[: len(tokens)], other[: len(tokens)], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_buckets_and_rows_give_each_prompt_its_own_reply(tiny, monkeypatch, model):
    monkeypatch.setattr("pytest_imgedit.kinds.qwen_decoder.invariant.ROOM", 8)
    monkeypatch.setattr("pytest_imgedit.kinds.qwen_decoder.invariant.FILLER_TOKENS", 32)
    monkeypatch.setattr("pytest_imgedit.kinds.qwen_decoder.pictures.CALL_PATCHES", 192)
    monkeypatch.setattr("pytest_imgedit.kinds.qwen_decoder.pictures.FILLER_PATCHES", 64)
    judge = QwenVLJudge(str(tiny(model)), device="cpu", max_new_tokens=5)
    # As on a GPU: buckets that are filled up, and rows side by side.
    judge.decoder.tiles_alike = True
    judge.decoder.rows, judge.decoder.bucket = 3, 200
    packed_judge = QwenVLJudge(
        str(tiny(model)), device="cpu", max_new_tokens=5, batch_invariant=False
    )
    questions = ask(7)
    assert judge.answer(questions) == packed_judge.answer(questions)
    judge.max_new_tokens = packed_judge.max_new_tokens = 1
    assert judge.answer(questions) == packed_judge.answer(questions)


@pytest.mark.parametrize("model", MODELS)
def test_kernels_are_chosen_by_what_no_prompt_decides(tiny, monkeypatch, model):
    """The longest sequence chooses a kernel and its grid: it is that of the bucket, or of a
    window.
    """
    judge = QwenVLJudge(str(tiny(model)), device="cpu", max_new_tokens=1)
    judge.decoder.tiles_alike, judge.decoder.bucket = True, 200
    monkeypatch.setattr("pytest_imgedit.kinds.qwen_decoder.pictures.DENSE_MULTIPLE", 1)
    monkeypatch.setattr("pytest_imgedit.kinds.qwen_decoder.pictures.CALL_PATCHES", 192)
    longest, found, attend = [], [], packed.attend

    def noted(query, key, value, bounds, **how):
        longest.append(bounds.longest)
        return attend(query, key, value, bounds, **how)

    monkeypatch.setattr("pytest_imgedit.kinds.qwen_decoder.packed.attend", noted)
    for question in ask(3):
        longest.clear()
        judge.answer([question])
        found.append(list(longest))
    assert found[0] == found[1] == found[2]
    vision = judge.model.model.visual.config
    depth = len(judge.model.model.visual.blocks)
    whole = getattr(vision, "fullatt_block_indexes", range(depth))
    window = (vision.window_size // vision.patch_size) ** 2 if len(whole) < depth else 0
    expected = [192 if index in whole else window for index in range(depth)]
    assert found[0][:depth] == [(most, most) for most in expected]


@pytest.mark.parametrize(
    ("spare_gib", "layers", "key_heads", "features", "shape"),
    [
        (81.9, 48, 4, 4 * 2048, (64, 20992)),  # Qwen3-VL-30B-A3B on an H200
        (21.2, 48, 4, 4 * 2048, (32, 20992)),  # on an H100 of 80 GB
        (63.6, 28, 4, 3584, (64, 20992)),  # Qwen2.5-VL-7B there
        (17.0, 64, 8, 4 * 5120, (8, 10496)),  # Qwen3-VL-32B there
        (77.7, 64, 8, 4 * 5120, (64, 20992)),  # on an H200
        (7.0, 36, 8, 4 * 4096, (4, 5248)),  # Qwen3-VL-8B on a GPU of 24 GB
        (0.1, 48, 4, 4 * 2048, (4, 5248)),
    ],
)
def test_rows_and_buckets_are_those_that_fit(spare_gib, layers, key_heads, features, shape):
    bytes_a_token = (2 * layers * key_heads * 128 + features) * 2
    assert invariant.Room(int(spare_gib * 2**30), bytes_a_token).shape() == shape


def test_long_prompts_have_fewer_rows_that_fit(tiny, monkeypatch):
    monkeypatch.setattr("pytest_imgedit.kinds.qwen_decoder.invariant.ROOM", 64)
    judge = QwenVLJudge(str(tiny(MODELS[1])), device="cpu", max_new_tokens=5)
    expected = judge.answer(ask(7))
    decoder = judge.decoder
    decoder.tiles_alike, decoder.rows, decoder.bucket = True, 3, 400
    spare = 3 * 128 * 1000 + (1000 + invariant.TOKEN_BYTES) * 400 + invariant.FURTHER_BYTES
    decoder._memory, decoder._rows = invariant.Room(spare, 1000), None
    assert [decoder._rows_with(room) for room in (64, 128, 192, 1024)] == [3, 3, 2, 1]
    assert judge.answer(ask(7)) == expected


def test_keys_and_values_are_free_before_the_next_take_their_room(tiny, monkeypatch):
    """Rows of gigabytes that only the collector of cycles frees would fill a GPU up."""
    monkeypatch.setattr("pytest_imgedit.kinds.qwen_decoder.invariant.ROOM", 8)
    judge = QwenVLJudge(str(tiny(MODELS[1])), device="cpu")
    short, long = sorted(
        (judge.preprocess(question) for question in ask(3)), key=lambda one: len(one.tokens)
    )[::2]
    gc.disable()
    try:
        judge.decoder.decode([short], 3)
        rows = weakref.ref(judge.decoder._rows)
        judge.decoder.decode([long], 30)
        assert rows() is None
    finally:
        gc.enable()


def test_a_step_that_cannot_be_recorded_is_taken_as_it_is(monkeypatch, capsys):
    class Decoder:
        records_steps = True

        def follow(self, tokens, positions, rows):
            return positions.clone()

    class Failing:
        def __init__(self, *_, **__): ...

        def __enter__(self):
            raise RuntimeError("Cannot copy between CPU and CUDA tensors during CUDA graph capture")

        def __exit__(self, *_): ...

    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", Failing)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    decoder, layer = Decoder(), [torch.zeros(1, 1, 8, 1)]
    for _ in range(2):  # is not tried again
        rows = packed.Rows(decoder, layer, layer, torch.tensor([5]), torch.tensor([0]))
        assert [int(rows.follow(torch.tensor([0]))) for _ in range(3)] == [5, 6, 7]
        assert not decoder.records_steps
    error = capsys.readouterr().err
    assert error.count("not recorded as a CUDA graph: Cannot copy") == 1


def answering(monkeypatch, judge, answer):
    """Have a judge's decoder give `answer`, a number made of its prompts, as all logits of replies
    of one token, beside which longer ones may be written.
    """
    asked = []

    def decode(prompts, *_, **__):
        asked.append([[picture.key for picture in prompt.pictures] for prompt in prompts])
        logits = [torch.full((len(prompts), 5), float(answer(prompts)))] * len(prompts)
        return decoding.Decoded([[1]] * len(prompts), [True] * len(prompts), logits)

    monkeypatch.setattr(judge.decoder, "decode", decode)
    return asked


def test_a_decoder_of_many_prompts_is_tried_with_a_question_beside_others(tiny, monkeypatch):
    judge = QwenVLJudge(str(tiny(MODELS[1])), device="cpu")
    usual = answering(monkeypatch, judge, lambda prompts: 7)
    probe = judge.self_check()
    assert usual == [usual[0]] * 2
    prompt = usual[0][0]
    judge.decoder.tiles_alike, judge.decoder.rows = True, 8
    asked = answering(monkeypatch, judge, lambda prompts: 7)
    assert judge.self_check() == probe
    assert asked == [[prompt], [prompt[::-1]] * 3 + [prompt]]
    assert judge.decoder.rows == 8


def test_a_decoder_whose_answers_depend_on_company_has_each_by_itself(tiny, monkeypatch, capsys):
    judge = QwenVLJudge(str(tiny(MODELS[1])), device="cpu")
    probe = judge.self_check()
    judge.decoder.tiles_alike, judge.decoder.rows, judge.batch_size = True, 8, 8
    decode = judge.decoder.decode

    def decode_beside(prompts, *arguments, **options):
        """What the decoder does by itself, with other logits beside others."""
        others = len(prompts) - 1 if judge.decoder.tiles_alike else 0
        with monkeypatch.context() as patch:
            patch.setattr(judge.decoder, "tiles_alike", False)
            patch.setattr(judge.decoder, "rows", 1)
            decoded = decode(prompts, *arguments, **options)
        logits = [logits + others for logits in decoded.logits]
        return decoding.Decoded(decoded.tokens, decoded.cut, logits)

    monkeypatch.setattr(judge.decoder, "decode", decode_beside)
    assert judge.self_check() == probe
    assert "an answer depends on what is judged beside it" in capsys.readouterr().err
    assert (judge.decoder.tiles_alike, judge.decoder.rows, judge.batch_size) == (False, 1, 4)


def test_a_judge_that_answers_one_question_in_two_ways_does_not_load(tiny, monkeypatch):
    judge = QwenVLJudge(str(tiny(MODELS[1])), device="cpu")
    judge.self_check()
    for tiles_alike in (False, True):
        judge.decoder.tiles_alike = tiles_alike
        answering(monkeypatch, judge, lambda prompts: random.random())
        with pytest.raises(SetupError, match="answers one question in two ways"):
            judge.self_check()
    judge.deterministic = False
    judge.self_check()
