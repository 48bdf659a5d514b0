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
#: Categories of characters that control: controls, formats, surrogates, and two line breaks.
_STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")
#: Characters of the longest message that is shown whole, and of a longer one's ends.
_MAX_MESSAGE = 4000
_MESSAGE_HEAD = 2000
_MESSAGE_TAIL = 1000


def printable(text: str) -> str:
    """Return a text that is safe on a line of a terminal or a log: it controls neither the terminal
    nor a CI that reads it.
    """
    return disarmed(escaped(text))


def disarmed(text: str) -> str:
    """Return a text with the commands to GitHub's runner broken up: `::command::`, which wrapping
    may move to the start of a line, and `##[`.
    """
    while "::" in text or "##[" in text:
        text = text.replace("::", ": :").replace("##[", "# #[")
    return text


def escaped(text: str, keep: str = "", escape: Callable[[str], str] = ascii) -> str:
    """Return a text with escapes for characters that could control a terminal (controls, bidi,
    surrogates) and for odd blanks, except those of `keep`.

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
    """Return a text of several lines that is safe on a page: line breaks and tabs stay, other
    characters are escaped as by `escaped`.
    """
    return escaped(text, keep="\n\t")


def escaped_json(text: str) -> str:
    """Return a JSON text with the characters that `escaped` replaces as escapes of JSON, which a
    parser reads as the same characters.
    """
    return escaped(text, keep="\n", escape=json.dumps)


def steering(text: str) -> str | None:
    """Return the code point, such as `U+202E`, of the first character that could control a terminal
    or the order of a line; `None` if there is none.
    """
    for char in text:
        if unicodedata.category(char) in _STEERING and char not in _JOINERS:
            return f"U+{ord(char):04X}"
    return None


def one_line(error: BaseException) -> str:
    """Return the first line of an error's text that is not blank, with the next one if it ends in a
    colon; the name of the error's type if it has no text.
    """
    try:
        text = str(error)
    except BaseException:  # a custom error may fail to format itself
        text = ""
    lines = [line for line in text.splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def shorten(text: str, most: int = 1000, mask: Callable[[str], str] = str) -> str:
    """Return a text that can be encoded, with its secrets masked by `mask`, cut to `most`
    characters; a text that is cut tells its length.

    Masking takes a second for a million characters, so only the first `FAR` ones are masked.
    """
    shown = mask(text[:FAR]).encode("utf-8", "backslashreplace").decode("utf-8")
    is_whole = len(text) <= FAR and len(shown) <= most
    return shown if is_whole else f"{shown[:most]}… ({len(text)} characters)"


def message(error: BaseException) -> str:
    """Return the text of an error, without secrets, safe for a line of a terminal.

    Messages cut their long values themselves. As a last resort, the middle of a text over
    `_MAX_MESSAGE` characters is left out.
    """
    text = mask_shapes(str(error))
    if len(text) > _MAX_MESSAGE:
        text = f"{text[:_MESSAGE_HEAD]} … {text[-_MESSAGE_TAIL:]}"
    return printable(text)


def plain(text: str) -> str:
    """Return a text with a chat model's control tokens, such as `<|im_end|>`, broken up."""
    return text.replace("<|", "< |")


def first_of(names: Sequence[str], most: int = 5) -> str:
    """Return the first names in a list, and the number of the others: `a, b and 3 more`."""
    others = len(names) - most
    listed = ", ".join(names[:most])
    return f"{listed} and {others} more" if others > 0 else listed


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 pair`, `3 pairs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the known word nearest to a mistyped one, or an empty text
    if none is near.
    """
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.7)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def number(value: float | None, digits: int = 2) -> str:
    """Return a number with `digits` decimals; `None` is a dash."""
    return "–" if value is None else f"{value:.{digits}f}"


def interval(ends: tuple[float, float] | None, signs: bool = False, digits: int = 2) -> str:
    """Return an interval as text, with `signs` if it is one of differences; `None` is a dash."""
    if ends is None:
        return "–"
    form = signed if signs else number
    return " to ".join(form(end, digits) for end in ends)


def percent(share: float | None) -> str:
    """Return a share as a percentage with one decimal; `None` is a dash."""
    return "–" if share is None else f"{100 * share:.1f}%"


def percent_interval(ends: tuple[float, float] | None) -> str:
    """Return an interval of a share in brackets after a space, without signs: ` (58.6 to 64.7)`;
    `None` is an empty text.
    """
    return "" if ends is None else f" ({100 * ends[0]:.1f} to {100 * ends[1]:.1f})"


def p_value(p: float) -> str:
    """Return a p-value with two significant digits; one under 0.001 as `p <0.001`."""
    return "p <0.001" if p < 0.001 else f"p {p:.2g}"


def signed(value: float | None, digits: int = 2) -> str:
    """Return a difference with its sign and `digits` decimals; `None` is a dash, and a value that
    rounds to zero has a plus.
    """
    if value is None:
        return "–"
    rounded = round(value, digits) + 0.0  # makes 0.0 of -0.0
    return f"{rounded:+.{digits}f}"
