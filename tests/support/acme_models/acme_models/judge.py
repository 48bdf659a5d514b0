from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import LlavaForConditionalGeneration, PreTrainedTokenizerFast

from acme_models.kinds import AcmeJudgeParameters
from pytest_imgedit import Answer, Question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image


class Judge:
    batch_size = 4

    def __init__(self, model: str, *, device: str, **params: object) -> None:
        options = AcmeJudgeParameters.parse(dict(params))
        self.prefix, self.device = options.prefix, device
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(model)
        self.model = LlavaForConditionalGeneration.from_pretrained(model, use_safetensors=True).to(device).eval()
        self.side = self.model.config.vision_config.image_size
        self.digits = [self.tokenizer.convert_tokens_to_ids(str(digit)) for digit in range(10)]

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> Answer:
        images = torch.stack([self._pixels(question.images[name]) for kind, name in question.parts if kind == "image"])
        patches = (self.side // self.model.config.vision_config.patch_size) ** 2
        text = "".join("<image>" * patches if kind == "image" else value for kind, value in question.parts)
        lines = []
        for aspect in question.aspects:
            asked = self.tokenizer(f"{self.prefix}{text}\n{aspect}: ", return_tensors="pt").to(self.device)
            with torch.no_grad():
                logits = self.model(**asked, pixel_values=images).logits[0, -1]
            lines.append(f"{aspect}: {int(logits[self.digits].argmax())}")
        return Answer("\n".join(lines))

    def _pixels(self, image: Image.Image) -> torch.Tensor:
        pixels = np.asarray(image.resize((self.side, self.side)), dtype=np.float32) / 127.5 - 1
        return torch.from_numpy(pixels).permute(2, 0, 1).to(self.device)
