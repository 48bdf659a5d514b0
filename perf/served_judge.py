"""The embedded judge behind `transformers serve`: its scores beside those in process, also where
the server fails.

    pip install pytest-imgedit[openai] transformers[serving] torchvision
    python perf/served_judge.py
    python perf/served_judge.py --stubs 8 --before CHECKOUT --kill

Asked through a proxy that answers some requests with 429 and 500, lets some hang and ends some in
the middle. With `--stubs`, the CPU of asking is measured against servers that cost nothing
(served_stubs.py).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import served_stubs
from harness import evaluate, finish, parser, scratch, table

import pytest_imgedit

if TYPE_CHECKING:
    from collections.abc import Iterator

WEIGHTS = Path(pytest_imgedit.__file__).parent / "scenes" / "weights" / "judge"
#: The prompt that the judge was trained on, as the server is to write it.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in "
    "message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ "
    "part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: What becomes of requests, in turn; `None` goes through.
FAULTS = (None, 429, None, "half", None, 500, None, None, "hang")
TIMEOUT = 20


@contextmanager
def serving(folder: Path, device: str) -> Iterator[str]:
    """Serve the embedded judge; gives the server's URL and the model's name, as `URL/v1#MODEL`."""
    model = folder / "judge"
    shutil.copytree(WEIGHTS, model)
    (model / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    cache = folder / "cache"
    (cache / "hub").mkdir(parents=True)  # the server lists the models in it
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(model)]
    where = ["--host", "127.0.0.1", "--port", str(port), "--device", device]
    with (folder / "server.log").open("w") as log:
        env = {**os.environ, "HF_HOME": str(cache)}
        server = subprocess.Popen([*command, *where], env=env, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_for(server, f"http://127.0.0.1:{port}/v1/models", folder / "server.log")
            yield f"http://127.0.0.1:{port}/v1#{model}"
        finally:
            server.terminate()
            server.wait()


def _wait_for(server: subprocess.Popen[Any], url: str, log: Path) -> None:
    while server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit(f"the server did not start:\n{log.read_text()[-3000:]}")


class Proxy(ThreadingHTTPServer):
    """Passes requests on to `behind`, and some not; counts what it did."""

    daemon_threads = True

    def __init__(self, behind: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passes)
        self.behind, self.done, self.lock = behind, Counter[str](), threading.Lock()
        self.faults = [fault for _ in range(1000) for fault in FAULTS]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def next_fault(self) -> Any:
        with self.lock:
            fault = self.faults.pop(0)
            self.done[str(fault or "passed on")] += 1
            return fault


class _Passes(BaseHTTPRequestHandler):
    server: Proxy

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._pass_on(None)

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        fault = self.server.next_fault()
        if isinstance(fault, int):
            self.send_response(fault)
            self.end_headers()
        elif fault == "hang":
            time.sleep(2 * TIMEOUT)
        else:
            self._pass_on(data, half=fault == "half")

    def _pass_on(self, data: bytes | None, half: bool = False) -> None:
        request = urllib.request.Request(
            self.server.behind + self.path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            body = answer.read()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if half else body)


def verdicts(results: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return score and reply of each pair."""
    return {
        item["id"]: (item["score"], (item["seeds"][0]["verdict"] or {}).get("reply"))
        for item in results["items"]
    }


def main() -> None:
    described = parser(__doc__)
    described.add_argument(
        "--pairs", type=int, help="pairs of each category (default: 10); with --stubs of all (600)"
    )
    described.add_argument("--device", default="auto", help="where the server computes")
    served_stubs.add_options(described)
    options = described.parse_args()
    if options.stubs:
        served_stubs.report(options)
        return
    pairs = 1 if options.tiny else options.pairs or 10
    os.environ.setdefault("OPENAI_API_KEY", "none")
    common = [
        "--imgedit-suite=scenes:n=10",
        "--imgedit-editor=scenes",
        f"--imgedit-limit={pairs}",
        "--imgedit-gpus=none",
    ]
    figures: dict[str, Any] = {"pairs": 5 * pairs}
    rows = []
    with scratch(options) as folder, serving(folder, options.device) as spec:
        url, _, model = spec.partition("/v1#")
        with Proxy(url) as proxy:
            broken = f"http://127.0.0.1:{proxy.server_address[1]}/v1#{model}"
            judges = {
                "in process": "scenes",
                "served": f"openai:{spec}",
                "failing server": f"openai:{broken}",
            }
            asked = ["--imgedit-set=judge.concurrency=4", f"--imgedit-set=judge.timeout={TIMEOUT}"]
            expected: dict[str, Any] = {}
            for name, judge in judges.items():
                more = asked if name != "in process" else []
                results = evaluate(folder / "run", *common, f"--imgedit-judge={judge}", *more)
                found = verdicts(results)
                expected = expected or found
                same = [
                    sum(found[pair][n] == expected[pair][n] for pair in expected) for n in (0, 1)
                ]
                errors = sum(item["score"] is None for item in results["items"])
                seconds = results["timing"]["score_s"]
                figures[name] = {
                    "same_scores": same[0],
                    "same_replies": same[1],
                    "errors": errors,
                    "score_s": seconds,
                }
                rows.append((name, *same, errors, seconds))
            figures["proxy"] = dict(proxy.done)
    table(("judge", "same scores", "same replies", "errors", "score s"), rows)
    print("proxy:", ", ".join(f"{count} × {what}" for what, count in proxy.done.items()))
    finish(options, figures)


if __name__ == "__main__":
    main()
