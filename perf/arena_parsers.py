"""Compare how two public arenas read a judge's choice with how this package reads it.

    python perf/arena_parsers.py CLONE_OF_GENARENA CLONE_OF_GEDITBENCH_V2
    python perf/arena_parsers.py --tiny

Every choice of a list, of which the script knows what it means, stands in every kind of reply of
another list. The functions that read replies are taken out of the clones; nothing of them is in
this repository. `compat` must read each reply as they do. Where the default differs from them, the
difference must be one of `DEFECTS`. Else the script fails.

Both arenas repair JSON with the package json_repair. Where it is not installed, replies that are
not JSON are repaired by this package on both sides, and are counted apart. With --tiny and no
clones, the readers are made up.
"""

from __future__ import annotations

import json
import re
import typing
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pydantic
from harness import finish, parser, table
from upstream_scorers import functions_of

from pytest_imgedit.core.errors import ReplyError
from pytest_imgedit.core.repaired_json import repaired
from pytest_imgedit.core.reply import CHOICE_SCALE, Grammar

try:
    import json_repair  # type: ignore[import-not-found]
except ImportError:
    json_repair = None

#: The choice in a reply: `A`, `B`, `tie`, or nothing.
Choice = str
NOTHING = ""
EDITS = ("A", "B")
#: What a reply means that holds two choices.
CONTRADICTION = "contradiction"
#: What a text means, and the text, by what kind of text it is.
WORDS: dict[str, tuple[tuple[Choice, str], ...]] = {
    "a letter": (("A", "A"), ("B", "B"), ("A", "a"), ("B", "b"), ("B", " B "), ("B", "B.")),
    "a name": (
        *(("A", "Image A"), ("B", "Image B"), ("B", "image b"), ("B", "image_b")),
        *(("B", "Response B"), ("A", "Edit A"), ("B", "Option B"), ("B", "the second image")),
    ),
    "a remark": (
        *(("B", "B (marginally better)"), ("A", "A (slightly)"), ("B", "B is better")),
        *(("B", "B, because it is sharper"), ("A", "A - the hat is there"), ("B", "**B**")),
    ),
    "a tie": (
        *(("tie", "Tie"), ("tie", "tie"), ("tie", "Neither"), ("tie", "Both are equal")),
        *(("tie", "equal"), ("tie", "BOTH"), ("tie", "none"), ("tie", "A and B are equal")),
        *(("tie", "Draw"), ("tie", "A tie")),
    ),
    "no choice": (
        *((NOTHING, "A or B"), (NOTHING, "Unclear"), (NOTHING, "C"), (NOTHING, "")),
        *((NOTHING, "cannot say"), (NOTHING, "?"), (NOTHING, "Image 1")),
        (NOTHING, "Choose one from: 'Image A', 'Image B', or 'Tie'"),
    ),
    "another language": (
        *(("B", "图B"), ("B", "第二张"), ("tie", "平局"), ("A", "图片A更好")),
        *((NOTHING, "изображение"), (NOTHING, "la segunda")),
    ),
}
REASON = "A has a hat, and B is blurred"


class Asked(NamedTuple):
    """What a reply is asked to hold: the key of the choice, and what stands before and after it."""

    key: str
    before: dict[str, Any]
    after: dict[str, Any]

    def fields(self, word: object, **changed: Any) -> dict[str, Any]:
        """Return the fields of a reply in their order, some of them changed."""
        return {**self.before, self.key: word, **self.after, **changed}

    def text(self, word: object, **changed: Any) -> str:
        return json.dumps(self.fields(word, **changed), ensure_ascii=False)


def _cut(asked: Asked, word: str, behind: bool) -> str:
    """Return a reply that is cut in its reasons, or `behind` its choice."""
    if not behind:
        return '{"reasoning": {"summary": "' + REASON
    text = json.dumps({**asked.before, asked.key: word}, ensure_ascii=False)
    return text.removesuffix("}") + ', "confidence_rationale": "B is'


def _with(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


#: Kinds of replies that hold a word as their choice.
REPLIES: dict[str, Callable[[Asked, str], str]] = {
    "JSON": lambda asked, word: asked.text(word),
    "indented": lambda asked, word: json.dumps(asked.fields(word), indent=4, ensure_ascii=False),
    "choice first": lambda asked, word: json.dumps(
        {asked.key: word, **asked.before, **asked.after}, ensure_ascii=False
    ),
    "fence of json": lambda asked, word: f"```json\n{asked.text(word)}\n```",
    "fence": lambda asked, word: f"```\n{asked.text(word)}\n```",
    "fence in prose": lambda asked, word: f"I looked.\n```json\n{asked.text(word)}\n```\nDone.",
    "prose before": lambda asked, word: f"{REASON}.\n\n{asked.text(word)}",
    "prose after": lambda asked, word: f"{asked.text(word)}\n\n{REASON}.",
    "thought": lambda asked, word: f"<think>{REASON}.</think>\n{asked.text(word)}",
    "thought with braces": lambda asked, word: (
        f'<think>{{"{asked.key}": "A"}} or not?</think>\n{asked.text(word)}'
    ),
    "single quotes": lambda asked, word: _single(asked, word),
    "no quotes at keys": lambda asked, word: re.sub(
        r'"(\w+)": ', r"\1: ", json.dumps(asked.fields(word), ensure_ascii=False)
    ),
    "no last brace": lambda asked, word: asked.text(word).removesuffix("}"),
    "cut behind the choice": lambda asked, word: _cut(asked, word, behind=True),
    "cut in the reasons": lambda asked, word: _cut(asked, word, behind=False),
    "comma at the end": lambda asked, word: asked.text(word)[:-1] + ",}",
    "comma missing": lambda asked, word: _with(
        asked.text(word, further=1), ', "further"', ' "further"'
    ),
    "quotes in the reason": lambda asked, word: _with(
        asked.text(word, why="said X clearly"), "said X", 'said "X"'
    ),
    "the same twice": lambda asked, word: f"{asked.text(word)}\n{asked.text(word)}",
    "A and then": lambda asked, word: f"{asked.text('A')}\n{asked.text(word)}",
    "the key twice": lambda asked, word: _with(
        asked.text(word), f'"{asked.key}": ', f'"{asked.key}": "A", "{asked.key}": '
    ),
    "another key": lambda asked, word: json.dumps({"choice": word}, ensure_ascii=False),
    "key in capitals": lambda asked, word: asked.text(word).replace(asked.key, asked.key.upper()),
    "key inside another": lambda asked, word: f'{{"result": {asked.text(word)}}}',
    "in a list": lambda asked, word: f"[{asked.text(word)}]",
    "a list as the choice": lambda asked, word: asked.text([word]),
    "score in words": lambda asked, word: asked.text(word, score="high"),
    "score of 6": lambda asked, word: asked.text(word, score="2/6"),
    "score null": lambda asked, word: asked.text(word, score=None),
    "confidence in words": lambda asked, word: asked.text(word, confidence="medium"),
    "no JSON": lambda asked, word: word,
    "no JSON, a sentence": lambda asked, word: f"The better response is {word}",
    "a line": lambda asked, word: f"{REASON}.\n{asked.key}: {word}",
    "refusal": lambda asked, word: "I'm sorry, I can't compare these images.",
    "empty": lambda asked, word: "",
}


def _single(asked: Asked, word: str) -> str:
    """Return a reply with single quotes around its texts."""
    text = asked.text(word.replace("'", ""))
    return text.replace('"', "'")


#: Kinds of replies that hold no choice, whatever the word.
WITHOUT = {"cut in the reasons", "refusal", "empty"}
#: Those that hold an A beside the word.
WITH_A = {"A and then", "the key twice"}


class Case(NamedTuple):
    """A reply, the kinds that it is made of, and what it means to a person."""

    reply: str
    kind: str
    word: str
    meant: Choice


def cases(asked: Asked) -> Iterator[Case]:
    """Yield each reply once."""
    seen: set[str] = set()
    for kind, make in REPLIES.items():
        for word_kind, words in WORDS.items():
            for meant, word in words:
                reply = make(asked, word)
                if reply in seen:
                    continue
                seen.add(reply)
                if kind in WITHOUT:
                    yield Case(reply, kind, "", NOTHING)
                    continue
                if kind in WITH_A and meant != "A":
                    meant = CONTRADICTION
                yield Case(reply, kind, word_kind, meant)


#: What the default may differ in from an arena: the name of the difference, and whether it is one,
#: by the case, what the arena reads and what the default reads.
DEFECTS: dict[str, Callable[[Case, Choice, Choice], bool]] = {
    "the arena votes for the other edit": lambda case, theirs, ours: (
        case.meant in EDITS and theirs in EDITS and theirs != case.meant and ours != theirs
    ),
    "the arena votes where there is a tie or no choice": lambda case, theirs, ours: (
        case.meant in ("tie", NOTHING) and theirs in EDITS and ours not in EDITS
    ),
    "the arena loses a choice that is there": lambda case, theirs, ours: (
        theirs == NOTHING and ours == case.meant != NOTHING
    ),
    "the arena takes one of two choices, the default none": lambda case, theirs, ours: (
        case.meant == CONTRADICTION and theirs != NOTHING and ours == NOTHING
    ),
    "the default asks again where keys have no quotes": lambda case, theirs, ours: (
        case.kind == "no quotes at keys" and theirs == case.meant != NOTHING and ours == NOTHING
    ),
}


class Repair:
    """Stands for the package json_repair if it is not installed; counts what is not JSON."""

    def __init__(self) -> None:
        self.count = 0

    def loads(self, text: str) -> Any:
        """Return the value of a text that is JSON, or is repaired."""
        try:
            return json.loads(text)
        except ValueError:
            self.count += 1
        return json_repair.loads(text) if json_repair else repaired(text)


Reader = Callable[[str], Choice]


def genarena_reader(clone: Path, repair: Repair) -> Reader:
    """Return how the clone of GenArena reads a reply."""
    path = clone / "genarena" / "prompts" / "mmrb2.py"
    code = functions_of(path, "parse_response", json_repair=repair, Any=Any)

    def read(reply: str) -> Choice:
        try:
            return str(code.parse_response(reply)["winner"])
        except Exception:  # GenArena's _call_vlm_judge takes any for a failure
            return NOTHING

    return read


def gedit_reader(clone: Path, repair: Repair) -> Reader:
    """Return how the clone of GEditBench v2 reads a reply that is asked for once."""
    source = clone / "src"
    block = functions_of(source / "common_utils" / "json_util.py", "extract_json_block")
    schema = functions_of(
        source / "schemas" / "pipeline_io.py",
        "VLMPairJudgeOutput",
        BaseModel=pydantic.BaseModel,
        Field=pydantic.Field,
    )
    silent = SimpleNamespace(debug=len, info=len, error=len)
    known = {"logger": silent, "Any": Any, "Dict": typing.Dict}  # noqa: UP006
    pipeline = source / "autopipeline" / "components"
    client = functions_of(
        pipeline / "primitives" / "clients" / "base_client.py",
        "BaseClient",
        ABC=ABC,
        abstractmethod=abstractmethod,
        extract_json_block=block.extract_json_block,
        json_repair=repair,
        **known,
    )
    judge = functions_of(
        pipeline / "modules" / "judge.py",
        *("ClientPipe", "PairwiseJudge"),
        BasePipe=object,
        PromptTemplate=object,
        PIPE_REGISTRY=SimpleNamespace(register=lambda _: lambda kind: kind),
        **known,
    )
    asking = judge.PairwiseJudge.__new__(judge.PairwiseJudge)
    asking.prompt_template = asking.input_schema = None
    asking.prompt_adapter = SimpleNamespace(build_payload=lambda *_, **__: [])
    asking.output_schema = schema.VLMPairJudgeOutput

    def read(reply: str) -> Choice:
        asking.client = SimpleNamespace(
            retries=0,
            call_model=lambda _: reply,
            parse_response_to_json=partial(client.BaseClient.parse_response_to_json, None),
        )
        value = asking({})["value"]
        return {"Image A": "A", "Image B": "B", "Tie": "tie"}.get(value, NOTHING)

    return read


def made_up_reader(key: str, letters: bool, repair: Repair) -> Reader:
    """Return a reader of plain JSON; with `letters` it takes the first letter that it finds."""

    def read(reply: str) -> Choice:
        try:
            text = str(repair.loads(reply)[key]).upper()
        except (ValueError, TypeError, LookupError):
            return NOTHING
        if letters:
            return next((letter for letter in "AB" if letter in text), NOTHING)
        return {"A": "A", "B": "B", "TIE": "tie"}.get(text.removeprefix("IMAGE "), NOTHING)

    return read


class Arena(NamedTuple):
    """An arena: what it asks for, its grammar here, and its reader in a clone."""

    asked: Asked
    grammar: Grammar
    reader: Callable[[Path, Repair], Reader]


ARENAS = {
    "genarena": Arena(
        Asked(
            "better_response",
            {"reasoning": {"comparison_summary": REASON}, "score": 2},
            {"confidence": 0.4, "confidence_rationale": "B is sharper"},
        ),
        Grammar("choice", ("score",), CHOICE_SCALE, labels=("better_response",), compat="genarena"),
        genarena_reader,
    ),
    "gedit-v2": Arena(
        Asked("winner", {"reasoning": REASON}, {}),
        Grammar("choice-or-tie", ("score",), CHOICE_SCALE, labels=("winner",), compat="gedit-v2"),
        gedit_reader,
    ),
}


def read(grammar: Grammar, reply: str, variant: typing.Literal["strict", "compat"]) -> Choice:
    """Return the choice that this package reads."""
    try:
        (number,) = grammar.read(reply, variant).values()
    except ReplyError:
        return NOTHING
    return {1.0: "A", 0.0: "B", 0.5: "tie"}[number]


def shown(choice: Choice) -> str:
    return choice or "–"


def compare(name: str, theirs_of: Reader, repair: Repair) -> dict[str, Any]:
    """Print how an arena and this package read every reply; return the counts.

    `repair` counts replies that are not JSON.
    """
    arena = ARENAS[name]
    counts: Counter[str] = Counter()
    rows: dict[tuple[str, str], list[Case]] = {}
    failures = []
    for case in cases(arena.asked):
        before = repair.count
        theirs = theirs_of(case.reply)
        group = "repaired" if repair.count > before else "JSON"
        counts[f"replies, {group}"] += 1
        ours = read(arena.grammar, case.reply, "strict")
        compat = read(arena.grammar, case.reply, "compat")
        counts[f"compat as the arena, {group}"] += compat == theirs
        counts[f"default as the arena, {group}"] += ours == theirs
        known = (*EDITS, "tie") if arena.grammar.form == "choice-or-tie" else EDITS
        expected = case.meant if case.meant in known else NOTHING
        counts["the arena as meant"] += theirs == expected
        counts["the arena against what is meant"] += theirs not in (expected, NOTHING)
        counts["default as meant"] += ours == expected
        counts["default against what is meant"] += ours not in (expected, NOTHING)
        if compat != theirs:
            failures.append(f"compat reads {shown(compat)}, the arena {shown(theirs)}: {case}")
        if ours == theirs:
            continue
        defects = [defect for defect, holds in DEFECTS.items() if holds(case, theirs, ours)]
        if not defects:
            failures.append(f"default reads {shown(ours)}, the arena {shown(theirs)}: {case}")
            continue
        key = (defects[0], f"{shown(theirs)} → {shown(ours)}")
        rows.setdefault(key, []).append(case)
    print(f"\n{name}")
    table(("what", "replies"), sorted(counts.items()))
    print()
    table(
        ("difference", "arena → default", "replies", "such as"),
        [
            (defect, change, len(found), min(found, key=_size).reply.replace("\n", "⏎")[:90])
            for (defect, change), found in sorted(rows.items())
        ],
    )
    by_defect = dict.fromkeys(DEFECTS, 0)
    for (defect, _), found in rows.items():
        by_defect[defect] += len(found)
    return {"counts": dict(counts), "differences": by_defect, "failures": failures}


def _size(case: Case) -> int:
    return len(case.reply)


def main() -> None:
    described = parser(__doc__)
    described.add_argument("clones", type=Path, nargs="*", help="of GenArena and GEditBench v2")
    options = described.parse_args()
    if len(options.clones) != 2 and not (options.tiny and not options.clones):
        raise SystemExit("expected two clones: of GenArena and of GEditBench v2")
    figures: dict[str, Any] = {"json_repair": json_repair is not None}
    for place, (name, arena) in enumerate(ARENAS.items()):
        repair = Repair()
        if options.clones:
            reader = arena.reader(options.clones[place], repair)
        else:
            reader = made_up_reader(arena.asked.key, name == "genarena", repair)
        figures[name] = compare(name, reader, repair)
    if json_repair is None:
        print("\njson_repair is not installed: both sides repaired replies by this package")
    finish(options, figures)
    failures = [line for name in ARENAS for line in figures[name]["failures"]]
    if failures and options.clones:
        raise SystemExit("\n".join([f"{len(failures)} replies differ otherwise:", *failures[:60]]))


if __name__ == "__main__":
    main()
