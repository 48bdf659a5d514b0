"""What several source images cost: seconds and peak memory of an edit by the number of sources.

    python perf/several_sources.py --models /dev/shm/models
    python perf/several_sources.py --tiny

One GPU, random weights at full size: Qwen-Image-Edit-Plus (classifier-free guidance 4) and FLUX.2
klein of 9B, with pairs of one source, of two and of more, of unlike shapes. Each is edited three
times, the first time unseen; the median of the other two counts. Edits of a repeat must be equal,
and each has the shape of its first source. Qwen-Image-Edit-Plus is measured eagerly and compiled.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from checkpoints import build, picture
from harness import finish, parser, scratch, table

from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.edit_checks import is_reframed

#: Width and height of the sources, in their order.
SHAPES = ((1344, 768), (832, 1248), (1024, 1024), (1600, 640), (768, 1344), (1152, 896))
#: The measured editors: checkpoint, parameters of the call, whether it is compiled.
EDITORS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "Qwen-Image-Edit-Plus": (
        "plus",
        {"true_cfg_scale": 4.0, "negative_prompt": " ", "num_inference_steps": 10},
        False,
    ),
    "Qwen-Image-Edit-Plus, compiled": (
        "plus",
        {"true_cfg_scale": 4.0, "negative_prompt": " ", "num_inference_steps": 10},
        True,
    ),
    "FLUX.2 klein 9B": ("klein", {"num_inference_steps": 4}, False),
}


def request(sources: int, tiny: bool) -> EditRequest:
    """A request with so many sources."""
    shapes = [(width // 4, height // 4) if tiny else (width, height) for width, height in SHAPES]
    pictures = [picture(number, *shapes[number]) for number in range(sources)]
    return EditRequest(
        f"of-{sources}",
        "default",
        "put what the images show into the first one",
        pictures[0],
        seed=1,
        further=tuple(pictures[1:]),
    )


def measure(editor: DiffusersEditor, asked: EditRequest) -> dict[str, float]:
    """Edit three times; return seconds and GiB. Raise `SystemExit` for an edit of another shape,
    and for a repeat that differs.
    """
    seconds: list[float] = []
    edits: list[torch.Tensor] = []
    for _ in range(3):
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        edits.append(editor.adapter.edited(editor.run(asked, "pt")).cpu())
        seconds.append(time.perf_counter() - started)
    height, width = edits[0].shape[-2:]
    if is_reframed(asked.source, asked.source.resize((width, height))):
        raise SystemExit(f"{asked.pair_id}: {width}x{height} for {asked.source.size}")
    if not edits[1].equal(edits[2]):
        raise SystemExit(f"{asked.pair_id}: a repeat differs")
    peak = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
    return {
        "first_s": seconds[0],
        "seconds": statistics.median(seconds[1:]),
        "gib": peak,
        "height": height,
        "width": width,
    }


def rows_of(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure one editor with each number of sources until memory runs out."""
    checkpoint, call, compiles = EDITORS[name]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    small = {"area": 256 * 256} if options.tiny else {}
    editor = DiffusersEditor(
        str(options.models / checkpoint), device=device, compile=compiles, **call, **small
    )
    editor.self_check()
    rows: list[dict[str, Any]] = []
    for sources in options.sources:
        row: dict[str, Any] = {"editor": name, "sources": sources}
        try:
            row |= measure(editor, request(sources, options.tiny))
        except torch.cuda.OutOfMemoryError:
            row |= {"error": "memory runs out"}
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--sources", type=int, nargs="*", default=[1, 2, 3, 6])
    described.add_argument("--editors", nargs="*", choices=list(EDITORS), default=list(EDITORS))
    options = described.parse_args()
    with scratch(options):
        names = {EDITORS[name][0] for name in options.editors}
        missing = sorted(name for name in names if not (options.models / name).exists())
        if missing:
            build(options.models, missing, options.tiny)
        rows: list[dict[str, Any]] = []
        for name in options.editors:
            rows += rows_of(name, options)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    table(
        ("editor", "sources", "size", "seconds", "first edit, s", "peak memory, GiB"),
        [
            (
                row["editor"],
                row["sources"],
                row.get("error") or f"{row['width']}x{row['height']}",
                f"{row.get('seconds', 0):.2f}",
                f"{row.get('first_s', 0):.2f}",
                f"{row.get('gib', 0):.1f}",
            )
            for row in rows
        ],
    )
    finish(options, {"rows": rows})


if __name__ == "__main__":
    main()
