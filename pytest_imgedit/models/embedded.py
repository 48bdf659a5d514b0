"""The embedded models: a diffusers pipeline and a Qwen3-VL that were trained on drawn scenes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pytest_imgedit.core.errors import SettingError
from pytest_imgedit.models.diffusers import Diffusers
from pytest_imgedit.models.qwen_vl import QwenVL
from pytest_imgedit.scenes import WEIGHTS


class ScenesEditor(Diffusers):
    """The embedded editor."""

    name = "scenes"
    takes = ""
    defaults = {"num_inference_steps": 20, "guidance_scale": 1.0, "image_guidance_scale": 1.0}  # noqa: RUF012

    @classmethod
    def of(cls, spec: str, argument: str | None, params: Mapping[str, Any], gpus: int = 1) -> Self:
        super().of(spec, argument, params, gpus)  # refuses an argument
        return cls(spec, str(WEIGHTS / "editor"), {**cls.defaults, **params}, gpus)


class ScenesJudge(QwenVL):
    """The embedded judge, which knows nothing but drawn scenes and the rubric that it was taught."""

    name = "scenes"
    takes = ""

    @classmethod
    def of(cls, spec: str, argument: str | None, params: Mapping[str, Any], gpus: int = 1) -> Self:
        super().of(spec, argument, params, gpus)  # refuses an argument
        return cls(spec, str(WEIGHTS / "judge"), dict(params), gpus)

    def check_use(self, suite: str, rubric: str, is_own_rubric: bool) -> None:
        if suite.partition(":")[0] != "scenes":
            raise SettingError(
                "spec",
                f"judge 'scenes' knows drawn scenes only and cannot grade the suite {suite!r}: name a judge with "
                "--imgedit-judge, such as qwen-vl:MODEL or reference",
            )
        if rubric != "aspects" or is_own_rubric:
            own = " of your own" if is_own_rubric else ""
            raise SettingError(
                "rubric",
                f"judge 'scenes' was taught the built-in rubric 'aspects' and no other, found {rubric!r}{own}",
            )
