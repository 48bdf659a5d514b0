"""Serves HTTP beside a test."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from socketserver import BaseServer


def serve(server: BaseServer) -> None:
    """Serve in a thread until `server.shutdown()`, which waits for the poll: half a second by
    default.
    """
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
