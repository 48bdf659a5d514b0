"""Reads people's choices between two edits: `FILE.csv`, `mmrb2:DIR` or `editreward-bench:DIR`."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.choices import NO_CATEGORY, Choice, Choices, Vote
from pytest_imgedit.core.images import FileImage
from pytest_imgedit.core.text import counted, did_you_mean
from pytest_imgedit.suites.public_choices import PUBLIC
from pytest_imgedit.suites.vote_rows import Layout, VoteRow, read_vote_rows, shown

_OPTIONAL = ("category", "source", "instruction")
_LAYOUT = Layout(
    _OPTIONAL,
    "id,a,b,winner,rater[,category][,source,instruction]",
    together=("source", "instruction"),
)
_FORMS = "FILE.csv, mmrb2:DIR or editreward-bench:DIR"


def read_choices(spec: str) -> Choices:
    """Read the choices that a spec names; no image of a file is opened.

    Raises `UsageError` for an unknown spec, for a row that says nothing clear, with its file and
    line, and if images are missing.
    """
    name, _, argument = spec.partition(":")
    hint = "paths are relative to the CSV file"
    if argument and name in PUBLIC:
        public = PUBLIC[name]
        hint = public.hint
        choices, remarks = public.read(Path(argument), spec)
        found = Choices(name, choices, remarks)
    elif spec.lower().endswith(".csv"):
        found = Choices(Path(spec).stem, _read_csv(Path(spec)))
    else:
        raise errors.UsageError(f"--people={spec}: no such choices, expected {_FORMS}{_hint(name)}")
    if not found.choices:
        raise errors.UsageError(f"{spec}: no choices, expected at least one")
    _require_images(spec, found.choices, hint)
    return found


def _hint(name: str) -> str:
    return "" if name in PUBLIC else did_you_mean(name, PUBLIC)


def _require_images(spec: str, choices: Iterable[Choice], hint: str) -> None:
    """Raise `UsageError` if the file of an image is not there."""
    images = (image for choice in choices for image in choice.images)
    paths = dict.fromkeys(image.path for image in images if isinstance(image, FileImage))
    missing = [path for path in paths if not files.is_file(path)]
    if missing:
        raise errors.UsageError(
            f"{spec}: {len(missing)} of {counted(len(paths), 'picture')} are missing, the first "
            f"is {missing[0]}; {hint}"
        )


def _read_csv(path: Path) -> list[Choice]:
    """Return the choices of a CSV file, one row a vote."""
    choices: dict[str, Choice] = {}
    places: dict[tuple[str, str], str] = {}
    for row in read_vote_rows(path, _LAYOUT):
        choice = _choice_of_row(row, path.parent)
        first = choices.get(choice.id)
        if first is None:
            choices[choice.id] = choice
        else:
            _require_same(first, choice)
            votes_so_far = (*first.votes, *choice.votes)
            choices[choice.id] = replace(first, votes=votes_so_far)
        rater = choice.votes[0].rater
        if (choice.id, rater) in places:
            raise errors.UsageError(
                f"{row.place}: rater {shown(rater)} chooses again in id {shown(choice.id)}, "
                f"expected one row: the first is {places[choice.id, rater]}"
            )
        places[choice.id, rater] = row.place
    return list(choices.values())


def _choice_of_row(row: VoteRow, folder: Path) -> Choice:
    """Return the choice of a row, with its one vote; paths are relative to a folder."""
    source = row.text("source")
    instruction = row.text("instruction")
    if bool(source) != bool(instruction):
        raise errors.UsageError(
            f"{row.place}: source {shown(source)} with instruction {shown(instruction)}, "
            "expected both or none"
        )
    vote = Vote(row.winner, row.required("rater", "a name"))
    return Choice(
        id=row.required("id", "an id"),
        a=FileImage(folder / row.required("a", "the path of a picture")),
        b=FileImage(folder / row.required("b", "the path of a picture")),
        votes=(vote,),
        category=row.text("category") or NO_CATEGORY,
        source=FileImage(folder / source) if source else None,
        instruction=instruction,
        row=row.place,
    )


def _require_same(first: Choice, again: Choice) -> None:
    """Raise `UsageError` if two rows of one id are not about the same edits."""
    for column in ("a", "b", *_OPTIONAL):
        expected = getattr(first, column)
        found = getattr(again, column)
        if found != expected:
            raise errors.UsageError(
                f"{again.row}: {column} is {_told(found)}, expected {_told(expected)} as in "
                f"{first.row} for id {shown(first.id)}"
            )


def _told(value: object) -> str:
    return shown(str(value.path) if isinstance(value, FileImage) else str(value or ""))
