"""What a further model costs `imgedit duel`: the questions asked with 2, 3, … models of one suite.

python perf/duel_pica.py DIR
python perf/duel_pica.py --tiny

DIR has a suite `pairs.jsonl` and finished images as `edits/MODEL/ID.jpg`, no two of them equal;
`--tiny` makes its own. Models join one by one. The judge is scripted: of two edits it prefers the
one that changes the source more, and it counts what it is asked. It is not tried on controls. Exits
1 if a further model asks anything but its own questions, or a repeated command asks at all.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from harness import evaluate, finish, parser, scratch, table
from PIL import Image

JUDGE = '''
"""A judge that prefers the edit that changes the source more, and counts its questions."""

import json
from pathlib import Path

import numpy as np

from pytest_imgedit import Answer


class Counting:
    def __init__(self, *, device):
        self.log = Path(__file__).with_name("asked.txt")

    def answer(self, questions):
        with self.log.open("a") as file:
            file.write("." * len(questions))
        return [Answer(self.reply(question)) for question in questions]

    def reply(self, question):
        first, second = (self.change(question, name) for name in ("first", "second"))
        better = "A" if first >= second else "B"
        return json.dumps({"reason": "it changes more", "better": better})

    def change(self, question, name):
        size = (64, 64)
        source, edited = (
            np.asarray(question.images[key].convert("RGB").resize(size), float)
            for key in ("source", name)
        )
        return np.abs(source - edited).mean()
'''


def main() -> None:
    described = parser(__doc__)
    described.add_argument("data", type=Path, nargs="?", metavar="DIR")
    options = described.parse_args()
    if options.data is None and not options.tiny:
        described.error("expected DIR, or --tiny")
    with scratch(options) as folder:
        data = make_data(folder / "data") if options.tiny else options.data.resolve()
        place = folder / "place"
        models = sorted(path.name for path in (data / "edits").iterdir())
        pairs = len((data / "pairs.jsonl").read_text("utf-8").splitlines())
        for model in models:
            finish_run(place, data, model)
        rows = [join(place, models[:count]) for count in range(2, len(models) + 1)]
        rows.append(join(place, models))
    own = [2 * pairs * count for count in range(1, len(models))] + [0]
    table(
        (
            "models",
            "pairs of them",
            "duels",
            "asked now",
            "votes in the file",
            "s",
            "own questions",
        ),
        [(*row.values(), count) for row, count in zip(rows, own, strict=True)],
    )
    finish(options, {"pairs": pairs, "models": models, "steps": rows})
    if [row["asked"] for row in rows] != own:
        raise SystemExit("other questions were asked than those of the new model")


def make_data(folder: Path) -> Path:
    """Write a suite of three pairs with edits by seven models, all of noise."""
    generator = np.random.default_rng(1)
    rows = []
    for number in range(3):
        row = {"id": f"p{number}", "category": "noise", "instruction": f"add noise {number}"}
        rows.append(row | {"image": f"source/p{number}.png"})
        places = [folder / "source"] + [folder / "edits" / f"model{model}" for model in range(7)]
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
            pixels = generator.integers(0, 256, (32, 32, 3), np.uint8)
            Image.fromarray(pixels).save(place / f"p{number}.png")
    (folder / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def finish_run(place: Path, data: Path, model: str) -> None:
    """Finish a run of the images of a model, which no judge scores."""
    evaluate(
        place,
        f"--imgedit-suite={data / 'pairs.jsonl'}",
        f"--imgedit-editor=folder:{data / 'edits' / model}",
        "--imgedit-judge=none",
        f"--imgedit-name={model}",
    )


def join(place: Path, models: list[str]) -> dict[str, Any]:
    """Have the judge decide the duels of models; return what that asked, and the seconds."""
    (place / "counting.py").write_text(JUDGE)
    log = place / "asked.txt"
    log.write_text("")
    command = "from pytest_imgedit.cli.main import main; import sys; sys.exit(main())"
    judge = ("--judge=counting:Counting", "--set=judge.controls=false", "--json")
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", command, "duel", *models, *judge],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    document = json.loads(done.stdout)
    file = place / document["votes"]
    return {
        "models": len(models),
        "pairs": len(list(combinations(models, 2))),
        "duels": document["duels"],
        "asked": len(log.read_text()),
        "votes": len(file.read_text("utf-8").splitlines()) - 1,
        "seconds": time.perf_counter() - started,
    }


if __name__ == "__main__":
    main()
