"""`imgedit agreement` on published ratings: 1,611 edits of ImagenHub, 179 sources by 9 editors with
three raters each, and what VIEScore's judges said of them (arXiv 2312.14867).

    python perf/viescore.py FOLDER
    python perf/viescore.py --tiny

FOLDER holds `ratings.csv` (source, editor, rater, semantic_consistency, perceptual_quality) and for
each judge a `judge_NAME.csv` (source, editor, score_0_10). A rating is √(semantic consistency ·
perceptual quality). Each judge gets a run of its own, in which the scores are those of its file.
The images of these runs are plain colors: nothing looks at them, but a source is an image. With
--tiny and no FOLDER, the ratings and one judge are made up.
"""

from __future__ import annotations

import csv
import json
import math
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import evaluate, finish, parser, scratch, table
from PIL import Image

from pytest_imgedit import Answer, Question
from pytest_imgedit.cli.agreement import agree

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, str]


class PublishedScores:
    """Gives the scores of a JSON file, by pair."""

    def __init__(self, device: str, scores: str) -> None:
        self.scores: dict[str, float] = json.loads(Path(scores).read_text("utf-8"))

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return [Answer(score=self.scores[question.pair_id]) for question in questions]


def pair_id(row: Row) -> str:
    return f"{Path(row['source']).stem}.{row['editor']}"


def read_rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_ratings(rows: Sequence[Row], path: Path) -> None:
    """Write the ratings in the form that `imgedit agreement` reads."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "score", "rater"))
        for row in rows:
            product = float(row["semantic_consistency"]) * float(row["perceptual_quality"])
            writer.writerow((pair_id(row), math.sqrt(product), row["rater"]))


def judged_rows(path: Path, rated: set[str]) -> tuple[dict[str, Row], int]:
    """The rows of a judge by pair, and the number of those that are left out: edits without a
    rating, and repetitions.
    """
    rows = read_rows(path)
    by_pair: dict[str, Row] = {}
    for row in rows:
        if pair_id(row) in rated:
            by_pair.setdefault(pair_id(row), row)
    return by_pair, len(rows) - len(by_pair)


def run_judge(folder: Path, rows: dict[str, Row]) -> dict[str, Any]:
    """Write a suite of the judged edits, each editor a category; return the run over it."""
    (folder / "sources").mkdir(parents=True)
    sources = sorted({row["source"] for row in rows.values()})
    for number, source in enumerate(sources):
        color = (number // 256, number % 256, 0)
        Image.new("RGB", (32, 32), color).save(folder / "sources" / f"{Path(source).stem}.png")
    pairs = [
        {
            "id": name,
            "category": row["editor"],
            "image": f"sources/{Path(row['source']).stem}.png",
            "instruction": "as published",
        }
        for name, row in rows.items()
    ]
    (folder / "pairs.json").write_text(json.dumps(pairs))
    scores = {name: float(row["score_0_10"]) for name, row in rows.items()}
    (folder / "scores.json").write_text(json.dumps(scores))
    return evaluate(
        folder,
        "--imgedit-suite=pairs.json",
        "--imgedit-editor=identity",
        "--imgedit-judge=viescore:PublishedScores",
        f"--imgedit-set=judge.scores={folder / 'scores.json'}",
        "--imgedit-gpus=none",
    )


def make_up(folder: Path) -> None:
    """Write ratings of 6 sources by 2 editors, and a judge that knows what raters agree on."""
    draw = random.Random(0)
    ratings, scores = ["source,editor,rater,semantic_consistency,perceptual_quality"], []
    for edit in range(12):
        name, quality = f"{edit // 2}.jpg,editor{edit % 2}", draw.random()
        scores.append(f"{name},{10 * quality}")
        for rater in "123":
            grades = [round(2 * min(1, quality + draw.uniform(0, 0.3))) / 2 for _ in range(2)]
            ratings.append(f"{name},{rater},{grades[0]},{grades[1]}")
    folder.mkdir()
    (folder / "ratings.csv").write_text("\n".join(ratings))
    (folder / "judge_made-up.csv").write_text("\n".join(["source,editor,score_0_10", *scores]))


def main() -> None:
    described = parser(__doc__)
    described.add_argument("folder", type=Path, nargs="?")
    options = described.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    )
    figures: dict[str, Any] = {}
    with scratch(options) as scratch_folder:
        data = options.folder
        if data is None:
            if not options.tiny:
                raise SystemExit("no FOLDER, expected one with ratings.csv and judge_NAME.csv")
            data = scratch_folder / "made-up"
            make_up(data)
        ratings = read_rows(data / "ratings.csv")
        rated = {pair_id(row) for row in ratings}
        write_ratings(ratings, scratch_folder / "people.csv")
        for path in sorted(data.glob("judge_*.csv")):
            rows, left_out = judged_rows(path, rated)
            name = path.stem.removeprefix("judge_")
            store = scratch_folder / name / ".imgedit"
            run_judge(scratch_folder / name, rows)
            figures[name], text, _ = agree("latest", scratch_folder / "people.csv", store)
            print(f"\n{name}: {left_out} rows of {path.name} left out\n{text}", flush=True)
    print_summary(figures)
    finish(options, figures)


def print_summary(figures: dict[str, Any]) -> None:
    """Print the figures of each judge over all its edits, beside those of the raters."""
    rows = []
    for name, document in figures.items():
        judge, raters = document["rows"]["overall"], document["rater_rows"]["overall"]
        rows.append(
            (
                name,
                judge["n"],
                judge["spearman"]["value"],
                judge["pairwise"]["value"],
                judge["within_source"]["value"],
                raters["alpha"]["value"],
                raters["against_others"]["value"],
                f"{raters['least']:.3f} to {raters['most']:.3f}",
            )
        )
    print()
    table(
        (
            "judge",
            "edits",
            "Spearman",
            "pairwise",
            "within a source",
            "Krippendorff's α",
            "rater to others",
            "rater to rater",
        ),
        rows,
    )


if __name__ == "__main__":
    main()
