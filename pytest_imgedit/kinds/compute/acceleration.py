"""What makes a diffusers pipeline faster: compiled blocks, attention kernels, and, with loss, fp8
and step caches.

And what makes it fit: offloading.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from pytest_imgedit.core.errors import SetupError

if TYPE_CHECKING:
    from pytest_imgedit.kinds.diffusers import DiffusersParameters

#: Sources whose encoded negative prompt is kept.
REMEMBERED = 8


def accelerate(pipeline: Any, options: DiffusersParameters) -> bool:
    """Change the pipeline's denoising network in place; return whether it is compiled.

    `quantize="fp8"` computes linear layers on float8 weights and activations (torchao);
    `step_cache="first_block"` skips a step's further blocks where its first one changed by less
    than the threshold. Repeated blocks are compiled for all sizes; with `compile="if possible"` the
    network is left as it is where that cannot be done, and with `"auto"`, which the harness has
    decided by then, always. What else cannot be done raises `SetupError`.
    """
    network: Any = getattr(pipeline, "transformer", None) or getattr(pipeline, "unet", None)
    backend, threshold = options.attention_backend, options.step_cache_threshold
    if backend is not None:
        _try("attention_backend", lambda: _set_backend(network, backend))
    if options.quantize is not None:
        _try("quantize", lambda: _quantize(network))
    if options.step_cache is not None:
        from diffusers import FirstBlockCacheConfig

        _try("step_cache", lambda: network.enable_cache(FirstBlockCacheConfig(threshold=threshold)))
    compiled = options.compile is True or (options.compile == "if possible" and _compiles(network))
    if compiled:
        _try("compile", lambda: network.compile_repeated_blocks(dynamic=True))
    return compiled


def _try(key: str, change: Any) -> None:
    try:
        change()
    except (AttributeError, ImportError, RuntimeError, ValueError, NotImplementedError) as error:
        raise SetupError(f"editor.{key}: {type(error).__name__}: {error}") from error


def _set_backend(network: Any, backend: str) -> None:
    processors = [module.processor for module in network.modules() if hasattr(module, "processor")]
    if not any(hasattr(processor, "_attention_backend") for processor in processors):
        raise ValueError(f"no attention of a {type(network).__name__} takes a backend")
    network.set_attention_backend(backend)


def _compiles(network: Any) -> bool:
    """Tell whether the network's blocks can be compiled here, which takes Triton and a C
    compiler.
    """
    if not getattr(network, "_repeated_blocks", None):
        return False
    try:
        torch.compile(lambda x: x * 2 + 1)(torch.ones(8, device=next(network.parameters()).device))
    except Exception as error:
        print(f"the editor is not compiled: {type(error).__name__}: {error}"[:300], file=sys.stderr)
        return False
    return True


def _quantize(network: Any) -> None:
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, quantize_

    quantize_(network, Float8DynamicActivationFloat8WeightConfig())


def offload(pipeline: Any, kind: str, device: torch.device) -> None:
    """Keep a loaded pipeline's weights in host memory, and on the GPU only what is at work.

    `kind="model"` keeps one component at a time there, `"group"` one block of the denoising network
    or one layer of a text encoder, and the next one, which is copied meanwhile. The VAE, small
    beside these, then stays on the GPU.
    """
    if kind == "model":
        pipeline.enable_model_cpu_offload(device=device)
        return
    from diffusers.hooks import apply_group_offloading

    common: dict[str, Any] = {
        "offload_device": torch.device("cpu"),
        "use_stream": device.type == "cuda",
    }
    for name, component in pipeline.components.items():
        if not isinstance(component, torch.nn.Module):
            continue
        if name.startswith(("transformer", "unet")):
            network: Any = component
            network.enable_group_offload(
                device, offload_type="block_level", num_blocks_per_group=1, **common
            )
        elif name.startswith("text_encoder"):
            apply_group_offloading(component, device, offload_type="leaf_level", **common)
        else:
            component.to(device)


def remember_negative(pipeline: Any, negative_prompt: str | None) -> None:
    """Keep what a text encoder that sees the source makes of the negative prompt, for the next
    edits of that source.
    """
    encode = getattr(pipeline, "encode_prompt", None)
    if (
        negative_prompt is None
        or encode is None
        or "image" not in inspect.signature(encode).parameters
    ):
        return
    kept: OrderedDict[bytes, Any] = OrderedDict()

    def encode_prompt(*arguments: Any, **named: Any) -> Any:
        if (
            arguments
            or named.get("prompt") != negative_prompt
            or named.get("prompt_embeds") is not None
        ):
            return encode(*arguments, **named)
        key = _digest(named["image"])
        if key not in kept:
            kept[key] = encode(**named)
            if len(kept) > REMEMBERED:
                kept.popitem(last=False)
        return kept[key]

    pipeline.encode_prompt = encode_prompt


def _digest(images: Image.Image | list[Image.Image]) -> bytes:
    digest = hashlib.sha256()
    for image in images if isinstance(images, list) else [images]:
        pixels = np.asarray(image)
        digest.update(f"{pixels.shape}{pixels.dtype}".encode() + pixels.tobytes())
    return digest.digest()
