"""How each instruction-editing pipeline of diffusers is called, one row a class, and what its call
takes, read from its source; imports neither torch nor diffusers.

What a pipeline does with a source whose size or aspect ratio it was not made for differs from class
to class: it crops, squashes or enlarges it, or fails. An adapter gives each source a size with its
own aspect ratio, of about the model's area, in the multiples that the model needs.
"""

import ast
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from PIL import Image

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds import base, checkpoint_files
from pytest_imgedit.kinds.diffusers_parameters import DiffusersParameters
from pytest_imgedit.kinds.pipeline_index import pipeline_source
from pytest_imgedit.kinds.user_code import Signature, signature, source_file, with_bases

Size = tuple[int, int]
#: Arguments that the harness sets for every pair.
SET_BY_HARNESS = (
    "image",
    "images",
    "input_images",
    "prompt",
    "generator",
    "output_type",
    "return_dict",
    "num_images_per_prompt",
)


#: The least share of the area that a size has, unless its aspect ratio would be off by more than
#: `FAR`.
LEAST_SHARE = 0.8
#: Logarithms of ratios of aspect ratios: up to `NEAR` they count as equal, and beyond `FAR` smaller
#: sizes are tried.
NEAR = 0.01
FAR = 0.03
#: Shorter sides, in multiples, of the sizes for very long sources.
SHORT_SIDES = (1, 2, 3, 4)
#: The widest size that is tried, as a share of the width that has exactly the area, and the
#: narrowest, as a share of the widest.
WIDEST = 1.1
NARROWEST = 0.75


def fit(size: Size, area: int, multiple: int) -> Size:
    """Return width and height, multiples of `multiple`, of the aspect ratio of `size` and at most
    `area` pixels; more only if no multiples have so few.

    It is the largest size of 80% of the area or more whose aspect ratio is within 1%, else the one
    nearest to it; for very long sources one of less area, where that keeps the aspect ratio.
    """
    source_width, source_height = size
    aspect = source_width / source_height

    def scaled(width: int, height: int) -> Size:
        return max(1, width) * multiple, max(1, height) * multiple

    widest = max(1, math.floor(math.sqrt(area * aspect) * WIDEST / multiple))
    narrowest = max(1, math.floor(widest * NARROWEST))
    sizes: list[Size] = []
    for width in range(narrowest, widest + 1):
        sizes.append(scaled(width, math.floor(width / aspect)))
        sizes.append(scaled(width, math.ceil(width / aspect)))

    def distortion(candidate: Size) -> float:
        width, height = candidate
        return max(NEAR, abs(math.log(width / height / aspect)))

    near = [
        candidate
        for candidate in sizes
        if LEAST_SHARE * area <= math.prod(candidate) <= area and distortion(candidate) <= FAR
    ]
    wide = [scaled(round(height * aspect), height) for height in SHORT_SIDES]
    narrow = [scaled(width, round(width / aspect)) for width in SHORT_SIDES]

    def preference(candidate: Size) -> tuple[bool, float, int]:
        pixels = math.prod(candidate)
        return pixels > area, distortion(candidate), -pixels

    return min(near or sizes + wide + narrow, key=preference)


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """How one class of pipeline is called.

    `image` names the argument for the source images, a list of them in the pair's order; a single
    one goes by itself unless it is `listed`. A call takes at most `max_sources`, any number if that
    is `None`; `one_because` says why a class with a list takes one. `prompt` makes the pipeline's
    prompt of an instruction and the number of sources.

    The edit has the aspect ratio of the source that is edited. Its size is what `fit` finds for the
    model's `area` (pixels, from the pipeline) and `multiple`; if the user sets no area and the
    pipeline has an `own_size`, it is that. Where the adapter `scales`, the edited source is resized
    to it; where it `gives_size`, it goes to the call as `width` and `height`; an adapter that does
    neither leaves the size to the pipeline, which keeps the aspect ratio. The other sources are
    left to the pipeline.

    `prepare` changes the pipeline before each call, for a size and an area. `further` gives
    arguments beside these. Where one call `batches` edits, it takes a list of sources of one size;
    `no_batches` says why others do not. A pipeline that `compiles` was seen to give equal edits in
    every process when it is compiled (`perf/compiled.py`), and is compiled by default.
    """

    size: str
    image: str = "image"
    listed: bool = False
    max_sources: int | None = 1
    one_because: str = ""
    prompt: Callable[[str, int], str] = lambda instruction, sources: instruction
    wrapping: str = ""
    scales: bool = False
    gives_size: bool = False
    own_size: Callable[[Any, Size, JsonObject], Size] | None = None
    area: Callable[[Any], int] = lambda pipeline: 1024**2
    multiple: Callable[[Any], int] = lambda pipeline: 16
    prepare: Callable[[Any, Size, int], None] = lambda pipeline, size, area: None
    further: Callable[[Size], JsonObject] = lambda size: {}
    batches: bool = False
    no_batches: str = "makes one edit a call"
    compiles: bool = False

    def arguments(
        self, pipeline: Any, request: EditRequest, call: JsonObject, area: int | None
    ) -> JsonObject:
        """Return the arguments of one call beside generator and output type.

        `call` holds the user's arguments: `width` and `height` replace the size that this finds.
        `area` replaces the model's own. Raises `ValueError` for more sources than the call takes.
        """
        sources = list(request.sources)
        if self.max_sources is not None and len(sources) > self.max_sources:
            raise ValueError(
                f"{len(sources)} source images, expected at most {self.max_sources}: "
                f"{type(pipeline).__name__} takes no more"
            )
        size = self._size(pipeline, request.source.size, call, area)
        if self.scales and request.source.size != size:
            resized = request.source.resize(size, Image.Resampling.LANCZOS)
            sources[request.edited_source - 1] = resized
        self.prepare(pipeline, size, area or self.area(pipeline))
        is_list = self.listed or len(sources) > 1
        arguments: JsonObject = {
            self.image: sources if is_list else sources[0],
            "prompt": self.prompt(request.instruction, len(sources)),
        }
        takes_size = "width" in inspect.signature(pipeline.__call__).parameters
        if self.gives_size or (area is not None and takes_size and not self.scales):
            arguments["width"], arguments["height"] = size
        return arguments | self.further(size) | call

    def _size(self, pipeline: Any, source: Size, call: JsonObject, area: int | None) -> Size:
        """Return width and height of the edit of a source of some width and height."""
        if {"width", "height"} <= call.keys():
            return call["width"], call["height"]
        if area is None and self.own_size is not None:
            return self.own_size(pipeline, source, call)
        return fit(source, area or self.area(pipeline), self.multiple(pipeline))

    def batch_arguments(
        self,
        pipeline: Any,
        requests: Sequence[EditRequest],
        call: JsonObject,
        area: int | None,
    ) -> JsonObject:
        """Return the arguments of one call for several requests, whose sources are of one size.

        The source and all prompts become lists with an entry for each request: pipelines refuse a
        list of prompts beside a single negative prompt.
        """
        singles = [self.arguments(pipeline, request, call, area) for request in requests]
        arguments = dict(singles[0])
        listed = [name for name in call if name.startswith(("prompt_", "negative_prompt"))]
        for name in (self.image, "prompt", *listed):
            arguments[name] = [single[name] for single in singles]
        return arguments

    def edited(self, output: Any, position: int = 0) -> Any:
        """Return an edited image of a pipeline's output: a tensor (3, H, W), or (4, H, W) with
        alpha, on [0, 1].
        """
        return output.images[position]


def _unet_area(pipeline: Any) -> int:
    """Return the pixels of the square on which a UNet was trained."""
    sample_size = pipeline.unet.config.sample_size
    side = sample_size if isinstance(sample_size, int) else sample_size[0]
    return int(side * pipeline.vae_scale_factor) ** 2


def _latent_side(pipeline: Any) -> int:
    """Return the pixels on a side of a latent."""
    return int(pipeline.vae_scale_factor)


def _patch_side(pipeline: Any) -> int:
    """Return the pixels on a side of a patch of 2 x 2 latents."""
    return int(pipeline.vae_scale_factor) * 2


def _spatial_patch_side(pipeline: Any) -> int:
    """Return the pixels on a side of a patch of a transformer that also has patches in time."""
    _frames, side, _side = pipeline.transformer.config.patch_size
    return int(pipeline.vae_scale_factor_spatial * side)


def _snap(pipeline: Any, size: Size, area: int) -> None:
    """Have a pipeline whose image processor snaps to a list of sizes take this one instead."""
    processor = pipeline.vae_image_processor
    processor.get_default_height_width = lambda image, height=None, width=None: size[::-1]


def _keep_shapes(pipeline: Any, size: Size, area: int) -> None:
    """Have a pipeline whose image processor crops sources to a list of sizes resize each to about
    this area instead.
    """
    multiple = _spatial_patch_side(pipeline)
    fitted: set[Size] = set()

    def height_and_width(image: Image.Image, height: Any = None, width: Any = None) -> Size:
        """Return those of a source when it is resized, and of the result when it is read."""
        if image.size in fitted:
            return image.height, image.width
        size = fit(image.size, area, multiple)
        fitted.add(size)
        return size[::-1]

    pipeline.image_processor.get_default_height_width = height_and_width


def _qwen_size(pipeline: Any, source: Size, call: JsonObject) -> Size:
    """Return the size that a Qwen-Image pipeline gives the edit of a single source: the area of its
    `output_resolution` squared, or else 1024², in multiples of 32.
    """
    defaults = inspect.signature(pipeline.__call__).parameters
    side = 1024
    if "output_resolution" in defaults:
        side = call.get("output_resolution", defaults["output_resolution"].default)
    width, height = source
    exact_width = math.sqrt(side * side * (width / height))
    exact_height = exact_width / (width / height)
    return round(exact_width / 32) * 32, round(exact_height / 32) * 32


def _bria_prompt(instruction: str, sources: int) -> str:
    return json.dumps({"edit_instruction": instruction}, separators=(",", ":"), ensure_ascii=False)


def _omnigen_prompt(instruction: str, sources: int) -> str:
    marks = " ".join(f"<img><|image_{number}|></img>" for number in range(1, sources + 1))
    # an instruction that names images by OmniGen's marks would refer to others
    return f"{marks} {instruction.replace('<|', '< |')}"


#: Sizes of edits, as results and docs tell them. The source is the one that is edited.
_SQUARE = "1024² at the source's aspect ratio"
_RESIZED = "; the source is resized to it"
_OF_UNET = "the UNet's area at the source's aspect ratio"
_OWN = Adapter(size="the pipeline's: the model's area at the source's aspect ratio")
_QWEN = Adapter(
    size=f"{_SQUARE}, multiple of 32, as the pipeline's of a single source",
    max_sources=None,
    gives_size=True,
    own_size=_qwen_size,
    multiple=_patch_side,
)
_FLUX2 = Adapter(
    size=f"{_SQUARE}, multiple of 16{_RESIZED}", max_sources=None, scales=True, gives_size=True
)
_PATCHED = Adapter(size=f"{_SQUARE}{_RESIZED}", scales=True, gives_size=True, multiple=_patch_side)
_DREAMLITE = Adapter(size=_OF_UNET, gives_size=True, area=_unet_area, multiple=_patch_side)

#: Instruction-editing pipelines by class name. All others are refused, with what they are for.
ADAPTERS: dict[str, Adapter] = {
    "BriaFibo2Pipeline": _OWN,
    "BriaFiboEditPipeline": Adapter(
        size=f"{_SQUARE}, multiple of 32",
        gives_size=True,
        multiple=lambda pipeline: 32,
        prompt=_bria_prompt,
        wrapping='JSON {"edit_instruction": …}; no model expands it',
    ),
    "DreamLiteMobilePipeline": _DREAMLITE,
    "DreamLitePipeline": _DREAMLITE,
    "Flux2KleinKVPipeline": _FLUX2,
    "Flux2KleinPipeline": _FLUX2,
    "Flux2Pipeline": _FLUX2,
    "FluxKontextPipeline": replace(
        _PATCHED,
        one_because="a list is a batch of edits",
        further=lambda size: {"max_area": math.prod(size), "_auto_resize": False},
        batches=True,
        compiles=True,
    ),
    "GlmImagePipeline": Adapter(
        size=f"{_SQUARE}, multiple of 32{_RESIZED}",
        listed=True,
        one_because="diffusers 0.42.1 fails on the features of several",
        scales=True,
        gives_size=True,
        multiple=lambda pipeline: 32,
    ),
    "JoyImageEditPipeline": Adapter(size=_SQUARE, multiple=_spatial_patch_side, prepare=_snap),
    "JoyImageEditPlusPipeline": Adapter(
        size=_SQUARE,
        image="images",
        listed=True,
        max_sources=None,
        gives_size=True,
        multiple=_spatial_patch_side,
        prepare=_keep_shapes,
    ),
    "LongCatImageEditPipeline": _OWN,
    "OmniGenPipeline": replace(
        _FLUX2,
        image="input_images",
        listed=True,
        prompt=_omnigen_prompt,
        wrapping="<img><|image_1|></img> before it, a mark a source",
        further=lambda size: {"max_input_image_size": max(*size, 1024)},
    ),
    "QwenImage21Pipeline": _QWEN,
    "QwenImageEditPipeline": replace(
        _OWN,
        no_batches="pads the texts of a call to the longest, on which edits depend",
        compiles=True,
    ),
    "QwenImageEditPlusPipeline": replace(_QWEN, compiles=True),
    "StableDiffusionInstructPix2PixPipeline": Adapter(
        size=f"{_OF_UNET}, multiple of 8{_RESIZED}",
        scales=True,
        area=_unet_area,
        multiple=_latent_side,
        batches=True,
    ),
    "StableDiffusionXLInstructPix2PixPipeline": Adapter(
        size=f"{_OF_UNET}, multiple of 8",
        gives_size=True,
        area=_unet_area,
        multiple=_latent_side,
        batches=True,
        compiles=True,
    ),
    "ZImageOmniPipeline": replace(_PATCHED, max_sources=None),
}

#: What classes that take an image are for, by a part of their names, the first that fits.
_PURPOSES = (
    ("Layered", "it takes a picture apart into layers"),
    ("VisualCloze", "it goes on with a grid of examples and takes no instruction"),
    ("Inpaint", "it fills a mask"),
    ("Fill", "it fills a mask"),
    ("ControlNet", "it follows a control image"),
    ("Control", "it follows a control image"),
    ("Adapter", "it follows a control image"),
    ("Img2Img", "it varies an image towards a caption"),
    ("Upscale", "it enlarges images"),
    ("SuperResolution", "it enlarges images"),
    ("Video", "it makes videos"),
    ("I2V", "it makes videos"),
    ("V2V", "it makes videos"),
    ("Marigold", "it estimates depth or normals"),
)


def why_refused(name: str) -> str:
    """Return a line that says why the harness cannot run a pipeline without an adapter."""
    purposes = [purpose for part, purpose in _PURPOSES if part in name]
    purposes.append("no adapter is known for it")
    return (
        f"{name} is no instruction editor ({purposes[0]}), expected one of "
        f"{', '.join(sorted(ADAPTERS))}"
    )


def adapter_of(pipeline: Any) -> Adapter:
    """Return how a pipeline, or a subclass of a known one, is called; raise `SetupError` if it is
    no known editor.
    """
    for kind in type(pipeline).__mro__:
        if kind.__name__ in ADAPTERS:
            return ADAPTERS[kind.__name__]
    raise errors.SetupError(why_refused(type(pipeline).__name__))


def check_arguments(model: str, params: Mapping[str, Any], call: Mapping[str, Any]) -> None:
    """Raise `SettingError` for the first of `params` that the pipeline of a checkpoint does not
    take as it is.

    `call` are those of them that go to the pipeline's call. What cannot be known without loading (a
    hub id that is not here) is left to the worker. Raises `UsageError` for a folder without
    `model_index.json`, for a pipeline that is no instruction editor, and for one that the installed
    diffusers lacks.
    """
    steps = params.get("num_inference_steps")
    base.refuse_if(
        isinstance(steps, int) and steps < 1,
        "num_inference_steps",
        f"found {steps}, expected a count of at least 1",
    )
    name = pipeline_class(model)
    if name is None:
        return
    taken = call_signature(name)
    if taken is None:
        raise errors.UsageError(
            f"editor diffusers:{model}: {name} is not in diffusers {version('diffusers')}"
        )
    if name not in ADAPTERS:
        raise errors.UsageError(f"editor diffusers:{model}: {why_refused(name)}")
    takes_size = {"width", "height"} <= taken.annotations.keys()
    for side, other in (("width", "height"), ("height", "width")):
        base.refuse_if(
            takes_size and side in params and other not in params,
            side,
            f"expected editor.{other} beside it",
        )
    base.refuse_if(
        "area" in params and not (takes_size or ADAPTERS[name].scales),
        "area",
        f"{name} takes no size",
    )
    # Some pipelines take `**kwargs` for old names; only what they list counts.
    taken = replace(taken, open_ended=False)
    taken.check(call, SET_BY_HARNESS, beside=DiffusersParameters.model_fields)


def given_by_harness(defaults: Mapping[str, Any], params: Mapping[str, Any]) -> JsonObject:
    """Return the arguments that every call gets unless `params` name them; `defaults` are those of
    the call.

    A pipeline with true classifier-free guidance runs it only with a negative prompt, so it gets
    `" "`; others get nothing.
    """
    scale = {**defaults, **params}.get("true_cfg_scale")
    takes_both = {"true_cfg_scale", "negative_prompt"} <= defaults.keys()
    is_guided = takes_both and isinstance(scale, int | float) and scale > 1
    return {"negative_prompt": " "} if is_guided else {}


def pipeline_class(model: str) -> str | None:
    """Return the pipeline's class name from `model_index.json`; `None` if the model is not on this
    machine. Raise `UsageError` if it is neither a diffusers checkpoint nor a hub id.
    """
    checkpoint = checkpoint_files.Checkpoint(model, checkpoint_files.Layout.PIPELINE)
    index = Path(checkpoint.snapshot or model) / "model_index.json"
    if not index.parent.is_dir():
        cached = checkpoint.cached_file(index.name)
        if cached is None:
            return None
        index = cached
    checkpoint_files.require_checkpoint(index.parent, checkpoint_files.Layout.PIPELINE)
    name = files.read_object(index, "a diffusers checkpoint").get("_class_name")
    if not isinstance(name, str):
        raise errors.UsageError(
            f"{index}: _class_name is {name!r}, expected the name of a diffusers pipeline"
        )
    return name


@cache
def attention_backends() -> frozenset[str]:
    """Return the names of diffusers' attention backends, read from its source; none where that is
    not found.
    """
    path = source_file("diffusers.models.attention_dispatch")
    if path is None:
        return frozenset()
    names: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == "AttentionBackendName":
            names |= _assigned_texts(node)
    return frozenset(names)


def _assigned_texts(node: ast.ClassDef) -> set[str]:
    """Return the texts that the body of a class assigns."""
    values = [line.value for line in node.body if isinstance(line, ast.Assign)]
    constants = [value.value for value in values if isinstance(value, ast.Constant)]
    return {constant for constant in constants if isinstance(constant, str)}


@cache
def call_signature(name: str) -> Signature | None:
    """Return the signature of a diffusers pipeline's call; `None` if its source is not found."""
    path = pipeline_source(name)
    return None if path is None else signature(path, name, "__call__")


@cache
def changeable_components(name: str) -> tuple[str, ...] | None:
    """Return the components of which a diffusers pipeline takes LoRA adapters, none if it takes no
    adapters; `None` if its source is not found.
    """
    package = source_file("diffusers")
    path = pipeline_source(name)
    if package is None or path is None:
        return None
    loaders = package.parent / "loaders" / "lora_pipeline.py"
    for _, class_node in with_bases([path, loaders], name):
        for line in class_node.body:
            if isinstance(line, ast.Assign) and (
                ast.unparse(line.targets[0]) == "_lora_loadable_modules"
            ):
                return tuple(ast.literal_eval(line.value))
    return ()


def call_arguments(pipeline: Any, call: JsonObject) -> JsonObject:
    """Return the arguments of every call: the user's, and what the harness gives beside them.

    Raises `SetupError` for an argument that the pipeline does not take.
    """
    accepted = inspect.signature(pipeline.__call__).parameters
    for key in call:
        if key not in accepted or key in SET_BY_HARNESS:
            raise errors.SetupError(
                f"editor.{key}: {type(pipeline).__name__} takes no such argument"
            )
    defaults = {name: parameter.default for name, parameter in accepted.items()}
    return given_by_harness(defaults, call) | call


def without_call_defaults(model: str, params: JsonObject) -> JsonObject:
    """Return the parameters without those that equal the defaults of the pipeline's call, or what
    the harness gives it anyway; all of them if that call is not known.
    """
    name = pipeline_class(model)
    if name is None:
        return params
    call = call_signature(name)
    if call is None:
        return params
    # The harness sets some arguments itself: a user who writes out their default changes the call.
    overrides: set[str] = set()
    if name in ADAPTERS:
        any_size = (64, 64)  # the names do not depend on it
        overrides = {"width", "height"} | ADAPTERS[name].further(any_size).keys()
    defaults = {key: value for key, value in call.defaults.items() if key not in overrides}
    return base.without_defaults(params, {**defaults, **given_by_harness(call.defaults, params)})
