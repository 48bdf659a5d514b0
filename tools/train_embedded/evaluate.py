"""Measure the embedded editor and judge on scenes that they were not trained on.

python -m tools.train_embedded.evaluate

Prints, for controls and for the editor at several strengths, the mean score that the judge gives
and the true one (see `tools/train_embedded/grades.py`), how far the edits are from the reference,
and how well the judge ranks.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from diffusers.utils import logging as diffusers_logging
from PIL import Image
from transformers.utils import logging as transformers_logging

from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core.errors import ReplyError
from pytest_imgedit.core.images import decode
from pytest_imgedit.core.requests import EditRequest, Question, job_seed
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.qwen_vl import QwenVLJudge
from pytest_imgedit.kinds.scenes import ScenesEditor
from pytest_imgedit.scenes import WEIGHTS
from pytest_imgedit.scenes.environment import fog
from pytest_imgedit.scenes.referential import between
from pytest_imgedit.suites.base import load_suite
from pytest_imgedit.suites.scenes import TEMPLATES
from tools.train_embedded.edits import KINDS, Drawn, make_edits
from tools.train_embedded.grades import ASPECTS, grade, rank_correlation, score
from tools.train_embedded.records import FIRST_DRAWS, LANGUAGES, Draws, draw
from tools.train_embedded.text import aspects, aspects_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_imgedit.core.pairs import EditPair
    from tools.train_embedded.records import Template

    Pixels = np.ndarray[Any, np.dtype[np.uint8]]

#: Strengths of the editor, strongest first: parameters beside the defaults.
STRENGTHS: dict[str, dict[str, float]] = {
    "scenes, 20 steps": {"num_inference_steps": 20},
    "scenes": {},
    "scenes, 3 steps": {"num_inference_steps": 3},
    "scenes, 2 steps": {"num_inference_steps": 2},
    "scenes, 1 step": {"num_inference_steps": 1},
}
#: Templates left out: they make so few different scenes (720 and 25,920) that training has seen all
#: or many of them.
NOT_HELD_OUT: tuple[Template, ...] = (fog, between)
CHANGED = 10  # levels of 255 from which a pixel counts as changed by the reference


@dataclass(frozen=True)
class Case:
    """A held-out pair with its pictures (128, 128, 3)."""

    pair: EditPair
    number: int

    @property
    def template(self) -> Template:
        """What the scene was made by."""
        templates = TEMPLATES[self.pair.category]
        return templates[self.number % len(templates)]

    @cached_property
    def source(self) -> Pixels:
        return np.asarray(decode(self.pair.source.read()))

    @cached_property
    def reference(self) -> Pixels:
        assert self.pair.reference is not None
        return np.asarray(decode(self.pair.reference.read()))

    @cached_property
    def wrong(self) -> Pixels | None:
        """What the same source becomes when another thing, colour or side is meant; `None` if there
        is none.
        """
        for place in range(FIRST_DRAWS):
            variant = self.template(Draws(f"{self.pair.seed}:{self.pair.id}", frozenset({place})))
            if (
                self.pair.instruction not in variant.instruction
                and (draw(variant, False) == self.source).all()
            ):
                other = draw(variant, True)
                if np.abs(other.astype(int) - self.reference).mean() > 0.5:
                    return other
        return None

    def distance(self, edited: Pixels) -> float:
        """Mean absolute difference to the reference, on [0, 1], where the reference differs from
        the source.
        """
        changed = np.abs(self.source.astype(int) - self.reference).max(axis=-1) > CHANGED
        return float(np.abs(edited.astype(int) - self.reference)[changed].mean() / 255)


@dataclass(frozen=True)
class Graded:
    """One edit with what the judge says (`None` if unreadable) and what is true."""

    case: Case
    edited: Pixels
    judged: float | None
    true: float


class Bench:
    """The judge and the true rule, applied to edits of held-out cases."""

    def __init__(self, cases: list[Case], judge: QwenVLJudge) -> None:
        self.cases, self.judge, self.protocol = cases, judge, aspects()
        assert aspects_of(self.protocol) == ASPECTS

    def grade(self, edits: Iterable[tuple[Case, Pixels]], batch: int = 8) -> list[Graded]:
        """Judge edits in batches."""
        rows = list(edits)
        graded = []
        for start in range(0, len(rows), batch):
            part = rows[start : start + batch]
            pictures = [(case.source, edited, case.reference) for case, edited in part]
            true = score(grade(*(_tensor(list(every)) for every in zip(*pictures, strict=True))))
            for (case, edited), answer, value in zip(
                part, self.judge.answer(self._ask(part)), true, strict=True
            ):
                try:
                    judged = self._read(case, answer.reply)
                except ReplyError:
                    judged = None
                graded.append(Graded(case, edited, judged, float(value)))
        return graded

    def _read(self, case: Case, reply: str) -> float:
        call = self.protocol.calls(case.pair)[0]
        return self.protocol.item(case.pair, {call.name: call.grammar.read(reply)})["score"]

    def _ask(self, part: list[tuple[Case, Pixels]]) -> list[Question]:
        questions = []
        for case, edited in part:
            call = self.protocol.calls(case.pair)[0]
            images = {"source": Image.fromarray(case.source), "edited": Image.fromarray(edited)}
            pair = case.pair
            questions.append(
                Question(pair.id, pair.category, pair.instruction, images, call.system, call.parts)
            )
        return questions


def _tensor(images: list[Pixels]) -> torch.Tensor:
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255


def controls(cases: list[Case]) -> dict[str, list[tuple[Case, Pixels]]]:
    """Return the edits of known quality."""
    generator = np.random.default_rng(0)
    by_category: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_category[case.pair.category].append(case)
    following = {
        case.pair.id: every[(place + 1) % len(every)]
        for every in by_category.values()
        for place, case in enumerate(every)
    }
    grey = np.full((128, 128, 3), 128, dtype=np.uint8)
    return {
        "oracle": [(case, case.reference) for case in cases],
        "identity": [(case, case.source) for case in cases],
        "shuffled": [(case, following[case.pair.id].reference) for case in cases],
        "blank": [(case, grey) for case in cases],
        "noise": [(case, generator.integers(0, 256, grey.shape, dtype=np.uint8)) for case in cases],
        "wrong object": [(case, case.wrong) for case in cases if case.wrong is not None],
    }


def spoiled(cases: list[Case]) -> list[tuple[Case, Pixels]]:
    """Return an edit of every kind of `edits.py` in turn for each case, half-done and damaged ones
    too.
    """
    torch.manual_seed(0)
    source, reference = (
        _tensor([getattr(case, name) for case in cases]) for name in ("source", "reference")
    )
    wrong = _tensor([case.source if case.wrong is None else case.wrong for case in cases])
    drawn = Drawn(source, reference, source.roll(1, 0), wrong)
    made = []
    for number in range(len(KINDS)):
        only = torch.zeros(len(KINDS))
        only[number] = 1
        edits, _ = make_edits(drawn, only)
        levels = (edits * 255).round().byte().permute(0, 2, 3, 1).numpy()
        made += [
            (case, levels[place]) for place, case in enumerate(cases) if (place + number) % 3 == 0
        ]
    return made


def edits_of(
    cases: list[Case], folder: Path, device: str, changes: dict[str, float]
) -> list[tuple[Case, Pixels]]:
    """Edit all cases with the embedded editor as a run does."""
    editor = DiffusersEditor(str(folder), device=device, **{**ScenesEditor.defaults, **changes})
    made = []
    for case in cases:
        pair = case.pair
        seed = job_seed(pair.seed, pair.id)
        request = EditRequest(
            pair.id, pair.category, pair.instruction, Image.fromarray(case.source), seed
        )
        made.append((case, np.asarray(editor.edit(request))))
    return made


def rank(rows: list[Graded]) -> float:
    """Return the rank correlation of judged and true scores (Spearman)."""
    found = [(row.judged, row.true) for row in rows if row.judged is not None]
    return rank_correlation([judged for judged, _ in found], [true for _, true in found])


def mean(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=30, help="pairs in each category")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the suite scenes; training uses none of them"
    )
    parser.add_argument("--language", choices=LANGUAGES, default="en")
    parser.add_argument("--editor", type=Path, default=WEIGHTS / "editor")
    parser.add_argument("--judge", type=Path, default=WEIGHTS / "judge")
    options = parser.parse_args()
    if options.n < 1:
        parser.error(f"--n {options.n}: expected at least 1")
    for folder in (options.editor, options.judge):
        if not folder.is_dir():
            parser.error(f"{folder}: no such folder, expected a trained model")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    diffusers_logging.disable_progress_bar()
    spec = f"scenes:n={options.n},seed={options.seed}"
    pairs = load_suite(SuiteSettings(spec=spec, language=options.language)).pairs
    cases = [Case(pair, number % options.n) for number, pair in enumerate(pairs)]
    cases = [case for case in cases if case.template not in NOT_HELD_OUT]
    bench = Bench(cases, QwenVLJudge(str(options.judge), device=device, dtype="float32"))

    print(f"{len(cases)} held-out pairs ({spec}, {options.language}), on {device}\n")
    print(f"{'edits':18}{'n':>6}{'judged':>8}{'true':>7}{'to reference':>14}{'unreadable':>12}")
    known = {
        name: _print_row(name, bench.grade(edits))
        for name, edits in [*controls(cases).items(), ("all kinds, spoiled", spoiled(cases))]
    }
    strengths = {
        name: _print_row(name, bench.grade(edits_of(cases, options.editor, device, changes)))
        for name, changes in STRENGTHS.items()
    }
    _print_categories(
        [*known.values(), *strengths.values()],
        known["all kinds, spoiled"],
        strengths,
    )


def _print_row(name: str, rows: list[Graded]) -> list[Graded]:
    distance = mean(row.case.distance(row.edited) for row in rows)
    unreadable = sum(row.judged is None for row in rows)
    judged, true = mean(row.judged for row in rows), mean(row.true for row in rows)
    print(
        f"{name:18}{len(rows):6}{judged:8.2f}{true:7.2f}{distance:14.4f}{unreadable:12}", flush=True
    )
    return rows


def _print_categories(
    every: list[list[Graded]], spoiled: list[Graded], strengths: dict[str, list[Graded]]
) -> None:
    """Print how the judge ranks in each category, and how good the editor's edits are there."""
    heads = ("rank correlation", "spoiled only", "editor only", "nearer than source", "score")
    print("\n" + "category".ljust(14) + "".join(f"{head:>{len(head) + 2}}" for head in heads))
    for category in (*TEMPLATES, "overall"):

        def of(groups: list[list[Graded]], category: str = category) -> list[Graded]:
            return [
                row
                for rows in groups
                for row in rows
                if category in (row.case.pair.category, "overall")
            ]

        default, edits = of([strengths["scenes"]]), of([*strengths.values()])
        nearer = mean(
            row.case.distance(row.edited) < row.case.distance(row.case.source) for row in default
        )
        judged = mean(row.judged for row in default)
        ranks = f"{rank(of(every)):18.3f}{rank(of([spoiled])):14.3f}{rank(edits):13.3f}"
        print(f"{category:14}{ranks}{nearer:20.0%}{judged:7.2f}")
    scores = [mean(row.judged for row in rows) for rows in strengths.values()]
    distances = [mean(row.case.distance(row.edited) for row in rows) for rows in strengths.values()]
    order = rank_correlation(scores, distances)
    print(
        "\nmean score of the editor's strengths against their distance to the reference: rank "
        f"correlation {order:.2f}"
    )


if __name__ == "__main__":
    main()
