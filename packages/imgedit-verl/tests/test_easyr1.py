"""The editor as a worker of EasyR1, whose environment need not agree with the editor's; see
easyr1/.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from imgedit_verl.config import Asked, ImageEditConfig
from PIL import Image
from waiting import wait_until

from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.scenes import WEIGHTS

EASYR1 = Path(__file__).parent / "easyr1"
#: What each rank of a worker group does: what the group's dispatch would have it do.
RANK = """
import json, os, sys
from pathlib import Path
import numpy as np
from PIL import Image
from verl import __version__
from verl.protocol import DataProto
from verl.single_controller.base.decorator import MAGIC_ATTR, Dispatch
from imgedit_verl.worker import ImageEditWorker

assert __version__ == "0.3.3.dev0"
folder, config = Path(sys.argv[1]), json.loads(sys.argv[2])
mode = lambda method: getattr(method, MAGIC_ATTR)["dispatch_mode"]
assert mode(ImageEditWorker.init_model) == Dispatch.ONE_TO_ALL
assert mode(ImageEditWorker.edit_images_batch) == Dispatch.DP_COMPUTE_PROTO
worker = ImageEditWorker({"trainer": {}, "worker": {"image_edit": config}})
worker.init_model()
sources = np.empty(4, dtype=object)
sources[:] = [Image.open(folder / f"source-{n}.png") for n in range(3)] + ["no image"]
data = DataProto(
    non_tensor_batch={
        "preliminary_edited_images": sources,
        "re_edit_instructions": np.array(["make it red", "x", "rain", "y"], dtype=object),
    },
    meta_info={"seed": 7},
).chunk(worker.world_size)[worker.rank]
edited = worker.edit_images_batch(data).non_tensor_batch
for n, (image, error) in enumerate(zip(edited["final_edited_images"], edited["edit_errors"])):
    place = worker.rank * len(data) + n
    if image is None:
        (folder / f"error-{place}.txt").write_text(error)
    else:
        image.save(folder / f"edit-{place}.png")
heavy = {"torch", "diffusers", "transformers"} & set(sys.modules)
assert not heavy, heavy
if sys.argv[3:] == ["die"]:
    os._exit(0)
"""


def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def start(
    folder: Path, ranks: int, *arguments: str, **config: object
) -> list[subprocess.Popen[str]]:
    """Start the ranks of a worker group in the trainer's environment."""
    told = {
        "model_path": str(WEIGHTS / "editor"),
        "num_inference_steps": 3,
        "editor_python": sys.executable,
        **config,
    }
    shared = {
        **os.environ,
        "MARK": str(folder),
        **{"PYTHONPATH": str(EASYR1), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port())},
        **{"WORLD_SIZE": str(ranks), "LOCAL_RANK": "0", "OMP_NUM_THREADS": "1"},
    }
    return [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(folder), json.dumps(told), *arguments],
            env={**shared, "RANK": str(rank)},
            text=True,
            stderr=subprocess.PIPE,
        )
        for rank in range(ranks)
    ]


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    ends = [process.communicate(timeout=180)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), ends
    return ends


def editors_of(folder: Path) -> list[psutil.Process]:
    """Processes of editors whose trainers worked in a folder."""
    left = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_editor = "imgedit_verl.process import serve" in " ".join(process.cmdline())
            if is_editor and process.environ().get("MARK") == str(folder):
                left.append(process)
    return left


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for n in range(3):
        pixels = np.random.default_rng(n).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((128, 128)).save(tmp_path / f"source-{n}.png")
    return tmp_path


@pytest.mark.parametrize("config", [{"batch_size": 2}, {"enable_fsdp": False}])
def test_two_ranks_edit_in_the_editors_own_environment(
    sources: Path, config: dict[str, object]
) -> None:
    finish(start(sources, 2, **config))
    editor = DiffusersEditor(str(WEIGHTS / "editor"), device="cpu", num_inference_steps=3)
    for n, words in enumerate(("make it red", "x", "rain")):
        expected = editor.edit(
            EditRequest("a", "b", words, Image.open(sources / f"source-{n}.png"), 7)
        )
        made = Image.open(sources / f"edit-{n}.png")
        assert (
            np.abs(np.asarray(made, int) - np.asarray(expected, int)).max() <= 2
        )  # shards round differently
    assert (sources / "error-3.txt").read_text() == "TypeError: an image that is a str"


def test_an_editor_that_does_not_load_is_named(sources: Path) -> None:
    (process,) = start(sources, 1, model_path="/no/such/model")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "RuntimeError: " in errors.splitlines()[-1]
    assert "/no/such/model" in errors


def test_an_interpreter_that_ends_is_named(sources: Path) -> None:
    (process,) = start(sources, 1, editor_python="/bin/false")
    _, errors = process.communicate(timeout=60)
    assert "the editor's process (/bin/false) ended with exit status 1" in errors.splitlines()[-1]


def test_the_editors_process_ends_with_the_trainers(sources: Path) -> None:
    (process,) = start(sources, 1, "die", enable_fsdp=False)
    finish([process])
    wait_until(lambda: not editors_of(sources))


@dataclass
class _Worker:
    image_edit: object


@dataclass
class _Trainer:
    worker: object


def test_a_trainers_config_is_read_where_it_has_the_editor() -> None:
    table = {"model_path": "m", "batch_size": 2}
    for editor in (table, SimpleNamespace(**table), ImageEditConfig("m", batch_size=2)):
        for config in (
            editor,
            {"image_edit": editor},
            {"worker": {"image_edit": editor}, "trainer": {}},
            _Trainer(_Worker(editor)),
            SimpleNamespace(worker=_Worker(editor), trainer=None),
        ):
            assert ImageEditConfig.of(config) == ImageEditConfig("m", batch_size=2)


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"model_path": "m", "batches": 2}, r"\.batches: no such key, expected one of batch_size"),
        (_Trainer({"actor": {}}), ": not in the trainer's config, expected the keys of Image"),
        ({"image_edit": None}, ": found None, expected a table, a dataclass or an object"),
        ({"batch_size": 2}, r"\.model_path: missing, expected a folder or a hub id"),
    ],
)
def test_a_config_without_what_the_editor_needs_is_named(config: object, line: str) -> None:
    with pytest.raises(ValueError, match=rf"^worker\.image_edit{line}"):
        ImageEditConfig.of(config)


#: Texts of the documents that asked for this worker.
CONFIG = """
worker:
  image_edit:
    model_path: "Qwen/Qwen-Image-Edit"
    enable_fsdp: true
    fsdp_sharding_strategy: "FULL_SHARD"
    fsdp_cpu_offload: true
    batch_size: 2
    image_size: 1024
    true_cfg_scale: 4.0
    num_inference_steps: 50
"""


def train(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the trainer's command, which makes the worker and prints its config."""
    (folder / "config.yaml").write_text(CONFIG)
    return subprocess.run(
        [sys.executable, "-m", "verl.trainer.main", "config=config.yaml", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(EASYR1), "RANK": "0", "WORLD_SIZE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_trainers_command_sets_keys_of_the_editor(tmp_path: Path) -> None:
    done = train(tmp_path, "worker.image_edit.enable_fsdp=false", "worker.image_edit.batch_size=4")
    assert json.loads(done.stdout) == asdict(
        ImageEditConfig(
            "Qwen/Qwen-Image-Edit",
            enable_fsdp=False,
            fsdp_cpu_offload=True,
            batch_size=4,
            image_size=1024,
            true_cfg_scale=4.0,
            num_inference_steps=50,
        )
    )
    assert (
        "Key 'batches' not in 'ImageEditConfig'"
        in train(tmp_path, "worker.image_edit.batches=2").stderr
    )


def test_a_hub_id_that_is_not_here_is_one_line(sources: Path) -> None:
    (process,) = start(sources, 1, model_path="Qwen/Qwen-Image-Edit")
    _, errors = process.communicate(timeout=120)
    assert (
        "model 'Qwen/Qwen-Image-Edit': not a local folder, and not available on the Hub: "
        in errors.splitlines()[-1]
    )


def test_an_image_that_no_editor_takes_is_a_failed_edit() -> None:
    assert Asked.read(Image.new("RGB", (4, 4)), "x").problem == (
        "ImageError: image of 4x4 pixels, expected sides of at least 8"
    )
