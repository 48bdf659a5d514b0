"""Weights that trainers save in one part per process: what such a folder holds, and the command
that makes one model of the parts.
"""

import json
import re
import shlex
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

#: What torch.distributed.checkpoint calls the files of its processes.
_DCP = "*.distcp"
_TO_TORCH = "python -m torch.distributed.checkpoint.format_utils dcp_to_torch"
#: What is said of a file that torch.save wrote.
_PICKLE = ", a pickle"
#: What stands for the model that was trained, in a command that needs it.
_BASE = "where BASE is the one that was trained"
#: The files of verl's processes; beside them, the folder `huggingface` holds a config alone.
_OF_VERL = "model_world_size_*_rank_*.pt"
#: What the names of folders begin with that hold the state of an optimizer in such parts.
_OPTIMIZER = "optim"
#: How deep below a folder shards are looked for (`out/checkpoint-500/pytorch_model_fsdp_0`), and in
#: how many folders of how many entries.
_DEPTH = 3
_MOST_FOLDERS = 200
_MOST_ENTRIES = 1_000


@dataclass(frozen=True, slots=True)
class Shards:
    """Weights in parts in a `folder`: `found` says what they are, `command` merges them, and `then`
    says what that makes and what is to be done with it.
    """

    folder: Path
    found: str
    command: str
    then: str

    @property
    def remedy(self) -> str:
        return f"{self.command} {self.then}"


def shards_in(folder: Path, is_pipeline: bool) -> Shards | None:
    """Return the shards that lie in a folder itself, of a network of a pipeline (`is_pipeline`) or
    of another model; `None` if none do.

    What the tools read and write is told by their own help: `zero_to_fp32.py`, `accelerate
    merge-weights`, `torch.distributed.checkpoint.format_utils`, the model mergers of verl and
    verl-omni, Lightning's `consolidate_checkpoint` and Megatron Bridge.
    """
    is_of_deepspeed = (
        _has(folder, "*_model_states.pt") and (folder.parent / "zero_to_fp32.py").is_file()
    )
    is_of_verl = folder.name == "huggingface" and _has(folder.parent, _OF_VERL)
    if is_of_deepspeed or is_of_verl:
        folder = folder.parent
    here = _quoted(folder)
    out = _beside(folder, "-merged")
    if _has(folder, "zero_to_fp32.py"):
        script = _quoted(folder / "zero_to_fp32.py")
        command = f"python {script} {here} {out} --safe_serialization"
        return Shards(
            folder, "shards of DeepSpeed", command, _then_load(f"safetensors in {out}", is_pipeline)
        )
    if _has(folder, _OF_VERL):
        return _of_verl(folder, is_pipeline)
    if not _has(folder, _DCP):
        return None
    if _has(folder, "common.pt"):
        return _of_megatron(folder, is_pipeline)
    if _has(folder, "meta.pt"):
        command = f"python -m lightning.pytorch.utilities.consolidate_checkpoint {here}"
        made = _beside(folder, ".consolidated")
        return Shards(
            folder, "shards of Lightning", command, _then_load(f"{made}{_PICKLE}", is_pipeline)
        )
    if folder.name.startswith("pytorch_model_fsdp"):
        command = f"accelerate merge-weights {here} {out}"
        made = _beside(folder, "-merged/model.safetensors")
        return Shards(
            folder,
            "shards of FSDP as accelerate writes them",
            command,
            _then_load(made, is_pipeline),
        )
    made = _beside(folder, "-merged.pt")
    found = "shards of torch.distributed.checkpoint"
    return Shards(
        folder, found, f"{_TO_TORCH} {here} {made}", _then_load(f"{made}{_PICKLE}", is_pipeline)
    )


def shards_below(folder: Path, is_pipeline: bool) -> Shards | None:
    """Return the shards in a folder or at most `_DEPTH` levels below it: of several those of the
    last step, by the numbers at the ends of the folders' names; `None` if none are found.
    """
    waiting = deque([(folder, 0)])
    for _ in range(_MOST_FOLDERS):
        if not waiting:
            break
        place, depth = waiting.popleft()
        shards = shards_in(place, is_pipeline)
        if shards is not None:
            return shards
        if depth < _DEPTH:
            inside = sorted(_folders(place), key=lambda path: (-step_of(path), path.name))
            waiting.extend((path, depth + 1) for path in inside)
    return None


def step_of(path: Path) -> int:
    """Return the number at the end of a folder's name, 500 for checkpoint-500; 0 without one."""
    match = re.search(r"(\d{1,18})$", path.name)
    return int(match[1]) if match else 0


def _of_verl(folder: Path, is_pipeline: bool) -> Shards:
    """Return the shards of verl-omni, which trains networks of pipelines, or of verl."""
    out = _beside(folder, "-merged")
    places = f"--backend fsdp --local_dir {_quoted(folder)} --target_dir {out}"
    if is_pipeline:
        command = (
            f"python -m verl_omni.model_merger merge {places} --base_model BASE --trust-checkpoint"
        )
        found = "shards of FSDP as verl-omni writes them"
        return Shards(folder, found, command, f"makes the pipeline {out}, {_BASE}")
    command = f"python -m verl.model_merger merge {places}"
    return Shards(folder, "shards of FSDP as verl writes them", command, f"makes the model {out}")


def _of_megatron(folder: Path, is_pipeline: bool) -> Shards:
    """Return the shards of Megatron; verl has them in a folder of a fixed name."""
    found = "shards of Megatron"
    if folder.name == "dist_ckpt":
        out = _beside(folder.parent, "-merged")
        command = (
            "python -m verl.model_merger merge --backend megatron "
            f"--local_dir {_quoted(folder.parent)} --target_dir {out}"
        )
        return Shards(folder, found, command, f"makes the model {out}")
    if is_pipeline:
        made = _beside(folder, "-merged.pt")
        then = (
            f"makes {made}{_PICKLE} with Megatron's names: the trainer's own exporter maps them to "
            "those of the network"
        )
        return Shards(folder, found, f"{_TO_TORCH} {_quoted(folder)} {made}", then)
    places = json.dumps([str(folder), f"{folder}-merged"])[1:-1]
    code = (
        "from megatron.bridge import AutoBridge; "
        f'AutoBridge.from_hf_pretrained("BASE").export_ckpt({places})'
    )
    then = f"makes the model {_beside(folder, '-merged')}, {_BASE}"
    return Shards(folder, found, f"python -c {shlex.quote(code)}", then)


def _then_load(made: str, is_pipeline: bool) -> str:
    """Return what a command makes, and how that becomes a model; a network of a pipeline is named
    beside the pipeline.
    """
    if not is_pipeline:
        return (
            f"makes {made}: load_state_dict it into the model that was trained, and "
            "save_pretrained that"
        )
    beside = "beside the pipeline that was trained"
    if made.endswith(_PICKLE):
        return (
            f"makes {made}: safetensors.torch.save_file saves its tensors, and editor.single_file "
            f"names that file, {beside}"
        )
    return f"makes {made}: editor.single_file names it, {beside}"


def _beside(folder: Path, suffix: str) -> str:
    """Return what lies beside a folder, named as it is with a suffix, for a shell."""
    return shlex.quote(f"{folder}{suffix}")


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _has(folder: Path, pattern: str) -> bool:
    with suppress(OSError):
        return any(folder.glob(pattern))
    return False


def _folders(folder: Path) -> Iterator[Path]:
    """Yield folders inside a folder that may hold weights; none where it cannot be read."""
    with suppress(OSError):
        for path in islice(folder.iterdir(), _MOST_ENTRIES):
            if path.is_dir() and not path.name.startswith((_OPTIMIZER, ".")):
                yield path
