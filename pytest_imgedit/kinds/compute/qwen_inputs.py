"""Inputs of Qwen-VL models, assembled from the tokenizer and the image processor alone.

transformers' own `Qwen2VLProcessor` also wants a video processor, and that wants torchvision.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoTokenizer, BatchFeature, ProcessorMixin

IMAGE = "<|image_pad|>"


class AssembledProcessor(ProcessorMixin):  # type: ignore[misc]
    """Turns texts with `<|image_pad|>` marks and their images into model inputs, as
    Qwen2VLProcessor does.
    """

    def __init__(self, tokenizer: Any, image_processor: Any) -> None:
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.image_token_id: int = tokenizer.convert_tokens_to_ids(IMAGE)

    @classmethod
    def load(cls, folder: Path) -> AssembledProcessor:
        """Load from a checkpoint folder, with the chat template of `chat_template.json` if the
        tokenizer has none; raise what transformers raises if a file is missing.
        """
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        template = folder / "chat_template.json"
        if tokenizer.chat_template is None and template.exists():
            tokenizer.chat_template = json.loads(template.read_text("utf-8"))["chat_template"]
        return cls(tokenizer, AutoImageProcessor.from_pretrained(folder, trust_remote_code=False))

    @property
    def chat_template(self) -> Any:
        """The tokenizer's template."""
        return self.tokenizer.chat_template

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Apply the tokenizer's template to a batch; as with processors, one conversation is a
        batch of one.
        """
        batch = conversation if isinstance(conversation[0], list) else [conversation]
        return self.tokenizer.apply_chat_template(batch, **options)

    def __call__(
        self,
        text: str | Sequence[str],
        images: Image.Image | Sequence[Image.Image] | None = None,
        videos: None = None,
        return_tensors: Literal["pt"] = "pt",
        **options: Any,
    ) -> BatchFeature:
        """Return `input_ids`, `attention_mask` and `mm_token_type_ids`, each (B, L), and, where
        there are images, `pixel_values` (patches, channels·time·height·width) and `image_grid_thw`
        (images, 3).

        Images go to the marks in order, through all texts; texts are padded unless `padding` says
        otherwise. Raise `ValueError` for videos, and if images and marks differ in number. With
        images, `truncation` raises `ValueError` for a text of over `max_length` tokens (by default
        the tokenizer's limit), since cutting it would part an image from its mark.
        """
        if videos is not None:
            raise ValueError("no videos are taken")
        text_options = {
            name: options.pop(name)
            for name in ("padding", "padding_side", "max_length", "truncation")
            if name in options
        }
        texts = [text] if isinstance(text, str) else list(text)
        image_inputs: dict[str, Any] = {}
        tokens_by_image: list[int] = []
        if images is not None and not (isinstance(images, list | tuple) and not images):
            image_inputs |= self.image_processor(
                images=images, return_tensors=return_tensors, **options
            )
            patches = image_inputs["image_grid_thw"].prod(-1)
            # The model merges squares of patches into one token each.
            tokens_by_image = (patches // self.image_processor.merge_size**2).tolist()
        marks = sum(prompt.count(IMAGE) for prompt in texts)
        if marks != len(tokens_by_image):
            raise ValueError(f"{len(tokens_by_image)} images for {marks} image marks")
        remaining = iter(tokens_by_image)

        def repeat_mark(_: re.Match[str]) -> str:
            """Return the mark of the next image as often as the image has tokens."""
            return IMAGE * next(remaining)

        texts = [re.sub(re.escape(IMAGE), repeat_mark, prompt) for prompt in texts]
        if tokens_by_image and text_options.pop("truncation", False):
            limit = text_options.get("max_length") or self.tokenizer.model_max_length
            if max(map(len, self.tokenizer(texts)["input_ids"])) > limit:
                raise ValueError(f"an instruction and its image of more than {limit} tokens")
        # The tokenizer's own way to tensors goes through each number in Python.
        tokens = self.tokenizer(texts, **{"padding": True, **text_options})
        ids = torch.tensor(tokens["input_ids"])
        return BatchFeature(
            {
                "input_ids": ids,
                "attention_mask": torch.tensor(tokens["attention_mask"]),
                "mm_token_type_ids": (ids == self.image_token_id).int(),
                **image_inputs,
            }
        )

    def save_pretrained(self, save_directory: str | Path, **_: Any) -> list[str]:
        """Save tokenizer and image processor, so that `load` finds them."""
        self.image_processor.save_pretrained(save_directory)
        return list(self.tokenizer.save_pretrained(save_directory))


def repair_mm_token_type_ids(text_encoder: Any) -> None:
    """Give a Qwen-VL text encoder the `mm_token_type_ids` that diffusers' pipelines leave out.

    Without them transformers 5 falls back to one-dimensional positions for image tokens, silently
    (huggingface/diffusers#14194).
    """

    def add_token_types(
        _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a forward pass; those with images get the types of their tokens
        if they lack them.
        """
        if kwargs.get("pixel_values") is not None and kwargs.get("mm_token_type_ids") is None:
            kwargs["mm_token_type_ids"] = (
                kwargs["input_ids"] == text_encoder.config.image_token_id
            ).int()
        return args, kwargs

    text_encoder.register_forward_pre_hook(add_token_types, with_kwargs=True)
