"""Compare what a benchmark's own code makes of replies with what `compat` makes of them.

    python perf/upstream_scorers.py gedit CLONE_OF_STEP1X_EDIT
    python perf/upstream_scorers.py imgedit CLONE_OF_IMGEDIT
    python perf/upstream_scorers.py kris CLONE_OF_KRIS_BENCH
    python perf/upstream_scorers.py omnicontext CLONE_OF_OMNIGEN2
    python perf/upstream_scorers.py risebench CLONE_OF_RISEBENCH

Two thousand replies are drawn for each grammar from a language of odd replies: shapes of a number,
places for it, and what stands around both. The functions that read replies are taken out of the
clone, which needs no package. Each reply on which the two differ must be of a form that `FORMS`
names, with its place in the clone and its line on the suite's page; else the script fails.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import ReplyError
from pytest_imgedit.core.images import Base64Image
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import Grammar
from pytest_imgedit.core.results import Variant
from pytest_imgedit.protocols.kris import grammar_of
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.protocols.omnicontext import OmniContext
from pytest_imgedit.protocols.prompts import Prompts
from pytest_imgedit.protocols.risebench import RiseBench
from pytest_imgedit.protocols.toml_protocol import TomlProtocol

PAGES = Path(__file__).parent.parent / "docs" / "suites"
COUNT = 2000
VARIANTS: tuple[Variant, ...] = ("strict", "compat")
#: The numbers that count of a reply, by name; none where it cannot be read.
Read = Mapping[str, float]


class Form(NamedTuple):
    """Replies on which `compat` differs from a script on purpose: the place in the clone, a reply,
    what the script makes of it, and a part of the line about it in docs/suites.
    """

    place: str
    reply: str
    theirs: str
    line: str


FORMS: dict[str, dict[str, Form]] = {
    "gedit": {
        "beyond the scale": Form(
            "viescore/utils.py:222",
            '{"score": [15, 3]}',
            "3, the lowest of both",
            "Scores beyond 0 to 10 are taken",
        ),
        "repaired": Form(
            "viescore/utils.py:227",
            "{score: 7, reasoning: fine}",
            "7",
            "An object without quotation marks that holds one score is repaired",
        ),
    },
    "imgedit": {
        "beyond the scale": Form(
            "Basic/step1_get_avgscore.py:10",
            "A: 9\nB: 1\nC: 2",
            "the mean, 4",
            "A number beyond 1 to 5 counts in the mean",
        ),
    },
    "kris": {
        "beyond the scale": Form(
            "metrics_common.py:69",
            '{"consistency_score": 9}',
            "9",
            "Numbers beyond 1 to 5 in an object are taken",
        ),
    },
    "omnicontext": {
        "beyond the scale": Form(
            "json_util.py:193",
            '{"score": 15, "reasoning": "x"}',
            "15",
            "Scores beyond 0 to 10 are taken",
        ),
        "repaired": Form(
            "json_util.py:197",
            '{"score" : 7, reasoning: fine}',
            "7",
            "An object without quotation marks is repaired",
        ),
        "ends the script": Form(
            "test_omnicontext_score.py:54",
            '{"score": "7", "reasoning": "x"}',
            "an exception, if it is the last reply that can be parsed",
            "An object without a score or its reasoning",
        ),
    },
    "risebench": {
        "beyond the scale": Form(
            "gpt_eval.py:264", "Final Score: 9", "9", "Numbers beyond the scale are taken"
        ),
        "several numbers": Form(
            "gpt_eval.py:266",
            "Final Score: 4\n\n1. The sky is kept.",
            "4 and 1, and the second shifts the grades after it",
            "Several numbers after `Final Score` are all taken",
        ),
    },
}

#: How a number is written: `<n>` is it, `<w>` the same in full width, `<m>` another one.
SHAPES = (
    "<n>",
    "**<n>**",
    "`<n>`",
    '"<n>"',
    "[<n>]",
    "<n>.0",
    "<n>.5",
    '"<n>.5"',
    "<n>/5",
    "<n> / 5",
    '"<n>/5"',
    "<n>/10",
    "<n> out of 5",
    "<n> (good)",
    "<n> — all good",
    "<n>. It is right.",
    "<n>。",
    "<n>stars",
    "<n>%",
    "<w>",
    '"<w>"',
    "②",
    "<n>, <m>",
    "<n> <m>",
    "<n>-<m>",
    "<n> or <m>",
    "<n>\n<m>",
    "<n>\n\n1. because",
    "-<n>",
    "+<n>",
    "~<n>",
    "0<n>",
    "0",
    "9",
    "15",
    "4<n>0",
    "1e0",
    "X",
    "null",
    "true",
    "NaN",
    "",
)
#: What stands around: `<>` is the reply, `<half>` its beginning, `<other>` another one.
AROUND = (
    "<>",
    "```json\n<>\n```",
    "<b><></b>",
    "<answer><></answer>",
    "**<>**",
    "> <>",
    "- <>",
    "<think>Two dogs, maybe 3 of 5.</think>\n<>",
    "<think><other></think>\n<>",
    "<other></think><>",
    "<think><>",
    "编辑后的图像有 2 个人。\n<>",
    "图里有2个人。<>",
    "Die Bearbeitung zeigt 3 Hunde {gut}.\n<>\nFertig: 5",
    "I will give a Final Score for the edit.\n<>",
    'As asked, {"score": [a, b]}: <>',
    "<>\n<>",
    "<>\n<other>",
    "<>\n\nOn second thought:\n\n<other>",
    "<other> <>",
    "<half>",
    "I'm sorry, but I can't assist with grading the 2 people in this image.",
    "抱歉，我无法评价这张图片。",
    "",
    "I would give <n> out of 5.",
    "<n>",
    " <w> ",
    "<n>/5",
    "Overall <n> / 5, though [<n>, <m>] is there.",
    "[<n>, <m>]",
    "[<n>,<m>, 3]",
)


def functions_of(path: Path, *names: str, **values: Any) -> SimpleNamespace:
    """Take functions, classes and constants out of a module, without running the rest of it."""
    tree = ast.parse(path.read_text("utf-8"))
    kept: list[ast.stmt] = [
        node
        for node in tree.body
        if (isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names)
        or (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id in names
        )
    ]
    space: dict[str, Any] = {
        "re": re,
        "json": json,
        "ast": ast,
        "random": random,
        "logging": SimpleNamespace(debug=len),
        "print": lambda *_, **__: None,
        **values,
    }
    exec(compile(ast.Module(kept, []), str(path), "exec"), space)
    return SimpleNamespace(**space)


class Benchmark:
    """A grammar, and the function of a clone that reads the same replies."""

    #: The suite.
    name: ClassVar[str]
    #: How a reply holds numbers: `<1>` is in the shape that is drawn, `<2>` and `<3>` are plain.
    places: ClassVar[tuple[str, ...]]
    grammar: Grammar

    def theirs(self, reply: str) -> Read:
        """Return what the script takes; it raises what the script raises."""
        raise NotImplementedError

    def ours(self, reply: str) -> Read:
        return self.grammar.read(reply, "compat")

    def form(self, reply: str, theirs: Read, ours: Read) -> str | None:
        """Name the form of a reply on which the two differ; `None` for one that should be equal."""
        kept = {name: value for name, value in theirs.items() if self.grammar.holds(value)}
        return "beyond the scale" if kept != theirs and kept == ours else None


def toml_protocol(name: str) -> TomlProtocol:
    settings = Settings.model_validate({"judge": {"protocol": name, "variant": "compat"}})
    protocol = load_protocol(settings)
    assert isinstance(protocol, TomlProtocol)
    return protocol


class Gedit(Benchmark):
    """SC or PQ: two numbers in a list, of which the lowest counts."""

    name = "gedit"
    places = (
        '{"score": [<1>, <2>], "reasoning": "shadow: missing"}',
        '{"reasoning": "fine", "score": [<2>, <1>]}',
        '{\n "score" : [\n<1>,\n<2>]\n}',
        '{"score": <1>, "reasoning": "fine"}',
        '{"score": [<1>], "reasoning": "fine"}',
        '{"score": [<1>, <2>, <3>]}',
        '{"score": [[<1>], [<2>]]}',
        '{"score": {"a": <1>, "b": <2>}}',
        '{"score": []}',
        "{'score': [<1>, <2>], 'reasoning': 'fine'}",
        "{score: [<1>, <2>], reasoning: fine}",
        "{score: <1>, reasoning: fine}",
        '{"score": [<1>, <2>], "reasoning": "it says "STOP" there"}',
        '{"score": [<1>, <2>], "reasoning": "two\nlines"}',
        '{"score": [<1>, <2>],}',
        '{"Score": [<1>, <2>]}',
        '{"score1": <1>, "score2": <2>}',
        '{"score": [<3>, <3>], "score": [<1>, <2>]}',
        '[{"score": [<1>, <2>]}]',
        '||V^=^V||{"score": [<1>, <2>]}||V^=^V||',
        "||V^=^V||[<1>, <2>]||V^=^V||",
        "[<1>, <2>]",
        "[<1>,<2>]",
        "[<1>,  <2>]",
        "score: [<1>, <2>]",
        "**score**: <1>, <2>",
    )

    def __init__(self, clone: Path) -> None:
        names = ("mllm_output_to_dict", "verify", "is_int_between_0_and_10", "fix_json")
        self.code = functions_of(next(clone.rglob("viescore/utils.py")), *names)
        self.grammar = toml_protocol("gedit").definition.calls[0].reply.grammar("")

    def _scores(self, reply: str) -> list[Any]:
        read = self.code.mllm_output_to_dict(reply)
        return [] if read is False else list(read["score"])

    def theirs(self, reply: str) -> Read:
        scores = self._scores(reply)
        if not scores:  # asked once more; then a random number
            return {}
        lowest = min(scores)
        math.sqrt(lowest)  # raises for a text, as the script does
        return {"lowest": float(lowest)}

    def ours(self, reply: str) -> Read:
        numbers = self.grammar.read(reply, "compat")
        if len(numbers) < 2:
            return {}
        return {"lowest": min(numbers.values())}

    def form(self, reply: str, theirs: Read, ours: Read) -> str | None:
        if ours:
            return None
        if not all(self.grammar.holds(score) for score in self._scores(reply)):
            return "beyond the scale"
        return "repaired" if re.search(r"[{,]\s*\w+:", reply) else None


class ImgEdit(Benchmark):
    """Three lines; the value is the rounded mean."""

    name = "imgedit"
    places = (
        "Brief reasoning: fine\nPrompt Compliance: <1>\nVisual Naturalness: <2>\n"
        "Physical & Detail Integrity: <3>",
        "Prompt Compliance: <1>\nVisual Naturalness: <1>\nPhysical & Detail Integrity: <1>",
        "Prompt Compliance : <1>\nVisual Naturalness : <2>\nPhysical & Detail Integrity : <3>",
        "Prompt Compliance：<1>\nVisual Naturalness：<2>\nPhysical & Detail Integrity：<3>",
        "**Prompt Compliance**: <1>\n**Visual Naturalness**: <2>\n"
        "**Physical & Detail Integrity**: <3>",
        "**Prompt Compliance:** <1>\n**Visual Naturalness:** <2>",
        "1. Prompt Compliance: <1>\n2. Visual Naturalness: <2>\n3. Physical: <3>",
        "Prompt Compliance:<1>\nVisual Naturalness:<2>\nPhysical & Detail Integrity:<3>",
        "Prompt Compliance:  <1>\nVisual Naturalness:  <2>",
        "Prompt Compliance: <1>, Visual Naturalness: <2>, Physical & Detail Integrity: <3>",
        "Prompt Compliance: <1>",
        "Prompt Compliance: <1>\nVisual Naturalness: <2>",
        "Prompt Compliance: <1>\nPrompt Compliance: <2>",
        "Prompt Compliance: <1>\nVisual Naturalness: <2>\nPhysical: <3>\nOverall: <1>",
        "People: <1>\nPrompt Compliance: <2>",
        "prompt compliance: <1>\nvisual naturalness: <2>\nphysical & detail integrity: <3>",
        "| Prompt Compliance | <1> |\n| Visual Naturalness | <2> |",
        "Prompt Compliance - <1>\nVisual Naturalness - <2>",
        "Prompt Compliance: good: <1>\nVisual Naturalness: <2>",
        '{"Prompt Compliance": <1>, "Visual Naturalness": <2>}',
    )

    def __init__(self, clone: Path) -> None:
        path = next(clone.rglob("step1_get_avgscore.py"))
        self.code = functions_of(path, "extract_scores_and_average")
        self.protocol = toml_protocol("imgedit")
        self.grammar = self.protocol.definition.calls[0].reply.grammar("replace")

    def theirs(self, reply: str) -> Read:
        value = self.code.extract_scores_and_average(reply)
        return {} if value is None else {"score": float(value)}

    def ours(self, reply: str) -> Read:
        numbers = self.grammar.read(reply, "compat")
        return {"score": self.protocol.item(_PAIR, {"grades": numbers})["score"]}

    def form(self, reply: str, theirs: Read, ours: Read) -> str | None:
        numbers = re.findall(r": (\d+)\s*$", reply, re.MULTILINE)
        if not ours and not all(self.grammar.holds(float(number)) for number in numbers):
            return "beyond the scale"
        return None


class Kris(Benchmark):
    """One grade in an object, in most categories."""

    name = "kris"
    places: ClassVar[tuple[str, ...]] = (
        '{"consistency_score": <1>, "reasoning": "2 dogs stay"}',
        '{"reasoning": "2 dogs stay", "consistency_score": <1>}',
        '{\n  "consistency_score" : <1>,\n  "reason": "fine"\n}',
        '{"consistency_score": <1>, "reasoning": "two\nlines"}',
        '{"consistency_score": <1>, "reasoning": "it says "STOP""}',
        '{"consistency_score": <1>, "consistency_score": <2>}',
        '{"consistency_score": <1>,}',
        '{"Consistency_Score": <1>}',
        '{"inconsistency_score": <1>}',
        '{"other": <2>, "note": "the consistency_score is <1>"}',
        '{"scores": {"consistency_score": <1>}}',
        '{"consistency_score": {"value": <1>}}',
        '[{"consistency_score": <1>}]',
        "{'consistency_score': <1>, 'reasoning': 'fine'}",
        "{consistency_score: <1>}",
        '"consistency_score": <1>',
        "consistency_score: <1>",
        "consistency_score : <1>",
        "consistency_score：<1>",
        "Consistency Score <1>",
        "consistency  score\n: <1>",
        "**Consistency Score:** <1>",
        "**Consistency Score**: <1>",
        "consistency_score = <1>",
        "Consistency: <1>",
        "The 3 dogs stay. consistency_score: <1>",
        "The 3 dogs stay. consistency score <1>",
    )

    rule = ""
    reader = ("metrics_common.py", "extract_consistency_score_and_reason")

    def __init__(self, clone: Path) -> None:
        path, function = self.reader
        names = ("extract_score_and_reason", "extract_json_field", "DEFAULT_PATTERNS")
        self.read = vars(functions_of(next(clone.rglob(path)), function, *names))[function]
        self.grammar = grammar_of(("consistency",), self.rule)

    def theirs(self, reply: str) -> Read:
        value = self.read(reply)
        if isinstance(value, tuple):
            value = value[0]
        return {} if value is None else {"consistency": float(value)}


class KrisImages(Kris):
    """One grade, in the categories with several images."""

    rule = "kris-images"
    reader = ("metrics_common.py", "extract_score_and_reason")

    def theirs(self, reply: str) -> Read:
        value, _ = self.read(reply, "consistency_score", ["reasoning", "reason"])
        return {} if value is None else {"consistency": float(value)}


class KrisKnowledge(Kris):
    """One grade, in the categories of knowledge."""

    rule = "kris-knowledge"
    reader = ("metrics_knowledge.py", "extract_consistency_score")


class KrisTwo(Kris):
    """Two grades in an object, in the categories of knowledge."""

    places = (
        '{"instruction_score": <1>, "knowledge_score": <2>, "reasoning": "2 dogs stay"}',
        '{"instruction_score": <2>, "knowledge_score": <1>}',
        '{"knowledge_score": <1>, "instruction_score": <1>}',
        '{"instruction_score": <1>}',
        '{"knowledge_score": <1>}',
        '{"instruction_score": <1>, "knowledge_score": null}',
        '{"instruction_score": null, "knowledge_score": <1>}',
        '{"instruction_score": <1>, "knowledge_score": "<2>/5"}',
        '{"instruction_score": <1>} {"knowledge_score": <2>}',
        '{"instruction": {"instruction_score": <1>}, "knowledge": {"knowledge_score": <2>}}',
        '{"instruction_score": <1>, "knowledge_score": <2>,}',
        '{"instruction_score": <1>, "instruction_score": <2>, "knowledge_score": <3>}',
        '{"instruction_score": <1>, "instruction_reasoning": "two\nlines", "knowledge_score": <2>}',
        "{'instruction_score': <1>, 'knowledge_score': <2>}",
        "{instruction_score: <1>, knowledge_score: <2>}",
        '"instruction_score": <1>, "knowledge_score": <2>',
        "instruction_score: <1>\nknowledge_score: <2>",
        "instruction_score : <1>\nknowledge_score : <2>",
        "instruction_score：<1>\nknowledge_score：<2>",
        "Instruction Score: <1>, Knowledge Score: <2>",
        "**Instruction Score:** <1>\n**Knowledge Score:** <2>",
        "**Instruction Score**: <1>\n**Knowledge Score**: <2>",
        "instruction score <1>, knowledge score <2>",
        "Instruction Score: <1>",
        "Knowledge Score: <1>",
        "Both <1>",
    )
    reader = ("metrics_knowledge.py", "extract_dual_scores")
    names = ("instruction", "knowledge")

    def __init__(self, clone: Path) -> None:
        super().__init__(clone)
        self.grammar = grammar_of(self.names, "kris-knowledge")

    def theirs(self, reply: str) -> Read:
        read = self.read(reply)
        values = {name: read[f"{name}_score"] for name in self.names}
        return {name: float(value) for name, value in values.items() if value is not None}


class Rise(Benchmark):
    """One line `Final Score`."""

    name = "risebench"
    places = (
        "The edit follows.\n\n**Final Score**: **<1>**",
        "Final Score: <1>",
        "Final Score : <1>",
        "**Final Score** : <1>",
        "Final Score：<1>",
        "__Final Score__: <1>",
        "`Final Score`: <1>",
        "**Final Score:** <1>",
        "**Final Score: <1>**",
        "***Final Score***: <1>",
        "Final Score:<1>",
        "Final Score <1>",
        "final score: <1>",
        "FINAL SCORE: <1>",
        "# Final Score\n\n<1>",
        "Final Score:\n**<1>**",
        "Final Score is <1>",
        "Final Score - <1>",
        "Final Score = <1>",
        "| Final Score | <1> |",
        "A final score of <1> is fair.",
        "The Final Score follows.\n**Final Score**: <1>",
        "Final Scores: <1>",
        "**Final Scores**: **<1>**",
        "Final Scores: <2>\nFinal Score: <1>",
        "Final  Score: <1>",
        "FinalScore: <1>",
        "Score: <1>",
        "最终得分: <1>",
        '{"Final Score": <1>}',
    )

    def __init__(self, clone: Path) -> None:
        self.code = functions_of(next(clone.rglob("gpt_eval.py")), "extract")
        self.grammar = Grammar("final", ("score",), (1, 5), whole=True)

    def theirs(self, reply: str) -> Read:
        numbers = self.code.extract(reply) or []
        return {"score" if not i else f"shifted {i}": float(x) for i, x in enumerate(numbers)}

    def form(self, reply: str, theirs: Read, ours: Read) -> str | None:
        if len(theirs) > 1 and not ours:
            return "several numbers"
        return super().form(reply, theirs, ours)


class RiseLogical(Rise):
    """The same from 0 to 1, on which the script takes a higher number for 1."""

    def __init__(self, clone: Path) -> None:
        super().__init__(clone)
        self.grammar = Grammar("final", ("score",), (0, 1), whole=True)

    def theirs(self, reply: str) -> Read:
        return {name: min(number, 1.0) for name, number in super().theirs(reply).items()}


class Omni(Benchmark):
    """One score in an object with its reasoning."""

    name = "omnicontext"
    places = (
        '{"score": <1>, "reasoning": "2 people stay"}',
        '{"reasoning": "2 people stay", "score": <1>}',
        '{\n  "score" : <1>,\n  "reasoning" : "fine"\n}',
        '{"score": <1>, "reasoning": "two\nlines"}',
        '{"score": <1>, "reasoning": "it says "STOP" there"}',
        '{"score": <1>, "reasoning": "a {brace}"}',
        '{"score": <1>, "reasoning": null}',
        '{"score": <2>, "score": <1>, "reasoning": "fine"}',
        '{"score": <1>, "reasoning": "fine",}',
        '{"score": <1>}',
        '{"reasoning": "a score of <1>"}',
        '{"Score": <1>, "Reasoning": "fine"}',
        '{"score": [<1>, <2>], "reasoning": "fine"}',
        '{"score": {"value": <1>}, "reasoning": "fine"}',
        '{"result": {"score": <1>, "reasoning": "fine"}}',
        '[{"score": <1>, "reasoning": "fine"}]',
        '{"score": <1>, "reasoning": "a"} {"score": <2>, "reasoning": "b"}',
        "{'score': <1>, 'reasoning': 'fine'}",
        "{score: <1>, reasoning: fine}",
        '{"score" : <1>, reasoning: fine}',
        '"score": <1>, "reasoning": "fine"',
        "score: <1>",
        "**Score:** <1>",
        "<1>",
    )

    def __init__(self, clone: Path) -> None:
        names = ("mllm_output_to_dict", "is_int_between_0_and_10", "fix_json")
        self.code = functions_of(next(clone.rglob("omnicontext/json_util.py")), *names)
        self.grammar = Grammar("json", ("PF",), labels=("score",), compat="omnicontext")

    def theirs(self, reply: str) -> Read:
        try:
            read = self.code.mllm_output_to_dict(reply)
        except Exception:  # as the authors' loop catches everything
            return {}
        score, _ = read["score"], read["reasoning"]
        math.sqrt(score * 1)  # raises for what is no number, as the statistics do
        return {"PF": float(score)}

    def form(self, reply: str, theirs: Read, ours: Read) -> str | None:
        if not ours and not any(map(self.grammar.holds, theirs.values())):
            return "beyond the scale"
        return "repaired" if re.search(r"[{,]\s*\w+:", reply) else None

    def kind(self, reply: str) -> str:
        """Say how the script takes a reply: `read`, `unread`, or one of `FORMS`."""
        try:
            self.code.mllm_output_to_dict(reply)
        except Exception:  # as the authors' loop catches everything
            return "unread"
        theirs, ours = read_by(self.theirs, reply), read_by(self.ours, reply)
        if theirs == ours:
            return "read" if ours else "ends the script"
        return self.form(reply, theirs, ours) or "unlike"


_PAIR = EditPair("a", "replace", "x", Base64Image(""))


def replies(benchmark: type[Benchmark]) -> Iterator[str]:
    """Draw replies: of the three parts of a form, each is the plainest one in four of ten."""
    chance = random.Random(0)

    def drawn(parts: Sequence[str]) -> str:
        return parts[0] if chance.random() < 0.4 else chance.choice(parts)

    for _ in range(COUNT):
        place, shape, around = drawn(benchmark.places), drawn(SHAPES), drawn(AROUND)
        reply, other = (_filled(place, shape, chance) for _ in range(2))
        around = around.replace("<half>", reply[: len(reply) * chance.randrange(30, 95) // 100])
        around = around.replace("<other>", other).replace("<>", reply)
        yield _filled(around, "", chance)


def _filled(text: str, shape: str, chance: random.Random) -> str:
    """Put numbers from 1 to 5 in place of the marks in a text."""
    n, m, second, third = (chance.randrange(1, 6) for _ in range(4))
    text = text.replace("<1>", shape).replace("<2>", str(second)).replace("<3>", str(third))
    wide = chr(ord("０") + n)
    return text.replace("<n>", str(n)).replace("<m>", str(m)).replace("<w>", wide)


def forms(benchmark: type[Benchmark]) -> int:
    """Count the forms from which replies are drawn, each against the plainest."""
    return len(benchmark.places) + len(SHAPES) + len(AROUND)


def unlisted(name: str) -> list[str]:
    """Name the forms of a suite whose line is not on its page."""
    page = " ".join((PAGES / f"{name}.md").read_text("utf-8").split())
    return [each for each, form in FORMS[name].items() if form.line not in page]


def read_by(read: Callable[[str], Read], reply: str) -> Read:
    """Return what a function reads; nothing where it raises, as scripts do that go on."""
    try:
        return read(reply)
    except (ReplyError, ValueError, TypeError, KeyError):
        return {}


def compare(benchmark: Benchmark, show: Callable[[str], None]) -> int:
    """Print how often the two agree, and by which forms they differ; return what is left."""
    found: Counter[str] = Counter()
    left = []
    for reply in replies(type(benchmark)):
        theirs, ours = read_by(benchmark.theirs, reply), read_by(benchmark.ours, reply)
        if ours == theirs:
            found["agree" if ours else "agree: unreadable"] += 1
        elif (name := benchmark.form(reply, theirs, ours)) in FORMS[benchmark.name]:
            found[str(name)] += 1
        else:
            left.append((reply, theirs, ours))
    show(
        f"{type(benchmark).__name__}: {COUNT} replies in {forms(type(benchmark))} forms, "
        f"{len(left)} differ unexplained"
    )
    for label, count in found.most_common():
        show(f"  {count:5} {label}")
        if form := FORMS[benchmark.name].get(label):
            show(f"        {form.place}: {form.reply!r} gives {form.theirs}")
    for reply, theirs, ours in left[:10]:
        show(f"  unexplained: {reply!r}: theirs {dict(theirs)}, ours {dict(ours)}")
    return len(left)


def rise_scores(clone: Path, show: Callable[[str], None]) -> int:
    """Compare score and accuracy of random grades; return how many differ under `compat`."""
    code = functions_of(
        next(clone.rglob("gpt_eval.py")),
        *("calculate_score", "calculate_completion"),
        pd=SimpleNamespace(isna=lambda value: value != value),
    )
    protocols = {variant: RiseBench(variant, Prompts(None)) for variant in VARIANTS}
    chance = random.Random(0)
    unlike: Counter[str] = Counter()
    for _ in range(COUNT):
        category = chance.choice(("temporal", "causal", "spatial", "logical"))
        is_free = category != "logical" and chance.random() < 0.2
        fields = {"has_consistency_free": "yes"} | ({"consistency_free": "True"} if is_free else {})
        pair = EditPair("a", category, "x", Base64Image(""), fields=fields)
        top = 1 if category == "logical" else 5
        names = ["reasoning"] + ["consistency"] * (not is_free)
        names += ["plausibility"] * (category != "logical")
        grades = {name: float(chance.randint(1 if top == 5 else 0, top)) for name in names}
        scaled = {name: 4 * grade + 1 if top == 1 else grade for name, grade in grades.items()}
        row = {
            "category": f"{category}_reasoning",
            "consistency_free": True if is_free else math.nan,
            "Reasoning": scaled["reasoning"],
            "ApprConsistency": scaled.get("consistency", math.nan),
            "VisualPlausibility": scaled.get("plausibility", math.nan),
        }
        theirs = (code.calculate_score(row), float(code.calculate_completion(row)))
        for variant, protocol in protocols.items():
            ours = protocol.item(pair, {name: {name: grade} for name, grade in grades.items()})
            same = math.isclose(ours["score"], theirs[0]) and ours["accuracy"] == theirs[1]
            unlike[variant] += not same
    show(
        f"RISEBench: score and accuracy of {COUNT} items: {unlike['compat']} differ under compat, "
        f"{unlike['strict']} under strict"
    )
    show(
        "        gpt_eval.py:289: row['consistency_free'] is NaN for other items\n"
        "        and counts as true, so that their score leaves consistency out"
    )
    return unlike["compat"]


class Dice(Exception):
    """The authors' script draws a number."""


#: Replies of the attempts at a question, and how often each is drawn.
LOOP_REPLIES: Mapping[str, int] = {
    '{"score": <n>, "reasoning": "x"}': 8,
    '```json\n{"score": <n>, "reasoning": "x"}\n```': 3,
    '{"score": <n>.5, "reasoning": "x"}': 2,
    "<n>": 1,
    '{"score": <n>, "reaso': 3,
    "I'm sorry, but I can't assist with that.": 3,
    "": 1,
    "<n>/10": 1,
    '{"score": <n>, "reasoning": "a"} {"score": 4, "reasoning": "b"}': 1,
    '{"score": "<n>", "reasoning": "x"}': 1,
    '{"score": <n>}': 1,
    '{"score": {"value": <n>}, "reasoning": "x"}': 1,
    '{"score": 15, "reasoning": "x"}': 1,
    "{score: <n>, reasoning: fine}": 1,
}
LOOPS = 300


def omni_loops(clone: Path, show: Callable[[str], None]) -> int:
    """Compare the score that the authors' loop makes of the replies to one item with that of
    `compat`; return how many differ unexplained.
    """
    reader = Omni(clone)

    def draw(*_: Any) -> int:
        raise Dice

    folder = next(clone.rglob("omnicontext/omnicontext_score.py")).parent
    asked: Iterator[str] = iter(())
    generator = functions_of(folder / "prompt_generator.py", "PromptGenerator", *_OMNI_PROMPTS)
    loop = functions_of(
        folder / "omnicontext_score.py",
        "OmniContextScore",
        PromptGenerator=generator.PromptGenerator,
        ask_gpt4o=lambda *_: next(asked),
        mllm_output_to_dict=reader.code.mllm_output_to_dict,
        random=SimpleNamespace(randint=draw),
        time=SimpleNamespace(sleep=lambda _: None),
    )
    opened = SimpleNamespace(open=lambda _: SimpleNamespace(convert=lambda _: None))
    script = functions_of(
        folder / "test_omnicontext_score.py", "process_single_item", math=math, Image=opened
    )
    statistics = functions_of(
        folder / "calculate_statistics.py", "analyze_scores", math=math, np=np
    )
    protocol = OmniContext("compat", Prompts(None))
    item = {"instruction": "x", "key": "a", "instruction_language": "en", "input_images": []}
    item |= {"output_image_path": "a.png", "task_type": "single_object"}
    chance = random.Random(0)
    found: Counter[str] = Counter()
    left = []
    for _ in range(LOOPS):
        drawn = chance.choices([*LOOP_REPLIES], [*LOOP_REPLIES.values()], k=6)
        replies = [reply.replace("<n>", str(chance.randint(0, 9))) for reply in drawn]
        asked = iter(replies)
        names = [name for n in ("", "-2", "-3") for name in (f"PF{n}", f"SC{n}")]
        read = {}
        for name, reply in zip(names, replies, strict=True):
            numbers = read_by(reader.ours, reply)
            if numbers:
                read[name] = {name[:2]: numbers["PF"]}
        try:
            ours = protocol.item(_PAIR, read)["score"]
        except ReplyError:
            ours = None
        kinds = {reader.kind(reply) for reply in replies}
        try:
            line = script.process_single_item(item, loop.OmniContextScore("", ""))
            *_, means = statistics.analyze_scores({"single_object": [line]}, "en")
            theirs = float(means["single_object"])
        except Dice:
            label = "they draw a number, ours is an error"
            same = ours is None
        except (KeyError, TypeError, ValueError):
            label = "their script ends, ours is an error"
            if ours is not None:
                label = "their script ends, with ours an earlier reply counts"
            same = True
        else:
            label = "the same number"
            same = ours is not None and math.isclose(ours, theirs)
        if not same:
            explained = sorted(kinds & {*FORMS["omnicontext"]})
            label = f"differ: {', '.join(explained)}" if explained else "differ unexplained"
            if not explained:
                left.append(replies)
        found[label] += 1
    show(f"OmniContext: {LOOPS} items of 6 replies each, {len(left)} differ unexplained")
    for label, count in found.most_common():
        show(f"  {count:5} {label}")
    for replies in left[:10]:
        show(f"  unexplained: {replies}")
    return len(left)


_OMNI_PROMPTS = (
    "_context_no_delimit",
    *(
        f"_prompts_0shot_in_context_generation_rule_{grade}_{kind}"
        for grade in ("PF", "SC")
        for kind in ("Single_and_Multiple", "Scene")
    ),
)


BENCHMARKS: dict[str, tuple[Callable[[Path], Benchmark], ...]] = {
    "gedit": (Gedit,),
    "imgedit": (ImgEdit,),
    "kris": (Kris, KrisImages, KrisKnowledge, KrisTwo),
    "omnicontext": (Omni,),
    "risebench": (Rise, RiseLogical),
}


#: Comparisons beside that of single replies.
FURTHER: Mapping[str, Callable[[Path, Callable[[str], None]], int]] = {
    "omnicontext": omni_loops,
    "risebench": rise_scores,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark", choices=[*BENCHMARKS])
    parser.add_argument("clone", type=Path)
    args = parser.parse_args()
    missing = unlisted(args.benchmark)
    for form in missing:
        print(f"{PAGES / args.benchmark}.md: no line about {form!r}")
    left = len(missing)
    left += sum(compare(kind(args.clone), print) for kind in BENCHMARKS[args.benchmark])
    if args.benchmark in FURTHER:
        left += FURTHER[args.benchmark](args.clone, print)
    return left


if __name__ == "__main__":
    sys.exit(min(1, main()))
