"""Number formats and switches that decide whether two runs give the same numbers."""

import hashlib
from typing import Any

import torch

from pytest_imgedit.core.errors import SetupError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
#: How PyTorch's compiler makes the same kernels in every process. By default it times several
#: configurations of a kernel when it first launches, and takes the fastest: of a normalisation,
#: these sum in different orders. With these options there is one configuration of each kernel.
COMPILER_OPTIONS: dict[str, Any] = {
    "deterministic": True,  # one configuration of each reduction, no padding by a stopwatch
    "triton.autotune_pointwise": False,
    "coordinate_descent_tuning": False,  # which torchao switches on
    "max_autotune": False,
}


def pick_dtype(name: str, device: str) -> torch.dtype:
    """Return the dtype of a name; `auto` is bfloat16 on a GPU and float32 on the CPU. Raise
    `SetupError` for an unknown name.
    """
    if name == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    if name not in DTYPES:
        raise SetupError(f"dtype {name!r}, expected auto or one of {', '.join(DTYPES)}")
    return DTYPES[name]


def set_deterministic(on: bool) -> None:
    """If `on`, switch off TF32, reduced-precision reductions and cuDNN's choice of algorithms by
    their speed; else leave PyTorch's settings as they are.
    """
    if on:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cudnn.benchmark = False


def digest(values: torch.Tensor) -> str:
    """Return twelve hex digits that name the values of a tensor in float32, and its shape."""
    exact = values.detach().float().cpu().contiguous()
    return hashlib.sha256(f"{exact.shape}".encode() + exact.numpy().tobytes()).hexdigest()[:12]
