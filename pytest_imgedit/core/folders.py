"""Folders of other tools that are given instead of a model or a suite's data: entries of the hub's
cache, states of trainers, data sets in Arrow.
"""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pytest_imgedit.core.shards import shards_below, step_of
from pytest_imgedit.core.text import first_of

_ENTRY = re.compile(r"(models|datasets|spaces)--(.+)")
_PARTS = ("snapshots", "blobs", "refs")
#: What trainers save to go on from, by patterns of names.
_STATES = (
    "optimizer.bin",
    "optimizer.pt",
    "scheduler.bin",
    "random_states_*.pkl",
    "rng_state*.pth",
    "trainer_state.json",
    "optimizer_*",
    "pytorch_model_fsdp_*",
    "*.distcp",
    "zero_to_fp32.py",
    "global_step*",
    "distributed_checkpoint",
    "model_world_size_*_rank_*.pt",
    "*_model_states.pt",
    "pytorch_model_fsdp.bin",
    "common.pt",
)
#: What the package datasets writes beside the data.
_INFO = "dataset_info.json"
#: The most files and folders that are looked at below a folder.
_MOST_SEEN = 10_000
#: What pipelines call a network, by a part of the name of its class.
_COMPONENTS = (("Transformer", "transformer"), ("UNet", "unet"), ("Autoencoder", "vae"))
_LORA = ("pytorch_lora_weights.safetensors", "adapter_model.safetensors")


@dataclass(frozen=True, slots=True)
class HubEntry:
    """The entry of a repository, such as `models--ORG--NAME`, in the cache of the Hugging Face
    hub.
    """

    folder: Path

    @property
    def repository(self) -> str:
        return self.folder.name.partition("--")[2].replace("--", "/")

    @property
    def is_model(self) -> bool:
        return self.folder.name.startswith("models--")

    @property
    def download(self) -> str:
        """The command that fetches what the entry lacks."""
        kind = self.folder.name.partition("s--")[0]
        return f"hf download {self.repository}{'' if self.is_model else f' --repo-type {kind}'}"

    @property
    def newest(self) -> Path | None:
        """The snapshot of `refs/main`, or else the one that changed last; `None` if there is
        none.
        """
        snapshots = self.folder / "snapshots"
        with suppress(OSError, ValueError):
            main = snapshots / (self.folder / "refs" / "main").read_text("utf-8").strip()
            if main.parent == snapshots and main.is_dir():
                return main
        return max(_folders(snapshots), key=lambda path: path.stat().st_mtime_ns, default=None)


def hub_entry(path: Path) -> HubEntry | None:
    """Return the entry of the hub's cache that a path is, or lies in; `None` for any other path."""
    place = path.absolute()
    for folder in (place, *place.parents):
        if _ENTRY.fullmatch(folder.name):
            return HubEntry(folder)
    return None


def hub_cache_hint(folder: Path) -> str | None:
    """Return what a folder is, and which snapshot to give instead, if it is the hub's cache, an
    entry of it, or a part of an entry; `None` for any other folder, also for a snapshot.
    """
    entry = hub_entry(folder)
    if entry is None:
        inside = [path for path in _folders(folder) if _ENTRY.fullmatch(path.name)]
        if not inside:
            return None
        names = first_of([path.name for path in inside])
        return f"the cache of the hub with {names}, expected a snapshot of one: DIR/snapshots/HASH"
    parts = folder.absolute().relative_to(entry.folder).parts
    if parts and not (len(parts) == 1 and parts[0] in _PARTS):
        return None
    if not any((entry.folder / name).is_dir() for name in _PARTS):
        return None  # a folder of the user's own that is called so
    newest = entry.newest
    found = f"the entry of {entry.repository} in the hub's cache"
    if newest is None:
        return f"{found}, without a snapshot: {entry.download} fetches one"
    return f"{found}, expected its snapshot {newest}"


def trainer_hint(folder: Path, is_pipeline: bool) -> str | None:
    """Return what a folder is, and what to give instead, if it holds an adapter, a trainer's state
    or shards, or what the model is not: where it `is_pipeline`, one network or a folder of
    checkpoints, and else a pipeline. `None` for any other folder.
    """
    main = "model_index.json" if is_pipeline else "config.json"
    class_name = _class_name(folder)
    if is_pipeline and class_name:
        return shards_hint(folder, is_pipeline) or _network(folder, class_name)
    for name in _LORA:
        if (folder / name).is_file():
            setting = f"judge.adapter={folder}"
            if is_pipeline:
                setting = f"editor.loras names {folder}"
            return f"an adapter, expected the model that it was trained on, and {setting}"
    networks = [
        path.name
        for path in _folders(folder)
        if _class_name(path) and not path.name.endswith("_ema")
    ]
    if any(any(folder.glob(pattern)) for pattern in _STATES):
        return _state(folder, networks, is_pipeline)
    if is_pipeline and networks:
        return (
            f"{' and '.join(networks)} without model_index.json, expected a whole pipeline: "
            f"{_put_in_place([(name, folder / name) for name in networks])}"
        )
    inside = [path for path in _folders(folder) if (path / main).is_file()]
    if is_pipeline and inside:
        names = first_of([str(path) for path in sorted(inside, key=step_of)[::-1]])
        return f"a folder of checkpoints, expected one of them: {names}"
    if not is_pipeline and (folder / "model_index.json").is_file():
        return "a diffusers pipeline, expected the folder of one model with config.json"
    return shards_hint(folder, is_pipeline)


def shards_hint(folder: Path, is_pipeline: bool) -> str | None:
    """Return what the shards of a trainer in a folder, or below it, are and the command that merges
    them into one model; `None` if there are none.
    """
    shards = shards_below(folder, is_pipeline)
    if shards is None:
        return None
    place = "" if shards.folder == folder else f" in {shards.folder}"
    return f"{shards.found}{place}, expected what save_pretrained writes: {shards.remedy}"


def _network(folder: Path, class_name: str) -> str:
    """Return what to give instead of a network of diffusers: its pipeline, or how to make one."""
    if (folder.parent / "model_index.json").is_file():
        return f"the component {folder.name} of a pipeline, expected the pipeline: {folder.parent}"
    parts = [name for part, name in _COMPONENTS if part in class_name]
    component = parts[0] if parts else folder.name
    return (
        f"a {class_name} alone, expected a whole pipeline: {_put_in_place([(component, folder)])}"
    )


def _put_in_place(networks: Sequence[tuple[str, Path]]) -> str:
    """Return the commands that make a pipeline of the one that was trained, by links to its files,
    and networks in the place of its own.
    """
    commands = ["cp -rs BASE NEW"]
    for name, folder in networks:
        commands.append(f"rm -r NEW/{name}")
        commands.append(f"cp -r {shlex.quote(str(folder))} NEW/{name}")
    return f"{' && '.join(commands)}, where BASE is the absolute path of the one that was trained"


def _state(folder: Path, networks: list[str], is_pipeline: bool) -> str:
    """Return what to give instead of a trainer's state, which may hold shards, or `networks` in
    folders of these names.
    """
    main = "model_index.json" if is_pipeline else "config.json"
    found = f"the state of a trainer without {main}"
    hint = shards_hint(folder, is_pipeline)
    if hint is not None:
        return f"{found}: {hint}"
    if networks:
        return (
            f"{found}, expected a whole pipeline: "
            f"{_put_in_place([(name, folder / name) for name in networks])}"
        )
    if (folder.parent / main).is_file():
        return f"{found}, expected what the trainer saved at its end: {folder.parent}"
    return f"{found}, expected a model that was saved with save_pretrained"


def arrow_hint(folder: Path) -> str | None:
    """Return what a folder is that the package datasets wrote, and how to make parquet of it;
    `None` for any other folder.
    """
    splits = [path.name for path in _folders(folder) if _is_saved(path)]
    load = f"load_from_disk({str(folder)!r})"
    if (folder / "dataset_dict.json").is_file() or splits:
        split = splits[0] if splits else "SPLIT"
        load = f"{load}[{split!r}]"
        found = "data sets as save_to_disk writes them"
    elif _is_saved(folder):
        found = "a data set as save_to_disk writes it"
    elif any((path.parent / _INFO).is_file() for path in _first_below(folder, ".arrow")):
        found = "a data set in Arrow, as the cache of the package datasets has it"
        load = "load_dataset(NAME, split=SPLIT)"
    else:
        return None
    return f"{found}, expected parquet: {load}.to_parquet('data.parquet') in Python makes it"


def _is_saved(folder: Path) -> bool:
    return (folder / "state.json").is_file() and (folder / _INFO).is_file()


def _first_below(folder: Path, suffix: str) -> Iterator[Path]:
    """Yield the paths with a suffix among the first `_MOST_SEEN` ones below a folder, which may be
    a whole disk; none from where a folder cannot be read.
    """
    with suppress(OSError):
        yield from (path for path in islice(folder.rglob("*"), _MOST_SEEN) if path.suffix == suffix)


def _class_name(folder: Path) -> str | None:
    """Return the class of the network of diffusers in a folder; `None` for any other folder."""
    path = folder / "config.json"
    with suppress(OSError, ValueError, RecursionError, AttributeError):
        name = json.loads(path.read_text("utf-8")).get("_class_name") if path.is_file() else None
        if isinstance(name, str) and name.isidentifier():
            return name[:80]
    return None


def _folders(folder: Path) -> Iterator[Path]:
    """Yield the folders below one, in order; none where it cannot be read."""
    with suppress(OSError):
        yield from sorted(path for path in folder.iterdir() if path.is_dir())
