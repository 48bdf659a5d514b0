"""Our statistics on the editing part of Multimodal RewardBench 2 (arXiv 2512.16899): the accuracy
of the sample of judgments that its repository holds, and how far its raters agree.

    python perf/mmrb2.py CLONE
    python perf/mmrb2.py --tiny

CLONE is a clone of facebookresearch/MMRB2 (CC BY-NC 4.0: nothing of it is in this repository). No
picture is read. A judge is asked twice about a pair, the second time with the edits swapped; where
its answers differ, the pair counts half. The published accuracy of the sample is 55.50%. With
--tiny and no CLONE, pairs and judgments are made up.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from harness import finish, parser, scratch, table

from pytest_imgedit.core.choices import Vote
from pytest_imgedit.stats.choices import AskedBy, JudgedChoice, describe_judge, describe_people

if TYPE_CHECKING:
    from pytest_imgedit.core.results import Share

PAIRS = Path("benchmark", "edit_response_only.json")
JUDGMENTS = Path("evaluate", "generate_judgements", "outputs", "sample_task2_edit.json")
#: A vote is 1 to 6, from B much better to A much better; one above this chooses A.
MIDDLE = 3
#: How much of an answer is A's, by the order in which the edits were shown.
SHARES = {"forward": {"A": 1.0, "B": 0.0}, "reverse": {"A": 0.0, "B": 1.0}}


def read(clone: Path) -> tuple[list[JudgedChoice], int]:
    """Return the pairs with the sample's answers, and in how many of them the label is not what
    most raters chose.
    """
    judgments = json.loads((clone / JUDGMENTS).read_text("utf-8"))
    choices = []
    differ = 0
    for row in json.loads((clone / PAIRS).read_text("utf-8"))["pairs"]:
        votes = [
            Vote("a" if vote > MIDDLE else "b", str(place))
            for place, vote in enumerate(row["human_annotations"])
        ]
        choice = JudgedChoice(
            id=row["id"],
            cluster=f"{row['prompt_source']} {row['prompt_metadata']['id']}",
            category=row["prompt_source"],
            votes=votes,
            share=share(judgments.get(row["id"], {})),
        )
        choices.append(choice)
        differ += choice.winner != row["chosen"].lower()
    return choices, differ


def share(judgment: dict[str, list[dict[str, Any]]]) -> float | None:
    """Return how much of the first answer in each order is A's; `None` without an answer."""
    shares = [
        of_order[given["judgement"]]
        for order, of_order in SHARES.items()
        for given in judgment.get(order, [])[:1]
        if given["judgement"] in of_order
    ]
    return fmean(shares) if shares else None


def row(name: str, found: Share) -> tuple[str, int, str]:
    """Return a row of the table: what, of how many, and the percentage with its interval."""
    text = "-" if found.share is None else f"{100 * found.share:.2f}%"
    if found.ci95 is not None:
        text += f" ({100 * found.ci95[0]:.1f} to {100 * found.ci95[1]:.1f})"
    return name, found.n, text


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
        choices, differ = read(clone)
    people = describe_people(choices)
    judge = describe_judge(choices, AskedBy(way="duels"), alpha=0.05)
    rows = [row(f"sample's judge, {name}", found) for name, found in judge.accuracy.items()]
    rows += [
        row(f"sample's judge, raters {name}", found) for name, found in judge.by_margin.items()
    ]
    table(("what", "n", ""), [*rows, row("raters' ceiling", people.ceiling)])
    print(f"\nin {differ} pairs the label is not what most raters chose")
    figures = {"judge": judge.model_dump(mode="json"), "ceiling": people.ceiling.share}
    finish(options, figures)


if __name__ == "__main__":
    main()
