"""`imgedit view`: one page over several runs, which shows what each model made of each pair."""

import os
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pytest_imgedit.cli.comparable import store_of
from pytest_imgedit.core import errors, files
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import counted, printable
from pytest_imgedit.report import outputs
from pytest_imgedit.report.read import read_results
from pytest_imgedit.report.view_page import StoredRun, write_view
from pytest_imgedit.store.run_references import find_run, no_runs
from pytest_imgedit.store.store import finished_runs, store_names
from pytest_imgedit.store.unfinished_runs import runs_going_on

#: The store whose runs are shown where none is named.
STORE = Path(".imgedit")


def view(references: Sequence[str], out: Path | None, serve: bool) -> tuple[JsonObject, str, int]:
    """Write a page over runs, and open it; `references` are runs and stores, by default `.imgedit`.

    It goes into the folder `view` of the first store, or with its images into `out`. With `serve`
    it is served to this machine alone until Ctrl-C. A run that cannot be read is named and left
    out, and the exit code is 1. Raises `UsageError` if there is no run.
    """
    paths, stores = _find(references)
    runs, broken = _read(paths)
    going_on = [row for store in stores for row in runs_going_on(store)]
    if not runs and not going_on:
        raise errors.UsageError(broken[0] if broken else no_runs(stores[0]))
    home = stores[0] if stores else runs[0].blobs.parent
    folder = outputs.view_folder(home) if out is None else out
    all_blobs = [run.blobs for run in runs]
    if out is not None:
        _require_free(out, stores + [blobs.parent for blobs in all_blobs])
    with outputs.naming(folder):
        write_view(runs, going_on, folder, is_movable=out is not None)
    page = folder / "index.html"
    lines = [f"{counted(len(runs), 'run')}: {os.path.relpath(page)}"]
    lines += map(printable, broken)
    if serve:
        _serve(page, [folder] + all_blobs)
    elif _has_screen():
        webbrowser.open(page.absolute().as_uri())
    document = {"page": str(page), "runs": [run.results.run.id for run in runs], "broken": broken}
    return document, "\n".join(lines), int(bool(broken))


def _find(references: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Return the results.json of all runs that references name, each once, and those references
    that are stores. Without any reference, the store is `STORE`.

    Raises `UsageError` for a reference that names neither, and if `STORE` is no store.
    """
    paths: list[Path] = []
    stores: list[Path] = []
    for reference in references or [str(STORE)]:
        folder = Path(reference)
        if folder.is_dir() and store_names(folder) > 1:
            stores.append(folder)
            paths += finished_runs(folder)
        elif references:
            paths.append(find_run(reference, STORE))
        else:
            raise errors.UsageError(no_runs(STORE))
    return list(dict.fromkeys(path.resolve() for path in paths)), stores


def _read(paths: Sequence[Path]) -> tuple[list[StoredRun], list[str]]:
    """Return the runs that can be read, and a line for each that cannot or has no images."""
    runs: list[StoredRun] = []
    broken: list[str] = []
    for path in paths:
        try:
            blobs = store_of(path) / "blobs"
            if not files.is_folder(blobs):
                raise errors.UsageError(f"{path}: not in a store, which has the images")
            runs.append(StoredRun(read_results(path), blobs))
        except errors.UsageError as error:
            broken.append(str(error))
    return runs, broken


def _require_free(folder: Path, kept: Sequence[Path]) -> None:
    """Raise `UsageError` for a folder that holds anything other than an older page."""
    outputs.check_folder(folder, kept)
    is_page = (folder / "runs.js").is_file() and (folder / "page.js").is_file()
    if folder.exists() and not is_page and (not folder.is_dir() or any(folder.iterdir())):
        raise errors.UsageError(
            f"{folder}: is there already, expected a new or an empty folder, or that of an older "
            "page"
        )


def _has_screen() -> bool:
    """Return whether there is a terminal, and a screen on which a browser can open."""
    has_window = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and (has_window or sys.platform == "darwin")


class _Handler(SimpleHTTPRequestHandler):
    """Serves what is below some folders, and lists none."""

    def __init__(self, *arguments: Any, served: Sequence[Path], **options: Any) -> None:
        self.served = [folder.resolve() for folder in served]
        super().__init__(*arguments, **options)

    def translate_path(self, path: str) -> str:
        """Return the file that a request means, or a path that is never there for a folder and for
        anything that is not served.
        """
        target = Path(super().translate_path(path)).resolve()
        is_served = any(target.is_relative_to(folder) for folder in self.served)
        if is_served and target.is_file():
            return str(target)
        return os.devnull + "/nothing"

    def log_message(self, *_: Any) -> None:
        """Print nothing: the terminal shows the address alone."""


def _serve(page: Path, served: Sequence[Path]) -> None:
    """Serve a page and its images to this machine until Ctrl-C."""
    root = os.path.commonpath([folder.resolve() for folder in served])
    handler = partial(_Handler, served=served, directory=root)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        address = quote(os.path.relpath(page.resolve(), root))
        print(f"http://127.0.0.1:{server.server_port}/{address} (Ctrl-C ends it)", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
