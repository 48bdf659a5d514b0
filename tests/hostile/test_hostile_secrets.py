"""Secrets that are known by their shape, whatever their parameter is called, come into no file and on no screen."""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from folders import CONFIG
from PIL import Image

#: An editor and a judge that say all that they are told, in their logs, an error, and a reply.
TALKER = """
from PIL import ImageOps
from pytest_imgedit import Answer
class Editor:
    def __init__(self, *, device, **params):
        self.params = params
        print("loading with", params, flush=True)
    def edit(self, request):
        if request.pair_id == "raises":
            raise RuntimeError(str(self.params))
        return ImageOps.invert(request.source)
class Judge:
    def __init__(self, *, device, **params):
        self.params = params
    def answer(self, questions):
        text = f"instruction: 5\\npreservation: 5\\nrealism: 5\\n{self.params}"
        return [Answer(error=text) if q.pair_id == "fails" else Answer(text) for q in questions]
"""


def letters(count: int) -> str:
    return base64.b32encode(secrets.token_bytes(count)).decode()[:count]


def jwt() -> str:
    parts = (b'{"alg":"HS256","typ":"JWT"}', b'{"sub":"1"}', secrets.token_bytes(32))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def planted() -> dict[str, tuple[str, str]]:
    """Return values of parameters by name, each with the part of it that nobody may see."""
    word = {name: letters(20) for name in ("url", "dsn", "proxy", "bearer", "basic", "query", "no_user")}
    tokens = {
        "github": f"ghp_{letters(36)}",
        "github_fine": f"github_pat_{letters(22)}_{letters(40)}",
        "hub": f"hf_{letters(34)}",
        "openai": f"sk-proj-{letters(40)}",
        "aws": f"AKIA{letters(16)}",
        "slack": f"xoxb-1234567890-{letters(24)}",
        "jwt": jwt(),
    }
    basic = base64.b64encode(f"user:{word['basic']}".encode()).decode()
    return {
        "endpoint": (f"https://user:{word['url']}@example.org/v1?x=1", word["url"]),
        "database": (f"postgres://u:{word['dsn']}@h:5432/db", word["dsn"]),
        "cache": (f"redis://:{word['no_user']}@h/0", word["no_user"]),
        "via": (f"socks5h://me:{word['proxy']}@127.0.0.1:9", word["proxy"]),
        "header": (f"Authorization: Bearer {word['bearer']}", word["bearer"]),
        "other_header": (f"Basic {basic}", basic),
        **{name: (token, token) for name, token in tokens.items()},
        "sentence": (f"use {tokens['hub']} or so", tokens["hub"]),
    }


@pytest.fixture
def told(bench):
    """Write a suite, a talker and a config with all secrets; return what was planted."""
    Image.effect_noise((32, 32), 60).save(bench.path / "a.png")
    (bench.path / "talker.py").write_text(TALKER)
    values = planted()
    table = "".join(f"{name} = {json.dumps(value)}\n" for name, (value, _) in values.items())
    inside = f"nested = {{ deeper = [{', '.join(json.dumps(value) for value, _ in values.values())}] }}\n"
    (bench.path / "c.toml").write_text(f"[editor]\nplain = 'a plain word'\n{table}{inside}[judge]\n{table}")
    return values


def run(bench, *names: str, more: tuple[str, ...] = ()):
    rows = [{"id": name, "category": "physics", "instruction": "x", "image": "a.png"} for name in names]
    (bench.path / "pairs.json").write_text(json.dumps(rows))
    models = ("--imgedit-suite=pairs.json", "--imgedit-editor=talker:Editor", "--imgedit-judge=talker:Judge")
    return bench.run_with_workers(*models, "--imgedit-config=c.toml", "--junitxml=junit.xml", "-v", "-rA", *more)


def leaks(bench, result, values) -> list[str]:
    """Name what of the secrets stands where."""
    texts = {"screen": result.stdout.str() + result.stderr.str()}
    folders = (bench.path / ".imgedit", bench.path / "benchmarks")
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".png"]
    for path in [bench.path / "junit.xml", *files]:
        texts[path.name] = path.read_text("utf-8", "replace")
    assert {"results.json", "report.md", "report.html", "run.log", "verdicts.jsonl"} <= set(texts)
    return [f"{name} in {place}" for place, text in texts.items() for name, (_, part) in values.items() if part in text]


def test_secrets_by_their_shape_are_in_no_results_and_no_baseline(bench, told):
    result = run(bench, "one", "two", more=("--imgedit-save=main",))
    result.assert_outcomes(passed=2)
    assert (bench.path / "benchmarks" / "baselines" / "main.json").exists()
    assert leaks(bench, result, told) == []
    params = bench.results["editor"]["params"]
    assert params["plain"] == "a plain word"
    assert set(params) == {"plain", "nested", *told}
    assert params["endpoint"].endswith("@example.org/v1?x=1"), "where it is asked is no secret"


def test_secrets_by_their_shape_are_in_no_error_and_no_reply(bench, told):
    result = run(bench, "raises", "fails", "good")
    result.assert_outcomes(passed=1, failed=2)
    assert leaks(bench, result, told) == []


#: Stand in the place of `env` and `ssh`: they keep their own command lines, as a process list shows them to everybody.
PROGRAMS = {"env": 'exec /usr/bin/env "$@"', "ssh": 'for last; do :; done; exec /bin/sh -c "$last"'}


@pytest.mark.parametrize("way", ["popen", "ssh=box"])
def test_variables_of_a_host_are_on_no_command_line(bench, monkeypatch, way):
    value = secrets.token_hex(16)
    (bench.path / "bin").mkdir()
    for name, then in PROGRAMS.items():
        (bench.path / "bin" / name).write_text(f"#!/bin/sh\ncat /proc/$$/cmdline >> {bench.path}/shown\n{then}\n")
        (bench.path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bench.path}/bin{os.pathsep}{os.environ['PATH']}")
    spec = f"{way}//python={sys.executable}//env:SECRET_X={value}//env:OMP_NUM_THREADS=1"
    (bench.path / "hosts.toml").write_text(f"{CONFIG}[workers]\nhosts = [{json.dumps(spec)}]\n")
    (bench.path / "sees.py").write_text(
        "import os, time\n"
        "from PIL import ImageOps\n"
        "class Editor:\n"
        "    def __init__(self, *, device): pass\n"
        "    def edit(self, request):\n"
        "        open('seen', 'w').write(os.environ.get('SECRET_X', 'nothing'))\n"
        "        time.sleep(0.2)\n"
        "        return ImageOps.invert(request.source)\n"
    )
    options = ("--imgedit-editor=sees:Editor", "--imgedit-limit=1", "--imgedit-stage=edit")
    process = bench.start(*options, "--imgedit-config=hosts.toml")
    shown = b""
    while process.poll() is None:  # and whatever else has it on its command line
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has ended
                line = path.read_bytes()
                shown += line if value.encode() in line else b""
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert (bench.path / "seen").read_text() == value
    if (bench.path / "shown").exists():
        shown += (bench.path / "shown").read_bytes()
    assert value.encode() not in shown
