"""What decides an edit or a verdict, and nothing else: recipes, and the keys that are made of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_imgedit.checkpoints import ADAPTER_FILES, MODEL_KINDS
from pytest_imgedit.closure import source_closure
from pytest_imgedit.editors.adapters import ADAPTERS
from pytest_imgedit.editors.base import job_seed
from pytest_imgedit.editors.pipelines import pipeline_class
from pytest_imgedit.endpoints import ENDPOINT_KINDS, parse_endpoint
from pytest_imgedit.environments import ATTENTION_KERNELS, LIBRARIES, OTHERS, Environment, versions_in
from pytest_imgedit.fingerprints import canonical, content, digest_files, resolved
from pytest_imgedit.hub import commit_of, model_folder
from pytest_imgedit.judges.architectures import read_config, unpackable
from pytest_imgedit.params import deciding
from pytest_imgedit.redaction import mask_secrets
from pytest_imgedit.registry import class_defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_imgedit.closure import Closure
    from pytest_imgedit.pairs import EditPair
    from pytest_imgedit.registry import Target

#: What a class of the user's own may compute with, although another package imports it.
_BEHIND = ("torch", "torchvision", "diffusers", "transformers", "numpy", "pillow")


@dataclass(frozen=True)
class Where:
    """Where an editor or judge would compute: the kind of device, the product of its GPUs as far as it is known, the
    interpreter (`None`: this one), and whether one model is spread over several GPUs.

    `versions` asks for those of packages by their names, where that is another machine.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    gpu: str | None = None
    python: str | None = None
    is_spread: bool = False
    versions: Callable[[Sequence[str]], dict[str, str]] | None = None


@dataclass(frozen=True)
class Identity:
    """What decides what an editor or judge computes, apart from what it is asked.

    `fingerprint` is the hash of what it is made of, `params` are the parameters that decide, as a reader knows them;
    `digest` is the hash of all of that with files by content, and `recipe` what is stored of it, without secrets.
    `here` is the environment in which it would compute now. `commit` is that of a hub id. `sees_pair` says that it is
    told the pair's id and category, and so may go by them. `libraries` are the packages whose versions decide;
    `files` are the SHA-256 of the files that parameters name, by path: workers on other hosts must find the same.
    """

    kind: str
    fingerprint: str
    params: dict[str, Any]
    digest: str
    recipe: dict[str, Any]
    here: Environment
    commit: str | None
    sees_pair: bool
    libraries: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict, compare=False)

    def code_beside(self, loaded: Mapping[str, str]) -> dict[str, str]:
        """Leave out of the digests of the code that a worker has loaded, by file, those that the recipe holds."""
        known = set(self.recipe.get("code", {}).values())
        return {path: sha256 for path, sha256 in loaded.items() if sha256 not in known}


def identify(target: Target, params: Mapping[str, Any], cache: Path, where: Where | None = None) -> Identity:
    """Find what identifies an editor or judge that would compute somewhere, by default in this process.

    `cache` is the file that remembers digests. Raises `UsageError` if something that it is made of is not there.
    """
    where = where or Where()
    closure = source_closure(target.module) if target.is_own else None
    made = content(target, closure, cache)
    dtype = resolved_dtype(str(params.get("dtype", "auto")), where.device)
    decides = deciding(target, params, dtype)
    counted = {name: value for name, value in decides.items() if name != "adapter" or target.kind != "qwen-vl"}
    files: dict[str, str] = {}
    named = {
        name: resolved(value, cache, files) if target.is_own or name == "loras" else canonical(value)
        for name, value in counted.items()
    }
    if closure is not None:  # its code says what a default is, but not what a file holds that this names
        for name, value in class_defaults(closure.files.values(), target.attribute).items():
            if name not in counted and (read := resolved(value, cache, files)) != canonical(value):
                named[name] = read
    recipe = {**made, "params": named}
    if len(counted) < len(decides):
        recipe["adapter"] = digest_files(Path(decides["adapter"]), ADAPTER_FILES, cache)
        files |= {f"{decides['adapter']}/{name}": sha256 for name, sha256 in recipe["adapter"].items()}
    if target.kind in MODEL_KINDS:
        recipe["dtype"] = dtype
        if target.kind == "diffusers" and (adapter := ADAPTERS.get(pipeline_class(target.argument or "") or "")):
            recipe["size"] = adapter.size
        if target.kind == "qwen-vl":
            recipe["decoder"] = _decoder(target, params, where)
    elif target.kind in ENDPOINT_KINDS:
        recipe["server"] = parse_endpoint(target.kind, target.argument or "").url
    if target.is_own:
        recipe["argument"] = resolved(target.argument, cache, files)
    libraries = _libraries(target, params, closure)
    versions = versions_in(where.python, libraries) if where.versions is None else where.versions(libraries)
    here = Environment(device=where.device, gpu=where.gpu, versions=versions)
    if target.kind in ENDPOINT_KINDS:
        here = Environment(device="server", versions=versions)
    commit = commit_of(target.argument or "", target.kind) if target.kind in MODEL_KINDS else None
    digest, shown = key(recipe), {**recipe, "params": mask_secrets(named)}  # what is a secret decides, but is not kept
    return Identity(target.kind, key(made), decides, digest, shown, here, commit, target.is_own, libraries, files)


def _decoder(target: Target, params: Mapping[str, Any], where: Where) -> str:
    """Name how a judge decodes, since other kernels round otherwise."""
    folder = model_folder(target.argument or "", target.kind)
    padded = params.get("attention", "auto") != "auto" or where.is_spread or unpackable(read_config(folder))
    return "padded" if padded else "packed"


def _libraries(target: Target, params: Mapping[str, Any], closure: Closure | None) -> tuple[str, ...]:
    """Names of the packages whose versions decide what an editor or judge computes."""
    if closure is not None:
        imported = closure.distributions()
        behind = _BEHIND if {"torch", "diffusers", "transformers"} & imported else ()
        return tuple(sorted({*imported, *behind}))
    used = {"torchao": params.get("quantize"), "peft": params.get("loras") or params.get("adapter")}
    kernels = f"{params.get('attention_backend', '')} {params.get('attention', '')}"
    chosen = [] if "native" in kernels else [part for part in ATTENTION_KERNELS if part in kernels]
    of_kernels = [name for part in chosen for name in ATTENTION_KERNELS[part]]
    return (*(name for name in LIBRARIES.get(target.kind, OTHERS) if used.get(name, True)), *of_kernels)


def resolved_dtype(name: str, device: str) -> str:
    """Return the dtype in which a model computes: `auto` is float32 on the CPU and bfloat16 on a GPU."""
    if name != "auto":
        return name
    return "float32" if device == "cpu" else "bfloat16"


def edit_recipe(
    editor: Identity, pair: EditPair, seed: int, source: str | None, shown: str | None, image: str | None = None
) -> dict[str, Any]:
    """Return what decides an edit: `source`, `shown` and `image` are SHA-256 of encoded images.

    `image` is the finished image that the editor `folder` finds, which then is all there is to it.
    """
    asked: dict[str, Any] = {"editor": editor.digest, "source": source}
    if editor.kind == "folder":
        return {**asked, "image": image}
    asked |= {"instruction": pair.instruction, "seed": job_seed(seed, pair.id), "shown": shown}
    return {**asked, "pair": pair.id, "category": pair.category} if editor.sees_pair else asked


def key(recipe: Mapping[str, Any], environment: Environment | None = None) -> str:
    """Hash a recipe, and the environment where it counts; recipes must be plain JSON values."""
    parts = [recipe] if environment is None else [recipe, environment.model_dump()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
