"""What a store's journals hold, typed: a record that does not fit is refused when it is read."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pytest_imgedit.core.environments import Environment
from pytest_imgedit.core.results import Sha256, Signature
from pytest_imgedit.core.strict_json import JsonObject

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Grade = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Record(BaseModel):
    """One line of a journal. Its key is the hash of its recipe and its environment, `content` that
    of the recipe.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    key: Sha256
    content: Sha256
    recipe: JsonObject
    environment: Environment


class EditRecord(Record):
    """One edit; `blob` is its image, `code` further files that its class imported, the rest as in
    `Edit`.
    """

    blob: Sha256
    seconds: Seconds
    worker: str
    near_copy: bool
    width: Annotated[int, Field(ge=1)]
    height: Annotated[int, Field(ge=1)]
    reframed: bool
    batch_size: Annotated[int, Field(ge=1)]
    signature: Signature
    code: dict[str, Sha256] = Field(default_factory=dict)


class VerdictRecord(Record):
    """One verdict. `measured` says that the judge gave the score itself, rather than a reply to
    read.

    `asked` counts the questions that it took, the last of which ended with the text `reminder`.
    """

    reply: str
    aspects: dict[str, Finite]
    score: Grade
    batch_size: Annotated[int, Field(ge=1)]
    greedy: Grade | None
    off_scale: Share | None
    measured: bool
    asked: Annotated[int, Field(ge=1)]
    reminder: str = ""
    code: dict[str, Sha256] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_what_was_asked_for(self) -> VerdictRecord:
        """A reply that was read gave a grade in [0, 10] for each aspect of the rubric; what is
        measured may be any.
        """
        if self.measured:
            return self
        asked = self.recipe.get("asked")
        if not isinstance(asked, dict) or sorted(self.aspects) != sorted(
            map(str, asked.get("aspects") or ())
        ):
            raise ValueError(f"aspects are {sorted(self.aspects)}, expected those of the recipe")
        outside = next((name for name, value in self.aspects.items() if not 0 <= value <= 10), None)
        if outside is not None:
            raise ValueError(
                f"aspect {outside!r} is {self.aspects[outside]}, expected a grade from 0 to 10"
            )
        return self


class ModelRecord(BaseModel):
    """What an editor or judge is made of; the recipes of its edits or verdicts hold its key."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    key: Sha256
    recipe: JsonObject
