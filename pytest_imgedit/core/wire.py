"""Messages of plain values between processes over pipes: execnet's serialization, with the length
in front.
"""

from typing import IO, Any

import execnet

#: Bytes of the length before each message.
_LENGTH = 8


def send(file: IO[bytes], message: Any) -> None:
    """Write one message of plain values, its length before it."""
    data = execnet.dumps(message)
    file.write(len(data).to_bytes(_LENGTH, "big") + data)
    file.flush()


def receive(file: IO[bytes]) -> Any:
    """Return the next message; `None` at the end of the file, or if it ends within a length."""
    length = file.read(_LENGTH)
    if len(length) < _LENGTH:
        return None
    return execnet.loads(file.read(int.from_bytes(length, "big")))
