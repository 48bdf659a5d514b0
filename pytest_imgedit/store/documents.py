"""Reads results.json: `read_results` is the one way in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from pytest_imgedit.core.errors import UsageError, first_problem
from pytest_imgedit.core.files import read_utf8
from pytest_imgedit.core.results import RESULTS_SCHEMA, Results
from pytest_imgedit.core.strict_json import JsonObject, loads

MAX_BYTES = 256 * 2**20


def read_results(path: Path) -> Results:
    """Read a results.json; raises `UsageError`, which names the file and the place, for anything
    else.
    """
    return as_results(path, read_document(path, (RESULTS_SCHEMA,)))


def as_results(path: Path, document: JsonObject) -> Results:
    """Check a document that was read from a path; raises `UsageError` if it is not one of
    results.
    """
    try:
        return Results.model_validate(document)
    except ValidationError as error:
        raise UsageError(f"{path}: not a whole results document: {first_problem(error)}") from None


def read_document(path: Path, schemas: Sequence[str]) -> JsonObject:
    """Read a JSON object whose `schema` is one of these; raises `UsageError`."""
    text = read_utf8(path, MAX_BYTES, "a baseline or a results.json")
    try:
        document = loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not valid JSON: {error}") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema not in schemas:
        expected = " or ".join(map(repr, schemas))
        raise UsageError(
            f"{path}: schema {schema!r}, expected {expected}: of another version, or no such file"
        )
    return dict(document)
