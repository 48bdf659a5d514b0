"""`imgedit explain`: all that decided a stored edit or verdict."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.files import is_folder
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.store.journal import EditRecord, Journal, ModelRecord, VerdictRecord

Stored = EditRecord | VerdictRecord
#: By the type of a record: its kind, and the model that decided it.
_KINDS = {EditRecord: ("edit", "editor"), VerdictRecord: ("verdict", "judge")}
#: The fewest characters that stand for a key.
MIN_PREFIX = 4


def explain(reference: str, out: Path) -> tuple[JsonObject, str, int]:
    """Show the recipe and the environment of the record that a reference means in the store `out`.

    A reference is the first characters of the key of an edit or a verdict, or of the SHA-256 of an
    edited image. Raises `UsageError` if it means no record, or several of different recipes.
    """
    if not is_folder(out):
        raise UsageError(f"{str(out)[:200]}: no such folder, expected a store")
    if len(reference) < MIN_PREFIX:
        raise UsageError(
            f"{reference!r}: expected at least {MIN_PREFIX} characters of a key, as results.json "
            "has it"
        )
    edits = Journal(out / "edits.jsonl", EditRecord, reads_only=True).records
    verdicts = Journal(out / "verdicts.jsonl", VerdictRecord, reads_only=True).records
    records: tuple[Stored, ...] = (*edits.values(), *verdicts.values())
    matches = [record for record in records if _is_meant(record, reference)]
    if not matches:
        raise UsageError(f"{reference}: no edit or verdict in {out} has such a key or image")
    if len({record.content for record in matches}) > 1:
        keys = ", ".join(f"{_KINDS[type(record)][0]} {record.key[:12]}" for record in matches[:5])
        raise UsageError(f"{reference}: {len(matches)} records begin so, expected one: {keys}")
    record = matches[-1]  # the newest of those that differ by their environment
    kind, model = _KINDS[type(record)]
    models = Journal(out / "models.jsonl", ModelRecord, reads_only=True).records
    recipe = getattr(models.get(str(record.recipe.get(model))), "recipe", None)
    document = {"kind": kind, **record.model_dump(), model: recipe}
    return document, _text(kind, record, model, recipe), 0


def _is_meant(record: Stored, reference: str) -> bool:
    names = [record.key, record.content]
    if isinstance(record, EditRecord):
        names.append(record.blob)
    return any(name.startswith(reference) for name in names)


def _text(kind: str, record: Stored, model: str, recipe: JsonObject | None) -> str:
    lines = [f"{kind} {record.key}"]
    if isinstance(record, EditRecord):
        lines.append(
            f"image {record.blob}, {record.width}x{record.height}, {record.seconds:g} s on "
            f"{record.worker}"
        )
    else:
        lines.append(
            f"score {record.score:g}, {record.asked} asked, in a batch of {record.batch_size}"
        )
    lines += ["", "computed on:", f"  {record.environment}"]
    if record.environment.processor:
        lines.append(f"  images prepared by {record.environment.processor}")
    if record.environment.compiled is not None:
        lines.append(f"  networks {'compiled' if record.environment.compiled else 'not compiled'}")
    lines += ["", f"decided by the {model}:"]
    if recipe is None:
        lines.append("  its record is not in this store any more")
    else:
        lines += _listed(recipe)
    lines += ["", "and by what was asked:"]
    lines += _listed({name: value for name, value in record.recipe.items() if name != model})
    if record.code:
        lines += ["", "and by modules that were imported while it ran:", *_listed(record.code)]
    return "\n".join(lines)


def _listed(values: JsonObject, indent: str = "  ") -> list[str]:
    """Lines of a table, inner ones indented; texts as JSON writes them."""
    lines = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            lines += [f"{indent}{name}:", *_listed(value, indent + "  ")]
        elif isinstance(value, list) and any(isinstance(entry, list | dict) for entry in value):
            lines += [
                f"{indent}{name}:",
                *(f"{indent}  {json.dumps(entry, ensure_ascii=False)}" for entry in value),
            ]
        else:
            lines.append(f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}")
    return lines
