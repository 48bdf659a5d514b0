"""Number formats and switches that decide whether two runs give the same numbers."""

import torch

from pytest_imgedit.core.errors import SetupError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def pick_dtype(name: str, device: str) -> torch.dtype:
    """Return the dtype of a name; `auto` is bfloat16 on a GPU and float32 on the CPU. Raises
    `SetupError`.
    """
    if name == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    if name not in DTYPES:
        raise SetupError(f"dtype {name!r}, expected auto or one of {', '.join(DTYPES)}")
    return DTYPES[name]


def set_deterministic(on: bool) -> None:
    """Switch TF32 and reduced-precision reductions off (`on`), or leave PyTorch's defaults."""
    if on:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cudnn.benchmark = False
