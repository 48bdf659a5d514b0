"""Text from data, workers and judges, made safe to show, and the formats of numbers."""

import difflib
import json
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from pytest_imgedit.core.redaction import mask_shapes

#: Characters of a text that are masked where only its beginning is shown.
FAR = 100_000
#: Format characters of ordinary words and emoji: the soft hyphen, and joiners.
_JOINERS = "\u00ad\u200c\u200d"


def printable(text: str) -> str:
    """Make a text safe for a line of a terminal or a log: it controls neither the terminal nor a CI
    that reads it.
    """
    return disarmed(escaped(text))


def disarmed(text: str) -> str:
    """Break up commands to GitHub's runner: `::command::`, which wrapping may move to the start of
    a line, and `##[`.
    """
    while "::" in text or "##[" in text:
        text = text.replace("::", ": :").replace("##[", "# #[")
    return text


def escaped(text: str, keep: str = "", escape: Callable[[str], str] = ascii) -> str:
    """Replace characters that could control a terminal (controls, bidi, surrogates) by their
    escapes, except those of `keep`.

    `escape` returns a character's escape in quotes.
    """
    if text.isascii() and text.isprintable():
        return text
    keep += " \u3000"
    escapes = {
        ord(char): escape(char)[1:-1]
        for char in set(text)
        if unicodedata.category(char)[0] in "CZ" and char not in keep
    }
    return text.translate(escapes) if escapes else text


def readable(text: str) -> str:
    """Make a text of several lines safe for a page: line breaks and tabs stay, other control
    characters do not.
    """
    return escaped(text, keep="\n\t")


def escaped_json(text: str) -> str:
    """Replace such characters in a JSON text by escapes of JSON, of which a parser makes the same
    text again.
    """
    return escaped(text, keep="\n", escape=json.dumps)


def steering(text: str) -> str | None:
    """Name the first character that could control a terminal or the order of a line, such as
    `U+202E`, if any.
    """
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    bad = (char for char in text if unicodedata.category(char) in kinds and char not in _JOINERS)
    return next((f"U+{ord(char):04X}" for char in bad), None)


def one_line(error: BaseException) -> str:
    """Return the first line of an error's text, with the second if it only announces that one; or
    its type's name if it has no text.
    """
    try:
        text = str(error)
    except BaseException:  # a custom error may fail to format itself
        text = ""
    lines = [line for line in text.splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def shorten(text: str, most: int = 1000, mask: Callable[[str], str] = str) -> str:
    """Return a text that can be encoded, without what is masked, cut to `most` characters.

    Masking takes a second for a million characters, so what lies behind `FAR` is cut before.
    """
    shown = mask(text[:FAR]).encode("utf-8", "backslashreplace").decode("utf-8")
    is_whole = len(text) <= FAR and len(shown) <= most
    return shown if is_whole else f"{shown[:most]}… ({len(text)} characters)"


def message(error: BaseException) -> str:
    """Return the text of an error, without secrets, safe for a line of a terminal.

    Messages cut their long values themselves; the middle of a whole text is left out as a last
    resort.
    """
    text = mask_shapes(str(error))
    return printable(text if len(text) <= 4000 else f"{text[:2000]} … {text[-1000:]}")


def plain(text: str) -> str:
    """Break up a chat model's control tokens in a text, such as `<|im_end|>`."""
    return text.replace("<|", "< |")


def first_of(names: Sequence[str], most: int = 5) -> str:
    """List the first names, and count the others: `a, b and 3 more`."""
    others = len(names) - most
    listed = ", ".join(names[:most])
    return f"{listed} and {others} more" if others > 0 else listed


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: `1 pair`, `3 pairs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the known word nearest to a mistyped one, or an empty text
    if none is near.
    """
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.7)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def number(value: float | None, digits: int = 2) -> str:
    """Format a number; `None` is a dash."""
    return "–" if value is None else f"{value:.{digits}f}"


def interval(ends: tuple[float, float] | None, signs: bool = False, digits: int = 2) -> str:
    """Format an interval, with `signs` if it is one of differences; `None` is a dash."""
    if ends is None:
        return "–"
    form = signed if signs else number
    return " to ".join(form(end, digits) for end in ends)


def p_value(p: float) -> str:
    """Format a p-value."""
    return "p <0.001" if p < 0.001 else f"p {p:.2g}"


def signed(value: float | None, digits: int = 2) -> str:
    """Format a difference with its sign; `None` is a dash, and values that round to zero are
    +0.00.
    """
    return "–" if value is None else f"{round(value, digits) + 0.0:+.{digits}f}"
