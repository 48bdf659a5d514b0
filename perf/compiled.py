"""Does a compiled model give one result in every process?

    python perf/compiled.py --models /dev/shm/models --blocks 4
    python perf/compiled.py --kinds editor plus kontext unet judge --processes 12 --at-once 4
    python perf/compiled.py --tiny --kinds editor --processes 2

Each process has caches of its own for PyTorch's compiler and for Triton, which are empty at first.
An editor gives the digest of its first and of its later edits of a fixed request, its probe, and
the digests of two edits of each of three requests, of other sizes, texts and seeds; which of them
comes first differs from process to process. A judge (`judge`) gives its probe and the digests of
the logits of six questions in two batches. `fp8` is the editor in float8. A row counts the
processes and their unlike results; `kernels` lists those whose configuration differs.

With `--speed`, one process then times a step eagerly and compiled, in turns, as it is and with the
compiler's own choice of configurations.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from checkpoints import build, picture
from harness import finish, parser, scratch, table

from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.compute import numerics

SIZES = ((1024, 1024), (832, 1248), (1344, 768))
KINDS = ("editor", "plus", "kontext", "unet", "fp8", "judge")
#: Parameters of a call, by kind.
CALLS: dict[str, dict[str, Any]] = {
    "editor": {"true_cfg_scale": 4.0, "negative_prompt": " "},
    "plus": {"true_cfg_scale": 4.0, "negative_prompt": " "},
    "fp8": {"true_cfg_scale": 4.0, "negative_prompt": " ", "quantize": "fp8"},
}


def folder_of(models: Path, kind: str) -> Path:
    """The checkpoint of a kind."""
    return models / ("editor" if kind == "fp8" else kind)


def digest(values: torch.Tensor) -> str:
    """Name the values of a tensor; `nothing` for one without two different ones."""
    if not values.float().std() > 0:
        return "nothing"
    return numerics.digest(values)


def requests(tiny: bool) -> list[EditRequest]:
    """Three requests of other sizes, texts and seeds."""
    return [
        EditRequest(
            f"r{number}",
            "default",
            "make it brighter" + ", and then some" * (number * 4),
            picture(number, *(64, 48 + 16 * number) if tiny else size),
            seed=number,
        )
        for number, size in enumerate(SIZES)
    ]


def load_editor(model: Path, kind: str, tiny: bool, compiles: bool) -> Any:
    from pytest_imgedit.kinds.diffusers import DiffusersEditor

    call = {"num_inference_steps": 4, **CALLS.get(kind, {})}
    if tiny and kind in ("editor", "plus"):
        call |= {"height": 64, "width": 64}
    if tiny and kind not in ("editor", "plus"):
        call |= {"area": 4096}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return DiffusersEditor(str(model), device=device, compile=compiles, **call)


def edit_in_order(model: Path, kind: str, order: list[int], tiny: bool) -> dict[str, Any]:
    """Load an editor, prove it, and edit each request twice; return digests and graphs."""
    import torch._dynamo.utils

    started = time.perf_counter()
    editor = load_editor(model, kind, tiny, compiles=True)
    loaded = time.perf_counter()
    edited: list[str] = []
    values = editor._values

    def heard(request: EditRequest) -> Any:
        made = values(request)
        edited.append(digest(made))
        return made

    editor._values = heard
    probe = editor.self_check()
    results: dict[str, Any] = {"trials": edited, "probe": probe}
    results["load_s"], results["warm_s"] = loaded - started, time.perf_counter() - loaded
    for number in order:
        request = requests(tiny)[number]
        results[f"size {number}"] = [
            digest(editor.adapter.edited(editor.run(request, "pt"))) for _ in range(2)
        ]
    results["graphs"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return results


def judge_in_batches(model: Path, order: list[int], tiny: bool) -> dict[str, Any]:
    """Load a judge and prove it; return the digests of its logits of six questions."""
    import torch._dynamo.utils
    from invariance import UNEVEN, questions

    from pytest_imgedit.kinds.qwen_vl import QwenVLJudge

    started = time.perf_counter()
    judge = QwenVLJudge(str(model), device="cuda" if torch.cuda.is_available() else "cpu")
    loaded = time.perf_counter()
    results: dict[str, Any] = {"probe": judge.self_check(), "compiled": judge.compiled}
    results["load_s"], results["warm_s"] = loaded - started, time.perf_counter() - loaded
    prompts = [judge.preprocess(question) for question in questions(6, UNEVEN[:3])]
    split = order[0] + 1
    for batch in (range(split), range(split, 6)):
        decoded = judge.decoder.decode([prompts[n] for n in batch], 4, keep_logits=True)
        for n, logits in zip(batch, decoded.logits, strict=True):
            results[f"question {n}"] = [digest(logits[0])]
    results["graphs"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return results


def child(options: argparse.Namespace) -> None:
    """Be one process: print what it computes as a line of JSON."""
    kind, order = options.child, json.loads(options.order)
    model = folder_of(options.models, kind)
    if kind == "judge":
        found = judge_in_batches(model, order, options.tiny)
    else:
        found = edit_in_order(model, kind, order, options.tiny)
    cache = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    found["kernels"] = {}
    for path in cache.rglob("*.best_config"):  # written where a stopwatch chose
        chosen = json.loads(path.read_text())
        found["kernels"][path.stem[:8]] = {
            name: value for name, value in chosen.items() if name.isupper() or name == "num_warps"
        }
    print(json.dumps(found))


def start(options: argparse.Namespace, kind: str, number: int, gpu: int) -> subprocess.Popen[str]:
    """Start one process with empty caches."""
    order = [(number + place) % len(SIZES) for place in range(len(SIZES))]
    caches = Path(tempfile.mkdtemp(dir=options.caches))
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "CUDA_VISIBLE_DEVICES": str(gpu),
    }
    command = [sys.executable, __file__, "--child", kind, "--order", json.dumps(order)]
    command += ["--models", str(options.models), *(["--tiny"] if options.tiny else [])]
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=(caches / "log").open("w"),
        text=True,
    )


def compare(options: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Run the processes of a kind, some at once; return what they have in common and what not."""
    found: list[dict[str, Any]] = []
    failed = 0
    gpus = max(1, torch.cuda.device_count())
    numbers = list(range(options.processes))
    while numbers:
        batch, numbers = numbers[: options.at_once * gpus], numbers[options.at_once * gpus :]
        running = [start(options, kind, number, number % gpus) for number in batch]
        for process in running:
            output, _ = process.communicate()
            lines = output.splitlines()
            if process.returncode or not lines:
                failed += 1
                continue
            found.append(json.loads(lines[-1]))
            one = found[-1]
            print(f"{kind}: probe {one['probe']}, trials {one.get('trials')}", flush=True)
    if failed:
        for log in sorted(options.caches.rglob("log"))[-options.processes :]:
            if "Error" in (text := log.read_text()[-700:]):
                print(text, file=sys.stderr)
                break
    return {"kind": kind, "failed": failed, **summary(found), "processes": found}


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Count unlike results."""
    places = sorted({name for one in found for name in one if name.startswith(("size", "quest"))})
    probes = Counter(one["probe"] for one in found)
    values = {
        place: Counter(value for one in found for value in one.get(place, ())) for place in places
    }
    kernels: dict[str, set[str]] = {}
    for one in found:
        for name, chosen in one["kernels"].items():
            kernels.setdefault(name, set()).add(json.dumps(chosen, sort_keys=True))
    return {
        "first differs": sum(len(set(one.get("trials", ()))) > 1 for one in found),
        "probes": dict(probes),
        "values": {place: dict(counts) for place, counts in values.items()},
        "graphs": sorted({one["graphs"] for one in found}),
        "kernels": {name: sorted(chosen) for name, chosen in kernels.items() if len(chosen) > 1},
        "load_s": max((one["load_s"] for one in found), default=0.0),
        "warm_s": max((one["warm_s"] for one in found), default=0.0),
    }


def is_one(result: dict[str, Any]) -> bool:
    """Tell whether all processes of a kind computed the same."""
    return (
        not result["failed"]
        and len(result["probes"]) == 1
        and "nothing" not in str(result["values"])
        and all(len(counts) == 1 for counts in result["values"].values())
    )


def time_steps(options: argparse.Namespace, kind: str) -> list[tuple[str, list[float]]]:
    """Time a denoising step: eager, compiled, and compiled with configurations by a stopwatch."""
    from pytest_imgedit.kinds.compute import acceleration

    few, many = (2, 4) if options.tiny else (6, 18)
    request = requests(options.tiny)[0]
    editor = load_editor(folder_of(options.models, kind), kind, options.tiny, compiles=False)
    network = getattr(editor.pipeline, "transformer", None) or editor.pipeline.unet

    def clock(steps: int) -> float:
        started = time.perf_counter()
        editor.run(request, "latent", num_inference_steps=steps)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - started

    rows: list[tuple[str, list[float]]] = []
    for name, choices in (
        ("eager", None),
        ("compiled", {"options": numerics.COMPILER_OPTIONS}),
        ("compiled by a stopwatch", {}),
    ):
        acceleration.compile_anew()
        for module in network.modules():
            module._compiled_call_impl = None
        if choices is not None:
            network.compile_repeated_blocks(dynamic=True, **choices)
        editor.runs_inference = choices is not None
        clock(few)
        rows.append(
            (name, [(clock(many) - clock(few)) / (many - few) for _ in range(options.speed)])
        )
    return rows


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--kinds", nargs="+", choices=KINDS, default=["editor"])
    described.add_argument("--processes", type=int, default=6)
    described.add_argument("--at-once", type=int, default=1, help="processes a GPU at a time")
    described.add_argument("--blocks", type=int, help="repeated blocks of each network")
    described.add_argument("--speed", type=int, default=0, help="how often a step is timed")
    described.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    described.add_argument("--order", help=argparse.SUPPRESS)
    options = described.parse_args()
    if options.child:
        child(options)
        return
    results, speeds = [], {}
    with scratch(options) as folder:
        options.caches = folder / "caches"
        options.caches.mkdir()
        for kind in options.kinds:
            model = folder_of(options.models, kind)
            if not model.exists():
                build(options.models, [model.name], options.tiny, options.blocks)
            results.append(compare(options, kind) if options.processes else {"kind": kind})
            if options.speed and kind != "judge":
                speeds[kind] = time_steps(options, kind)
    head = ("kind", "processes", "one result", "first differs", "probes", "graphs", "load s")
    rows = [
        (
            result["kind"],
            f"{len(result['processes'])} of {options.processes}",
            is_one(result),
            result["first differs"],
            len(result["probes"]),
            result["graphs"],
            result["load_s"],
            result["warm_s"],
            len(result["kernels"]),
        )
        for result in results
        if options.processes
    ]
    table((*head, "proof s", "kernels that differ"), rows)
    for result in results:
        for place, counts in result.get("values", {}).items():
            print(f"  {result['kind']} {place}: {counts}")
    for kind, times in speeds.items():
        for name, seconds in times:
            print(f"  {kind} {name}: s a step {[round(value, 4) for value in seconds]}")
    finish(options, {"results": results, "speeds": speeds})


if __name__ == "__main__":
    main()
