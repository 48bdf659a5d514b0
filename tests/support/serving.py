"""Serves HTTP beside a test."""

from __future__ import annotations

import email.parser
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from socketserver import BaseServer


def serve(server: BaseServer) -> None:
    """Serve in a thread until `server.shutdown()`, which waits for the poll: half a second by
    default.
    """
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()


def multipart(content_type: str, data: bytes) -> dict[str, Any]:
    """Return the fields of a body of the type `multipart/form-data` by name; those of a name that
    ends in `[]` as a list, in their order.
    """
    message = email.parser.BytesParser().parsebytes(
        f"Content-Type: {content_type}\r\n\r\n".encode() + data
    )
    fields: dict[str, Any] = {}
    for part in message.get_payload():
        name = str(part.get_param("name", header="content-disposition"))
        value = bytes(part.get_payload(decode=True))
        if name.endswith("[]"):
            fields.setdefault(name, []).append(value)
        else:
            fields[name] = value
    return fields
