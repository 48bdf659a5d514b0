from typing import Literal

from PIL import Image
from pydantic import Field

from pytest_imgedit import CheckpointModel, ComputeParameters, EditRequest, Layout, indifferent


class EditorParameters(ComputeParameters):
    strength: float = Field(default=0.5, ge=0, le=1, description="share of the source to replace")
    offload: Literal["auto", "none", "group"] = indifferent("auto", description="as in diffusers")


class Editor:
    def __init__(self, model: str, *, device: str, **params: object) -> None:
        import torch
        from diffusers import AutoencoderKL
        from diffusers.image_processor import VaeImageProcessor

        self.options, self.device = EditorParameters.parse(params), torch.device(device)
        self.images = VaeImageProcessor(vae_scale_factor=2)
        dtype = getattr(torch, self.options.dtype, torch.float32)  # where it is "auto"
        self.network = AutoencoderKL.from_pretrained(model, torch_dtype=dtype, use_safetensors=True)
        self.network.requires_grad_(False)
        if self.options.offload == "group":
            self.network.enable_group_offload(self.device, offload_type="leaf_level")
        else:
            self.network.to(self.device)

    def edit(self, request: EditRequest) -> Image.Image:
        pixels = self.images.preprocess(request.source).to(self.device, self.network.dtype)
        decoded = self.network(pixels).sample.tanh()
        return self.images.postprocess(pixels.lerp(decoded, self.options.strength))[0]


class AcmeEditor(CheckpointModel):
    """Mixes the source with what an autoencoder makes of it."""

    role, name, worker = "editor", "acme-vae", Editor
    layout, Params, offloads = Layout.MODEL, EditorParameters, ("group",)
