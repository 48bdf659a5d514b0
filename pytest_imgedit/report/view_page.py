"""A folder with one static page over several runs: the runs, their pairs by models, and each pair.

The page works from `file://` as well as by HTTP, and asks for nothing but its own files and the
images: the data of a run are two scripts, since a page from `file://` cannot read other files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pytest_imgedit.core import files, pairs
from pytest_imgedit.core.duel_votes import DuelVote, shares_won
from pytest_imgedit.core.measures import OVERALL, SCORE
from pytest_imgedit.core.results import (
    Duel,
    DuelSeed,
    Item,
    ItemError,
    MeasuredGroups,
    Results,
    SeedResult,
    Verdict,
)
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import interval, number
from pytest_imgedit.report import duel_cards, html, tables
from pytest_imgedit.report.parameters import differing, settings_of
from pytest_imgedit.stats.outcome import has_near_copy, outcome
from pytest_imgedit.store.blobs import Blobs
from pytest_imgedit.suites.votes import stored_votes

#: The page's own files, besides `index.html`.
_ASSETS = ("page.css", "page.js", "view.js")
#: The most runs that can be looked at together.
MOST_RUNS = 12
#: Characters of a key by which `imgedit explain` finds its record.
KEY = 12
#: Folder of the images below that of a page that can be moved.
_PICTURES = "pictures"


@dataclass(frozen=True)
class StoredRun:
    """A finished run, with the folder `blobs` of its store."""

    results: Results
    blobs: Path


def write_view(
    runs: Sequence[StoredRun], going_on: Sequence[JsonObject], folder: Path, *, is_movable: bool
) -> None:
    """Write the page of runs into a folder, with rows of those that are still `going_on`.

    One that `is_movable` holds the images too; another one links to those in the stores. An older
    page stays until the new one is whole. Raises `OSError`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _write_into(made, runs, going_on, folder, is_movable=is_movable)
        made.chmod(0o755)  # what a temporary folder is not
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def pairs_url(page: Path, store: Path, runs: Sequence[str], *, is_series: bool = False) -> str:
    """Return the address, from another page, of the pairs by these runs in the page of a store; an
    empty text if the page lacks one of them.

    Of more than `MOST_RUNS` runs, the address names the first, or the newest if they are a series.
    """
    shown = runs[-MOST_RUNS:] if is_series else runs[:MOST_RUNS]
    keys = [pairs.slug(run) for run in shown]
    folder = store / "view"
    if not all((folder / f"runs/{key}.js").is_file() for key in keys):
        return ""
    address = quote(os.path.relpath(folder.resolve(), page.resolve().parent))
    return f"{address}/index.html#view=pairs&runs={quote(','.join(keys))}"


def _write_into(
    made: Path,
    runs: Sequence[StoredRun],
    going_on: Sequence[JsonObject],
    folder: Path,
    *,
    is_movable: bool,
) -> None:
    """Write the page into `made`, which will be moved to `folder`; one that `is_movable` holds
    copies of its images.
    """
    (made / "runs").mkdir()
    for name in _ASSETS:
        files.write_text(made / name, html.template_text(name))
    beside_the_page = "'self' file:"
    template = html.environment().get_template("view.html")
    page = template.render(
        title="Image editing runs",
        style="",
        style_source=beside_the_page,
        script_source=beside_the_page,
    )
    files.write_text(made / "index.html", page)
    changed = differing(
        (run.results.suite.name, run.results.editor.spec, settings_of(run.results)) for run in runs
    )
    rows = []
    keys = list(_keys(runs))
    won = shares_won(_votes(runs), dict(_names(keys, runs)))
    for key, run, params in zip(keys, runs, changed, strict=True):
        thumbnails = dict(_thumbnails(run))
        url = quote(os.path.relpath(run.blobs.resolve(), folder.resolve()))
        if is_movable:
            url = _PICTURES
            for name, thumbnail in thumbnails.items():
                _copy(run.blobs / name, thumbnail, (made / _PICTURES / name).parent)
        rows.append(_row(key, run.results, params))
        duels = _duels(run.results, won.get(key, {}))
        _write_run(made / "runs", key, run.results, _Images(url, thumbnails), duels)
    _write_script(made / "runs.js", "list", "", rows + list(going_on))


@dataclass(frozen=True)
class _Images:
    """The images that are `there`, below `url`."""

    url: str
    there: Container[str]


def _write_run(
    folder: Path, key: str, results: Results, images: _Images, duels: JsonObject
) -> None:
    """Write the three scripts of a run: the facts of its pairs, which runs of the same pairs share,
    what the run made of them, with its duels against other runs, and the replies.
    """
    facts = _facts(results, images.there)
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    items = {"pairs": digest, "url": images.url, "duels": duels} | _items(results, images.there)
    _write_script(folder / f"{digest}-pairs.js", "pairs", digest, facts)
    _write_script(folder / f"{key}.js", "items", key, items)
    _write_script(folder / f"{key}-replies.js", "replies", key, _replies(results))


def _write_script(path: Path, kind: str, key: str, value: Any) -> None:
    """Write a script that gives the page a value of a kind under a key."""
    arguments = json.dumps([kind, key, html.readable_parts(value)], separators=(",", ":"))
    files.write_text(path, f"imgedit.receive({arguments[1:-1]});\n")


def _keys(runs: Sequence[StoredRun]) -> Iterator[str]:
    """Yield for each run its id, as a file may be called; a further copy of one run, in another
    store, gets a number too.
    """
    seen: set[str] = set()
    for run in runs:
        name = pairs.slug(run.results.run.id)
        key = name
        number = 2
        while key in seen:
            key = f"{name}-{number}"
            number += 1
        seen.add(key)
        yield key


def _duels(results: Results, won: Mapping[str, Mapping[str, float]]) -> JsonObject:
    """Return the shares of votes that a run `won` over other runs, by the position of the pair."""
    return {
        other: {
            place: shares[item.id] for place, item in enumerate(results.items) if item.id in shares
        }
        for other, shares in won.items()
    }


def _votes(runs: Sequence[StoredRun]) -> list[DuelVote]:
    """Return the votes in the stores of runs."""
    stores = dict.fromkeys(run.blobs.parent for run in runs)
    return [vote for store in stores for vote in stored_votes(store)]


def _names(keys: Sequence[str], runs: Sequence[StoredRun]) -> Iterator[tuple[str, str]]:
    """Yield the names by which votes may call a run, with its key."""
    for key, run in zip(keys, runs, strict=True):
        yield run.results.run.id, key
    names = Counter(run.results.run.name for run in runs)
    for key, run in zip(keys, runs, strict=True):
        if run.results.run.name and names[run.results.run.name] == 1:
            yield run.results.run.name, key


def _row(key: str, results: Results, params: str) -> JsonObject:
    """Return what the list of runs shows of a run; `seconds` is how long it took."""
    conclusion = outcome(results)
    return {
        "key": key,
        "name": results.run.name,
        "suite": results.suite.name,
        "editor": results.editor.spec,
        "params": params,
        "judge": tables.judge_name(results),
        "judge_recipe": results.judge.recipe,
        "further": [name for name, info in results.further.items() if info.role == "judge"],
        "pairs": len(results.items),
        "state": conclusion.state,
        "outcome": conclusion.line,
        "finished": tables.human_time(results.run.finished),
        "seconds": _seconds(results),
        "duel": _duel(results),
        "duels": duel_cards.share_won(results),
        "measures": [_measure(name, measured) for name, measured in results.measures.items()],
    }


def _measure(name: str, measured: MeasuredGroups) -> JsonObject:
    """Return the overall mean of a measure, and how it is shown."""
    overall = measured.rows[OVERALL]
    return {
        "name": name,
        "mean": overall.mean,
        "ci95": overall.ci95,
        "lower": measured.lower_is_better,
        "decimals": measured.decimals,
    }


def _duel(results: Results) -> str:
    """Return the share of duels that a run wins, in words; an empty text without duels."""
    row = None if results.duel is None else results.duel.measures.get(SCORE, {}).get(OVERALL)
    if results.duel is None or row is None:
        return ""
    ends = "" if row.ci95 is None else f" ({interval(row.ci95)})"
    return f"wins {number(row.share)}{ends} of duels against {results.duel.name}"


def _seconds(results: Results) -> int | None:
    """Return how long a run took; `None` if it does not say when it started and finished."""
    with suppress(ValueError, TypeError):
        started = datetime.fromisoformat(results.run.started)
        finished = datetime.fromisoformat(results.run.finished)
        return round((finished - started).total_seconds())
    return None


def _facts(results: Results, there: Container[str]) -> JsonObject:
    """Return what the pairs of a run are, by columns, which are smaller than rows; runs of one
    suite share it. Only images that are `there` are named. `sources` maps the position of a pair
    with several to their labels and names. `inputs` are equal for equal source images.
    """
    items = results.items
    sources: dict[int, list[list[str | None]]] = {}
    for position, item in enumerate(items):
        if item.further:
            labelled = html.labelled_sources(item)
            sources[position] = [[label, _shown(blob, there)] for label, blob in labelled]
    return {
        "id": [item.id for item in items],
        "category": [item.category for item in items],
        "instruction": [item.instruction for item in items],
        "tags": [list(item.tags) for item in items],
        "difficulty": [item.difficulty for item in items],
        "source": [_shown(item.source, there) for item in items],
        "sources": sources,
        "inputs": [_digest_of_sources(item) for item in items],
        "reference": [_shown(item.reference, there) for item in items],
    }


def _digest_of_sources(item: Item) -> str:
    """Return a short digest of the source images of a pair, of their order and the edited one."""
    return hashlib.sha256(json.dumps(list(item.sources.items())).encode()).hexdigest()[:12]


def _items(results: Results, there: Container[str]) -> JsonObject:
    """Return what a run made of its pairs, by columns; those with few values map the position of a
    pair to its value. Only edits that are `there` are named. `others` are the edits that those of
    the run were put against in duels.
    """
    others: dict[int, str] = {}
    statuses: dict[int, str] = {}
    marks: dict[int, list[str]] = {}
    errors: dict[int, str] = {}
    for position, item in enumerate(results.items):
        if item.status != "scored":
            statuses[position] = item.status
        other = _encoded(html.blob_name(_other_edit(item.seeds[0], item.id, results.duel)), there)
        if other:
            others[position] = other
        item_marks = _marks(item, results.duel)
        if item_marks:
            marks[position] = item_marks
        error = html.shown_error(item)
        if error:
            errors[position] = error
    measures = [name for name in results.measures if name != SCORE]
    values: dict[str, list[float | None]] = {}
    for name in [SCORE] + measures:
        values[name] = [_rounded(item.value(name)) for item in results.items]
    return {
        "status": statuses,
        "edits": [_encoded(_edited(item.seeds[0]), there) for item in results.items],
        "others": others,
        "marks": marks,
        "change": [_change(item) for item in results.items],
        "error": errors,
        "values": values,
    }


def _rounded(value: float | None) -> float | None:
    """Round a value to more decimals than are shown; `None` stays `None`."""
    return None if value is None else round(value, 4)


def _shown(blob: str | None, there: Container[str]) -> str | None:
    return Path(blob).name if blob is not None and blob in there else None


def _encoded(name: str | None, there: Container[str]) -> str | None:
    """Return the digest of an edit by its name, in Base64, two thirds as long as in hex; `None` if
    it is not `there`.
    """
    if name is None or name not in there:
        return None
    return base64.b64encode(bytes.fromhex(Path(name).stem)).decode()


def _other_edit(seed: SeedResult, pair_id: str, duel: Duel | None) -> str | None:
    """Return the SHA-256 of the edit that the edit of a seed was put against, if it is another."""
    other = None if duel is None else duel_cards.edit_before(duel.pairs.get(pair_id), seed.seed)
    return None if seed.edit is not None and seed.edit.blob == other else other


def _edited(seed: SeedResult) -> str | None:
    """Return the name of the edit of a seed, as `results.json` names sources."""
    return None if seed.edit is None else html.blob_name(seed.edit.blob)


def _marks(item: Item, duel: Duel | None) -> list[str]:
    """Return what was noticed of some edit of a pair, and how its duels ended."""
    marks = []
    if has_near_copy(item):
        marks.append(html.name_of_near_copy(item))
    if any(edit.reframed for edit in item.edits):
        marks.append("reframed")
    if any(edit.composited for edit in item.edits):
        marks.append("composited")
    if any(edit.leaked for edit in item.edits):
        marks.append("leak")
    if duel is not None and item.id in duel.pairs:
        marks += duel_cards.marks(duel.pairs[item.id])
    return marks


def _change(item: Item) -> float | None:
    change = html.smallest_change(item)
    return None if change is None else round(change, 1)


def _replies(results: Results) -> list[list[list[Any]]]:
    """Return the rows of the seeds of each pair, as `_seed` makes them."""
    dueled = {} if results.duel is None else results.duel.pairs
    rows = []
    for item in results.items:
        pair = dueled.get(item.id)
        duels = {} if pair is None else {duel.seed: duel for duel in pair.seeds}
        rows.append([_seed(seed, duels.get(seed.seed)) for seed in item.seeds])
    return rows


def _seed(seed: SeedResult, duel: DuelSeed | None) -> list[Any]:
    """Return the number of a seed and its answers as judge, call and text, with the votes of its
    duel; with an edit, also its size and seconds, what else is said of how it was made, and the
    keys of the records of the edit, of its verdict and of the votes.
    """
    answers: dict[str, Verdict | ItemError | None] = {"": seed.verdict or seed.error}
    answers.update(seed.further)
    replies = []
    for judge, answer in answers.items():
        if answer:
            replies += [[judge, call, text] for call, text in _replies_of(answer)]
    if duel is not None:
        replies += [["duel", title, text] for title, text in duel_cards.votes(duel)]
    row: list[Any] = [seed.seed, replies]
    if seed.edit is None:
        return row
    keys = [seed.edit.key]
    if seed.verdict is not None:
        keys += seed.verdict.keys.values()
    for vote in () if duel is None else duel.votes:
        keys += vote.keys.values()
    row += [f"{seed.edit.width}×{seed.edit.height}", round(seed.edit.seconds, 3)]
    row.append(html.how_made([seed.edit]))
    row += [key[:KEY] for key in keys]
    return row


def _replies_of(answer: Verdict | ItemError) -> Iterator[tuple[str, str]]:
    """Yield the replies of an answer by call, or its error, and the reply to that without a
    call.
    """
    if isinstance(answer, Verdict):
        yield from answer.replies.items()
    else:
        yield "error", str(answer)
        if answer.reply:
            yield "", answer.reply


def _thumbnails(run: StoredRun) -> Iterator[tuple[str, Path]]:
    """Yield the images of a run that are in its store, by name, with the paths of their thumbnails;
    one without a thumbnail is left out.
    """
    blobs = Blobs(run.blobs)
    names: dict[str | None, None] = {}
    for item in run.results.items:
        names.update(dict.fromkeys(item.sources.values()))
        names[item.reference] = None
        for seed in item.seeds:
            names[_edited(seed)] = None
            names[html.blob_name(_other_edit(seed, item.id, run.results.duel))] = None
    for name in names:
        path = run.blobs / name if name else None
        if path is None or not path.is_file():
            continue
        thumbnail = blobs.made_thumbnail(path.stem, path.suffix)
        if thumbnail and name:
            yield name, thumbnail


def _copy(image: Path, thumbnail: Path, folder: Path) -> None:
    """Copy an image and its thumbnail into a folder, unless another run has done so."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (image, thumbnail):
        target = folder / path.name
        if not target.exists():
            files.write_bytes(target, path.read_bytes(), durable=False)
