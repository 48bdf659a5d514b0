"""KRIS-Bench (arXiv 2505.16707): two or three calls by category, and a tree of means."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import ClassVar

from pytest_imgedit.core import results
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import Grammar
from pytest_imgedit.core.requests import Preparation
from pytest_imgedit.protocols.protocol import (
    PERCENT,
    Call,
    Parts,
    Protocol,
    Replies,
    Row,
    grades_of,
    mean_row,
    percent_of,
)

SCALE = (1.0, 5.0)
#: The categories of each type of knowledge, and the types of each level.
TYPES: Mapping[str, tuple[str, ...]] = {
    "Attribute Perception": (
        "count_change",
        "color_change",
        "size_adjustment",
        "part_completion",
        "anomaly_correction",
    ),
    "Spatial Perception": ("viewpoint_change", "position_movement"),
    "Temporal Prediction": ("temporal_prediction",),
    "Social Science": ("humanities", "practical_knowledge"),
    "Natural Science": (
        "biology",
        "chemistry",
        "geography",
        "medicine",
        "mathematics",
        "physics",
    ),
    "Logical Reasoning": ("abstract_reasoning", "rule-based_reasoning"),
    "Instruction Decomposition": ("multi-element_composition", "multi-instruction_execution"),
}
LEVELS: Mapping[str, tuple[str, ...]] = {
    "Factual Knowledge": ("Attribute Perception", "Spatial Perception", "Temporal Prediction"),
    "Conceptual Knowledge": ("Social Science", "Natural Science"),
    "Procedural Knowledge": ("Logical Reasoning", "Instruction Decomposition"),
}
#: Categories whose instruction call grades the knowledge too.
KNOWLEDGE = {
    category
    for name in ("Social Science", "Natural Science", "Logical Reasoning")
    for category in TYPES[name]
}
#: How totals are made: the paper's, by its published rows, and those of BAGEL's `summarize.py`.
OVER_ITEMS = "means over items"
OVER_GRADES = "means over all grades"
MEASURES = {"VC": "consistency", "VQ": "quality", "IF": "instruction", "KP": "knowledge"}
#: Prompts that the authors do not format.
_UNFORMATTED = ("prompt_quality",)
_EDITED: Parts = (("text", "This is the edited image:"), ("image", "edited"))
_BOTH: Parts = (("text", "This is the original image:"), ("image", "source"), *_EDITED)


class Kris(Protocol):
    """The protocol of KRIS-Bench, as in the authors' `metrics_*.py`; grades are from 1 to 5.

    The prompt for anomalies stands in the authors' file and is never used, since the category has
    another name there.
    """

    name = "kris"
    scale = SCALE
    totals = OVER_ITEMS
    prompt_files = ("utils/prompts.py", "ReasonEdit/prompts.py", "prompts.py")
    pins: ClassVar[Mapping[str, str]] = {
        "prompt_consist": "d4eed281e816dd4ec94bb79777bf2ffd14cd2258a86f95d3524f44161d860c14",
        "prompt_quality": "e4dd2bffe1e0db4489faeab14dbfd9df9779dbbfb10f4f26f899a55a3b225cac",
        "prompt_instruction_following": (
            "7230580658d5411849859a3dabb3cd143881ac7e1a1343c6b34f21091a6dddf3"
        ),
        "prompt_dual_evaluation": (
            "521866619f71b5268d097d7ec0e8f64b1d5e99770359f51936f75a00b3950564"
        ),
        "prompt_view_instruction_following": (
            "ec2d29e6f3c93eabcfdbf77920a29d4e2a233011ee98eb5b81e7874895bdd8f2"
        ),
        "prompt_consist_temporal": (
            "6cc203d16ac510cf1979484050af597290064bd9eca639803c2733e59b5136c9"
        ),
        "prompt_instruction_temporal": (
            "8a96dbf10e506cccc4b0fc4783a5ab2f46a40249f987feae0df34cef957737f7"
        ),
        "prompt_consist_multi": (
            "9b6f3b5bd3c569ef559fbcdfb6459f3d7199a179f0cee2763f5f9ab29280d1dd"
        ),
        "prompt_instruction_multi": (
            "9a5c3a142e5fa88f7dbc128bea7d85e5095e12fc3e8c1426654d1fe314f2e55e"
        ),
    }

    @property
    def measures(self) -> Mapping[str, results.Measure]:
        return dict.fromkeys(MEASURES.values(), results.Measure(scale=SCALE, is_main=True))

    @property
    def published(self) -> tuple[results.PublishedRow, ...]:
        return PUBLISHED

    def calls(self, pair: EditPair) -> Sequence[Call]:
        category, kind = pair.category, ""
        shown, quality = _BOTH, _EDITED
        values = {"instruct": pair.instruction, "explanation": pair.reference_text}
        preparation = Preparation(codec="png")
        if category == "temporal_prediction":
            kind, preparation = "_temporal", Preparation(codec="jpeg", quality=85)
            shown, values["N"] = _frames(pair)
        elif category == "multi-element_composition":
            kind, shown = "_multi", _elements(pair)
        if kind:
            quality = (("text", "This is the image to evaluate:"), ("image", "edited"))
        rule = "kris-images" if kind else ""
        names: tuple[str, ...] = ("instruction",)
        prompt, seen = f"prompt_instruction{kind}", shown
        if category in KNOWLEDGE:
            rule = "kris-knowledge"
            prompt, names = "prompt_dual_evaluation", ("instruction", "knowledge")
        elif category == "viewpoint_change":
            prompt = "prompt_view_instruction_following"
            seen = (*shown, ("text", "This is the ground truth image:"), ("image", "reference"))
        elif not kind:
            prompt = "prompt_instruction_following"
        asked = (
            (f"prompt_consist{kind}", ("consistency",), shown),
            (prompt, names, seen),
            ("prompt_quality", ("quality",), quality),
        )
        return [
            Call(
                names[0],
                (("text", self.prompts.filled(prompt, values, _UNFORMATTED)), *parts),
                grammar_of(names, rule),
                preparation=preparation,
                max_new_tokens=1000,
            )
            for prompt, names, parts in asked
        ]

    def item(self, pair: EditPair, replies: Replies) -> Mapping[str, float]:
        """Return the grades that were read, and their mean; `compat` leaves out single grades, also
        of a reply with two.
        """
        grades = grades_of(replies)
        if not grades:
            return {}
        return {**grades, "score": sum(grades.values()) / len(grades)}

    def tables(self, items: Sequence[results.Item]) -> Sequence[Row]:
        """Return the means of types, of levels and of everything, in percent."""
        rows = []
        for name, categories in TYPES.items():
            members = [item for item in items if item.category in categories]
            for short, measure in MEASURES.items():
                row = mean_row(f"{name} {short}", members, [measure], PERCENT, percent_of(SCALE))
                rows.append(replace(row, is_detail=True))
            rows.append(self._total(name, members))
        for name, types in LEVELS.items():
            categories = tuple(category for kind in types for category in TYPES[kind])
            rows.append(self._total(name, [item for item in items if item.category in categories]))
        return [self._total("Overall", items), *rows]

    def _total(self, name: str, items: Sequence[results.Item]) -> Row:
        """Return the mean over items of the means of their grades."""
        percent = percent_of(SCALE)
        values, sources = [], []
        for item in items:
            grades = [item.aspects[each] for each in MEASURES.values() if each in item.aspects]
            if grades:
                values.append(percent(fmean(grades)))
                sources.append(item.cluster)
        return Row(name, values, sources, scale=PERCENT)


class KrisByGrades(Kris):
    """The protocol of KRIS-Bench with the totals of BAGEL's `summarize.py`."""

    totals = OVER_GRADES

    def _total(self, name: str, items: Sequence[results.Item]) -> Row:
        """Return the mean over all grades: an item with four weighs more than one with three."""
        return mean_row(name, items, [*MEASURES.values()], PERCENT, percent_of(SCALE))


def _overall(totals: str, model: str, value: float, **source: str) -> results.PublishedRow:
    row = f"Overall, {totals}"
    return results.PublishedRow(row=row, model=model, value=value, pairs=1267, **source)


_UNICOT = {"source": "Fr0zenCrane/UniCoT, README", "date": "2025-08", "judge": "not stated"}
_BAGEL = {
    "source": "ByteDance-Seed/Bagel, EVAL.md",
    "date": "2025-06",
    "judge": "gpt-4o-2024-11-20",
    "sampling": "cfg_text_scale 4, cfg_img_scale 1.5",
}
#: Uni-CoT's README repeats the paper's rows.
PUBLISHED = (
    _overall(OVER_ITEMS, "GPT-4o", 80.09, **_UNICOT),
    _overall(OVER_ITEMS, "Uni-CoT", 68.00, **_UNICOT),
    _overall(OVER_ITEMS, "Gemini 2.0", 62.41, **_UNICOT),
    _overall(OVER_ITEMS, "Step-3o vision", 61.43, **_UNICOT),
    _overall(OVER_ITEMS, "Doubao", 60.70, **_UNICOT),
    _overall(OVER_GRADES, "BAGEL with reasoning", 60.18, rewriting="by the model", **_BAGEL),
    _overall(OVER_GRADES, "BAGEL", 56.21, rewriting="none", **_BAGEL),
)


def grammar_of(names: tuple[str, ...], rule: str) -> Grammar:
    """Return the grammar of a reply with a grade for each name; `rule` is that of `compat`."""
    labels = tuple(f"{name}_score" for name in names)
    return Grammar("json", names, SCALE, whole=True, labels=labels, compat=rule)


def _frames(pair: EditPair) -> tuple[Parts, str]:
    """Return the frames in their order, with the edit where one is missing, and its number."""
    numbers = [int(number) for number in pair.fields["frames"].split(",")]
    missing = {1, 2, 3, 4} - {*numbers}
    edited = missing.pop() if len(missing) == 1 else max(numbers) + 1
    names = [*pair.images][: len(numbers)]
    frames = [(number, "Reference", name) for number, name in zip(numbers, names, strict=True)]
    frames.append((edited, "Generated", "edited"))
    parts: list[tuple[str, str]] = []
    for number, kind, name in sorted(frames, key=lambda frame: frame[0]):
        parts += [("text", f"Frame {number} ({kind}):"), ("image", name)]
    return tuple(parts), str(edited)


def _elements(pair: EditPair) -> Parts:
    parts: list[tuple[str, str]] = []
    names = [name for name in pair.images if name != "reference"]
    for number, name in enumerate(names, 1):
        parts += [("text", f"Reference Image {number}:"), ("image", name)]
    return (*parts, ("text", "Predicted Image:"), ("image", "edited"))
