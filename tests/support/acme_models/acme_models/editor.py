from typing import Literal

import numpy as np
from PIL import Image
from pydantic import Field

from pytest_imgedit import CheckpointModel, ComputeParameters, EditRequest, Layout, indifferent


class EditorParameters(ComputeParameters):
    strength: float = Field(
        default=0.5, ge=0, le=1, description="how much of the source is replaced"
    )
    offload: Literal["auto", "none", "group"] = indifferent(
        "auto", description="weights stay in host memory"
    )


class Editor:
    def __init__(self, model: str, *, device: str, **params: object) -> None:
        import torch
        from diffusers import AutoencoderKL

        options = EditorParameters.parse(params)
        self.strength, self.device = options.strength, device
        dtype = torch.float32 if options.dtype == "auto" else getattr(torch, options.dtype)
        self.network = AutoencoderKL.from_pretrained(model, torch_dtype=dtype, use_safetensors=True)
        if options.offload == "group":
            self.network.enable_group_offload(torch.device(device), offload_type="leaf_level")
        else:
            self.network.to(device)

    def edit(self, request: EditRequest) -> Image.Image:
        import torch

        pixels = torch.from_numpy(np.array(request.source)).permute(2, 0, 1)[None].to(self.device)
        pixels = pixels.to(self.network.dtype) / 127.5 - 1
        with torch.no_grad():
            made = self.network.decode(self.network.encode(pixels).latent_dist.mode()).sample
        mixed = (1 - self.strength) * pixels + self.strength * made.tanh()
        return Image.fromarray(
            ((mixed[0].float() + 1) * 127.5).round().byte().permute(1, 2, 0).cpu().numpy()
        )


class AcmeEditor(CheckpointModel):
    """Mixes the source with what an autoencoder makes of it."""

    role, name, worker = "editor", "acme-vae", Editor
    layout, Params, offloads = Layout.MODEL, EditorParameters, ("group",)
