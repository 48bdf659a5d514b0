"""Replies in the store that would not be taken today: what the plan and `imgedit doctor` say."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core import environments, errors
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import Grammar
from pytest_imgedit.core.results import Variant
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.run.questions import reply_recipe
from pytest_imgedit.run.scorer import Scorer
from pytest_imgedit.run.work import Judgement, Work
from pytest_imgedit.store.journal import Journal, VerdictRecord

#: A stored reply with the grammar by which it is read; `None` for one of another protocol, and for
#: a judge that measures, whose answers have none.
Reply = tuple[VerdictRecord, Grammar | None]


def doubts(replies: Iterable[Reply], variant: Variant) -> Iterator[str]:
    """Yield how many replies of servers lack the reason why they ended, and how many the grammar of
    their protocol does not read; nothing for none.
    """
    unfinished = unread = 0
    for record, grammar in replies:
        unfinished += bool(record.model) and not record.finish_reason
        unread += grammar is not None and not _reads(grammar, record.reply, variant)
    if unfinished:
        yield (
            f"stored replies of a server without the reason why they ended: {unfinished}; a lost "
            "one looks like a whole one, and --imgedit-fresh asks again"
        )
    if unread:
        yield (
            f"stored replies that the grammar of the protocol does not read: {unread}; a run asks "
            "again"
        )


def _reads(grammar: Grammar, reply: str, variant: Variant) -> bool:
    """Tell whether a grammar reads a reply; `compat` takes one that it does not read."""
    if variant == "compat":
        return True
    try:
        grammar.read(reply)
    except errors.ReplyError:
        return False
    return True


def replies_to(scorer: Scorer, works: Iterable[Work]) -> Iterator[Reply]:
    """Yield the newest stored reply to each question about finished edits."""
    if not scorer.store.verdicts.records:  # no question is rendered for an empty store
        return
    for work in works:
        if work.edit is None or work.error is not None:
            continue
        for ask in scorer.asks(Judgement(work)):  # a fresh one, so that no question has its answer
            content = environments.key(reply_recipe(scorer.identity, ask))
            records = scorer.store.verdicts.of_content(content)
            if records:
                yield records[-1], ask.call.grammar if ask.call else None


def doubts_of_store(settings: Settings, pairs: Sequence[EditPair]) -> Iterator[str]:
    """Yield the `doubts` about the newest replies in the store that settings name, as replies to
    the questions of their protocol about pairs; nothing without a store.
    """
    path = Path(settings.run.out, "verdicts.jsonl")
    if not path.exists():
        return
    protocol = load_protocol(settings)
    grammars = {
        environments.key(call.recipe): call.grammar
        for pair in pairs
        for call in protocol.checked_calls(pair)
    }
    records = Journal(path, VerdictRecord, reads_only=True).records.values()
    newest = {record.content: record for record in records}
    replies = [
        (record, grammars.get(environments.key(record.recipe.get("asked") or {})))
        for record in newest.values()
        if record.measured is None
    ]
    yield from doubts(replies, protocol.variant)
