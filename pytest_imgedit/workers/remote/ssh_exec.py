"""Becomes `ssh … COMMAND`, with the command quoted for the shell at the other end, or the command itself.

The controller runs this file as a script, `python ssh_exec.py LOG -- [ssh OPTIONS HOST] -- COMMAND…`. Ctrl-C at the
terminal does not reach it, and its number and errors go to the file `LOG`. It imports nothing of the package.
"""

from __future__ import annotations

import os
import shlex
import sys


def main(log: str, rest: list[str]) -> None:
    """Replace this process; `rest` is what follows `LOG`."""
    border = rest.index("--", 1)
    way, command = rest[1:border], rest[border + 1 :]
    os.setsid()
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 2)
    print(os.getpid(), file=sys.stderr, flush=True)  # of a group of its own, by which it can be ended
    full = [*way, "exec " + shlex.join(command)] if way else command
    try:
        os.execvp(full[0], full)
    except OSError as error:
        print(f"{full[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
