from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from diffusers import AutoencoderKL
from PIL import Image

from acme_models.kinds import AcmeEditorParameters

if TYPE_CHECKING:
    from pytest_imgedit import EditRequest

DTYPES = {"auto": torch.float32, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Editor:
    def __init__(self, model: str, *, device: str, **params: object) -> None:
        options = AcmeEditorParameters.parse(dict(params))
        self.strength, self.device = options.strength, device
        self.network = AutoencoderKL.from_pretrained(model, torch_dtype=DTYPES[options.dtype], use_safetensors=True)
        if options.offload == "group":
            self.network.enable_group_offload(torch.device(device), offload_type="leaf_level")
        else:
            self.network.to(device)

    def edit(self, request: EditRequest) -> Image.Image:
        pixels = torch.from_numpy(np.array(request.source)).permute(2, 0, 1)[None].to(self.device)
        pixels = pixels.to(self.network.dtype) / 127.5 - 1
        with torch.no_grad():
            made = self.network.decode(self.network.encode(pixels).latent_dist.mode()).sample
        mixed = (1 - self.strength) * pixels + self.strength * made.tanh()
        return Image.fromarray(((mixed[0].float() + 1) * 127.5).round().byte().permute(1, 2, 0).cpu().numpy())
