"""What a few-step adapter saves: seconds and peak memory of an edit by steps and guidance.

    python perf/few_steps.py --models /dev/shm/models
    python perf/few_steps.py --tiny

One GPU, Qwen-Image-Edit of random weights at full size, 1024 x 1024. The base makes 50 steps with
classifier-free guidance 4. With an adapter of the form of Qwen-Image-Lightning (rank 64, alpha 8,
on the linear layers of every block) and its schedule, it makes 8 and 4 steps without guidance. Each
is measured eagerly and compiled, on sources of two shapes. The first edit of each shape is not
counted; the median of the next three is. A repeat must be equal. Once an editor is warm, what would
be compiled again ends the script.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from checkpoints import build, picture
from diffusers import QwenImageTransformer2DModel
from harness import finish, parser, scratch, table
from safetensors.torch import save_file

from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.compute import acceleration
from pytest_imgedit.kinds.diffusers import DiffusersEditor

SHAPES = ((1024, 1024), (1344, 768))
RANK = 64
ALPHA = 8.0
#: How Qwen-Image-Lightning's own script differs from the schedule of Qwen-Image-Edit.
SCHEDULER = {"base_shift": 1.0986122886681098, "max_shift": 1.0986122886681098} | {
    "shift_terminal": "none"
}
BASE: dict[str, Any] = {"true_cfg_scale": 4.0, "negative_prompt": " ", "num_inference_steps": 50}
FEW: dict[str, Any] = {"true_cfg_scale": 1.0, "scheduler": SCHEDULER}


def write_adapter(model: Path, path: Path) -> int:
    """Write an adapter for every linear layer of a Qwen-Image-Edit's blocks, in the names of
    Qwen-Image-Lightning; return how many layers it has.
    """
    config = json.loads((model / "transformer" / "config.json").read_text("utf-8"))
    with torch.device("meta"):
        network = QwenImageTransformer2DModel.from_config(config)
    torch.manual_seed(1)
    tensors: dict[str, torch.Tensor] = {}
    for name, layer in network.named_modules():
        if isinstance(layer, torch.nn.Linear) and name.startswith("transformer_blocks."):
            down = torch.randn(RANK, layer.in_features, dtype=torch.bfloat16) * 0.01
            up = torch.randn(layer.out_features, RANK, dtype=torch.bfloat16) * 0.01
            tensors[f"{name}.lora_down.weight"] = down
            tensors[f"{name}.lora_up.weight"] = up
            tensors[f"{name}.alpha"] = torch.tensor(ALPHA)
    save_file(tensors, path)
    return len(tensors) // 3


def request(number: int, tiny: bool) -> EditRequest:
    """A request with a source of one of the shapes."""
    width, height = SHAPES[number]
    if tiny:
        width, height = width // 4, height // 4
    source = picture(number, width, height)
    return EditRequest(f"shape-{number}", "default", "make it snow", source, seed=1)


def measure(editor: DiffusersEditor, asked: EditRequest) -> dict[str, float]:
    """Edit four times; return seconds and GiB. Raise `SystemExit` for a repeat that differs."""
    seconds: list[float] = []
    edits: list[torch.Tensor] = []
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    for _ in range(4):
        started = time.perf_counter()
        edits.append(editor.adapter.edited(editor.run(asked, "pt")).cpu())
        seconds.append(time.perf_counter() - started)
    if not all(edit.equal(edits[0]) for edit in edits):
        raise SystemExit(f"{asked.pair_id}: a repeat differs")
    peak = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
    return {
        "first_s": seconds[0],
        "seconds": statistics.median(seconds[1:]),
        "gib": peak,
    }


def rows_of(
    name: str, params: dict[str, Any], options: argparse.Namespace, compiles: bool
) -> list[dict[str, Any]]:
    """Measure one way of editing with sources of each shape."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    small = {"area": 256 * 256} if options.tiny else {}
    started = time.perf_counter()
    editor = DiffusersEditor(
        str(options.models / "editor"), device=device, compile=compiles, **params, **small
    )
    editor.self_check()
    loaded = time.perf_counter() - started
    # What fits no graph of a warm editor fails here, where a run computes it eagerly.
    acceleration.frozen_graphs = lambda: torch.compiler.set_stance("fail_on_recompile")
    rows: list[dict[str, Any]] = []
    for number, shape in enumerate(SHAPES):
        row = {"editing": name, "compiled": compiles, "shape": shape, "loading_s": loaded}
        rows.append(row | measure(editor, request(number, options.tiny)))
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--eager", action="store_true", help="also without compiling")
    options = described.parse_args()
    with scratch(options) as folder:
        if not (options.models / "editor").exists():
            build(options.models, ["editor"], options.tiny)
        adapter = Path(folder, "Lightning-shaped.safetensors")
        layers = write_adapter(options.models / "editor", adapter)
        few = FEW | {"loras": [{"path": str(adapter)}]}
        ways = {
            "base, 50 steps, CFG 4": BASE,
            "adapter, 8 steps, CFG 1": few | {"num_inference_steps": 8},
            "adapter, 4 steps, CFG 1": few | {"num_inference_steps": 4},
            "base, 4 steps, CFG 1": {"true_cfg_scale": 1.0, "num_inference_steps": 4},
        }
        rows: list[dict[str, Any]] = []
        for compiles in (False, True) if options.eager else (True,):
            for name, params in ways.items():
                rows += rows_of(name, params, options, compiles)
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
    table(
        ("editing", "compiled", "size", "seconds", "first edit, s", "peak memory, GiB"),
        [
            (
                row["editing"],
                "yes" if row["compiled"] else "no",
                "x".join(map(str, row["shape"])),
                f"{row['seconds']:.2f}",
                f"{row['first_s']:.2f}",
                f"{row['gib']:.1f}",
            )
            for row in rows
        ],
    )
    finish(options, {"layers": layers, "rows": rows})


if __name__ == "__main__":
    main()
