"""Faster diffusers pipelines: compiled blocks, attention kernels and, at a loss, float8; and
offloading, for those that do not fit.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from pytest_imgedit.core.errors import SetupError
from pytest_imgedit.kinds.compute.numerics import COMPILER_OPTIONS

if TYPE_CHECKING:
    from pytest_imgedit.kinds.diffusers_parameters import DiffusersParameters

#: The most sources whose encoded negative prompts are cached.
REMEMBERED = 8


def accelerate(pipeline: Any, options: DiffusersParameters) -> bool:
    """Change the pipeline's denoising network in place; return whether it is compiled.

    The attention backend is set first. `quantize="fp8"` then computes linear layers on float8
    weights and activations (torchao). Repeated blocks are compiled for all sizes, to the same
    kernels in every process. Nothing is compiled with `compile="auto"`, which the harness resolves
    beforehand, or with `"if possible"` if that fails. Raise `SetupError` for any other change that
    fails.
    """
    network: Any = getattr(pipeline, "transformer", None) or getattr(pipeline, "unet", None)
    if options.attention_backend is not None:
        _try("attention_backend", lambda: _set_backend(network, options.attention_backend))
    if options.quantize is not None:
        _try("quantize", lambda: _quantize(network))
    compiled = options.compile is True or (options.compile == "if possible" and _compiles(network))
    if compiled:
        _try(
            "compile",
            lambda: network.compile_repeated_blocks(dynamic=True, options=COMPILER_OPTIONS),
        )
    return compiled


def compile_anew() -> None:
    """Forget what was compiled, as in a fresh process: the next call compiles."""
    torch._dynamo.reset()


@contextmanager
def frozen_graphs() -> Iterator[None]:
    """Have nothing compiled meanwhile: what fits none of the graphs that there are is computed
    eagerly.

    What is compiled, and for which sizes, would otherwise depend on the order of the calls.
    """
    with torch.compiler.set_stance("eager_on_recompile"):
        yield


def _try(key: str, change: Callable[[], object]) -> None:
    """Make a change; raise `SetupError`, naming the setting `key`, if it fails."""
    try:
        change()
    except (AttributeError, ImportError, RuntimeError, ValueError, NotImplementedError) as error:
        raise SetupError(f"editor.{key}: {type(error).__name__}: {error}") from error


def _set_backend(network: Any, backend: str | None) -> None:
    """Set the network's attention backend; raise `ValueError` if none of its modules takes one."""
    if not any(
        hasattr(getattr(module, "processor", None), "_attention_backend")
        for module in network.modules()
    ):
        raise ValueError(f"no attention of a {type(network).__name__} takes a backend")
    network.set_attention_backend(backend)


def _compiles(network: Any) -> bool:
    """Tell whether the network has repeated blocks and this machine can compile, which takes Triton
    and a C compiler; print to stderr why a trial failed.
    """
    if not getattr(network, "_repeated_blocks", None):
        return False
    try:
        trial = torch.compile(lambda values: values * 2 + 1, options=COMPILER_OPTIONS)
        trial(torch.ones(8, device=next(network.parameters()).device))
    except Exception as error:
        print(f"the editor is not compiled: {type(error).__name__}: {error}"[:300], file=sys.stderr)
        return False
    return True


def _quantize(network: Any) -> None:
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, quantize_

    quantize_(network, Float8DynamicActivationFloat8WeightConfig())


def offload(pipeline: Any, kind: str, device: torch.device) -> None:
    """Keep a loaded pipeline's weights in host memory, and on the GPU only what is at work.

    `kind="model"` keeps one component at a time on the GPU. `"group"` keeps one block of the
    denoising network or one layer of a text encoder there, with the next one, which is copied
    meanwhile, and all of the other components, such as the VAE.
    """
    if kind == "model":
        pipeline.enable_model_cpu_offload(device=device)
        return
    from diffusers.hooks import apply_group_offloading

    shared_options: dict[str, Any] = {
        "offload_device": torch.device("cpu"),
        "use_stream": device.type == "cuda",
    }
    for name, component in pipeline.components.items():
        if not isinstance(component, torch.nn.Module):
            continue
        if name.startswith(("transformer", "unet")):
            pipeline.components[name].enable_group_offload(
                device, offload_type="block_level", num_blocks_per_group=1, **shared_options
            )
        elif name.startswith("text_encoder"):
            apply_group_offloading(component, device, offload_type="leaf_level", **shared_options)
        else:
            component.to(device)


def remember_negative(pipeline: Any, negative_prompt: str | None) -> None:
    """Cache the encoded negative prompt by source, for the `REMEMBERED` sources encoded last.

    Do nothing if there is no negative prompt or the text encoder does not see the source. Other
    prompts, prompts given as embeddings and calls by position are encoded as before.
    """
    encode = getattr(pipeline, "encode_prompt", None)
    if (
        negative_prompt is None
        or encode is None
        or "image" not in inspect.signature(encode).parameters
    ):
        return
    cached: dict[bytes, Any] = {}

    def encode_prompt(*arguments: Any, **options: Any) -> Any:
        """Return what the pipeline's own method returns, for the negative prompt from the cache."""
        has_embeddings = options.get("prompt_embeds") is not None
        if arguments or has_embeddings or options.get("prompt") != negative_prompt:
            return encode(*arguments, **options)
        key = _digest(options["image"])
        if key not in cached:
            cached[key] = encode(**options)
            if len(cached) > REMEMBERED:
                del cached[next(iter(cached))]
        return cached[key]

    pipeline.encode_prompt = encode_prompt


def _digest(images: Image.Image | list[Image.Image]) -> bytes:
    """Return a SHA-256 digest of the pixels of one or several images, and of their shapes."""
    digest = hashlib.sha256()
    for image in images if isinstance(images, list) else [images]:
        pixels = np.asarray(image)
        digest.update(f"{pixels.shape}{pixels.dtype}".encode() + pixels.tobytes())
    return digest.digest()
