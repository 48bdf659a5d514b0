"""The metrics `clip-image`, `clip-text` and `dino`: cosine similarities of features, through
transformers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from PIL import Image

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.requests import Answer, Question
from pytest_imgedit.core.results import Measure
from pytest_imgedit.kinds.base import (
    CheckpointModel,
    ComputeParameters,
    Dtype,
    Metric,
    Requirements,
    indifferent,
)
from pytest_imgedit.kinds.checkpoint_files import Layout
from pytest_imgedit.kinds.metrics import (
    Against,
    against_field,
    answer_comparable,
    finite_score,
    images_to_compare,
)

if TYPE_CHECKING:
    import torch


class FeatureParameters(ComputeParameters):
    """What the metric `clip-text` takes."""

    dtype: Dtype = indifferent(
        "float32", description='`"auto"` is bfloat16 on a GPU and float32 on the CPU'
    )


class FeatureComparisonParameters(FeatureParameters):
    """What the metrics `clip-image` and `dino` take."""

    against: Against = against_field()


class FeatureSimilarity(ABC):
    """Measures a cosine similarity of features of a checkpoint.

    A question is one forward pass of its own: its value does not depend on the other questions of
    its batch, bit by bit.
    """

    batch_size = 8

    def __init__(self, folder: Path, device: str, options: FeatureParameters) -> None:
        from transformers import AutoImageProcessor, AutoModel

        from pytest_imgedit.kinds.compute import numerics, tensor_checks

        numerics.set_deterministic(options.deterministic)
        self.deterministic = options.deterministic
        self.processor: Any = AutoImageProcessor.from_pretrained(folder, trust_remote_code=False)
        with tensor_checks.whole_checkpoints(folder):
            model = AutoModel.from_pretrained(
                folder,
                dtype=numerics.pick_dtype(options.dtype, device),
                use_safetensors=True,
                trust_remote_code=False,
            )
        self.model: Any = model.eval().to(device)

    @abstractmethod
    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one value a question, or an error."""

    def self_check(self) -> None:
        """Measure one edit twice; raises `SetupError` unless both values are equal.

        With `deterministic=False` nothing is promised, so nothing is checked.
        """
        if not self.deterministic:
            return
        source = Image.linear_gradient("L").convert("RGB")
        edited = Image.radial_gradient("L").convert("RGB")
        images = {"source": source, "edited": edited, "reference": source}
        question = Question("self-check", "default", "make it round", images)
        first, second = (self.answer([question])[0].score for _ in range(2))
        if first != second:
            raise errors.SetupError(
                f"the metric gives one edit two values, {first} and {second}: set "
                "deterministic=false to accept that"
            )

    def pixels(self, images: Sequence[Image.Image]) -> torch.Tensor:
        """Prepare images as the checkpoint's processor does; shape (B, 3, H, W)."""
        inputs = self.processor(images=list(images), return_tensors="pt")
        pixels: torch.Tensor = inputs["pixel_values"]
        return pixels.to(self.model.device, self.model.dtype)


class FeatureComparison(FeatureSimilarity):
    """Compares the features of an edit with those of its source or reference; `params` are those of
    `FeatureComparisonParameters`.
    """

    def __init__(self, model: str, *, device: str, **params: Any) -> None:
        options = FeatureComparisonParameters.parse(params)
        self.against = options.against
        super().__init__(Path(model), device, options)

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return answer_comparable(questions, self.against, self._values)

    def _values(self, questions: Sequence[Question]) -> Iterator[float]:
        import torch

        for question in questions:
            with torch.inference_mode():
                images = images_to_compare(question, self.against)
                edited, target = self.features(self.pixels(images))
                yield cosine(edited, target)

    @abstractmethod
    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return features of shape (B, D) of prepared images."""


class CLIPImageComparison(FeatureComparison):
    """Compares CLIP's projected image embeddings."""

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.model.get_image_features(pixels).pooler_output
        return features


class DINOComparison(FeatureComparison):
    """Compares the class token after the last layer norm."""

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.model(pixels).last_hidden_state[:, 0]
        return features


class CLIPTextSimilarity(FeatureSimilarity):
    """Compares CLIP's projected embedding of an edit with that of the instruction; `params` are
    those of `FeatureParameters`.

    CLIP reads the first tokens of an instruction only, 77 of most checkpoints.
    """

    def __init__(self, model: str, *, device: str, **params: Any) -> None:
        from transformers import AutoTokenizer

        super().__init__(Path(model), device, FeatureParameters.parse(params))
        self.tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
        self.max_tokens: int = self.model.config.text_config.max_position_embeddings

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return [finite_score(self._value(question)) for question in questions]

    def _value(self, question: Question) -> float:
        import torch

        tokens = self.tokenizer(
            [question.instruction],
            truncation=True,
            max_length=self.max_tokens,
            return_tensors="pt",
        ).to(self.model.device)
        with torch.inference_mode():
            text = self.model.get_text_features(
                tokens["input_ids"], attention_mask=tokens["attention_mask"]
            ).pooler_output
            pixels = self.pixels([question.images["edited"]])
            image = self.model.get_image_features(pixels).pooler_output
            return cosine(image[0], text[0])


def cosine(first: torch.Tensor, second: torch.Tensor) -> float:
    """Return the cosine similarity of two vectors of shape (D,), in [-1, 1]."""
    from torch.nn.functional import cosine_similarity

    similarity = cosine_similarity(first.double(), second.double(), dim=0)
    return similarity.clamp(-1, 1).item()


class FeatureMetric(Metric, CheckpointModel):
    """A cosine similarity of the features of a checkpoint.

    `model_types` are the values of `model_type` in the checkpoint's config.json that it takes.
    """

    layout = Layout.MODEL
    defaults: ClassVar = {"dtype": "float32"}
    libraries = ("torch", "torchvision", "transformers", "tokenizers", "pillow")
    measure = Measure(scale=(-1.0, 1.0), is_main=True)
    model_types: ClassVar[tuple[str, ...]]

    def check_folder(self) -> None:
        super().check_folder()
        path = self.checkpoint.folder / "config.json"
        config = files.read_object(path, "the config of a transformers model")
        model_type = config.get("model_type")
        if model_type not in self.model_types:
            raise errors.UsageError(
                f"{path}: model_type {model_type!r}, expected {' or '.join(self.model_types)} for "
                f"the metric {self.name}"
            )

    @property
    def requirements(self) -> Requirements:
        """The unused packages are what transformers imports with every model."""
        return Requirements(self.libraries, unused_packages=("scipy", "sklearn", "peft"))


class CLIPImage(FeatureMetric):
    """Cosine similarity of CLIP's embeddings of two images."""

    name = "clip-image"
    worker = CLIPImageComparison
    Params = FeatureComparisonParameters
    model_types = ("clip",)


class CLIPText(FeatureMetric):
    """Cosine similarity of CLIP's embeddings of the edit and the instruction."""

    name = "clip-text"
    worker = CLIPTextSimilarity
    Params = FeatureParameters
    model_types = ("clip",)


class DINO(FeatureMetric):
    """Cosine similarity of DINO's class tokens of two images."""

    name = "dino"
    worker = DINOComparison
    Params = FeatureComparisonParameters
    model_types = ("dinov2", "dinov2_with_registers", "dinov3_vit")
