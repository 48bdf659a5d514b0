import numpy as np
from pydantic import Field

from pytest_imgedit import Answer, CheckpointModel, ComputeParameters, Layout, Question


class JudgeParameters(ComputeParameters):
    prefix: str = Field(default="", max_length=99, description="words before each question")


class Judge:
    batch_size = 4

    def __init__(self, model: str, *, device: str, **params: object) -> None:
        from transformers import LlavaForConditionalGeneration, PreTrainedTokenizerFast

        self.prefix, self.device = JudgeParameters.parse(params).prefix, device
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(model)
        self.model = (
            LlavaForConditionalGeneration.from_pretrained(model, use_safetensors=True)
            .to(device)
            .eval()
        )
        self.vision = self.model.config.vision_config
        self.digits = [self.tokenizer.convert_tokens_to_ids(str(digit)) for digit in range(10)]

    def answer(self, questions: list[Question]) -> list[Answer]:
        return [
            Answer("\n".join(f"{aspect}: {self.grade(q, aspect)}" for aspect in q.aspects))
            for q in questions
        ]

    def grade(self, question: Question, aspect: str) -> int:
        import torch

        side, patches = (
            self.vision.image_size,
            (self.vision.image_size // self.vision.patch_size) ** 2,
        )
        shown = [
            question.images[name].resize((side, side))
            for kind, name in question.parts
            if kind == "image"
        ]
        pixels = torch.from_numpy(np.stack(shown).astype(np.float32) / 127.5 - 1).permute(
            0, 3, 1, 2
        )
        words = "".join(
            "<image>" * patches if kind == "image" else value for kind, value in question.parts
        )
        asked = self.tokenizer(f"{self.prefix}{words}\n{aspect}: ", return_tensors="pt").to(
            self.device
        )
        with torch.no_grad():
            logits = self.model(**asked, pixel_values=pixels.to(self.device)).logits[0, -1]
        return int(logits[self.digits].argmax())


class AcmeJudge(CheckpointModel):
    """A LLaVA that is made to answer with one digit for each aspect."""

    role, name, worker = "judge", "acme-llava", Judge
    layout, Params = Layout.MODEL, JudgeParameters
