"""Decoding without padding gives what transformers' `generate` gives."""

import pytest
from later import Later
from PIL import Image

from pytest_imgedit.config.settings import Settings, SuiteSettings
from pytest_imgedit.core.images import decode
from pytest_imgedit.core.requests import Question
from pytest_imgedit.kinds.qwen_vl import QwenVLJudge
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.scenes import WEIGHTS
from pytest_imgedit.suites.base import load_suite

torch = Later("torch")
fused = Later("pytest_imgedit.kinds.qwen_decoder.fused")
packed = Later("pytest_imgedit.kinds.qwen_decoder.packed")

pytestmark = pytest.mark.everyday


def ask(
    count, sizes=((64, 64), (48, 32), (64, 32)), system="You grade edits of images with great care."
):
    return [
        Question(
            str(n),
            "physics",
            "x",
            {"source": noise(n, sizes), "edited": noise(n + 50, sizes)},
            system,
            (
                ("text", "Source: "),
                ("image", "source"),
                ("image", "edited"),
                ("text", "?" * (3 * n + 1)),
            ),
        )
        for n in range(count)
    ]


def noise(seed, sizes):
    generator = torch.Generator().manual_seed(seed)
    width, height = sizes[seed % len(sizes)]
    return Image.fromarray(
        torch.randint(0, 256, (height, width, 3), generator=generator, dtype=torch.uint8).numpy()
    )


@pytest.mark.parametrize("model", ["judge-qwen2.5-vl", "judge-qwen3-vl", "judge-qwen3-vl-moe"])
def test_replies_and_logits_equal_those_of_generate_for_uneven_prompts_and_images(tiny, model):
    judge = QwenVLJudge(str(tiny(model)), device="cpu", max_new_tokens=9, batch_invariant=False)
    plain = QwenVLJudge(str(tiny(model)), device="cpu", max_new_tokens=9, attention="sdpa")
    assert isinstance(judge.decoder, packed.PackedDecoder)
    prompts = [judge.preprocess(question) for question in ask(5)]
    ours = judge.decoder.decode(prompts, 9, keep_logits=True)
    theirs = plain.decoder.decode(prompts, 9, keep_logits=True)
    assert ours.tokens == theirs.tokens
    assert (
        ours.cut == theirs.cut == [tokens[-1] not in judge.decoder.ends for tokens in ours.tokens]
    )
    assert len({tuple(tokens) for tokens in ours.tokens}) > 1
    for mine, other, tokens in zip(ours.logits, theirs.logits, ours.tokens, strict=True):
        torch.testing.assert_close(mine[: len(tokens)], other[: len(tokens)], rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def scenes():
    """Questions about the embedded suite, half of them about pairs that were not edited."""
    protocol = load_protocol(Settings())
    asked = []
    for n, pair in enumerate(load_suite(SuiteSettings(spec="scenes:n=3")).pairs):
        call = protocol.calls(pair)[0]
        edited = pair.reference if n % 2 else pair.source
        images = {"source": decode(pair.source.read()), "edited": decode(edited.read())}
        asked.append(
            Question(
                pair.id,
                pair.category,
                pair.instruction,
                images,
                call.system,
                call.parts,
                call.grammar.names,
            )
        )
    return asked


@pytest.mark.full
def test_the_embedded_judge_grades_alike_packed_and_plain(scenes):
    """Costly: four real judges answer, as equal grades of theirs are the point."""
    answers = [
        QwenVLJudge(
            str(WEIGHTS / "judge"), device="cpu", attention=how, batch_invariant=invariant
        ).answer(scenes)
        for how, invariant in (("auto", True), ("auto", False), ("sdpa", False), ("eager", False))
    ]
    assert all(other == answers[0] for other in answers[1:])
    assert len({answer.reply for answer in answers[0]}) > 1


@pytest.mark.parametrize("attention", ["auto", "sdpa"])
def test_a_reply_that_reaches_its_limit_is_cut(scenes, attention):
    judge = QwenVLJudge(str(WEIGHTS / "judge"), device="cpu", attention=attention)
    (whole,) = judge.answer(scenes[:1])
    judge.max_new_tokens = len(
        judge.processor.tokenizer.encode(whole.reply, add_special_tokens=False)
    )
    assert not whole.cut
    (cut,) = judge.answer(scenes[:1])
    assert cut.cut
    assert cut.reply == whole.reply


def test_prompts_without_images_and_of_one_token_more_than_their_common_beginning(tiny):
    judge = QwenVLJudge(str(tiny("judge-qwen3-vl")), device="cpu", max_new_tokens=4)
    texts = [Question(str(n), "physics", "x", {}, "s" * 40, (("text", "a" * n),)) for n in range(3)]
    together = [answer.reply for answer in judge.answer(texts)]
    assert together == [judge.answer([text])[0].reply for text in texts]


@pytest.mark.parametrize(
    "options", [{}, {"batch_invariant": False}, {"attention": "sdpa", "batch_invariant": False}]
)
def test_prompts_with_and_without_images_may_be_in_one_batch(tiny, options):
    judge = QwenVLJudge(str(tiny("judge-qwen3-vl")), device="cpu", max_new_tokens=4, **options)
    asked = [ask(1)[0], Question("t", "physics", "x", {}, "s" * 40, (("text", "a"),)), ask(2)[1]]
    assert judge.answer(asked) == [judge.answer([question])[0] for question in asked]


def test_judge_may_answer_with_what_was_prepared_before(tiny):
    judge = QwenVLJudge(str(tiny("judge-qwen3-vl")), device="cpu", max_new_tokens=4)
    asked = ask(2)
    prepared = [judge.preprocess(question) for question in asked]
    assert judge.answer(asked, prepared) == judge.answer(asked)


@pytest.mark.parametrize(
    ("own", "seen"), [([3, 3], [3, 3]), ([2, 5, 1], [2, 5, 1]), ([2, 3], [6, 4])]
)
@pytest.mark.parametrize("causal", [True, False])
def test_attention_stays_inside_each_sequence(own, seen, causal):
    torch.manual_seed(0)
    query = torch.randn(sum(own), 4, 8)
    key, value = torch.randn(sum(seen), 2, 8), torch.randn(sum(seen), 2, 8)
    found = packed.attend(
        query, key, value, packed.Bounds.of(own, seen, query.device), causal=causal, scale=0.3
    )
    starts = [(sum(own[:n]), sum(seen[:n])) for n in range(len(own))]
    for (a, b), q, k in zip(starts, own, seen, strict=True):
        mask = torch.ones(q, k, dtype=torch.bool)
        mask = mask.tril(k - q) if causal else mask
        rows = (
            query[a : a + q],
            key[b : b + k].repeat_interleave(2, 1),
            value[b : b + k].repeat_interleave(2, 1),
        )
        alone = torch.nn.functional.scaled_dot_product_attention(
            *(one.transpose(0, 1) for one in rows), attn_mask=mask, scale=0.3
        )
        torch.testing.assert_close(found[a : a + q], alone.transpose(0, 1))


def test_sequences_of_one_length_are_attended_to_together_each_by_itself(monkeypatch):
    """On a GPU, cuDNN does that; here the backend that every CPU has."""
    backends = torch.nn.attention.SDPBackend
    together = []
    attend_alike = packed._attend_alike

    def noted(query, key, value, length, **how):
        together.append((len(query) // length, length))
        return attend_alike(query, key, value, length, **how)

    monkeypatch.setattr("pytest_imgedit.kinds.qwen_decoder.packed._attend_alike", noted)
    patched = "pytest_imgedit.kinds.qwen_decoder.packed.SDPBackend.CUDNN_ATTENTION"
    monkeypatch.setattr(patched, backends.MATH)
    torch.manual_seed(0)
    lengths = [6] * 7 + [4, 6, 6]
    counted, unused = sum(lengths), 5
    query = torch.randn(counted + unused, 4, 8)
    key, value = torch.randn(2, counted + unused, 2, 8)
    for causal in (True, False):
        together.clear()
        found = packed._attend_each(query, key, value, lengths, causal=causal, scale=0.3)
        assert together == [(4, 6), (2, 6), (1, 6), (1, 4), (2, 6)]
        bounds = packed.Bounds.of(lengths, lengths, query.device)
        counts = (tensor[:counted] for tensor in (query, key, value))
        expected = packed.attend(*counts, bounds, causal=causal, scale=0.3)
        torch.testing.assert_close(found[:counted], expected)
        assert found[counted:].shape == (unused, 4, 8)
        assert not found[counted:].any()


def test_what_is_fused_on_a_gpu_computes_what_transformers_does(tiny, monkeypatch):
    model = QwenVLJudge(str(tiny("judge-qwen3-vl-moe")), device="cpu").model
    layer = model.model.language_model.layers[0]
    hidden = torch.randn(6, 64)
    torch.testing.assert_close(
        fused.rms_norm(
            hidden, layer.input_layernorm.weight, layer.input_layernorm.variance_epsilon
        ),
        layer.input_layernorm(hidden),
    )
    chosen = torch.tensor([[0, 3], [1, 0], [2, 3], [0, 1], [3, 2], [1, 2]])
    weights = torch.rand(6, 2)
    with torch.inference_mode():
        expected = layer.mlp.experts(hidden, chosen, weights)
        with monkeypatch.context() as patch:  # the same mathematics, without a compiler
            patch.setattr(
                "pytest_imgedit.kinds.qwen_decoder.fused._compiled", lambda function: function
            )
            found = fused.experts(layer.mlp.experts, hidden, chosen, weights)
        torch.testing.assert_close(found, expected)
    block = model.model.visual.blocks[0].mlp
    patches = torch.randn(5, block.linear_fc1.in_features)
    with torch.inference_mode():
        found = fused._feed_forward(block.linear_fc1, block.linear_fc2, patches)
        torch.testing.assert_close(found, block(patches), atol=1e-3, rtol=1e-3)
    assert fused._takes_gelu(block)
    with monkeypatch.context() as patch:
        patch.delattr("torch._addmm_activation")
        assert not fused._takes_gelu(block)
    gate_up = torch.randn(3, 8)
    torch.testing.assert_close(
        fused.swiglu(gate_up), torch.nn.functional.silu(gate_up[:, :4]) * gate_up[:, 4:]
    )
    combined = fused.combine(torch.eye(4), torch.tensor([[0, 1], [2, 3]]), torch.ones(2, 2))
    assert combined.tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
