"""Public benchmarks in miniature, in the layout that people have on disk, with prompts of our own;
and a judge that replies from a script.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from PIL import Image

from pytest_imgedit import Answer
from pytest_imgedit.protocols.gedit_v2 import DIMENSIONS
from pytest_imgedit.protocols.kris import Kris
from pytest_imgedit.protocols.omnicontext import OmniContext
from pytest_imgedit.protocols.omnicontext_rows import TASKS
from pytest_imgedit.protocols.risebench import RiseBench
from pytest_imgedit.suites import gedit, imgedit, kris

#: What makes a run take these prompts.
ANY_VERSION = "--imgedit-set=judge.any_version=true"


def picture(path: Path, number: int, size: tuple[int, int] = (64, 48)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    color = (40 * number % 256, 90, 200 - 30 * number % 200)
    image = Image.new("RGB", size, color)
    image.paste((255, 255, 255), (8, 8, 20, 20))
    image.save(path)
    return path


def _constants(path: Path, **texts: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name} = {text!r}\n" for name, text in texts.items()))


def make_gedit(folder: Path, a_group: int = 1) -> Path:
    """Parquet files of the hub, two languages, beside a clone with the prompts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = []
    for number, (group, language) in enumerate(
        (group, language)
        for group in gedit.GROUPS
        for language in ("en", "cn")
        for _ in range(a_group)
    ):
        path = picture(folder / "made" / f"{number}.png", number)
        image = {"bytes": path.read_bytes(), "path": path.name}
        rows.append(
            {
                "key": f"{number:032x}",
                "task_type": group,
                "instruction": f"change {number}",
                "instruction_language": language,
                "input_image": image,
                "input_image_raw": image,
                "Intersection_exist": number % 4 == 0 or number % 4 == 1,
            }
        )
    (folder / "data").mkdir()
    pq.write_table(
        pa.Table.from_pylist(rows), folder / "data" / "train-0.parquet", row_group_size=100
    )
    _constants(
        folder / "Step1X-Edit" / "GEdit-Bench" / "viescore" / "vie_prompts.py",
        _context_no_delimit="Judge as JSON.",
        _prompts_0shot_two_image_edit_rule="Two images.",
        _prompts_0shot_tie_rule_SC="[SC] <instruction>",
        _prompts_0shot_rule_PQ="[PQ]",
    )
    return folder


def make_imgedit(folder: Path) -> Path:
    """What `Benchmark.tar` of the hub holds."""
    root = folder / "Benchmark" / "singleturn"
    pairs = {}
    for number, kind in enumerate(imgedit.TYPES):
        picture(root / "animal" / f"{number}.jpg", number)
        pairs[str(1000 + number)] = {
            "id": f"animal/{number}.jpg",
            "prompt": f"change {number}",
            "edit_type": kind,
        }
    (root / "singleturn.json").write_text(json.dumps(pairs))
    prompts = {kind: f"[{kind}] <edit_prompt>" for kind in imgedit.TYPES}
    (root / "judge_prompt.json").write_text(json.dumps(prompts))
    return folder


def make_kris(folder: Path) -> Path:
    """A folder for each category, and the authors' prompts."""
    for number, category in enumerate(kris.CATEGORIES):
        root = folder / "KRIS_Bench" / category
        several = category in ("temporal_prediction", "multi-element_composition")
        names = [f"1-{frame}.png" for frame in (1, 2, 4)] if several else ["1.png"]
        for place, name in enumerate(names):
            picture(root / name, number + 3 * place)
        picture(root / "gt.png", number + 1)
        entry = {
            "ori_img": names if several else names[0],
            "gt_img": "gt.png" if category == "viewpoint_change" else "",
            "ins_en": f"change {number}",
            "explain_en": f"because {number}",
        }
        (root / "annotation.json").write_text(json.dumps({"1": entry}))
    texts = {name: f"[{name}] {{instruct}}" for name in Kris.pins}
    texts |= {
        "prompt_dual_evaluation": "[prompt_dual_evaluation] {instruct} {explanation}",
        "prompt_quality": "[prompt_quality] {{as it is}}",
    }
    _constants(folder / "utils" / "prompts.py", **texts)
    return folder


#: Source images of each task, and the size of one with more than 1024² pixels.
SOURCES = dict(zip(TASKS, (1, 1, 2, 2, 2, 2, 3, 3), strict=True))
LARGE = (1300, 1001)


def make_omnicontext(folder: Path, languages: tuple[str, ...] = ("en",)) -> Path:
    """Parquet files of the hub, a pair of each task and language, beside a clone with the
    prompts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = []
    for number, (task, language) in enumerate(
        (task, language) for task in TASKS for language in languages
    ):
        images = []
        for index in range(SOURCES[task]):
            size = LARGE if task == "scene_object" and index == 1 else (70, 49)
            path = picture(folder / "made" / f"{task}-{index}.png", number + 3 * index, size)
            images.append({"bytes": path.read_bytes(), "path": path.name})
        rows.append(
            {
                "task_type": task,
                "key": f"{len(rows) // 3:04}",  # one within its task, not among all
                "instruction": f"join {number}",
                "instruction_language": language,
                "input_images": images,
            }
        )
    (folder / "data").mkdir()
    pq.write_table(
        pa.Table.from_pylist(rows),
        folder / "data" / "train-00000-of-00001.parquet",
        row_group_size=3,
    )
    texts = {
        name: f"[omni{name.removeprefix(_OMNI)}] <instruction>"
        for name in OmniContext.pins
        if name.startswith(_OMNI)
    }
    clone = folder / "OmniGen2" / "omnicontext" / "prompt_generator.py"
    _constants(clone, _context_no_delimit="Judge as JSON.\n", **texts)
    return folder


#: How the names of OmniContext's prompts begin.
_OMNI = "_prompts_0shot_in_context_generation_rule_"


def make_genarena(folder: Path) -> Path:
    """Parquet files of the hub, three pairs of each subset, beside a clone with the prompt."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for subset, sources in (("basic", 1), ("multiref", 3), ("reasoning", 1)):
        rows = []
        for number in range(3):
            images = [
                picture(folder / "made" / f"{subset}-{number}-{place}.png", number + 3 * place)
                for place in range(sources)
            ]
            rows.append(
                {
                    "index": number,
                    "task_type": f"task {number % 2}",
                    "instruction": f"{subset} {number}",
                    "input_images": [
                        {"bytes": path.read_bytes(), "path": path.name} for path in images
                    ],
                    "prompt_source": "made up",
                    "original_metadata": {"id": f"{number}"},
                }
            )
        (folder / subset).mkdir()
        for number, part in enumerate((rows[:2], rows[2:])):
            path = folder / subset / f"data-{number:05}-of-00002.parquet"
            pq.write_table(pa.Table.from_pylist(part), path)
    prompt = "[genarena] Which one?"
    _constants(folder / "clone" / "genarena" / "prompts" / "mmrb2.py", PROMPT_TEXT=prompt)
    return folder


def make_gedit_v2(folder: Path) -> Path:
    """A parquet file of the hub, four pairs, beside a clone with the prompts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = []
    for number in range(4):
        path = picture(folder / "made" / f"{number}.png", number)
        rows.append(
            {
                "key": f"{number:08x}",
                "task": f"task {number % 2}",
                "instruction": f"change {number}",
                "source_image": {"bytes": path.read_bytes(), "path": path.name},
            }
        )
    (folder / "data").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "data" / "train-0.parquet")
    for dimension in DIMENSIONS:
        is_quality = dimension == "visual_quality"
        place = f"src/prompts/assets/vlm/assessment/{dimension}/pairwise/v1.yaml"
        path = folder / "clone" / place
        path.parent.mkdir(parents=True)
        path.write_text(_QUALITY if is_quality else _WITH_SOURCE.format(dimension=dimension))
    return folder


_EDITS = """\
  - image:
      source: edited_images
      index: 0
  - text: |
      B:
  - image:
      source: edited_images
      index: 1
metadata: {}
"""
_QUALITY = f"""\
system_prompt: >
  You compare
  pictures.
user_prompt:
  - text: |
      [visual_quality] Which one? Say {{"winner": "…"}}

      A:
{_EDITS}"""
_WITH_SOURCE = f"""\
system_prompt: You compare.
user_prompt:
  - text: |
      [{{dimension}}] {{{{{{{{ instruction }}}}}}}}
      Source:
  - image:
      source: input_image
  - text: |
      A:
{_EDITS.replace("{}", "{{}}")}"""


def make_risebench(folder: Path) -> Path:
    """Two pairs of each category, among them each kind of reference, and the authors' prompts."""
    rows = []
    for category in ("temporal", "causal", "spatial", "logical"):
        for number in (1, 2):
            name = f"{category}_reasoning_{number}"
            image = f"{category}_reasoning_images/{number}.png"
            picture(folder / "data" / image, number)
            row = {
                "index": name,
                "category": f"{category}_reasoning",
                "instruction": f"change {name}",
                "image": image,
                "reference": f"right {name}",
                "subtask": f"{category} task {number}",
            }
            rows.append(row)
    rows[1]["consistency_free"] = True
    rows[2]["reasoning_img"] = True
    for row in (rows[5], rows[6]):
        row["reference_img"] = row["image"].replace(".png", "_ref.png")
        picture(folder / "data" / row["reference_img"], 9)
    rows[7]["reference_txt"] = "the answer"
    (folder / "data" / "datav2_total_w_subtask.json").write_text(json.dumps(rows))
    plain = ("prompt_generation", "prompt_spatial_qual", "prompt_logical_img_wo_q")
    texts = {name: f"[{name}] {{instruct}}" for name in RiseBench.pins}
    _constants(folder / "utils.py", **texts | {name: f"[{name}] {{as it is}}" for name in plain})
    return folder


MAKE = {
    "gedit": make_gedit,
    "imgedit": make_imgedit,
    "kris": make_kris,
    "omnicontext": make_omnicontext,
    "risebench": make_risebench,
}


class Judge:
    """Replies in the form that the prompt of a miniature asks for: with `grade`, but with the text
    `odd` to what holds `at`.
    """

    batch_size = 4

    def __init__(self, *, device: str, grade: int = 4, odd: str = "", at: str = "") -> None:
        self.grade, self.odd, self.at = grade, odd, at

    def answer(self, questions):
        return [Answer(self.reply(question)) for question in questions]

    def reply(self, question) -> str:
        text = " ".join(text for kind, text in question.parts if kind == "text")
        if self.at and self.at in text:
            return self.odd
        mark = text.partition("]")[0].rpartition("[")[2]
        if mark in ("SC", "PQ"):
            return f'{{"score": [{self.grade}, {self.grade + 1}], "reasoning": "x"}}'
        if mark.startswith("omni"):
            return json.dumps({"score": self.grade + ("SC" in mark), "reasoning": "x"})
        if mark in LABELS:
            return "\n".join(f"{label}: {self.grade}" for label in LABELS[mark])
        if "dual" in mark:
            return f'{{"instruction_score": {self.grade}, "knowledge_score": {self.grade - 1}}}'
        for name in ("consist", "instruction", "quality"):
            if mark.startswith("prompt_") and name in mark and "logical" not in mark:
                long = {"consist": "consistency"}.get(name, name)
                rise = f"\nFinal Score: {self.grade}"
                return f'{{"{long}_score": {self.grade}}}{rise}'
        return f"**Final Score**: **{1 if 'logical' in mark else self.grade}**"


class Refuses(Judge):
    """Refuses to judge the first pair."""

    def answer(self, questions):
        return [
            Answer(error="the model refuses to answer: content filter", refused=True)
            if question.pair_id == "1000"
            else Answer(self.reply(question))
            for question in questions
        ]


class Attempts(Judge):
    """Replies to the n-th question that holds `asked` with the n-th of `replies`; to any other as a
    `Judge` does.
    """

    def __init__(self, *, device: str, replies: list[str], asked: str) -> None:
        super().__init__(device=device)
        self.replies, self.asked = iter(replies), asked

    def reply(self, question) -> str:
        text = " ".join(text for kind, text in question.parts if kind == "text")
        return next(self.replies) if self.asked in text else super().reply(question)


class Sizes(Judge):
    """Gives full marks to edits of the size of the source, in every call."""

    def answer(self, questions):
        return [
            Answer(
                json.dumps(
                    {"score": [10, 10] if question.images["edited"].size == (64, 48) else [0, 0]}
                )
            )
            for question in questions
        ]


class Enlarge:
    """Doubles the size of the source."""

    def __init__(self, *, device: str) -> None: ...

    def edit(self, request):
        width, height = request.source.size
        return request.source.resize((2 * width, 2 * height))


class SideBySide:
    """Shows all source images side by side, in the size of the edited one."""

    max_sources = 3

    def __init__(self, *, device: str) -> None: ...

    def edit(self, request):
        width, height = request.source.size
        edited = Image.new("RGB", (width, height))
        for place, image in enumerate(request.sources):
            narrow = image.resize((width // len(request.sources), height))
            edited.paste(narrow, (place * narrow.width, 0))
        edited.paste((0, 0, 0), (0, 0, width, height // 4))
        return edited


class Words:
    """Makes another picture of each instruction."""

    def __init__(self, *, device: str) -> None: ...

    def edit(self, request):
        image = request.source.copy()
        image.putpixel((0, 0), tuple(hashlib.sha256(request.instruction.encode()).digest()[:3]))
        image.paste((0, 0, 0), (30, 20, 50, 40))
        return image


LABELS = {
    "add": ("Prompt Compliance", "Visual Naturalness", "Physical & Detail Coherence"),
    "adjust": ("Prompt Compliance", "Visual Seamlessness", "Physical & Detail Fidelity"),
    "extract": ("Object Identity", "Mask Precision", "Visual Quality"),
    "replace": ("Prompt Compliance", "Visual Naturalness", "Physical & Detail Integrity"),
    "remove": ("Prompt Compliance", "Visual Naturalness", "Physical & Detail Integrity"),
    "background": ("Instruction Compliance", "Visual Seamlessness", "Physical Consistency"),
    "style": ("Style Fidelity", "Content Preservation", "Rendering Quality"),
    "compose": (
        "Instruction Compliance",
        "Visual Naturalness",
        "Physical Consistency & Fine Detail",
    ),
    "action": ("Action Fidelity", "Identity Preservation", "Visual & Anatomical Coherence"),
}


class Numbers(Judge):
    """Gives a number by the pair's id, as `number_of` does; every ninth reply holds none."""

    def answer(self, questions):
        return [Answer(number_of(question.pair_id) or "Hard to say.") for question in questions]


def number_of(pair_id: str) -> str:
    """The reply to a pair; empty for one that holds no number."""
    value = int(hashlib.sha256(pair_id.encode()).hexdigest(), 16)
    return f"{value % 101 / 10}" if value % 9 else ""


class Page(Judge):
    """Replies to the protocols of the page on protocols."""

    def answer(self, questions):
        return [Answer(self.reply(question)) for question in questions]

    def reply(self, question) -> str:
        text = " ".join(text for kind, text in question.parts if kind == "text")
        if "Reply as JSON" in text:
            return '{"change": 4}'
        return "3" if "good picture" in text else "1"
