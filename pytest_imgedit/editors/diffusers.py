"""Any instruction-edit pipeline of diffusers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from pytest_imgedit.core.errors import SetupError, is_out_of_memory
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.core.sanitize import one_line
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.editors import acceleration
from pytest_imgedit.editors.acceleration import accelerate, remember_negative
from pytest_imgedit.editors.loading import load_pipeline
from pytest_imgedit.editors.lora import take_loras
from pytest_imgedit.editors.output import require_finite
from pytest_imgedit.editors.steps import Steps
from pytest_imgedit.inference.fast_loading import read_ahead
from pytest_imgedit.inference.numerics import pick_dtype, set_deterministic
from pytest_imgedit.inference.seeding import seed_all
from pytest_imgedit.models.adapters import ADAPTERS, Adapter, why_refused
from pytest_imgedit.models.checkpoints import Layout, loaded_files
from pytest_imgedit.models.diffusers import Diffusers, DiffusersParameters, LoraParameters
from pytest_imgedit.models.pipelines import SET_BY_HARNESS, given_by_harness


class DiffusersEditor:
    """Runs a pipeline that `DiffusionPipeline.from_pretrained` loads from a folder with safetensors weights.

    `params` are those of `DiffusersParameters`; an argument that the pipeline's call does not take raises `SetupError`.
    """

    def __init__(self, model: str, *, device: str, **params: Any) -> None:
        options = DiffusersParameters.parse(params)
        set_deterministic(options.deterministic)
        self.deterministic = options.deterministic
        is_offloaded = options.offload in Diffusers.offloads
        start = "cpu" if is_offloaded else device
        self.pipeline = load_pipeline(Path(model), start, pick_dtype(options.dtype, device))
        take_loras(self.pipeline, options.loras)
        self.compiled = accelerate(self.pipeline, options)
        if is_offloaded:
            acceleration.offload(self.pipeline, options.offload, torch.device(device))
        self._take(self.pipeline, options.model_extra or {}, options.area)

    @classmethod
    def around(cls, pipeline: Any, call: JsonObject) -> DiffusersEditor:
        """Make an editor of a pipeline that is loaded already; `call` goes to its calls."""
        editor = cls.__new__(cls)
        editor.compiled, editor.deterministic = False, True
        editor._take(pipeline, call, None)
        return editor

    def _take(self, pipeline: Any, call: JsonObject, area: int | None) -> None:
        self.pipeline, self.area = pipeline, area
        self.on_step: Callable[[int, int], None] = lambda step, steps: None
        pipeline.progress_bar = lambda iterable=None, total=None: Steps(self.on_step, iterable, total)
        self.adapter, self.call = adapter_of(pipeline), call_arguments(pipeline, call)
        given = {"sigmas", "timesteps"} & set(self.call)
        self._counts_steps = not given and "num_inference_steps" in inspect.signature(pipeline.__call__).parameters
        remember_negative(pipeline, self.call.get("negative_prompt"))

    def take_loras(self, loras: Sequence[Mapping[str, Any]]) -> None:
        """Use other LoRA adapters on the loaded base, such as of the next training step; raises `SetupError`.

        Each is a table as `LoraParameters` has it.

        A compiled network cannot change: it must be loaded anew.
        """
        if self.compiled:
            raise SetupError("editor.loras: a compiled network cannot change its adapters")
        take_loras(self.pipeline, [LoraParameters.parse(dict(lora)) for lora in loras])

    def self_check(self) -> None:
        """Edit one small image twice, in two steps; raises `SetupError` unless that works and gives equal values.

        With `deterministic=False` nothing is promised, so nothing is checked.
        """
        if not self.deterministic:
            return
        first, again = (self._values(_trial(0)) for _ in range(2))
        if first.shape != again.shape or not torch.equal(first, again):
            raise SetupError(
                f"{type(self.pipeline).__name__} gives different images for one source, instruction and seed: "
                "its edits would depend on chance; editor.deterministic=false accepts that"
            )

    def is_batch_invariant(self, size: int) -> bool:
        """Tell whether an edit has equal values at the first and at the last place of a call for `size` edits.

        Small images are edited in two steps. Batches of which that is not so make an edit depend on its company.
        """
        one, other = _trial(1), _trial(2)
        first, last = (
            self.run_batch(requests, **self._few)
            for requests in ([one, *[other] * (size - 1)], [*[other] * (size - 1), one])
        )
        return torch.equal(self.adapter.edited(first, 0), self.adapter.edited(last, size - 1)) and torch.equal(
            self.adapter.edited(first, size - 1), self.adapter.edited(last, 0)
        )

    @property
    def _few(self) -> dict[str, int]:
        """Arguments of calls whose images nobody looks at."""
        return {"num_inference_steps": 2} if self._counts_steps else {}

    def _values(self, request: EditRequest) -> torch.Tensor:
        seed_all(request.seed)
        try:
            output = self.run(request, "pt", **self._few)
        except Exception as error:
            if is_out_of_memory(error) or isinstance(error, SetupError):
                raise
            raise SetupError(
                f"{type(self.pipeline).__name__} cannot edit a small image: {type(error).__name__}: {one_line(error)}"
            ) from error
        values: torch.Tensor = self.adapter.edited(output).float().nan_to_num()
        return values

    @staticmethod
    def warm_up(model: str, **_: Any) -> None:
        """Read weights while other workers load theirs."""
        folder = Path(model)
        read_ahead(folder / name for name in loaded_files(folder, Layout.PIPELINE) if name.endswith(".safetensors"))

    def run(self, request: EditRequest, output_type: str, **override: int) -> Any:
        """Call the pipeline and return its output: images as tensors on [0, 1] (`"pt"`), or latents (`"latent"`).

        `override` takes the place of arguments that the editor was given.
        """
        call = {**self.call, **override}
        arguments = self.adapter.arguments(self.pipeline, request.source, request.instruction, call, self.area)
        return self.pipeline(output_type=output_type, generator=_generator(request), **arguments)

    def run_batch(self, requests: Sequence[EditRequest], **override: int) -> Any:
        """Call the pipeline once for several requests, whose sources are of one size; return its output as tensors."""
        asked = [(request.source, request.instruction) for request in requests]
        call = {**self.call, **override}
        arguments = self.adapter.batch_arguments(self.pipeline, asked, call, self.area)
        return self.pipeline(output_type="pt", generator=[_generator(request) for request in requests], **arguments)

    def edit(self, request: EditRequest) -> Image.Image:
        """Edit one image; its noise comes from a CPU generator with the request's seed, on every device alike.

        Raises `OutputError` if what comes out is not finite.
        """
        return self.picture(self.run(request, "pt"))

    def edit_batch(self, requests: Sequence[EditRequest]) -> list[Image.Image | Exception]:
        """Edit several images of one size in one call, each with its own generator.

        Raises `SetupError` for a pipeline that makes one edit a call.
        """
        if not self.adapter.batches:
            raise SetupError(f"{type(self.pipeline).__name__} {self.adapter.no_batches}")
        output = self.run_batch(requests)
        return [self._picture_or_error(output, place) for place in range(len(requests))]

    def _picture_or_error(self, output: Any, place: int) -> Image.Image | Exception:
        try:
            return self.picture(output, place)
        except Exception as error:
            return error

    def picture(self, output: Any, place: int = 0) -> Image.Image:
        """Turn an image of what `run` returned for `"pt"` into a picture; raises `OutputError` if it is not finite."""
        flagged = getattr(output, "nsfw_content_detected", None) or ()
        if len(flagged) > place and flagged[place]:
            raise RuntimeError("the pipeline's safety checker replaced the image")
        pixels = self.adapter.edited(output, place).float()  # (3 or 4, H, W) on [0, 1]
        require_finite(int((~pixels.isfinite()).sum()), pixels.numel())
        rounded = (pixels * 255).round().to(torch.uint8).permute(1, 2, 0)  # a quarter of the bytes leave the GPU
        return Image.fromarray(rounded.contiguous().cpu().numpy())


def _trial(number: int) -> EditRequest:
    """A request to try an editor with; others differ in source, instruction and seed."""
    source = Image.linear_gradient("L").convert("RGB").rotate(90 * number)
    return EditRequest(f"trial-{number}", "default", "make it brighter" if number % 2 else "snow", source, seed=number)


def _generator(request: EditRequest) -> torch.Generator:
    return torch.Generator("cpu").manual_seed(request.seed)


def adapter_of(pipeline: Any) -> Adapter:
    """Return how a pipeline, or a subclass of one, is called; raises `SetupError` for one that is no editor."""
    names = [kind.__name__ for kind in type(pipeline).__mro__]
    found = next((ADAPTERS[name] for name in names if name in ADAPTERS), None)
    if found is None:
        raise SetupError(why_refused(names[0]))
    return found


def call_arguments(pipeline: Any, call: JsonObject) -> JsonObject:
    """Return the arguments of every call: the user's, and what the harness gives beside them.

    Raises `SetupError` for an argument that the pipeline does not take.
    """
    accepted = inspect.signature(pipeline.__call__).parameters
    kind = type(pipeline).__name__
    for key in call:
        if key not in accepted or key in SET_BY_HARNESS:
            raise SetupError(f"editor.{key}: {kind} takes no such argument")
    defaults = {name: parameter.default for name, parameter in accepted.items()}
    return {**given_by_harness(defaults, call), **call}
