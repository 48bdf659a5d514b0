"""The HTML report: tables, and a gallery that filters and sorts without a network."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jinja2

from pytest_imgedit.report import charts, model, tables
from pytest_imgedit.text import printable, readable

if TYPE_CHECKING:
    from collections.abc import Callable


def render(document: model.Document, locate: Callable[[str], str | None]) -> str:
    """Render a results document as one HTML page.

    `locate` gives the URL of a blob of the store, `None` for one that is not there. All text from data and judges is
    escaped, and the page's own script and style are the only ones it allows.
    """
    templates = files("pytest_imgedit.report.templates")
    script = "".join(templates.joinpath(name).read_text("utf-8") for name in ("viewer.js", "report.js"))
    style = templates.joinpath("report.css").read_text("utf-8")
    return (
        environment()
        .get_template("report.html")
        .render(
            run=document["run"],
            suite=document["suite"],
            editor=document["editor"],
            judge=model.judge_name(document),
            verdict=model.verdict(document),
            header=model.CATEGORY_HEADER,
            rows=model.category_rows(document),
            totals=model.overall_rows(document),
            remarks=model.remarks(document),
            provenance=model.provenance_lines(document),
            chart=charts.category_chart(document),
            histogram=charts.histogram(document),
            axis=charts,
            tables=[(printable(title), *rest) for title, *rest in tables.further_tables(document)],
            timing=model.timing_line(document),
            worker_header=model.WORKER_HEADER,
            workers=model.worker_rows(document),
            gates=[{**gate, "why": printable(gate["why"])} for gate in document["gates"]],
            words=model.WORDS,
            sections=[(readable(section["title"]), readable(section["body"])) for section in document["sections"]],
            compared="comparison" in document,
            cards=[_card(item, document, locate) for item in document["items"]],
            script=script,
            style=style,
            script_hash=csp_hash(script),
            style_hash=csp_hash(style),
        )
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


def _card(item: dict[str, Any], document: model.Document, locate: Callable[[str], str | None]) -> dict[str, Any]:
    """Return what the page's script needs to draw one card."""
    before = document.get("comparison", {"pairs": {}})["pairs"].get(item["id"])
    named = [("source", item["source"])]
    for place, seed in enumerate(item["seeds"]):
        of_seed = "" if len(item["seeds"]) == 1 else f", seed {seed['seed']}"
        named.append((f"edit{of_seed}", seed["edit"] and _blob(seed["edit"]["blob"])))
        old = before and before["edits"][place]
        if old and (seed["edit"] is None or old != seed["edit"]["blob"]):
            named.append((f"baseline edit{of_seed}", _blob(old)))
    named.append(("reference", item["reference"]))
    images = [{"label": label, "url": url} for label, name in named if name and (url := locate(name))]
    error = item["error"]
    replies = [seed["verdict"]["reply"] for seed in item["seeds"] if seed["verdict"] and seed["verdict"]["reply"]]
    if error and error.get("reply") is not None:
        replies.append(error["reply"])
    near_copy = any(map(model.is_near_copy, item["seeds"]))
    greedy = [seed["verdict"]["greedy"] for seed in item["seeds"] if seed["verdict"]]
    collapsed = item["id"] in document.get("comparison", {}).get("collapsed", ())
    marks = (item["difficulty"], "near-copy" if near_copy else None, "collapsed" if collapsed else None)
    tags = [*item["tags"], *filter(None, marks)]
    return {
        "id": item["id"],
        "category": item["category"],
        "status": item["status"],
        "score": item["score"],
        "before": before and before["before"],
        "difference": before and before["difference"],
        "near_copy": near_copy,
        "collapsed": collapsed,
        "instruction": readable(item["instruction"]),
        "tags": [readable(tag) for tag in tags],
        "aspects": [[readable(name), model.number(value)] for name, value in item["aspects"].items()],
        "error": f"{error['stage']} error ({error['kind']}): {error['message']}"
        if error and item["status"] != "not_needed"
        else None,
        "greedy": None if None in greedy or not greedy else model.number(sum(greedy) / len(greedy)),
        "replies": [readable(reply) for reply in replies],
        "images": images,
    }


def _blob(sha256: str) -> str:
    """Path of an edit below the store's `blobs` folder."""
    return f"{sha256[:2]}/{sha256}.png"
