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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from pytest_imgedit.cli import ci as ci_files
from pytest_imgedit.cli.guess import TABLE, Guess, guess_suite
from pytest_imgedit.config.settings import Settings, SuiteSettings, make_settings, read_tables
from pytest_imgedit.config.toml_file import ConfigFile
from pytest_imgedit.core import errors, strict_json
from pytest_imgedit.core.files import MAX_TEXT_BYTES, read_utf8
from pytest_imgedit.core.text import counted, did_you_mean, printable
from pytest_imgedit.kinds.base import GIB, Role
from pytest_imgedit.kinds.registry import kind_of
from pytest_imgedit.report import outputs
from pytest_imgedit.stats import planning
from pytest_imgedit.store.baselines import FOLDER as BASELINES
from pytest_imgedit.suites.base import load_suite
from pytest_imgedit.workers.gpus import Gpu, find_gpus

FOLDER = Path("benchmarks")
CONFIG = FOLDER / "imgedit.toml"
REQUIREMENTS = FOLDER / "requirements.txt"
ATTRIBUTES = Path(".gitattributes")
#: What keeps git from merging the lines of two baselines.
UNMERGED = f"/{BASELINES.as_posix()}/*.json -merge"
_SHIPPED = files("pytest_imgedit.benchmark")
#: What the second line of a ready config says.
_NEEDS = re.compile(
    r"^# needs: (?P<gpus>(?P<count>\d+) GPUs? of (?P<gigabytes>\d+) GB), (?P<others>.+)$", re.M
)
#: The ready config by the least memory of its GPUs in GB.
_FOR_GPUS_OF = {80: "one-gpu", 24: "small-gpu"}
#: GPUs hold a few percent less than the number that they are sold by.
_ROUNDING = 0.95
#: Standard deviation in points of a pair's difference between two runs, which `init` assumes.
_SPREAD = 2.0
#: The drop in points that a suite should decide.
_DROP = 0.5
#: α of a gate on drops.
_ALPHA = 0.025
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


@dataclass(kw_only=True)
class _Start:
    """What `init` begins with: the settings of the new or existing config (`None` if that is
    invalid), the texts of the config and of a new suite, and lines for the user.

    `on_gpus` says that CI needs GPUs.
    """

    origin: str
    on_gpus: bool
    settings: Settings | None = None
    contents: dict[Path, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    to_do: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Files:
    """Texts by path: what each file would contain if it were new, what existing files contain, and
    what updated files will contain.
    """

    contents: Mapping[Path, str]
    existing: Mapping[Path, str]
    updates: Mapping[Path, str]

    def final(self, path: Path) -> str:
        """Return the text of a file of `contents` after `init`."""
        for texts in (self.updates, self.existing):
            if path in texts:
                return texts[path]
        return self.contents[path]


@dataclass(frozen=True)
class _Changes:
    """The paths of the files that were written, that were updated, and that stay as they are."""

    written: list[str]
    updated: list[str]
    kept: list[str]


def init(
    data: Path | None, config: str | None, ci: str, editor: str | None, judge: str | None
) -> tuple[strict_json.JsonObject, str, int]:
    """Write what a repository lacks in order to run `pytest benchmarks`.

    A file that is there stays as it is, with three exceptions: this package gets the extras that
    the config needs in the requirements, a workflow that is as `init` wrote it gets the keys, and
    `.gitattributes` gets a line. `data` is the suite, `config` the name of a ready config, `ci` the
    CI system, and `editor` and `judge` are specs. Raises `UsageError` for one that cannot be used.
    """
    _check_config_name(config)
    specs: dict[Role, str | None] = {"editor": editor, "judge": judge}
    if os.path.lexists(CONFIG):
        start = _with_config(data, config, specs)
    else:
        start = _without_config(data, config, specs)
    needs = ci_files.Needs() if start.settings is None else ci_files.Needs.of(start.settings)
    systems, note = ci_files.systems(ci)
    if note:
        start.notes.append(note)

    decided = _decide_files(start, needs, systems)
    changes = _write(decided)

    workflows = {system: decided.final(ci_files.FILES[system]) for system in systems}
    to_do = list(start.to_do)
    to_do += _to_do_of_ci(needs, decided.final(REQUIREMENTS), workflows)
    to_do += _to_do_here(needs)
    document = {
        "written": changes.written,
        "updated": changes.updated,
        "kept": changes.kept,
        "suite": start.origin,
        "notes": start.notes,
        "to_do": to_do,
    }
    return document, _text(document), 0


def _check_config_name(config: str | None) -> None:
    """Raise `UsageError` for a config that the package does not ship."""
    known = configs()
    if config is not None and config not in known:
        raise errors.UsageError(
            f"--config={config}: no such config, expected one of: {', '.join(known)}"
            f"{did_you_mean(config, known)}"
        )


def _decide_files(start: _Start, needs: ci_files.Needs, systems: Sequence[str]) -> _Files:
    """Compare the files that a repository should have with those that are there."""
    contents = _contents(start, needs, systems)
    existing = {path: _text_of(path) for path in contents if os.path.lexists(path)}
    return _Files(contents, existing, _updates(existing, needs, systems))


def _contents(start: _Start, needs: ci_files.Needs, systems: Sequence[str]) -> dict[Path, str]:
    """Return the text of each file that `init` writes into a new repository, by its path."""
    test_file = _SHIPPED.joinpath("test_image_edit.py").read_text("utf-8")
    contents = {FOLDER / "test_image_edit.py": test_file}
    contents |= start.contents
    contents[REQUIREMENTS] = f"{ci_files.requirement(needs.extras)}\n"
    for system in systems:
        workflow = ci_files.workflow(system, start.on_gpus, needs.keys)
        contents[ci_files.FILES[system]] = workflow
    return contents


def _updates(
    existing: Mapping[Path, str], needs: ci_files.Needs, systems: Sequence[str]
) -> dict[Path, str]:
    """Return the new texts of files that lack extras, keys or the line for baselines."""
    after = {REQUIREMENTS: ci_files.with_extras(existing.get(REQUIREMENTS, ""), needs.extras)}
    for system in systems:
        path = ci_files.FILES[system]
        after[path] = ci_files.with_keys(existing.get(path, ""), system, needs.keys)
    updates = {path: text for path, text in after.items() if text != existing.get(path, "")}
    attributes = _with_attributes()
    if attributes:
        updates[ATTRIBUTES] = attributes
    return updates


def _text(document: strict_json.JsonObject) -> str:
    """Say in lines what was done, and what is to be done."""
    lines = [f"suite: {document['suite']}"]
    lines += [f"wrote {path}" for path in document["written"]]
    lines += [f"updated {path}" for path in document["updated"]]
    lines += [f"kept {path} (already there)" for path in document["kept"]]
    lines += document["notes"]
    lines += document["to_do"]
    lines.append("next: pytest benchmarks")
    return "\n".join(map(printable, lines))


def _without_config(
    data: Path | None, config: str | None, specs: Mapping[Role, str | None]
) -> _Start:
    """Make a config and a suite from the data and the GPUs that are there."""
    guess = guess_suite(data)
    _, gpus = find_gpus("auto")
    name = config
    if name is None and not any(specs.values()):
        name = _config_for(gpus)
    _check_suite(guess)
    text = _config(name, guess, specs)
    contents = {CONFIG: text}
    if guess.rows:
        contents[FOLDER / guess.file_name] = _suite_text(guess)
    file = ConfigFile(CONFIG, text, tomllib.loads(text))
    settings = make_settings({**file.tables, "run": {"config_file": file}})
    to_do = list(_fit(text, gpus))
    to_do += _to_do(settings, guess.missing)
    return _Start(
        origin=guess.origin,
        on_gpus=name is not None,
        settings=settings,
        contents=contents,
        notes=[f"not used: {reason}" for reason in guess.unused],
        to_do=to_do,
    )


def _with_config(data: Path | None, config: str | None, specs: Mapping[Role, str | None]) -> _Start:
    """Start with the config that is there, and say which arguments do not change it.

    A `config` that is asked for still says that the workflow is for a machine with GPUs.
    """
    text = _text_of(CONFIG)
    start = _Start(
        origin=f"that of {CONFIG}",
        on_gpus=config is not None or bool(_NEEDS.search(text)),
        contents={CONFIG: text},
    )
    unused = []
    if data is not None:
        unused.append(str(data))
    if config is not None:
        unused.append(f"--config={config}")
    start.notes += [f"not used: {name}; {CONFIG} is there already and is kept" for name in unused]
    try:
        settings = make_settings(read_tables(CONFIG))
    except errors.UsageError as error:
        start.to_do.append(f"to do: correct {error}")
        return start
    start.settings = settings
    start.to_do += _to_do(settings, _missing_instructions(settings))
    start.to_do += _to_do_for_specs(settings, specs)
    return start


def _to_do_for_specs(settings: Settings, specs: Mapping[Role, str | None]) -> Iterator[str]:
    """Say which specs on the command line differ from those of the config that is there."""
    current: dict[Role, str] = {"editor": settings.editor.spec, "judge": settings.judge.spec}
    for role, spec in specs.items():
        if not spec:
            continue
        if _with_full_path(role, current[role]) != _with_full_path(role, spec):
            line = f"spec = {_quoted(_for_config(role, spec))}"
            yield f"to do: set {line} in [{role}] of {CONFIG}"


def _missing_instructions(settings: Settings) -> int:
    """Count the rows without an instruction in the table that `init` made of images; 0 if the suite
    is another one.
    """
    path = FOLDER / TABLE
    if Path(settings.suite.spec).name != TABLE or not path.is_file():
        return 0
    rows = csv.DictReader(io.StringIO(_text_of(path)))
    return sum(not (row.get("instruction") or "").strip() for row in rows)


def _text_of(path: Path) -> str:
    """Return the text of a file that `init` may have written; an empty one for a link, and for a
    file that is missing or is not text.
    """
    if path.is_symlink() or not path.is_file():
        return ""
    with suppress(errors.UsageError):
        return read_utf8(path, MAX_TEXT_BYTES, "text")
    return ""


def _check_suite(guess: Guess) -> None:
    """Raise `UsageError` if a new suite could not be read; one that lacks instructions is not
    checked yet.
    """
    if not guess.rows or guess.missing:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, guess.file_name)
        outputs.write(path, _suite_text(guess))
        try:
            load_suite(SuiteSettings(spec=str(path), root=guess.root))
        except errors.UsageError as error:
            raise errors.UsageError(_with_places(guess, path, str(error))) from None


def _with_places(guess: Guess, path: Path, message: str) -> str:
    """Return a message on lines of a new suite in `path` with the places that they come from."""
    if not guess.places:
        return f"{guess.origin}: {message.replace(str(path), 'row', 1)}"
    return re.sub(
        rf"{re.escape(str(path))}:(\d+)", lambda match: guess.places[int(match[1]) - 1], message
    )


def _config_for(gpus: Sequence[Gpu]) -> str | None:
    """Return the name of the ready config that fits the smallest GPU of this machine, if any."""
    smallest = min(map(_gigabytes, gpus), default=0.0)
    for size, name in _FOR_GPUS_OF.items():
        if smallest >= size * _ROUNDING:
            return name
    return None


def _gigabytes(gpu: Gpu) -> float:
    return gpu.total_gib * GIB / 10**9


def _fit(config: str, gpus: Sequence[Gpu]) -> Iterator[str]:
    """Say what a ready config needs, and whether this machine has it; nothing of another config."""
    needed = _NEEDS.search(config)
    if needed is None:
        return
    least = int(needed["gigabytes"]) * _ROUNDING
    large = [gpu for gpu in gpus if _gigabytes(gpu) >= least]
    here = f"here: {len(large) or 'none'}"
    if len(large) >= int(needed["count"]):
        here = "available here"
    yield f"{CONFIG} needs {needed['gpus']} ({here}) and {needed['others']}"


def _to_do(settings: Settings, missing: int) -> Iterator[str]:
    """Say what is still missing in a config and its suite before a run gives scores."""
    if missing:
        yield f"to do: add the {counted(missing, 'missing instruction')} to {FOLDER / TABLE}"
    if settings.editor.spec == "identity":
        yield (
            f"to do: name your model in {CONFIG}; its editor is identity, which returns the source"
        )
    if not (settings.judge.scores or settings.metrics):
        yield f"to do: name a judge in {CONFIG}; it has none, so there are no scores"


def _to_do_of_ci(
    needs: ci_files.Needs, requirements: str, workflows: Mapping[str, str]
) -> Iterator[str]:
    """Say what CI lacks: packages, jobs, servers that it can reach, and keys; `workflows` are the
    texts by CI system.
    """
    if ci_files.is_local(requirements):
        yield (
            f"to do: in {REQUIREMENTS}, name a URL or a version that CI can install; the file "
            "there is on this machine only"
        )
    for package in ci_files.lacking(requirements, needs):
        yield f"to do: add {package} to {REQUIREMENTS}; {CONFIG} needs it"
    for system, text in workflows.items():
        if "pytest benchmarks" not in text:
            yield f"to do: add a job to {ci_files.FILES[system]} that runs pytest benchmarks"
        for role in needs.served_here:
            yield (
                f"to do: name a server in {CONFIG} that CI can reach; the {role}'s is on this "
                "machine"
            )
        for key in needs.keys:
            yield from ci_files.key_to_do(system, text, key)


def _to_do_here(needs: ci_files.Needs) -> Iterator[str]:
    """Say what this environment lacks."""
    for package in needs.packages:
        if find_spec(package) is None:
            yield f"to do: pip install {package}; {CONFIG} needs it"
    for key in needs.keys:
        if not os.environ.get(key):
            yield f"to do: export {key}=…, the key of the server that {CONFIG} names"


def _write(decided: _Files) -> _Changes:
    """Write the files that are not there, and those that are to be updated, all or none."""
    paths = list(dict.fromkeys(chain(decided.contents, decided.updates)))
    for path in paths:
        _check_folder(path)
    existing = {path for path in paths if os.path.lexists(path)}
    texts = {path: text for path, text in decided.contents.items() if path not in existing}
    texts |= decided.updates
    _write_all(texts, existing)
    written = [str(path) for path in texts if path not in existing]
    updated = [str(path) for path in texts if path in existing]
    kept = [str(path) for path in paths if path not in texts]
    return _Changes(written, updated, kept)


def _check_folder(path: Path) -> None:
    """Raise `UsageError` for a file whose folder cannot be made, or is outside this one."""
    if any(os.path.lexists(parent) and not parent.is_dir() for parent in path.parents):
        raise errors.UsageError(f"{path}: cannot be written, a folder of it is a file")
    folder = path.parent.resolve()
    if not folder.is_relative_to(Path.cwd().resolve()):
        raise errors.UsageError(f"{path}: leads to {folder}, expected a folder below this one")


def _write_all(texts: Mapping[Path, str], existing: Collection[Path]) -> None:
    """Write new and existing files; after an error, none is left new or changed."""
    with ExitStack() as on_failure:
        for path, text in texts.items():
            if path in existing:
                undo: Callable[[], object] = partial(path.write_bytes, path.read_bytes())
            else:
                undo = path.unlink
            outputs.write(path, text)
            on_failure.callback(undo)
        on_failure.pop_all()


def _with_attributes() -> str:
    """Return the text of `.gitattributes` with a line for baselines at its end; an empty text if it
    has one already.

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
        text = _with_suite(text, guess)
    for role, spec in specs.items():
        if spec is not None:
            text = _with_model(_NEEDS.sub("", text), role, spec)
    if guess.rows:
        sources = {_edited_image(row) for row in guess.rows}
        text = _with_gates(text, len(sources))
    return text


def _edited_image(row: strict_json.JsonObject) -> str:
    """Return the path of the image that is edited in a row of a new suite."""
    images = row["image"]
    if isinstance(images, str):
        return images
    path: str = images[row.get("edited_source", 1) - 1]
    return path


def _with_suite(config: str, guess: Guess) -> str:
    """Return a config with the guessed suite in place of `scenes`; one that does not name `scenes`
    stays as it is.
    """
    match = re.search(r'^spec = "scenes.*$', config, flags=re.M)
    if match is None:
        return config
    return f"{config[: match.start()]}{_suite_lines(guess)}{config[match.end() :]}"


def _with_gates(config: str, sources: int) -> str:
    """Return a config with a comment on the drop that gates can detect with this many source
    images, if that is over `_DROP` points.
    """
    size = max(2, sources)  # one image alone gives no degree of freedom
    error = _SPREAD / math.sqrt(size)
    freedom = size - 1
    mde = planning.mde(error, freedom, _ALPHA)
    factor = planning.size_for(_DROP, error, freedom, _ALPHA)
    if mde <= _DROP or factor is None:
        return config
    comment = (
        f"# {counted(sources, 'source image')} can detect a drop of about {mde:.1f} points, if "
        f"differences have a standard deviation of {_SPREAD:g};\n"
        f"# {_DROP:g} points need about {math.ceil(factor * size)}. Until then gates mostly warn.\n"
    )
    if "[gates]\n" in config:
        return config.replace("[gates]\n", f"[gates]\n{comment}", 1)
    return f"{config}\n{comment}"


def _with_model(config: str, role: Role, spec: str) -> str:
    """Return a config with another model in place of that of a role and its parameters."""
    before, section, after = config.partition(f"[{role}]\n")
    _, following, rest = after.partition("\n[")
    return f"{before}{section}spec = {_quoted(_for_config(role, spec))}\n{following}{rest}"


def _for_config(role: Role, spec: str) -> str:
    """Return a spec as the config has it: a relative path in it starts at the config's folder."""
    name, colon, argument = spec.partition(":")
    if _names_path(role, spec) and not Path(argument).is_absolute():
        return f"{name}{colon}{os.path.relpath(argument, FOLDER)}"
    return spec


def _with_full_path(role: Role, spec: str) -> str:
    """Return a spec with its path, if it has one, from the root, so that specs can be compared."""
    name, colon, argument = spec.partition(":")
    return f"{name}{colon}{Path(argument).resolve()}" if _names_path(role, spec) else spec


def _names_path(role: Role, spec: str) -> bool:
    """Tell whether the argument of a spec is a path, as against a name on the hub or a URL."""
    argument = spec.partition(":")[2]
    argument_is = getattr(kind_of(role, spec), "argument_is", "")
    return argument_is == "path" or (argument_is == "checkpoint" and Path(argument).is_dir())


def _suite_lines(guess: Guess) -> str:
    """Return the lines of a config that name the guessed suite, a new one with its root."""
    if guess.spec is not None:
        return f"spec = {_quoted(os.path.relpath(guess.spec, FOLDER))}"
    return (
        f"spec = {_quoted(guess.file_name)}\n"
        f"root = {_quoted(os.path.relpath(guess.root, FOLDER))}                   "
        "# images are below this folder"
    )


def _quoted(text: str) -> str:
    """Return a text as a TOML string: as in JSON, but with DEL escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _suite_text(guess: Guess) -> str:
    """Return the rows of a new suite: CSV if instructions are still to be filled in, else JSON
    lines.
    """
    if guess.missing:
        return _csv_text(guess.rows)
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in guess.rows)


def _csv_text(rows: Sequence[strict_json.JsonObject]) -> str:
    """Return rows as CSV.

    No cell may look like a formula to a spreadsheet: `./=1.png` is the same path as `=1.png`, and
    suites are read without the blanks around an instruction.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("image", "instruction"))
    for row in rows:
        image = row["image"]
        if image.startswith(_FORMULAS):
            image = f"./{image}"
        instruction = row["instruction"]
        if instruction.startswith(_FORMULAS):
            instruction = f" {instruction}"
        writer.writerow((image, instruction))
    return buffer.getvalue()
