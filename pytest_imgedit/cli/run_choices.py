"""What `imgedit agreement` says of people's choices between the edits of runs."""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from pathlib import Path
from statistics import fmean

from pytest_imgedit.cli.comparable import (
    read_all,
    refuse_others,
    refuse_to_compare,
    refuse_twice,
    voted_systems,
)
from pytest_imgedit.cli.people import agreement_lines, verdict_lines
from pytest_imgedit.core import choices, errors, files
from pytest_imgedit.core.duel_votes import Comparison, DuelVote, by_comparison
from pytest_imgedit.core.judge_card import JudgedBy
from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import counted, printable, shorten
from pytest_imgedit.stats.choices import AskedBy, JudgedChoice, describe_judge, describe_people
from pytest_imgedit.stats.duels import EVEN
from pytest_imgedit.stats.estimates import ALPHA, ROUNDING
from pytest_imgedit.stats.leaderboard import system_names
from pytest_imgedit.store.baselines import Baseline, BaselineItem
from pytest_imgedit.suites.vote_rows import MAX_BYTES
from pytest_imgedit.suites.votes import join_votes, read_votes, stored_votes

#: The most characters of a name that a message shows.
_MOST_SHOWN = 80


class Systems:
    """Runs by the names of their systems; a vote names a system, or the id of its run.

    Raises `UsageError` for a single run, and for two that cannot be compared.
    """

    def __init__(self, references: Sequence[str], out: Path) -> None:
        if len(references) < 2:
            raise errors.UsageError(
                f"{references[0]}: one run, expected all runs that people chose between"
            )
        read = read_all(references, out)
        refuse_twice(references, read)
        for (name, run), (other_name, other) in combinations(zip(references, read, strict=True), 2):
            refuse_to_compare(run, other, f"{name} and {other_name}", only_common=True)
        self.runs: dict[str, Baseline] = dict(zip(system_names(read), read, strict=True))
        self.by_name = voted_systems(read)

    @cached_property
    def items(self) -> dict[tuple[str, str], BaselineItem]:
        """The items of all runs, by system and pair."""
        return {(system, item.id): item for system, run in self.runs.items() for item in run.items}


def has_choices(path: Path) -> bool:
    """Tell whether a file holds choices, and no ratings: its header names a winner. Raises
    `UsageError` for what is no text file.
    """
    text = files.read_utf8(path, MAX_BYTES, "a CSV file")
    header, _, _ = text.partition("\n")
    return "winner" in header.strip().split(",")


def agree_on_choices(
    references: Sequence[str], path: Path, out: Path
) -> tuple[JsonObject, str, int]:
    """Compare what people chose between the edits of runs with what the runs' scores say, and with
    the duels that their judge has decided.

    The exit code is 1 if no choice can be compared. Raises `UsageError` for a vote on another
    system.
    """
    systems = Systems(references, out)
    votes = join_votes([[vote.in_order for vote in read_votes(path)]])
    refuse_others(votes, systems.by_name)
    people = by_comparison(votes, systems.by_name)
    known = {key: votes for key, votes in people.items() if (key[1], key[0]) in systems.items}
    judge = next(iter(systems.runs.values())).judge
    duels = _duels_of(judge.spec, stored_votes(out), systems)
    by_scores = [_by_scores(key, votes, systems) for key, votes in known.items()]
    asked = AskedBy(
        way="scores",
        protocol=judge.protocol,
        variant=judge.variant,
        protocol_sha256=judge.protocol_sha256,
    )
    ways = [describe_judge(by_scores, asked, ALPHA)]
    if duels.keys() & known.keys():
        by_duels = [
            _by_duels(choice, duels.get(key, ()))
            for key, choice in zip(known, by_scores, strict=True)
        ]
        ways.append(describe_judge(by_duels, AskedBy(way="duels"), ALPHA))
    agreed = describe_people(by_scores)
    lines = [
        f"judge {printable(judge.spec)} against {counted(len(votes), 'vote')} on "
        f"{counted(len(known), 'choice')} by {counted(agreed.raters, 'rater')} in {path}",
        *agreement_lines(ways, agreed.ties, agreed.ceiling),
        *verdict_lines(ways),
    ]
    unknown = sorted({key[0] for key in people.keys() - known.keys()})
    if unknown:
        example = printable(shorten(unknown[0], _MOST_SHOWN))
        lines.append(
            f"ids that are voted on but not in the runs: {len(unknown)}, such as {example}"
        )
    document = {
        "choices": len(known),
        "votes": len(votes),
        "raters": agreed.raters,
        "ties": agreed.ties.model_dump(mode="json"),
        "ceiling": agreed.ceiling.model_dump(mode="json"),
        "ways": [way.model_dump(mode="json") for way in ways],
        "unknown": unknown,
    }
    return document, "\n".join(lines), int(not any(_decided(way) for way in ways))


def _duels_of(
    spec: str, votes: Sequence[DuelVote], systems: Systems
) -> dict[Comparison, list[DuelVote]]:
    """Return the votes of a judge by what they compare: those by the protocol and parameters that
    decided most, where there are several.
    """
    of_judge = [vote for vote in votes if vote.judge == spec or vote.judge.startswith(f"{spec} (")]
    compared = by_comparison(of_judge, systems.by_name)
    counts = Counter(vote.judge for votes in compared.values() for vote in votes)
    if len(counts) < 2:
        return compared
    rater = max(counts, key=lambda name: (counts[name], name))
    return by_comparison((vote for vote in of_judge if vote.judge == rater), systems.by_name)


def _decided(way: JudgedBy) -> int:
    """Return how many choices of people the judge answered."""
    return next(iter(way.accuracy.values())).n


def _by_scores(key: Comparison, votes: Sequence[DuelVote], systems: Systems) -> JudgedChoice:
    """Return a choice of people with what the scores of both edits say: the higher one wins."""
    pair, a, b = key
    item = systems.items[a, pair]
    other = systems.items.get((b, pair))
    share = None
    if item.score is not None and other is not None and other.score is not None:
        difference = item.score - other.score
        share = EVEN if abs(difference) < ROUNDING else float(difference > 0)
    return JudgedChoice(
        id=pair,
        cluster=item.cluster,
        category=item.category,
        votes=[choices.Vote(vote.winner, vote.judge) for vote in votes],
        share=share,
    )


def _by_duels(choice: JudgedChoice, votes: Sequence[DuelVote]) -> JudgedChoice:
    """Return a choice of people with what a judge's votes on both edits say."""
    shares = [vote.share for vote in votes]
    firsts = [vote.share if vote.first == "a" else 1 - vote.share for vote in votes if vote.first]
    return JudgedChoice(
        id=choice.id,
        cluster=choice.cluster,
        category=choice.category,
        votes=choice.votes,
        share=fmean(shares) if shares else None,
        first=fmean(firsts) if firsts else None,
    )
