"""Cards of judges in a store: `people/JUDGE-KEY.json`, where JUDGE is the digest of the judge's
identity, and KEY stands for the choices and the protocols.
"""

import hashlib
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from pytest_imgedit.core import errors, files, strict_json
from pytest_imgedit.core.judge_card import JudgeCard
from pytest_imgedit.core.measures import OVERALL
from pytest_imgedit.core.results import PeopleShare

_FOLDER = "people"
#: The most bytes of a card.
_MAX_BYTES = 2**20
#: Hex digits of a key.
_KEY_LENGTH = 12


def card_path(store: Path, card: JudgeCard) -> Path:
    """Return the path that a card has in a store; a later card of the same judge, choices and
    protocols replaces it.
    """
    asked = [(way.way, way.protocol_sha256) for way in card.ways]
    key = hashlib.sha256(repr((card.people, card.sha256, asked)).encode()).hexdigest()[:_KEY_LENGTH]
    return store / _FOLDER / f"{card.judge}-{key}.json"


def keep_card(store: Path, card: JudgeCard) -> Path:
    """Write a card into a store, and return its path; raise `StoreError` if that fails."""
    path = card_path(store, card)
    try:
        path.parent.mkdir(exist_ok=True)
        files.write_json(path, card.model_dump(mode="json"))
    except OSError as error:
        raise errors.StoreError(files.why_not_stored(path, error)) from error
    return path


def read_card(path: Path) -> JudgeCard:
    """Read a card; raise `UsageError`, which names the file, for anything else."""
    document = files.read_json(path, _MAX_BYTES, "the card of a judge", strict_json.loads)
    try:
        return JudgeCard.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise errors.UsageError(
            f"{path}: {place}: {first['msg']}, expected the card of a judge"
        ) from None


def cards_of(store: Path, judge: str) -> list[JudgeCard]:
    """Return the cards of a judge by the digest of its identity, oldest first, without damaged
    ones.
    """
    cards = []
    for path in sorted((store / _FOLDER).glob(f"{judge}-*.json"), key=_changed):
        with suppress(errors.UsageError):
            cards.append(read_card(path))
    return cards


def people_shares(store: Path, judge: str, protocol_sha256: str | None) -> tuple[PeopleShare, ...]:
    """Return how the scores of a judge agree with people, asked by a protocol or measured: by the
    newest card of each set of choices that has any.
    """
    shares: dict[str, PeopleShare] = {}
    for card in cards_of(store, judge):
        for way in card.ways:
            is_of_run = way.protocol_sha256 in (None, protocol_sha256)
            if way.way == "scores" and is_of_run:
                share = way.accuracy[OVERALL]
                if not share.n:
                    continue
                shares[card.people] = PeopleShare(people=card.people, **share.model_dump())
    return tuple(shares.values())


def _changed(path: Path) -> tuple[int, str]:
    return path.lstat().st_mtime_ns, path.name
