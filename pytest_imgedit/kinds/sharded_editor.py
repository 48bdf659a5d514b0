"""An editor that the processes of a group compute together, one a GPU: the worker is rank 0 and
starts the others.
"""

import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pytest_imgedit.core import errors, images, requests, strict_json, wire
from pytest_imgedit.core.text import one_line
from pytest_imgedit.kinds.base import GIB
from pytest_imgedit.kinds.compute import acceleration, fsdp, lora, numerics, seeding
from pytest_imgedit.kinds.compute.pipeline import replaced_components
from pytest_imgedit.kinds.diffusers import OFFLOADS, DiffusersEditor
from pytest_imgedit.kinds.diffusers_parameters import DiffusersParameters

#: Seconds that ranks may differ in when they end an edit; one that takes longer is out of step for
#: good.
PATIENCE = 60.0


class ShardedEditor(DiffusersEditor):
    """Takes what `DiffusersEditor` takes; the number of `ranks` share the editor as its parameter
    `shard` says.

    All ranks make the same calls with the same noise, since each block's weights are gathered from
    all of them; rank 0 alone decodes the image. A rank that dies or falls out of step ends this
    process, so that the group is replaced.
    """

    def __init__(self, model: str, *, device: str, ranks: int, **params: Any) -> None:
        # A file without a name: it is gone once all ranks that hold it have ended.
        self._meeting = tempfile.TemporaryFile()  # noqa: SIM115
        setup: strict_json.JsonObject = {
            "model": model,
            "device": "cpu" if device == "cpu" else "cuda",
            "ranks": ranks,
            "meeting": self._meeting.fileno(),
            "params": params,
        }
        self.followers = [_Follower({**setup, "rank": rank}) for rank in range(1, ranks)]
        self._join({**setup, "rank": 0})
        for follower in self.followers:
            follower.report(None)  # it is loaded, or its end has ended this process

    def _join(self, setup: strict_json.JsonObject) -> None:
        """Meet the other ranks, and load this one's part.

        Raises `SetupError` for quantization and offloading, which do not go with shards, and if the
        pipeline or its LoRA adapters cannot be loaded.
        """
        options = DiffusersParameters.parse(setup["params"])
        self.deterministic = options.deterministic
        numerics.set_deterministic(self.deterministic)
        if options.quantize or options.offload in OFFLOADS:
            raise errors.SetupError(
                "editor.shard: neither editor.quantize nor editor.offload goes with it"
            )
        device = _meet(setup)

        def prepare(pipeline: Any) -> None:
            self.compiled = acceleration.accelerate(pipeline, options)

        folder = Path(setup["model"])
        adapters = lora.read_loras(folder, options.loras, options.variant)
        _print_memory(setup["rank"], "before loading", device.type)
        dtype = numerics.pick_dtype(options.dtype, device.type)
        pipeline = fsdp.load_sharded(
            folder,
            device,
            dtype,
            options.shard,
            prepare,
            variant=options.variant,
            **replaced_components(folder, options, dtype, str(device)),
        )
        _print_memory(setup["rank"], "after loading", device.type)
        lora.use_loras(pipeline, adapters)
        self._take(pipeline, options.model_extra or {}, options.area)
        torch.distributed.barrier()

    def run(
        self,
        request: requests.EditRequest,
        output_type: str,
        may_compile: bool = False,
        **override: int,
    ) -> Any:
        """Call the pipeline on all ranks and return rank 0's output; raise what it raises there if
        it fails on all of them. Without followers, as on any other rank, call it on this one alone.
        """
        for follower in self.followers:
            follower.ask(request, override)
        try:
            output = super().run(request, output_type, may_compile, **override)
        except Exception as error:
            for follower in self.followers:
                follower.report(error)
            raise
        for follower in self.followers:
            follower.report(None)
        return output


class _Follower:
    """Rank 0's hold on another rank: a child process that ends with it, and it with the child."""

    def __init__(self, setup: strict_json.JsonObject) -> None:
        self.rank = setup["rank"]
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from pytest_imgedit.kinds.sharded_editor import follow; follow()",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(setup["meeting"],),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._reports: queue.Queue[str] = queue.Queue()
        self._out_of_step: threading.Timer | None = None
        threading.Thread(target=self._listen, daemon=True).start()
        assert self.process.stdin is not None
        wire.send(self.process.stdin, setup)

    def _listen(self) -> None:
        """Collect the rank's reports; end this process once the rank ends, or if rank 0 has not
        asked for a report `PATIENCE` seconds after the rank has failed.
        """
        assert self.process.stdout is not None
        for failure in iter(partial(wire.receive, self.process.stdout), None):
            if failure:  # rank 0 may wait for this rank in the middle of a call
                self._out_of_step = threading.Timer(
                    PATIENCE, _end, [f"rank {self.rank} alone failed: {failure}"]
                )
                self._out_of_step.daemon = True
                self._out_of_step.start()
            self._reports.put(failure)
        _end(f"rank {self.rank} ended with status {self.process.wait()}, and its group with it")

    def ask(self, request: requests.EditRequest, override: dict[str, int]) -> None:
        """Send the rank a request, and the arguments that its call overrides."""
        assert self.process.stdin is not None
        encoded = {
            **vars(request),
            "source": images.encode_png(request.source),
            "further": [images.encode_png(image) for image in request.further],
            "reference": None,
        }
        wire.send(self.process.stdin, {"request": encoded, "override": override})

    def report(self, error: Exception | None) -> None:
        """Wait for the rank to report how its part of a call ended; end this process if either the
        rank or rank 0, whose failure is `error`, has failed and the other has not. A rank that does
        not report within `PATIENCE` seconds of rank 0's failure counts as not failed.
        """
        try:
            failure = self._reports.get(timeout=None if error is None else PATIENCE)
        except queue.Empty:
            failure = ""
        if self._out_of_step is not None:
            self._out_of_step.cancel()
        if bool(failure) != (error is not None):
            of_rank_0 = "done" if error is None else one_line(error)
            _end(
                f"rank {self.rank} is out of step ({failure or 'no failure'}, rank 0: "
                f"{of_rank_0}), and its group ends"
            )


def follow() -> None:
    """Run as a rank other than 0: load, then make the calls that rank 0 makes, until it ends."""
    inbox = sys.stdin.buffer
    outbox = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed goes to the run's log
    jobs: queue.Queue[strict_json.JsonObject] = queue.Queue()

    def listen() -> None:
        for message in iter(partial(wire.receive, inbox), None):
            jobs.put(message)
        os._exit(0)

    setup = wire.receive(inbox)
    threading.Thread(target=listen, daemon=True).start()
    editor = ShardedEditor.__new__(ShardedEditor)
    editor.followers = []

    def attempt(call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        failure = ""
        try:
            call(*arguments, **named)
        except Exception as error:
            failure = f"{type(error).__name__}: {one_line(error)}"
        wire.send(outbox, failure)

    attempt(editor._join, setup)
    while True:
        job = jobs.get()
        request = requests.EditRequest.decoded(job["request"])
        seeding.seed_all(request.seed)
        attempt(editor.run, request, "latent", **job["override"])


def _end(why: str) -> None:
    print(why, file=sys.stderr, flush=True)
    os._exit(1)


def _meet(setup: strict_json.JsonObject) -> torch.device:
    """Join the process group of all ranks, and return the device of this one."""
    kind = setup["device"]
    rank = setup["rank"]
    if kind == "cuda":
        device = torch.device(kind, rank)
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(rank)
    else:
        device = torch.device(kind)
        backend = "gloo"
    torch.distributed.init_process_group(
        backend,
        init_method=f"file:///proc/self/fd/{setup['meeting']}",
        rank=rank,
        world_size=setup["ranks"],
    )
    return device


def _print_memory(rank: int, when: str, kind: str) -> None:
    """Print the GPU memory of a rank to the run's log; nothing on the CPU."""
    if kind == "cuda":
        allocated = torch.cuda.memory_allocated() / GIB
        most = torch.cuda.max_memory_allocated() / GIB
        print(
            f"rank {rank}: {allocated:.1f} GiB of GPU memory {when}, {most:.1f} at most",
            file=sys.stderr,
            flush=True,
        )
