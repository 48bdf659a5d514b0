"""The judge `qwen-vl`: its parameters, and what the harness knows of it before it loads."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from pytest_imgedit.core.errors import SettingError
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.models.architectures import read_config, unpackable
from pytest_imgedit.models.checkpoint_kinds import CheckpointModel
from pytest_imgedit.models.checkpoints import ADAPTER_FILES, Layout
from pytest_imgedit.models.diffusers import kernels
from pytest_imgedit.models.fingerprints import Digests
from pytest_imgedit.models.parameters import ComputeParameters
from pytest_imgedit.models.places import Site, Where


class QwenVLParameters(ComputeParameters):
    """What the judge `qwen-vl` takes."""

    max_new_tokens: int = Field(default=128, ge=1, description="length of a reply")
    max_pixels: int = Field(default=1_048_576, ge=1024, description="larger images are scaled down")
    scoring: Literal["greedy", "expected"] = Field(
        default="greedy",
        description='`"expected"`: scores are made of expected grades, over the judge\'s probabilities',
    )
    batch_invariant: bool = Field(
        default=True,
        description="a verdict depends on its own edit alone, bit by bit, also alone, in any batch and after a resume; "
        "`false` is up to 1.3 times as fast and named in results",
    )
    adapter: str | None = Field(
        default=None,
        description="the folder of a LoRA adapter in PEFT's format (extra `lora`), merged into the weights",
    )
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2", "flash_attention_3", "flex_attention"] = Field(
        default="auto",
        description='`"auto"` decodes without padding; another of transformers\' attention functions decodes through '
        "its `generate`",
    )


class QwenVL(CheckpointModel):
    """A Qwen-VL model, through transformers."""

    role = "judge"
    name = "qwen-vl"
    loads = "pytest_imgedit.judges.qwen_vl:QwenVLJudge"
    layout = Layout.MODEL
    Params = QwenVLParameters
    names_files = ("adapter",)
    libraries = ("torch", "torchvision", "transformers", "tokenizers", "pillow")

    @cached_property
    def options(self) -> QwenVLParameters:
        """The checked parameters."""
        return QwenVLParameters.check(dict(self.params))

    def check(self, site: Site) -> None:
        super().check(site)
        for name in ADAPTER_FILES if self.options.adapter is not None else ():
            if not Path(str(self.options.adapter), name).is_file():
                expected = "expected a folder with an adapter in PEFT's format"
                raise SettingError("adapter", f"{self.options.adapter}: no {name}, {expected}")

    def check_folder(self) -> None:
        super().check_folder()
        read_config(self.checkpoint)

    def deciding(self, dtype: str) -> JsonObject:
        params = super().deciding(dtype)
        params.pop("adapter", None)  # it counts by its content
        return params

    def computed_by(self, where: Where, digests: Digests) -> JsonObject:
        """Return also how it decodes, since other kernels round otherwise."""
        is_padded = self.options.attention != "auto" or self.gpus > 1 or unpackable(read_config(self.checkpoint))
        further = {**super().computed_by(where, digests), "decoder": "padded" if is_padded else "packed"}
        if self.options.adapter is not None:
            further["adapter"] = digests.of(Path(self.options.adapter), ADAPTER_FILES, is_sent=True)
        return further

    @property
    def unused_packages(self) -> tuple[str, ...]:
        """Scipy is for losses of object detection, which transformers imports with every model."""
        return ("scipy",) if self.options.adapter else ("scipy", "peft")

    @property
    def packages(self) -> tuple[str, ...]:
        adapting = ("peft",) if self.options.adapter else ()
        return (*self.libraries, *adapting, *kernels(self.options.attention))
