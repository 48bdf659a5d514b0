"""The three questions of GEditBench v2 (arXiv 2603.28547) about two edits."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from statistics import fmean
from typing import Any, ClassVar

import yaml

from pytest_imgedit.core import errors, results
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import CHOICE_SCALE, Grammar
from pytest_imgedit.core.requests import Preparation
from pytest_imgedit.protocols import templates
from pytest_imgedit.protocols.prompts import PromptFiles, Prompts
from pytest_imgedit.protocols.protocol import Call, Parts, Protocol, Replies, Row, mean_row

#: What edits are compared by, in the order of the authors' names, each in a call of its own.
DIMENSIONS = ("instruction_following", "visual_quality", "visual_consistency")
_FILES = {
    dimension: f"src/prompts/assets/vlm/assessment/{dimension}/pairwise/v1.yaml"
    for dimension in DIMENSIONS
}
_SENT = Preparation(codec="png", max_side=1024)
#: The texts that the authors' code puts between two blocks of a question, by their kinds.
_BETWEEN = {("text", "image"): "", ("image", "text"): "\n", ("image", "image"): "\n\n"}
_OTHER = "\n"
#: The images of a question by what the authors' files call them.
_IMAGES = {
    ("input_image", None): "source",
    ("edited_images", 0): "first",
    ("edited_images", 1): "second",
}


class GEditV2(Protocol):
    """The pairwise questions of the authors' `assessment` prompts, version 1; ties are allowed.

    Quality is judged without the source and the instruction. The score is the mean of the three
    choices. Under `compat` a reply is read as the authors' code does. Both orders are asked under
    both variants, while that code asks in one.
    """

    name = "gedit-v2"
    scale = CHOICE_SCALE
    prompt_files = tuple(_FILES.values())
    pins: ClassVar[Mapping[str, str]] = {
        _FILES["instruction_following"]: (
            "d933ab549b65e1c2369f21f017e7fe44fe9be1ce1ae6096c0a2b3c4edc490e03"
        ),
        _FILES["visual_quality"]: (
            "7ea14f0705d3dfe8cb99105e16703e58e293c1c0c53b715bad9f9845c670f61d"
        ),
        _FILES["visual_consistency"]: (
            "3db025087377977c05a972684ef9e6c68ff66fca08e9ad817d8172f0461047bc"
        ),
    }

    def __init__(self, variant: results.Variant, prompts: Prompts) -> None:
        super().__init__(
            variant,
            PromptFiles(prompts.folder, self.prompt_files, self.pins, prompts.any_version),
        )

    @property
    def measures(self) -> Mapping[str, results.Measure]:
        return dict.fromkeys(DIMENSIONS, results.Measure(scale=CHOICE_SCALE, is_main=True))

    def calls(self, pair: EditPair) -> Sequence[Call]:
        """Return a call for each dimension; raises `UsageError` for a file of another form."""
        return [
            Call(
                dimension,
                _parts(self._blocks[dimension], pair),
                Grammar(
                    "choice-or-tie",
                    (dimension,),
                    CHOICE_SCALE,
                    labels=("winner",),
                    compat="gedit-v2",
                ),
                system=self._systems[dimension],
                preparation=_SENT,
                max_new_tokens=2048,
            )
            for dimension in DIMENSIONS
        ]

    @cached_property
    def _documents(self) -> dict[str, dict[str, Any]]:
        """What the files hold, by dimension; raises `UsageError` for one of another form."""
        documents = {}
        for dimension, name in _FILES.items():
            try:
                document = yaml.safe_load(self.prompts[name])
            except (yaml.YAMLError, RecursionError, ValueError):
                document = None
            if not isinstance(document, dict):
                raise _misfit(dimension, "no YAML table")
            documents[dimension] = document
        return documents

    @cached_property
    def _systems(self) -> dict[str, str]:
        """The system prompts by dimension."""
        systems = {}
        for dimension, document in self._documents.items():
            system = document.get("system_prompt", "")
            if not isinstance(system, str):
                raise _misfit(dimension, "its system_prompt is no text")
            systems[dimension] = system
        return systems

    @cached_property
    def _blocks(self) -> dict[str, Parts]:
        """The blocks of the user's turn by dimension: templates of texts, and names of images."""
        return {
            dimension: tuple(_blocks_of(dimension, document.get("user_prompt")))
            for dimension, document in self._documents.items()
        }

    def item(self, pair: EditPair, replies: Replies) -> Mapping[str, float]:
        """Return the choice of each dimension and their mean; nothing if `compat` cannot read one
        of them.
        """
        if any(dimension not in replies for dimension in DIMENSIONS):
            return {}
        choices = {dimension: replies[dimension][dimension] for dimension in DIMENSIONS}
        return {**choices, "score": fmean(choices.values())}

    def tables(self, items: Sequence[results.Item]) -> Sequence[Row]:
        """Return the mean shares of edits that are shown first."""
        return [mean_row(name, items, [name], self.scale) for name in ("score", *DIMENSIONS)]


def _misfit(dimension: str, found: str) -> errors.UsageError:
    name = PurePosixPath(_FILES[dimension])
    return errors.UsageError(
        f"protocol gedit-v2: {name}: {found}, expected the authors' file of version 1"
    )


def _blocks_of(dimension: str, blocks: Any) -> Iterator[tuple[str, str]]:
    """Yield the blocks of a user's turn; raises `UsageError` for any that is neither a text nor one
    of the known images.
    """
    if not isinstance(blocks, list):
        raise _misfit(dimension, "no list user_prompt")
    for block in blocks:
        if not isinstance(block, dict):
            raise _misfit(dimension, f"a block {block!a:.40}")
        image = block.get("image")
        if isinstance(block.get("text"), str):
            yield "text", block["text"]
        elif isinstance(image, dict) and _key(image) in _IMAGES:
            yield "image", _IMAGES[_key(image)]
        else:
            raise _misfit(dimension, f"a block {block!a:.40}")


def _key(image: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return by what an image of a file is known."""
    index = image.get("index")
    return str(image.get("source")), index if isinstance(index, int) else None


def _parts(blocks: Parts, pair: EditPair) -> Parts:
    """Return the parts of a question: its blocks about a pair, with the authors' texts between
    them, of which some are empty.
    """
    parts: list[tuple[str, str]] = []
    for kind, value in blocks:
        if parts:
            parts.append(("text", _BETWEEN.get((parts[-1][0], kind), _OTHER)))
        if kind == "text":
            value = templates.render(value, {"instruction": pair.instruction})
        parts.append((kind, value))
    return tuple(parts)
