"""Messages of plain values between processes over pipes: execnet's serialization, with the length
in front.
"""

from typing import IO, Any

import execnet


def send(file: IO[bytes], message: Any) -> None:
    """Write one message."""
    data = execnet.dumps(message)
    file.write(len(data).to_bytes(8, "big") + data)
    file.flush()


def receive(file: IO[bytes]) -> Any:
    """Read one message; return `None` at the end of the file."""
    length = file.read(8)
    if len(length) < 8:
        return None
    return execnet.loads(file.read(int.from_bytes(length, "big")))
