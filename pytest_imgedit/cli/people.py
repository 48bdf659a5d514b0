"""What `imgedit qualify --people` prints of a judge that is measured on people's choices."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.choices import Choices
from pytest_imgedit.core.judge_card import JudgeCard, JudgedBy
from pytest_imgedit.core.results import ItemError, Share
from pytest_imgedit.core.text import counted, percent, percent_interval
from pytest_imgedit.report import terminal
from pytest_imgedit.run.people import MeasuredJudge, PeopleSuite, measure_judge
from pytest_imgedit.run.session import Session
from pytest_imgedit.store.judge_cards import keep_card
from pytest_imgedit.suites.choices import read_choices


def measure(settings: Settings, spec: str) -> tuple[MeasuredJudge, Path]:
    """Measure the judge of settings on the choices that a spec names; return it with the path of
    its card in the store.
    """
    choices: Choices = read_choices(spec)
    session = Session(settings, Path(), PeopleSuite(choices))
    with closing(session):
        measured = measure_judge(session, choices, sys.stderr)
        path = keep_card(session.store.folder, measured.card)
    return measured, path


def card_lines(card: JudgeCard, path: Path) -> Iterator[str]:
    """Yield the table of a card, how people agree, what the judge's ties and its order are, and
    the verdict on each way of asking.
    """
    yield (
        f"{counted(card.choices, 'choice')} of {card.people}, of {counted(card.sources, 'source')} "
        f"by {counted(card.raters, 'rater')}"
    )
    yield from agreement_lines(card.ways, card.ties, card.ceiling)
    yield f"card {path}"
    yield from verdict_lines(card.ways)


def agreement_lines(ways: Sequence[JudgedBy], ties: Share, ceiling: Share) -> Iterator[str]:
    """Yield the table of how a judge agrees with people in each way of asking, and what ties,
    order and missing answers do to it.
    """
    yield _table(ways)
    yield f"people tie in {_share(ties)} of {ties.n:,} pairs, which are left out"
    yield from _ceiling(ways, ceiling)
    for way in ways:
        yield (
            f"by {way.way}: the judge ties {_share(way.ties)} of {way.ties.n:,} pairs; a tie in a "
            "decided pair counts half"
        )
        if way.first is not None and way.first.n:
            yield f"by {way.way}: {_share(way.first)} of its votes are for the edit shown first"
        if way.errors:
            yield f"by {way.way}: {counted(way.errors, 'pair')} without an answer"


def verdict_lines(ways: Sequence[JudgedBy]) -> Iterator[str]:
    """Yield the verdict on each way of asking."""
    for way in ways:
        yield f"{way.state}: by {way.way}, {way.why}"


def failed_lines(failed: Sequence[tuple[str, ItemError]]) -> Iterator[str]:
    """Yield a line for each kind of error of edits that have no score, with its first one."""
    counts = Counter(error.kind for _, error in failed)
    for kind, count in counts.most_common():
        place, error = next(found for found in failed if found[1].kind == kind)
        yield f"{counted(count, 'edit')} without a score, {kind}: {place}: {error.message}"


def _table(ways: Sequence[JudgedBy]) -> str:
    """Render the agreement by category and by the margin of people, with two columns a way."""
    header = ["choices"]
    for way in ways:
        header += ["pairs", f"by {way.way}"]
    groups = dict.fromkeys(name for way in ways for name in way.accuracy)
    margins = dict.fromkeys(name for way in ways for name in way.by_margin)
    rows = [_row(name, [way.accuracy.get(name) for way in ways]) for name in groups]
    rows += [_row(name, [way.by_margin.get(name) for way in ways]) for name in margins]
    return terminal.render_table(header, rows)


def _row(name: str, shares: Sequence[Share | None]) -> tuple[str, ...]:
    row = [name]
    for share in shares:
        row += ["0", "–"] if share is None else [f"{share.n:,}", _share(share)]
    return tuple(row)


def _ceiling(ways: Sequence[JudgedBy], ceiling: Share) -> Iterator[str]:
    """Yield how one rater agrees with the others, and the judge with the same others."""
    if not ceiling.n:
        return
    line = (
        f"ceiling: a rater agrees with the majority of the others in {_share(ceiling)} of "
        f"{ceiling.n:,} votes; the judge with the same others"
    )
    judged = [f"by {way.way} in {_share(way.against_others)}" for way in ways]
    yield f"{line} {', '.join(judged)}"


def _share(share: Share) -> str:
    return f"{percent(share.share)}{percent_interval(share.ci95)}"
