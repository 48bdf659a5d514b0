"""OmniContext (arXiv 2506.18871): two calls that show every source, and means of tasks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import ClassVar

from pytest_imgedit.core import errors, results
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import Grammar
from pytest_imgedit.core.requests import Preparation
from pytest_imgedit.protocols import omnicontext_rows
from pytest_imgedit.protocols.protocol import Call, Parts, Protocol, Replies, Row, mean_row

#: How well the instruction is followed, and how well the subjects of the sources are kept.
GRADES = ("PF", "SC")
#: How often the authors' script asks each question.
ATTEMPTS = 3
#: In what the authors' script shows sources: at most 1024² pixels, sides multiples of 16.
_SENT = Preparation(codec="jpeg", source_pixels=1024 * 1024, source_multiple=16)
_RULE = "_prompts_0shot_in_context_generation_rule"
_CONTEXT = "_context_no_delimit"


class OmniContext(Protocol):
    """The protocol of OmniContext, as in the authors' `test_omnicontext_score.py`; grades are from
    0 to 10, and the score is √(PF · SC).

    Under `strict` the first reply to each question that can be read counts. Under `compat` each
    question is asked `ATTEMPTS` times, as the authors' loop does, and the last reply that can be
    read counts; where there is none, that loop draws a number, and here it is an error.

    The authors' file has a text about PF in tasks with a scene, too. Their script never uses it.
    """

    name = "omnicontext"
    prompt_files = ("omnicontext/prompt_generator.py", "prompt_generator.py")
    pins: ClassVar[Mapping[str, str]] = {
        _CONTEXT: "f5f29d7bd929d5d6f6061f85852cbeb9aa4c1db5c1444e5212f234ab56e724f8",
        f"{_RULE}_PF_Single_and_Multiple": (
            "9b3571999f30b7ec9472d50b48c1fb120a481ee9d75030d689c1914d2595350a"
        ),
        f"{_RULE}_SC_Single_and_Multiple": (
            "7e98f2c65fde7ecced8aefb93c404ec0bc160aaeef9798d356df3395acba6a6c"
        ),
        f"{_RULE}_SC_Scene": "aaf10ea6a4a1b3248bc1f411006b179becf583a9eb65d327c0c7156dbc3a1706",
    }

    @property
    def attempts(self) -> int:
        return ATTEMPTS if self.variant == "compat" else 1

    @property
    def measures(self) -> Mapping[str, results.Measure]:
        return dict.fromkeys(GRADES, results.Measure(is_main=True))

    @property
    def published(self) -> tuple[results.PublishedRow, ...]:
        return omnicontext_rows.PUBLISHED

    def calls(self, pair: EditPair) -> Sequence[Call]:
        """Return a call for each grade, in each attempt."""
        has_scene = "scene" in (pair.own_category or pair.category)
        names = [name for name in pair.images if name != "reference"]
        shown: Parts = tuple(("image", name) for name in (*names, "edited"))
        calls = []
        for grade in GRADES:
            kind = "Scene" if has_scene and grade == "SC" else "Single_and_Multiple"
            text = self.prompts[_CONTEXT] + self.prompts[f"{_RULE}_{grade}_{kind}"]
            text = text.replace("<instruction>", pair.instruction)
            calls.append(
                Call(
                    grade,
                    (("text", text), *shown),
                    Grammar("json", (grade,), labels=("score",), compat="omnicontext"),
                    preparation=_SENT,
                    max_new_tokens=1400,
                )
            )
        return [
            replace(call, name=_name_of(call.name, attempt), attempt=attempt)
            for attempt in range(1, self.attempts + 1)
            for call in calls
        ]

    def item(self, pair: EditPair, replies: Replies) -> Mapping[str, float]:
        """Return both grades and the score.

        Raises `ReplyError` if no reply to one of the questions counts.
        """
        grades = dict(self._counted(replies))
        for grade in GRADES:
            if grade not in grades:
                raise errors.ReplyError(
                    f"no reply about {grade} can be read; the authors' script draws a number here"
                )
        return {**grades, "score": math.sqrt(grades["PF"] * grades["SC"])}

    def _counted(self, replies: Replies) -> Iterator[tuple[str, float]]:
        """Yield the grades that count in the order of the attempts, of which the last one of a name
        stands. The authors' loop leaves an attempt at the first reply that it cannot read, so that
        a grade of SC counts only beside one of PF.
        """
        for attempt in range(1, self.attempts + 1):
            for grade in GRADES:
                read = replies.get(_name_of(grade, attempt), {})
                if grade not in read:
                    break
                yield grade, read[grade]

    def tables(self, items: Sequence[results.Item]) -> Sequence[Row]:
        """Return the mean of the tasks' means, and the mean of each task; those of PF and SC are
        details.
        """
        rows = []
        for measure in ("score", *GRADES):
            mark = "" if measure == "score" else f" {measure}"
            of_all = mean_row(f"Average{mark}", items, [measure], group=_task)
            rows.append(of_all)
            for task in dict.fromkeys(map(_task, items)):
                members = [item for item in items if _task(item) == task]
                row = mean_row(f"{task}{mark}", members, [measure])
                rows.append(replace(row, is_detail=bool(mark)))
        return rows


_task = attrgetter("category")


def _name_of(grade: str, attempt: int) -> str:
    """Return the name of the call for a grade in an attempt."""
    return grade if attempt == 1 else f"{grade}-{attempt}"
