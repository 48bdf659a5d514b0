"""What all trainings share: optimizer, schedule, averaged weights, checkpoints, a log of
metrics.
"""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


#: The terms of a loss by name.
Losses = dict[str, torch.Tensor]
LOG_EVERY = 100


class Trainer:
    """Trains a module with AdamW, a warm-up and a cosine decay to a fiftieth, and an exponential
    average.

    `folder` holds the checkpoint: `weights.safetensors` and `average.safetensors` in half
    precision, `optimizer.safetensors` (moments, bfloat16), `state.json`, and `log.jsonl`. A
    checkpoint without the optimizer's file is taken up with fresh moments.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        folder: Path,
        *,
        steps: int,
        learning_rate: float,
        average: float = 0.9995,
    ) -> None:
        self.model, self.folder, self.steps, self.rate = model, folder, steps, learning_rate
        self.average = AveragedModel(
            model, multi_avg_fn=get_ema_multi_avg_fn(average), use_buffers=True
        )
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01
        )
        # Steps in all, since this start, and of the optimizer's moments.
        self.step = self.since = self.moments = 0
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "state.json").exists():
            self._load()

    @property
    def done(self) -> bool:
        return self.step >= self.steps

    def run(self, losses: Callable[[], Losses], stop_at: float, save_every: float = 120) -> None:
        """Train to the last step, or to `stop_at` (seconds of `time.monotonic`), saving every so
        many seconds.

        `losses` returns the terms of the loss; their sum is minimised.
        """
        saved = started = time.monotonic()
        first = self.step
        while not self.done and time.monotonic() < stop_at:
            for group in self.optimizer.param_groups:
                group["lr"] = self._rate()
            terms = losses()
            self.optimizer.zero_grad(set_to_none=True)
            sum(
                terms.values(), torch.zeros((), device=next(self.model.parameters()).device)
            ).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.average.update_parameters(self.model)
            self.step += 1
            self.since += 1
            self.moments += 1
            if self.step % LOG_EVERY == 0 or self.done:
                spent = (time.monotonic() - started) / (self.step - first)
                values = {name: round(float(term.detach()), 5) for name, term in terms.items()}
                self.log(s_per_step=round(spent, 4), **values)
            if time.monotonic() - saved > save_every:
                self.save()
                saved = time.monotonic()
        self.save()

    def _rate(self) -> float:
        """Warm up over 300 steps since the last start, and decay over all steps."""
        cosine = 0.5 * (1 + math.cos(math.pi * self.step / self.steps))
        return self.rate * min(1.0, (self.since + 1) / 300) * (0.02 + 0.98 * cosine)

    def log(self, **metrics: object) -> None:
        """Print a line and append it to the log."""
        line = json.dumps({"step": self.step, **metrics})
        print(f"{self.folder.name} {line}", flush=True)
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(f"{line}\n")

    def save(self) -> None:
        """Write the checkpoint; each file replaces the one before it whole."""
        self._write("weights", self.model.state_dict(), torch.float16)
        self._write("average", self.average.module.state_dict(), torch.float16)
        names: dict[torch.Tensor, str] = {
            parameter: name for name, parameter in self.model.named_parameters()
        }
        moments = {
            f"{kind}.{names[parameter]}": state[kind]
            for parameter, state in self.optimizer.state.items()
            for kind in ("exp_avg", "exp_avg_sq")
        }
        self._write("optimizer", moments, torch.bfloat16)
        partial = self.folder / "state.partial"
        partial.write_text(json.dumps({"step": self.step, "moments": self.moments}))
        partial.replace(self.folder / "state.json")  # last: it says what the other files are

    def _write(self, name: str, tensors: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
        partial = self.folder / f"{name}.partial"
        # clones, since tied weights share memory, which safetensors refuses
        save_file(
            {key: value.to(dtype, copy=True).contiguous() for key, value in tensors.items()},
            partial,
        )
        partial.replace(self.folder / f"{name}.safetensors")

    def _load(self) -> None:
        state = json.loads((self.folder / "state.json").read_text())
        self.step = int(state["step"])
        self.model.load_state_dict(load_file(self.folder / "weights.safetensors"))
        self.average.module.load_state_dict(load_file(self.folder / "average.safetensors"))
        self.average.n_averaged.fill_(max(1, self.step))
        moments = self.folder / "optimizer.safetensors"
        if not moments.exists():
            return
        self.moments = int(state["moments"])
        found = load_file(moments)
        for name, parameter in self.model.named_parameters():
            if f"exp_avg.{name}" in found:
                self.optimizer.state[parameter] = {
                    "step": torch.tensor(float(self.moments)),
                    "exp_avg": found[f"exp_avg.{name}"].to(parameter),
                    "exp_avg_sq": found[f"exp_avg_sq.{name}"].to(parameter),
                }
