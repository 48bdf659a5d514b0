"""Qwen-VL models as judges, through transformers: Qwen2.5-VL, Qwen3-VL, Qwen3-VL-MoE."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForImageTextToText

from pytest_imgedit.errors import SetupError
from pytest_imgedit.judges.base import Answer
from pytest_imgedit.judges.expected import Place, expected_grade, find_places
from pytest_imgedit.numerics import pick_dtype, set_deterministic
from pytest_imgedit.qwen import IMAGE, AssembledProcessor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_imgedit.judges.base import Question

#: GPU memory that one question is expected to need beside the weights: two images of a megapixel, in bytes.
QUESTION_BYTES = 3 * 2**30 // 2
MAX_BATCH = 16
CPU_BATCH = 4
VISION = f"<|vision_start|>{IMAGE}<|vision_end|>"


class QwenVLJudge:
    """Answers in batches: left padding, greedy decoding, replies trimmed to the new tokens.

    `dtype` and `deterministic` are as for the diffusers editor. `max_new_tokens` bounds a reply; images over
    `max_pixels` are scaled down. `attention` is transformers' `attn_implementation`. With `scoring="expected"` an
    answer also holds the expected grade of each aspect; that costs another look at an edit for each number that may
    start with a 1, with tokenizers that write 10 as 1 and 0.
    """

    def __init__(
        self,
        model: str,
        *,
        device: str,
        dtype: str = "auto",
        deterministic: bool = True,
        max_new_tokens: int = 128,
        max_pixels: int = 1_048_576,
        attention: str = "sdpa",
        scoring: str = "greedy",
    ) -> None:
        set_deterministic(deterministic)
        folder = Path(model)
        self.processor = AssembledProcessor.load(folder)
        self.processor.tokenizer.padding_side = "left"
        self.model = AutoModelForImageTextToText.from_pretrained(
            folder,
            dtype=pick_dtype(dtype, device),
            device_map={"cpu": None, "cuda": {"": "cuda:0"}, "balanced": "auto"}[device],
            attn_implementation=attention,
            use_safetensors=True,
            trust_remote_code=False,
        ).eval()
        if self.processor.image_token_id != self.model.config.image_token_id:
            raise SetupError(
                f"{model}: tokenizer and model disagree on the image token "
                f"({self.processor.image_token_id} and {self.model.config.image_token_id})"
            )
        self.max_new_tokens, self.expects = max_new_tokens, scoring == "expected"
        size = self.processor.image_processor.size
        self.size = {
            "shortest_edge": min(size["shortest_edge"], max_pixels),
            "longest_edge": min(size["longest_edge"], max_pixels),
        }
        self.batch_size = CPU_BATCH if device == "cpu" else _fitting_batch()

    @torch.inference_mode()
    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        inputs = self._inputs(questions)
        output = self.model.generate(
            **inputs,
            max_new_tokens=self.max_new_tokens,
            do_sample=False,
            num_beams=1,
            temperature=None,
            top_p=None,
            top_k=None,
            repetition_penalty=1.0,
            return_dict_in_generate=True,
            output_logits=self.expects,
        )
        new = output.sequences[:, inputs["input_ids"].shape[1] :]
        replies: list[str] = self.processor.tokenizer.batch_decode(new, skip_special_tokens=True)
        if not self.expects:
            return [Answer(reply.strip()) for reply in replies]
        logits = [step.float() for step in output.logits]
        return [
            self._expect(question, new[row].tolist(), [step[row] for step in logits])
            for row, question in enumerate(questions)
        ]

    def _expect(self, question: Question, tokens: list[int], logits: Sequence[torch.Tensor]) -> Answer:
        """Answer with the greedy reply and the expected grades; `logits` (V,) are those of each step."""
        tokenizer = self.processor.tokenizer
        grades = {}
        for place in find_places(tokenizer, tokens, question.aspects):

            def after_one(place: Place = place) -> torch.Tensor:
                one = tokenizer.encode(f"{place.lead}1", add_special_tokens=False)
                if tokens[place.step] == one[0] and place.step + 1 < len(logits):
                    return logits[place.step + 1].softmax(-1)
                inputs = self._inputs([question], f"{place.before}{place.lead}1")
                following: torch.Tensor = self.model(**inputs, logits_to_keep=1).logits[0, -1]
                return following.float().softmax(-1)

            grades[place.aspect] = expected_grade(tokenizer, logits[place.step].softmax(-1), place, after_one)
        return Answer(
            tokenizer.decode(tokens, skip_special_tokens=True).strip(),
            expected={aspect: grade for aspect, (grade, _) in grades.items()},
            off_scale=max((off for _, off in grades.values()), default=0.0),
        )

    def _inputs(self, questions: Sequence[Question], start: str = "") -> Any:
        """Build the model's inputs up to where its reply begins, or goes on after `start`."""
        names = [[text for kind, text in question.parts if kind == "image"] for question in questions]
        images = [question.images[name] for question, own in zip(questions, names, strict=True) for name in own]
        inputs = self.processor([self._prompt(question) + start for question in questions], images, size=self.size)
        return inputs.to(self.model.device)

    def _prompt(self, question: Question) -> str:
        """Put a question into the model's chat format."""
        tokenizer: Any = self.processor.tokenizer
        if tokenizer.chat_template is None:
            return chatml(question.system, question.parts)
        parts = [
            {"type": "image"} if kind == "image" else {"type": "text", "text": _plain(text)}
            for kind, text in question.parts
        ]
        messages = [
            {"role": "system", "content": [{"type": "text", "text": _plain(question.system)}]},
            {"role": "user", "content": parts},
        ]
        prompt: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return prompt


def chatml(system: str, parts: Sequence[tuple[str, str]]) -> str:
    """Put a question into ChatML, Qwen's own chat format, up to where the answer starts."""
    user = "".join(VISION if kind == "image" else _plain(text) for kind, text in parts)
    return (
        f"<|im_start|>system\n{_plain(system)}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
    )


def _plain(text: str) -> str:
    """Keep a text from a suite from being read as the model's own control tokens."""
    return text.replace("<|", "< |")


def _fitting_batch() -> int:
    """Choose a batch size from the GPU memory that is free after loading."""
    free, _ = torch.cuda.mem_get_info()
    return int(max(1, min(MAX_BATCH, free // QUESTION_BYTES)))
