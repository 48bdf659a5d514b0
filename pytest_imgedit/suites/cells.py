"""What a cell of a suite's row says: tables and other tools write truth values, numbers, lists and
missing values as text.

Each `as_…` returns `None` for a missing value. Each raises `ValueError` that says what was expected
for a value that says nothing of its kind. No value counts as true because it is not empty.
"""

import ast
import re
from contextlib import suppress
from decimal import Decimal

from pytest_imgedit.core import strict_json

#: What Python, pandas, R, SQL and spreadsheets write for a missing value.
MISSING = frozenset(
    ("None", "null", "NULL", "nan", "NaN", "NAN", "NA", "N/A", "#N/A", "<NA>", "NaT")
)
_MISSING_IN_ANY_CASE = frozenset(map(str.casefold, MISSING))
_TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)
_DIGITS = re.compile(r"[+-]?\d+", re.ASCII)
#: The longest text of a number, and of a list.
_MOST_DIGITS = 300
_MOST_OF_LIST = 100_000
#: Whole numbers from here on may have lost digits as a float.
_EXACT = 2**53
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
#: A list of texts as Python writes it. Two texts without a comma are no list: numpy writes so.
_PYTHON_LIST = re.compile(rf"\[\s*(?:{_QUOTED}(?:\s*,\s*{_QUOTED})*\s*(?:,\s*)?)?\]")


def is_missing(value: object) -> bool:
    """Tell whether a cell holds nothing: `None`, NaN, blanks, or a text that stands for these."""
    value = _plain(value)
    if isinstance(value, str):
        return not value.strip() or value.strip() in MISSING
    return value is None or (isinstance(value, float | Decimal) and value != value)


def as_truth(value: object) -> bool | None:
    """Read true or false: a boolean, `true`, `yes`, 1, `false`, `no` or 0, in any case."""
    value = _plain(value)
    if isinstance(value, bool):
        return value
    if _is_missing_in_any_case(value):
        return None
    if isinstance(value, str):
        word = value.strip().casefold()
        if word in _TRUTHS:
            return _TRUTHS[word]
    try:
        number = as_number(value)
    except ValueError:
        number = None
    if number not in (0, 1):
        raise ValueError("expected true or false")
    return number == 1


def as_number(value: object) -> float | None:
    """Read a finite number, also as text in ASCII digits, with a point or an exponent."""
    exact = _exact(value)
    return None if exact is None else float(exact)


def as_whole(value: object) -> int | None:
    """Read a whole number, also one with a point or an exponent: 3.0 is 3.

    From 2**53 on, only integers and texts of digits alone are read: a float may have lost its last
    digits.
    """
    exact = _exact(value)
    if exact is None:
        return None
    value = _plain(value)
    has_all_digits = isinstance(value, int) or (
        isinstance(value, str) and _DIGITS.fullmatch(value.strip())
    )
    if exact != int(exact) or (abs(exact) >= _EXACT and not has_all_digits):
        raise ValueError("expected a whole number")
    return int(exact)


def as_text(value: object) -> str | None:
    """Return a text as it is."""
    if is_missing(value):
        return None
    value = _plain(value)
    if not isinstance(value, str):
        raise ValueError("expected text")
    return value


def as_name(value: object) -> str | None:
    """Return a text by which pairs are told apart, without blanks around it.

    A text that stands for a missing value is refused: it would be the name of many pairs, or is an
    honest name such as NA.
    """
    value = _plain(value)
    if isinstance(value, str) and value.strip() in MISSING:
        raise ValueError("which stands for no value, expected text, or an empty cell")
    text = as_text(value)
    return None if text is None else text.strip()


def as_identifier(value: object) -> str | int | None:
    """Return an id: a text as `as_name` does, with its leading zeros, or a whole number.

    Whole numbers that a table holds as floats are integers: 12.0 is 12.
    """
    value = _plain(value)
    if isinstance(value, str) or is_missing(value):
        return as_name(value)
    try:
        return as_whole(value)
    except ValueError:
        raise ValueError("expected text or an integer") from None


def as_texts(value: object, splits: bool = False) -> list[str] | None:
    """Return a list of texts without blanks around them: a list, or its text in JSON or Python.

    If it `splits`, another text is split at its semicolons, or at its commas if it has none. Empty
    texts are left out.
    """
    value = _plain(value)
    if is_missing(value):
        return None
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            value = _list_in(value.strip())
        elif splits:
            value = value.split(";" if ";" in value else ",")
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise ValueError("expected a list of texts")
    return [part.strip() for part in value if part.strip()]


def as_parts(value: object) -> list[object] | None:
    """Return the parts of a list, or of its text in JSON or Python; `None` for what is no list.

    Only a text in brackets as a whole is one: `[draft] a.png` is the name of a file.
    """
    value = _plain(value)
    if isinstance(value, str):
        text = value.strip()
        if not (text.startswith("[") and text.endswith("]")):
            return None
        value = _list_in(text)
    return value if isinstance(value, list) else None


def _plain(value: object) -> object:
    """Return the Python value of a scalar of pyarrow or numpy, and the list of an array; any other
    value as it is.
    """
    for name in ("as_py", "tolist"):
        convert = getattr(value, name, None)
        if callable(convert):
            return convert()
    return value


def _is_missing_in_any_case(value: object) -> bool:
    if isinstance(value, str) and value.strip().casefold() in _MISSING_IN_ANY_CASE:
        return True
    return is_missing(value)


def _exact(value: object) -> Decimal | None:
    """Read a finite number without rounding; `None` for a missing value. A truth value is no
    number.
    """
    value = _plain(value)
    if _is_missing_in_any_case(value):
        return None
    if isinstance(value, str):
        value = value.strip()
        if len(value) > _MOST_DIGITS or not _NUMBER.fullmatch(value):
            raise ValueError("expected a number")
    elif isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError("expected a number")
    number = Decimal(value)
    if not number.is_finite() or number.adjusted() > _MOST_DIGITS:
        raise ValueError("expected a finite number")
    return number


def _list_in(text: str) -> object:
    """Return what a text in brackets holds as JSON, or else a list of texts in Python."""
    if len(text) <= _MOST_OF_LIST:
        with suppress(ValueError, RecursionError):
            return strict_json.loads(text)
        if _PYTHON_LIST.fullmatch(text):
            with suppress(ValueError, SyntaxError):
                return ast.literal_eval(text)
    raise ValueError("expected a list of texts")
