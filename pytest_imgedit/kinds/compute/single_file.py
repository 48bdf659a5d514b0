"""Loads components of a pipeline from a single file: whole, or not at all."""

import re
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from accelerate import init_empty_weights
from diffusers import GGUFQuantizationConfig, UNet2DConditionModel
from diffusers.loaders import single_file_model, single_file_utils
from diffusers.models.model_loading_utils import load_gguf_checkpoint
from safetensors.torch import load_file

from pytest_imgedit.core import errors
from pytest_imgedit.core.files import read_object
from pytest_imgedit.core.text import counted, first_of, one_line
from pytest_imgedit.kinds import single_files

Tensors = dict[str, torch.Tensor]
#: What is written before the names of a network's tensors, where anything is.
_PREFIXES = (single_files.NETWORK_PREFIX, "diffusion_model.")
#: What a file holds of a text encoder beside the tensors of its class.
_BESIDE_TEXT = re.compile(r"(position_ids|logit_scale|attn_mask)$")


def load(path: Path, folder: Path, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Return the components whose weights a single file holds, by their names in the pipeline of a
    folder, which has their configs.

    Raise `SetupError` for a file that does not hold exactly the tensors of these configs, and as
    `single_files.read` and `SingleFile.require_fit` do.
    """
    try:
        file = single_files.read(path)
        index = read_object(folder / "model_index.json", "a diffusers checkpoint")
        components = file.require_fit(folder, index)
    except errors.SettingError as problem:
        raise errors.SetupError(f"editor.{problem.key}: {problem}") from None
    weights = _read(path, dtype)
    loaded: dict[str, Any] = {}
    for component in components:
        library = transformers if component.is_text_encoder else diffusers
        cls = getattr(library, component.class_name)
        part = {name: weights.pop(name) for name in component.tensors}
        load_part = _load_text_encoder if component.is_text_encoder else _load_model
        try:
            model = load_part(cls, part, folder / component.name, dtype)
        except (RuntimeError, ValueError, KeyError) as error:
            if errors.is_out_of_memory(error):
                raise
            raise errors.SetupError(
                f"editor.single_file: {path}: {component.class_name}: {one_line(error)}"
            ) from error
        loaded[component.name] = model.to(device)
    return loaded


def _read(path: Path, dtype: torch.dtype) -> Tensors:
    """Return the tensors of a file; those of float8 as `dtype`, which holds all of its values."""
    if path.suffix == ".gguf":
        return dict(load_gguf_checkpoint(str(path)))
    tensors = load_file(path)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.itemsize == 1:
            tensors[name] = tensor.to(dtype)
    return tensors


def _load_model(cls: Any, tensors: Tensors, folder: Path, dtype: torch.dtype) -> Any:
    """Return a model of diffusers with the config of a folder; raise `ValueError` if the tensors,
    by diffusers' names, are not those of the config.
    """
    config = cls.load_config(folder)
    with init_empty_weights():
        empty = cls.from_config(config)
    expected = empty.state_dict()
    converted, unused = _renamed(cls, tensors, expected, config)
    ignored = cls._keys_to_ignore_on_load_unexpected or ()
    unused += [name for name in converted if name not in expected]
    _require_exact(
        converted,
        expected,
        [name for name in unused if not any(re.search(pattern, name) for pattern in ignored)],
    )
    converted = {name: converted[name] for name in expected}
    options: dict[str, Any] = {}
    if _dequantize_all_but_linear(empty, converted, dtype):
        options["quantization_config"] = GGUFQuantizationConfig(compute_dtype=dtype)
    return cls.from_single_file(
        converted, config=str(folder), dtype=dtype, local_files_only=True, **options
    )


def _dequantize_all_but_linear(model: Any, tensors: Tensors, dtype: torch.dtype) -> bool:
    """Replace quantized tensors of GGUF by their values, but for the weights of linear layers, with
    which diffusers computes as they are; return whether there are such.
    """
    quantized = [name for name, tensor in tensors.items() if hasattr(tensor, "quant_type")]
    if not quantized:
        return False
    from diffusers.quantizers.gguf.utils import dequantize_gguf_tensor  # needs the package gguf

    linear = {
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    for name in quantized:
        if name not in linear:
            tensors[name] = dequantize_gguf_tensor(tensors[name]).to(dtype)
    return not linear.isdisjoint(quantized)


def _renamed(
    cls: Any, tensors: Tensors, expected: Tensors, config: dict[str, Any]
) -> tuple[Tensors, list[str]]:
    """Return tensors by diffusers' names, and the names of those that have none: as they are,
    without a prefix, or converted by diffusers from the names of the model's authors, whichever
    gives more of the `expected` names.
    """
    for prefix in _PREFIXES:
        tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    known = expected.keys() & tensors.keys()
    if len(known) == len(expected):
        return tensors, []
    to_convert = dict(tensors)
    if issubclass(cls, UNet2DConditionModel):  # its conversion takes the tensors with the prefix
        to_convert = {single_files.NETWORK_PREFIX + name: t for name, t in tensors.items()}
    left = dict(to_convert)
    convert = single_file_model.SINGLE_FILE_LOADABLE_CLASSES[cls.__name__]["checkpoint_mapping_fn"]
    try:
        converted = dict(convert(checkpoint=left, config=config))
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
        return tensors, []  # of another model
    if len(expected.keys() & converted.keys()) <= len(known):
        return tensors, []
    # conversions either take tensors out of what they are given, or pass them on as they are
    used = {tensor.data_ptr() for tensor in converted.values()}
    unused = [name for name, tensor in left.items() if tensor.data_ptr() not in used]
    return converted, unused


def _require_exact(tensors: Tensors, expected: Tensors, unused: list[str]) -> None:
    """Raise `ValueError` unless tensors have the names and the shapes of those of a model, and
    none is `unused`.
    """
    shapes = {
        name: tuple(getattr(tensor, "quant_shape", tensor.shape))
        for name, tensor in tensors.items()
    }
    problems = {
        "missing": [name for name in expected if name not in tensors],
        "unexpected": unused,
        "of another shape": [
            f"{name} {list(shapes[name])}"
            for name, tensor in expected.items()
            if name in shapes and shapes[name] != tuple(tensor.shape)
        ],
    }
    found = [
        f"{counted(len(names), 'tensor')} {problem} ({first_of(sorted(names), 3)})"
        for problem, names in problems.items()
        if names
    ]
    if found:
        raise ValueError(f"{', '.join(found)}, expected exactly those of its config")


def _load_text_encoder(cls: Any, tensors: Tensors, folder: Path, dtype: torch.dtype) -> Any:
    """Return a text encoder of CLIP with the config of a folder; raise `ValueError` if the file
    holds less or more than its tensors.
    """
    model = single_file_utils.create_diffusers_clip_model_from_ldm(
        cls, tensors, config=str(folder), torch_dtype=dtype, local_files_only=True
    )
    missing = [name for name, weight in model.named_parameters() if weight.is_meta]
    if missing:
        raise ValueError(
            f"{counted(len(missing), 'tensor')} missing ({first_of(sorted(missing), 3)})"
        )
    values = sum(weight.numel() for weight in model.parameters())
    beside = [name for name in tensors if _BESIDE_TEXT.search(name)]
    stored = sum(tensor.numel() for name, tensor in tensors.items() if name not in beside)
    if stored != values:
        raise ValueError(f"{stored} values, expected the {values} of its config")
    return model
