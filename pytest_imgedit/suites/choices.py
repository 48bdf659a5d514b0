"""Reads people's choices between two edits: `FILE.csv`, `mmrb2:DIR` or `editreward-bench:DIR`."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.choices import NO_CATEGORY, Choice, Choices, Vote, Winner
from pytest_imgedit.core.images import FileImage
from pytest_imgedit.core.text import counted, did_you_mean, shorten
from pytest_imgedit.suites import cells
from pytest_imgedit.suites.public_choices import PUBLIC

#: The most bytes of a file of choices.
MAX_BYTES = 64 * 2**20
_REQUIRED = ("id", "a", "b", "winner", "rater")
_OPTIONAL = ("category", "source", "instruction")
_HEADER = "id,a,b,winner,rater[,category][,source,instruction]"
_WINNERS: Mapping[str, Winner] = {"a": "a", "b": "b", "tie": "tie"}
_MOST_SHOWN = 80
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


@dataclass
class _Row:
    """A row of a CSV file with its place, `FILE:LINE`; an empty or missing cell is an empty
    text.
    """

    place: str
    cells: Mapping[str, str | None]

    def text(self, column: str) -> str:
        with suppress(ValueError):
            return cells.as_name(self.cells.get(column)) or ""
        return ""

    def required(self, column: str, expected: str) -> str:
        text = self.text(column)
        if not text:
            raise errors.UsageError(
                f"{self.place}: {column} is {_shown(self.cells.get(column))}, expected {expected}"
            )
        return text

    @property
    def winner(self) -> Winner:
        text = self.text("winner")
        if text.casefold() not in _WINNERS:
            raise errors.UsageError(
                f"{self.place}: winner is {_shown(self.cells.get('winner'))}, expected a, b or tie"
            )
        return _WINNERS[text.casefold()]


def _shown(value: str | None) -> str:
    return shorten(repr(value or ""), _MOST_SHOWN)


def _read_csv(path: Path) -> list[Choice]:
    """Return the choices of a CSV file, one row a vote."""
    text = files.read_utf8(path, MAX_BYTES, "a CSV file")
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    choices: dict[str, Choice] = {}
    places: dict[tuple[str, str], str] = {}
    try:
        _check_header(path, list(rows.fieldnames or ()))
        for cells_of_row in rows:
            row = _Row(f"{path}:{rows.line_num}", cells_of_row)
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
                    f"{row.place}: rater {_shown(rater)} chooses again in id {_shown(choice.id)}, "
                    f"expected one row: the first is {places[choice.id, rater]}"
                )
            places[choice.id, rater] = row.place
    except csv.Error as error:
        problem = f"{path}:{rows.line_num + 1}: not valid CSV: {error}"
        raise files.unusable(path, "a CSV file", problem) from None
    return list(choices.values())


def _check_header(path: Path, header: Sequence[str]) -> None:
    for column in (*_REQUIRED, *_OPTIONAL):
        if header.count(column) > 1:
            raise errors.UsageError(f"{path}:1: twice column {column!r}, expected {_HEADER}")
        if column in _REQUIRED and column not in header:
            problem = f"{path}:1: no column {column!r}, expected {_HEADER}"
            raise files.unusable(path, "a CSV file", problem)
    if ("source" in header) != ("instruction" in header):
        raise errors.UsageError(
            f"{path}:1: one of the columns 'source' and 'instruction', expected both or none"
        )


def _choice_of_row(row: _Row, folder: Path) -> Choice:
    """Return the choice of a row, with its one vote; paths are relative to a folder."""
    source = row.text("source")
    instruction = row.text("instruction")
    if bool(source) != bool(instruction):
        raise errors.UsageError(
            f"{row.place}: source {_shown(source)} with instruction {_shown(instruction)}, "
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
                f"{first.row} for id {_shown(first.id)}"
            )


def _told(value: object) -> str:
    return _shown(str(value.path) if isinstance(value, FileImage) else str(value or ""))
