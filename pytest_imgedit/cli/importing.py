"""`imgedit import`: the YAML config and the reports of image_edit_benchmark, as far as they have a
counterpart here.
"""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from pytest_imgedit.cli import hub_names, own_prompts
from pytest_imgedit.core import errors, files, pairs
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import number, one_line, shorten
from pytest_imgedit.kinds.pipeline_arguments import ADAPTERS
from pytest_imgedit.report import outputs, terminal
from pytest_imgedit.report.tables import MICRO

#: The most bytes of a config.
MOST = 2**20
#: The most tables and lists inside each other.
DEEPEST = 8
#: The most values of a config.
MOST_VALUES = 5000
#: The most characters of a value.
MOST_CHARACTERS = 4000
#: What is read as a value here; a date is its text.
_TAG = "tag:yaml.org,2002:"
_SCALARS = {f"{_TAG}{name}" for name in ("null", "bool", "int", "float", "str", "timestamp")}
#: Keys that are a key here with the same value.
SAME = {
    "benchmark.categories": "suite.categories",
    "diffusion_model.params.dtype": "editor.dtype",
    "diffusion_model.params.num_inference_steps": "editor.num_inference_steps",
    "diffusion_model.params.true_cfg_scale": "editor.true_cfg_scale",
    "diffusion_model.params.guidance_scale": "editor.guidance_scale",
    "diffusion_model.params.negative_prompt": "editor.negative_prompt",
    "diffusion_model.params.batch_size": "editor.batch_size",
    "diffusion_model.params.seed": "editor.seed",
    "reward_model.params.dtype": "judge.dtype",
    "reward_model.params.max_new_tokens": "judge.max_new_tokens",
    "reward_model.params.batch_size": "judge.batch_size",
    "reward_model.params.timeout": "workers.judge_timeout",
}
#: The section and the kind of the model that a section there names.
_MODELS = {"diffusion_model": ("editor", "diffusers"), "reward_model": ("judge", "qwen-vl")}
#: What no key says there, as it is always so.
ALWAYS = {"suite.language": "zh", "judge.protocol": "seeds", "judge.variant": "strict"}
#: What else is to be said of a key that is taken over.
BESIDE = {
    "editor.seed": "mixed into the seed of every pair, whose noise was the same there",
    "judge.protocol": "one number from 0 to 10 is read; the judge sees the source too",
    "judge.variant": '"compat" counts 5.0 for a reply that cannot be read, as their code does',
    "suite.language": "edit_instruction, which is Chinese there",
    "editor.area": "an edit has the aspect ratio of its source",
    "editor.width": "of every edit, whatever its source; editor.area keeps the aspect ratio",
}
#: What is said in the config too.
COMMENTED = ("judge.variant",)
#: The protocol of their own prompts, and its file beside the config.
OWN_PROMPTS = "own-prompts"
#: A spec that ends the run, where theirs names no model.
NO_MODEL = "name-a-model"
#: Why a key, or all below it, has none.
NO_COUNTERPART = {
    "diffusion_model.type": "the spec says it",
    "diffusion_model.params.disable_progress_bar": "progress is shown where there is a terminal",
    "diffusion_model.params.enable_batch_sync": "a worker that is free takes the next pair",
    "reward_model.type": "the spec says it",
    "reward_model.params.use_batch_inference": "edits are always judged in batches",
    "reward_model.params.conda_env": "name the interpreter of that environment as "
    "workers.judge_python",
    "reward_model.params.temperature": "replies are decoded greedily",
    "evaluation.save_generated_images": "edits are always kept, imgedit export writes them under "
    "readable names",
    "evaluation.resume_from_checkpoint": "a run always goes on where an earlier one ended; "
    "--imgedit-fresh does not",
    "evaluation.checkpoint_path": "the store is the checkpoint, --imgedit-out says where",
    "evaluation.enable_checkpoint": "every edit and verdict is stored when it is finished",
    "evaluation.checkpoint_interval": "every edit and verdict is stored when it is finished",
    "evaluation.metrics": "all of them are always shown",
    "evaluation": "reports, images and logs are in the store, --imgedit-out says where",
    "logging": "a run always writes run.log",
    "runtime": "workers are processes, one a GPU",
}


#: A key that holds a value or a list, with its `file:line` and its node.
_Entry = tuple[str, str, yaml.Node]
#: Columns of a report.
_NUMBERS = ("mean", "std", "median", "min", "max")
_KEYS = ("num_samples", *_NUMBERS)
#: Numbers of a report lie between this and its negative.
_MOST_NUMBER = 1e12
#: Writes a value as TOML does: text, numbers, booleans and lists of them look the same in JSON.
_to_toml = partial(json.dumps, ensure_ascii=False)


def import_file(path: Path, to: Path) -> tuple[JsonObject, str, int]:
    """Read a YAML config, and write what has a counterpart to the TOML config `to`, with a protocol
    beside it if the config has prompts; of a report in JSON, show the table, and write nothing.

    Raises `UsageError` for a file that is neither, and if a new file is there already.
    """
    if path.suffix == ".json":
        return _report(path)
    entries = list(_entries(_root(path), "", path))
    _check_sections(path, entries)
    if os.path.lexists(to):
        raise errors.UsageError(f"{to}: is there already, expected a new file (--to)")
    outputs.check({"": to})

    prompts_file = to.with_name(f"{OWN_PROMPTS}.toml")
    tables: dict[str, JsonObject] = {}
    prompts = own_prompts.PromptTexts()
    rows: list[JsonObject] = []
    for key, location, node in entries:
        if key.startswith("prompts."):
            rows.append(_prompt(key, location, node, prompts, prompts_file))
        else:
            rows += _take(key, location, node, folder=path.parent, target=to.parent, tables=tables)
    always = dict(ALWAYS)
    has_prompts = bool(prompts.user or prompts.system)
    if has_prompts:
        if os.path.lexists(prompts_file):
            raise errors.UsageError(f"{prompts_file}: is there already, expected no such file")
        always["judge.protocol"] = OWN_PROMPTS
        tables[f"protocols.{OWN_PROMPTS}"] = {"file": prompts_file.name}
    _name_models(path, entries, rows, tables)
    for key, value in always.items():
        rows.append(_set_always(key, value, path, tables))
    _drop_batches(tables.get("editor", {}), rows)

    text = _config_text(path, tables)
    texts = {}
    if has_prompts:
        texts[prompts_file] = prompts.protocol(path.name)
    texts[to] = text
    _write_all(texts)
    lines = [_line(row) for row in rows]
    lines.append(f"wrote {to}; next: pytest --imgedit --imgedit-config={to}")
    return {"config": str(to), "keys": rows}, "\n".join(lines), 0


def _check_sections(path: Path, entries: Sequence[_Entry]) -> None:
    """Raise `UsageError` for a YAML file without a key of image_edit_benchmark."""
    sections = ("diffusion_model.", "reward_model.", "benchmark.")
    if not any(key.startswith(sections) for key, _, _ in entries):
        raise errors.UsageError(
            f"{path}: expected the keys benchmark, diffusion_model and reward_model of "
            "image_edit_benchmark"
        )


def _name_models(
    path: Path,
    entries: Sequence[_Entry],
    rows: list[JsonObject],
    tables: dict[str, JsonObject],
) -> None:
    """Set the spec of each model that has no `model_name`."""
    for role, (section, _) in _MODELS.items():
        if "spec" not in tables.get(section, {}):
            _name_model(role, _class_entry(role, path, entries), rows, tables)


def _class_entry(
    role: str, path: Path, entries: Sequence[_Entry]
) -> tuple[str, str, yaml.Node | None]:
    """Return the key of a model's class with its location and node; one without a node if there is
    none.
    """
    for key, location, node in entries:
        if key == f"{role}.class_path":
            return key, location, node
    return role, str(path), None


def _config_text(path: Path, tables: Mapping[str, JsonObject]) -> str:
    """Return tables as TOML; raise `UsageError` if the text would not be valid."""
    blocks = []
    for section, table in tables.items():
        block = f"[{section}]\n"
        for key, value in table.items():
            block += f"{key} = {_to_toml(value)}{_comment(f'{section}.{key}')}\n"
        blocks.append(block)
    text = "\n".join(blocks)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise errors.UsageError(
            f"{path}: holds what a TOML config cannot say: {one_line(error)}"
        ) from None
    return text


def _write_all(texts: Mapping[Path, str]) -> None:
    """Write new files; after an error none is left."""
    with ExitStack() as on_failure:
        for path, text in texts.items():
            outputs.write(path, text)
            on_failure.callback(path.unlink)
        on_failure.pop_all()


def _row(location: str, key: str) -> JsonObject:
    """Return the row of a key that has no counterpart as yet."""
    return {"place": location, "key": key, "as": None, "value": None, "why": None}


def _take(
    key: str,
    location: str,
    node: yaml.Node,
    *,
    folder: Path,
    target: Path,
    tables: dict[str, JsonObject],
) -> list[JsonObject]:
    """Add the counterparts of a key to the tables of the new config; return a row for each, or one
    that says why there is none.

    Raises `UsageError` for a value that cannot be taken over. A key without a counterpart may have
    any value.
    """
    row = _row(location, key)
    value = ""
    problem = None
    try:
        value = _plain(node, f"{location}: {key}")
    except errors.UsageError as error:
        problem = error
    counterparts = _counterparts(key, value, folder, target)
    if isinstance(counterparts, str):
        return [{**row, "why": counterparts}]
    if problem is not None:
        raise problem
    rows: list[JsonObject] = []
    for name, new_value in counterparts.items():
        section, _, new_key = name.partition(".")
        known = tables.setdefault(section, {}).setdefault(new_key, new_value)
        if known != new_value:
            rows.append({**row, "why": f"{name} is {_to_toml(known)} already"})
        else:
            remark = _hub_remark(name, value, new_value)
            rows.append({**row, "as": name, "value": new_value, "why": remark})
    return rows


def _prompt(
    key: str, location: str, node: yaml.Node, prompts: own_prompts.PromptTexts, file: Path
) -> JsonObject:
    """Add a prompt of the config, `prompts.CATEGORY.KIND` or `prompts.KIND` for all categories;
    return its row, which says why if it was not added.
    """
    row = _row(location, key)
    *_, category, name = key.removeprefix("prompts").rsplit(".", 2)
    kind = own_prompts.KEYS.get(name)
    if kind is None:
        return {**row, "why": f"not known here, expected one of: {', '.join(own_prompts.KEYS)}"}
    text = _scalar(node, f"{location}: {key}", MOST)
    if text is None:
        return {**row, "why": "it has no value"}
    category = category or own_prompts.DEFAULT[0]
    if not prompts.take(category, kind, str(text)):
        return {**row, "why": f"{category} has a {kind} prompt already"}
    return {**row, "as": f"protocols.{OWN_PROMPTS}", "value": f"{kind} prompt, in {file}"}


def _name_model(
    role: str,
    entry: tuple[str, str, yaml.Node | None],
    rows: list[JsonObject],
    tables: dict[str, JsonObject],
) -> None:
    """Set the spec of a model to the class that the `entry` names, and replace the rows of its key.

    If the entry names no class, the spec is one that ends the run, so that no embedded model takes
    the place of the missing one.
    """
    section, _ = _MODELS[role]
    key, location, node = entry
    row = _row(location, key)
    row["as"] = f"{section}.spec"
    if isinstance(node, yaml.ScalarNode):
        module, _, kind = node.value.rpartition(".")
        row |= {"value": f"{module}:{kind}", "why": "rewrite this class: docs/models.md"}
    else:
        why = f"no model_name: the run ends until {section}.spec names a model"
        row |= {"value": NO_MODEL, "why": why}
    rows[:] = [known for known in rows if known["key"] != key]
    rows.append(row)
    tables[section] = {"spec": row["value"], **tables.get(section, {})}


def _hub_remark(name: str, value: Any, spec: Any) -> str | None:
    """Say that the hub has no model of a name, or probably has none; `None` for other keys and
    values.
    """
    if not name.endswith(".spec") or name == "suite.spec":
        return None
    if value in hub_names.WRONG:
        return f"the hub has no {value}"
    return hub_names.remark(str(spec).partition(":")[2]) or None


def _drop_batches(editor: JsonObject, rows: list[JsonObject]) -> None:
    """Remove the batch size of an editor whose pipeline edits one by one, and say so in its row."""
    _, _, checkpoint = str(editor.get("spec")).partition(":")
    name, _, _ = checkpoint.partition("@")
    pipeline = hub_names.PIPELINES.get(name)
    if pipeline is None or ADAPTERS[pipeline].batches or "batch_size" not in editor:
        return
    del editor["batch_size"]
    for row in rows:
        if row["as"] == "editor.batch_size":
            row |= {"as": None, "value": None}
            row["why"] = f"{pipeline} edits one by one: it {ADAPTERS[pipeline].no_batches}"


def _comment(key: str) -> str:
    return f"  # {BESIDE[key]}" if key in COMMENTED else ""


def _set_always(key: str, value: str, path: Path, tables: dict[str, JsonObject]) -> JsonObject:
    """Set a key that the YAML config leaves unsaid; return its row."""
    section, _, name = key.partition(".")
    tables.setdefault(section, {})[name] = value
    return {"place": str(path), "key": "in every config", "as": key, "value": value, "why": None}


def _line(row: JsonObject) -> str:
    """Say what a key has become, or why it has no counterpart."""
    location = f"{row['place']}: {row['key']}: "
    if row["as"] is None:
        return f"{location}no counterpart: {row['why']}"
    remarks = filter(None, (BESIDE.get(row["as"]), row["why"]))
    remark = "".join(f" ({remark})" for remark in remarks)
    return f"{location}{row['as']} = {_to_toml(row['value'])}{remark}"


def _root(path: Path) -> yaml.MappingNode:
    """Return the top table of a YAML config; raise `UsageError` for a file that is no table in YAML
    or is too large.
    """
    text = files.read_utf8(path, MOST, "a config in YAML")
    try:
        _check_size(text, path)
        root = yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise errors.UsageError(f"{path}: not valid YAML: {one_line(error)}") from None
    if not isinstance(root, yaml.MappingNode):
        problem = f"{path}: holds no keys, expected a config in YAML"
        raise files.unusable(path, "a config in YAML", problem)
    return root


def _check_size(text: str, path: Path) -> None:
    """Raise `UsageError` for a text with an alias, too deep tables or too many values, before it is
    parsed further.
    """
    depth = 0
    for count, event in enumerate(yaml.parse(text, yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        location = f"{path}:{event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            raise errors.UsageError(
                f"{location}: alias *{event.anchor:.80}, expected the value itself"
            )
        if depth > DEEPEST:
            raise errors.UsageError(
                f"{location}: more than {DEEPEST} tables and lists inside each other"
            )
        if count > MOST_VALUES:
            raise errors.UsageError(
                f"{location}: more than {MOST_VALUES} values, expected a config"
            )


def _entries(table: yaml.MappingNode, prefix: str, path: Path) -> Iterator[_Entry]:
    """Yield each key of a table, and of those inside it, that holds a value or a list, with its
    `file:line` and its node. `prefix` comes before its name, which is cut to 100 characters.

    Raises `UsageError` for a key that is a table or a list; a number counts as its text.
    """
    for name, node in table.value:
        location = f"{path}:{name.start_mark.line + 1}"
        if not isinstance(name, yaml.ScalarNode):
            raise errors.UsageError(f"{location}: a key that is a table or a list, expected text")
        key = f"{prefix}{name.value:.100}"
        if isinstance(node, yaml.MappingNode):
            yield from _entries(node, f"{key}.", path)
        else:
            yield key, location, node


def _plain(node: yaml.Node, location: str) -> Any:
    """Return a scalar, or a list of scalars; raise `UsageError` for anything else."""
    if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
        return [_scalar(entry, location) for entry in node.value]
    return _scalar(node, location)


def _scalar(node: yaml.Node, location: str, most: int = MOST_CHARACTERS) -> Any:
    """Return the value of a scalar, a date as text.

    Raises `UsageError` for another node, for more than `most` characters, for text that is no value
    or not UTF-8, and for an integer beyond 64 bits.
    """
    if not isinstance(node, yaml.ScalarNode) or node.tag not in _SCALARS:
        raise errors.UsageError(
            f"{location}: found {node.tag:.80}, expected text, a number, true or false, or a list "
            "of these"
        )
    if len(node.value) > most:
        raise errors.UsageError(
            f"{location}: {len(node.value)} characters, expected at most {most}"
        )
    value = node.value
    try:
        if node.tag != f"{_TAG}timestamp":
            value = yaml.SafeLoader("").construct_object(node)
        str(value).encode()
    except (yaml.YAMLError, ValueError, KeyError) as error:
        raise errors.UsageError(
            f"{location}: found {node.value!a:.80}: {type(error).__name__}: {one_line(error)}"
        ) from None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise errors.UsageError(f"{location}: found {node.value:.80}, expected a number of 64 bits")
    return value


def _counterparts(key: str, value: Any, folder: Path, target: Path) -> dict[str, Any] | str:
    """Return the keys here with their values, or say why there is none.

    Paths below the `folder` of the YAML config become relative to `target`, that of the new one.
    """
    role, _, name = key.partition(".params.")
    if value is None:
        return "it has no value"
    if key in SAME:
        return {SAME[key]: value}
    if key == "benchmark.data_path":
        data = Path(str(value))
        if data.is_absolute():
            return {"suite.spec": str(data)}
        return {"suite.spec": os.path.relpath(folder / data, target)}
    if name == "model_name" and role in _MODELS:
        section, kind = _MODELS[role]
        return {f"{section}.spec": f"{kind}:{hub_names.WRONG.get(str(value), value)}"}
    if key == "diffusion_model.params.image_size":
        return _size(value)
    if name == "device_ids" and isinstance(value, list):
        return {"workers.gpus": ",".join(map(str, value))}
    if name == "device":
        if value == "cpu":
            return {"workers.gpus": "none"}
        if str(value).startswith("cuda:"):
            return {"workers.gpus": str(value).removeprefix("cuda:")}
        return "all GPUs that are visible are used"
    if key.endswith(".class_path"):
        if "qwen" in str(value).lower():
            return "the spec says it"
        return "rewrite the class (docs/models.md); its spec is package.module:Class"
    return _why_none(key)


def _why_none(key: str) -> str:
    """Say why a key has no counterpart, by its own name or by that of a table around it; if none of
    these is known, say that.
    """
    for cut in range(key.count(".") + 1):
        name = key.rsplit(".", cut)[0]
        if name in NO_COUNTERPART:
            return NO_COUNTERPART[name]
    return "not known here"


def _size(value: Any) -> dict[str, Any] | str:
    """Return the keys of a width and a height, or of the area of a square with a single side; for
    other values, say what was expected.
    """
    sides = value if isinstance(value, list) else re.findall(r"\d+", str(value))
    if all(str(side).isdecimal() and int(side) > 0 for side in sides):
        if len(sides) == 1:
            [side] = sides
            return {"editor.area": int(side) ** 2}
        if len(sides) == 2:
            width, height = sides
            return {"editor.width": int(width), "editor.height": int(height)}
    return "expected one size in pixels, or width and height"


def _report(path: Path) -> tuple[JsonObject, str, int]:
    """Return what `imgedit import` shows of an `evaluation_report_*.json`."""
    rows = _statistics(path)
    table = []
    for row in rows:
        numbers = [number(row[key]) for key in _NUMBERS]
        table.append([row["category"], str(row["num_samples"])] + numbers)
    notes = [
        "std is the population's in this report, and the sample's in reports of pytest-imgedit",
        "the report has no scores of single pairs, so it cannot be a baseline or be compared",
        "to judge its edits again: --imgedit-editor=folder:outputs/images; that run can become a "
        "baseline",
    ]
    shown = terminal.render_table(("category", "n", *_NUMBERS), table)
    text = "\n".join([shown] + notes)
    return {"statistics": rows, "notes": notes}, text, 0


def _statistics(path: Path) -> list[JsonObject]:
    """Return the numbers of each category of a report, and those over all pairs as the last row.

    Raises `UsageError` for a file that is no such report.
    """
    document = files.read_object(path, "a report of image_edit_benchmark")
    statistics = document.get("category_statistics")
    overall = document.get("overall_statistics")
    if not isinstance(statistics, dict) or not isinstance(overall, dict):
        raise errors.UsageError(
            f"{path}: no category_statistics, expected a report of image_edit_benchmark"
        )
    rows: list[JsonObject] = []
    named_rows = list(statistics.items())
    named_rows.append((MICRO, overall))
    for name, row in named_rows:
        if not isinstance(row, dict) or not all(_is_number(row.get(key)) for key in _KEYS):
            raise errors.UsageError(
                f"{path}: {name:.100}: found {row!a:.80}, expected numbers {', '.join(_KEYS)}"
            )
        slug = pairs.category_slug(name)
        category = slug if slug in pairs.CATEGORIES else shorten(name, 100)
        values = {key: row[key] for key in _KEYS}
        rows.append({"category": category} | values)
    return rows


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST_NUMBER
    )
