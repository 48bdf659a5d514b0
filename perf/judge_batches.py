"""What a local judge's first batches cost after loading, and what later ones cost.

    python perf/judge_batches.py
    python perf/judge_batches.py --tiny

A process judges items (two 1024² pictures, the protocol `aspects`) in batches, as a worker does:
the first is small, and threads decode and prepare the images of the next one meanwhile. This is
done twice: without kernels that an earlier process compiled, and with them. The judge is a
Qwen3-VL-30B-A3B of random weights on one GPU. `--profile` prints what the first batch called, and
what the GPU did in a later one.
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from checkpoints import build
from harness import finish, parser, scratch, table
from invariance import questions
from PIL import Image

from pytest_imgedit.run.durations import IDLE_BATCH

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from pytest_imgedit.core.requests import Question
    from pytest_imgedit.kinds.qwen_vl import QwenVLJudge

#: As in a worker.
READERS = 8
#: What PyTorch's profiler lists with the kernels, and is none.
NO_KERNELS = ("Command Buffer Full",)


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def encoded(image: Image.Image) -> bytes:
    """Return an image as a PNG file."""
    file = BytesIO()
    image.save(file, "png")
    return file.getvalue()


def with_files(question: Question) -> tuple[Question, dict[str, bytes]]:
    """Return a question with its images as files."""
    return question, {name: encoded(image) for name, image in question.images.items()}


def read(judge: QwenVLJudge, question: Question, files: dict[str, bytes]) -> Any:
    """Decode the images of a question, and return what the judge prepares."""
    images = {name: Image.open(BytesIO(data)).convert("RGB") for name, data in files.items()}
    return judge.preprocess(replace(question, images=images))


def judge_batches(options: argparse.Namespace) -> dict[str, Any]:
    """Load a judge and judge all items; runs in a process of its own."""
    started = time.perf_counter()
    seconds: dict[str, float] = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        value = call()
        synchronize()
        seconds[name] = time.perf_counter() - began
        return value

    from pytest_imgedit.kinds.qwen_vl import QwenVLJudge

    if options.gib:
        limit_memory(options.gib)
    folder, device = str(options.child), "cuda" if torch.cuda.is_available() else "cpu"
    timed("warm_up_s", lambda: QwenVLJudge.warm_up(folder, device=device))
    side = 64 if options.tiny else 1024
    asked = questions(options.items, ((side, side),))
    with ThreadPoolExecutor() as threads:
        jobs = list(threads.map(with_files, asked))
    judge = timed("load_s", lambda: QwenVLJudge(folder, device=device))
    timed("self_check_s", judge.self_check)
    judge.max_new_tokens = options.new_tokens
    graphs = compiled_graphs()
    first = min(IDLE_BATCH, options.batch)
    rest = range(first, len(jobs), options.batch)
    batches = [jobs[:first], *(jobs[at : at + options.batch] for at in rest)]
    walls: list[float] = []
    reading: list[float] = []

    def ahead(jobs: Iterable[tuple[Question, dict[str, bytes]]]) -> list[Any]:
        return [readers.submit(read, judge, *job) for job in jobs]

    profiled = None
    with ThreadPoolExecutor(READERS) as readers:
        began = time.perf_counter()
        waiting = ahead(batches[0])
        for number, batch in enumerate(batches):
            prepared = [future.result() for future in waiting]
            reading.append(time.perf_counter() - began)
            waiting = ahead(batches[number + 1]) if number + 1 < len(batches) else []
            answer = partial(judge.answer, [question for question, _ in batch], prepared=prepared)
            if options.profile and number == 0:
                functions = cProfile.Profile()
                functions.runcall(answer)
                pstats.Stats(functions, stream=sys.stderr).sort_stats("tottime").print_stats(25)
            elif options.profile and number == 1:
                profiled = profile(answer)
            else:
                answer()
            walls.append(time.perf_counter() - began)
            began = time.perf_counter()
    if profiled is not None:
        print(profiled, file=sys.stderr, flush=True)
    peak = torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else None
    full = zip(batches, walls, strict=True)
    later = [wall for batch, wall in full if len(batch) == options.batch][options.profile :]
    return {
        **seconds,
        "first_s": walls[0],
        "of which images are awaited": reading[0],
        "later_s": median(later),
        "later_items_s": options.batch / median(later),
        "stage_items_s": options.items / sum(walls),
        "process_s": time.perf_counter() - started,
        "compiled_graphs": graphs,
        "compiled_later": compiled_graphs() - graphs,
        "peak_gib": peak,
    }


def limit_memory(gib: float) -> None:
    """Have PyTorch take no more memory of the GPU, and say that it has no more."""
    whole = torch.cuda.get_device_properties(0)
    torch.cuda.set_per_process_memory_fraction(gib * 2**30 / whole.total_memory)
    known = {name: getattr(whole, name) for name in dir(whole) if not name.startswith("_")}
    smaller = SimpleNamespace(**{**known, "total_memory": int(gib * 2**30)})
    patch.object(torch.cuda, "get_device_properties", return_value=smaller).start()


def compiled_graphs() -> int:
    """Return how many graphs PyTorch's compiler has made in this process."""
    compiler: Any = sys.modules.get("torch._dynamo.utils")
    return 0 if compiler is None else int(compiler.counters["stats"]["unique_graphs"])


def profile(call: Callable[[], Any]) -> str:
    """Call under PyTorch's profiler; return a table of kernels by their time, and the time in which
    the GPU did nothing.
    """
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    with profiler(activities=activities) as found:
        began = time.perf_counter()
        call()
        synchronize()
        wall = time.perf_counter() - began
    rows = found.key_averages()
    key = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    rows = sorted(rows, key=lambda row: -getattr(row, key))[:45]
    kernels = [
        (event.time_range.start, event.time_range.end, event.name)
        for event in found.events()
        if str(event.device_type).endswith("CUDA") and event.name not in NO_KERNELS
    ]
    busy = sum(end - start for start, end, _ in kernels)
    lines = [f"{wall:.3f} s, GPU busy {busy / 1e6:.3f} s"]
    for row in rows:
        lines.append(f"{getattr(row, key) / 1e3:9.2f} ms {row.count:6d}  {row.key[:110]}")
    return "\n".join([*lines, "", "idle between kernels:", *idle(kernels)])


def idle(kernels: Sequence[tuple[float, float, str]]) -> list[str]:
    """Return lines on where the GPU did nothing, the longest sums first; times in microseconds."""
    gaps: dict[tuple[str, str], list[float]] = defaultdict(list)
    latest, before = None, ""
    for start, end, name in sorted(kernels):
        if latest is not None and start > latest:
            gaps[before, name].append(start - latest)
        if latest is None or end > latest:
            latest, before = end, name
    ranked = sorted(gaps.items(), key=lambda entry: -sum(entry[1]))
    lines = [f"{sum(map(sum, gaps.values())) / 1e3:9.2f} ms"]
    for (before, after), times in ranked[:25]:
        total = f"{sum(times) / 1e3:9.2f} ms {len(times):6d} (longest {max(times) / 1e3:.2f})"
        lines.append(f"{total}  {before[:60]} -> {after[:60]}")
    return lines


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--items", type=int, default=144)
    described.add_argument("--batch", type=int, default=64)
    described.add_argument("--gib", type=float, help="GPU memory to be content with, such as 79.2")
    described.add_argument("--new-tokens", type=int, default=16)
    described.add_argument("--profile", action="store_true", help="show the kernels of a batch")
    described.add_argument(
        "--child", type=Path, help="judge with a checkpoint in this process, and nothing else"
    )
    options = described.parse_args()
    if options.tiny:
        options.items, options.batch = 8, 2
    if options.child:
        print(json.dumps(judge_batches(options)))
        return
    figures: dict[str, Any] = {name: getattr(options, name) for name in ("items", "batch")}
    with scratch(options) as folder:
        if not (options.models / "judge").exists():
            build(options.models, ["judge"], options.tiny)
        caches = {
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
        }
        command = [sys.executable, __file__, *sys.argv[1:], "--child", options.models / "judge"]
        for name in ("empty caches", "filled caches"):
            done = subprocess.run(
                command, stdout=subprocess.PIPE, check=True, env={**os.environ, **caches}
            )
            figures[name] = json.loads(done.stdout.splitlines()[-1])
            print(name, figures[name], flush=True)
            finish(options, figures)
    names = list(figures["empty caches"])
    table(
        ("", "empty caches", "filled caches"),
        [(name, figures["empty caches"][name], figures["filled caches"][name]) for name in names],
    )


if __name__ == "__main__":
    main()
