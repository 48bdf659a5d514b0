"""What users call runs and baselines on a command line, and the documents that they mean."""

from functools import lru_cache
from pathlib import Path

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.sanitize import counted, did_you_mean, first_of
from pytest_imgedit.store.baselines import baseline_path
from pytest_imgedit.store.store import finished_runs


def find_run(reference: str, out: Path) -> Path:
    """Return the results.json that a reference means: `latest`, a path, an id in the store `out`,
    or the name of its newest run of that name.

    Raises `UsageError` if it means none.
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


def find_either(reference: str, out: Path, baselines: Path) -> Path:
    """Return the document of a run or a baseline; a baseline in the folder `baselines` comes before
    a run of the same name.

    Raises `UsageError` if the reference means neither.
    """
    path = (
        _find_by_place(reference, out)
        or baseline_path(reference, baselines)
        or _find_by_name(reference, out)
    )
    if path is not None:
        return path
    saved = sorted(path.stem for path in baselines.glob("*.json"))
    names = _names_in(out)
    has = f"has {first_of(saved)}" if saved else "has none (--imgedit-save makes one)"
    named = f", names: {first_of(names)}" if names else ""
    raise errors.UsageError(
        f"{reference[:200]}: no such baseline or run, expected a path, latest, or a name or an id: "
        f"{baselines} {has}, {out} has {counted(len(finished_runs(out)), 'run')}{named}"
        f"{did_you_mean(reference, [*saved, *names])}"
    )


def no_runs(out: Path) -> str:
    """Say that a store has no finished run, and what makes one."""
    return (
        f"{str(out)[:200]} has no finished run: run pytest --imgedit first, or name another store "
        "with --out"
    )


def _find_by_place(reference: str, out: Path) -> Path | None:
    """Return the results.json that `latest`, a path or an id means."""
    if reference == "latest":
        known = [path for path in finished_runs(out) if path.is_file()]
        if not known:
            raise errors.UsageError(f"latest: {no_runs(out)}")
        return known[-1]
    for path in (out / "runs" / reference, Path(reference)):
        if _exists(path / "results.json"):
            return path / "results.json"
    path = Path(reference)
    if _exists(path) and (path.suffix == ".json" or path.parent != Path()):
        return path
    return None


def _find_by_name(reference: str, out: Path) -> Path | None:
    """Return the results.json of the newest run of a name."""
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
    try:
        return _read_name(path, path.stat().st_mtime_ns)
    except OSError:
        return ""


@lru_cache(maxsize=1024)
def _read_name(path: Path, _modified_ns: int) -> str:
    """Read the name of a run; a command may look for many names among the same large files."""
    try:
        name = files.read_object(path, "a results.json")["run"]["name"]
    except (errors.UsageError, KeyError, TypeError):
        return ""
    return name if isinstance(name, str) else ""


def _exists(path: Path) -> bool:
    """Tell whether a file is there, of whatever kind: reading it says what is wrong with it."""
    try:
        return path.exists() and not path.is_dir()
    except OSError:  # a name that is too long
        return False
