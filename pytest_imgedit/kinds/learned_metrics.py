"""Learned metrics: `clip-image`, `clip-text` and `dino`, cosine similarities of features, through
transformers; and `lpips`, through torchmetrics.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from PIL import Image
from pydantic import Field

from pytest_imgedit.core import errors, files, targets
from pytest_imgedit.core.requests import Answer, Question
from pytest_imgedit.core.results import Measure
from pytest_imgedit.kinds import reference
from pytest_imgedit.kinds.base import (
    CheckpointModel,
    Composition,
    ComputeParameters,
    Dtype,
    Memory,
    Metric,
    Requirements,
    Site,
    Where,
    indifferent,
)
from pytest_imgedit.kinds.checkpoint_files import Digests, Layout
from pytest_imgedit.kinds.metrics import (
    Against,
    ComparisonParameters,
    against_field,
    finite_score,
    images_to_compare,
    missing,
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


class LearnedMetric(ABC):
    """Measures edits with a network.

    A question is one forward pass of its own: its value does not depend on the other questions of
    its batch, bit by bit.
    """

    batch_size = 8

    def __init__(self, deterministic: bool, weights: Path) -> None:
        from pytest_imgedit.kinds.compute import numerics

        numerics.set_deterministic(deterministic)
        self.deterministic = deterministic
        self.weights = weights

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return the value of each question, or an error.

        Each question has its own forward pass: for a larger batch other kernels are chosen, which
        round the last bits differently.
        """
        return [self.answer_one(question) for question in questions]

    @abstractmethod
    def answer_one(self, question: Question) -> Answer:
        """Return the value of one question, or an error."""

    def self_check(self) -> None:
        """Measure one edit twice; raise `SetupError` if a value is an error, naming the weights, or
        if the two differ. With `deterministic=False` they may differ.
        """
        source = Image.linear_gradient("L").convert("RGB")
        edited = Image.radial_gradient("L").convert("RGB")
        images = {"source": source, "edited": edited, "reference": source}
        question = Question("self-check", "default", "make it round", images)
        answers = [self.answer_one(question) for _ in range(2)]
        for answer in answers:
            if answer.error is not None:
                raise errors.SetupError(
                    f"{self.weights}: {answer.error}; expected weights that are not damaged"
                )
        first, second = (answer.score for answer in answers)
        if self.deterministic and first != second:
            raise errors.SetupError(
                f"the metric gives one edit two values, {first} and {second}: set "
                "deterministic=false to accept that"
            )


class FeatureSimilarity(LearnedMetric):
    """Measures a cosine similarity of features of a checkpoint."""

    def __init__(self, folder: Path, device: str, options: FeatureParameters) -> None:
        from transformers import AutoImageProcessor, AutoModel

        from pytest_imgedit.kinds.compute import numerics, tensor_checks

        super().__init__(options.deterministic, folder)
        self.processor: Any = AutoImageProcessor.from_pretrained(folder, trust_remote_code=False)
        with tensor_checks.whole_checkpoints(folder):
            model = AutoModel.from_pretrained(
                folder,
                dtype=numerics.pick_dtype(options.dtype, device),
                use_safetensors=True,
                trust_remote_code=False,
            )
        self.model: Any = model.eval().to(device)

    def pixels(self, images: Sequence[Image.Image]) -> torch.Tensor:
        """Return images as the checkpoint's processor prepares them, of shape (B, 3, H, W)."""
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

    def answer_one(self, question: Question) -> Answer:
        """Return the cosine similarity of the features of an edit and its source or reference; an
        error for a pair without that image.
        """
        import torch

        if self.against not in question.images:
            return missing(self.against)
        images = images_to_compare(question, self.against)
        with torch.inference_mode():
            edited, target = self.features(self.pixels(images))
            similarity = cosine(edited, target)
        return finite_score(similarity)

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

    def answer_one(self, question: Question) -> Answer:
        """Return the cosine similarity of the embeddings of an edit and its instruction."""
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
            similarity = cosine(image[0], text[0])
        return finite_score(similarity)


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
    measure = Measure(scale=(-1.0, 1.0))
    model_types: ClassVar[tuple[str, ...]]

    def check_folder(self) -> None:
        """Raise `UsageError`, naming the file, if the checkpoint is not whole, or is not of
        `model_types`.
        """
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
    """Cosine similarity of CLIP's projected embeddings of two images."""

    name = "clip-image"
    worker = CLIPImageComparison
    Params = FeatureComparisonParameters
    model_types = ("clip",)


class CLIPText(FeatureMetric):
    """Cosine similarity of CLIP's projected embeddings of the edit and the instruction."""

    name = "clip-text"
    worker = CLIPTextSimilarity
    Params = FeatureParameters
    model_types = ("clip",)


class DINO(FeatureMetric):
    """Cosine similarity of the class tokens of two images, by DINOv2 (also with registers) or
    DINOv3's ViT.
    """

    name = "dino"
    worker = DINOComparison
    Params = FeatureComparisonParameters
    model_types = ("dinov2", "dinov2_with_registers", "dinov3_vit")


class Backbone(NamedTuple):
    """A network of torchvision on whose features LPIPS is computed.

    torch keeps its weights in a `file` whose name ends with the first digits of its SHA-256.
    """

    network: str
    file: str
    smallest: int  # side of an image in pixels

    @property
    def digits(self) -> str:
        """The first digits of the SHA-256 of its weights."""
        return Path(self.file).stem.rpartition("-")[2]

    @property
    def fetch(self) -> str:
        """A command that downloads its weights."""
        return (
            f"python -c 'import torchvision; torchvision.models.{self.network}"
            '(weights="IMAGENET1K_V1")\''
        )


Net = Literal["alex", "vgg", "squeeze"]
BACKBONES: dict[Net, Backbone] = {
    "alex": Backbone("alexnet", "alexnet-owt-7be5be79.pth", 31),
    "vgg": Backbone("vgg16", "vgg16-397923af.pth", 16),
    "squeeze": Backbone("squeezenet1_1", "squeezenet1_1-b8a52dc0.pth", 17),
}


class LPIPSParameters(ComparisonParameters):
    """What the metric `lpips` takes."""

    net: Net = Field(
        default="alex",
        description="the network whose features are compared: AlexNet, VGG-16 or SqueezeNet 1.1",
    )
    deterministic: bool = Field(
        default=True,
        description="TF32 and reduced-precision reductions are off; each worker measures one edit "
        "twice when it has loaded, and the run ends if the two values differ",
    )


class LPIPSComparison(LearnedMetric):
    """Computes LPIPS, version 0.1 (Zhang et al., 2018); `hub` is the folder in which torch keeps
    weights, and `params` are those of `LPIPSParameters`.
    """

    def __init__(self, hub: str, *, device: str, **params: Any) -> None:
        options = LPIPSParameters.parse(params)
        weights = weights_file(Path(hub), options.net)
        super().__init__(options.deterministic, weights)
        try:
            import torchvision  # noqa: F401 - what torchmetrics takes the network from
            from torchmetrics.image.lpip import LearnedPerceptualImagePatchSimilarity
        except ImportError as error:
            raise errors.SetupError(
                f"the metric lpips: {error}; pip install 'pytest-imgedit[metrics]'"
            ) from None
        import torch

        self.against = options.against
        self.device = device
        self.smallest = BACKBONES[options.net].smallest
        if not weights.is_file():  # else torchvision would download it
            raise errors.SetupError(f"{weights}: no such file on this machine")
        torch.hub.set_dir(hub)
        self.network = LearnedPerceptualImagePatchSimilarity(options.net, normalize=True)
        self.network.to(device)

    def answer_one(self, question: Question) -> Answer:
        """Return the distance of an edit from its source or reference; an error for a pair without
        that image, or with one that is too small for the network.
        """
        import torch

        if self.against not in question.images:
            return missing(self.against)
        edited, target = images_to_compare(question, self.against)
        if min(target.size) < self.smallest:
            return self._too_small(target)
        with torch.inference_mode():
            distance: torch.Tensor = self.network(self._pixels(edited), self._pixels(target))
        self.network.reset()
        return finite_score(distance.item())

    def _too_small(self, target: Image.Image) -> Answer:
        return Answer(
            error=f"the {self.against} image is {target.width} x {target.height} pixels, expected "
            f"at least {self.smallest} a side for lpips"
        )

    def _pixels(self, image: Image.Image) -> torch.Tensor:
        """Return an image on the device, on [0, 1]; shape (1, 3, H, W)."""
        import torch

        pixels = torch.from_numpy(reference.pixels(image, image.size))  # (H, W, 3)
        return pixels.to(self.device, torch.float32).permute(2, 0, 1)[None]


def torch_hub() -> Path:
    """Return the folder in which torch keeps weights that it has downloaded."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("TORCH_HOME", f"{cache}/torch")).expanduser() / "hub"


def weights_file(hub: Path, net: Net) -> Path:
    """Return the file in which torch keeps the weights of a network."""
    return hub / "checkpoints" / BACKBONES[net].file


class LPIPS(Metric):
    """Learned perceptual distance, version 0.1, by torchmetrics; 0 for equal images."""

    name = "lpips"
    worker = LPIPSComparison
    Params = LPIPSParameters
    libraries = ("torch", "torchvision", "torchmetrics", "pillow")
    measure = Measure(scale=(0.0, None), lower_is_better=True)

    @property
    def net(self) -> Net:
        """The network whose features are compared."""
        options = self.options
        assert isinstance(options, LPIPSParameters)
        return options.net

    @property
    def weights(self) -> Path:
        """The weights of that network."""
        return weights_file(torch_hub(), self.net)

    @property
    def target(self) -> targets.Target:
        return targets.Target.of(self.worker, str(torch_hub().absolute()))

    def check(self, site: Site) -> None:
        """Raise `SettingError` for a wrong parameter, and `UsageError` if the weights are missing
        here.
        """
        super().check(site)
        backbone = BACKBONES[self.net]
        if not self.weights.is_file():
            raise errors.UsageError(
                f"{self.weights}: no such file, expected the weights of {backbone.network}, which "
                f"the metric lpips does not download: {backbone.fetch}"
            )

    def compose(self, where: Where, digests: Digests) -> Composition:
        """Return its weights by content; raise `UsageError` if they cannot be read, or if their
        SHA-256 is not that which their name states.
        """
        name = self.weights.name
        content = digests.of(self.weights.parent, [name])
        backbone = BACKBONES[self.net]
        if not content[name].startswith(backbone.digits):
            raise errors.UsageError(
                f"{self.weights}: damaged, expected a SHA-256 that begins with {backbone.digits}; "
                f"remove the file and run {backbone.fetch}"
            )
        return Composition({"files": content})

    def memory(self) -> Memory:
        size = self.weights.stat().st_size
        return Memory(size, reads=size)
