"""The benchmark: one item for each pair of the suite, over results that are finished when it
runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_imgedit import ItemResult


def test_image_edit(edit_result: ItemResult) -> None:
    """The pair was edited and judged, and reached the suite's `min_score` if it sets one."""
    edit_result.check()
