"""The stores of a run's shards: read, compared with what the results name, and joined to one."""

import os
import secrets
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.results import Item, Results, SeedResult, ShardInfo, Verdict
from pytest_imgedit.core.text import counted, first_of
from pytest_imgedit.report import outputs
from pytest_imgedit.store.blobs import BLOB_NAME, THUMBNAIL_NAME
from pytest_imgedit.store.journal import EditRecord, Journal, ModelRecord, Record, VerdictRecord
from pytest_imgedit.store.store import Store

#: How many shards with losses a message describes.
_SHARDS_TOLD = 3
#: How many names of each kind of loss it lists.
_NAMES_TOLD = 3
#: The names that users know lost things by: by noun and state, then by what identifies each.
_Losses = dict[tuple[str, str], dict[str, str]]


@dataclass(frozen=True)
class ShardRun:
    """A finished shard: its results.json, what that holds, and the folder of its store."""

    path: Path
    results: Results
    info: ShardInfo
    store: Path


class ShardStore:
    """What the store in a folder holds; nothing in it is changed. Each file is read once.

    Raises `UsageError` for a damaged journal.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.edits = Journal(folder / "edits.jsonl", EditRecord, reads_only=True)
        self.verdicts = Journal(folder / "verdicts.jsonl", VerdictRecord, reads_only=True)
        self.models = Journal(folder / "models.jsonl", ModelRecord, reads_only=True)

    @cached_property
    def images(self) -> dict[str, bool]:
        """Whether an image has the digest that its name states, by its path below `blobs`; links
        and irregular files do not count.
        """
        return {
            f"{path.parent.name}/{path.name}": _is_whole(path)
            for path in (self.folder / "blobs").glob("??/*")
            if BLOB_NAME.fullmatch(path.name)
        }

    @property
    def thumbnails(self) -> Iterator[str]:
        """The paths of thumbnails below `blobs`. They need not be complete: a report makes those
        that are missing.
        """
        for path in (self.folder / "blobs").glob("??/*"):
            if THUMBNAIL_NAME.fullmatch(path.name) and _is_regular(path):
                yield f"{path.parent.name}/{path.name}"


def _is_regular(path: Path) -> bool:
    return not path.is_symlink() and files.is_file(path)


def _is_whole(path: Path) -> bool:
    try:
        return _is_regular(path) and files.digest(path) == path.stem
    except OSError:  # it cannot be read
        return False


def read_stores(shards: Sequence[ShardRun]) -> list[ShardStore]:
    """Read the stores of shards, each once.

    Raises `UsageError` for a damaged journal, and if a record or an image that the results of a
    shard name is missing or damaged.
    """
    folders = list(dict.fromkeys(shard.store for shard in shards))
    stores = {folder: ShardStore(folder) for folder in folders}
    lost_count = 0
    descriptions: list[str] = []
    for shard in shards:
        lost = _losses(shard, stores[shard.store])
        if lost:
            lost_count += sum(map(len, lost.values()))
            descriptions.append(_described(shard, lost))
    if descriptions:
        others = len(descriptions) - _SHARDS_TOLD
        more = f"; and {counted(others, 'shard')} more" if others > 0 else ""
        shown = "; ".join(descriptions[:_SHARDS_TOLD])
        raise errors.UsageError(
            f"{lost_count} of the records and images that results name are missing or damaged: "
            f"{shown}{more}; expected the whole stores: copy them again, or run these shards again"
        )
    return list(stores.values())


def _described(shard: ShardRun, lost: _Losses) -> str:
    """Count what a shard has lost by kind, and name the first of each."""
    kinds = []
    for (noun, state), names in lost.items():
        first = first_of(list(names.values()), _NAMES_TOLD)
        kinds.append(f"{counted(len(names), noun)} {state} ({first})")
    return f"shard {shard.info} ({shard.store}): {', '.join(kinds)}"


def _losses(shard: ShardRun, store: ShardStore) -> _Losses:
    """Return what the items of a shard claim and its store does not hold, or holds damaged."""
    lost: _Losses = defaultdict(dict)
    for item in shard.results.items:
        for name in _images_of(item):
            if not store.images.get(name):
                state = "damaged" if name in store.images else "missing"
                lost["image", state][name] = f"blobs/{name}"
        for seed in item.seeds:
            _check_edit(lost, item, seed, store)
            _check_verdicts(lost, item, seed, store)
    return lost


def _check_edit(lost: _Losses, item: Item, seed: SeedResult, store: ShardStore) -> None:
    """Add to `lost` the record of an edit if the store lacks it or has that of another image, and
    the record of its editor if the store lacks it.
    """
    if seed.edit is None:
        return
    record = store.edits.records.get(seed.edit.key)
    if record is None or record.blob != seed.edit.blob:
        _add_record(lost, "edits", f"{item.id} {seed.seed}", item.id, record)
    _check_model(lost, record, "editor", store)


def _check_verdicts(lost: _Losses, item: Item, seed: SeedResult, store: ShardStore) -> None:
    """Add to `lost` the records of the verdicts on an edit that the store lacks or has of another
    edit, and the records of their judges that it lacks.
    """
    edited = None if seed.edit is None else seed.edit.blob
    for key, name in _verdicts_of(seed):
        record = store.verdicts.records.get(key)
        if record is None or record.recipe.get("edited") != edited:
            _add_record(lost, "verdicts", f"{item.id} {seed.seed} {name}", item.id, record)
        _check_model(lost, record, "judge", store)


def _add_record(lost: _Losses, kind: str, key: str, pair_id: str, record: Record | None) -> None:
    """Add a record to `lost` that is missing, or is that of another edit."""
    state = "missing" if record is None else "of another edit"
    lost["record", f"of {kind} {state}"][key] = pair_id


def _check_model(lost: _Losses, record: Record | None, role: str, store: ShardStore) -> None:
    """Add to `lost` the record of the model that a record names, if the store lacks it."""
    if record is None:
        return
    digest = str(record.recipe.get(role))
    if digest not in store.models.records:
        lost["record", "of models missing"][digest] = f"{role} {digest[:12]}"


def _images_of(item: Item) -> Iterator[str]:
    yield from item.sources.values()
    if item.reference is not None:
        yield item.reference
    for edit in item.edits:
        yield edit.blob_path


def _verdicts_of(seed: SeedResult) -> Iterator[tuple[str, str]]:
    """Yield the keys of the records from which the verdicts on an edit were made, each with the
    names of the judge and the call. A verdict without keys has an empty one, which no record has.
    """
    verdicts = {"": seed.verdict, **seed.further}
    for name, verdict in verdicts.items():
        if isinstance(verdict, Verdict):
            for call, key in (verdict.keys or {"": ""}).items():
                yield key, f"{name} {call}"


def collect(stores: Iterable[ShardStore], into: Store) -> None:
    """Copy the undamaged images and the records of stores into another; images are hard-linked if
    possible.

    Raises `StoreError` if they cannot be written.
    """
    for store in stores:
        names = [name for name, is_whole in store.images.items() if is_whole]
        names += store.thumbnails
        for name in names:
            _link(store.folder / "blobs" / name, into.blobs.folder / name)
        journals: Sequence[tuple[Journal[Any], Journal[Any]]] = (
            (store.edits, into.edits),
            (store.verdicts, into.verdicts),
            (store.models, into.models),
        )
        for source, target in journals:
            new = [record for key, record in source.records.items() if key not in target.records]
            target.append(new)


def _link(path: Path, target: Path) -> None:
    """Hard-link or else copy a file, unless the target is there; raise `StoreError` if it cannot be
    written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            try:
                os.link(path, target)
            except OSError:  # on another file system, or one without links
                shutil.copyfile(path, target)
    except OSError as error:
        raise errors.StoreError(f"{target}: {error.strerror}") from error


@contextmanager
def new_store(out: Path) -> Iterator[Store]:
    """Make a store that becomes `out`, a new or an empty folder, once it is complete.

    Until then it is in a folder `.merge-…` beside it. After an error, or Ctrl-C, nothing is left of
    it. Raises `UsageError` if `out` is not empty, and `StoreError` if it cannot be written.
    """
    outputs.check_empty(out)
    target = Path(os.path.realpath(out))
    partial = target.parent / f".merge-{secrets.token_hex(4)}"
    new_parents = [parent for parent in target.parents if not parent.exists()]
    try:
        with Store(partial) as store:
            yield store
            if target.exists():
                shutil.copymode(target, partial)
            partial.rename(target)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        for parent in new_parents:
            with suppress(OSError):  # it was never made, or another has made something in it
                parent.rmdir()
        if isinstance(error, OSError):
            raise errors.StoreError(f"{out}: {error.strerror}, so that it is not made") from error
        if isinstance(error, errors.UsageError):
            problem = str(error).replace(str(partial), str(out))
            raise errors.StoreError(f"{problem}; no store is made") from error
        raise
