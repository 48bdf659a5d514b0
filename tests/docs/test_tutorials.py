"""Each tutorial is followed word by word: its files are written, its commands run, and what it shows
of their output is what they print.

A block of `sh` is commands, one with a `title` is a file, and one of `text` is how lines of the output
of the command before it begin, in order, with `…` for others. Numbers are not compared. `# exit code 1`
behind a command is what it ends with. `export` names what a reader has: here it is tiny.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from in_process import WITHOUT_OTHERS, run_with_threads
from miniatures import ANY_VERSION, make_gedit
from model_server import ModelServer
from PIL import Image

import pytest_imgedit
from pytest_imgedit.cli.main import main
from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.suites.base import load_suite

if TYPE_CHECKING:
    from collections.abc import Iterator

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
WEIGHTS = Path(pytest_imgedit.__file__).parent / "scenes" / "weights"
_BLOCK = re.compile(r'^```(\w+)(?: title="(.+?)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    title: str
    content: str


def blocks(name: str) -> list[Block]:
    text = (TUTORIALS / f"{name}.md").read_text()
    found = [Block(*groups) for groups in _BLOCK.findall(text)]
    assert len(found) == text.count("```") / 2, "a block without a language, which nothing runs"
    return found


class Reader:
    """Follows a tutorial in an empty folder."""

    def __init__(self, pytester: pytest.Pytester, patch: pytest.MonkeyPatch) -> None:
        self.pytester, self.patch = pytester, patch
        self.output = ""

    def follow(self, name: str) -> None:
        for block in blocks(name):
            if block.title:
                path = self.pytester.path / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.content)
            elif block.language == "sh":
                for line in block.content.replace("\\\n", " ").splitlines():
                    self.run(line)
            elif block.language == "text":
                self.compare(block.content)
            else:
                pytest.fail(f"{name}: a block of {block.language} that nothing runs")

    def run(self, line: str) -> None:
        command, _, remark = line.partition("  # exit code ")
        program, *arguments = shlex.split(os.path.expandvars(command))
        if program == "export":
            [(name, value)] = [argument.split("=", 1) for argument in arguments]
            self.patch.setenv(name, os.environ.get(name, value))
            return
        code, self.output = self.programs.get(program, self.shell)(command, arguments)
        assert code == int(remark or 0), (line, self.output)

    @property
    def programs(self):
        return {"pytest": self.pytest, "imgedit": self.imgedit}

    def pytest(self, command: str, arguments: list[str]) -> tuple[int, str]:
        result = run_with_threads(self.pytester, *WITHOUT_OTHERS, *arguments)
        return int(result.ret), "\n".join([*result.errlines, *result.outlines])

    def imgedit(self, command: str, arguments: list[str]) -> tuple[int, str]:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            code = main(arguments)
        return code, printed.getvalue()

    def shell(self, command: str, arguments: list[str]) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=self.pytester.path,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def compare(self, excerpt: str) -> None:
        printed = comparable(self.output)
        for line in comparable(excerpt):
            if line != "…":
                assert any(other.startswith(line) for other in printed), (line, self.output)


def comparable(text: str) -> Iterator[str]:
    """Lines without their numbers and ids of runs, and with one space for several."""
    for line in text.splitlines():
        words = re.sub(r"\d+T\d+Z-\w+|\d+(\.\d+)?", "0", line.replace("─", "")).split()
        if words:
            yield " ".join(words)


@pytest.fixture
def server():
    """The embedded editor and judge behind OpenAI's API."""
    server = ModelServer()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def reader(pytester, monkeypatch, pytorch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(pytester.path)
    for name in ("GITHUB_STEP_SUMMARY", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return Reader(pytester, monkeypatch)


def own_photographs(folder: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    (folder / "photos").mkdir()
    for name in ("forest", "harbour", "kitchen", "street"):
        Image.effect_noise((96, 80), 60).convert("RGB").save(folder / "photos" / f"{name}.png")
    return {"SERVER": request.getfixturevalue("server").url}


def two_checkpoints(folder: Path, _: pytest.FixtureRequest) -> dict[str, str]:
    """The embedded editor as two checkpoints, of which the second has lost its way, and a table of
    drawn pairs.
    """
    from safetensors.torch import load_file, save_file

    for name in ("step-4000", "step-5000"):
        shutil.copytree(WEIGHTS / "editor", folder / "checkpoints" / name)
    [path] = (folder / "checkpoints" / "step-5000" / "unet").glob("*.safetensors")
    save_file({key: tensor / 2 for key, tensor in load_file(path).items()}, path)
    rows = ["image,instruction,category,reference"]
    (folder / "data").mkdir()
    for pair in load_suite(SuiteSettings(spec="scenes:n=2")).pairs:
        names = [f"{pair.id}.png", f"{pair.id}-after.png"]
        for image, file in zip((pair.source, pair.reference), names, strict=True):
            (folder / "data" / file).write_bytes(image.read())
        rows.append(f'{names[0]},"{pair.instruction}",{pair.category},{names[1]}')
    (folder / "data" / "prompts.csv").write_text("\n".join(rows) + "\n")
    return {}


def gedit(folder: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    (folder / "GEdit-Bench").mkdir()
    server = request.getfixturevalue("server")
    server.reply = '{"score": [8, 7]}'
    return {
        "GEDIT": str(make_gedit(folder / "GEdit-Bench")),
        "JUDGE_URL": server.url,
        "CHECKPOINT": str(WEIGHTS / "editor"),
        "PYTEST_ADDOPTS": ANY_VERSION,
    }


def few_step_adapters(folder: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """A tiny Qwen-Image-Edit with small edits, and adapters of random weights with the names of
    Lightning's.
    """
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(0)
    (folder / "adapters").mkdir()
    for steps in (8, 4):
        tensors = {
            f"transformer.transformer_blocks.0.attn.to_{part}.lora_{side}.weight": torch.randn(
                shape, generator=generator
            )
            for part in "qk"
            for side, shape in {"A": (4, 32), "B": (32, 4)}.items()
        }
        name = f"Qwen-Image-Edit-Lightning-{steps}steps-V1.0.safetensors"
        save_file(tensors, folder / "adapters" / name)
    return {
        "MODEL": str(request.getfixturevalue("tiny")("qwen-image-edit")),
        "PYTEST_ADDOPTS": "--imgedit-set=editor.height=64 --imgedit-set=editor.width=64",
    }


#: What the reader of a tutorial has: files, and environment variables.
PREPARATIONS = {
    "own-data": own_photographs,
    "few-steps": few_step_adapters,
    "checkpoint-in-ci": two_checkpoints,
    "public-benchmark": gedit,
}


@pytest.mark.parametrize("name", sorted(path.stem for path in TUTORIALS.glob("*.md")))
@pytest.mark.everyday_for("write-a-judge", "write-a-protocol")
def test_tutorial_works_word_by_word(reader, name, request, monkeypatch):
    """Costly: some run the embedded models, or a checkpoint of diffusers, several times."""
    if name in PREPARATIONS:
        has = PREPARATIONS[name](reader.pytester.path, request)
        for variable, value in {"OPENAI_API_KEY": "a key", **has}.items():
            monkeypatch.setenv(variable, value)
    reader.follow(name)
