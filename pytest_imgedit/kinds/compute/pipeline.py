"""Loads a diffusers pipeline from a folder, with or without torchvision, mends what its class gets
wrong, and follows its denoising steps.
"""

import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from PIL import Image

from pytest_imgedit.core import strict_json
from pytest_imgedit.kinds import checkpoint_files
from pytest_imgedit.kinds.checkpoint_files import Layout
from pytest_imgedit.kinds.compute import qwen_inputs, scheduling, tensor_checks
from pytest_imgedit.kinds.diffusers_parameters import DiffusersParameters

_QWEN_PROCESSOR = re.compile(r"Qwen\d?(_5_)?VLProcessor|Qwen2_5_VLProcessor|Qwen3VLProcessor")


def load_pipeline(
    folder: Path,
    device: str,
    dtype: torch.dtype,
    *,
    variant: str | None = None,
    **components: Any,
) -> Any:
    """Load a pipeline from a folder to `"cpu"`, `"cuda"`, one of several GPUs such as `"cuda:1"`,
    or `"balanced"` over all of them.

    `variant` is as `checkpoint_files.used_variant` takes it. `components` are used as they are, in
    place of those in the folder, which may have no weights of them. Raise `SetupError` for weights
    that do not fit their configs.
    """
    index = json.loads((folder / "model_index.json").read_text("utf-8"))
    kind = str(index["_class_name"])
    variant = checkpoint_files.used_variant(folder, Layout.PIPELINE, variant, tuple(components))
    if importlib.util.find_spec("torchvision") is None:
        components = {**_without_torchvision(folder, index), **components}
    placement = {"device_map": device} if device in ("cuda", "balanced") else {}
    with tensor_checks.whole_checkpoints():
        pipeline = DiffusionPipeline.from_pretrained(
            str(folder),
            dtype=dtype,
            variant=variant,
            use_safetensors=True,
            trust_remote_code=False,
            **placement,
            **components,
        )
    if ":" in device:
        pipeline.to(device)  # a device_map does not tell GPUs apart
    _mend(pipeline, folder, kind)
    return pipeline


def replaced_components(
    folder: Path, options: DiffusersParameters, dtype: torch.dtype, device: str
) -> dict[str, Any]:
    """Return the components that take the place of those in a pipeline's folder: its scheduler with
    other settings, and what a single file holds, on the device.

    Raise `SetupError` for a scheduler that the pipeline cannot use, and for a file that does not
    hold the whole of a component.
    """
    components = scheduling.built_scheduler(str(folder), options)
    if options.single_file is not None:
        from pytest_imgedit.kinds.compute import single_file

        components |= single_file.load(Path(options.single_file), folder, dtype, device)
    return components


def _without_torchvision(folder: Path, index: strict_json.JsonObject) -> strict_json.JsonObject:
    """Return the components whose classes want torchvision, assembled of parts that do not; `None`
    for a tokenizer that `_mend` loads.

    OmniGen's processor is no component: diffusers' module is given another class for it.
    """
    components: strict_json.JsonObject = {}
    for name, value in index.items():
        if isinstance(value, list) and _QWEN_PROCESSOR.fullmatch(str(value[1])):
            components[name] = qwen_inputs.AssembledProcessor.load(folder / name)
    if index["_class_name"] == "Flux2Pipeline" and index["tokenizer"][1] == "PixtralProcessor":
        components["tokenizer"] = None  # no class to check a tokenizer against; see `_mend`
    if index["_class_name"] == "OmniGenPipeline":
        code = importlib.import_module("diffusers.pipelines.omnigen.pipeline_omnigen")
        code.OmniGenMultiModalProcessor = _omnigen_processor()  # type: ignore[attr-defined]
    return components


def _mend(pipeline: Any, folder: Path, kind: str) -> None:
    """Work around what a loaded pipeline of class `kind`, or its text encoder, gets wrong."""
    encoder = getattr(pipeline, "text_encoder", None)
    if hasattr(getattr(encoder, "config", None), "image_token_id"):
        qwen_inputs.repair_mm_token_type_ids(encoder)
    if kind == "Flux2Pipeline" and pipeline.tokenizer is None:
        from transformers import AutoTokenizer

        # All that this pipeline uses of its processor is the tokenizer with its chat template.
        pipeline.register_modules(tokenizer=AutoTokenizer.from_pretrained(folder / "tokenizer"))
    if kind == "ZImageOmniPipeline":
        # It casts sources to bfloat16, even if the autoencoder computes in another dtype.
        pipeline.vae.encoder.register_forward_pre_hook(_to_dtype_of_weights)
    if kind == "GlmImagePipeline":
        _list_images(pipeline.vision_language_encoder)


def _to_dtype_of_weights(module: Any, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.to(module.conv_in.weight.dtype) for tensor in inputs)


def _list_images(glm: Any) -> None:
    """Have an encoder take the one tensor of images that its pipeline hands over, where
    transformers 5.23 takes a list.
    """
    take_list = glm.get_image_tokens

    def get_image_tokens(hidden: Any, grid: Any = None) -> Any:
        if isinstance(hidden, torch.Tensor) and hidden.ndim == 3:
            hidden = hidden[None]
        return take_list(hidden, grid)

    glm.get_image_tokens = get_image_tokens


def _omnigen_processor() -> Any:
    """Return the class of OmniGen's processor, but with torchvision's two transforms (to a tensor
    on [0, 1], then to [-1, 1]) replaced by numpy and torch.
    """
    code: Any = importlib.import_module("diffusers.pipelines.omnigen.processor_omnigen")

    class Processor(code.OmniGenMultiModalProcessor):  # type: ignore[misc]
        """Makes the model inputs of texts and images, as its base class does with torchvision."""

        def __init__(self, text_tokenizer: Any, max_image_size: int = 1024) -> None:
            self.text_tokenizer = text_tokenizer
            self.collator = code.OmniGenCollator()
            self.reset_max_image_size(max_image_size)

        def reset_max_image_size(self, max_image_size: int) -> None:
            self.max_image_size = max_image_size

        def process_image(self, image: Image.Image) -> torch.Tensor:
            cropped = np.array(code.crop_image(image.convert("RGB"), self.max_image_size))
            pixels = torch.from_numpy(cropped).permute(2, 0, 1).contiguous().float()
            return pixels.div(255).sub(0.5).div(0.5)

    return Processor


class Steps(AbstractContextManager["Steps"]):
    """Takes the place of a pipeline's progress bar; passes the number of steps done and of all
    steps to `on_step` after each one.

    All steps are `total`, by default the number of `items`.
    """

    def __init__(
        self,
        on_step: Callable[[int, int], None],
        items: Sequence[Any] | None = None,
        total: int | None = None,
    ) -> None:
        self._on_step = on_step
        self._items = [] if items is None else items
        self._step = 0
        self._steps = len(self._items) if total is None else total

    def __exit__(self, *error: object) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            yield item
            self.update()

    def update(self, count: int = 1) -> None:
        """Count finished steps."""
        self._step += count
        self._on_step(self._step, self._steps)

    def close(self) -> None: ...

    def set_description(self, text: str) -> None: ...
