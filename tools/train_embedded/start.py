"""What both trainings begin with: options, config, seeds, tokenizers."""

from __future__ import annotations

import argparse
import random
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pytest_imgedit.scenes import WEIGHTS
from tools.train_embedded.records import LANGUAGES, as_pair, make_scenes
from tools.train_embedded.text import Texts


@dataclass(frozen=True)
class Start:
    """How a training was called; `stop_at` is in seconds of `time.monotonic`, `editor` is the
    judge's alone.
    """

    work: Path
    out: Path
    editor: Path | None
    config: dict[str, Any]
    stop_at: float
    device: str


def start(name: str, description: str | None) -> Start:
    """Read the command line of the training `name` and its config, and set the seeds and number
    formats.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--work", type=Path, required=True, help="folder of checkpoints and logs")
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name(f"{name}.toml"))
    parser.add_argument(
        "--minutes", type=float, default=1e9, help="stop after this time, with a checkpoint"
    )
    parser.add_argument(
        "--out", type=Path, default=WEIGHTS / name, help="where the weights go when it is done"
    )
    if name == "judge":
        parser.add_argument(
            "--editor", type=Path, default=WEIGHTS / "editor", help="editor whose edits are graded"
        )
    options = parser.parse_args()
    if not options.config.is_file():
        parser.error(f"--config {options.config}: no such file")
    if options.out.exists() and not any(
        (options.out / file).exists() for file in ("model_index.json", "config.json")
    ):
        parser.error(
            f"--out {options.out}: holds no model, expected a folder that may be replaced by one"
        )
    config = tomllib.loads(options.config.read_text())
    torch.manual_seed(config["seed"])
    random.seed(config["seed"])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    stop_at = time.monotonic() + 60 * options.minutes
    return Start(
        options.work, options.out, getattr(options, "editor", None), config, stop_at, device
    )


def load_texts(folder: Path) -> Texts:
    """Load the tokenizers that a folder holds, or train them on 3,000 scenes and their variants,
    always the same.
    """
    if not (folder / "editor").exists():
        scenes = [make_scenes(0, number) for number in range(3000)]
        pairs = [
            as_pair(scene, category, language)
            for category, *both in scenes
            for scene in both
            for language in LANGUAGES
        ]
        Texts.train(pairs).save(folder)
    return Texts.load(folder)
