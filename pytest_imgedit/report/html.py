"""The HTML report: tables, and a gallery that filters and sorts without a network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import Any

import jinja2

from pytest_imgedit.core.results import Item, Results
from pytest_imgedit.core.sanitize import number, printable, readable
from pytest_imgedit.report import charts, rows, tables
from pytest_imgedit.stats.gates import outcome


def render(results: Results, locate: Callable[[str], str | None]) -> str:
    """Render results as one HTML page.

    `locate` gives the URL of a blob of the store, `None` for one that is not there. All text from data and judges is
    escaped, and the page's own script and style are the only ones it allows.
    """
    templates = files("pytest_imgedit.report.templates")
    script = "".join(templates.joinpath(name).read_text("utf-8") for name in ("viewer.js", "report.js"))
    style = templates.joinpath("report.css").read_text("utf-8")
    page = environment().get_template("report.html")
    return page.render(
        run=results.run,
        suite=results.suite,
        editor=results.editor,
        judge=rows.judge_name(results),
        outcome=outcome(results),
        header=rows.CATEGORY_HEADER,
        rows=rows.category_rows(results),
        totals=rows.overall_rows(results),
        remarks=rows.remarks(results),
        provenance=rows.provenance_lines(results),
        chart=charts.category_chart(results),
        histogram=charts.histogram(results),
        axis=charts,
        tables=[(printable(title), *rest) for title, *rest in tables.further_tables(results)],
        timing=rows.timing_line(results),
        worker_header=rows.WORKER_HEADER,
        workers=rows.worker_rows(results),
        gates=[replace(gate, why=printable(gate.why)) for gate in results.gates],
        words=rows.WORDS,
        sections=[(readable(section.title), readable(section.body)) for section in results.sections],
        compared=results.comparison is not None,
        cards=[_card(item, results, locate) for item in results.items],
        script=script,
        style=style,
        script_hash=csp_hash(script),
        style_hash=csp_hash(style),
    )


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


def _card(item: Item, results: Results, locate: Callable[[str], str | None]) -> dict[str, Any]:
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
    images = [{"label": label, "url": url} for label, name in named if name and (url := locate(name))]
    error = item.error
    replies = [verdict.reply for verdict in item.verdicts if verdict.reply]
    if error is not None and error.reply is not None:
        replies.append(error.reply)
    near_copy = any(edit.near_copy for edit in item.edits)
    greedy = [verdict.greedy for verdict in item.verdicts if verdict.greedy is not None]
    is_expected = bool(greedy) and len(greedy) == len(item.verdicts)
    collapsed = comparison is not None and item.id in comparison.collapsed
    marks = (item.difficulty, "near-copy" if near_copy else None, "collapsed" if collapsed else None)
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
