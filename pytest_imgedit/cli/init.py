"""`imgedit init`: a benchmark folder, a config, a suite file and CI workflows for the repository it
is called in.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from pytest_imgedit.cli.guess import Guess, guess_suite, to_jsonl
from pytest_imgedit.cli.requirement import requirement
from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.files import write_text
from pytest_imgedit.core.provenance import git
from pytest_imgedit.core.sanitize import did_you_mean, printable
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.base import GIB, ROLES, Role
from pytest_imgedit.kinds.registry import kind_of
from pytest_imgedit.suites.base import load_suite
from pytest_imgedit.workers.gpus import Gpu, find_gpus

FOLDER = Path("benchmarks")
CONFIG = FOLDER / "imgedit.toml"
REQUIREMENTS = FOLDER / "requirements.txt"
CI_FILES = {"github": Path(".github/workflows/image-editing.yml"), "gitlab": Path(".gitlab-ci.yml")}
_SHIPPED = files("pytest_imgedit.benchmark")
#: What the second line of a ready config says.
_NEEDS = re.compile(r"^# needs: ((\d+) GPUs? of (\d+) GB), (.+)$", re.M)
#: The ready config for GPUs of at least so many GB.
_FOR_GPUS_OF = {80: "one-gpu", 24: "small-gpu"}
#: GPUs hold a few percent less than the number that they are sold by.
_ROUNDING = 0.95
#: What begins a cell that spreadsheets compute.
_FORMULAS = ("=", "+", "-", "@")
_HEAD = (
    "# What pytest evaluates in this repository; docs/reference.md of pytest-imgedit lists "
    "every key.\n\n"
)
_WITHOUT_GPU = f"""{_HEAD}[suite]
spec = "scenes"

[editor]
spec = "identity"             # the model under test: diffusers:FOLDER or openai-images:URL#MODEL

[judge]
spec = "none"                 # edits only; for scores, such as openai:URL#MODEL or qwen-vl:MODEL
"""
_EMBEDDED = f"""{_HEAD}[suite]
spec = "scenes"               # 50 drawn pairs, or the path of your own file

[editor]
spec = "scenes"               # the model under test: diffusers:FOLDER or openai-images:URL#MODEL

[judge]
spec = "scenes"               # for other suites, such as openai:URL#MODEL or qwen-vl:MODEL
"""


def configs() -> list[str]:
    """Return the names of the configs that the package ships."""
    folder = _SHIPPED.joinpath("configs")
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    )


def init(
    data: Path | None, config: str | None, ci: str, editor: str | None, judge: str | None
) -> tuple[JsonObject, str, int]:
    """Write what a repository lacks in order to run `pytest benchmarks`; a file that is there stays
    as it is.
    """
    if config is not None and config not in configs():
        near = did_you_mean(config, configs())
        raise UsageError(
            f"--config={config}: no such config, expected one of: {', '.join(configs())}{near}"
        )
    specs: dict[Role, str | None] = {"editor": editor, "judge": judge}
    guess = guess_suite(data)
    is_new = not os.path.lexists(CONFIG)  # a config that is there has its own suite and models
    gpus = find_gpus("auto")[1]
    name = config or (None if editor or judge else _config_for(gpus))
    text = _config(name, guess, specs)
    if is_new:
        _check(guess)
    notes = [f"not used: {reason}" for reason in guess.unused]
    systems, reason = _systems(ci)
    notes += [reason] if reason else []
    package = requirement("openai" if _is_served(text) else "")
    if package.is_local:
        notes.append(
            f"to do: name what CI can install in {FOLDER / 'requirements.txt'}: {package.line} is "
            "on this machine"
        )
    to_do = [*_needs(text, gpus), *_to_do(guess, text)] if is_new else []
    written, kept = _write(_wanted(guess, text, _workflows(systems, name), package.line, is_new))
    document = {
        "written": written,
        "kept": kept,
        "suite": guess.origin,
        "notes": notes,
        "to_do": to_do,
    }
    return document, _text(document), 0


def _check(guess: Guess) -> None:
    """Raise `UsageError` if the suite that would be written could not be read."""
    if not guess.rows or guess.unfinished:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, _suite_name(guess))
        path.write_text(_suite_text(guess), "utf-8")
        try:
            load_suite(SuiteSettings(spec=str(path), root=guess.root))
        except UsageError as error:
            raise UsageError(f"{guess.origin}: {str(error).replace(str(path), 'row', 1)}") from None


def _config_for(gpus: Sequence[Gpu]) -> str | None:
    """Return the name of the ready config that fits the GPUs of this machine."""
    smallest = min((gpu.total_gib * GIB / 10**9 for gpu in gpus), default=0.0)
    return next((name for size, name in _FOR_GPUS_OF.items() if smallest >= size * _ROUNDING), None)


def _needs(config: str, gpus: Sequence[Gpu]) -> list[str]:
    """Say what a config needs, and whether this machine has it."""
    needed = _NEEDS.search(config)
    if needed is None:
        return []
    count, size = int(needed[2]), int(needed[3])
    large = [gpu for gpu in gpus if gpu.total_gib * GIB / 10**9 >= size * _ROUNDING]
    if len(large) >= count:
        return [f"{CONFIG} needs {needed[1]}, which are here, and {needed[4]}"]
    return [
        f"{CONFIG} needs {needed[1]} and {needed[4]}; here are {len(large) or 'none'} of these GPUs"
    ]


def _specs(config: str) -> dict[Role, str]:
    return {role: table["spec"] for role, table in tomllib.loads(config).items() if role in ROLES}


def _is_served(config: str) -> bool:
    return any(
        getattr(kind_of(role, spec), "is_served", False) for role, spec in _specs(config).items()
    )


def _to_do(guess: Guess, config: str) -> list[str]:
    """Say what is still missing before the run gives scores."""
    if guess.unfinished:
        to_do = [f"to do: fill in {guess.unfinished}, in {FOLDER / _suite_name(guess)}"]
    else:
        to_do = []
    specs = _specs(config)
    if specs["editor"] == "identity":
        to_do.append(
            f"to do: name your model in {CONFIG}; its editor is identity, which returns the source"
        )
    if specs["judge"] == "none":
        to_do.append(f"to do: name a judge in {CONFIG}; it has none, so there are no scores")
    if _is_served(config) and find_spec("openai") is None:
        to_do.append("to do: pip install openai, which talks to the server")
    return to_do


def _wanted(
    guess: Guess, config: str, workflows: Mapping[Path, str], package: str, is_new: bool
) -> dict[Path, str]:
    """Return the text of each file that a repository needs, by its path."""
    wanted = {
        FOLDER / "test_image_edit.py": _SHIPPED.joinpath("test_image_edit.py").read_text("utf-8"),
        CONFIG: config,
        REQUIREMENTS: f"{package}\n",
    }
    if guess.rows and is_new:
        wanted[FOLDER / _suite_name(guess)] = _suite_text(guess)
    return {**wanted, **workflows}


def _workflows(systems: Sequence[str], config: str | None) -> dict[Path, str]:
    """Return the workflows for CI systems: on GPUs if a ready config is used."""
    texts = {
        CI_FILES[system]: _SHIPPED.joinpath("ci", f"{system}.yml").read_text("utf-8")
        for system in systems
    }
    if config is None:
        return texts
    return {path: _on_gpus(text) for path, text in texts.items()}


def _write(wanted: Mapping[Path, str]) -> tuple[list[str], list[str]]:
    """Write the files that are not there, all or none; return the paths of those written and of
    those kept.
    """
    for path in wanted:
        if any(os.path.lexists(parent) and not parent.is_dir() for parent in path.parents):
            raise UsageError(f"{path}: cannot be written, a folder of it is a file")
        if not path.parent.resolve().is_relative_to(Path.cwd().resolve()):
            raise UsageError(
                f"{path}: leads to {path.parent.resolve()}, expected a folder below this one"
            )
    kept = [path for path in wanted if os.path.lexists(path)]
    written: list[Path] = []
    try:
        for path in (path for path in wanted if path not in kept):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, wanted[path])
            written.append(path)
    except BaseException:
        for path in written:
            path.unlink()
        raise
    return list(map(str, written)), list(map(str, kept))


def _text(document: JsonObject) -> str:
    lines = [f"suite: {document['suite']}"]
    lines += [f"wrote {path}" for path in document["written"]]
    lines += [f"kept {path}, which was there before" for path in document["kept"]]
    lines += document["notes"]
    return "\n".join(map(printable, [*lines, *document["to_do"], "next: pytest benchmarks"]))


def _config(name: str | None, guess: Guess, specs: Mapping[Role, str | None]) -> str:
    """Return the text of the config: that of a name, or one without a GPU, with the guessed suite
    and given models.
    """
    is_embedded = guess.spec is None and not guess.rows
    if name is not None:
        text = _SHIPPED.joinpath("configs", f"{name}.toml").read_text("utf-8")
    else:
        text = _EMBEDDED if is_embedded else _WITHOUT_GPU
    if not is_embedded:
        text = re.sub(
            r'^spec = "scenes.*$', lambda _: _suite_lines(guess), text, count=1, flags=re.M
        )
    for role, spec in specs.items():
        if spec is not None:
            text = _with_model(_NEEDS.sub("", text), role, spec)
    return text


def _with_model(config: str, role: Role, spec: str) -> str:
    """Replace a model of a config and its parameters."""
    before, section, after = config.partition(f"[{role}]\n")
    rest = after[after.index("\n[") :] if "\n[" in after else ""
    return f"{before}{section}spec = {_quoted(_from_config(role, spec))}\n{rest}"


def _from_config(role: Role, spec: str) -> str:
    """Return a spec whose path, if it has one, is relative to the config's folder."""
    name, colon, argument = spec.partition(":")
    argument_is = getattr(kind_of(role, spec), "argument_is", "")
    is_path = argument_is == "path" or (argument_is == "checkpoint" and Path(argument).is_dir())
    if not is_path or Path(argument).is_absolute():
        return spec
    return f"{name}{colon}{os.path.relpath(argument, FOLDER)}"


def _suite_lines(guess: Guess) -> str:
    if guess.spec is not None:
        return f"spec = {_quoted(os.path.relpath(guess.spec, FOLDER))}"
    root = _quoted(os.path.relpath(guess.root, FOLDER))
    return (
        f"spec = {_quoted(_suite_name(guess))}\nroot = {root}                   # images are "
        "below this folder"
    )


def _quoted(path: str) -> str:
    """Write a text as a TOML string: as in JSON, which leaves DEL as it is."""
    return json.dumps(path, ensure_ascii=False).replace("\x7f", "\\u007f")


def _suite_name(guess: Guess) -> str:
    if guess.unfinished:
        return "pairs.csv"
    return "pairs.jsonl"


def _suite_text(guess: Guess) -> str:
    """Write the rows of a new suite: as CSV where a person is to fill something in.

    A spreadsheet takes no cell for a formula: `./=1.png` is the same path as `=1.png`, and suites
    are read without the blanks around an instruction.
    """
    if not guess.unfinished:
        return to_jsonl(guess.rows)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("image", "instruction"))
    for row in guess.rows:
        image, instruction = row["image"], row["instruction"]
        harmless_image = f"./{image}" if image.startswith(_FORMULAS) else image
        harmless_instruction = (
            f" {instruction}" if instruction.startswith(_FORMULAS) else instruction
        )
        writer.writerow((harmless_image, harmless_instruction))
    return buffer.getvalue()


def _systems(ci: str) -> tuple[list[str], str]:
    """Return the CI systems to write for, and why for none if that needs a word: the git remote
    decides.
    """
    if ci == "none":
        return [], ""
    top = git("rev-parse", "--show-toplevel")
    if top and Path(top).resolve() != Path.cwd().resolve():
        return [], f"wrote no workflow: CI systems read theirs in {top} only"
    if ci != "auto":
        return [ci], ""
    remote = git("remote", "get-url", "origin") or ""
    systems = [name for name in CI_FILES if name in remote]
    return (
        systems,
        ""
        if systems
        else "wrote no workflow: no git remote says for which CI system; add --ci=github or "
        "--ci=gitlab",
    )


def _on_gpus(text: str) -> str:
    """Have a workflow run on a machine with GPUs."""
    text = text.replace("runs-on: ubuntu-latest", "runs-on: [self-hosted, gpu]")
    text = text.replace("  image: python:3.12\n", "  image: python:3.12\n  tags: [gpu]\n")
    return text.replace(" --extra-index-url https://download.pytorch.org/whl/cpu", "")
