"""What users call runs and baselines on a command line, and the documents that they mean."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import counted, did_you_mean, first_of
from pytest_imgedit.store.baselines import MAX_BYTES, baseline_path
from pytest_imgedit.store.store import finished_runs

LATEST = "latest"


class Found(NamedTuple):
    """The document that a reference means; `note` says which newer runs `latest` passed over."""

    path: Path
    note: str = ""


@dataclass(frozen=True)
class _Head:
    """What a results.json says of its run: its name, the name and the SHA-256 of its suite, and
    which `part` of the suite it has; empty if it has all.
    """

    name: str
    suite: tuple[str, str]
    part: str


def find_run(reference: str, out: Path) -> Path:
    """Return the results.json that a reference means in the store `out`.

    It is `latest` (the newest run), the id of a run, a path of a document or of its folder, or the
    name of a run (the newest of that name). Raise `UsageError` if it means none.
    """
    path = _find_by_place(reference, out) or _find_by_name(reference, out)
    if path is not None:
        return path
    known = finished_runs(out)
    if not known:
        raise errors.UsageError(f"{reference[:200]}: no such file, and {no_runs(out)}")
    names = _names_in(out)
    named = f" or names: {first_of(names)}" if names else ""
    raise errors.UsageError(
        f"{reference[:200]}: no such run, expected a path, latest, or one of the {len(known)} ids "
        f"in {out}/runs{named}{did_you_mean(reference, names)}"
    )


def find_whole(reference: str, out: Path, suite: Collection[str] = ()) -> Found:
    """Return what `find_run` returns, but for `latest` the newest run of all pairs of its suite.

    `suite` holds names or SHA-256s, one of which that suite has; if it is empty, any suite does. If
    there is no such run, `latest` is the newest run.
    """
    if reference != LATEST:
        return Found(find_run(reference, out))
    known = _newest_first(out)
    passed: list[str] = []
    for path in known:
        reason = _unfit(path, suite)
        if not reason:
            count = counted(len(passed), "newer run")
            note = f"latest: {path.parent.name}; passed over {count}: {first_of(passed)}"
            return Found(path, note if passed else "")
        passed.append(f"{path.parent.name} ({reason})")
    return Found(known[0], f"latest: {passed[0]}; no run of all pairs of the suite in {out}")


def find_either(reference: str, out: Path, baselines: Path, suite: Collection[str] = ()) -> Found:
    """Return the document of a run or a baseline; a baseline in the folder `baselines` comes before
    a run of the same name, and `latest` is the one of `find_whole`.

    Raise `UsageError` if the reference means neither.
    """
    if reference == LATEST:
        return find_whole(reference, out, suite)
    path = (
        _find_by_place(reference, out)
        or baseline_path(reference, baselines)
        or _find_by_name(reference, out)
    )
    if path is not None:
        return Found(path)
    saved = sorted(path.stem for path in baselines.glob("*.json"))
    names = _names_in(out)
    has = f"has {first_of(saved)}" if saved else "has none (--imgedit-save makes one)"
    runs = counted(len(finished_runs(out)), "run")
    named = f", names: {first_of(names)}" if names else ""
    near = did_you_mean(reference, saved + names)
    raise errors.UsageError(
        f"{reference[:200]}: no such baseline or run, expected a path, latest, or a name or an id: "
        f"{baselines} {has}, {out} has {runs}{named}{near}"
    )


def no_runs(out: Path) -> str:
    """Say that a store has no finished run, and what makes one."""
    return (
        f"{str(out)[:200]} has no finished run: run pytest --imgedit first, or name another store "
        "with --out"
    )


def _find_by_place(reference: str, out: Path) -> Path | None:
    """Return the results.json that `latest`, an id or a path means; `None` if there is none. A file
    in the current folder must end in `.json`, as other words may be names.

    Raise `UsageError` for `latest` if there is no run.
    """
    if reference == LATEST:
        return _newest_first(out)[0]
    for path in (out / "runs" / reference, Path(reference)):
        if _exists(path / "results.json"):
            return path / "results.json"
    path = Path(reference)
    if _exists(path) and (path.suffix == ".json" or path.parent != Path()):
        return path
    return None


def _newest_first(out: Path) -> list[Path]:
    """Return the results.json of each run of a store, the newest first; raise `UsageError` if there
    is none.
    """
    known = [path for path in reversed(finished_runs(out)) if path.is_file()]
    if not known:
        raise errors.UsageError(f"latest: {no_runs(out)}")
    return known


def _unfit(path: Path, suite: Collection[str]) -> str:
    """Say why a run is not one of all pairs of a suite: another suite than `suite` names, or a
    part.

    Empty if it is one. It is also empty if the run cannot be read, so that this is not passed over:
    the reader of the run says what is wrong.
    """
    head = _head_of(path)
    if head is None:
        return ""
    if suite and set(suite).isdisjoint(head.suite):
        name, _ = head.suite
        return f"suite {name}"
    return head.part


def _find_by_name(reference: str, out: Path) -> Path | None:
    """Return the results.json of the newest run of a name; `None` if there is none."""
    for path in reversed(finished_runs(out)):
        if reference and _name_of(path) == reference:
            return path
    return None


def _names_in(out: Path) -> list[str]:
    """Return the names of a store's runs, that of the newest run first."""
    names = map(_name_of, reversed(finished_runs(out)))
    return list(dict.fromkeys(filter(None, names)))


def _name_of(path: Path) -> str:
    """Return the name of a run; an empty text if it has none, or cannot be read."""
    head = _head_of(path)
    return "" if head is None else head.name


def _head_of(path: Path) -> _Head | None:
    """Return the head of a run; `None` if it cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return _read_head(path, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=1024)
def _read_head(path: Path, *_version: int) -> _Head | None:
    """Return the head of a run, `None` if the file is no results.json. It is cached for each
    version of the file: a command may look for many runs among the same large files.
    """
    try:
        document = files.read_json(path, MAX_BYTES, "a results.json")
        suite = document["suite"]
        name = document["run"]["name"]
        suite_names = (suite["name"], suite["sha256"])
        part = _part(document)
    except (errors.UsageError, AttributeError, KeyError, TypeError):
        return None
    if not all(isinstance(text, str) for text in (name, *suite_names)):
        return None
    return _Head(name, suite_names, part)


def _part(results: JsonObject) -> str:
    """Say which part of its suite a run has; empty if it has all pairs, judged. Raise `KeyError`,
    `TypeError` or `AttributeError` for what is no results.json.
    """
    run = results["run"]
    selection = results["selection"]
    items = results["items"]
    if run["options"]["run"].get("stage") == "edit":
        return "not judged"
    if run["status"] != "complete":
        return "stopped"
    if selection.get("shard"):
        return "a shard"
    pairs = sum(item["status"] != "not_needed" for item in items)
    return "" if pairs == selection["whole"] else f"{pairs} of {selection['whole']} pairs"


def _exists(path: Path) -> bool:
    """Tell whether there is anything but a folder at a path; reading it says what is wrong with
    it.
    """
    try:
        return path.exists() and not path.is_dir()
    except OSError:  # a name that is too long
        return False
