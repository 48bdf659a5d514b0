"""Compare what a benchmark's own code makes of replies with what this package makes of them.

    python perf/upstream_scorers.py gedit CLONE_OF_STEP1X_EDIT
    python perf/upstream_scorers.py imgedit CLONE_OF_IMGEDIT
    python perf/upstream_scorers.py kris CLONE_OF_KRIS_BENCH
    python perf/upstream_scorers.py risebench CLONE_OF_RISEBENCH

A thousand replies are made up, four in ten of them odd: fenced, bold, out of range, decimal, with
two scores, half a reply, in other languages, refusals, empty, cut off. The functions that read
replies are taken out of the clone, which needs no package beside pandas (RISEBench). Each reply on
which the two differ must be a defect of the clone that `DEFECTS` names, with its file and line and
two lines that show it; else the script fails.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pytest_imgedit.core.errors import ReplyError
from pytest_imgedit.core.images import Base64Image
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import Grammar
from pytest_imgedit.core.results import Variant
from pytest_imgedit.protocols.prompts import Prompts
from pytest_imgedit.protocols.risebench import RiseBench

COUNT = 1000
VARIANTS: tuple[Variant, ...] = ("strict", "compat")
#: Of a reply: a number for each call's names, or `None` where it cannot be read.
Read = tuple[float, ...] | None
#: The defects of each clone: the place, a call that shows it, and what comes of it.
DEFECTS: dict[str, dict[str, tuple[str, str, str]]] = {
    "gedit": {
        "random score": (
            "viescore/utils.py:187",
            "mllm_output_to_dict('Sorry, no.', give_up_parsing=True)",
            "a random number from 0 to 10, which enters the mean",
        ),
        "no range": (
            "viescore/utils.py:221",
            """mllm_output_to_dict('{"score": [15, 3]}')""",
            "[15, 3]: nothing checks that scores are from 0 to 10",
        ),
        "one score for two": (
            "viescore/utils.py:222",
            """mllm_output_to_dict('{"score": 7}')""",
            "[7]: one number stands for the minimum of two",
        ),
        "text as a score": (
            "viescore/utils.py:222",
            """mllm_output_to_dict('{"score": ["7", 8]}')""",
            "['7', 8]: min() raises TypeError, and the item is tried 10,000 times",
        ),
        "first brace to last": (
            "viescore/utils.py:178",
            """mllm_output_to_dict('{"score": [7, 8]} {}')""",
            "False: what is between the first and the last brace is no JSON; scored at random",
        ),
    },
    "imgedit": {
        "form": (
            "Basic/step1_get_avgscore.py:9",
            "extract_scores_and_average('A: **4**\\nB: 2\\nC: 2')",
            "2.0: a line that is not exactly `name: digits` is left out of the mean",
        ),
        "any line": (
            "Basic/step1_get_avgscore.py:9",
            "extract_scores_and_average('People: 12\\nA: 4')",
            "8.0: a line with any name counts",
        ),
        "no range": (
            "Basic/step1_get_avgscore.py:10",
            "extract_scores_and_average('A: 9\\nB: 9\\nC: 9')",
            "9.0 on a scale from 1 to 5",
        ),
        "half a reply": (
            "Basic/step1_get_avgscore.py:11",
            "extract_scores_and_average('A: 4')",
            "4.0: one grade stands for three",
        ),
    },
    "kris": {
        "any digit": (
            "metrics_common.py:108",
            "extract_consistency_score_and_reason('I see 2 dogs.')",
            "2: without a score the first digit from 1 to 5 is one",
        ),
        "no range": (
            "metrics_common.py:80",
            """extract_consistency_score_and_reason('{"consistency_score": 9}')""",
            "9 on a scale from 1 to 5",
        ),
        "truncated": (
            "metrics_common.py:80",
            """extract_consistency_score_and_reason('{"consistency_score": 4.5}')""",
            "4",
        ),
        "first of two": (
            "metrics_common.py:72",
            """extract_...('{"consistency_score": 2} {"consistency_score": 4}')""",
            "2",
        ),
        "half a reply": (
            "metrics_knowledge.py:185",
            """extract_dual_scores('{"instruction_score": 4}')""",
            "instruction 4, knowledge None: half a reply counts",
        ),
        "texts": (
            "metrics_knowledge.py:184",
            """extract_dual_scores('{"instruction_score": "4/5", "knowledge_score": 4}')""",
            "no scores: a number that is a text of another form is not read",
        ),
    },
    "risebench": {
        "first of two": (
            "gpt_eval.py:264",
            "extract('Final Score: 2\\nRevised. Final Score: 4')",
            "[2]",
        ),
        "two numbers": (
            "gpt_eval.py:264",
            "extract('Final Score: 3, 4')",
            "[3, 4]: the second number shifts those of the calls after it",
        ),
        "no range": ("gpt_eval.py:264", "extract('Final Score: 9')", "[9], from 1 to 5"),
        "truncated": ("gpt_eval.py:264", "extract('Final Score: 4.5')", "[4]"),
        "a space": ("gpt_eval.py:264", "extract('**Final Score** : **4**')", "None"),
    },
}


def functions_of(path: Path, *names: str, **values: Any) -> SimpleNamespace:
    """Take functions and constants out of a module, without running the rest of it."""
    tree = ast.parse(path.read_text("utf-8"))
    kept: list[ast.stmt] = [
        node
        for node in tree.body
        if (isinstance(node, ast.FunctionDef) and node.name in names)
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
        "print": lambda *_: None,
        **values,
    }
    exec(compile(ast.Module(kept, []), str(path), "exec"), space)
    return SimpleNamespace(**space)


class Gedit:
    """SC or PQ: two numbers in a list, of which the minimum counts."""

    name = "gedit"
    grammar = Grammar("list", ("a", "b"), (0, 10), labels=("score",))

    def __init__(self, clone: Path) -> None:
        names = ("mllm_output_to_dict", "verify", "is_int_between_0_and_10", "fix_json")
        self.code = functions_of(next(clone.rglob("viescore/utils.py")), *names)

    def text(self, grades: list[int], why: str) -> str:
        return json.dumps({"score": grades, "reasoning": why})

    def theirs(self, reply: str) -> Read:
        read = self.code.mllm_output_to_dict(reply)
        if read is False:  # asked once more; then a random number
            return None
        try:
            return (float(min(read["score"])),)
        except (TypeError, KeyError, ValueError):
            return (math.nan,)

    def ours(self, reply: str) -> Read:
        return (min(self.grammar.read(reply, "compat").values()),)

    def defect(self, reply: str, theirs: Read, ours: Read) -> str | None:
        if theirs is None:
            return "first brace to last"
        value = theirs[0]
        if math.isnan(value):
            return "text as a score"
        read = self.code.mllm_output_to_dict(reply)["score"]
        if any(isinstance(number, str) for number in read):
            return "text as a score"
        if len(read) != 2:
            return "one score for two"
        if any(not 0 <= number <= 10 for number in read):
            return "no range"
        return None


class ImgEdit:
    """Three lines; the value is the rounded mean."""

    name = "imgedit"
    labels = ("Prompt Compliance", "Visual Naturalness", "Physical & Detail Integrity")
    grammar = Grammar("lines", ("a", "b", "c"), (1, 5), True, labels)

    def __init__(self, clone: Path) -> None:
        path = next(clone.rglob("step1_get_avgscore.py"))
        self.code = functions_of(path, "extract_scores_and_average")

    def text(self, grades: list[int], why: str) -> str:
        lines = [
            f"{label}: {grade}" for label, grade in zip(self.labels, [*grades, 3], strict=False)
        ]
        return "\n".join([f"Brief reasoning: {why}", *lines])

    def theirs(self, reply: str) -> Read:
        value = self.code.extract_scores_and_average(reply)
        return None if value is None else (float(value),)

    def ours(self, reply: str) -> Read:
        return (round(sum(self.grammar.read(reply, "compat").values()) / 3, 2),)

    def defect(self, reply: str, theirs: Read, ours: Read) -> str | None:
        numbers = {}
        for line in reply.splitlines():
            parts = line.strip().split(": ")
            if len(parts) == 2 and parts[1].isdigit():
                numbers[parts[0]] = int(parts[1])
        if any(name not in self.labels for name in numbers):
            return "any line"
        if any(not 1 <= number <= 5 for number in numbers.values()):
            return "no range"
        if ours is not None:
            return "form"
        return "half a reply" if theirs is not None else None


class Kris:
    """One grade in an object."""

    name = "kris"
    grammar = Grammar("json", ("consistency",), (1, 5), True, ("consistency_score",))

    def __init__(self, clone: Path) -> None:
        self.code = functions_of(
            next(clone.rglob("metrics_common.py")),
            "extract_consistency_score_and_reason",
            "extract_score_and_reason",
            "extract_json_field",
            "DEFAULT_PATTERNS",
        )

    def text(self, grades: list[int], why: str) -> str:
        return json.dumps({"consistency_score": grades[0], "reasoning": why})

    def theirs(self, reply: str) -> Read:
        value = self.code.extract_consistency_score_and_reason(reply)[0]
        return None if value is None else (float(value),)

    def ours(self, reply: str) -> Read:
        return tuple(self.grammar.read(reply, "compat").values())

    def defect(self, reply: str, theirs: Read, ours: Read) -> str | None:
        scores = re.findall(r'consistency_score"?\s*:\s*"?(-?\d+(?:\.\d+)?)', reply)
        if theirs is not None and not 1 <= theirs[0] <= 5:
            return "no range"
        if len(set(scores)) > 1:
            return "first of two"
        if any("." in score for score in scores):
            return "truncated"
        if theirs is not None and (ours is None or ours != theirs):
            return "any digit"
        return None


class KrisDual(Kris):
    """Two grades in an object."""

    names = ("instruction_score", "knowledge_score")
    grammar = Grammar("json", ("instruction", "knowledge"), (1, 5), True, names)

    def __init__(self, clone: Path) -> None:
        self.code = functions_of(next(clone.rglob("metrics_knowledge.py")), "extract_dual_scores")

    def text(self, grades: list[int], why: str) -> str:
        return json.dumps(dict(zip(self.names, grades, strict=True)) | {"reasoning": why})

    def theirs(self, reply: str) -> Read:
        read = self.code.extract_dual_scores(reply)
        values = [read[name] for name in self.names]
        if values == [None, None]:
            return None
        return tuple(math.nan if value is None else float(value) for value in values)

    def defect(self, reply: str, theirs: Read, ours: Read) -> str | None:
        if theirs is None:
            return "texts"
        if any(math.isnan(value) for value in theirs):
            return "half a reply"
        if any(not 1 <= value <= 5 for value in theirs):
            return "no range"
        if len(re.findall("instruction_score", reply)) > 1:
            return "first of two"
        return "truncated" if re.search(r"_score\"?\s*:\s*\"?\d\.\d", reply) else None


class Rise:
    """One line `Final Score`."""

    name = "risebench"
    grammar = Grammar("final", ("score",), (1, 5), True)

    def __init__(self, clone: Path) -> None:
        self.code = functions_of(next(clone.rglob("gpt_eval.py")), "extract")

    def text(self, grades: list[int], why: str) -> str:
        return f"{why}\n\n**Final Score**: **{grades[0]}**"

    def theirs(self, reply: str) -> Read:
        numbers = self.code.extract(reply)
        return tuple(map(float, numbers)) if numbers else None

    def ours(self, reply: str) -> Read:
        return tuple(self.grammar.read(reply, "compat").values())

    def defect(self, reply: str, theirs: Read, ours: Read) -> str | None:
        if theirs is None:
            return "a space" if re.search(r"Final Score\W* :", reply) else None
        if len(theirs) > 1:
            return "two numbers"
        if re.search(r"Final Scores?[^\d]*\d+\.\d", reply, re.IGNORECASE):
            return "truncated"
        if not 1 <= theirs[0] <= 5:
            return "no range"
        return "first of two" if len(re.findall("final score", reply, re.IGNORECASE)) > 1 else None


def odd(good: str, other: str, chance: random.Random) -> Iterator[str]:
    """Yield odd replies, of which `good` and `other` are two in form."""
    number = re.compile(r"(?<=[\[:*, ])(\d+)(?=[\],*}\n]|$)")
    yield f"```json\n{good}\n```"
    yield number.sub(r"**\1**", good)
    yield number.sub(lambda match: str(int(match[1]) + 20), good)
    yield number.sub(r"\1.5", good)
    yield number.sub(r"\1/5", good)
    yield number.sub(r'"\1"', good)
    yield f"{good}\n\nOn second thought:\n\n{other}"
    yield good[: len(good) * chance.randrange(30, 95) // 100]
    yield re.sub(r"[,\n][^,\n]*\d[^,\n]*", "", good, count=1)
    yield f"编辑后的图像有 2 个人。\n{good}"
    yield f"Die Bearbeitung zeigt 3 Hunde.\n{good}\nFertig: 5"
    yield "I'm sorry, but I can't assist with grading the 2 people in this image."
    yield "抱歉，我无法评价这张图片。"
    yield ""
    yield good.replace(": ", " : ")
    yield f"<b>{good}</b>"
    yield number.sub("X", good)
    yield f"I would give {chance.randrange(1, 6)} out of 5."
    yield f"{chance.randrange(1, 6)}"
    yield f"{chance.randrange(1, 6)}/5"


def replies(benchmark: Any) -> list[str]:
    chance = random.Random(0)
    words = ("the edit follows", "2 dogs stay", "a 'quoted' word", "shadow: missing", "fine")

    def good() -> str:
        return str(benchmark.text([chance.randrange(1, 6) for _ in range(2)], chance.choice(words)))

    made = [good() for _ in range(COUNT * 6 // 10)]
    while len(made) < COUNT:
        made += odd(good(), good(), chance)
    return made[:COUNT]


def compare(benchmark: Any, show: Callable[[str], None]) -> int:
    """Print how often the two agree, and by which defects they differ; return what is left."""
    found: Counter[str] = Counter()
    left = []
    for reply in replies(benchmark):
        theirs = benchmark.theirs(reply)
        try:
            ours = benchmark.ours(reply)
        except ReplyError:
            ours = None
        if ours == theirs:
            found["agree" if ours is not None else "agree: unreadable"] += 1
            continue
        defect = benchmark.defect(reply, theirs, ours)
        if defect is None:
            left.append((reply, theirs, ours))
        else:
            found[defect] += 1
    show(f"{type(benchmark).__name__}: {COUNT} replies, {sum(found.values())} explained")
    for name, count in found.most_common():
        show(f"  {count:5} {name}")
        if name in DEFECTS[benchmark.name]:
            place, call, outcome = DEFECTS[benchmark.name][name]
            show(f"        {place}: {call}\n        gives {outcome}")
    for reply, theirs, ours in left[:10]:
        show(f"  unexplained: {reply!r}: theirs {theirs}, ours {ours}")
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


BENCHMARKS = {
    "gedit": (Gedit,),
    "imgedit": (ImgEdit,),
    "kris": (Kris, KrisDual),
    "risebench": (Rise,),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark", choices=[*BENCHMARKS])
    parser.add_argument("clone", type=Path)
    args = parser.parse_args()
    left = sum(compare(kind(args.clone), print) for kind in BENCHMARKS[args.benchmark])
    return left + (rise_scores(args.clone, print) if args.benchmark == "risebench" else 0)


if __name__ == "__main__":
    sys.exit(min(1, main()))
