"""How many edits a pipeline makes best in one call, found by making a few."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from PIL import Image

from pytest_imgedit.core.errors import is_out_of_memory
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.core.sanitize import one_line

#: Batches are made if they give so many times the edits a second of single ones.
GAIN = 1.1
#: Of batches, the largest is taken that gives this share of the edits a second of the fastest: a trial takes few steps,
#: so that what a pipeline does once an edit weighs more in it than in an edit.
NEAR_BEST = 0.9
#: A trial is repeated while it has taken less than so many seconds, up to `TIMES`, and its shortest time counts.
ENOUGH_SECONDS, TIMES = 0.5, 3
#: A batch that brings nothing and takes longer than this is neither tried again nor doubled.
CHEAP_SECONDS = 2.0
#: Mean squared difference on [0, 1] up to which an edit in a batch is what it is alone: a PSNR of 30 dB. After two
#: steps in bfloat16 it is 40 dB or more.
ALIKE = 1e-3
#: Share of the free GPU memory that a batch may take.
FREE_SHARE = 0.9

Edit = Callable[[Sequence[EditRequest]], list[torch.Tensor]]


@dataclass(frozen=True)
class _Trial:
    """A batch that was edited: its first two images, seconds, and bytes of GPU memory beside the weights."""

    size: int
    images: list[torch.Tensor]
    seconds: float
    memory: int

    @property
    def rate(self) -> float:
        return self.size / self.seconds


def trial_requests(count: int) -> list[EditRequest]:
    """Return requests that differ in source, instruction and seed; the sources are small drawn images."""
    gradient = Image.linear_gradient("L").convert("RGB")
    words = ("make it brighter", "paint a large red circle on the left")
    return [EditRequest(f"trial-{n}", "default", words[n % 2], gradient.rotate(90 * n), seed=n) for n in range(count)]


def fastest_batch(edit: Edit, most: int, memory: int | None) -> tuple[int, str]:
    """Find the size of batch that suits a pipeline, and what to say of it; give back the memory that trying took."""
    try:
        return _search(edit, most, memory)
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def _search(edit: Edit, most: int, memory: int | None) -> tuple[int, str]:
    """Edit in batches of 1, 2, 4, … up to `most`; return the size that suits the pipeline, and what to say of it.

    Batches that are not `GAIN` times as fast as single edits are not worth their memory. Nothing larger is tried once
    two sizes in turn have brought nothing, or one that takes its time, nor where a batch would take more than `memory`
    bytes, or than is free. A pipeline whose edits differ in a batch gets none.
    """
    _trial(edit, 1)  # the first call warms up
    trials = [_trial(edit, 1)]
    first = gained = trials[0]
    alone = [*first.images, edit(trial_requests(2)[1:])[0].float().cpu()]
    found: list[str] = []
    while 2 * trials[-1].size <= most and trials[-1].size <= 2 * gained.size:
        try:
            trial = _larger(edit, trials[-1], memory)
        except Exception as error:
            return 1, f"batch size 1: a batch fails with {type(error).__name__}: {one_line(error)}"
        if trial is None:
            found.append(f"{2 * trials[-1].size} does not fit into memory")
            break
        if not all(map(_is_alike, trial.images, alone)):
            return 1, "batch size 1: an edit in a batch differs from the same edit alone"
        found.append(f"{trial.size} was {trial.rate / first.rate:.2f} times as fast")
        trials.append(trial)
        if trial.rate >= GAIN * gained.rate:
            gained = trial
        elif trial.seconds > CHEAP_SECONDS:
            break
    best = max(trials, key=lambda trial: trial.rate)
    if best.rate < GAIN * first.rate:
        return 1, f"batch size 1 ({', '.join(found)})" if found else "batch size 1"
    best = [trial for trial in trials if trial.rate >= NEAR_BEST * best.rate][-1]
    return best.size, f"batch size {best.size} ({best.rate / first.rate:.2f} times as fast as 1)"


def _larger(edit: Edit, last: _Trial, memory: int | None) -> _Trial | None:
    """Edit a batch of twice the size; `None` if it does not fit into the memory."""
    if 2 * last.memory > (_free_memory() if memory is None else memory):
        return None
    try:
        trial = _trial(edit, 2 * last.size)
        if (
            trial.rate < GAIN * last.rate and trial.seconds < CHEAP_SECONDS
        ):  # the first call of a size may tune its kernels
            trial = min(trial, _trial(edit, 2 * last.size), key=lambda trial: trial.seconds)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None
    return trial


def _trial(edit: Edit, size: int) -> _Trial:
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated() if on_gpu else 0
    times: list[float] = []
    while len(times) < TIMES and sum(times) < ENOUGH_SECONDS:
        started = time.perf_counter()
        images = [image.float().cpu() for image in edit(trial_requests(size))[:2]]  # which waits for the GPU
        times.append(time.perf_counter() - started)
    return _Trial(size, images, min(times), torch.cuda.max_memory_allocated() - held if on_gpu else 0)


def _free_memory() -> float:
    """Bytes that are free on the GPU, those included that PyTorch holds and does not use; no limit on the CPU."""
    if not torch.cuda.is_available():
        return float("inf")
    free, _ = torch.cuda.mem_get_info()
    return FREE_SHARE * (free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())


def _is_alike(image: torch.Tensor, alone: torch.Tensor) -> bool:
    return image.shape == alone.shape and float((image - alone).square().mean()) <= ALIKE
