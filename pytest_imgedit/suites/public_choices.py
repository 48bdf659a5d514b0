"""The public sets of people's choices between two edits, as their folders hold them."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.choices import NO_CATEGORY, Choice, Vote
from pytest_imgedit.core.images import FileImage
from pytest_imgedit.core.pairs import ImageSource
from pytest_imgedit.core.text import counted, shorten
from pytest_imgedit.suites import cells
from pytest_imgedit.suites.parquet import ParquetImage, hub_rows
from pytest_imgedit.suites.rows import SuiteRow

#: Votes of MMRB2 lie from 1 to 6, and those above this are for A.
_MIDDLE = 3
_BUILD = "build it in a clone of facebookresearch/MMRB2: python benchmark/build_from_hf.py"
_TIGER = "TIGER-Lab/EditReward-Bench"
_EDITSCORE = "EditScore/EditReward-Bench"
#: The dimension of EditReward-Bench that is about the whole edit.
_OVERALL = "overall"

#: Choices, and remarks on what was left out.
Found = tuple[list[Choice], tuple[str, ...]]


@dataclass(frozen=True)
class PublicChoices:
    """How a set is read from a folder, and the `hint` how its pictures are got."""

    read: Callable[[Path, str], Found]
    hint: str


def _read_mmrb2(folder: Path, spec: str) -> Found:
    """Read the edits of MMRB2 (arXiv 2512.16899) as its script builds them.

    Pairs with several pictures in one answer are left out.
    """
    candidates = [folder / "edit.json", folder / "benchmark" / "edit.json"]
    path = next((path for path in candidates if files.is_file(path)), None)
    if path is None:
        raise errors.UsageError(f"{spec}: no edit.json in {folder}; {_BUILD}")
    document = files.read_object(path, "an object with 'pairs'")
    pairs = document.get("pairs")
    if not isinstance(pairs, list):
        raise errors.UsageError(f"{path}: no list 'pairs', expected edit.json of MMRB2")
    choices = []
    left_out = 0
    for number, pair in enumerate(pairs, 1):
        place = f"{path}: pair {number}"
        choice = _mmrb2_choice(_Pair(place, pair, path.parent))
        if choice is None:
            left_out += 1
        else:
            choices.append(choice)
    remarks: tuple[str, ...] = ()
    if left_out:
        subject = counted(left_out, "pair")
        remarks = (f"{subject} with several pictures in one answer left out",)
    return choices, remarks


@dataclass(frozen=True)
class _Pair:
    """A pair of MMRB2 with its place; paths are relative to a folder."""

    place: str
    value: Any
    folder: Path

    def error(self, problem: str) -> errors.UsageError:
        return errors.UsageError(f"{self.place}: {problem}")

    def get(self, key: str, kind: type) -> Any:
        """Return the value of a key; raise `UsageError` unless it is of a kind."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        if not isinstance(value, kind):
            found = shorten(repr(value), 80)
            raise self.error(f"{key} is {found}, expected a value of type {kind.__name__}")
        return value

    def parts(self, key: str, content: object) -> list[tuple[str, str]]:
        """Return the texts and images of a list of `["text", TEXT]` and `["image", PATH]`."""
        parts: list[tuple[str, str]] = []
        for part in content if isinstance(content, list) else [None]:
            match part:
                case ["text" | "image" as kind, str(value)]:
                    parts.append((kind, value))
                case _:
                    found = shorten(repr(part), 80)
                    raise self.error(f'{key} has {found}, expected ["text", …] or ["image", …]')
        return parts

    def images(self, parts: Sequence[tuple[str, str]]) -> tuple[ImageSource, ...]:
        return tuple(FileImage(self.folder / value) for kind, value in parts if kind == "image")

    def response(self, key: str) -> tuple[ImageSource, ...]:
        response = self.get(key, dict)
        return self.images(self.parts(key, response.get("response_content")))


def _mmrb2_choice(pair: _Pair) -> Choice | None:
    """Return the choice of a pair; `None` if an answer has several pictures."""
    prompt = pair.parts("prompt_content", pair.get("prompt_content", list))
    sources = pair.images(prompt)
    instruction = " ".join(value.strip() for kind, value in prompt if kind == "text").strip()
    if not sources or not instruction:
        raise pair.error("prompt_content lacks a text or an image, expected both")
    answers = (pair.response("response_a"), pair.response("response_b"))
    if any(len(images) != 1 for images in answers):
        return None
    return Choice(
        id=pair.get("id", str),
        a=answers[0][0],
        b=answers[1][0],
        votes=_mmrb2_votes(pair),
        category=pair.get("prompt_source", str),
        source=sources[0],
        further=sources[1:],
        instruction=instruction,
        row=pair.place,
    )


def _mmrb2_votes(pair: _Pair) -> tuple[Vote, ...]:
    """Return the votes by their places in the list, as raters have no names; without votes, the
    choice alone.
    """
    if "human_annotations" not in pair.value:
        chosen = pair.get("chosen", str)
        if chosen not in ("A", "B"):
            raise pair.error(f"chosen is {shorten(repr(chosen), 80)}, expected 'A' or 'B'")
        return (Vote("a" if chosen == "A" else "b"),)
    votes = []
    for number, grade in enumerate(pair.get("human_annotations", list), 1):
        if not isinstance(grade, int) or not 1 <= grade <= 6:
            found = shorten(repr(grade), 80)
            raise pair.error(f"human_annotations has {found}, expected whole numbers from 1 to 6")
        votes.append(Vote("a" if grade > _MIDDLE else "b", str(number)))
    return tuple(votes)


def _read_editreward_bench(folder: Path, spec: str) -> Found:
    """Read EditScore's EditReward-Bench (arXiv 2509.23909): the rows of the dimension `overall`.

    Its first edit is always the better one. Half of the pairs are swapped here, by their ids.
    """
    if not any(folder.rglob("*.parquet")):
        raise errors.UsageError(
            f"{spec}: no parquet files in {folder}, expected those of {_EDITSCORE}"
        )
    rows = hub_rows(folder, spec, _EDITSCORE)
    if rows and "candidate_1" in rows[0].values:
        raise errors.UsageError(
            f"{spec}: {folder} holds {_TIGER}, another set, expected that of {_EDITSCORE}"
        )
    kept = [row for row in rows if row.values.get("dimension") == _OVERALL]
    remarks: tuple[str, ...] = ()
    if len(kept) < len(rows):
        others = len(rows) - len(kept)
        remarks = (f"{counted(others, 'row')} of dimensions other than {_OVERALL} left out",)
    return [_editreward_choice(row) for row in kept], remarks


def _editreward_choice(row: SuiteRow) -> Choice:
    """Return the choice of a row; raises `UsageError` if it lacks a text or an image."""
    keys: Any = row.values.get("key")
    edits: Any = row.values.get("output_images")
    source: Any = row.values.get("input_image")
    is_pair = isinstance(keys, list) and len(keys) == 2
    if not is_pair or not _are_images(edits, 2) or not _are_images([source], 1):
        raise row.error("no two 'key', two 'output_images' and an 'input_image', expected these")
    instruction = cells.as_text(row.values.get("instruction"))
    if instruction is None:
        raise row.error("no 'instruction', expected a text")
    name = "_".join(map(str, keys))
    better, worse = edits
    is_swapped = hashlib.sha256(name.encode()).digest()[0] % 2 == 1
    return Choice(
        id=name,
        a=worse if is_swapped else better,
        b=better if is_swapped else worse,
        votes=(Vote("b" if is_swapped else "a"),),
        category=cells.as_name(row.values.get("task_type")) or NO_CATEGORY,
        source=source,
        instruction=instruction,
        row=str(row),
    )


def _are_images(images: Any, count: int) -> bool:
    """Tell whether a cell holds so many images."""
    if not isinstance(images, list) or len(images) != count:
        return False
    return all(isinstance(image, ParquetImage) for image in images)


PUBLIC: Mapping[str, PublicChoices] = {
    "mmrb2": PublicChoices(_read_mmrb2, _BUILD),
    "editreward-bench": PublicChoices(
        _read_editreward_bench, f"pictures are in the parquet files of the hub's {_EDITSCORE}"
    ),
}
