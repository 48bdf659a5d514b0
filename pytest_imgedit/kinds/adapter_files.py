"""The files of LoRA adapters as trainers write them: which file of a folder is one, what its header
says of the layers that it changes, and whether these are in the base.

Nothing but headers and configs is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_imgedit.core import errors, strict_json
from pytest_imgedit.core.files import no_such, read_object
from pytest_imgedit.core.shards import step_of
from pytest_imgedit.core.text import first_of, shorten
from pytest_imgedit.kinds import adapter_settings, checkpoint_files, safetensors_header
from pytest_imgedit.kinds.adapter_settings import Settings
from pytest_imgedit.kinds.checkpoint_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS, PICKLES

Shape = tuple[int, ...]
#: Shapes of the weights of a component's layers by name; `None` where they are not known.
Bases = Mapping[str, Shape] | None

#: The file that diffusers' `save_lora_weights` writes.
DIFFUSERS_WEIGHTS = "pytorch_lora_weights.safetensors"
#: The entry of a file's metadata in which diffusers keeps the settings of its adapters.
SETTINGS_ENTRY = "lora_adapter_metadata"
#: Components that a name without one may belong to, in the order in which they are tried.
NETWORKS = ("transformer", "unet")
#: How many of the layers that do not fit a message names.
_SHOWN = 3

_PEFT_PREFIX = "base_model.model."
#: What ComfyUI and the trainers that write for it call the network.
_COMFY_PREFIXES = ("model.diffusion_model.", "diffusion_model.")
_TENSOR = re.compile(
    r"(?P<layer>.+?)\.(?:lora_(?P<half>A|B|down|up)(?:\.(?!weight$)[\w-]+)?\.weight"
    r"|lora(?:_linear_layer)?\.(?P<old>down|up)\.weight(?P<whose>\.alpha)?|(?P<alpha>alpha))"
)
#: A layer of an attention, as diffusers named it before it used peft.
_OLD_LAYER = re.compile(
    r"(?P<attention>.+?)(\.processor)?\.to_(?P<end>q|k|v|out)_lora\.(?P<half>down|up)\.weight"
    r"(?P<alpha>\.alpha)?"
)
#: Names that are not those of diffusers' modules.
_FOREIGN = re.compile(
    "|".join(
        [
            r"^lora_(unet_|te|transformer_)",  # kohya's
            r"^lycoris_",
            r"^text_encoders\.",  # ComfyUI's
            r"(^|\.)(double|single)_blocks\.",  # those of Black Forest Labs
            r"\.processor\.\w*lora\d",  # XLabs'
            r"^unet\.(input|middle|output)_blocks",  # those of Stable Diffusion
        ]
    )
)
#: FLUX.1's layers as its authors name them, with PEFT's halves.
_OF_FLUX = re.compile(
    r"(?:base_model\.model\.|diffusion_model\.|transformer\.)?"
    r"(?P<layer>"
    r"(?:(?:double|single)_blocks|(?:img|txt|time|vector|guidance)_in|final_layer)(?:\..+?)?"
    r")"
    r"\.(?:lora_(?P<half>A|B)\.weight|(?P<alpha>alpha))"
)
#: Layers of FLUX that DiffSynth-Studio alone calls so.
_DIFFSYNTH = re.compile(
    r"\.(?:[ab]_to_qkv|to_qkv_mlp|[ab]_to_out|ff_[ab]\.\d|norm1_[ab]\.linear)\.lora_"
)
#: What the names of tensors of LoRA hold in any dialect, and what those of B end with.
_ANY_LORA = re.compile(r"lora\w*\.(\w+\.)*weight$")
_OUTPUTS = re.compile(r"(lora_B(\.\w+)?|lora_up|lora\w*\.up)\.weight$")
_LYCORIS = {"lokr_": "LoKr", "hada_": "LoHa", "oft_": "OFT", "glora_": "GLoRA", "boft_": "BOFT"}


@dataclass(frozen=True)
class AdapterFile:
    """An adapter: its weights, PEFT's config beside them if it counts, and what both say.

    `metadata` is that of the file's header, `tensors` holds shapes by name. `settings` are those of
    `config`.
    """

    weights: Path
    config: Path | None
    metadata: Mapping[str, str]
    tensors: Mapping[str, Shape]
    settings: Settings | None = None

    @property
    def is_foreign(self) -> bool:
        """Whether diffusers must convert the names, which are not those of its modules."""
        return any(_FOREIGN.search(name) for name in self.tensors)

    def settings_of(self, component: str) -> Settings | None:
        """Return the settings of a component's layers: of `config`, or of the file's metadata as
        diffusers writes it; `None` without.
        """
        if self.settings is not None:
            return self.settings
        try:
            told = strict_json.loads(self.metadata.get(SETTINGS_ENTRY, "{}"))
        except ValueError as error:
            raise errors.UsageError(
                f"{self.weights}: {SETTINGS_ENTRY} of its metadata is no JSON"
            ) from error
        if not isinstance(told, dict):
            raise errors.UsageError(f"{self.weights}: {SETTINGS_ENTRY} is no table")
        start = f"{component}."
        own = {name.removeprefix(start): told[name] for name in told if name.startswith(start)}
        return adapter_settings.parse(self.weights, own) if own else None


@dataclass
class Layer:
    """What an adapter holds of one layer: the names of its tensors in the file, and their shapes.

    `down` is A, (r, in), `up` is B, (out, r); of convolutions two dimensions follow. `alpha` is the
    name of a tensor with one number.
    """

    down: str | None = None
    up: str | None = None
    alpha: str | None = None


def find(path: str | Path) -> AdapterFile:
    """Return the adapter that a path names: a file of safetensors, or a folder that holds one.

    Raise `UsageError`, which names the file and what to do, if there is none or several, if it
    cannot be read, and if it is more or other than plain LoRA.
    """
    path = Path(path)
    weights = _in_folder(path) if path.is_dir() else path
    if not os.path.lexists(weights):
        raise errors.UsageError(f"{no_such(path, 'file or folder')}, expected an adapter")
    if weights.suffix in PICKLES:
        raise errors.UsageError(
            f"{weights}: weights that can run code when they load, expected safetensors "
            "(safetensors.torch.save_file saves them so)"
        )
    if weights.suffix != ".safetensors":
        raise errors.UsageError(
            f"{weights}: no weights, expected a file of safetensors or the folder of an adapter"
        )
    header = safetensors_header.read(weights)
    found = AdapterFile(weights, None, header.metadata, header.shapes)
    if _has_config(found):
        config = weights.parent / ADAPTER_CONFIG
        if not config.is_file():
            raise errors.UsageError(
                f"{weights}: no {ADAPTER_CONFIG} beside it, expected the one that peft saved with "
                "it: without, its alpha is unknown"
            )
        told = read_object(config, "the config of an adapter")
        settings = adapter_settings.parse(config, told)
        found = replace(found, config=config, settings=settings)
    _require_lora(found)
    return found


def _has_config(adapter: AdapterFile) -> bool:
    """Tell whether an adapter is one of PEFT, which are scaled by the config beside them."""
    if adapter.weights.name == ADAPTER_WEIGHTS:
        return True
    if adapter.is_foreign or any(name.endswith(".alpha") for name in adapter.tensors):
        return False
    return any(name.startswith(_PEFT_PREFIX) for name in adapter.tensors)


def _in_folder(folder: Path) -> Path:
    """Return the file of weights in an adapter's folder; raise `UsageError` unless it is clear."""
    known = [folder / ADAPTER_WEIGHTS, folder / DIFFUSERS_WEIGHTS]
    found = [path for path in known if path.is_file()] or sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(path.name for path in found)
        raise errors.UsageError(
            f"{folder}: {len(found)} files of safetensors ({shorten(names, 200)}), expected one: "
            "name it"
        )
    pickles = [path for path in sorted(folder.iterdir()) if path.suffix in PICKLES]
    if pickles:
        return pickles[0]
    inside = [path for path in sorted(folder.iterdir()) if _is_adapter(path)]
    if inside:
        names = first_of([path.name for path in sorted(inside, key=step_of, reverse=True)])
        raise errors.UsageError(f"{folder}: a folder of adapters, expected one of them: {names}")
    raise errors.UsageError(
        f"{folder}: no adapter, expected {ADAPTER_WEIGHTS} with {ADAPTER_CONFIG}, "
        f"{DIFFUSERS_WEIGHTS} or one other file of safetensors"
    )


def _is_adapter(folder: Path) -> bool:
    """Tell whether a folder holds an adapter as PEFT or diffusers saves it."""
    return any((folder / name).is_file() for name in (ADAPTER_WEIGHTS, DIFFUSERS_WEIGHTS))


def _require_lora(adapter: AdapterFile) -> None:
    """Raise `UsageError` for tensors that are not those of plain LoRA, with how many they are and
    the first of them, and for the names of DiffSynth-Studio's own FLUX.
    """
    own = next((name for name in sorted(adapter.tensors) if _DIFFSYNTH.search(name)), None)
    if own is not None:
        raise errors.UsageError(
            f"{adapter.weights}: {own}: a name of DiffSynth-Studio's own FLUX, expected kohya's: "
            "train with --align_to_opensource_format, or convert the file with its "
            "FluxLoRAConverter.align_to_opensource_format"
        )
    others = sorted(name for name in adapter.tensors if _split(name) is None)
    if adapter.is_foreign:  # what its conversion leaves over is refused there
        others = [name for name in others if _kind(name) != "not those of LoRA"]
    _refuse_others(adapter.weights, others, len(adapter.tensors))


def _refuse_others(path: Path, others: Sequence[str], count: int) -> None:
    """Raise `UsageError` for tensors of an adapter, of `count`, that are not those of LoRA."""
    if others:
        raise errors.UsageError(
            f"{path}: {len(others)} of {count} tensors are {_kind(others[0])}, expected LoRA "
            f"alone: {_first(others)}"
        )


def _first(names: Sequence[str]) -> str:
    return shorten(", ".join(names[:_SHOWN]), 400)


def _kind(name: str) -> str:
    """Return what a tensor is that is not of LoRA, as a phrase."""
    for part, kind in _LYCORIS.items():
        if f".{part}" in name:
            return f"those of {kind}"
    if ".lora_magnitude_vector" in name or name.endswith(".dora_scale"):
        return "those of DoRA"
    if "lora_embedding_" in name or "token_adapter" in name:
        return "trained tokens"
    if name.endswith((".bias", ".diff_b")):
        return "trained biases"
    if _ANY_LORA.search(name):
        return "not those of LoRA"
    return "whole weights" if name.endswith((".weight", ".diff")) else "not those of LoRA"


def _split(name: str) -> tuple[str, str] | None:
    """Return the layer and the part (`down`, `up`, `alpha`) that a tensor's name tells; `None` for
    a tensor that is none of LoRA.
    """
    old = _OLD_LAYER.fullmatch(name)
    if old is not None:
        end = "to_out.0" if old["end"] == "out" else f"to_{old['end']}"
        if old["attention"].endswith(".self_attn"):  # CLIP's
            end = f"{old['end']}_proj"
        return f"{old['attention']}.{end}", "alpha" if old["alpha"] else old["half"]
    match = _TENSOR.fullmatch(name)
    if match is None:
        return None
    if match["whose"]:
        return match["layer"], "alpha"
    part = match["half"] or match["old"] or match["alpha"]
    return match["layer"], {"A": "down", "B": "up"}.get(part, part)


def layers_of(names: Iterable[str], bases: Mapping[str, Bases]) -> dict[str, dict[str, Layer]]:
    """Return what tensors of LoRA are, by component and layer.

    `bases` holds the layers of the components that adapters may change, and `None` for unknown
    ones. A name without a component belongs to the first network that has a layer of such names,
    else to the first component at all.
    """
    placed: dict[str, dict[str, Layer]] = {}
    alone: dict[str, Layer] = {}
    for name in names:
        split = _split(name)
        if split is None:
            continue
        layer, part = split
        component, layer = _component(layer, bases)
        layers = alone if component is None else placed.setdefault(component, {})
        entry = layers.setdefault(layer, Layer())
        setattr(entry, part, name)
    if alone:
        best = _best(alone, bases)
        named = {plain(layer, best): entry for layer, entry in alone.items()}
        placed.setdefault(best, {}).update(named)
    return placed


def _component(layer: str, bases: Mapping[str, Bases]) -> tuple[str | None, str]:
    """Return the component that a layer's name begins with, if any, and the layer in it."""
    layer = layer.removeprefix(_PEFT_PREFIX)
    for prefix in _COMFY_PREFIXES:
        if layer.startswith(prefix):
            return _network(bases), layer.removeprefix(prefix)
    first, _, rest = layer.partition(".")
    if first in bases or re.fullmatch(r"(transformer|unet|text_encoder)(_\d)?", first):
        return first, plain(rest, first)
    return None, layer


def _network(bases: Mapping[str, Bases]) -> str:
    """Return the component that a name without one belongs to if no layers tell."""
    return next((name for name in NETWORKS if name in bases), next(iter(bases), NETWORKS[0]))


def _best(layers: Iterable[str], bases: Mapping[str, Bases]) -> str:
    """Return the component whose layers have these names, networks first."""
    for component in sorted(bases, key=lambda name: (name not in NETWORKS, name)):
        known = bases[component]
        if known is not None and any(plain(layer, component) in known for layer in layers):
            return component
    return _network(bases)


def plain(layer: str, component: str) -> str:
    """Return a layer's name as every version of transformers has it: CLIP's begin with `text_model`
    in some.
    """
    return layer.removeprefix("text_model.") if component.startswith("text_encoder") else layer


def bases_of(folder: Path, components: Iterable[str], variant: str | None) -> dict[str, Bases]:
    """Return the layers of those of these components that a pipeline's folder has; `variant` is as
    `checkpoint_files.used_variant` takes it.
    """
    used = checkpoint_files.used_variant(folder, checkpoint_files.Layout.PIPELINE, variant)
    return {
        name: base_layers(folder / name, used)
        for name in components
        if (folder / name / "config.json").is_file()
    }


def base_layers(folder: Path, variant: str | None = None) -> Bases:
    """Return the shapes of the weights of a component's layers, from the headers of its files;
    `None` where these do not tell, such as those of quantized weights, and for a folder without
    weights, which a single file replaces.
    """
    config = read_object(folder / "config.json", "the config of a model")
    if config.get("quantization_config"):
        return None
    try:
        paths = checkpoint_files.weight_files(folder, variant)
    except errors.UsageError:
        return None
    layers: dict[str, Shape] = {}
    for path in paths:
        for name, shape in safetensors_header.read(path).shapes.items():
            if name.endswith(".weight"):
                layers[plain(name.removesuffix(".weight"), folder.name)] = shape
    return layers


def needs_conversion(adapter: AdapterFile, bases: Mapping[str, Bases]) -> bool:
    """Tell whether diffusers must convert an adapter's names: they are not its modules' own, or
    stand without a component and none of them is in the base.
    """
    if adapter.is_foreign:
        return True
    if adapter.config is not None or all(base is None for base in bases.values()):
        return False
    own = [name for name in adapter.tensors if not name.startswith(_COMFY_PREFIXES)]
    if any(_component(name, {})[0] in bases for name in own):
        return False
    placed = layers_of(adapter.tensors, bases)
    return not any(layer in (bases.get(name) or ()) for name in placed for layer in placed[name])


def kohya_name(name: str) -> str | None:
    """Return kohya's name of a tensor of FLUX.1 that its authors' name and PEFT's half name; `None`
    for other names.
    """
    match = _OF_FLUX.fullmatch(name)
    if match is None:
        return None
    half = {"A": "lora_down.weight", "B": "lora_up.weight"}.get(match["half"], "alpha")
    return f"lora_unet_{match['layer'].replace('.', '_')}.{half}"


def outputs(shapes: Mapping[str, Shape]) -> int:
    """Return the outputs of all layers together, which stay when a layer is cut in several."""
    return sum(shape[0] for name, shape in shapes.items() if _OUTPUTS.search(name))


def check(
    adapter: AdapterFile,
    pipeline: str,
    shapes: Mapping[str, Shape],
    bases: Mapping[str, Bases],
    loadable: Sequence[str],
) -> dict[str, dict[str, Layer]]:
    """Return an adapter's layers by component; raise `UsageError` unless all of them are whole and
    fit the base, and the class `pipeline` takes adapters of these components (`loadable`).

    `shapes` are those of the adapter's tensors by the names of the base's modules. A message tells
    how many layers do not fit, and of the first three what was found and expected. Where a base is
    `None`, only halves and ranks are looked at.
    """
    others = sorted(name for name in shapes if _split(name) is None)
    _refuse_others(adapter.weights, others, len(shapes))
    placed = layers_of(shapes, bases)
    _require_loadable(
        adapter.weights, pipeline, placed, [name for name in loadable if name in bases]
    )
    for component, layers in placed.items():
        settings = adapter.settings_of(component)
        base = bases.get(component)
        problems = [
            f"{name}: {problem}"
            for name, layer in sorted(layers.items())
            if (problem := _problem(name, layer, shapes, base, settings))
        ]
        if problems:
            raise errors.UsageError(
                f"{adapter.weights}: {len(problems)} of {len(layers)} layers do not fit the "
                f"{component.replace('_', ' ')}: {'; '.join(problems[:_SHOWN])}"
            )
        _require_targets(adapter.weights, component, layers, base, settings)
    return placed


def _require_targets(
    path: Path,
    component: str,
    layers: Mapping[str, Layer],
    base: Bases,
    settings: Settings | None,
) -> None:
    """Raise `UsageError` for layers of a network that were trained, by the adapter's settings, but
    are not in its file.
    """
    if component not in NETWORKS or base is None or settings is None or settings.targets is None:
        return
    # what PEFT adapts has inputs and outputs, which norms have not
    trained = [name for name in base if len(base[name]) > 1 and settings.targets.has(name)]
    missing = sorted(name for name in trained if name not in layers)
    if missing:
        raise errors.UsageError(
            f"{path}: no tensors for {len(missing)} of the {len(trained)} layers of the "
            f"{component} that its target_modules name: {_first(missing)}: save the adapter whole"
        )


def _problem(
    name: str,
    layer: Layer,
    shapes: Mapping[str, Shape],
    base: Bases,
    settings: Settings | None,
) -> str:
    """Return what is wrong with a layer of an adapter; empty if nothing is."""
    if base is not None and name not in base:
        return "no such layer"
    if layer.down is None or layer.up is None:
        return f"no {'lora_A' if layer.down is None else 'lora_B'}"
    down, up = shapes[layer.down], shapes[layer.up]
    if len(down) < 2 or len(up) != len(down):
        return f"lora_A is {_shown(down)} and lora_B {_shown(up)}, expected (r, in) and (out, r)"
    if down[0] != up[1]:
        return f"lora_A has rank {down[0]}, lora_B {up[1]}"
    if settings is not None and settings.rank_of(name) != down[0]:
        return f"rank {down[0]}, its config says {settings.rank_of(name)}"
    if base is None:
        return ""
    weight = base[name]
    if len(weight) != len(down):
        return f"lora_A is {_shown(down)}, the layer's weight {_shown(weight)}"
    if weight[1] != down[1]:
        return f"lora_A takes {down[1]} inputs, the layer has {weight[1]}"
    if weight[0] != up[0]:
        return f"lora_B gives {up[0]} outputs, the layer has {weight[0]}"
    if weight[2:] != down[2:]:
        return f"lora_A has a kernel of {_shown(down[2:])}, the layer of {_shown(weight[2:])}"
    return ""


def _shown(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a number"


def _require_loadable(
    path: Path, pipeline: str, layers: Mapping[str, Mapping[str, Layer]], loadable: Sequence[str]
) -> None:
    """Raise `UsageError` for layers of a component of which a pipeline's class takes no adapter."""
    for component, own in layers.items():
        if component not in loadable:
            tensors = sum(
                name is not None for layer in own.values() for name in (layer.down, layer.up)
            )
            raise errors.UsageError(
                f"{path}: {component}.…: {tensors} tensors: {pipeline} takes no adapter of its "
                f"{component.replace('_', ' ')}"
            )
