"""A hook of mkdocs: links from a page to files outside `docs/` lead to the repository."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

_LINK = re.compile(r"\]\((?P<path>\.\./[\w./-]+)(?P<anchor>#[\w-]+)?\)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Replace each path that leaves `docs/` by its address in the repository."""
    folder = posixpath.dirname(page.file.src_uri)

    def replaced(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link["path"]))
        if not path.startswith("../"):
            return link[0]
        address = f"{config.extra['repository']}/blob/main/{path.removeprefix('../')}"
        return f"]({address}{link['anchor'] or ''})"

    return _LINK.sub(replaced, markdown)
