"""What all kinds share whose argument is a checkpoint: a folder here, or a hub id."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from pytest_imgedit.core.errors import SettingError
from pytest_imgedit.kinds.base import GPUS_OPTION, Composition, Model
from pytest_imgedit.kinds.checkpoint_files import Layout, loaded_files
from pytest_imgedit.kinds.fingerprints import Digests
from pytest_imgedit.kinds.hub import Checkpoint, is_local
from pytest_imgedit.kinds.requirements import Memory, Room, Site, Where, Workload


@dataclass(frozen=True)
class CheckpointModel(Model):
    """A model with weights in safetensors.

    A kind sets the `layout` of its files. `offloads` names the values of its parameter `offload`
    with which weights stay in host memory: `model` moves one component at a time to the GPU,
    `group` one block. Where `auto` is a value too, the harness chooses `group` for a GPU that
    cannot hold the weights.
    """

    takes = "MODEL"
    argument_is = "checkpoint"
    layout: ClassVar[Layout]
    offloads: ClassVar[tuple[str, ...]] = ()

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.argument or "", self.layout)

    def component_bytes(self) -> dict[str, int]:
        """Bytes of weights in memory by component, in the number format of `dtype`."""
        return self.checkpoint.component_bytes(str(self.params.get("dtype", "auto")))

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights in memory."""
        return sum(self.component_bytes().values())

    def check(self, site: Site) -> None:
        if is_local(self.argument or ""):
            if not Path(self.argument or "").is_dir():
                raise SettingError(
                    "spec", f"{self.role} {self.name}:{self.argument}: no such folder"
                )
            self.check_folder()
        if "trust_remote_code" in self.params:
            raise SettingError(
                "trust_remote_code", "code of a checkpoint is never run, expected no such key"
            )
        super().check(site)
        if self._offload in self.offloads:
            if self.gpus > 1:
                raise SettingError("offload", f"not with {GPUS_OPTION[self.role]}")
            if not site.may_have_gpus:
                raise SettingError("offload", "nothing to offload from without a GPU")

    def check_folder(self) -> None:
        """Raise `UsageError`, naming the file, if the checkpoint is not whole, or is of another
        kind of model.
        """
        self.checkpoint.component_bytes("auto")

    def compose(self, where: Where, digests: Digests) -> Composition:
        self.check_folder()
        folder = self.checkpoint.folder
        files = digests.of(folder, loaded_files(folder, self.layout))
        return Composition({"files": files}, {"dtype": where.resolved_dtype(self.params)})

    @property
    def _offload(self) -> str:
        return str(self.params.get("offload", "auto"))

    def memory(self) -> Memory:
        parts = self.component_bytes()
        weights = sum(parts.values())
        if self._offload not in self.offloads:
            return Memory(weights, reads=weights)
        if self._offload == "group":
            return Memory(None, weights, "group", weights)
        return Memory(max(parts.values()), weights, "model", weights)

    def hint(self, room: Room) -> str:
        if room.enough is not None:
            return f"; {GPUS_OPTION[self.role]}={room.enough} would fit"
        fits_alone = self.weight_bytes <= room.total
        if "group" in self.offloads:
            alone = "a GPU of its own would hold them, " if fits_alone else ""
            return f'; {alone}{self.role}.offload="group" needs least'
        if fits_alone:
            return "; a GPU of its own would hold them"
        return f"; {math.ceil(self.weight_bytes / room.total)} such GPUs would hold them"

    def settle(self, workload: Workload) -> Self:
        """Offload block by block, if that is left to the harness, where a GPU cannot hold the
        weights.
        """
        may_offload = self._offload == "auto" and "group" in self.offloads and self.gpus == 1
        if may_offload and workload.gpu_bytes < self.weight_bytes:
            return self.with_params(offload="group")
        return self
