"""The HTML report: tables, and a gallery that filters and sorts without a network."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jinja2

from pytest_imgedit.report import model
from pytest_imgedit.text import readable

if TYPE_CHECKING:
    from collections.abc import Iterable


def render(document: model.Document, blobs: str, sections: Iterable[tuple[str, str]]) -> str:
    """Render a results document as one HTML page.

    `blobs` is the URL of the store's `blobs` folder as seen from the page; images are linked, not embedded.
    All text from data and judges is escaped, and the page's own script and style are the only ones it allows.
    """
    templates = files("pytest_imgedit.report.templates")
    script, style = (templates.joinpath(name).read_text("utf-8") for name in ("report.js", "report.css"))
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(templates.joinpath("report.html").read_text("utf-8")).render(
        run=document["run"],
        suite=document["suite"],
        editor=document["editor"],
        judge=model.judge_name(document),
        verdict=model.verdict(document),
        header=model.CATEGORY_HEADER,
        rows=model.category_rows(document),
        totals=model.overall_rows(document),
        remarks=[model.best_and_worst(document), model.near_copy_line(document)],
        timing=model.timing_line(document),
        worker_header=model.WORKER_HEADER,
        workers=model.worker_rows(document),
        gates=document["gates"],
        sections=[(readable(title), readable(body)) for title, body in sections],
        cards=[_card(item, blobs) for item in document["items"]],
        script=script,
        style=style,
        script_hash=_csp_hash(script),
        style_hash=_csp_hash(style),
    )


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _card(item: dict[str, Any], blobs: str) -> dict[str, Any]:
    """Return what the page's script needs to draw one card."""
    images = [{"label": "source", "url": f"{blobs}/{item['source']}"}] if item["source"] else []
    for seed in item["seeds"]:
        if seed["edit"] is not None:
            label = "edit" if len(item["seeds"]) == 1 else f"edit, seed {seed['seed']}"
            blob = seed["edit"]["blob"]
            images.append({"label": label, "url": f"{blobs}/{blob[:2]}/{blob}.png"})
    if item["reference"]:
        images.append({"label": "reference", "url": f"{blobs}/{item['reference']}"})
    error = item["error"]
    replies = [seed["verdict"]["reply"] for seed in item["seeds"] if seed["verdict"] and seed["verdict"]["reply"]]
    if error and error.get("reply") is not None:
        replies.append(error["reply"])
    near_copy = "near-copy" if any(map(model.is_near_copy, item["seeds"])) else None
    tags = [*item["tags"], *filter(None, (item["difficulty"], near_copy))]
    return {
        "id": item["id"],
        "category": item["category"],
        "status": item["status"],
        "score": item["score"],
        "instruction": readable(item["instruction"]),
        "tags": [readable(tag) for tag in tags],
        "aspects": [[readable(name), model.number(value)] for name, value in item["aspects"].items()],
        "error": error and f"{error['stage']} error ({error['kind']}): {error['message']}",
        "replies": [readable(reply) for reply in replies],
        "images": images,
    }
