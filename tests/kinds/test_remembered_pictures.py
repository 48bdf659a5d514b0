"""Pictures are encoded once for as long as they are remembered, and each alike in any company."""

import pytest
from later import Later
from test_packed import ask

from pytest_imgedit.kinds.qwen_vl import QwenVLJudge

torch = Later("torch")
pictures = Later("pytest_imgedit.kinds.qwen_decoder.pictures")

pytestmark = pytest.mark.everyday

MODELS = ["judge-qwen2.5-vl", "judge-qwen3-vl", "judge-qwen3-vl-moe"]


@pytest.fixture
def small_calls(monkeypatch):
    """Calls that hold a few pictures of the tests, which have 6 to 64 patches."""
    monkeypatch.setattr("pytest_imgedit.kinds.qwen_decoder.pictures.CALL_PATCHES", 160)
    monkeypatch.setattr("pytest_imgedit.kinds.qwen_decoder.pictures.FILLER_PATCHES", 64)


def noted(monkeypatch, decoder):
    """Return the list of the pictures' keys of each call of the vision tower."""
    calls, features = [], decoder.features

    def call(several, patches=None, **places):
        calls.append([picture.key for picture in several[: len(patches)]])
        return features(several, patches, **places)

    monkeypatch.setattr(decoder, "features", call)
    return calls


@pytest.mark.parametrize("model", MODELS)
def test_features_are_those_of_a_picture_by_itself(tiny, small_calls, model):
    judge = QwenVLJudge(str(tiny(model)), device="cpu")
    packed = judge.decoder.packed
    prompts = [judge.preprocess(question) for question in ask(7)]
    with torch.inference_mode():
        found = pictures.PictureEncoder(packed).encode(prompts)
        for prompt, of_prompt in zip(prompts, found, strict=True):
            for picture, features in zip(prompt.pictures, of_prompt, strict=True):
                alone = packed.features([picture])
                assert len(features) == len(alone)
                for layer, expected in zip(features, alone, strict=True):
                    torch.testing.assert_close(layer, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_a_picture_that_several_questions_share_is_encoded_once(
    tiny, small_calls, monkeypatch, model
):
    judge = QwenVLJudge(str(tiny(model)), device="cpu")
    encoder = pictures.PictureEncoder(judge.decoder.packed)
    calls = noted(monkeypatch, judge.decoder.packed)
    first, *others = ask(4)
    shared = [
        question.__class__(
            **{**vars(question), "images": {**question.images, "source": first.images["source"]}}
        )
        for question in others
    ]
    prompts = [judge.preprocess(question) for question in (first, *shared)]
    with torch.inference_mode():
        once = encoder.encode(prompts)
        encoded = [key for call in calls for key in call]
        assert sorted(encoded) == sorted({p.key for prompt in prompts for p in prompt.pictures})
        assert len(encoded) == 5  # one source, four edits
        calls.clear()
        again = encoder.encode(prompts[::-1])[::-1]
    assert not calls
    for one, other in zip(once, again, strict=True):
        assert all(a is b for a, b in zip(one, other, strict=True))


def test_those_used_longest_ago_are_forgotten(tiny, small_calls, monkeypatch):
    judge = QwenVLJudge(str(tiny(MODELS[1])), device="cpu")
    encoder = pictures.PictureEncoder(judge.decoder.packed)
    calls = noted(monkeypatch, judge.decoder.packed)
    a, b, c = ([judge.preprocess(question)] for question in ask(3))
    with torch.inference_mode():
        ((*features,),) = encoder.encode(a)
        sizes = sum(layer.nbytes for picture in features for layer in picture)
        monkeypatch.setattr(
            "pytest_imgedit.kinds.qwen_decoder.pictures.REMEMBERED_BYTES", 2 * sizes
        )
        encoder.encode(b)
        encoder.encode(a)  # used again, so that the next one takes the place of another
        encoder.encode(c)
        calls.clear()
        encoder.encode(a)
        assert not calls
        encoder.encode(b)
    assert calls


def test_a_picture_larger_than_a_call_takes_a_call_of_its_own(tiny, monkeypatch):
    monkeypatch.setattr("pytest_imgedit.kinds.qwen_decoder.pictures.CALL_PATCHES", 40)
    judge = QwenVLJudge(str(tiny(MODELS[1])), device="cpu")
    sizes, features = [], judge.decoder.packed.features

    def call(several, patches=None, **places):
        sizes.append((sum(len(picture.pixels) for picture in several), len(patches)))
        return features(several, patches, **places)

    monkeypatch.setattr(judge.decoder.packed, "features", call)
    prompts = [judge.preprocess(question) for question in ask(3)]
    with torch.inference_mode():
        pictures.PictureEncoder(judge.decoder.packed).encode(prompts)
    assert all(total % 40 == 0 for total, _ in sizes)
    assert all(count == 1 for total, count in sizes if total > 40)
    assert any(total > 40 for total, _ in sizes)
