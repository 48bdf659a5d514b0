"""The HTML report: charts, tables, and a gallery that filters and sorts without a network."""

import base64
import hashlib
import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib.resources import files
from operator import itemgetter
from typing import Any

import jinja2
from markupsafe import Markup

from pytest_imgedit.core.measures import SCORE
from pytest_imgedit.core.results import (
    ComparedPair,
    Duel,
    DuelPair,
    Edit,
    GateResult,
    Item,
    Measure,
    Results,
)
from pytest_imgedit.core.text import counted, escaped, number, readable
from pytest_imgedit.report import charts, duel_cards, measure_tables, pictures, tables
from pytest_imgedit.report.parameters import set_parameters
from pytest_imgedit.stats.outcome import WORST_FIRST, has_near_copy, is_by_duels, outcome

#: Number of pairs on the first screen.
FIRST_PAIRS = 6
#: Columns that a narrow screen omits.
WIDE_ONLY = (
    "scored",
    "errors",
    "refused",
    "pending",
    "std",
    "median",
    "min",
    "max",
    "before",
    "now",
    "p of drop",
    "p of loss",
    "p of win",
    "first wins",
    "MDE",
    "AUC",
    "p of rise",
    "device",
    "load s",
    "host GiB",
)
#: Candidates for the id of a pair in a line of text.
_ID = re.compile(r"([A-Za-z0-9._-]+)")


def render(results: Results, locate: pictures.Locate) -> str:
    """Render results as one HTML page.

    The page's own script and style are the only ones that it allows.
    """
    header = tables.category_header(results)
    measures = header[len(tables.CATEGORY_HEADER) :]
    verdict = outcome(results)
    cards = [_card(item, results, locate) for item in results.items]
    lost = _lost(cards) if is_by_duels(results) else []
    template = environment().get_template("report.html")
    return template.render(
        run=results.run,
        finished=tables.human_time(results.run.finished),
        suite=results.suite,
        editor=results.editor,
        what_is_set=set_parameters(results.editor),
        judge=tables.judge_name(results),
        verdict=verdict,
        title=f"{verdict.state} · {results.editor.spec} · {results.run.id}",
        first=_first_pairs(cards, lost, is_compared=results.comparison is not None),
        lost=bool(lost),
        header=_mean_first(header),
        rows=list(map(_mean_first, tables.category_rows(results))),
        totals=list(map(_mean_first, tables.overall_rows(results))),
        remarks=tables.remarks(results),
        provenance=tables.provenance_lines(results),
        chart=charts.category_chart(results),
        histogram=charts.histogram(results),
        scatter=charts.scatter(results),
        axis={"WIDTH": charts.WIDTH, "LEFT": charts.LEFT},
        tables=_tables(results),
        timing=tables.timing_line(results),
        worker_header=tables.WORKER_HEADER,
        workers=tables.worker_rows(results),
        gates=_gates(results),
        words=tables.WORDS,
        wide_only=WIDE_ONLY + measures,
        sections=results.sections,
        compared=results.comparison is not None,
        dueled=results.duel is not None,
        measures=_measures(results),
        cards=cards,
        **one_file("report.js"),
    )


def _tables(results: Results) -> list[tables.Table]:
    """Return all tables below the scores, with links to pairs in their notes."""
    ids = {item.id for item in results.items}
    shown = list(measure_tables.tables_of_measures(results, brief=False))
    shown += tables.further_tables(results)
    return [table._replace(notes=[_linked(note, ids) for note in table.notes]) for table in shown]


def _gates(results: Results) -> list[GateResult]:
    """Return the gates, the worst first, with links to pairs in their reasons."""
    ids = {item.id for item in results.items}
    states = WORST_FIRST + ("NOT SELECTED",)
    worst_first = sorted(results.gates, key=lambda gate: states.index(gate.state))
    return [replace(gate, why=_linked(gate.why, ids)) for gate in worst_first]


def _measures(results: Results) -> list[dict[str, Any]]:
    """Return the measures beside the score, with the sign that sorts the worst values first."""
    measures = []
    for name, measure in _further_measures(results):
        measures.append({"name": name, "sign": -1 if measure.lower_is_better else 1})
    return measures


def _lost(cards: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the cards of pairs that lost their duels, those with the smallest share first."""
    lost = [card for card in cards if card["duel"] and card["duel"]["ending"] == "lost"]
    return sorted(lost, key=lambda card: card["duel"]["share"])


def _first_pairs(
    cards: Sequence[dict[str, Any]], lost: Sequence[dict[str, Any]], is_compared: bool
) -> list[dict[str, Any]]:
    """Return the cards of the first screen, each with its sources, old and new edit: those that
    `lost` duels if there are any; of a run that `is_compared`, the pairs that fell most; of
    another, those with the lowest scores.
    """
    captions = {"baseline edit": "before", "edit": "now" if lost else "edit"}
    if lost:
        shown = list(lost)
    elif is_compared:
        captions["edit"] = "now"
        shown = [card for card in cards if (card["difference"] or 0.0) < 0]
        shown.sort(key=itemgetter("difference"))
    else:
        shown = [card for card in cards if card["score"] is not None]
        shown.sort(key=itemgetter("score"))
    first = []
    for card in shown[:FIRST_PAIRS]:
        labels = [image["label"] for image in card["images"]]
        sources = {label: label for label in labels if label.startswith("source")}
        first.append(card | {"images": _first_images(card["images"], sources | captions)})
    return first


def _first_images(
    images: Sequence[dict[str, str]], captions: Mapping[str, str]
) -> list[dict[str, str]]:
    """Choose the images of the first seed that have captions, in the order of the captions."""
    first: dict[str, dict[str, str]] = {}
    for image in images:
        label, _, _ = image["label"].partition(",")
        first.setdefault(label, image)
    return [
        first[label] | {"label": caption} for label, caption in captions.items() if label in first
    ]


def _linked(text: str, ids: Container[str]) -> Markup:
    """Escape a line, and link each id of a pair in it; a number alone is not an id."""
    link = Markup('<a href="#pair-{0}">{0}</a>')
    parts: list[str] = []
    for part in _ID.split(escaped(text)):
        is_number = not part.strip("0123456789._-")
        parts.append(link.format(part) if part in ids and not is_number else part)
    return Markup().join(parts)


def _mean_first(row: Sequence[str]) -> tuple[str, ...]:
    """Return a row of the table of scores with the mean, its interval and the measures right behind
    the category.
    """
    mean = tables.CATEGORY_HEADER.index("mean")
    behind_interval = mean + 2
    measures = len(tables.CATEGORY_HEADER)
    cells = [row[0]]
    cells += row[mean:behind_interval]
    cells += row[measures:]
    cells += row[1:mean]
    cells += row[behind_interval:measures]
    return tuple(cells)


@cache
def environment() -> jinja2.Environment:
    """Return the renderer of the package's templates.

    It escapes all texts: what is HTML in them, and what steers a terminal or the order of a line. A
    text is one line, unless the filter `lines` or `tojson` shows it.
    """
    renderer = jinja2.Environment(
        loader=jinja2.FunctionLoader(template_text),
        autoescape=True,
        finalize=_finalized,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    renderer.globals["counted"] = counted
    renderer.filters["lines"] = lambda text: Markup.escape(readable(text))
    renderer.policies["json.dumps_function"] = lambda value, **options: json.dumps(
        readable_parts(value), **options
    )
    return renderer


def _finalized(value: object) -> object:
    """Escape a text that a template shows; what a template has escaped itself is `Markup`."""
    return escaped(value) if type(value) is str else value


def readable_parts(value: Any) -> Any:
    """Make a text readable, and all texts in lists and mappings, their keys too; other values stay
    as they are.
    """
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict):
        return {readable(str(name)): readable_parts(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [readable_parts(part) for part in value]
    return value


def template_text(name: str) -> str:
    return files("pytest_imgedit.report.templates").joinpath(name).read_text("utf-8")


def one_file(*scripts: str) -> dict[str, str]:
    """Return what a template needs for a page that is one file: the style of all pages, their
    script followed by further ones, and the sources of both for a content security policy.
    """
    style = template_text("page.css")
    script = template_text("page.js")
    for name in scripts:
        script += template_text(name)
    return {
        "style": style,
        "style_source": _csp_source(style),
        "script": script,
        "script_source": _csp_source(script),
    }


def _csp_source(text: str) -> str:
    """Return the source of a style or script as a content security policy names it."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _further_measures(results: Results) -> list[tuple[str, Measure]]:
    return [(name, measure) for name, measure in results.measures.items() if name != SCORE]


def _card(item: Item, results: Results, locate: pictures.Locate) -> dict[str, Any]:
    """Return what the gallery shows of a pair, by which it also filters and sorts.

    Its tags are those of the pair, its difficulty, and what was noticed of its edits. Values that
    it lacks are `None`.
    """
    comparison = results.comparison
    before = None if comparison is None else comparison.pairs.get(item.id)
    duel = results.duel
    dueled = None if duel is None else duel.pairs.get(item.id)
    near_copy = has_near_copy(item)
    reframed = any(edit.reframed for edit in item.edits)
    composited = any(edit.composited for edit in item.edits)
    leaked = any(edit.leaked for edit in item.edits)
    collapsed = comparison is not None and item.id in comparison.collapsed
    tags = list(item.tags)
    if item.difficulty:
        tags.append(item.difficulty)
    if near_copy:
        tags.append(name_of_near_copy(item))
    if reframed:
        tags.append("reframed")
    if composited:
        tags.append("composited")
    if leaked:
        tags.append("leak")
    if collapsed:
        tags.append("collapsed")
    if dueled is not None:
        tags += duel_cards.marks(dueled)
    return {
        "id": item.id,
        "category": item.category,
        "status": item.status,
        "score": item.score,
        "before": before and before.before,
        "difference": before and before.difference,
        "change": smallest_change(item),
        "made": how_made(item.edits),
        "near_copy": near_copy,
        "reframed": reframed,
        "composited": composited,
        "leaked": leaked,
        "collapsed": collapsed,
        "instruction": item.instruction,
        "tags": tags,
        "aspects": [[name, number(value)] for name, value in item.aspects.items()],
        "values": [item.value(name) for name, _ in _further_measures(results)],
        "error": shown_error(item),
        "greedy": _greedy_mean(item),
        "replies": list(_replies(item)),
        "images": list(_images(item, before, dueled, locate)),
        "duel": duel and dueled and _duel_of(dueled, duel, locate),
    }


def _duel_of(pair: DuelPair, duel: Duel, locate: pictures.Locate) -> dict[str, Any]:
    """Return what the gallery shows of the duels of a pair, and by which it filters and sorts."""
    votes: list[tuple[str, str]] = []
    is_missing = False
    for seed in pair.seeds:
        prefix = f"seed {seed.seed}, " if len(pair.seeds) > 1 else ""
        votes += [(prefix + title, text) for title, text in duel_cards.votes(seed)]
        name = blob_name(seed.before)
        is_missing = is_missing or (name is not None and locate(name) is None)
    return {
        "ending": duel_cards.ending(pair),
        "turned": duel_cards.is_turned(pair),
        "share": pair.value(SCORE),
        "line": duel_cards.line(pair, duel),
        "missing": f"an edit of {duel.name} is not in the store of this run" if is_missing else "",
        "votes": votes,
    }


def smallest_change(item: Item) -> float | None:
    """Return the smallest change from the source to an edit; `None` if none was measured."""
    changes = [edit.change for edit in item.edits if edit.change is not None]
    return min(changes, default=None)


def name_of_near_copy(item: Item) -> str:
    """Return the mark of a near-copy, whose pair may have several sources that it may show."""
    return "near-copy of one of its sources" if item.further else "near-copy"


def how_made(edits: Sequence[Edit]) -> str:
    """Say how many source images the editor was given, if several, and whether an edit was laid
    over white; an empty text if there is nothing to say.
    """
    facts = []
    sources = max((edit.sources for edit in edits), default=1)
    if sources > 1:
        facts.append(f"given {sources} source images")
    if any(edit.composited for edit in edits):
        facts.append("laid over white: the editor's image had transparent pixels")
    return "; ".join(facts)


def shown_error(item: Item) -> str | None:
    """Return the error of a pair; `None` also for a pair that was not needed."""
    if item.error is None or item.status == "not_needed":
        return None
    return str(item.error)


def _greedy_mean(item: Item) -> str | None:
    """Return the mean score of the greedy replies as text; `None` unless all verdicts are made of
    expected grades.
    """
    greedy = [verdict.greedy for verdict in item.verdicts if verdict.greedy is not None]
    if not greedy or len(greedy) < len(item.verdicts):
        return None
    return number(sum(greedy) / len(greedy))


def _replies(item: Item) -> Iterator[str]:
    """Yield the replies about a pair, and at last one that could not be read."""
    for verdict in item.verdicts:
        for reply in verdict.replies.values():
            if reply:
                yield reply
    if item.error is not None and item.error.reply is not None:
        yield item.error.reply


def _images(
    item: Item, before: ComparedPair | None, dueled: DuelPair | None, locate: pictures.Locate
) -> Iterator[dict[str, Any]]:
    """Yield the images of a pair that can be located, each as its label and the URLs of its
    picture.
    """
    for label, name in _image_names(item, before, dueled):
        picture = locate(name) if name else None
        if picture is not None:
            yield {"label": label} | asdict(picture)


def _image_names(
    item: Item, before: ComparedPair | None, dueled: DuelPair | None
) -> Iterator[tuple[str, str | None]]:
    """Yield the labels and names of the images of a pair, `None` for one that it lacks; an edit
    that is the baseline's is named once.

    Labels of edits name the seed if the pair has several.
    """
    yield from labelled_sources(item)
    for position, seed in enumerate(item.seeds):
        label_end = f", seed {seed.seed}" if len(item.seeds) > 1 else ""
        edit = None if seed.edit is None else seed.edit.blob
        yield f"edit{label_end}", blob_name(edit)
        other = duel_cards.edit_before(dueled, seed.seed)
        if before is not None:
            other = before.edits[position] or other
        if other != edit:
            yield f"baseline edit{label_end}", blob_name(other)
    yield "reference", item.reference


def labelled_sources(item: Item) -> Iterator[tuple[str, str]]:
    """Yield the label and the name of each source image of a pair, in its order: `source`, or of
    several `source 1` and so on, of which the edited one says so.
    """
    for name, blob in item.sources.items():
        label = name.replace("-", " ")
        if item.further and name == "source":
            label = f"source {item.edited_source} (edited)"
        yield label, blob


def blob_name(sha256: str | None) -> str | None:
    """Return the name of an edit in the store, as `results.json` names sources."""
    return None if sha256 is None else f"{sha256[:2]}/{sha256}.png"
