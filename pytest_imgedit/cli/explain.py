"""`imgedit explain`: all that decided a stored edit or verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pytest_imgedit.cli.printed import Printed
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.files import is_folder
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.store.journal import EditRecord, Journal, ModelRecord, VerdictRecord

Found = tuple[str, EditRecord | VerdictRecord]
#: The fewest characters that stand for a key.
MIN_PREFIX = 4


def explain(reference: str, out: Path) -> Printed:
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
    found = [one for one in _records(out) if _is_meant(one[1], reference)]
    if not found:
        raise UsageError(f"{reference}: no edit or verdict in {out} has such a key or image")
    if len({record.content for _, record in found}) > 1:
        keys = ", ".join(f"{kind} {record.key[:12]}" for kind, record in found[:5])
        raise UsageError(f"{reference}: {len(found)} records begin so, expected one: {keys}")
    kind, record = found[-1]  # the newest of those that differ by their environment
    model = "editor" if kind == "edit" else "judge"
    models = Journal(out / "models.jsonl", ModelRecord, reads_only=True).records
    made_of = models.get(str(record.recipe.get(model)))
    document = {
        "kind": kind,
        **record.model_dump(),
        model: None if made_of is None else made_of.recipe,
    }
    return Printed(document, _text(kind, record, model, document[model]), 0)


def _records(out: Path) -> Iterator[Found]:
    edits = Journal(out / "edits.jsonl", EditRecord, reads_only=True)
    yield from (("edit", record) for record in edits.records.values())
    verdicts = Journal(out / "verdicts.jsonl", VerdictRecord, reads_only=True)
    yield from (("verdict", record) for record in verdicts.records.values())


def _is_meant(record: EditRecord | VerdictRecord, reference: str) -> bool:
    named = [record.key, record.content]
    if isinstance(record, EditRecord):
        named.append(record.blob)
    return any(name.startswith(reference) for name in named)


def _text(
    kind: str, record: EditRecord | VerdictRecord, model: str, made_of: JsonObject | None
) -> str:
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
    lines += (
        _listed(made_of) if made_of is not None else ["  its record is not in this store any more"]
    )
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
        elif isinstance(value, list) and any(isinstance(one, list | dict) for one in value):
            lines += [
                f"{indent}{name}:",
                *(f"{indent}  {json.dumps(one, ensure_ascii=False)}" for one in value),
            ]
        else:
            lines.append(f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}")
    return lines
