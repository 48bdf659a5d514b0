"""Weights from files to one GPU at the speed of the bus: read in several threads through pinned
memory, while other code is imported and compiled.

Copying a mapped file from pageable memory is several times slower, even if the system has the file
in memory. Only a tensor that is being converted is held twice.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.checkpoint_files import weight_files

#: Bytes that are read at a time. For each piece a thread takes the interpreter's lock a few times,
#: for which code that is imported and compiled meanwhile has to wait.
CHUNK = 64 * 2**20
#: The most threads of a `Reader`.
READERS = 8
#: By the names in headers of safetensors files.
_DTYPES = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


@dataclass(frozen=True)
class Reading:
    """A tensor that threads fill."""

    target: torch.Tensor
    pieces: list[Future[None]]

    def result(self) -> torch.Tensor:
        """Return the tensor once it is whole; raise `OSError` if the file ends before."""
        for piece in self.pieces:
            piece.result()
        return self.target


class Reader:
    """Reads pieces of files into tensors on a device; holds a buffer a thread, pinned for CUDA."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._pool = ThreadPoolExecutor(min(READERS, os.cpu_count() or 1))
        self._local = threading.local()

    def begin(self, file: int, start: int, stop: int) -> Reading:
        """Begin to read the bytes of an open file from `start` to `stop` into a uint8 tensor on the
        device, after what was begun before.
        """
        target = torch.empty(stop - start, dtype=torch.uint8, device=self.device)
        submit = self._pool.submit
        pieces = [
            submit(self._read_piece, file, start + offset, target[offset : offset + CHUNK])
            for offset in range(0, stop - start, CHUNK)
        ]
        return Reading(target, pieces)

    def _read_piece(self, file: int, start: int, target: torch.Tensor) -> None:
        """Fill `target` with a file's bytes from `start` on; raise `OSError` if they end early."""
        if not hasattr(self._local, "buffer"):
            self._local.buffer = torch.empty(
                CHUNK, dtype=torch.uint8, pin_memory=self.device.type == "cuda"
            )
        buffer = self._local.buffer[: len(target)]
        filled = 0
        view = memoryview(buffer.numpy())
        while filled < len(target):
            count = os.preadv(file, [view[filled:]], start + filled)
            if count == 0:
                raise OSError(f"file ends {len(target) - filled} bytes early")
            filled += count
        target.copy_(buffer)

    def close(self) -> None:
        """Wait for what is being read, give up what has not begun, and free the buffers."""
        self._pool.shutdown(cancel_futures=True)
        self._local = threading.local()


StoredTensors = dict[str, "StoredTensor"]


class StoredTensor:
    """A tensor in a safetensors file, read as a whole when transformers indexes it with `...`, or
    ahead of that.

    `start` is where the tensors' bytes begin in the file, `header` this tensor's entry.
    """

    def __init__(self, reader: Reader, file: int, start: int, header: JsonObject) -> None:
        self.reader = reader
        self.file = file
        self.header = header
        self.start, self.stop = (start + offset for offset in header["data_offsets"])
        self.dtype = _DTYPES[header["dtype"]]
        self.shape = torch.Size(header["shape"])
        self._reading: Reading | None = None

    def read_ahead(self) -> None:
        """Begin to read; the tensor is held until it is asked for."""
        self._reading = self.reader.begin(self.file, self.start, self.stop)

    def get_shape(self) -> list[int]:
        return list(self.shape)

    def get_dtype(self) -> str:
        return str(self.header["dtype"])

    def __getitem__(self, index: object) -> torch.Tensor:
        reading = self._reading or self.reader.begin(self.file, self.start, self.stop)
        self._reading = None
        return reading.result().view(self.dtype).view(self.shape)


@contextmanager
def stored_tensors(folder: Path, device: str, dtype: torch.dtype) -> Iterator[StoredTensors]:
    """Yield the tensors of a folder's weights by their names, to be read onto a device.

    Those that have the `dtype` of the model to be loaded are read from now on, in the order of the
    files: as many bytes as the model will take up. Others are converted, and read one by one.
    """
    tensors: StoredTensors = {}
    with ExitStack() as stack:
        reader = Reader(device)
        for path in weight_files(folder):
            file = os.open(path, os.O_RDONLY)
            stack.callback(os.close, file)
            # A safetensors file holds the header's length in 8 bytes, the header and the tensors.
            header_length = int.from_bytes(os.pread(file, 8, 0), "little")
            header = json.loads(os.pread(file, header_length, 8))
            tensors |= {
                name: StoredTensor(reader, file, 8 + header_length, entry)
                for name, entry in header.items()
                if name != "__metadata__"
            }
        stack.callback(reader.close)  # before the files
        for tensor in tensors.values():
            if tensor.dtype == dtype:
                tensor.read_ahead()
        yield tensors


def load_on_gpu(
    folder: Path, tensors: StoredTensors, device: str, dtype: torch.dtype, **options: Any
) -> Any:
    """Load a transformers model onto the device that its tensors are read to, with the folder's
    generation config if there is one; `options` go to `from_pretrained`.
    """
    import transformers
    from transformers import AutoConfig, GenerationConfig

    # Tensors are taken one after another, each read in several threads. transformers' own threads
    # would take them faster than they are converted, and could so hold the model twice.
    with patch.dict(os.environ, HF_DEACTIVATE_ASYNC_LOAD="1"):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        model = getattr(transformers, config.architectures[0]).from_pretrained(
            None, config=config, state_dict=tensors, dtype=dtype, device_map={"": device}, **options
        )
    if (folder / "generation_config.json").exists():
        model.generation_config = GenerationConfig.from_pretrained(folder)
    return model
