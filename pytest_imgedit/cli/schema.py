"""`imgedit schema`: what results.json and baselines hold, as JSON schemas."""

from __future__ import annotations

import json

from pytest_imgedit.cli.printed import Printed
from pytest_imgedit.core.results import Results
from pytest_imgedit.store.baselines import Baseline


def schema(baseline: bool) -> Printed:
    """Print the JSON schema of results, or of a baseline."""
    document = (Baseline if baseline else Results).model_json_schema(mode="serialization")
    return Printed(document, json.dumps(document, ensure_ascii=False, indent=1), 0)
