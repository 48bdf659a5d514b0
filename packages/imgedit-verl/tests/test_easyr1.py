"""The editor as a worker of EasyR1, whose environment need not agree with the editor's; see
easyr1/.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from imgedit_verl.config import ImageEditConfig
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
    import json

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


def test_a_trainers_config_is_read_where_it_has_the_editor() -> None:
    table = {"model_path": "m", "batch_size": 2}
    for config in (table, {"image_edit": table}, {"worker": {"image_edit": table}, "trainer": {}}):
        assert ImageEditConfig.of(config) == ImageEditConfig("m", batch_size=2)
    with pytest.raises(
        ValueError, match=r"worker\.image_edit\.batches: no such key, expected one of batch_size"
    ):
        ImageEditConfig.of({"model_path": "m", "batches": 2})
