"""Our statistics on the editing part of Multimodal RewardBench 2 (arXiv 2512.16899): the accuracy
of the sample of judgments that its repository holds, and how far its raters agree.

    python perf/mmrb2.py CLONE
    python perf/mmrb2.py --tiny

CLONE is a clone of facebookresearch/MMRB2 (CC BY-NC 4.0: nothing of it is in this repository). No
picture is read. A judge is asked twice about a pair, the second time with the edits swapped, and a
pair counts as the share of its answers that name the edit that most of three raters chose. The
published accuracy of the sample is 55.50%. The raters' ceiling is the share of votes that equal
those of both other raters; votes whose other two differ do not count, so that it is 100% or 0% by
definition among pairs of one margin, and is not printed there. Intervals are a bootstrap
over prompts, a prompt's pairs drawn together. With --tiny and no CLONE, pairs and judgments are
made up.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from harness import finish, parser, scratch, table

from pytest_imgedit.stats.resampling import Statistic, divided, resample, with_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_imgedit.stats.resampling import Samples

PAIRS = Path("benchmark", "edit_response_only.json")
JUDGMENTS = Path("evaluate", "generate_judgements", "outputs", "sample_task2_edit.json")
#: A vote is 1 to 6, from B much better to A much better; one above this chooses A.
MIDDLE = 3
MARGIN = "raters "
NONE = Statistic(None, None)
SWAPPED = {"A": "B", "B": "A"}


@dataclass(frozen=True)
class Pair:
    """Two edits: what its raters and most of them chose, and the answers of a judge, A or B."""

    prompt: str
    category: str
    chosen: str
    votes: Sequence[str]
    answers: Sequence[str]

    @property
    def margin(self) -> str:
        """How many raters chose the one edit, and how many the other: `2:1`."""
        counts = sorted((self.votes.count("A"), self.votes.count("B")), reverse=True)
        return ":".join(map(str, counts))

    def accuracy(self) -> tuple[float, float]:
        """Return the share of answers that are right, and 1 if there are any, otherwise 0."""
        right = sum(answer == self.chosen for answer in self.answers)
        return right / max(1, len(self.answers)), float(bool(self.answers))

    def agreement(self) -> tuple[float, float]:
        """Return how many votes equal those of all others, and how many have others that agree."""
        equal = comparable = 0
        for place, vote in enumerate(self.votes):
            others = {*self.votes[:place], *self.votes[place + 1 :]}
            equal += others == {vote}
            comparable += len(others) == 1
        return float(equal), float(comparable)


def read(clone: Path) -> list[Pair]:
    """Read the pairs with the sample's answers, as they are without a swap."""
    judgments = json.loads((clone / JUDGMENTS).read_text("utf-8"))
    return [
        Pair(
            prompt=f"{row['prompt_source']} {row['prompt_metadata']['id']}",
            category=row["prompt_source"],
            chosen=row["chosen"],
            votes=["A" if vote > MIDDLE else "B" for vote in row["human_annotations"]],
            answers=_answers(judgments.get(row["id"], {})),
        )
        for row in json.loads((clone / PAIRS).read_text("utf-8"))["pairs"]
    ]


def _answers(judgment: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the first answer of each order, unless it is empty."""
    answers = [given["judgement"] for given in judgment.get("forward", [])[:1]]
    for given in judgment.get("reverse", [])[:1]:
        answers.append(SWAPPED.get(given["judgement"], given["judgement"]))
    return [answer for answer in answers if answer]


def share(
    parts: Sequence[tuple[float, float]], samples: Samples, rows: NDArray[np.bool_]
) -> Statistic:
    """Return the sum of the first of each pair's numbers over that of the second, with interval."""
    dividend, divisor = np.array(parts)[rows].T
    chosen = samples.subset(rows)
    whole = chosen.totals(divisor)
    return with_interval(divided(chosen.totals(dividend), whole, whole > 0))


def groups(pairs: Sequence[Pair]) -> dict[str, NDArray[np.bool_]]:
    """Return which pairs are in each row of the table."""
    masks = {"overall": np.ones(len(pairs), dtype=np.bool_)}
    for label in sorted({pair.category for pair in pairs}):
        masks[label] = np.array([pair.category == label for pair in pairs])
    for label in sorted({pair.margin for pair in pairs}, reverse=True):
        masks[MARGIN + label] = np.array([pair.margin == label for pair in pairs])
    return masks


def percent(statistic: Statistic) -> str:
    if statistic.value is None:
        return "-"
    text = f"{100 * statistic.value:.2f}%"
    if statistic.ci95 is not None:
        text += f" ({100 * statistic.ci95[0]:.1f} to {100 * statistic.ci95[1]:.1f})"
    return text


def make_up(clone: Path) -> None:
    """Write 40 pairs of 20 prompts, and the judgments of a judge that always says A."""
    draw = random.Random(0)
    pairs, judgments = [], {}
    for number in range(40):
        votes = [draw.choice((1, 2, 3, 4, 5, 6)) for _ in range(3)]
        [(chosen, _)] = Counter("A" if vote > MIDDLE else "B" for vote in votes).most_common(1)
        pairs.append(
            {
                "id": str(number),
                "prompt_source": f"source{number // 2 % 2}",
                "prompt_metadata": {"id": number // 2},
                "chosen": chosen,
                "human_annotations": votes,
            }
        )
        judgments[str(number)] = {
            "forward": [{"judgement": "A"}],
            "reverse": [{"judgement": "B"}],
        }
    for place, document in ((PAIRS, {"pairs": pairs}), (JUDGMENTS, judgments)):
        (clone / place).parent.mkdir(parents=True)
        (clone / place).write_text(json.dumps(document))


def main() -> None:
    described = parser(__doc__)
    described.add_argument("clone", type=Path, nargs="?")
    options = described.parse_args()
    with scratch(options) as folder:
        clone = options.clone
        if clone is None:
            if not options.tiny:
                raise SystemExit("no CLONE, expected one of facebookresearch/MMRB2")
            clone = folder / "made-up"
            make_up(clone)
        pairs = read(clone)
    samples = resample([pair.prompt for pair in pairs])
    accuracy = [pair.accuracy() for pair in pairs]
    agreement = [pair.agreement() for pair in pairs]
    figures: dict[str, Any] = {"judge": {}, "raters": {}}
    rows = []
    for label, mask in groups(pairs).items():
        judge = share(accuracy, samples, mask)
        raters = NONE if label.startswith(MARGIN) else share(agreement, samples, mask)
        figures["judge"][label], figures["raters"][label] = judge.value, raters.value
        comparable = int(sum(whole for _, whole in np.array(agreement)[mask]))
        rows.append((label, int(mask.sum()), percent(judge), percent(raters), comparable))
    table(("pairs", "n", "sample's judge", "raters' ceiling", "votes"), rows)
    differ = sum(max(set(pair.votes), key=list(pair.votes).count) != pair.chosen for pair in pairs)
    print(
        f"\n{samples.clusters} prompts; in {differ} pairs the label is not what most raters chose"
    )
    finish(options, figures)


if __name__ == "__main__":
    main()
