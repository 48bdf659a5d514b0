"""How a checkpoint says that its weights are quantised, and what loading them takes: the method of
its config, the packages of that method, a GPU. Reads configs, headers and source; imports neither
torch, diffusers nor transformers.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.user_code import keys_of_table

Library = Literal["diffusers", "transformers"]
#: Places tensors; what they hold does not depend on its version.
_ACCELERATE = "accelerate"
_SAVED_PLAINLY = "expected weights in bfloat16 or float32, or a quantization_config in its config"


@dataclass(frozen=True)
class Method:
    """What a library needs to load weights that were quantised by a method.

    `packages` are names on PyPI with the oldest versions, empty for any. `refusal` says why weights
    that are already quantised cannot be loaded at all.
    """

    packages: Mapping[str, str] = field(default_factory=dict)
    needs_gpu: bool = False
    refusal: str = ""


#: By library, what `validate_environment` and `__init__` of its quantizers refuse to go without: of
#: diffusers 0.42.1 (`quantizers/*/*_quantizer.py`), and of transformers 5.23.0
#: (`quantizers/quantizer_*.py`, with the oldest versions of `utils/import_utils.py`). The check of
#: packages that have several names on PyPI (fbgemm), or none (qutlass), is left to the library.
_DIFFUSERS_ACCELERATE = {_ACCELERATE: "0.26.0"}
_ACCELERATED = {_ACCELERATE: "1.1.0"}
METHODS: dict[Library, dict[str, Method]] = {
    "diffusers": {
        "auto-round": Method({"auto-round": ""}),
        "bfl": Method(_DIFFUSERS_ACCELERATE),
        "bitsandbytes_4bit": Method({"bitsandbytes": "0.43.3", **_DIFFUSERS_ACCELERATE}, True),
        "bitsandbytes_8bit": Method({"bitsandbytes": "0.43.3", **_DIFFUSERS_ACCELERATE}, True),
        "gguf": Method({"gguf": "0.10.0", **_DIFFUSERS_ACCELERATE}),
        "modelopt": Method({"nvidia-modelopt": ""}),
        "nunchaku_lite": Method({"kernels": ""}, needs_gpu=True),
        "quanto": Method({"optimum-quanto": "0.2.6", _ACCELERATE: ""}),
        "sdnq": Method({"sdnq": ""}),
        "torchao": Method({"torchao": "0.15.0"}),
    },
    "transformers": {
        "aqlm": Method({"aqlm": "", **_ACCELERATED}),
        "auto-round": Method({"auto-round": "0.5.0"}),
        "awq": Method({"gptqmodel": "", **_ACCELERATED}),
        "bitnet": Method(_ACCELERATED),
        "bitsandbytes_4bit": Method({"bitsandbytes": "0.46.1", **_ACCELERATED}),
        "bitsandbytes_8bit": Method({"bitsandbytes": "0.46.1", **_ACCELERATED}),
        "compressed-tensors": Method({"compressed-tensors": "0.15.0"}),
        "eetq": Method({"kernels": "0.18.2", **_ACCELERATED}, needs_gpu=True),
        "fbgemm_fp8": Method(_ACCELERATED, needs_gpu=True),
        "fouroversix": Method({"fouroversix": ""}),
        "fp8": Method(_ACCELERATED),
        "fp_quant": Method({"fp-quant": "0.3.2"}, needs_gpu=True),
        "gptq": Method({"gptqmodel": "1.4.3", "optimum": "1.24.0"}),
        "higgs": Method(
            {"flute-kernel": "", "fast-hadamard-transform": "", **_ACCELERATED}, needs_gpu=True
        ),
        "gguf": Method(refusal="transformers reads GGUF from a single file alone"),
        "hqq": Method({"hqq": "0.2.1"}),
        "mxfp4": Method(_ACCELERATED),
        "mxfp8": Method(_ACCELERATED),
        "nvfp4": Method(refusal="transformers loads no weights that are already in NVFP4"),
        "quanto": Method({"optimum-quanto": "", **_ACCELERATED}),
        "quark": Method({"amd-quark": "0.12"}),
        "sdnq": Method({"sdnq": ""}),
        "sinq": Method({"sinq": ""}),
        "spqr": Method({"spqr-quant": "", **_ACCELERATED}, needs_gpu=True),
        "torchao": Method({"torchao": "0.15.0"}),
        "vptq": Method({"vptq": "0.0.4", **_ACCELERATED}, needs_gpu=True),
    },
}
#: Where the sources of diffusers and transformers list the methods that they know.
_TABLE = "AUTO_QUANTIZATION_CONFIG_MAPPING"
#: With this variable set, diffusers has the package sdnq add itself to the methods of transformers.
_SDNQ_VARIABLE = "DIFFUSERS_SDNQ_TRANSFORMERS"
#: Number formats of safetensors in few bits: those of integers and of packed bits, which mean
#: nothing without a scale, and those of floats.
_PACKED = ("I8", "U8", "F4")
_FLOAT8 = "F8_"
#: What the names of scales end with, as trainers and converters write them.
_SCALES = re.compile(r"(weight_scale(_inv|_2)?|scale_weight|input_scale|scale_input|weight_qdata)$")


@dataclass(frozen=True)
class Quantization:
    """What a `config` says about the weights beside it: the method by which they are quantised, as
    the library that loads them calls it, and as the file does (`written`).
    """

    config: Path
    library: Library
    method: str
    written: str

    @property
    def needs(self) -> Method:
        """What loading the weights takes; nothing is known of a method that is younger than the
        table.
        """
        return METHODS[self.library].get(self.method, Method())

    @property
    def is_of_bitsandbytes(self) -> bool:
        """Whether bitsandbytes computes with the weights."""
        return self.method.startswith("bitsandbytes")

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages whose versions decide what the weights compute."""
        return tuple(name for name in self.needs.packages if name != _ACCELERATE)

    def require_packages(self, versions: Mapping[str, str], asked: Collection[str]) -> None:
        """Raise `UsageError` for one of the packages `asked` that is missing or too old, where
        these versions of them are installed.
        """
        for name, oldest in self.needs.packages.items():
            found = versions.get(name)
            if name not in asked:
                continue
            if found is None:
                raise errors.UsageError(
                    f"{self._found}, expected the package {name}: pip install {name}"
                )
            if _release(found) < _release(oldest):
                raise errors.UsageError(
                    f"{self._found}, expected the package {name} {oldest} or newer, found {found}: "
                    f"pip install -U {name}"
                )

    def require_gpu(self) -> None:
        """Raise `UsageError` for a method whose weights load on a GPU alone, where there is
        none.
        """
        if self.needs.needs_gpu:
            raise errors.UsageError(
                f"{self._found}, which {self.library} loads on a GPU alone, expected a GPU, or "
                "weights that are not quantised"
            )

    @property
    def _found(self) -> str:
        return f"{self.config}: quant_method is {self.written!r:.60}"


def read(config: Path) -> Quantization | None:
    """Return what the config of a network or of a model says about its weights; `None` if they are
    not quantised. Raise `UsageError` for what the library that loads them does not take.

    transformers also looks into the config of the language model.
    """
    content = files.read_object(config, "the config of a model")
    library: Library = "diffusers" if "_class_name" in content else "transformers"
    table = content.get("quantization_config")
    inner = content.get("text_config")
    if table is None and library == "transformers" and isinstance(inner, dict):
        table = inner.get("quantization_config")
    if table is None:
        return None
    if not isinstance(table, dict):
        raise errors.UsageError(
            f"{config}: quantization_config is {_shown(table)}, expected a table or null"
        )
    return _of_table(config, library, table)


def _of_table(config: Path, library: Library, table: JsonObject) -> Quantization:
    """Return what a `quantization_config` says; raise `UsageError` for an unknown method, and for
    one that cannot be loaded.

    Either library takes `load_in_8bit` and `load_in_4bit` for bitsandbytes, before it looks at
    `quant_method`.
    """
    written = table.get("quant_method")
    method = written
    for name in ("load_in_8bit", "load_in_4bit"):
        if table.get(name):
            method = f"bitsandbytes_{name.removeprefix('load_in_')}"
    if not isinstance(method, str):
        raise errors.UsageError(
            f"{config}: quant_method is {_shown(written)}, expected the name of a method"
        )
    if method == "bitsandbytes":
        raise errors.UsageError(
            f"{config}: quant_method is 'bitsandbytes' without load_in_4bit and load_in_8bit, "
            "expected one of them true"
        )
    known = known_methods(library)
    if known and method not in known:
        raise errors.UsageError(
            f"{config}: quant_method is {_shown(method)}, which {library} does not know, expected "
            f"one of {', '.join(sorted(known))}, or weights that are not quantised"
        )
    said = Quantization(config, library, method, written if isinstance(written, str) else method)
    if said.needs.refusal:
        raise errors.UsageError(f"{config}: quant_method is {method!r}: {said.needs.refusal}")
    return said


def _shown(value: Any) -> str:
    return f"{value!r:.60}"


@cache
def known_methods(library: Library) -> Collection[str]:
    """Return the methods of quantisation that the installed library knows, read from its source;
    none where that is not found.
    """
    names = set(keys_of_table(f"{library}.quantizers.auto", _TABLE))
    if names and library == "transformers" and os.environ.get(_SDNQ_VARIABLE):
        names.add("sdnq")
    return names


def require_plain(tensors: Mapping[Path, Mapping[str, JsonObject]]) -> None:
    """Raise `UsageError` for weights in few bits whose config does not say how they are quantised.

    `tensors` are the headers of safetensors files. Both libraries would cast such weights as they
    are, without their scales. Float8 without scales is cast as it is meant, as are buffers of one
    dimension.
    """
    entries = [
        (path, name, entry) for path, header in tensors.items() for name, entry in header.items()
    ]
    few_bits = [entry for entry in entries if is_few_bits(entry[2])]
    scales = [entry for entry in entries if _SCALES.search(entry[1])]
    if few_bits and scales:
        path, name, entry = scales[0]
        raise errors.UsageError(
            f"{path}: {name[:120]!r} scales weights in {few_bits[0][2]['dtype']}, and no "
            f"quantization_config says how, {_SAVED_PLAINLY}: multiply each weight by its scale, "
            "and save_pretrained"
        )
    for path, name, entry in few_bits:
        if str(entry["dtype"]).startswith(_PACKED):
            raise errors.UsageError(
                f"{path}: {name[:120]!r} is in {entry['dtype']} without a scale, {_SAVED_PLAINLY}"
            )


def is_few_bits(entry: JsonObject) -> bool:
    """Tell whether a tensor, by its entry in a header, is a matrix of 8 bits or fewer a value."""
    is_small = str(entry["dtype"]).startswith((*_PACKED, _FLOAT8))
    shape = entry.get("shape")
    return is_small and isinstance(shape, list) and len(shape) > 1


def is_float8(entry: JsonObject) -> bool:
    """Tell whether a tensor, by its entry in a header, is stored in one of the formats of
    float8.
    """
    return str(entry["dtype"]).startswith(_FLOAT8)


def packages(quantizations: Iterable[Quantization]) -> list[str]:
    """Return the packages whose versions decide what quantised weights compute, each once."""
    return sorted({name for said in quantizations for name in said.packages})


def _release(version: str) -> list[int]:
    """Return the leading numbers of a version, for comparison: those of 0.43.3.dev0 are 0, 43 and
    3.
    """
    match = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in match[0].split(".")] if match else []
