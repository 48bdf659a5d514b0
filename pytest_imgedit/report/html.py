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
from pytest_imgedit.core.results import ComparedPair, Item, Measure, Results
from pytest_imgedit.core.sanitize import counted, escaped, number, readable
from pytest_imgedit.report import charts, measure_tables, pictures, tables
from pytest_imgedit.stats.outcome import WORST_FIRST, outcome

#: Number of pairs on the first screen.
FIRST_PAIRS = 6
#: Columns that a narrow screen omits.
WIDE_ONLY = (
    *(
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
    ),
    *("MDE", "AUC", "p of rise"),
    *("device", "load s", "host GiB"),
)
#: Candidates for the id of a pair in a line of text.
_ID = re.compile(r"([A-Za-z0-9._-]+)")


def render(results: Results, locate: pictures.Locate) -> str:
    """Render results as one HTML page.

    The page's own script and style are the only ones that it allows.
    """
    ids = {item.id for item in results.items}
    cards = [_card(item, results, locate) for item in results.items]
    return (
        environment()
        .get_template("report.html")
        .render(
            run=results.run,
            finished=tables.human_time(results.run.finished),
            suite=results.suite,
            editor=results.editor,
            judge=tables.judge_name(results),
            verdict=outcome(results),
            title=f"{outcome(results).state} · {results.editor.spec} · {results.run.id}",
            first=_first_pairs(cards, is_compared=results.comparison is not None),
            header=_mean_first(tables.category_header(results)),
            rows=list(map(_mean_first, tables.category_rows(results))),
            totals=list(map(_mean_first, tables.overall_rows(results))),
            remarks=tables.remarks(results),
            provenance=tables.provenance_lines(results),
            chart=charts.category_chart(results),
            histogram=charts.histogram(results),
            scatter=charts.scatter(results),
            axis={"WIDTH": charts.WIDTH, "LEFT": charts.LEFT},
            tables=[
                table._replace(notes=[_linked(note, ids) for note in table.notes])
                for table in (
                    *measure_tables.tables_of_measures(results, brief=False),
                    *tables.further_tables(results),
                )
            ],
            timing=tables.timing_line(results),
            worker_header=tables.WORKER_HEADER,
            workers=tables.worker_rows(results),
            gates=[
                replace(gate, why=_linked(gate.why, ids))
                for gate in sorted(
                    results.gates, key=lambda gate: (*WORST_FIRST, "NOT SELECTED").index(gate.state)
                )
            ],
            words=tables.WORDS,
            wide_only=(*WIDE_ONLY, *tables.category_header(results)[len(tables.CATEGORY_HEADER) :]),
            sections=results.sections,
            compared=results.comparison is not None,
            measures=[
                {"name": name, "sign": -1 if measure.lower_is_better else 1}
                for name, measure in _further_measures(results)
            ],
            cards=cards,
            **one_file("report.js"),
        )
    )


def _first_pairs(cards: Sequence[dict[str, Any]], is_compared: bool) -> list[dict[str, Any]]:
    """Return the pairs that fell most, or else those with the lowest scores, with their source, old
    and new edit.
    """
    measure, edit = "score", "edit"
    shown = [card for card in cards if card["score"] is not None]
    if is_compared:
        measure, edit = "difference", "now"
        shown = [card for card in cards if (card["difference"] or 0.0) < 0]
    captions = {"source": "source", "baseline edit": "before", "edit": edit}
    return [
        {**card, "images": _first_images(card["images"], captions)}
        for card in sorted(shown, key=itemgetter(measure))[:FIRST_PAIRS]
    ]


def _first_images(
    images: Sequence[dict[str, str]], captions: Mapping[str, str]
) -> list[dict[str, str]]:
    """Choose the images of the first seed that have captions, in the order of the captions."""
    first: dict[str, dict[str, str]] = {}
    for image in images:
        first.setdefault(image["label"].split(",")[0], image)
    return [{**first[label], "label": captions[label]} for label in captions if label in first]


def _linked(text: str, ids: Container[str]) -> Markup:
    """Escape a line, and link each id of a pair in it; a number alone is not an id."""
    link = Markup('<a href="#pair-{0}">{0}</a>')
    return Markup().join(
        link.format(part) if part in ids and part.strip("0123456789._-") else part
        for part in _ID.split(escaped(text))
    )


def _mean_first(row: Sequence[str]) -> tuple[str, ...]:
    """Put the mean, its interval and the measures behind the category."""
    mean, measures = tables.CATEGORY_HEADER.index("mean"), len(tables.CATEGORY_HEADER)
    return (
        row[0],
        *row[mean : mean + 2],
        *row[measures:],
        *row[1:mean],
        *row[mean + 2 : measures],
    )


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
    """Make all texts in lists and mappings readable."""
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict):
        return {readable(str(name)): readable_parts(part) for name, part in value.items()}
    return list(map(readable_parts, value)) if isinstance(value, (list, tuple)) else value


def template_text(name: str) -> str:
    return files("pytest_imgedit.report.templates").joinpath(name).read_text("utf-8")


def one_file(*scripts: str) -> dict[str, str]:
    """Return what a template needs for a page that is one file: the style and script of all pages,
    with further scripts, and what a content security policy calls them.
    """
    style = template_text("page.css")
    script = "".join(map(template_text, ("page.js", *scripts)))
    return {
        "style": style,
        "style_source": _csp_source(style),
        "script": script,
        "script_source": _csp_source(script),
    }


def _csp_source(text: str) -> str:
    """Return the source of a style or script as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _further_measures(results: Results) -> list[tuple[str, Measure]]:
    return [(name, measure) for name, measure in results.measures.items() if name != SCORE]


def _card(item: Item, results: Results, locate: pictures.Locate) -> dict[str, Any]:
    comparison, error = results.comparison, item.error
    before = None if comparison is None else comparison.pairs.get(item.id)
    replies = [reply for verdict in item.verdicts for reply in verdict.replies.values() if reply]
    if error is not None and error.reply is not None:
        replies.append(error.reply)
    greedy = [verdict.greedy for verdict in item.verdicts if verdict.greedy is not None]
    is_expected = bool(greedy) and len(greedy) == len(item.verdicts)
    changes = [edit.change for edit in item.edits if edit.change is not None]
    marks = {
        item.difficulty: bool(item.difficulty),
        "near-copy": any(edit.near_copy for edit in item.edits),
        "reframed": any(edit.reframed for edit in item.edits),
        "leak": any(edit.leaked for edit in item.edits),
        "collapsed": comparison is not None and item.id in comparison.collapsed,
    }
    return {
        "id": item.id,
        "category": item.category,
        "status": item.status,
        "score": item.score,
        "before": before and before.before,
        "difference": before and before.difference,
        "change": min(changes, default=None),
        "near_copy": marks["near-copy"],
        "reframed": marks["reframed"],
        "leaked": marks["leak"],
        "collapsed": marks["collapsed"],
        "instruction": item.instruction,
        "tags": [*item.tags, *filter(marks.get, marks)],
        "aspects": [[name, number(value)] for name, value in item.aspects.items()],
        "values": [item.value(name) for name, _ in _further_measures(results)],
        "error": str(error) if error is not None and item.status != "not_needed" else None,
        "greedy": number(sum(greedy) / len(greedy)) if is_expected else None,
        "replies": replies,
        "images": list(_images(item, before, locate)),
    }


def _images(
    item: Item, before: ComparedPair | None, locate: pictures.Locate
) -> Iterator[dict[str, Any]]:
    names = [("source", item.source)]
    for position, seed in enumerate(item.seeds):
        of_seed = f", seed {seed.seed}" if len(item.seeds) > 1 else ""
        edit = None if seed.edit is None else seed.edit.blob
        names.append((f"edit{of_seed}", _blob(edit)))
        if before is not None and before.edits[position] != edit:
            names.append((f"baseline edit{of_seed}", _blob(before.edits[position])))
    names.append(("reference", item.reference))
    for label, picture in [(label, locate(name)) for label, name in names if name]:
        if picture is not None:
            yield {"label": label, **asdict(picture)}


def _blob(sha256: str | None) -> str | None:
    return None if sha256 is None else f"{sha256[:2]}/{sha256}.png"
