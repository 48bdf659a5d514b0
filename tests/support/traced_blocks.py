"""Compiled networks without a compiler: PyTorch traces and guards blocks as ever, and runs what it
has traced. That takes seconds; a compiler would take half a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


def trace_blocks(monkeypatch: pytest.MonkeyPatch, network: Any) -> None:
    """Have the repeated blocks of a class of networks traced alone where they would be compiled."""
    compile_blocks = network.compile_repeated_blocks
    monkeypatch.setattr(
        network,
        "compile_repeated_blocks",
        lambda self, dynamic, options: compile_blocks(self, dynamic=dynamic, backend="eager"),
    )
