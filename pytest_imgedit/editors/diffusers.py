"""Any instruction-edit pipeline of diffusers."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import Any

import torch
from diffusers import DiffusionPipeline
from PIL import Image

from pytest_imgedit.editors import acceleration
from pytest_imgedit.editors.acceleration import accelerate, remember_negative
from pytest_imgedit.editors.base import EditRequest
from pytest_imgedit.editors.output import require_finite
from pytest_imgedit.editors.pipelines import IMAGE_NAMES, SET_BY_HARNESS
from pytest_imgedit.errors import SetupError, is_out_of_memory
from pytest_imgedit.integrity import whole_checkpoints
from pytest_imgedit.numerics import pick_dtype, set_deterministic
from pytest_imgedit.params import OFFLOADS
from pytest_imgedit.seeding import seed_all
from pytest_imgedit.text import one_line
from pytest_imgedit.weights import read_ahead


class DiffusersEditor:
    """Runs a pipeline that `DiffusionPipeline.from_pretrained` loads from a folder with safetensors weights.

    `dtype` is `auto` (bfloat16 on a GPU, float32 on the CPU), `float32`, `bfloat16` or `float16`.
    `deterministic` switches TF32 and reduced-precision reductions off. `compile` and what else makes it faster is told
    in `acceleration.py`. Everything else goes to the pipeline's call; an argument that it does not take raises
    `SetupError`.
    """

    def __init__(
        self,
        model: str,
        *,
        device: str,
        dtype: str = "auto",
        deterministic: bool = True,
        compile: bool | str = "auto",
        attention_backend: str | None = None,
        quantize: str | None = None,
        step_cache: str | None = None,
        step_cache_threshold: float = 0.08,
        offload: str = "auto",
        **call: Any,
    ) -> None:
        set_deterministic(deterministic)
        self.deterministic = deterministic
        self.pipeline = load_pipeline(Path(model), "cpu" if offload in OFFLOADS else device, pick_dtype(dtype, device))
        compile = False if compile == "auto" else compile  # the harness says where it pays, and where to offload
        self.compiled = accelerate(
            self.pipeline, attention_backend, quantize, step_cache, step_cache_threshold, compile
        )
        if offload in OFFLOADS:
            acceleration.offload(self.pipeline, offload, torch.device(device))
        self._take(self.pipeline, call)

    @classmethod
    def around(cls, pipeline: Any, call: dict[str, Any]) -> DiffusersEditor:
        """Make an editor of a pipeline that is loaded already; `call` goes to its calls."""
        editor = cls.__new__(cls)
        editor.compiled, editor.deterministic = False, True
        editor._take(pipeline, call)
        return editor

    def _take(self, pipeline: Any, call: dict[str, Any]) -> None:
        self.pipeline = pipeline
        pipeline.set_progress_bar_config(disable=True)
        self.image_name, self.call = call_arguments(pipeline, call)
        given = {"sigmas", "timesteps"} & set(self.call)
        self._counts_steps = not given and "num_inference_steps" in inspect.signature(pipeline.__call__).parameters
        remember_negative(pipeline, self.call.get("negative_prompt"))

    def self_check(self) -> None:
        """Edit one small image twice, in two steps; raises `SetupError` unless that works and gives equal values.

        With `deterministic=False` nothing is promised, so nothing is checked.
        """
        if not self.deterministic:
            return
        request = EditRequest("self-check", "default", "make it brighter", Image.linear_gradient("L").convert("RGB"), 0)
        few = {"num_inference_steps": 2} if self._counts_steps else {}
        first, again = (self._values(request, few) for _ in range(2))
        if first.shape != again.shape or not torch.equal(first, again):
            raise SetupError(
                f"{type(self.pipeline).__name__} gives different images for one source, instruction and seed: "
                "its edits would depend on chance; editor.deterministic=false accepts that"
            )

    def _values(self, request: EditRequest, few: dict[str, int]) -> torch.Tensor:
        seed_all(request.seed)
        try:
            output = self.run(request, "pt", **few)
        except Exception as error:
            if is_out_of_memory(error) or isinstance(error, SetupError):
                raise
            raise SetupError(
                f"{type(self.pipeline).__name__} cannot edit a small image: {type(error).__name__}: {one_line(error)}"
            ) from error
        values: torch.Tensor = output.images[0].float().nan_to_num()
        return values

    @staticmethod
    def warm_up(model: str, **_: Any) -> None:
        """Read weights while other workers load theirs."""
        read_ahead(Path(model))

    def run(self, request: EditRequest, output_type: str, **override: int) -> Any:
        """Call the pipeline and return its output: images as tensors on [0, 1] (`"pt"`), or latents (`"latent"`).

        `override` takes the place of arguments that the editor was given.
        """
        image = [request.source] if self.image_name == "input_images" else request.source
        return self.pipeline(
            **{self.image_name: image},
            prompt=request.instruction,
            output_type=output_type,
            generator=torch.Generator("cpu").manual_seed(request.seed),
            **{**self.call, **override},
        )

    def edit(self, request: EditRequest) -> Image.Image:
        """Edit one image; its noise comes from a CPU generator with the request's seed, on every device alike.

        Raises `OutputError` if what comes out is not finite.
        """
        return self.picture(self.run(request, "pt"))

    def picture(self, output: Any) -> Image.Image:
        """Turn what `run` returned for `"pt"` into an image; raises `OutputError` if it is not finite."""
        if any(getattr(output, "nsfw_content_detected", None) or ()):
            raise RuntimeError("the pipeline's safety checker replaced the image")
        pixels = output.images[0].float()  # (3, H, W) on [0, 1]
        require_finite(int((~pixels.isfinite()).sum()), pixels.numel())
        rounded = (pixels * 255).round().to(torch.uint8).permute(1, 2, 0)  # a quarter of the bytes leave the GPU
        return Image.fromarray(rounded.contiguous().cpu().numpy())


def load_pipeline(folder: Path, device: str, dtype: torch.dtype, **components: Any) -> Any:
    """Load a pipeline from a folder to `"cpu"`, `"cuda"`, one of several such as `"cuda:1"`, or `"balanced"` over all.

    `components` are taken as they are given. Raises `SetupError` for weights that do not fit their configs.
    """
    if (folder / "processor").is_dir() and importlib.util.find_spec("torchvision") is None:
        from pytest_imgedit.qwen import AssembledProcessor

        components["processor"] = AssembledProcessor.load(folder / "processor")
    placement = {"device_map": device} if device in ("cuda", "balanced") else {}
    with whole_checkpoints():
        pipeline = DiffusionPipeline.from_pretrained(
            str(folder), dtype=dtype, use_safetensors=True, trust_remote_code=False, **placement, **components
        )
    if ":" in device:
        pipeline.to(device)  # a device_map does not tell GPUs apart
    encoder = getattr(pipeline, "text_encoder", None)
    if hasattr(getattr(encoder, "config", None), "image_token_id"):
        from pytest_imgedit.qwen import repair_mm_token_type_ids

        repair_mm_token_type_ids(encoder)
    return pipeline


def call_arguments(pipeline: Any, call: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of the image argument, and the arguments of every call, from the pipeline's signature.

    A pipeline with true classifier-free guidance runs it only if it gets a negative prompt, so `" "` is given
    where the user gave none. Raises `SetupError` for an argument that the pipeline does not take.
    """
    accepted = inspect.signature(pipeline.__call__).parameters
    name = next((name for name in IMAGE_NAMES if name in accepted), None)
    kind = type(pipeline).__name__
    if name is None:
        raise SetupError(f"{kind} takes no image, expected an image editing pipeline")
    for key in call:
        if key not in accepted or key in SET_BY_HARNESS:
            raise SetupError(f"editor.{key}: {kind} takes no such argument")
    if "true_cfg_scale" in accepted and "negative_prompt" in accepted and "negative_prompt" not in call:
        scale = call.get("true_cfg_scale", accepted["true_cfg_scale"].default)
        if scale > 1:
            call = {**call, "negative_prompt": " "}
    return name, call
