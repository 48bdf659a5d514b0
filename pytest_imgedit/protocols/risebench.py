"""RISEBench (arXiv 2504.02826): up to three calls by category and fields, score and accuracy."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from pytest_imgedit.core import results
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import Grammar
from pytest_imgedit.core.requests import Preparation
from pytest_imgedit.protocols.protocol import (
    PERCENT,
    Call,
    Protocol,
    Replies,
    Row,
    grades_of,
    mean_row,
    percent_of,
)

SCALE = (1.0, 5.0)
CATEGORIES = ("temporal", "causal", "spatial", "logical")
MEASURES = ("reasoning", "consistency", "plausibility")
_SENT = Preparation(codec="jpeg", max_side=768, detail="high")


class RiseBench(Protocol):
    """The protocol of RISEBench, as in the authors' `gpt_eval.py` since April 2026.

    Their code weighs an item without consistency wrongly: once any row of the data names
    `consistency_free`, every row counts as one of these. `strict` weighs as the paper says,
    `compat` as the code does, by which published scores were made.
    """

    name = "risebench"
    scale = SCALE
    prompt_files = ("utils.py",)
    pins: ClassVar[Mapping[str, str]] = {
        "prompt_consist": "84b272d821670cd2466866e27d80bed659dc677964a62a2c1459ad673c4eaf70",
        "prompt_reasoning": "2a1a3394442065a25958b03047158bf670dbb0c771c5d9a7d299cdc02eb0c25b",
        "prompt_reasoning_w_input": (
            "b781425c015b41a646eae87dea188b871f89a4749a8911281e1e3ac52f050cd0"
        ),
        "prompt_generation": ("2d607960deffa2e1b5178bfbf9f06c865654ddbe35b249caa9e59c616ff6c916"),
        "prompt_spatial_ref": ("df84b77e28183eddb0e822170970bec0a85302844ffae3c4a0effde7ada5279b"),
        "prompt_spatial_ref_img": (
            "4e043b8e696d40a4be73538134b4182dc5a87a354e5878983c943a536e22e25d"
        ),
        "prompt_spatial_ref_w_input": (
            "444d3a201c30fb2fe2a88e48aca355c4f075f655c2edc4ae50a6e1fb263c668d"
        ),
        "prompt_spatial_qual": ("3bead46a4b0bcf295700caec5c116809dd72d4a03a750f7bb9da3e2563123c80"),
        "prompt_spatial_cons": ("b20ca629d36da9cf2fa591ef3c1dd5909177b4d245172479345d6fa137c4c55e"),
        "prompt_logical_cons_ans": (
            "28a6dd5a2e714acf681455acbf8dc01491559ecdcc54523e50a382d1c4689aaf"
        ),
        "prompt_logical_cons": ("49b6870dfb1b4cb64e303d27845794e403d48ef877b85178fea9c48a425475c1"),
        "prompt_logical_txt": ("6719763c72ab8ef9e015ed4efe3ef96c4cd01c0c2cda8457cad1a91ac69eb956"),
        "prompt_logical_img": ("ce89313d6047592decded49f4324000ced3c91f87153ca458dc1f55634e08cd6"),
        "prompt_logical_img_wo_q": (
            "8cd49d5335cd303c810affa011b21dcd1416fcbb76df00f175ee3af949dcaa8d"
        ),
    }

    @property
    def measures(self) -> Mapping[str, results.Measure]:
        grades = dict.fromkeys(MEASURES, results.Measure(scale=SCALE, is_main=True))
        return {**grades, "accuracy": results.Measure(scale=(0.0, 1.0))}

    @property
    def published(self) -> tuple[results.PublishedRow, ...]:
        return tuple(
            results.PublishedRow(
                row="Overall accuracy %",
                model=model,
                value=value,
                pairs=360,
                source="PhoenixZ810/RISEBench, README",
                date="2026-05",
                judge="gpt-4.1-2025-04-14",
                order="text first",
            )
            for model, value in PUBLISHED.items()
        )

    def calls(self, pair: EditPair) -> Sequence[Call]:
        shown, prompts = _prompts_of(pair)
        values = {"instruct": pair.instruction, "reference": pair.reference_text}
        sees_both = pair.category != "logical" and "reasoning_img" in pair.fields
        if shown == "reference":
            sees_both = True
        images = {
            "consistency": (shown, "edited"),
            "reasoning": (shown, "edited") if sees_both else ("edited",),
            "plausibility": ("edited",),
        }
        scale = (0.0, 1.0) if pair.category == "logical" else SCALE
        return [
            Call(
                name,
                (
                    ("text", self.prompts.filled(prompt, values, _UNFORMATTED)),
                    *(("image", image) for image in images[name]),
                ),
                Grammar("final", (name,), scale, whole=True),
                preparation=_SENT,
                max_new_tokens=4096,
            )
            for name, prompt in prompts.items()
        ]

    def item(self, pair: EditPair, replies: Replies) -> Mapping[str, float]:
        grades = grades_of(replies)
        if len(replies) < len(_prompts_of(pair)[1]):
            return {}
        if pair.category == "logical":
            grades = {name: 4 * grade + 1 for name, grade in grades.items()}
        is_right = all(grade == SCALE[1] for grade in grades.values())
        score = self._score(pair, grades)
        if grades["reasoning"] == 1:
            score = max(1.0, score / 2)
        return {**grades, "score": score, "accuracy": float(is_right)}

    def _score(self, pair: EditPair, grades: Mapping[str, float]) -> float:
        if pair.category == "logical":
            return 0.3 * grades["consistency"] + 0.7 * grades["reasoning"]
        is_free = "consistency" not in grades
        if is_free or (self.variant == "compat" and "has_consistency_free" in pair.fields):
            return 0.2 * grades["plausibility"] + 0.8 * grades["reasoning"]
        return (
            0.3 * grades["consistency"] + 0.5 * grades["reasoning"] + 0.2 * grades["plausibility"]
        )

    def tables(self, items: Sequence[results.Item]) -> Sequence[Row]:
        """Return score and accuracy over all items, by category and by subtask; then the grades.

        An item whose replies could not be read has no score, and counts as wrong.
        """
        rows = _rows("Overall", items)
        for category in CATEGORIES:
            rows += _rows(category.title(), [item for item in items if item.category == category])
        for measure in MEASURES:
            rows.append(mean_row(measure.title(), items, [measure], SCALE, decimals=4))
        for subtask in dict.fromkeys(tag for item in items for tag in item.tags):
            members = [item for item in items if subtask in item.tags]
            rows += [replace(row, is_detail=True) for row in _rows(subtask, members)]
        return rows


#: Accuracy over all pairs, in percent.
PUBLISHED = {
    "GPT-Image-1.5": 51.4,
    "GPT-Image-2": 49.4,
    "Gemini-3-pro-image-preview": 48.3,
    "Gemini-2.5-Flash-Image": 33.9,
    "GPT-Image-1": 30.0,
    "GPT-Image-1-mini": 25.3,
    "Qwen-Image-Edit-2511": 19.4,
    "BAGEL with reasoning": 15.8,
    "Gemini-2.0-Flash-exp": 13.9,
    "Seedream-4.0": 12.2,
    "Gemini-2.0-Flash-pre": 10.0,
    "Qwen-Image-Edit-2509": 9.2,
    "BAGEL": 5.8,
    "FLUX.1-Kontext-Dev": 5.8,
    "Ovis-U1": 2.8,
    "Step1X-Edit": 1.9,
    "OmniGen": 0.8,
    "EMU2": 0.5,
    "HiDream-Edit": 0.0,
    "FLUX.1-Canny": 0.0,
}
#: Prompts that the authors do not format.
_UNFORMATTED = ("prompt_generation", "prompt_spatial_qual", "prompt_logical_img_wo_q")


def _prompts_of(pair: EditPair) -> tuple[str, dict[str, str]]:
    """Return the image that is compared with the edit, and the prompt of each call."""
    fields = pair.fields
    shown = "reference" if "reference_img" in fields else "source"
    if pair.category == "logical":
        if "reference_txt" in fields:
            prompts = {
                "consistency": "prompt_logical_cons_ans",
                "reasoning": "prompt_logical_txt",
            }
            return "source", prompts
        reasoning = "prompt_logical_img"
        if "reasoning_wo_ins" in fields:
            reasoning = "prompt_logical_img_wo_q"
        return "reference", {"consistency": "prompt_logical_cons", "reasoning": reasoning}
    if pair.category == "spatial":
        reasoning = "prompt_spatial_ref"
        if shown == "reference":
            reasoning = "prompt_spatial_ref_img"
        elif "reasoning_img" in fields:
            reasoning = "prompt_spatial_ref_w_input"
        prompts = {
            "consistency": "prompt_spatial_cons",
            "reasoning": reasoning,
            "plausibility": "prompt_spatial_qual",
        }
    else:
        shown = "source"
        reasoning = "prompt_reasoning"
        if "reasoning_img" in fields:
            reasoning = "prompt_reasoning_w_input"
        prompts = {
            "consistency": "prompt_consist",
            "reasoning": reasoning,
            "plausibility": "prompt_generation",
        }
    if "consistency_free" in fields:
        del prompts["consistency"]
    return shown, prompts


def _rows(name: str, items: Sequence[results.Item]) -> list[Row]:
    right = [100 * item.aspects.get("accuracy", 0.0) for item in items]
    return [
        mean_row(f"{name} score", items, ["score"], SCALE, decimals=4),
        mean_row(f"{name} score %", items, ["score"], PERCENT, percent_of(SCALE)),
        Row(f"{name} accuracy %", right, [item.cluster for item in items], scale=PERCENT),
    ]
