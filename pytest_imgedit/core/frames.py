"""Messages of plain values between processes, over pipes: execnet's serialization, with its length
before each.
"""

from __future__ import annotations

from typing import IO, Any

import execnet


def send(file: IO[bytes], message: Any) -> None:
    """Write one message."""
    data = execnet.dumps(message)
    file.write(len(data).to_bytes(8, "big") + data)
    file.flush()


def receive(file: IO[bytes]) -> Any:
    """Read one message; `None` at the end of the file."""
    head = file.read(8)
    if len(head) < 8:
        return None
    return execnet.loads(file.read(int.from_bytes(head, "big")))
