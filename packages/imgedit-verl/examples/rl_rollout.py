"""A rollout that edits images, and the reward of each edit, under EasyR1 or verl.

    python rl_rollout.py --editor Qwen/Qwen-Image-Edit \
        --judge qwen-vl:Qwen/Qwen3-VL-30B-A3B-Instruct \
        --python /opt/imgedit/bin/python --gpus 2 photos/*.jpg

An image-editing agent in training writes instructions; here they come from the command line. The
editor is a worker group of the trainer, one rank a GPU. The judge has workers of its own. Both run
in the interpreter `--python`, in which imgedit-verl is installed; the trainer's environment needs
`pip install --no-deps imgedit-verl pytest-imgedit execnet` and the packages without torch that
pytest-imgedit depends on.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import ray
from imgedit_verl.worker import EDITED, ERRORS, IMAGES, INSTRUCTIONS, ImageEditWorker
from PIL import Image
from verl.protocol import DataProto
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

from pytest_imgedit import EditFailed, RewardModel, open_models


def editors(config: dict[str, Any], ranks: int, use_gpu: bool) -> RayWorkerGroup:
    """Start a worker group of editors, which is what a trainer does with its own workers."""
    pool = RayResourcePool(process_on_nodes=[ranks], use_gpu=use_gpu)
    workers = RayClassWithInitArgs(
        ray.remote(ImageEditWorker), config={"worker": {"image_edit": config}}
    )
    group = RayWorkerGroup(pool, workers, **({} if use_gpu else {"device_name": "cpu"}))
    group.init_model()
    return group


def rollout(group: RayWorkerGroup, images: list[Image.Image], instructions: list[str]) -> DataProto:
    """Have images edited; their number is a multiple of the ranks."""
    columns = {IMAGES: images, INSTRUCTIONS: instructions}
    arrays = {name: np.empty(len(values), dtype=object) for name, values in columns.items()}
    for name, values in columns.items():
        arrays[name][:] = values
    edited: DataProto = group.edit_images_batch(DataProto(non_tensor_batch=arrays))
    return edited


def rewards(
    judge: RewardModel, images: list[Image.Image], instructions: list[str], edited: DataProto
) -> list[float | None]:
    """Score edits on [0, 1]; `None`, to be masked in training, where there is no edit or no
    readable verdict.
    """
    made, errors = edited.non_tensor_batch[EDITED], edited.non_tensor_batch[ERRORS]
    asked = {n: (images[n], made[n], instructions[n]) for n in range(len(images)) if not errors[n]}
    # Verdicts are stored, so that asking for each again costs nothing and says which failed.
    with suppress(EditFailed):
        judge.score_batch(list(asked.values()))
    found: list[float | None] = [None] * len(images)
    for n, edit in asked.items():
        try:
            found[n] = judge.score(*edit).score / 10
        except EditFailed as failure:
            print(f"no reward: {failure}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", nargs="+", type=Path)
    parser.add_argument("--instruction", default="make it snow")
    parser.add_argument("--editor", required=True, help="a diffusers checkpoint")
    parser.add_argument("--judge", required=True, help="the spec of a judge")
    parser.add_argument("--python", help="the interpreter of editor and judge")
    parser.add_argument(
        "--gpus", type=int, default=1, help="ranks of the editor; 0: two on the CPU"
    )
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    images = [Image.open(path).convert("RGB") for path in options.images]
    instructions = [options.instruction] * len(images)
    config = {
        "model_path": options.editor,
        "num_inference_steps": options.steps,
        "batch_size": 2,
        "editor_python": options.python,
    }
    if not options.gpus:
        ray.init(num_cpus=64)  # verl counts ten for each worker, used or not
    group = editors(config, options.gpus or 2, options.gpus > 0)
    tables = {"judge": {"spec": options.judge}, "workers": {"judge_python": options.python}}
    with open_models(**tables) as models:
        edited = rollout(group, images, instructions)
        for path, reward in zip(
            options.images, rewards(models.reward_model, images, instructions, edited), strict=True
        ):
            print(f"{path}: {'masked' if reward is None else f'{reward:.3f}'}")


if __name__ == "__main__":
    main()
