"""The embedded models: a diffusers pipeline and a Qwen3-VL that were trained on drawn scenes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from pytest_imgedit.core.errors import SettingError
from pytest_imgedit.models.checkpoint_kinds import CheckpointModel
from pytest_imgedit.models.diffusers import Diffusers
from pytest_imgedit.models.qwen_vl import QwenVL
from pytest_imgedit.scenes import WEIGHTS


class _Embedded(CheckpointModel):
    """A model whose weights are in this package."""

    takes = ""

    @classmethod
    def of(cls, spec: str, argument: str | None, params: Mapping[str, Any], gpus: int = 1) -> Self:
        model = super().of(spec, argument, params, gpus)  # refuses an argument
        return replace(model, argument=str(WEIGHTS / cls.role))


class ScenesEditor(_Embedded, Diffusers):
    """The embedded editor."""

    name = "scenes"
    defaults = {"num_inference_steps": 20, "guidance_scale": 1.0, "image_guidance_scale": 1.0}  # noqa: RUF012

    @property
    def usual_batch(self) -> int:
        return 8 if self.gpus == 1 else 1


class ScenesJudge(_Embedded, QwenVL):
    """The embedded judge, which knows nothing but drawn scenes and the rubric that it was taught."""

    name = "scenes"

    def check_use(self, suite: str, rubric: str, is_own_rubric: bool) -> None:
        if suite.partition(":")[0] != "scenes":
            raise SettingError(
                "spec",
                f"judge 'scenes' knows drawn scenes only and cannot grade the suite {suite!r}: name a judge with "
                "--imgedit-judge, such as qwen-vl:MODEL, openai:URL#MODEL, or reference where pairs have one",
            )
        if rubric != "aspects" or is_own_rubric:
            own = " of your own" if is_own_rubric else ""
            raise SettingError(
                "rubric", f"judge 'scenes' was taught the built-in rubric 'aspects' and no other, found {rubric!r}{own}"
            )
