"""`imgedit init`: a benchmark folder, a config, a suite file and CI workflows for the repository it
is called in.
"""

import csv
import io
import json
import math
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import distribution
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pytest_imgedit.cli.guess import Guess, guess_suite
from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core import errors, provenance, strict_json, versions
from pytest_imgedit.core.files import MAX_TEXT_BYTES, read_utf8
from pytest_imgedit.core.sanitize import counted, did_you_mean, printable
from pytest_imgedit.kinds.base import GIB, ROLES, Role
from pytest_imgedit.kinds.registry import kind_of
from pytest_imgedit.report import outputs
from pytest_imgedit.stats import planning
from pytest_imgedit.store.baselines import FOLDER as BASELINES
from pytest_imgedit.suites.base import load_suite
from pytest_imgedit.workers.gpus import Gpu, find_gpus

_PACKAGE = "pytest-imgedit"
FOLDER = Path("benchmarks")
CONFIG = FOLDER / "imgedit.toml"
REQUIREMENTS = FOLDER / "requirements.txt"
ATTRIBUTES = Path(".gitattributes")
#: What keeps git from merging the lines of two baselines.
UNMERGED = f"/{BASELINES.as_posix()}/*.json -merge"
CI_FILES = {"github": Path(".github/workflows/image-editing.yml"), "gitlab": Path(".gitlab-ci.yml")}
_SHIPPED = files("pytest_imgedit.benchmark")
#: What the second line of a ready config says.
_NEEDS = re.compile(r"^# needs: ((\d+) GPUs? of (\d+) GB), (.+)$", re.M)
#: The ready config for GPUs of at least so many GB.
_FOR_GPUS_OF = {80: "one-gpu", 24: "small-gpu"}
#: GPUs hold a few percent less than the number that they are sold by.
_ROUNDING = 0.95
#: What changes in a workflow that runs on a machine with GPUs.
_ON_GPUS = {
    "runs-on: ubuntu-latest": "runs-on: [self-hosted, gpu]",
    "  image: python:3.12\n": "  image: python:3.12\n  tags: [gpu]\n",
    " --extra-index-url https://download.pytorch.org/whl/cpu": "",
}
#: Standard deviation of a pair's difference between two runs that `init` assumes, the drop that a
#: suite should decide, both in points, and α of a gate on drops.
_SPREAD, _DROP, _ALPHA = 2.0, 0.5, 0.025
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
spec = "scenes"               # 100 drawn pairs, or the path of your own file

[editor]
spec = "scenes"               # the model under test: diffusers:FOLDER or openai-images:URL#MODEL

[judge]
spec = "scenes"               # for other suites, such as openai:URL#MODEL or qwen-vl:MODEL
"""


def configs() -> list[str]:
    """Return the names of the configs that the package ships."""
    names = (entry.name for entry in _SHIPPED.joinpath("configs").iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def init(
    data: Path | None, config: str | None, ci: str, editor: str | None, judge: str | None
) -> tuple[strict_json.JsonObject, str, int]:
    """Write what a repository lacks in order to run `pytest benchmarks`; a file that is there stays
    as it is, and `.gitattributes` gets a line.
    """
    if config is not None and config not in configs():
        raise errors.UsageError(
            f"--config={config}: no such config, expected one of: {', '.join(configs())}"
            f"{did_you_mean(config, configs())}"
        )
    guess = guess_suite(data)
    is_new = not os.path.lexists(CONFIG)  # a config that is there has its own suite and models
    gpus = find_gpus("auto")[1]
    name = config or (None if editor or judge else _config_for(gpus))
    text = _config(name, guess, {"editor": editor, "judge": judge})
    if is_new:
        _check(guess)
    specs = {role: table["spec"] for role, table in tomllib.loads(text).items() if role in ROLES}
    is_served = any(
        getattr(kind_of(role, spec), "is_served", False) for role, spec in specs.items()
    )
    notes = [f"not used: {reason}" for reason in guess.unused]
    systems, reason = _systems(ci)
    notes += filter(None, [reason])
    origin = json.loads(distribution(_PACKAGE).read_text("direct_url.json") or "null")
    package, is_local = of_origin(origin, f"{_PACKAGE}[openai]" if is_served else _PACKAGE)
    if is_local:
        notes.append(
            f"to do: name what CI can install in {FOLDER / 'requirements.txt'}: {package} is "
            "on this machine"
        )
    contents = {
        FOLDER / "test_image_edit.py": _SHIPPED.joinpath("test_image_edit.py").read_text("utf-8"),
        CONFIG: text,
        REQUIREMENTS: f"{package}\n",
    }
    to_do = list(_to_do(guess, text, specs, is_served, gpus)) if is_new else []
    if is_new and guess.rows:
        contents[FOLDER / guess.file_name] = _suite_text(guess)
    contents |= {CI_FILES[system]: _workflow(system, name is not None) for system in systems}
    if added := _with_attributes():
        contents[ATTRIBUTES] = added
    written, existing = _write(contents)
    document = {
        "written": written,
        "kept": existing,
        "suite": guess.origin,
        "notes": notes,
        "to_do": to_do,
    }
    lines = [
        f"suite: {guess.origin}",
        *(f"wrote {path}" for path in written),
        *(f"kept {path}, which was there before" for path in existing),
        *notes,
        *to_do,
        "next: pytest benchmarks",
    ]
    return document, "\n".join(map(printable, lines)), 0


def _check(guess: Guess) -> None:
    """Raise `UsageError` if the suite that would be written could not be read."""
    if not guess.rows or guess.unfinished:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, guess.file_name)
        outputs.write(path, _suite_text(guess))
        try:
            load_suite(SuiteSettings(spec=str(path), root=guess.root))
        except errors.UsageError as error:
            raise errors.UsageError(
                f"{guess.origin}: {str(error).replace(str(path), 'row', 1)}"
            ) from None


def _config_for(gpus: Sequence[Gpu]) -> str | None:
    """Return the name of the ready config that fits the GPUs of this machine."""
    smallest = min((gpu.total_gib * GIB / 10**9 for gpu in gpus), default=0.0)
    return next((name for size, name in _FOR_GPUS_OF.items() if smallest >= size * _ROUNDING), None)


def _to_do(
    guess: Guess, config: str, specs: Mapping[Role, str], is_served: bool, gpus: Sequence[Gpu]
) -> Iterator[str]:
    """Say what a config needs, and what is still missing before the run gives scores."""
    if needed := _NEEDS.search(config):
        least = int(needed[3]) * _ROUNDING
        large = [gpu for gpu in gpus if gpu.total_gib * GIB / 10**9 >= least]
        if len(large) >= int(needed[2]):
            yield f"{CONFIG} needs {needed[1]}, which are here, and {needed[4]}"
        else:
            yield (
                f"{CONFIG} needs {needed[1]} and {needed[4]}; here are {len(large) or 'none'} of "
                "these GPUs"
            )
    if guess.unfinished:
        yield f"to do: fill in {guess.unfinished}, in {FOLDER / guess.file_name}"
    if specs["editor"] == "identity":
        yield (
            f"to do: name your model in {CONFIG}; its editor is identity, which returns the source"
        )
    if specs["judge"] == "none":
        yield f"to do: name a judge in {CONFIG}; it has none, so there are no scores"
    if is_served and find_spec("openai") is None:
        yield "to do: pip install openai, which talks to the server"


def of_origin(origin: Any, name: str = _PACKAGE) -> tuple[str, bool]:
    """Return the requirement for a `direct_url.json` (PEP 610), and whether only this machine can
    install from it.

    `origin` is `None` for a package from an index, which leaves no such file.
    """
    if origin is None:
        return f"{name}=={versions.__version__}", False
    url: str = origin["url"]
    is_local = url.startswith("file:")
    if version_control := origin.get("vcs_info"):
        url = f"{version_control['vcs']}+{url}@{version_control['commit_id']}"
    elif "dir_info" in origin and (remote := _remote(Path(unquote(urlsplit(url).path)))):
        return f"{name} @ {remote}", False
    return f"{name} @ {url}", is_local


def _remote(folder: Path) -> str | None:
    """Return the URL of the remote of a clone, with the commit that is checked out, as pip takes
    it.
    """
    remote = provenance.git("-C", str(folder), "remote", "get-url", "origin")
    commit = provenance.git("-C", str(folder), "rev-parse", "HEAD")
    if not remote or not commit or remote.startswith(("/", ".", "file:")):
        return None
    if "://" not in remote:  # user@host:path, as for ssh
        remote = f"ssh://{remote.replace(':', '/', 1)}"
    return f"git+{remote}@{commit}"


def _write(contents: Mapping[Path, str]) -> tuple[list[str], list[str]]:
    """Write the files that are not there, all or none; return the paths of those written and of
    those that exist.
    """
    for path in contents:
        if any(os.path.lexists(parent) and not parent.is_dir() for parent in path.parents):
            raise errors.UsageError(f"{path}: cannot be written, a folder of it is a file")
        if not path.parent.resolve().is_relative_to(Path.cwd().resolve()):
            raise errors.UsageError(
                f"{path}: leads to {path.parent.resolve()}, expected a folder below this one"
            )
    existing = [path for path in contents if path != ATTRIBUTES and os.path.lexists(path)]
    new = [path for path in contents if path not in existing]
    with ExitStack() as on_failure:
        for path in new:
            before = path.read_bytes() if os.path.lexists(path) else None
            outputs.write(path, contents[path])
            on_failure.callback(
                path.unlink if before is None else partial(path.write_bytes, before)
            )
        on_failure.pop_all()
    return list(map(str, new)), list(map(str, existing))


def _with_attributes() -> str:
    """Return the text of `.gitattributes` with the line for baselines after all that it holds; an
    empty text if it names them already.

    Raises `UsageError` for one that cannot be read as text.
    """
    text = ""
    if os.path.lexists(ATTRIBUTES):
        text = read_utf8(ATTRIBUTES, MAX_TEXT_BYTES, "git's attributes")
    if any(line.split()[:1] == UNMERGED.split()[:1] for line in text.splitlines()):
        return ""
    ending = "\n" if text and not text.endswith("\n") else ""
    return f"{text}{ending}{UNMERGED}\n"


def _config(name: str | None, guess: Guess, specs: Mapping[Role, str | None]) -> str:
    """Return the text of the config: a ready one or one without a GPU, with the guessed suite and
    the specs that the user chose.
    """
    has_suite = bool(guess.spec or guess.rows)
    text = _WITHOUT_GPU if has_suite else _EMBEDDED
    if name is not None:
        text = _SHIPPED.joinpath("configs", f"{name}.toml").read_text("utf-8")
    if has_suite:
        text = re.sub(
            r'^spec = "scenes.*$', lambda _: _suite_lines(guess), text, count=1, flags=re.M
        )
    for role, spec in specs.items():
        if spec is not None:
            text = _with_model(_NEEDS.sub("", text), role, spec)
    sources = {row.get("image") for row in guess.rows}
    return _with_gates(text, len(sources)) if guess.rows else text


def _with_gates(config: str, sources: int) -> str:
    """Say in a comment which drops so few source images can decide, where these are over `_DROP`
    points.
    """
    size = max(2, sources)
    error, freedom = _SPREAD / math.sqrt(size), size - 1
    mde = planning.mde(error, freedom, _ALPHA)
    factor = planning.size_for(_DROP, error, freedom, _ALPHA)
    if mde <= _DROP or factor is None:
        return config
    comment = (
        f"# {counted(sources, 'source image')} can decide drops over {mde:.1f} points, if "
        f"differences have a standard deviation of {_SPREAD:g};\n"
        f"# {_DROP:g} points need about {math.ceil(factor * size)}. Until then gates mostly warn.\n"
    )
    if "[gates]\n" in config:
        return config.replace("[gates]\n", f"[gates]\n{comment}", 1)
    return f"{config}\n{comment}"


def _with_model(config: str, role: Role, spec: str) -> str:
    """Replace a model of a config and its parameters; a path in its spec becomes relative to the
    config's folder.
    """
    name, colon, argument = spec.partition(":")
    argument_is = getattr(kind_of(role, spec), "argument_is", "")
    is_path = argument_is == "path" or (argument_is == "checkpoint" and Path(argument).is_dir())
    if is_path and not Path(argument).is_absolute():
        spec = f"{name}{colon}{os.path.relpath(argument, FOLDER)}"
    before, section, after = config.partition(f"[{role}]\n")
    _, following, rest = after.partition("\n[")
    return f"{before}{section}spec = {_quoted(spec)}\n{following}{rest}"


def _suite_lines(guess: Guess) -> str:
    if guess.spec is not None:
        return f"spec = {_quoted(os.path.relpath(guess.spec, FOLDER))}"
    return (
        f"spec = {_quoted(guess.file_name)}\n"
        f"root = {_quoted(os.path.relpath(guess.root, FOLDER))}                   "
        "# images are below this folder"
    )


def _quoted(path: str) -> str:
    """Write a text as a TOML string: as in JSON, which leaves DEL as it is."""
    return json.dumps(path, ensure_ascii=False).replace("\x7f", "\\u007f")


def _suite_text(guess: Guess) -> str:
    """Write the rows of a new suite: as CSV where a person is to fill something in.

    A spreadsheet takes no cell for a formula: `./=1.png` is the same path as `=1.png`, and suites
    are read without the blanks around an instruction.
    """
    if not guess.unfinished:
        return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in guess.rows)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("image", "instruction"))
    for row in guess.rows:
        image, instruction = row["image"], row["instruction"]
        writer.writerow(
            (
                f"./{image}" if image.startswith(_FORMULAS) else image,
                f" {instruction}" if instruction.startswith(_FORMULAS) else instruction,
            )
        )
    return buffer.getvalue()


def _systems(ci: str) -> tuple[list[str], str]:
    """Return the CI systems to write for, and why for none if that needs a word: the git remote
    decides.
    """
    if ci == "none":
        return [], ""
    top = provenance.git("rev-parse", "--show-toplevel")
    if top and Path(top).resolve() != Path.cwd().resolve():
        return [], f"wrote no workflow: CI systems read theirs in {top} only"
    if ci != "auto":
        return [ci], ""
    remote = provenance.git("remote", "get-url", "origin") or ""
    systems = [name for name in CI_FILES if name in remote]
    if systems:
        return systems, ""
    return [], (
        "wrote no workflow: no git remote says for which CI system; add --ci=github or --ci=gitlab"
    )


def _workflow(system: str, on_gpus: bool) -> str:
    """Return the workflow for a CI system, for a machine with GPUs if `on_gpus`."""
    text = _SHIPPED.joinpath("ci", f"{system}.yml").read_text("utf-8")
    if on_gpus:
        for of_cpu, of_gpus in _ON_GPUS.items():
            text = text.replace(of_cpu, of_gpus)
    return text
