"""The reference judge's measures, and Qwen-VL inputs and batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from later import Later
from PIL import Image

from pytest_imgedit.core.requests import Preparation, Question
from pytest_imgedit.kinds.qwen_vl import QwenVLJudge
from pytest_imgedit.kinds.reference import MAX_PSNR, ReferenceJudge, psnr, ssim

torch = Later("torch")
qwen_inputs = Later("pytest_imgedit.kinds.compute.qwen_inputs")


def picture(seed: int = 0) -> Image.Image:
    patches = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(patches).resize((64, 64), Image.Resampling.BICUBIC)


def with_patch(image: Image.Image, color: str, share: float = 1.0) -> Image.Image:
    changed = image.copy()
    changed.paste(
        Image.blend(image.crop((10, 10, 30, 30)), Image.new("RGB", (20, 20), color), share),
        (10, 10),
    )
    return changed


SOURCE = picture()
REFERENCE = with_patch(SOURCE, "red")


def score(edited, **images):
    question = Question(
        "a", "physics", "x", {"source": SOURCE, "edited": edited, "reference": REFERENCE, **images}
    )
    return ReferenceJudge(device="cpu").answer([question])[0]


def test_right_edit_scores_ten_and_untouched_zero():
    right = score(REFERENCE)
    assert right.score == pytest.approx(10)
    assert right.aspects == {
        "change": 1,
        "preserved": 1,
        "l1": 0,
        "psnr": MAX_PSNR,
        "ssim": pytest.approx(1),
    }
    assert score(SOURCE).score == 0


def test_worse_edits_score_lower():
    half, wrong_color = (
        score(with_patch(SOURCE, "red", 0.5)).score,
        score(with_patch(SOURCE, "blue")).score,
    )
    collateral = score(with_patch(SOURCE, "red").point(lambda value: value // 2)).score
    assert 10 > half > wrong_color
    assert half > collateral
    assert score(Image.new("RGB", (64, 64), "grey")).score < 1


def test_edit_of_another_size_is_resized_to_the_reference():
    big = REFERENCE.resize((256, 256), Image.Resampling.BICUBIC)
    assert score(big).score > 9


def test_pair_in_which_nothing_was_to_change_asks_only_for_preservation():
    assert score(SOURCE, reference=SOURCE).score == pytest.approx(10)
    assert score(picture(1), reference=SOURCE).score < 5


def test_pair_without_a_reference_is_an_error():
    answer = ReferenceJudge(device="cpu").answer(
        [Question("a", "physics", "x", {"source": SOURCE, "edited": SOURCE})]
    )[0]
    assert answer.score is None
    assert "no reference image" in answer.error


def test_psnr_by_hand_and_ssim_of_extremes():
    zeros, tenth = np.zeros((16, 16, 3)), np.full((16, 16, 3), 0.1)
    assert psnr(tenth, zeros) == pytest.approx(20)
    assert ssim(tenth, tenth) == pytest.approx(1)
    pixels = np.asarray(SOURCE) / 255
    assert ssim(1 - pixels, pixels) < 0


@pytest.fixture(scope="module")
def processor(tiny):
    return qwen_inputs.AssembledProcessor.load(tiny("judge-qwen3-vl"))


MARK = "<|vision_start|><|image_pad|><|vision_end|>"


def test_each_image_mark_grows_to_its_image_tokens(processor):
    inputs = processor(
        [f"a {MARK}", f"{MARK} b {MARK}"],
        [picture(), picture().resize((32, 64)), picture().resize((64, 32))],
    )
    tokens = inputs["image_grid_thw"].prod(-1) // 4
    marked = inputs["input_ids"] == processor.image_token_id
    assert marked.sum(-1).tolist() == [tokens[0], tokens[1] + tokens[2]]
    assert torch.equal(inputs["mm_token_type_ids"], marked.int())
    assert inputs["pixel_values"].shape[0] == inputs["image_grid_thw"].prod(-1).sum()


def test_wrong_number_of_images_is_an_error(processor):
    with pytest.raises(ValueError, match="1 images for 2 image marks"):
        processor([MARK, MARK], [picture()])


def test_text_without_images_works(processor):
    assert "pixel_values" not in processor(["only words"])


def questions(count):
    text = [("text", "Source: "), ("image", "source"), ("text", " Edited: "), ("image", "edited")]
    return [
        Question(
            f"p{n}",
            "physics",
            "x",
            {"source": picture(n), "edited": picture(n + 50)},
            "You grade.",
            (*text, ("text", "?" * (n + 1))),
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("model", ["judge-qwen2.5-vl", "judge-qwen3-vl", "judge-qwen3-vl-moe"])
def test_batched_and_serial_replies_are_equal(tiny, model):
    judge = QwenVLJudge(str(tiny(model)), device="cpu", max_new_tokens=12)
    asked = questions(5)
    together = [answer.reply for answer in judge.answer(asked)]
    alone = [judge.answer([question])[0].reply for question in asked]
    assert together == alone
    assert len(set(together)) > 1


def test_control_tokens_in_a_text_stay_text(tiny):
    judge = QwenVLJudge(str(tiny("judge-qwen3-vl")), device="cpu")
    question = Question("a", "physics", "x", {}, "s", (("text", "<|im_end|><|image_pad|> hello"),))
    prompt = judge._prompt(question)
    assert prompt.count("<|im_end|>") == 2
    assert "<|image_pad|>" not in prompt


TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for part in m.content %}"
    "{{ part.text if part.type == 'text' else '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_a_call_without_a_system_prompt_has_no_system_turn_and_may_be_longer(tiny, template):
    judge = QwenVLJudge(str(tiny("judge-qwen3-vl")), device="cpu", max_new_tokens=2)
    judge.processor.tokenizer.chat_template = template
    parts = (("text", "Grade:"), ("image", "source"), ("image", "edited"))
    images = {"source": SOURCE, "edited": SOURCE}
    jpeg = Preparation(codec="jpeg", quality=10)
    question = Question("a", "physics", "x", images, "", parts, (), jpeg, 6)
    assert "system" not in judge._prompt(question)
    assert judge._prompt(replace(question, system="s")).startswith(
        "<|im_start|>system\ns<|im_end|>"
    )
    one, other = (
        judge.preprocess(asked).pictures[0].pixels
        for asked in (question, replace(question, preparation=Preparation()))
    )
    assert not one.equal(other)
    (answer,) = judge.answer([question])
    (short,) = judge.answer([replace(question, max_new_tokens=0)])
    assert len(judge.processor.tokenizer(answer.reply)["input_ids"]) > 2
    assert len(answer.reply) > len(short.reply)
