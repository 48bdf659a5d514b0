"""What the harness has to know of both models; imported where a run starts, and so without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_imgedit import CheckpointModel, ComputeParameters, Layout, SettingError, Site, indifferent


class AcmeEditorParameters(ComputeParameters):
    strength: float = Field(default=0.5, ge=0, le=1, description="how much of the source is replaced")
    offload: Literal["auto", "none", "group"] = indifferent("auto", description="weights stay in host memory")


class AcmeEditor(CheckpointModel):
    """Mixes the source with what an autoencoder makes of it."""

    role = "editor"
    name = "acme-vae"
    loads = "acme_models.editor:Editor"
    layout = Layout.MODEL
    Params = AcmeEditorParameters
    offloads = ("group",)


class AcmeJudgeParameters(ComputeParameters):
    prefix: str = Field(default="", description="words before each question")


class AcmeJudge(CheckpointModel):
    """A LLaVA that is made to answer with one digit for each aspect."""

    role = "judge"
    name = "acme-llava"
    loads = "acme_models.judge:Judge"
    layout = Layout.MODEL
    Params = AcmeJudgeParameters

    def check(self, site: Site) -> None:
        super().check(site)
        if "<image>" in str(self.params.get("prefix", "")):
            raise SettingError("prefix", "found '<image>', expected words alone")
