"""The outputs of `imgedit why`: text for a terminal, Markdown and HTML."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.core.text import number, printable, signed
from pytest_imgedit.report import html, tables, terminal
from pytest_imgedit.report.causes import Cause
from pytest_imgedit.report.markdown import escape, table_lines

#: The most columns of the text.
WIDTH = 80
EFFECTS_HEADER = ("step", "before", "after", "effect")
#: The last step.
NOT_EXPLAINED = "not explained"


@dataclass(frozen=True)
class Step:
    """A step from one score to the other; a score is `None` if it is not known."""

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why two numbers differ: the titles of both sides, what differs, and the steps from the number
    `start` of the first to the number `end` of the second.

    `value` names the numbers. The rest of the way is `unexplained`. `notes` are lines below the
    causes, `effect_notes` those below the steps.
    """

    before: str
    now: str
    causes: Sequence[Cause]
    value: str
    start: float | None
    end: float | None
    steps: Sequence[Step] = ()
    unexplained: float | None = None
    notes: Sequence[str] = ()
    effect_notes: Sequence[str] = ()

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs, the numbers included."""
        return not self.causes and self.start == self.end

    @property
    def verdict(self) -> str:
        """What stands in place of causes if there are none."""
        if self.is_equal:
            return "equal"
        return "" if self.causes else "no cause: nothing that both sides state differs"

    @property
    def moved(self) -> str:
        """Both numbers with their difference, in words."""
        if self.is_equal:
            return f"{self.value}: {number(self.start)} on both sides"
        difference = None
        if self.start is not None and self.end is not None:
            difference = self.end - self.start
        return f"{self.value}: {number(self.start)} → {number(self.end)} ({signed(difference)})"

    @property
    def sides(self) -> list[str]:
        """A line on each side."""
        return [f"A: {self.before}", f"B: {self.now}"]

    @property
    def effects(self) -> tables.Table | None:
        """The steps that have an effect, the last of which is what they do not explain; `None` if
        all is equal.
        """
        if self.is_equal:
            return None
        steps = [step for step in self.steps if step.before != step.after]
        rest = self.unexplained
        if rest is not None and self.end is not None:
            steps.append(Step(NOT_EXPLAINED, self.end - rest, self.end))
        rows = [
            (step.name, number(step.before), number(step.after), _effect(step)) for step in steps
        ]
        return tables.Table(self.moved, EFFECTS_HEADER, rows, list(self.effect_notes))

    @property
    def document(self) -> JsonObject:
        """All of it as plain values."""
        return {
            "a": self.before,
            "b": self.now,
            "equal": self.is_equal,
            "causes": [
                {"cause": cause.line, "consequences": list(cause.consequences)}
                for cause in self.causes
            ],
            "notes": list(self.notes),
            "value": self.value,
            "start": self.start,
            "end": self.end,
            "effects": [vars(step) for step in self.steps],
            "unexplained": self.unexplained,
            "effect_notes": list(self.effect_notes),
        }


def _effect(step: Step) -> str:
    if step.before is None or step.after is None:
        return signed(None)
    return signed(step.after - step.before)


def text(explanation: Explanation) -> str:
    """Render an explanation for a terminal of `WIDTH` columns."""
    lines = [*_wrapped(explanation.verdict)] if explanation.verdict else []
    for cause in explanation.causes:
        lines += _wrapped(cause.line)
        for consequence in cause.consequences:
            lines += _wrapped(consequence, "  ")
    for note in explanation.notes:
        lines += _wrapped(note)
    lines.append("")
    for side in explanation.sides:
        lines += _wrapped(side)
    lines += _wrapped(explanation.moved)
    effects = explanation.effects
    if effects is not None:
        if effects.rows:
            lines += ["", terminal.render_table(effects.header, effects.rows, WIDTH)]
        for note in effects.notes:
            lines += _wrapped(note)
    return "\n".join(lines)


def _wrapped(line: str, indent: str = "") -> Iterator[str]:
    """Yield the lines of a text that is at most `WIDTH` wide, the further ones deeper."""
    yield from textwrap.wrap(
        printable(line), WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    "
    )


def markdown(explanation: Explanation) -> str:
    """Render an explanation as Markdown."""
    lines = ["# Why the numbers differ", ""]
    lines += [f"- {escape(side)}" for side in explanation.sides]
    lines += ["", "## Causes", ""]
    if explanation.verdict:
        lines += [escape(explanation.verdict), ""]
    for cause in explanation.causes:
        lines.append(f"- {escape(cause.line)}")
        lines += [f"  - {escape(consequence)}" for consequence in cause.consequences]
    if explanation.causes:
        lines.append("")
    for note in explanation.notes:
        lines += [escape(note), ""]
    lines += [f"## {escape(explanation.moved)}", ""]
    effects = explanation.effects
    if effects is not None:
        if effects.rows:
            lines += [*table_lines(effects.header, effects.rows), ""]
        for note in effects.notes:
            lines += [escape(note), ""]
    return "\n".join(lines)


def page(explanation: Explanation) -> str:
    """Render an explanation as one HTML page."""
    template = html.environment().get_template("why.html")
    return template.render(
        title="Why the numbers differ",
        explanation=explanation,
        words=tables.WORDS,
        wide_only=(),
        **html.one_file(),
    )
