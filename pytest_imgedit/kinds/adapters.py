"""How each instruction-editing pipeline of diffusers is called: one row a class; imports neither
torch nor diffusers.

What a pipeline does with a source whose size or aspect ratio it was not made for differs from class
to class: it crops, squashes or enlarges it, or fails. An adapter gives each source a size with its
own aspect ratio, of about the model's area, in the multiples that the model needs.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from pytest_imgedit.core.errors import SetupError
from pytest_imgedit.core.strict_json import JsonObject

Size = tuple[int, int]
MEGAPIXEL = 1024**2


def fit(size: Size, area: int, multiple: int) -> Size:
    """Return width and height, multiples of `multiple`, of the aspect ratio of `size` and at most
    `area` pixels.

    It is the largest size of 80% of the area or more whose aspect ratio is within 1%, else the one
    nearest to it; for very long sources one of less area, where that keeps the aspect ratio.
    """
    aspect = size[0] / size[1]
    widest = max(1, math.floor(math.sqrt(area * aspect) * 1.1 / multiple))
    sizes = [
        (width * multiple, max(1, round_(width / aspect)) * multiple)
        for width in range(max(1, math.floor(widest * 0.75)), widest + 1)
        for round_ in (math.floor, math.ceil)
    ]

    def error(one: Size) -> float:
        return max(0.01, abs(math.log(one[0] / one[1] / aspect)))

    near = [one for one in sizes if 0.8 * area <= one[0] * one[1] <= area and error(one) <= 0.03]
    narrow = [
        (max(1, round(height * aspect)) * multiple, height * multiple) for height in (1, 2, 3, 4)
    ]
    wide = [(width * multiple, max(1, round(width / aspect)) * multiple) for width in (1, 2, 3, 4)]
    return min(
        near or [*sizes, *narrow, *wide],
        key=lambda one: (one[0] * one[1] > area, error(one), -one[0] * one[1]),
    )


@dataclass(frozen=True)
class Adapter:
    """How one class of pipeline is called.

    `image` names the argument for the source, which is `listed` where the pipeline wants a list;
    `prompt` makes the pipeline's prompt of an instruction. Where the adapter `scales`, the source
    is resized to the size that `fit` finds for the model's `area` (pixels, from the pipeline) and
    `multiple`; where it `gives_size`, that size goes to the call as `width` and `height`; an
    adapter that does neither leaves the size to the pipeline, which keeps the aspect ratio.
    `prepare` changes the pipeline before each call, `further` gives arguments beside these. The
    edit is what `pick` takes of the output's field `output`. Where one call `batches` edits, it
    takes a list of sources of one size; `no_batches` says why others do not. `needs` names packages
    without which the class cannot run.
    """

    size: str
    image: str = "image"
    listed: bool = False
    prompt: Callable[[str], str] = lambda instruction: instruction
    wrapping: str = ""
    scales: bool = False
    gives_size: bool = False
    area: Callable[[Any], int] = lambda pipeline: MEGAPIXEL
    multiple: Callable[[Any], int] = lambda pipeline: 16
    prepare: Callable[[Any, Size], None] | None = None
    further: Callable[[Size], JsonObject] | None = None
    output: str = "images"
    pick: Callable[[Any], Any] = lambda images: images[0]
    batches: bool = False
    no_batches: str = "takes one source a call"
    needs: tuple[str, ...] = ()

    @property
    def given(self) -> frozenset[str]:
        """Names of arguments that this may give a call in place of the pipeline's defaults."""
        return frozenset({"width", "height", *(self.further((64, 64)) if self.further else ())})

    def arguments(
        self,
        pipeline: Any,
        source: Image.Image,
        instruction: str,
        call: JsonObject,
        area: int | None,
    ) -> JsonObject:
        """Return the arguments of one call beside generator and output type.

        `call` holds what the user gives: its `width` and `height` take the place of the size that
        this finds, `area` that of the model's own.
        """
        own = (call["width"], call["height"]) if {"width", "height"} <= call.keys() else None
        size = own or fit(source.size, area or self.area(pipeline), self.multiple(pipeline))
        found: JsonObject = {}
        if self.scales and source.size != size:
            source = source.resize(size, Image.Resampling.LANCZOS)
        takes_size = "width" in inspect.signature(pipeline.__call__).parameters
        if self.gives_size or (area is not None and takes_size and not self.scales and own is None):
            found |= {"width": size[0], "height": size[1]}
        if self.prepare is not None:
            self.prepare(pipeline, size)
        if self.further is not None:
            found |= self.further(size)
        return {
            self.image: [source] if self.listed else source,
            "prompt": self.prompt(instruction),
            **found,
            **call,
        }

    def batch_arguments(
        self,
        pipeline: Any,
        asked: Sequence[tuple[Image.Image, str]],
        call: JsonObject,
        area: int | None,
    ) -> JsonObject:
        """Return the arguments of one call for several (source, instruction), whose sources are of
        one size.
        """
        each = [
            self.arguments(pipeline, source, instruction, call, area)
            for source, instruction in asked
        ]
        lists = {
            self.image,
            "prompt",
            *(name for name in call if name.startswith(("prompt_", "negative_prompt"))),
        }
        listed = {name: [arguments[name] for arguments in each] for name in lists}
        return {**each[0], **listed}

    def edited(self, output: Any, place: int = 0) -> Any:
        """Return an edited image of a pipeline's output: a tensor (3, H, W), or (4, H, W) with
        alpha, on [0, 1].
        """
        images = getattr(output, self.output)
        if self.batches:
            return images[place]
        return self.pick(images)


def _unet_area(pipeline: Any) -> int:
    """Pixels of the square on which a UNet was trained."""
    sample_size = pipeline.unet.config.sample_size
    return (
        int(
            (sample_size if isinstance(sample_size, int) else sample_size[0])
            * pipeline.vae_scale_factor
        )
        ** 2
    )


def _latents(pipeline: Any) -> int:
    return int(pipeline.vae_scale_factor)


def _patches(pipeline: Any) -> int:
    return int(pipeline.vae_scale_factor) * 2


def _spatial(pipeline: Any) -> int:
    return int(pipeline.vae_scale_factor_spatial * pipeline.transformer.config.patch_size[1])


def _only_size(pipeline: Any, size: Size) -> None:
    """Have a pipeline that snaps to a list of sizes know this one alone."""
    pipeline.resolutions = [size]


def _snap_to(name: str) -> Callable[[Any, Size], None]:
    """Have a pipeline whose image processor `name` snaps to a list of sizes take this one."""

    def prepare(pipeline: Any, size: Size) -> None:
        getattr(pipeline, name).get_default_height_width = lambda image, height=None, width=None: (
            size[::-1]
        )

    return prepare


def _omnigen_prompt(instruction: str) -> str:
    """Refer to the one image; an instruction that names images by OmniGen's marks would refer to
    others.
    """
    return f"<img><|image_1|></img> {instruction.replace('<|', '< |')}"


def _fibo_prompt(instruction: str) -> str:
    return json.dumps({"edit_instruction": instruction}, separators=(",", ":"), ensure_ascii=False)


#: Sizes of edits, as results and docs tell them.
_SQUARE, _RESIZED = "1024² at the source's aspect ratio", "; the source is resized to it"
_OF_UNET = "the UNet's area at the source's aspect ratio"
_OWN = Adapter("the pipeline's: the model's area at the source's aspect ratio")
_SCALED = Adapter(f"{_SQUARE}, multiple of 16{_RESIZED}", scales=True)
_PATCHED = Adapter(f"{_SQUARE}{_RESIZED}", scales=True, gives_size=True, multiple=_patches)
_DREAMLITE = Adapter(_OF_UNET, gives_size=True, area=_unet_area, multiple=_patches)

#: Instruction-editing pipelines by class name. All others are refused, with what they are for.
ADAPTERS: dict[str, Adapter] = {
    "BriaFibo2Pipeline": _OWN,
    "BriaFiboEditPipeline": Adapter(
        f"{_SQUARE}, multiple of 32",
        gives_size=True,
        multiple=lambda pipeline: 32,
        prompt=_fibo_prompt,
        wrapping='JSON {"edit_instruction": …}; no model expands it',
    ),
    "ChronoEditPipeline": Adapter(
        "1280·720 at the source's aspect ratio; the last of five frames",
        gives_size=True,
        area=lambda pipeline: 1280 * 720,
        multiple=_spatial,
        output="frames",
        pick=lambda frames: frames[0][-1],
        needs=("ftfy",),
    ),
    "DreamLiteMobilePipeline": _DREAMLITE,
    "DreamLitePipeline": _DREAMLITE,
    "Flux2KleinKVPipeline": _SCALED,
    "Flux2KleinPipeline": _SCALED,
    "Flux2Pipeline": _SCALED,
    "FluxKontextPipeline": replace(
        _PATCHED,
        further=lambda size: {"max_area": size[0] * size[1], "_auto_resize": False},
        batches=True,
    ),
    "GlmImagePipeline": Adapter(
        f"{_SQUARE}, multiple of 32{_RESIZED}",
        listed=True,
        scales=True,
        gives_size=True,
        multiple=lambda pipeline: 32,
    ),
    "JoyImageEditPipeline": Adapter(
        _SQUARE, multiple=_spatial, prepare=_snap_to("vae_image_processor")
    ),
    "JoyImageEditPlusPipeline": Adapter(
        _SQUARE, image="images", listed=True, multiple=_spatial, prepare=_snap_to("image_processor")
    ),
    "Kandinsky5I2IPipeline": replace(_SCALED, gives_size=True, prepare=_only_size, output="image"),
    "LongCatImageEditPipeline": _OWN,
    "OmniGenPipeline": replace(
        _SCALED,
        image="input_images",
        listed=True,
        prompt=_omnigen_prompt,
        wrapping="<img><|image_1|></img> before it",
        gives_size=True,
        further=lambda size: {"max_input_image_size": max(*size, 1024)},
    ),
    "QwenImage21Pipeline": _OWN,
    "QwenImageEditPipeline": replace(
        _OWN, no_batches="pads the texts of a call to the longest, on which edits depend"
    ),
    "QwenImageEditPlusPipeline": _OWN,
    "StableDiffusionInstructPix2PixPipeline": Adapter(
        f"{_OF_UNET}, multiple of 8{_RESIZED}",
        scales=True,
        area=_unet_area,
        multiple=_latents,
        batches=True,
    ),
    "StableDiffusionXLInstructPix2PixPipeline": Adapter(
        f"{_OF_UNET}, multiple of 8",
        gives_size=True,
        area=_unet_area,
        multiple=_latents,
        batches=True,
    ),
    "ZImageOmniPipeline": _PATCHED,
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
    """Say in a few words why a pipeline without an adapter is no editor that the harness can
    run.
    """
    purpose = next(
        (purpose for part, purpose in _PURPOSES if part in name), "no adapter is known for it"
    )
    return (
        f"{name} is no instruction editor ({purpose}), expected one of "
        f"{', '.join(sorted(ADAPTERS))}"
    )


def adapter_of(pipeline: Any) -> Adapter:
    """Return how a pipeline, or a subclass of one, is called; raises `SetupError` for one that is
    no editor.
    """
    names = [kind.__name__ for kind in type(pipeline).__mro__]
    found = next((ADAPTERS[name] for name in names if name in ADAPTERS), None)
    if found is None:
        raise SetupError(why_refused(names[0]))
    return found
