"""Weights in a single file, of safetensors or GGUF: which components of a pipeline it holds, from
its header, and whether diffusers loads these from one file.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_imgedit.core import errors
from pytest_imgedit.core.text import counted, first_of
from pytest_imgedit.kinds import safetensors_header
from pytest_imgedit.kinds.checkpoint_files import PICKLES
from pytest_imgedit.kinds.user_code import keys_of_table

#: What the components that denoise are called; a pipeline has one of the two.
NETWORKS = ("transformer", "unet")
#: What ComfyUI and Stable Diffusion write before the names of a network's tensors.
NETWORK_PREFIX = "model.diffusion_model."
SUFFIXES = (".safetensors", ".gguf")
#: The end of the name of one of several files of weights, and of their index.
_OF_SEVERAL = re.compile(r"-\d{5}-of-\d{5}\.safetensors$|\.index\.json$", re.ASCII)
#: The components of a file that holds more than a network, by what their tensors' names begin with.
_PARTS: Mapping[str, tuple[str, ...]] = {
    NETWORK_PREFIX: NETWORKS,
    "first_stage_model.": ("vae",),
    "cond_stage_model.": ("text_encoder",),
    "conditioner.embedders.0.": ("text_encoder",),
    "conditioner.embedders.1.": ("text_encoder_2",),
}
#: Tensors of training and of schedules, which no pipeline reads.
_UNUSED = re.compile(
    r"model_ema\.|first_stage_model\.loss\.|denoiser\."
    r"|(betas|alphas_cumprod(_prev)?|(log|sqrt)_\w*alphas\w*|posterior_\w+|logvar|lvlb_weights"
    r"|sigmas|log_sigmas|scale_factor|global_step)$",
    re.ASCII,
)
#: Names of tensors that belong to formats with scales of their own, of ComfyUI and of others.
_SCALES = re.compile(
    r"(^|\.)(scale_weight|weight_scale(_2)?|scale_input|input_scale|comfy_quant|scaled_fp8)$"
)
_ADAPTER = re.compile(r"lora_(A|B|up|down)\b|\.lora\.(up|down)|\.(hada|lokr)_w\d")
_TEXT_ENCODER = re.compile(
    r"text_model\.|encoder\.block\.0\.|shared\.weight|token_embd\."
    r"|(language_)?model\.(language_model\.)?(layers\.0|embed_tokens)\."
)
_VAE = re.compile(r"(encoder|decoder)\.(conv_in|conv1)\.|first_stage_model\.|decoder\.up_blocks\.")
#: How GGUF files of text encoders name their architecture.
_TEXT_ARCHITECTURE = re.compile(r"(t5|clip|bert|llama|mistral|gemma|qwen(?!_image))\w*", re.ASCII)
#: What the classes of networks begin with, by the architecture that GGUF files name.
_ARCHITECTURES: Mapping[str, tuple[str, ...]] = {
    "flux": ("Flux", "Chroma"),
    "qwen_image": ("QwenImage",),
    "lumina2": ("Lumina2", "ZImage"),
    "sd1": ("UNet2D",),
    "sdxl": ("UNet2D",),
    "sd3": ("SD3",),
}
#: Scripts in the repository of diffusers, by the classes whose tensors they rename.
_SCRIPTS = {
    "JoyImageEditTransformer3DModel": "convert_joyimage_edit_to_diffusers.py",
    "OmniGenTransformer2DModel": "convert_omnigen_to_diffusers.py",
}
_TEXT_CLASSES = ("CLIPTextModel", "CLIPTextModelWithProjection")
_HALVES = ("F32", "F16", "BF16")
#: Bytes of a value of the types that a network may be stored in.
_FLOATS = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file: the name of its type, its number of values, and its bytes there."""

    type: str
    values: int
    bytes: int


@dataclass(frozen=True)
class Component:
    """A component of a pipeline, its class, and the names of its tensors in a single file."""

    name: str
    class_name: str
    tensors: list[str]

    @property
    def is_text_encoder(self) -> bool:
        return self.class_name in _TEXT_CLASSES


@dataclass(frozen=True)
class SingleFile:
    """A file of weights and the `tensors` in it; `architecture` is what a GGUF file says of it."""

    path: Path
    tensors: Mapping[str, Tensor]
    architecture: str | None = None

    @property
    def is_gguf(self) -> bool:
        return self.path.suffix == ".gguf"

    @cached_property
    def is_whole(self) -> bool:
        """Whether names begin with the component that they belong to, as in a file that may hold
        a whole pipeline.
        """
        return any(name.startswith(NETWORK_PREFIX) for name in self.tensors)

    @cached_property
    def parts(self) -> dict[tuple[str, ...], list[str]]:
        """The names of tensors by the component that they belong to, the network by both of its
        names, without those that no pipeline reads; under `()` those of anything else.
        """
        parts: dict[tuple[str, ...], list[str]] = {}
        for name in self.tensors:
            components = component_of(name) if self.is_whole else NETWORKS
            if not (self.is_whole and _UNUSED.match(name)):
                parts.setdefault(components, []).append(name)
        return parts

    @property
    def components(self) -> tuple[str, ...]:
        """The components whose weights the file holds; the network by both of its names."""
        return tuple(name for names in self.parts for name in names)

    def component_bytes(self, dtype: str) -> dict[str, int]:
        """Return the bytes that the file's weights take at least in memory, by component."""
        sizes: dict[str, int] = {}
        for components, names in self.parts.items():
            sizes[components[0]] = sum(self._bytes_of(self.tensors[name], dtype) for name in names)
        return sizes

    def _bytes_of(self, tensor: Tensor, dtype: str) -> int:
        if tensor.type.startswith("F8"):  # diffusers computes in `dtype`
            return tensor.values * (4 if dtype == "float32" else 2)
        if tensor.type == "F32" and dtype != "float32":
            return tensor.bytes // 2
        return tensor.bytes

    @property
    def loss(self) -> str:
        """The type of most of the network's values, such as `"Q4_K"`, if it has fewer than 16
        bits; else nothing.
        """
        values: Counter[str] = Counter()
        for name in self.parts[NETWORKS]:
            values[self.tensors[name].type] += self.tensors[name].values
        most = values.most_common(1)[0][0]
        return "" if most in _HALVES else most

    def require_fit(self, folder: Path, index: Mapping[str, Any]) -> list[Component]:
        """Return what the file holds of a pipeline, whose folder and `model_index.json` these are.

        Raises `SettingError` for a component that the pipeline lacks, that has no config in the
        folder, or that diffusers does not load from a single file.
        """
        components: list[Component] = []
        for names, tensors in self.parts.items():
            name = next((name for name in names if _has(index, name)), None)
            if name is None:
                raise self._unfit(
                    f"it holds {names[0]}, which {index.get('_class_name')} does not have"
                )
            config = folder / name / "config.json"
            if not config.is_file():
                raise self._unfit(f"{config}: no such file, expected the config of these weights")
            component = Component(name, index[name][1], tensors)
            self._require_loadable(folder / name, component)
            components.append(component)
        return components

    def _require_loadable(self, folder: Path, component: Component) -> None:
        """Raise `SettingError` for a class that diffusers does not load from a single file, and for
        a GGUF file of another architecture.
        """
        class_name = component.class_name
        if class_name not in loadable_classes() and not component.is_text_encoder:
            how = (
                f"a file with diffusers' names is {folder}/diffusion_pytorch_model.safetensors, "
                "without editor.single_file"
            )
            if class_name in _SCRIPTS:
                how = f"scripts/{_SCRIPTS[class_name]} of its repository converts the file"
            raise self._unfit(
                f"diffusers {version('diffusers')} loads no {class_name} from a single file; {how}"
            )
        classes = _ARCHITECTURES.get(self.architecture or "", ())
        if classes and not class_name.startswith(classes):
            raise self._unfit(
                f"its architecture is {self.architecture!r}, expected that of a {class_name}"
            )

    def require_network(self) -> None:
        """Raise `SettingError` for a file without a denoising network, for one with parts of which
        nothing is known, and for a format that diffusers does not load.
        """
        adapter = next(filter(_ADAPTER.search, self.tensors), None)
        if adapter:
            raise self._unfit(f"an adapter ({adapter}), expected weights: editor.loras names it")
        scale = next(filter(_SCALES.search, self.tensors), None)
        if scale:
            raise self._unfit(
                f"weights with scales beside them ({scale}), expected bfloat16, float8 without "
                "scales, or GGUF"
            )
        is_text = bool(_TEXT_ARCHITECTURE.fullmatch(self.architecture or ""))
        if is_text or any(map(_TEXT_ENCODER.match, self.tensors)):
            raise self._unfit("a text encoder, expected the denoising network")
        if not self.is_whole and any(map(_VAE.match, self.tensors)):
            raise self._unfit("an autoencoder, expected the denoising network")
        if self.parts.get(()):
            raise self._unfit(
                f"{counted(len(self.parts[()]), 'tensor')} of no known component "
                f"({first_of(sorted(self.parts[()]), 3)}), expected the denoising network alone"
            )
        for name in self.parts.get(NETWORKS, []):
            kind = self.tensors[name].type
            if not self.is_gguf and kind not in _FLOATS:
                raise self._unfit(
                    f"{name} is of the type {kind}, expected one of {', '.join(_FLOATS)}"
                )

    def _unfit(self, reason: str) -> errors.SettingError:
        return errors.SettingError("single_file", f"{self.path}: {reason}")


def refuse_as_folder(model: str) -> None:
    """Raise `SettingError` for a file of weights where the folder of a pipeline belongs."""
    if Path(model).suffix in SUFFIXES + PICKLES and not Path(model).is_dir():
        file = model
        advice = ""
        if Path(model).suffix in PICKLES:
            file = str(Path(model).with_suffix(".safetensors"))
            advice = f"; safetensors.torch.save_file saves its tensors to {file}"
        raise errors.SettingError(
            "spec",
            f"editor diffusers:{model}: a file, expected diffusers:FOLDER and "
            f"editor.single_file={file}, FOLDER being the pipeline that it was made from{advice}",
        )


def read(path: Path) -> SingleFile:
    """Return what a file of weights holds, from its header.

    Raises `SettingError` for a file that is missing, cut short, of another format, or without a
    denoising network.
    """
    if path.suffix in PICKLES:
        raise errors.SettingError(
            "single_file",
            f"{path}: weights that can run code when they load, expected safetensors or GGUF "
            "(safetensors.torch.save_file saves its tensors)",
        )
    if path.is_dir() or _OF_SEVERAL.search(path.name):
        raise errors.SettingError(
            "single_file",
            f"{path}: weights in several files, expected one: put their folder in the place of "
            "the network's in a copy of the pipeline, and name that as the model",
        )
    if path.suffix not in SUFFIXES:
        raise errors.SettingError(
            "single_file", f"{path}: expected a file that ends in {' or '.join(SUFFIXES)}"
        )
    try:
        file = _read_gguf(path) if path.suffix == ".gguf" else _read_safetensors(path)
    except errors.SettingError:
        raise
    except errors.UsageError as error:
        raise errors.SettingError("single_file", str(error)) from None
    file.require_network()
    return file


def _read_safetensors(path: Path) -> SingleFile:
    tensors = {
        name: Tensor(
            entry["dtype"], math.prod(entry["shape"]), safetensors_header.stored_bytes(entry)
        )
        for name, entry in safetensors_header.read(path).tensors.items()
    }
    return SingleFile(path, tensors)


def _read_gguf(path: Path) -> SingleFile:
    if find_spec("gguf") is None:
        raise errors.SettingError(
            "single_file", f"{path}: the package gguf is not installed, pip install gguf"
        )
    from pytest_imgedit.kinds import gguf_header  # needs the package gguf

    reader = gguf_header.read(path)
    count = gguf_header.value(reader, "split.count")
    if isinstance(count, int) and count > 1:
        raise errors.SettingError(
            "single_file",
            f"{path}: one of {count} parts, expected one file: llama-gguf-split --merge makes it",
        )
    tensors = {
        tensor.name: Tensor(tensor.tensor_type.name, tensor.n_elements, tensor.n_bytes)
        for tensor in reader.tensors
    }
    if not tensors:
        raise errors.SettingError("single_file", f"{path}: no tensors, expected weights")
    architecture = gguf_header.value(reader, "general.architecture")
    return SingleFile(path, tensors, str(architecture) if architecture else None)


def component_of(name: str) -> tuple[str, ...]:
    """Return the component of a tensor in a file that may hold a whole pipeline, the network by
    both of its names; nothing for a name that tells of none.
    """
    return next((part for prefix, part in _PARTS.items() if name.startswith(prefix)), ())


@cache
def loadable_classes() -> frozenset[str]:
    """Return the classes of models that the installed diffusers loads from a single file, read
    from its source.
    """
    module = "diffusers.loaders.single_file_model"
    return frozenset(keys_of_table(module, "SINGLE_FILE_LOADABLE_CLASSES"))


def _has(index: Mapping[str, Any], name: str) -> bool:
    """Tell whether a pipeline has a component of that name."""
    value = index.get(name)
    return isinstance(value, list) and len(value) > 1 and isinstance(value[1], str)
