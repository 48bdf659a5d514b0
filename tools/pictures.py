"""Make the pictures of the docs: the report of the demo, and the page of `imgedit view`.

    python -m tools.pictures

It runs the embedded benchmark with five editors in a temporary folder, and takes screenshots with
Chromium of what they made: `docs/report.png` and `docs/view-*.png`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent.parent / "docs"
EDITORS = ("scenes", "oracle", "blend", "damaged", "identity")
CHROMIUM: Any = {"executable_path": "/usr/bin/chromium", "args": ["--no-sandbox", "--disable-gpu"]}
#: By picture: what is chosen on the page, and the size of the window in pixels.
VIEWS = {
    "runs": ("", (1280, 420)),
    "pairs": ("#view=pairs&runs={runs}&order=spread&down=1", (1280, 760)),
    "pair": ("#view=pairs&runs={runs}&pair=physics-0001&edit=3", (1440, 900)),
}


def evaluate(folder: Path, editor: str, *more: str) -> None:
    """Run the embedded benchmark with an editor; a gate of a control may fail."""
    command = [sys.executable, "-m", "pytest", "--imgedit"]
    command += [f"--imgedit-editor={editor}", f"--imgedit-name={editor}"]
    command += more
    subprocess.run(command, cwd=folder, check=False)


def shoot(page: Any, address: str, size: tuple[int, int], name: str) -> None:
    """Take a screenshot once all images that are in sight are there."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1000)
    page.screenshot(path=DOCS / f"{name}.png")


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        evaluate(folder, EDITORS[0])
        [report] = folder.glob(".imgedit/runs/*/report.html")
        for editor in EDITORS[1:]:
            evaluate(folder, editor, "--imgedit-limit=8")
        view = "from pytest_imgedit.cli.main import main; main(['view'])"
        subprocess.run([sys.executable, "-c", view], cwd=folder, check=True)
        runs = ",".join(sorted(path.name for path in folder.glob(".imgedit/runs/*"))[:4])
        chromium = playwright.chromium.launch(**CHROMIUM)
        page = chromium.new_page()
        shoot(page, report.as_uri(), (1280, 760), "report")
        index = (folder / ".imgedit/view/index.html").as_uri()
        for view_name, (state, size) in VIEWS.items():
            shoot(page, index + state.format(runs=runs), size, f"view-{view_name}")
        chromium.close()


if __name__ == "__main__":
    main()
