"""Editors for measuring: Qwen-Image-Edit whose weights are drawn on the GPU in place of read from
files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkpoints import draw_editor
from diffusers import QwenImageEditPipeline

from pytest_imgedit.kinds.compute.numerics import set_deterministic
from pytest_imgedit.kinds.compute.qwen_inputs import repair_mm_token_type_ids
from pytest_imgedit.kinds.diffusers import DiffusersEditor

if TYPE_CHECKING:
    from PIL import Image

    from pytest_imgedit.core.requests import EditRequest


class Drawn(DiffusersEditor):
    """The built-in editor but for where its weights come from."""

    def __init__(self, *, device: str, tiny: bool = False, **call: Any) -> None:
        del device
        set_deterministic(True)
        self.pipeline = QwenImageEditPipeline(**draw_editor(tiny))
        repair_mm_token_type_ids(self.pipeline.text_encoder)
        self.compiled = self.deterministic = False  # so that no time goes into checking it
        self._take(self.pipeline, call, None)

    @staticmethod
    def warm_up(model: str = "", **_: Any) -> None:
        """There are no files to read."""


class Uneven(Drawn):
    """Takes more steps for larger sources: 2 for the smallest, 20 for a megapixel."""

    def edit(self, request: EditRequest) -> Image.Image:
        self.call["num_inference_steps"] = steps(request.source.size)
        return super().edit(request)


def steps(size: tuple[int, int]) -> int:
    """The denoising steps of `Uneven` for a source of some width and height."""
    return max(2, round(1 + 19 * size[0] * size[1] / 2**20))
