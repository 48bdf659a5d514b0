"""The embedded models: a diffusers pipeline and a Qwen3-VL that were trained on drawn scenes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from pytest_imgedit.kinds import base, diffusers, qwen_vl
from pytest_imgedit.scenes import WEIGHTS


class _Embedded(base.CheckpointModel):
    """A model whose weights are in this package."""

    takes = ""

    @classmethod
    def of(cls, spec: str, argument: str | None, params: Mapping[str, Any], gpus: int = 1) -> Self:
        # an argument of the spec is refused
        return replace(super().of(spec, argument, params, gpus), argument=str(WEIGHTS / cls.role))


class ScenesEditor(_Embedded, diffusers.Diffusers):
    """The embedded editor of drawn scenes. Another suite has to name it."""

    name = "scenes"
    usual_batch = 8
    defaults: ClassVar[Mapping[str, Any]] = {
        "num_inference_steps": 4,
        "guidance_scale": 1.0,
        "image_guidance_scale": 1.0,
    }

    def check(self, site: base.Site) -> None:
        """Raise `SettingError` for a wrong setting, and if nobody named it and the suite is not one
        of drawn scenes.
        """
        super().check(site)
        base.refuse_if(
            not (site.is_named or _is_drawn(site)),
            "spec",
            "editor 'scenes', the default, knows drawn scenes only and paints drawings over the "
            f"suite {site.suite!r}: name an editor with --imgedit-editor, such as diffusers:MODEL, "
            "or scenes for this one",
        )


class ScenesJudge(_Embedded, qwen_vl.QwenVL):
    """The embedded judge. It knows drawn scenes and the protocol `aspects` alone, and refuses other
    suites.
    """

    name = "scenes"
    compares = False
    blind_to_words = "this demo judge does not read instructions reliably"

    def check(self, site: base.Site) -> None:
        """Raise `SettingError` for a wrong setting, and if it will score another suite than one of
        drawn scenes, or by another protocol than the built-in `aspects`.
        """
        super().check(site)
        if not site.protocol:
            return
        base.refuse_if(
            not _is_drawn(site),
            "spec",
            "judge 'scenes' knows drawn scenes only and cannot grade the suite "
            f"{site.suite!r}: name a judge with --imgedit-judge, such as qwen-vl:MODEL or "
            "openai:URL#MODEL",
        )
        of_user = " of your own" if site.is_custom_protocol else ""
        base.refuse_if(
            site.is_custom_protocol or site.protocol != "aspects",
            "protocol",
            "judge 'scenes' was taught the built-in protocol 'aspects' and no other, found "
            f"{site.protocol!r}{of_user}",
        )


def _is_drawn(site: base.Site) -> bool:
    return site.suite.partition(":")[0] == "scenes"
