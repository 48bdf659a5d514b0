"""The HTML report: tables, and a gallery that filters and sorts without a network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from pytest_imgedit.core.results import Item, Results
from pytest_imgedit.core.sanitize import number, printable, readable, signed
from pytest_imgedit.report import charts, rows, tables
from pytest_imgedit.report.pictures import Locate
from pytest_imgedit.stats.outcome import WORST_FIRST, Outcome, left_out, mostly_copies, outcome

#: Pairs that the first screen shows.
FIRST_PAIRS = 6
#: Columns that a narrow screen goes without.
WIDE_ONLY = (
    *("scored", "errors", "pending", "std", "median", "min", "max", "before", "now", "p of drop"),
    *("MDE", "AUC"),
    *("device", "load s", "host GiB"),
)
_GATES_IN_ORDER = (*WORST_FIRST, "NOT SELECTED")
#: What may be the id of a pair in a line of text.
_ID = re.compile(r"([A-Za-z0-9._-]+)")


def render(results: Results, locate: Locate) -> str:
    """Render results as one HTML page.

    All text from data and judges is escaped, and the page's own script and style are the only ones
    it allows.
    """
    templates = files("pytest_imgedit.report.templates")
    script = "".join(
        templates.joinpath(name).read_text("utf-8") for name in ("viewer.js", "report.js")
    )
    style = templates.joinpath("report.css").read_text("utf-8")
    page = environment().get_template("report.html")
    found, ids = outcome(results), {item.id for item in results.items}
    cards = [_card(item, results, locate) for item in results.items]
    return page.render(
        run=results.run,
        finished=rows.human_time(results.run.finished),
        suite=results.suite,
        editor=results.editor,
        judge=rows.judge_name(results),
        state=found.state,
        headline=_headline(results, found),
        parts=left_out(results),
        first=_first_pairs(cards, is_compared=results.comparison is not None),
        header=_mean_first(rows.CATEGORY_HEADER),
        rows=list(map(_mean_first, rows.category_rows(results))),
        totals=list(map(_mean_first, rows.overall_rows(results))),
        remarks=rows.remarks(results),
        provenance=rows.provenance_lines(results),
        chart=charts.category_chart(results),
        histogram=charts.histogram(results),
        axis=charts,
        tables=[
            (printable(title), header, body, [_linked(printable(note), ids) for note in notes])
            for title, header, body, notes in tables.further_tables(results)
        ],
        timing=rows.timing_line(results),
        worker_header=rows.WORKER_HEADER,
        workers=rows.worker_rows(results),
        gates=[
            replace(gate, why=_linked(printable(gate.why), ids))
            for gate in sorted(results.gates, key=lambda gate: _GATES_IN_ORDER.index(gate.state))
        ],
        words=rows.WORDS,
        wide_only=WIDE_ONLY,
        sections=[
            (readable(section.title), readable(section.body)) for section in results.sections
        ],
        compared=results.comparison is not None,
        cards=cards,
        script=script,
        style=style,
        script_hash=csp_hash(script),
        style_hash=csp_hash(style),
    )


def _headline(results: Results, found: Outcome) -> str:
    """Say in one line what the run came to: its state and the overall score, beside the baseline's
    if there is one.
    """
    mean = results.overall.macro.mean
    if found.state == "INCOMPLETE" or mean is None:
        return found.line
    row = None if results.comparison is None else results.comparison.rows.get("overall")
    headline = f"{found.state}: overall {mean:.2f}"
    if row is not None and row.difference is not None:
        difference = signed(row.difference).replace("-", "−")
        headline = (
            f"{found.state}: overall {number(row.now)}, was {number(row.before)} ({difference})"
        )
    return "; ".join([headline, *mostly_copies(results)])


def _first_pairs(cards: Sequence[dict[str, Any]], is_compared: bool) -> list[dict[str, Any]]:
    """Return the pairs that fell most, or else those with the lowest scores, with their source, old
    and new edit.
    """
    measure = "difference" if is_compared else "score"
    measured = sorted(
        (card for card in cards if card[measure] is not None), key=lambda card: card[measure]
    )
    fallen = [card for card in measured if not is_compared or card["difference"] < 0]
    captions = {
        "source": "source",
        "baseline edit": "before",
        "edit": "now" if is_compared else "edit",
    }
    return [
        {**card, "images": _first_images(card["images"], captions)} for card in fallen[:FIRST_PAIRS]
    ]


def _first_images(
    images: Sequence[dict[str, str]], captions: Mapping[str, str]
) -> list[dict[str, str]]:
    """Choose the images of the first seed that have captions, in their order."""
    chosen = []
    for label, caption in captions.items():
        match = next((image for image in images if image["label"].split(",")[0] == label), None)
        if match is not None:
            chosen.append({**match, "label": caption})
    return chosen


def _linked(text: str, ids: Container[str]) -> Markup:
    """Escape a text, and make a link of each id of a pair in it; a number alone is taken for
    none.
    """
    link = Markup('<a href="#pair-{0}">{0}</a>')
    parts = _ID.split(text)
    linked = {part for part in parts if part in ids and part.strip("0123456789._-")}
    return Markup().join(link.format(part) if part in linked else part for part in parts)


def _mean_first(row: Sequence[str]) -> tuple[str, ...]:
    """Put the mean and its interval behind the category."""
    place = rows.CATEGORY_HEADER.index("mean")
    return (row[0], *row[place : place + 2], *row[1:place], *row[place + 2 :])


def environment() -> jinja2.Environment:
    """Return what renders the package's templates; texts are escaped."""
    templates = files("pytest_imgedit.report.templates")
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: templates.joinpath(name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def csp_hash(text: str) -> str:
    """Return the source of a style or script as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _card(item: Item, results: Results, locate: Locate) -> dict[str, Any]:
    """Return what the page's script needs to draw one card."""
    comparison = results.comparison
    before = comparison.pairs.get(item.id) if comparison is not None else None
    named = [("source", item.source)]
    for place, seed in enumerate(item.seeds):
        of_seed = "" if len(item.seeds) == 1 else f", seed {seed.seed}"
        named.append((f"edit{of_seed}", None if seed.edit is None else _blob(seed.edit.blob)))
        old = None if before is None else before.edits[place]
        if old and (seed.edit is None or old != seed.edit.blob):
            named.append((f"baseline edit{of_seed}", _blob(old)))
    named.append(("reference", item.reference))
    pictures = [(label, locate(name)) for label, name in named if name]
    images = [
        {"label": label, **asdict(picture)} for label, picture in pictures if picture is not None
    ]
    error = item.error
    replies = [verdict.reply for verdict in item.verdicts if verdict.reply]
    if error is not None and error.reply is not None:
        replies.append(error.reply)
    near_copy = any(edit.near_copy for edit in item.edits)
    greedy = [verdict.greedy for verdict in item.verdicts if verdict.greedy is not None]
    is_expected = bool(greedy) and len(greedy) == len(item.verdicts)
    collapsed = comparison is not None and item.id in comparison.collapsed
    marks = (
        item.difficulty,
        "near-copy" if near_copy else None,
        "collapsed" if collapsed else None,
    )
    tags = [*item.tags, *filter(None, marks)]
    return {
        "id": item.id,
        "category": item.category,
        "status": item.status,
        "score": item.score,
        "before": before and before.before,
        "difference": before and before.difference,
        "near_copy": near_copy,
        "collapsed": collapsed,
        "instruction": readable(item.instruction),
        "tags": [readable(tag) for tag in tags],
        "aspects": [[readable(name), number(value)] for name, value in item.aspects.items()],
        "error": str(error) if error is not None and item.status != "not_needed" else None,
        "greedy": number(sum(greedy) / len(greedy)) if is_expected else None,
        "replies": [readable(reply) for reply in replies],
        "images": images,
    }


def _blob(sha256: str) -> str:
    """Path of an edit below the store's `blobs` folder."""
    return f"{sha256[:2]}/{sha256}.png"
