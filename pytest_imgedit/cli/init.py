"""`imgedit init`: a benchmark folder, a config, a suite file and CI workflows for the repository it is called in."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from pytest_imgedit.cli.guess import Guess, guess_suite, to_jsonl
from pytest_imgedit.cli.printed import Printed
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.provenance import git
from pytest_imgedit.core.sanitize import did_you_mean, printable
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.versions import __version__
from pytest_imgedit.workers.gpus import find_gpus

FOLDER = Path("benchmarks")
CI_FILES = {"github": Path(".github/workflows/image-editing.yml"), "gitlab": Path(".gitlab-ci.yml")}
_SHIPPED = files("pytest_imgedit.benchmark")
_WITH_GPU = """[editor]
spec = "diffusers:Qwen/Qwen-Image-Edit" # the model under test: a hub id or a folder; 58 GB in bfloat16
num_inference_steps = 50      # denoising steps
true_cfg_scale = 4.0          # classifier-free guidance

[judge]
spec = "qwen-vl:Qwen/Qwen3-VL-8B-Instruct" # 18 GB in bfloat16

[workers]
gpus = "auto"                 # all GPUs that CUDA_VISIBLE_DEVICES leaves visible
"""
_WITHOUT_GPU = """[editor]
spec = "identity"             # the model under test, such as diffusers:FOLDER or openai-images:URL#MODEL

[judge]
spec = "none"                 # edits only; for scores, such as openai:URL#MODEL or qwen-vl:MODEL
"""
_EMBEDDED = """[suite]
spec = "scenes"               # 50 drawn pairs, which the embedded editor and judge know; or the path of your own file

[editor]
spec = "scenes"               # the model under test, such as diffusers:FOLDER or openai-images:URL#MODEL

[judge]
spec = "scenes"               # for other suites, such as openai:URL#MODEL or qwen-vl:MODEL
"""


def configs() -> list[str]:
    """Return the names of the configs that the package ships."""
    folder = _SHIPPED.joinpath("configs")
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def init(data: Path | None, config: str | None, ci: str) -> Printed:
    """Write what a repository lacks in order to run `pytest benchmarks`; a file that is there stays as it is."""
    if config is not None and config not in configs():
        near = did_you_mean(config, configs())
        raise UsageError(f"--config={config}: no such config, expected one of: {', '.join(configs())}{near}")
    guess = guess_suite(data)
    is_new = not os.path.lexists(FOLDER / "imgedit.toml")  # a config that is there has its own suite
    notes = [f"not used: {reason}" for reason in guess.unused]
    systems = _systems(ci)
    if systems and (top := git("rev-parse", "--show-toplevel")) and Path(top).resolve() != Path.cwd().resolve():
        notes.append(f"wrote no workflow: CI systems read theirs in {top} only")
        systems = []
    written, kept = _write(_wanted(guess, config, systems, is_new))
    document = {
        "written": written,
        "kept": kept,
        "suite": guess.origin,
        "notes": notes,
        "unfinished": guess.unfinished if is_new else "",
    }
    return Printed(document, _text(document), 0)


def _wanted(guess: Guess, config: str | None, systems: Sequence[str], is_new: bool) -> dict[Path, str]:
    """Return the text of each file that a repository needs, by its path."""
    has_gpu = bool(find_gpus("auto")[0])
    wanted = {
        FOLDER / "test_image_edit.py": _SHIPPED.joinpath("test_image_edit.py").read_text("utf-8"),
        FOLDER / "imgedit.toml": _config(config, guess, has_gpu),
        FOLDER / "requirements.txt": f"pytest-imgedit=={__version__}\n",
    }
    if guess.rows and is_new:
        wanted[FOLDER / _suite_name(guess)] = _suite_text(guess)
    for system in systems:
        text = _SHIPPED.joinpath("ci", f"{system}.yml").read_text("utf-8")
        wanted[CI_FILES[system]] = text if config is None and not has_gpu else _on_gpus(text)
    return wanted


def _write(wanted: Mapping[Path, str]) -> tuple[list[str], list[str]]:
    """Write the files that are not there; return the paths of those written and of those kept."""
    for path in wanted:
        if any(os.path.lexists(parent) and not parent.is_dir() for parent in path.parents):
            raise UsageError(f"{path}: cannot be written, a folder of it is a file")
    written: list[str] = []
    kept: list[str] = []
    for path, text in wanted.items():
        if os.path.lexists(path):
            kept.append(str(path))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(str(path))
    return written, kept


def _text(document: JsonObject) -> str:
    lines = [f"suite: {document['suite']}"]
    lines += [f"wrote {path}" for path in document["written"]]
    lines += [f"kept {path}, which was there before" for path in document["kept"]]
    lines += document["notes"]
    if document["unfinished"]:
        lines.append(f"to do: fill in {document['unfinished']}")
    return "\n".join(map(printable, [*lines, "next: pytest benchmarks"]))


def _config(name: str | None, guess: Guess, has_gpu: bool) -> str:
    """Return the text of the config: that of a name, or one for this machine, with the guessed suite."""
    is_embedded = guess.spec is None and not guess.rows
    if name is not None:
        text = _SHIPPED.joinpath("configs", f"{name}.toml").read_text("utf-8")
        lines = _suite_lines(guess)
        return text if is_embedded else re.sub(r'^spec = "scenes.*$', lambda _: lines, text, count=1, flags=re.M)
    head = "# What pytest evaluates in this repository; docs/reference.md of pytest-imgedit lists every key.\n\n"
    if is_embedded:
        return head + (f'[suite]\nspec = "scenes"\n\n{_WITH_GPU}' if has_gpu else _EMBEDDED)
    return f"{head}[suite]\n{_suite_lines(guess)}\n\n{_WITH_GPU if has_gpu else _WITHOUT_GPU}"


def _suite_lines(guess: Guess) -> str:
    if guess.spec is not None:
        return f"spec = {_quoted(os.path.relpath(guess.spec, FOLDER))}"
    root = _quoted(os.path.relpath(guess.root, FOLDER))
    return f"spec = {_quoted(_suite_name(guess))}\nroot = {root}                   # images are below this folder"


def _quoted(path: str) -> str:
    """Write a path as a TOML string."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _suite_name(guess: Guess) -> str:
    return "pairs.csv" if guess.unfinished else "pairs.jsonl"


def _suite_text(guess: Guess) -> str:
    """Write the rows of a new suite: as CSV where a person is to fill something in."""
    if not guess.unfinished:
        return to_jsonl(guess.rows)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, ["image", "instruction"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(guess.rows)
    return buffer.getvalue()


def _systems(ci: str) -> list[str]:
    """Return the CI systems to write for: the one of the git remote, or both where that does not tell."""
    if ci != "auto":
        return [] if ci == "none" else [ci]
    remote = git("remote", "get-url", "origin") or ""
    return [name for name in CI_FILES if name in remote] or list(CI_FILES)


def _on_gpus(text: str) -> str:
    """Have a workflow run on a machine with GPUs."""
    text = text.replace("runs-on: ubuntu-latest", "runs-on: [self-hosted, gpu]")
    text = text.replace("  image: python:3.12\n", "  image: python:3.12\n  tags: [gpu]\n")
    return text.replace(" --extra-index-url https://download.pytorch.org/whl/cpu", "")
