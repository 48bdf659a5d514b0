"""Finished edits of different sources that are one and the same image."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_imgedit.core.results import Item
from pytest_imgedit.core.text import first_of

#: Two edits may agree by what was asked for; as few are never most.
_MOST_HONEST = 2


@dataclass(frozen=True)
class Alike:
    """The pairs, by id, whose edits are one image: of `sources` different sources, out of `edits`
    of `all_sources`.
    """

    pairs: Sequence[str]
    sources: int
    edits: int
    all_sources: int

    @property
    def are_most(self) -> bool:
        """Whether they are those of more than half of the sources, and of more than two."""
        return self.sources > max(_MOST_HONEST, self.all_sources / 2)

    def __str__(self) -> str:
        return (
            f"{len(self.pairs)} of {self.edits} finished edits are one and the same image, of "
            f"{self.sources} different sources ({first_of(self.pairs)})"
        )


def largest_alike(edits: Iterable[tuple[str, str, str]]) -> Alike | None:
    """Return the pairs whose edits are one image, that of the most sources; `None` if no image is
    the edit of two sources.

    An edit is the id of its pair, and the digests of source and edit. Edits of one source may be
    alike: their instructions may be, too.
    """
    distinct = list(dict.fromkeys(edits))
    sources: dict[str, set[str]] = {}
    for _, source, edit in distinct:
        sources.setdefault(edit, set()).add(source)
    image = max(sources, key=lambda edit: len(sources[edit]), default="")
    if len(sources.get(image, ())) < 2:
        return None
    pairs = dict.fromkeys(pair for pair, _, edit in distinct if edit == image)
    all_pairs = {pair for pair, _, _ in distinct}
    all_sources = {source for _, source, _ in distinct}
    return Alike(
        list(pairs),
        sources=len(sources[image]),
        edits=len(all_pairs),
        all_sources=len(all_sources),
    )


def alike_edits(items: Iterable[Item]) -> Alike | None:
    """Return the pairs of `largest_alike`, without the edits that are their pair's reference."""
    return largest_alike(
        (item.id, item.cluster, edit.blob)
        for item in items
        for edit in item.edits
        if not edit.leaked
    )
