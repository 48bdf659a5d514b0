"""Devices to write to, which a mistake of the code under test cannot replace."""

from __future__ import annotations

import os
import stat
from pathlib import Path

#: Minor numbers of the memory devices, whose major number is 1.
_MINOR = {"null": 3, "full": 7}


def device(name: str, folder: Path) -> Path:
    """Return the device `null` or `full`; where tests run as root, who could replace those of the
    machine, a node of its own in a folder.
    """
    if os.geteuid():
        return Path("/dev", name)
    path = folder / name
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, _MINOR[name]))
    return path
