"""Lets torchvision be imported beside a build of torch that its compiled operators do not load
with.

torchvision registers details of two of them when it is imported. Nothing here calls them.
"""

from __future__ import annotations

import sys
from typing import Any


class Finder:
    """Defines the operators when torchvision imports its extension; finds nothing itself."""

    kept: list[Any] = []  # noqa: RUF012 - a library is undone when it is forgotten

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> None:
        if name == "torchvision.extension" and not cls.kept:
            import torch

            library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                library.define(
                    f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                )
            cls.kept.append(library)


def install() -> None:
    """Do so from now on, in this process."""
    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
