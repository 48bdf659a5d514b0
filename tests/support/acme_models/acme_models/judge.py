from pydantic import Field

from pytest_imgedit import Answer, CheckpointModel, ComputeParameters, Layout, Question


class JudgeParameters(ComputeParameters):
    prefix: str = Field(default="", max_length=99, description="words before each question")


class Judge:
    batch_size = 4

    def __init__(self, model: str, *, device: str, **params: object) -> None:
        from transformers import LlavaForConditionalGeneration, LlavaProcessor

        options = JudgeParameters.parse(params)
        self.prefix, self.device = options.prefix, device
        self.processor = LlavaProcessor.from_pretrained(model)
        self.model = LlavaForConditionalGeneration.from_pretrained(model, dtype=options.dtype)
        self.model.requires_grad_(False).to(device)
        self.digits = self.processor.tokenizer.convert_tokens_to_ids(list("0123456789"))

    def answer(self, questions: list[Question]) -> list[Answer]:
        return [Answer("\n".join(f"{a}: {self.grade(q, a)}" for a in q.aspects)) for q in questions]

    def grade(self, question: Question, aspect: str) -> int:
        images = [question.images[name] for kind, name in question.parts if kind == "image"]
        words = "".join("<image>" if kind == "image" else text for kind, text in question.parts)
        text = f"{self.prefix}{words}\n{aspect}: "
        inputs = self.processor(images=images, text=text, return_tensors="pt")
        inputs = inputs.to(self.device, self.model.dtype)
        return int(self.model(**inputs).logits[0, -1, self.digits].argmax())


class AcmeJudge(CheckpointModel):
    """A LLaVA that is made to answer with one digit for each aspect."""

    role, name, worker = "judge", "acme-llava", Judge
    layout, Params = Layout.MODEL, JudgeParameters
