"""Baselines: a run's scores with their provenance, in a small JSON file that users commit and compare with."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, StrictInt, ValidationError

from pytest_imgedit.errors import UsageError
from pytest_imgedit.files import read_regular, write_text
from pytest_imgedit.pairs import slug
from pytest_imgedit.strict_json import loads

SCHEMA = "imgedit.baseline/1"
RESULTS = "imgedit.results/1"
#: Where baselines stand, below pytest's root folder.
FOLDER = Path("benchmarks", "baselines")
MAX_BYTES = 256 * 2**20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_name(name: str) -> None:
    """Raise `UsageError` for a name that `--imgedit-save` cannot make a file of."""
    if not _NAME.fullmatch(name) or name == "latest":
        raise UsageError(f"--imgedit-save={name}: expected a name of letters, digits, '.', '_' and '-', not 'latest'")


def make_baseline(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Reduce a results document to what later runs are compared with; scores are rounded to six digits."""
    run = document["run"]
    return {
        "schema": SCHEMA,
        "name": name,
        "run": run["id"],
        "finished": run["finished"],
        "commit": run["commit"],
        "machine": run["machine"],
        "versions": run["versions"],
        "environments": document.get("environments", {}),
        "suite": document["suite"],
        "editor": document["editor"],
        "judge": document["judge"],
        "seeds": run["options"]["editor"]["seeds"],
        "not_needed": sum(item["status"] == "not_needed" for item in document["items"]),
        "overall": _rounded(document["overall"]["macro"]["mean"]),
        "categories": {
            category: {"n": row["n"], "scored": row["scored"], "mean": _rounded(row["mean"])}
            for category, row in document["categories"].items()
        },
        "items": [_item(item) for item in sorted(document["items"], key=lambda item: str(item["id"]))],
    }


def _item(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": item["id"],
        "category": item["category"],
        "sha256": content_sha256(item),
        "source": item["source"],
        "score": _rounded(item["score"]),
        "seeds": [
            {
                "seed": seed["seed"],
                "score": _rounded(seed["verdict"] and seed["verdict"]["score"]),
                "edit": seed["edit"] and seed["edit"]["blob"],
            }
            for seed in item["seeds"]
        ],
    }


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, 6)


def content_sha256(item: dict[str, Any]) -> str:
    """Hash what was asked about a pair: category, texts and images; `item` is one of results.json."""
    texts = ("category", "instruction", "description", "reference_text", "source", "reference")
    return hashlib.sha256(json.dumps([item[name] for name in texts]).encode()).hexdigest()


def write_baseline(folder: Path, baseline: dict[str, Any]) -> Path:
    """Write `folder/NAME.json`, one item a line so that a diff shows which pairs changed; raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{baseline['name']}.json"
    head = json.dumps({**baseline, "items": []}, ensure_ascii=False, indent=1, allow_nan=False)
    lines = ",\n  ".join(json.dumps(item, ensure_ascii=False, allow_nan=False) for item in baseline["items"])
    write_text(path, head.removesuffix("[]\n}") + f"[\n  {lines}\n ]\n}}\n")
    return path


def read_baseline(reference: str, folder: Path, base: Path) -> dict[str, Any]:
    """Read what `--imgedit-compare` names: a NAME in `folder`, `latest` there, or a path below `base`.

    A path may be that of a baseline, of a results.json, or of a run's folder. Raises `UsageError` for one that is
    not there, cannot be read, is of a newer format, or lacks what a comparison needs.
    """
    if reference == "latest":
        return _latest(folder)
    if _NAME.fullmatch(reference) and not reference.endswith(".json"):
        path = folder / f"{reference}.json"
        if not path.exists():
            known = sorted(one.stem for one in folder.glob("*.json"))
            have = f"expected one of: {', '.join(known)}" if known else "none is saved there, see --imgedit-save"
            raise UsageError(f"baseline {reference!r}: no {path}; {have}")
        return as_baseline(path)
    path = Path(base, reference)
    return as_baseline(path / "results.json" if path.is_dir() else path)


def _latest(folder: Path) -> dict[str, Any]:
    """Return the baseline of the run that finished last: times of files do not survive a checkout."""
    baselines = [as_baseline(path) for path in sorted(folder.glob("*.json"))]
    if not baselines:
        raise UsageError(f"baseline 'latest': no baseline in {folder}, see --imgedit-save")
    return max(baselines, key=lambda baseline: str(baseline["finished"]))


def as_baseline(path: Path) -> dict[str, Any]:
    """Read a baseline, or a results.json as one; raise `UsageError`."""
    document = read_document(path)
    if document.get("schema") == RESULTS:
        try:
            document = make_baseline(document, slug(path.parent.name))
        except (KeyError, TypeError) as error:
            raise UsageError(f"{path}: not a whole results document ({error!r})") from None
    problem = _problem(document)
    if problem is not None:
        raise UsageError(f"{path}: {problem}, expected a baseline as --imgedit-save writes it, or a results.json")
    return document


def read_document(path: Path) -> dict[str, Any]:
    """Read a JSON object with a `schema` of ours; raise `UsageError`."""
    data = read_regular(path, MAX_BYTES, "a baseline or a results.json")
    try:
        document = loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 (byte {error.start}), expected JSON") from None
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not valid JSON: {error}") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema not in (SCHEMA, RESULTS):
        raise UsageError(
            f"{path}: schema {schema!r}, expected {SCHEMA!r} or {RESULTS!r}: of another version, or no such file"
        )
    return dict(document)


class _Seed(BaseModel):
    seed: StrictInt
    edit: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")


class _Item(BaseModel):
    id: str
    category: str
    sha256: str
    source: str | None
    score: float | None = Field(strict=True, ge=0, le=10, allow_inf_nan=False)
    seeds: list[_Seed]


class _Editor(BaseModel):
    spec: str
    lossy: list[str] = Field(default_factory=list)


class _Commit(BaseModel):
    sha: str


class _Baseline(BaseModel):
    """What a comparison reads of a baseline."""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,128}$")
    run: str
    finished: str
    commit: _Commit | None
    editor: _Editor
    judge: dict[str, Any]
    seeds: StrictInt
    items: list[_Item]


def _problem(document: dict[str, Any]) -> str | None:
    """Say what is wrong with a baseline, in what a comparison reads of it."""
    try:
        ids = [item.id for item in _Baseline.model_validate(document).items]
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    twice = next((name for name, count in Counter(ids).items() if count > 1), None)
    return None if twice is None else f"items: id {twice!r} occurs twice"


def unlike_judges(baseline: dict[str, Any], judge: dict[str, Any], seeds: int) -> str | None:
    """Say why verdicts cannot be compared, as far as can be told; keys that `judge` lacks are not looked at.

    A judge is what its fingerprint says, wherever it lies; its spec counts only where there is no fingerprint.
    """
    there = baseline["judge"]
    if "rubric" in judge and (judge["rubric"] is None) != (there.get("rubric") is None):  # one of them only measures
        return f"another judge: {there.get('spec')} there, {judge.get('spec')} here"
    names = {"params": "judge parameters", "rubric": "rubric", "rubric_sha256": "content of the rubric"}
    for key, name in names.items():
        if key in judge and judge[key] != there.get(key):
            return f"another {name}: {_short(there.get(key))} there, {_short(judge[key])} here"
    if "fingerprint" in judge and judge["fingerprint"] != there.get("fingerprint"):
        if there.get("spec") != judge.get("spec"):
            return f"another judge: {there.get('spec')} there, {judge.get('spec')} here"
        was, now = _short(there.get("fingerprint")), _short(judge["fingerprint"])
        return f"another judge's weights or code: {was} there, {now} here"
    if seeds != baseline["seeds"]:
        return f"another number of seeds: {baseline['seeds']} there, {seeds} here"
    return None


def unlike_losses(baseline: dict[str, Any], lossy: list[str]) -> str | None:
    """Say why a gate cannot tell a worse model from a faster one: other parameters that trade quality for speed."""
    was = baseline["editor"].get("lossy", [])
    if was == lossy:
        return None
    named = (", ".join(one) or "nothing" for one in (was, lossy))
    return "an editor made faster with loss by {} there, by {} here; a gate on it would mix the two".format(*named)


def unlike_items(baseline: dict[str, Any], items: list[tuple[str, str, list[int]]]) -> str | None:
    """Say why pairs cannot be compared; `items` are (id, `content_sha256`, seeds) of this run's pairs."""
    known = {item["id"]: item for item in baseline["items"]}
    for name, sha256, seeds in items:
        if name not in known:
            return f"pair {name!r} is not in it"
        if known[name]["sha256"] != sha256:
            return f"pair {name!r} had another category, text or image"
        theirs = [seed["seed"] for seed in known[name]["seeds"]]
        if theirs != seeds:
            return f"pair {name!r} was edited with seeds {theirs}, here with {seeds}"
    return None


def refuse(baseline: dict[str, Any], reason: str | None) -> None:
    """Raise `UsageError` if there is a reason not to compare with a baseline."""
    if reason:
        raise UsageError(f"baseline {baseline['name']}: cannot be compared with, {reason}")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"{text[:12]}…" if re.fullmatch("[0-9a-f]{64}", text) else text[:80]
