"""The HTML page of `imgedit compare`."""

from collections.abc import Sequence

from pytest_imgedit.core.results import GateResult
from pytest_imgedit.report import html, tables


def render(
    title: str,
    verdict: str,
    gates: Sequence[GateResult],
    shown: Sequence[tables.Table],
    *,
    pairs_url: str = "",
    remarks: Sequence[str] = (),
) -> str:
    """Render the verdict, the gates and the tables of a comparison as one HTML page, with a link to
    the pairs of both runs if there is one. `remarks` say how editors and judges differ,
    and what is not compared.
    """
    template = html.environment().get_template("comparison.html")
    return template.render(
        title=title,
        verdict=verdict,
        gates=gates,
        tables=shown,
        remarks=remarks,
        pairs_url=pairs_url,
        words=tables.WORDS,
        wide_only=html.WIDE_ONLY,
        **html.one_file(),
    )
