"""The files that models are made of: where a checkpoint lies, in a folder or on the Hugging Face
hub, which of its files are loaded, whether these are whole, in safetensors, and free of code, and
their digests.
"""

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from pytest_imgedit.core import errors, file_types, files, folders, locks, strict_json
from pytest_imgedit.core.files import digest, is_file, is_folder, read_object, write_json
from pytest_imgedit.core.text import shorten
from pytest_imgedit.kinds import quantized, safetensors_header

#: Holds the embedded models too.
PACKAGE = Path(__file__).parent.parent
#: Names under which diffusers and transformers look for weights, each for its own first.
_DIFFUSERS_WEIGHTS = "diffusion_pytorch_model.safetensors"
_TRANSFORMERS_WEIGHTS = "model.safetensors"
_WEIGHTS = (_DIFFUSERS_WEIGHTS, _TRANSFORMERS_WEIGHTS)
#: The one file of a variant of a component's weights, and the index of several.
_VARIANT_FILE = re.compile(
    r"(diffusion_pytorch_model|model)\.((?P<file>\w+)\.safetensors"
    r"|safetensors\.index\.(?P<index>\w+)\.json)",
    re.ASCII,
)
#: What loaders of models, tokenizers, processors and schedulers read beside weights, where it is
#: there.
_SMALL = (
    "config.json",
    "generation_config.json",
    "scheduler_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "chat_template.json",
    "chat_template.jinja",
)
#: Suffixes of weights in formats that can run code.
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
#: Files that are hashed at a time: the weights of a large model lie in about as many.
HASHERS = 16
#: What is read of the folder of an adapter in PEFT's format.
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS)
_HUB_ID = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII
)
_HUB_SUFFIXES = ("json", "safetensors", "txt", "model", "jinja")


class Layout(Enum):
    """How the files of a checkpoint lie: those of a diffusers pipeline in a folder each, or one
    model's in one.
    """

    PIPELINE = "pipeline"
    MODEL = "model"


#: Snapshots by model, layout and components without weights. A hub id that was resolved once stays
#: the same commit for the whole run.
_PINNED: dict[tuple[str, Layout, tuple[str, ...]], Path] = {}


def is_local(model: str) -> bool:
    """Tell whether a MODEL names a folder here rather than a hub id, `ORG/MODEL` or
    `ORG/MODEL@REVISION`.
    """
    return Path(model).is_dir() or not _HUB_ID.fullmatch(model)


def split_id(model: str) -> tuple[str, str | None]:
    """Return the repository and the revision of a hub id; the revision is `None` where the id names
    none. Raise `UsageError` for a text that is no hub id.
    """
    match = _HUB_ID.fullmatch(model)
    if match is None:
        raise errors.UsageError(
            f"model {model!r}: expected a checkpoint folder, or a hub id ORG/MODEL or "
            "ORG/MODEL@REVISION"
        )
    return match["repository"], match["revision"]


@dataclass(frozen=True)
class Checkpoint:
    """The weights that a MODEL names, a folder here or a hub id, whose files lie as `layout` says.

    A hub id is resolved to a commit once a process. Every later lookup returns the snapshot of that
    commit, even if another one was pushed since. `variant` names one of a pipeline's variants, as
    `used_variant` takes it. `without` are the components of a pipeline whose weights are not read.
    """

    model: str
    layout: Layout
    variant: str | None = None
    without: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder, downloaded if need be; raises `UsageError` if it cannot be had."""
        return self._find(download=True)

    @property
    def local_folder(self) -> Path:
        """The folder without a download; raises `UsageError` for a hub id that is not here."""
        return self._find(download=False)

    @property
    def snapshot(self) -> Path | None:
        """The snapshot to which `folder` has pinned a hub id; `None` for a folder or an unpinned
        id.
        """
        return _PINNED.get((self.model, self.layout, self.without))

    @property
    def commit(self) -> str | None:
        """The commit to which `folder` has pinned a hub id; `None` for a folder or an unpinned
        id.
        """
        return None if self.snapshot is None else self.snapshot.name

    def cached_file(self, name: str) -> Path | None:
        """Return a file of a hub id from the hub's cache, where other files of it may be missing;
        `None` if it is not there. Raise `UsageError` for a text that is no hub id.
        """
        from huggingface_hub import try_to_load_from_cache

        repository, revision = split_id(self.model)
        cached = try_to_load_from_cache(repository, name, revision=revision)
        return Path(cached) if isinstance(cached, str) else None

    def _find(self, download: bool) -> Path:
        """Return the folder of the checkpoint, local or of the hub; raise `UsageError` if there is
        none.
        """
        if not is_local(self.model):
            return self.snapshot or self._pin(download)
        if not Path(self.model).is_dir():
            raise errors.UsageError(
                f"model {self.model!r}: no such folder, expected a checkpoint folder or a hub id"
            )
        require_checkpoint(Path(self.model), self.layout)
        return Path(self.model)

    def _pin(self, download: bool) -> Path:
        """Return the snapshot of a hub id, the same one for the life of this process; raise
        `UsageError` if it is not here and may not or cannot be downloaded.
        """
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

        repository, revision = split_id(self.model)
        # A pipeline's weights lie in folders; safetensors beside model_index.json are the same
        # weights again.
        names = "*" if self.layout is Layout.MODEL else "*/*"
        patterns = [f"{names}.{suffix}" for suffix in _HUB_SUFFIXES]
        try:
            snapshot = snapshot_download(
                repository,
                revision=revision,
                allow_patterns=["model_index.json"] + patterns,
                ignore_patterns=[f"{name}/*.safetensors" for name in self.without],
                local_files_only=not download,
            )
        except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
            if not download:
                raise errors.UsageError(
                    f"model {self.model!r}: not on this machine yet; a run downloads it from the "
                    "hub"
                ) from error
            raise errors.UsageError(
                f"model {self.model!r}: not a local folder, and not available on the Hub: "
                f"{str(error).splitlines()[0]}"
            ) from error
        return _PINNED.setdefault((self.model, self.layout, self.without), Path(snapshot))

    def component_bytes(self, dtype: str) -> dict[str, int]:
        """Return the bytes that the models take at least in memory, by the names of their folders.

        Nothing but file headers is read. Stored float32 counts half unless it is loaded as such
        (`dtype`), and float8 that is no quantisation as what it is cast to. Quantised weights count
        as they are stored.

        Raises `UsageError`, naming the file, if weights are missing, cut short, or not safetensors,
        if an adapter lies beside them, if the checkpoint wants code of its own to be run, and if
        its weights are quantised in a way that its library does not know.
        """
        every = _components(self.folder, self.layout)
        components = [path for path in every if path.name not in self.without]
        variant = used_variant(self.folder, self.layout, self.variant, self.without)
        sizes: dict[str, int] = {}
        for component in components:
            config = component / "config.json"
            if config.exists():  # schedulers and tokenizers have no weights
                headers = {
                    path: safetensors_header.read(path).tensors
                    for path in weight_files(component, variant)
                }
                is_quantized = quantized.read(config) is not None
                if not is_quantized:
                    quantized.require_plain(headers)
                entries = [entry for header in headers.values() for entry in header.values()]
                sizes[component.name] = sum(
                    loaded_bytes(entry, dtype, is_quantized=is_quantized) for entry in entries
                )
        return sizes

    @property
    def quantizations(self) -> list[quantized.Quantization]:
        """What the configs of its models say about quantised weights; nothing for a hub id that is
        not here yet, or a folder that is no checkpoint.

        Raises `UsageError` for a method that the library of its model does not know.
        """
        folder = Path(self.snapshot or self.model)
        components: list[Path] = []
        if folder.is_dir():
            with suppress(errors.UsageError):
                every = _components(folder, self.layout)
                components = [path for path in every if path.name not in self.without]
        configs = [component / "config.json" for component in components]
        said = [quantized.read(config) for config in configs if config.is_file()]
        return [quantization for quantization in said if quantization is not None]

    def elsewhere(self, digests: Mapping[str, str]) -> strict_json.JsonObject:
        """Return the arguments with which `find_checkpoint` finds this checkpoint on another host;
        `digests` are the SHA-256 of `loaded_files`, by name.
        """
        real = self.folder.resolve()
        package = PACKAGE.resolve()
        embedded = None
        if real.is_relative_to(package):
            embedded = str(real.relative_to(package))
        return {
            "folder": str(self.folder.absolute()),
            "embedded": embedded,
            "layout": self.layout.value,
            "variant": self.variant,
            "without": self.without,
            "digests": dict(digests),
        }


def require_checkpoint(folder: Path, layout: Layout) -> None:
    """Raise `UsageError`, which says what folder to give, for a folder of the hub's cache or of a
    trainer that is not itself a checkpoint.
    """
    is_pipeline = layout is Layout.PIPELINE
    if os.path.lexists(folder / ("model_index.json" if is_pipeline else "config.json")):
        return
    advice = folders.hub_cache_hint(folder) or folders.trainer_hint(folder, is_pipeline)
    if advice is not None:
        raise errors.UsageError(f"model {shorten(str(folder), 400)!r}: {advice}")


def loaded_files(
    folder: Path, layout: Layout, variant: str | None = None, without: Sequence[str] = ()
) -> list[str]:
    """Return the names, relative to a checkpoint's folder, of the files that its loader opens;
    `variant` and `without` are as `used_variant` takes them.

    What lies beside them, such as a README or the states of an optimizer, is never read and is left
    out. Raises `UsageError`, naming the file, if the weights or a component are missing, a small
    file is not whole, an adapter lies beside the weights, or the checkpoint wants code to be run.
    """
    names: list[str] = []
    variant = used_variant(folder, layout, variant, without)
    for component in _components(folder, layout):
        has_weights = component.name not in without and (component / "config.json").exists()
        paths = [component / name for name in _component_files(component, variant, has_weights)]
        names += [str(path.relative_to(folder)) for path in paths]
    if layout is Layout.PIPELINE:
        names.append("model_index.json")
    return sorted(names)


def _component_files(folder: Path, variant: str | None, has_weights: bool) -> Iterator[str]:
    """Yield the names of the files in a component's folder that its loader opens, those of its
    weights if these are read from there.

    Raise `UsageError` for missing weights, and for a small file that is not whole.
    """
    names = list(_SMALL)
    if has_weights:
        yield from (path.name for path in weight_files(folder, variant))
        names += [_index_of(name, None) for name in _WEIGHTS]
        if variant is not None:
            names += [_index_of(name, variant) for name in _WEIGHTS]
    for name in names:
        path = folder / name
        if path.is_symlink() or path.is_file():
            _require_whole(path)
        if path.is_file():
            yield name
    # tokenizers of other versions of transformers, and chat templates beside the usual one
    for pattern in ("tokenizer.*.json", "additional_chat_templates/*.jinja"):
        yield from (str(path.relative_to(folder)) for path in folder.glob(pattern))


def _require_whole(path: Path) -> None:
    """Raise `UsageError` for a small file of a model whose bytes are those of something else, and
    for an empty JSON file.
    """
    content = files.misfit(path)
    if content is not None and (content != file_types.EMPTY or path.suffix == ".json"):
        raise errors.UsageError(content.message(str(path), "a file of a model"))


def find_checkpoint(
    *,
    folder: str,
    embedded: str | None,
    layout: str,
    variant: str | None,
    without: Sequence[str],
    digests: Mapping[str, str],
) -> str:
    """Return the folder here of a checkpoint elsewhere: the same path, or the same place in this
    package.

    Raises `SetupError`, naming the file, unless every file that is loaded has the same content.
    This host remembers its own digests by path, size and time, so that weights are read once, not
    once a run.
    """
    local_folder = Path(folder) if embedded is None else PACKAGE / embedded
    host = socket.gethostname()
    missing = next((name for name in digests if not (local_folder / name).is_file()), None)
    if missing is not None:
        raise errors.SetupError(
            f"{local_folder / missing} on {host}: no such file, expected the one where the run "
            "started"
        )
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(user_cache, "pytest-imgedit", "fingerprints.json")
    try:
        names = loaded_files(local_folder, Layout(layout), variant, without)
        local_digests = Digests(cache).of(local_folder, names)
    except errors.UsageError as error:
        raise errors.SetupError(f"{error} (on {host})") from None
    for name in sorted(digests.keys() | local_digests.keys()):
        if digests.get(name) != local_digests.get(name):
            raise errors.SetupError(
                f"{local_folder / name} on {host}: {_describe_content(local_digests.get(name))}, "
                f"expected {_describe_content(digests.get(name))} as where the run started"
            )
    return str(local_folder)


def _describe_content(sha256: str | None) -> str:
    return f"SHA-256 {sha256[:12]}…" if sha256 else "no such file"


def require_file(path: Path, sha256: str) -> None:
    """Raise `SetupError` unless a file here has this content, which it has where the run
    started.
    """
    local_sha256 = digest(path) if path.is_file() else None
    if local_sha256 != sha256:
        raise errors.SetupError(
            f"{path} on {socket.gethostname()}: {_describe_content(local_sha256)}, expected "
            f"{_describe_content(sha256)}"
        )


def _components(folder: Path, layout: Layout) -> list[Path]:
    """Return the folders whose files are loaded together.

    Raises `UsageError` for an adapter beside a model's weights, for a model that requires code of
    its own, and as `_indexed_folders` does for a pipeline.
    """
    components = [folder] if layout is Layout.MODEL else list(_indexed_folders(folder))
    for component in components:
        adapter = component / ADAPTER_CONFIG
        has_model = layout is Layout.MODEL or (component / "config.json").exists()
        if has_model and adapter.exists():  # transformers would change the model by it
            raise errors.UsageError(
                f"{adapter}: an adapter beside a model's weights, expected it in a folder of its "
                "own (editor.loras and judge.adapter name adapters)"
            )
    config = folder / "config.json"
    if layout is Layout.MODEL and "auto_map" in read_object(config, "the config of a model"):
        raise errors.UsageError(
            f"{config}: it requires running code from the checkpoint (auto_map), which is not "
            "allowed"
        )
    return components


def _indexed_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders that a pipeline's model_index.json names; raise `UsageError` if one is
    missing or holds code, or if the file names no pipeline.
    """
    index = read_object(folder / "model_index.json", "a diffusers checkpoint")
    if not isinstance(index.get("_class_name"), str):
        raise errors.UsageError(
            f"{folder / 'model_index.json'}: _class_name is {index.get('_class_name')!r}, "
            "expected the name of a diffusers pipeline (code of the checkpoint is never run)"
        )
    for name, value in index.items():
        library = value[0] if isinstance(value, list) and value else None
        if name.startswith("_") or not isinstance(library, str):
            continue
        component = folder / name
        if is_file(component / f"{library}.py"):
            raise errors.UsageError(
                f"{component / library}.py: code of the checkpoint, expected none: it is never run"
            )
        if not is_folder(component):
            raise errors.UsageError(
                f"{shorten(str(component), 300)}: no such folder, expected the component "
                "that model_index.json names"
            )
        yield component


def used_variant(
    folder: Path, layout: Layout, variant: str | None, without: Sequence[str] = ()
) -> str | None:
    """Return the variant of a pipeline's weights that is loaded, such as `"fp16"`: `variant`, or
    else the only one with weights for all those components that have none without a variant.

    Return `None` where every component has weights without one, and for a single model. Components
    without weights of the variant are loaded without. The components `without` weights to read do
    not count. Raises `UsageError` for a variant that no component has, and where it is left open
    which one of several is meant.
    """
    if layout is Layout.MODEL:
        return None
    every = {path: _variants(path) for path in _components(folder, layout)}
    found = {path: variants for path, variants in every.items() if path.name not in without}
    if variant is not None:
        known = set[str]().union(*every.values())
        if variant not in known:
            others = f"one of {', '.join(sorted(known))}" if known else "no such key"
            raise errors.UsageError(
                f"editor.variant: {folder}: no weights of the variant {variant!r}, expected "
                f"{others}"
            )
        is_used = any(variant in variants for variants in found.values())
        return variant if is_used else None
    needed = {
        path: variants
        for path, variants in found.items()
        if variants and _stored_weights(path, None) is None
    }
    if not needed:
        return None
    common = set.intersection(*needed.values())
    if len(common) != 1:
        listed = "; ".join(
            f"{path.name}: {', '.join(sorted(variants))}" for path, variants in needed.items()
        )
        expected = "editor.variant to name one" if common else "one that all of them have"
        raise errors.UsageError(f"{folder}: weights in variants ({listed}), expected {expected}")
    return common.pop()


def _variants(folder: Path) -> set[str]:
    """Return the variants of a component's weights; none for a component without a config."""
    if not (folder / "config.json").exists():
        return set()
    matches = [_VARIANT_FILE.fullmatch(path.name) for path in folder.iterdir()]
    return {match["file"] or match["index"] for match in matches if match}


def has_variant(folder: Path, variant: str | None) -> bool:
    """Tell whether a component's folder has weights of a variant."""
    return variant in _variants(folder)


def _index_of(name: str, variant: str | None) -> str:
    """Return the name of the index of several files of weights beside which `name` is the one."""
    return f"{name}.index.json" if variant is None else f"{name}.index.{variant}.json"


def weight_files(folder: Path, variant: str | None = None) -> list[Path]:
    """Return the safetensors files that the loader of a model's folder opens, those of the variant
    if there are any; raise `UsageError` if there are none, or if their index names none.
    """
    paths = _stored_weights(folder, variant) or _stored_weights(folder, None)
    if paths is not None:
        return paths
    shards = folders.shards_hint(folder, _is_of_diffusers(folder))
    if shards is not None:
        raise errors.UsageError(f"{folder}: {shards}")
    for path in sorted(folder.iterdir()):
        if path.suffix in PICKLES and path.is_file():
            raise errors.UsageError(
                f"{path}: weights that can run code when they load, expected safetensors"
            )
    raise errors.UsageError(f"{folder}: no weights, expected {' or '.join(_WEIGHTS)}")


def _is_of_diffusers(folder: Path) -> bool:
    """Tell whether the config in a folder is that of a network of diffusers."""
    config = folder / "config.json"
    return config.is_file() and '"_class_name"' in config.read_text("utf-8", "replace")


def _stored_weights(folder: Path, variant: str | None) -> list[Path] | None:
    """Return the files of the weights of one variant, or of none; `None` if there are no such
    files. Raise `UsageError` if their index names none.

    Of one file and the index of several, diffusers takes the index and transformers the one file.
    Each looks for its own name first.
    """
    for name in _WEIGHTS if _is_of_diffusers(folder) else _WEIGHTS[::-1]:
        index = folder / _index_of(name, variant)
        single = folder / name
        if variant is not None:
            single = single.with_suffix(f".{variant}{single.suffix}")
        has_index = os.path.lexists(index)
        is_before_index = name == _TRANSFORMERS_WEIGHTS
        # a dead link stands for weights: what reads them says where it leads
        if os.path.lexists(single) and (is_before_index or not has_index):
            return [single]
        if has_index:
            return [folder / shard for shard in _shards(index)]
    return None


def _shards(index: Path) -> list[str]:
    """Return the distinct file names in an index of weights; raise `UsageError` if it has no
    `weight_map` of file names.
    """
    names = read_object(index, "an index of weights").get("weight_map")
    if isinstance(names, dict) and all(isinstance(shard, str) for shard in names.values()):
        return sorted(set(names.values()))
    raise errors.UsageError(f"{index}: no 'weight_map', expected file names by tensor")


def loaded_bytes(entry: strict_json.JsonObject, dtype: str, *, is_quantized: bool = False) -> int:
    """Return the bytes that a tensor, by its entry in a header, takes at least where it is loaded
    as `dtype`: float32, or any other for two bytes a value. A quantised model keeps its float8.
    """
    size = safetensors_header.stored_bytes(entry)
    if entry["dtype"] == "F32" and dtype != "float32":
        return size // 2
    if quantized.is_float8(entry) and not is_quantized:
        return size * (4 if dtype == "float32" else 2)
    return size


@dataclass
class Digests:
    """SHA-256 of what models are made of.

    `cache` is the file that remembers digests by path, size and times, so that weights are read
    once, not once a run. `sent` are the digests, by path, of files that workers on other hosts must
    find the same.
    """

    cache: Path
    sent: dict[str, str] = field(default_factory=dict)

    def of(self, folder: Path, names: Sequence[str], *, is_sent: bool = False) -> dict[str, str]:
        """Return the digests of files by their names relative to `folder`; links are followed. If
        `is_sent`, add them to `sent`.

        Raises `UsageError`, naming the file, for one that cannot be read.
        """
        stop = threading.Event()
        with _locked(self.cache), ThreadPoolExecutor(HASHERS) as pool:
            cached = self._remembered()
            look_up = partial(_stamp_and_digest, cached=cached, stop=stop)
            try:
                stamped = list(pool.map(look_up, [folder / name for name in names]))
            except OSError as error:
                raise _unreadable(folder, error) from error
            finally:
                stop.set()  # after Ctrl-C the other threads end at once
            # a stamp without times is that of a file that is named by its digest
            remembered = {stamp: sha256 for stamp, sha256 in stamped if ":" in stamp} | cached
            if remembered != cached:
                with suppress(OSError):  # it saves time only
                    write_json(self.cache, remembered)
        digests = {name: sha256 for name, (_, sha256) in zip(names, stamped, strict=True)}
        if is_sent:
            self.sent |= {str(Path(folder, name)): sha256 for name, sha256 in digests.items()}
        return digests

    def _remembered(self) -> strict_json.JsonObject:
        """Return the digests in the cache, by stamp; a damaged cache costs only the time to hash
        again.
        """
        with suppress(errors.UsageError):
            return read_object(self.cache, "a cache of digests")
        return {}

    def resolved(self, value: Any) -> Any:
        """Return the canonical form of a parameter, with the digests of each file and folder in
        place of its name, in lists and tables too; they are added to `sent`.
        """

        def content_of(text: str) -> Any:
            if not text or not _names_data(text, self.cache):
                return text
            return {"content": self.of(Path(text), _files_below(Path(text)), is_sent=True)}

        return canonical(value, content_of)


@dataclass
class KnownDigests(Digests):
    """The digests that are known without reading a file; it `lacks` some if others were asked for,
    which are left out.
    """

    lacks: bool = False

    def of(self, folder: Path, names: Sequence[str], *, is_sent: bool = False) -> dict[str, str]:
        cached = self._remembered()
        try:
            found = {name: _look_up(folder / name, cached)[1] for name in names}
        except OSError as error:
            raise _unreadable(folder, error) from error
        known = {name: sha256 for name, sha256 in found.items() if sha256 is not None}
        self.lacks = self.lacks or len(known) < len(found)
        return known


def _unreadable(folder: Path, error: OSError) -> errors.UsageError:
    """Return the error about a file in a folder that the system does not read."""
    return errors.UsageError(
        f"{error.filename or folder}: {error.strerror}, expected a readable file"
    )


def canonical(value: Any, of_text: Callable[[str], Any] = lambda text: text) -> Any:
    """Return a parameter with whole floats as integers, so that 4 and 4.0 are the same, tuples as
    lists, and `of_text(text)` for each text.
    """
    if isinstance(value, dict):
        return {name: canonical(inner, of_text) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(inner, of_text) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return of_text(value)
    return value


def _names_data(text: str, cache: Path) -> bool:
    """Tell whether a text names an existing file or folder, other than one that holds the cache of
    digests. A path without a last name, such as `.`, `..` or `/`, does not.
    """
    try:
        path = Path(text)
        return (
            path.name not in ("", "..")
            and path.exists()
            and not cache.resolve().is_relative_to(path.resolve())
        )
    except (OSError, ValueError, RuntimeError):  # too long, with a NUL, or a loop of links: no path
        return False


def _files_below(folder: Path) -> list[str]:
    """Return the names, relative to a folder, of all files below it that are not hidden, nor in
    hidden folders; links are followed, but no folder is visited twice. For a file, return `.`.
    """
    if folder.is_file():
        return ["."]
    paths: list[Path] = []
    seen = {folder.resolve()}
    for parent, subfolders, names in os.walk(folder, followlinks=True):
        visible = [name for name in sorted(subfolders) if not name.startswith(".")]
        real_paths = {name: Path(parent, name).resolve() for name in visible}
        subfolders[:] = [name for name, real in real_paths.items() if real not in seen]
        seen.update(real_paths.values())
        paths += [Path(parent, name) for name in names if not name.startswith(".")]
    return sorted(str(path.relative_to(folder)) for path in paths if path.is_file())


def _look_up(path: Path, cached: strict_json.JsonObject) -> tuple[str, str | None]:
    """Return a stamp that changes whenever the content of a file does, and the file's SHA-256 as
    `cached` holds it for the stamp, `None` if it does not.

    The stamp of a file that the hub's cache names by its SHA-256 is its path.
    """
    real = path.resolve()
    is_in_hub_cache = real.match("models--*/blobs/*") or real.match("datasets--*/blobs/*")
    if is_in_hub_cache and re.fullmatch("[0-9a-f]{64}", real.name):  # large files are named by it
        return str(real), real.name
    status = real.stat()
    stamp = f"{real}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
    return stamp, cached.get(stamp)


def _stamp_and_digest(
    path: Path, cached: strict_json.JsonObject, stop: threading.Event
) -> tuple[str, str]:
    """Return the stamp of a file, and its SHA-256 as `_look_up` finds it, or else computed until
    `stop` is set.
    """
    stamp, sha256 = _look_up(path, cached)
    return stamp, sha256 or digest(path.resolve(), stop)


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """Hold the lock of a cache of digests, so that other processes of this host wait and then find
    them there; where no lock can be had, do without.
    """
    with ExitStack() as stack:
        with suppress(OSError, locks.Held):
            cache.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locks.held(cache.with_name(f".{cache.name}.lock")))
        yield
