"""How a reply that chooses between two edits is read: as a person reads it, or not at all.

The edit that is shown first is A and counts 1, the other is B and counts 0; a tie counts ½.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from pytest_imgedit.core.errors import ReplyError

#: The number of each choice.
CHOICES = {"A": 1.0, "B": 0.0, "tie": 0.5}
#: The key or the label of a line, unless a call names another one.
LABEL = "better"
#: Keys and labels that stand for it where a reply does not have it.
_OTHER_LABELS = (
    *("better", "winner", "choice", "answer", "verdict", "preferred", "preference"),
    *("更好", "选择", "答案", "结论"),
)
#: The most characters of a choice and what is said about it, without its reason.
_LONGEST = 120
#: The most places of a reply that may hold its choice.
_MOST = 50
#: Marks around a choice, and those that may stand within one.
_AROUND = " \t\r\n*_`'\"“”‘’«»()[]{}<>.,;!~#。\\-–—•"
_AROUND_REMARK = " \t\r\n*_`'\"“”‘’"
_WITHIN = str.maketrans(dict.fromkeys('*_`"“”«»()[]{}', " "))
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "`": "`"}

#: What can only be an edit, and what may be the source too.
_EDIT = (
    r"(?:edited (?:image|version)|edit|version|response|option|candidate|result|output|model|"
    r"assistant)"
)
_NOUN = rf"(?:{_EDIT}|(?:edited )?(?:image|img|picture|photo)|answer|choice)"
_HOW = (
    r"(?:(?:much|far|clearly|slightly|marginally|significantly|noticeably|somewhat|definitely|"
    r"obviously|narrowly|overall|only|just|but|a bit|a little|by a (?:small|slight|narrow|clear|"
    r"large|wide) margin)[ ,]?)"
)
_LEAD = (
    r"(?:(?:overall|therefore|thus|so|hence|finally|in conclusion|in summary|conclusion|"
    r"(?:between|of) the two(?: edits)?)[,:]? )?"
    r"(?:i(?:'d| would)? (?:choose|prefer|pick|select|vote for|go with|say|think|believe)"
    r"(?: that)? )?"
    r"(?:(?:(?:the|my|final) )*(?:(?:better|best|winning|preferred|stronger|chosen) )?"
    rf"(?:{_NOUN}|one|winner|decision|verdict|preference|better|best)(?: is|:| =|:?) )?"
    r"(?:(?:所以|因此|我?(?:选择?|认为)|(?:最终)?(?:答案|结论|选择)(?:是|:)?|更好的(?:图片?|编辑)?(?:是|:))"
    r",? ?)?"
)
_CHINESE_NOUN = r"(?:图片|图像|图|照片|编辑|选项|结果|方案)"


def _side(letter: str, number: str, ordinal: str, chinese: str) -> str:
    """Return the pattern of what one of the two edits may be called; not by the number of an image,
    since the source is the first image.
    """
    return (
        rf"(?:(?:the )?(?:{_NOUN}[ -]?)?{letter}|(?:the )?{_EDIT}[ -]?(?:{number})"
        rf"|(?:the )?(?:{ordinal})(?: one| {_NOUN})?"
        rf"|{_CHINESE_NOUN} ?{letter}|{letter} ?{_CHINESE_NOUN}"
        rf"|第{chinese}(?:张|个|幅|种)?{_CHINESE_NOUN}?)"
    )


_A = _side("a", "1|one", "first|1st", "一")
_B = _side("b", "2|two", "second|2nd", "二")
_PRAISE = (
    rf"(?:better|best|preferred|preferable|superior|stronger|the winner|my choice|"
    rf"the (?:better|best|preferred)(?: one| {_NOUN})?)"
)
_TAIL = (
    rf"(?:,? {_HOW}*(?:(?:is|looks|seems|appears|was) {_HOW}*{_PRAISE}|wins|won)"
    r")?"
    rf"(?: (?:than|over) (?:the other(?: one| {_NOUN})?|(?P<than_a>{_A})|(?P<than_b>{_B})))?"
    rf"(?:,? {_HOW}+)?"
    r"(?: ?(?:明显|稍微|稍|略微|略|整体)?(?:更好|较好|更优|更佳|好一些|胜出|获胜|胜))?"
)
_CHOICE = re.compile(rf"{_LEAD}(?:(?P<a>{_A})|(?P<b>{_B})){_TAIL}")
_EQUAL = (
    r"(?:tied?|draw|equal|even|equally (?:good|bad|well done)|of equal quality|equal in quality|"
    r"equivalent|comparable|(?:about )?the same|good|bad|better|identical|indistinguishable)"
)
_TIE = re.compile(
    rf"{_LEAD}(?:"
    rf"(?:(?:it(?: is|'s)|this is|they(?: are|'re)) )?(?:an? )?(?:{_HOW}*)"
    r"(?:tied?|draw|equal|even|equally good|equally bad|equal quality|(?:about )?the same|same|"
    r"no (?:clear )?(?:difference|preference|winner))"
    rf"|(?:both|neither|none)(?: of (?:them|the two|these))?(?: {_NOUN}s?)?"
    rf"(?: (?:(?:is|are|look|looks|seem) )?{_HOW}*{_EQUAL})?"
    rf"|(?:{_A} (?:and|&) {_B}|{_B} (?:and|&) {_A}|the two(?: {_NOUN}s)?) "
    rf"(?:are|look|seem) {_HOW}*{_EQUAL}"
    rf"|(?:both )?(?:{_A} (?:and|&) {_B}|{_B} (?:and|&) {_A})"
    rf"|neither (?:{_A} n?or {_B}|{_B} n?or {_A})"
    rf"|{_A} ?(?:=|==|≈|~) ?{_B}|{_B} ?(?:=|==|≈|~) ?{_A}"
    r"|平局|平手|(?:两(?:者|张图?|个)|都)?(?:一样好?|相同|相等|相当|不相上下|都好)|难分高下)"
)
_COMPARED = re.compile(rf"(?:(?P<a>{_A})|(?P<b>{_B})) ?(?P<sign>>+|<+) ?(?P<other>{_A}|{_B})")
_REASON = re.compile(r"\b(?:because|since|due to|as (?:it|the))\b|因为", re.IGNORECASE)
_REMARKED = re.compile(r"([^()]*)\(([^()]*)\)([^()]*)")
#: What may stand between a choice with a label and what is said about it.
_SAID = re.compile(r"[.;:–—]\s|\s-\s|\s//\s|,\s(?:which|as|it|with|while|although)\b")
#: What makes a remark about a choice a doubt.
_DOUBT = re.compile(
    r"\b(?:A|B|or|ties?|tied|equal|equally|both|neither|none|not|no|first|second|other|wait|but|"
    r"however|actually)\b|[?一二平]",
)
#: Marks that a prompt may ask for around a choice, wherever it stands.
_BOXED = re.compile(r"\[\[([^\[\]\n]{1,60})\]\]|\\boxed\{(?:\\text\{)?([^{}\n]{1,60})\}{1,2}")
#: What may follow a value: an end, or the next key of an object, which may be cut.
_END = re.compile(
    r"""\s*(?:\Z|[}\]]|```|,\s{0,20}(?:\Z|[}\]]|\w{1,40}\s{0,20}:)|"""
    r"""(?:[,;]\s{0,20})?["'“‘`](?![AB]\b)[^"'”’`\n]{0,60}(?:\Z|["'”’`]\s{0,20}:))|"""
    r"""[ \t]*,?[ \t]*\n"""
)
_UNQUOTED = re.compile(r"[^,}\n]*")


def read_choice(reply: str, label: str, *, has_tie: bool) -> float:
    """Return the number of the choice in a reply without thoughts, 0, ½ or 1; ½ only if it
    `has_tie`.

    A choice is the value of the JSON key or the line `label`, stands in `[[…]]` or `\\boxed{…}`, or
    is the whole first or last line. Raises `ReplyError` if there is none, if it is none of those
    that are expected, and for different ones.
    """
    text = unicodedata.normalize("NFKC", reply)
    expected = expected_choices(has_tie=has_tie)
    values = list(_labelled(text, (label,))) or list(_within_lines(text, label))
    if not values:  # what nobody has asked for may hold something else
        others = _labelled(text, _OTHER_LABELS)
        values = [value for value in others if _choice_of(value) or _said_of(value)]
    values += [match[1] or match[2] for match in _BOXED.finditer(text)]
    if len(values) > _MOST:
        raise ReplyError(f"{label!r} stands there over {_MOST} times, expected it once")
    choices = []
    for value in values:
        choice = _choice_of(value) or _said_of(value)
        if choice is None:
            raise ReplyError(f"{label!r} is {value.strip()[:40]!r}, expected {expected}")
        choices.append(choice)
    choices += _of_lines(text, is_labelled=bool(choices))
    if not choices:
        raise ReplyError(f"no choice: expected {label!r}, with {expected}")
    if len(set(choices)) > 1:
        found = " and ".join(sorted(set(choices)))
        raise ReplyError(f"{found} are both chosen, expected {expected}")
    if choices[0] == "tie" and not has_tie:
        raise ReplyError(f"{label!r} is 'tie', expected {expected}")
    return CHOICES[choices[0]]


def expected_choices(*, has_tie: bool) -> str:
    """Return the choices that are expected, in words."""
    return "A, B or tie" if has_tie else "A or B"


def _labelled(text: str, labels: Sequence[str]) -> Iterator[str]:
    """Yield what stands behind each key or label of a line, but not much beyond `_MOST` times."""
    names = "|".join(re.escape(label) for label in labels)
    called = rf"(?:{names})(?:[ _-]{_NOUN})?"
    key = re.compile(
        rf"""(?<![\w\\]){called}["'”’`][*\s]{{0,20}}[:=]\s*|"{called}:\s*(?=")""", re.IGNORECASE
    )
    for match in islice(key.finditer(text), _MOST + 1):
        yield _value(text, match.end())
    tag = re.compile(rf"<{called}>([^<\n]{{0,60}})</", re.IGNORECASE)
    for match in islice(tag.finditer(text), _MOST + 1):
        yield match[1]
    line = re.compile(
        rf"^[ \t#>*_{{-]{{0,20}}(?:\d{{1,2}}[.)][ \t]{{1,9}})?[*_]{{0,3}}{called}[ *_]{{0,20}}"
        r"(?:[:=]>?|->|→)([^\n]*)",
        re.IGNORECASE | re.MULTILINE,
    )
    for match in islice(line.finditer(text), _MOST + 1):
        if match[1].strip(_AROUND):  # else it is a heading
            yield match[1]


def _within_lines(text: str, label: str) -> Iterator[str]:
    """Yield what stands behind a label in the midst of a line, up to its end, outside of quotes."""
    inner = re.compile(
        rf"""[.;,][ \t]{{1,9}}{re.escape(label)}:([^"'\n]{{0,{_LONGEST}}})$""",
        re.IGNORECASE | re.MULTILINE,
    )
    for match in islice(inner.finditer(text), _MOST + 1):
        yield match[1]


def _value(text: str, start: int) -> str:
    """Return the value of a JSON object that begins at `start`, with what follows it in its line
    unless the value ends there.
    """
    closing = _QUOTES.get(text[start : start + 1])
    line_end = text.find("\n", start)
    line = text[start:] if line_end < 0 else text[start:line_end]
    if closing:
        end = text.find(closing, start + 1)
    elif line.startswith("["):
        end = text.find("]", start)
    else:
        unquoted = _UNQUOTED.match(text, start)
        assert unquoted is not None, "it matches an empty text"
        end = unquoted.end() - 1
    if end < 0 or not _END.match(text, end + 1):
        return line
    return text[start : end + 1]


def _of_lines(text: str, *, is_labelled: bool) -> list[str]:
    """Return the choices that are whole lines, outside of a JSON object and but for headings.

    Unless another choice `is_labelled`, the first or the last line is one: none if neither is.
    """
    first, last = text.find("{"), text.rfind("}")
    if first >= 0:
        text = text[:first] + "\n" + (text[last + 1 :] if last > first else "")
    lines = [line for line in text.splitlines() if _is_said(line)]
    if not lines:
        return []
    middle = [_named(line) for line in lines[1:-1]]  # where a reason is one for an aspect alone
    ends = [_choice_of(line) for line in (lines[0], lines[-1])]
    choices = [ends[0], *middle, ends[1]] if len(lines) > 1 else ends[:1]
    if {"A", "B"} <= set(choices[:-1]) and not _has_neighbours(choices):
        choices = [None, choices[-1]]  # the others are headings of what is said of each edit
    is_heading = len(lines) > 1 and _is_bare(lines[0])
    is_chosen = choices[-1] is not None or (choices[0] is not None and not is_heading)
    if not (is_labelled or is_chosen):
        return []
    return [choice for choice in choices if choice is not None]


def _is_said(line: str) -> bool:
    """Tell whether a line holds words, and is no fence of code."""
    return any(map(str.isalnum, line)) and not line.lstrip().startswith("```")


def _has_neighbours(choices: list[str | None]) -> bool:
    """Tell whether two lines that follow each other, but for the last one, are choices."""
    body = choices[:-1]
    return any(one and other for one, other in pairwise(body))


def _is_bare(line: str) -> bool:
    """Tell whether a line that is a choice could be a heading: it names an edit by a noun, and says
    nothing of it.
    """
    words = line.translate(_WITHIN).strip(_AROUND).casefold().split()
    return len(words) > 1 and re.fullmatch(rf"(?:{_A}|{_B})", " ".join(words)) is not None


def _choice_of(text: str) -> str | None:
    """Return the choice that a text is, `A`, `B` or `tie`; `None` for any other text."""
    text = _REASON.split(text, maxsplit=1)[0].strip(_AROUND_REMARK)
    if len(text) > _LONGEST:
        return None
    remark = ""
    remarked = _REMARKED.fullmatch(text)
    if remarked and remarked[1].strip(_AROUND):
        before, remark, after = remarked.groups()
        text = before + after
    return _undoubted(_named(text), remark)


def _said_of(value: str) -> str | None:
    """Return the choice with which a value begins, and about which it then says something; `None`
    for any other value.
    """
    head, *rest = _SAID.split(value.strip(), maxsplit=1)
    if not rest or head.startswith("{"):
        return None
    return _undoubted(_choice_of(head), rest[0])


def _undoubted(choice: str | None, remark: str) -> str | None:
    """Return a choice, unless a remark raises a doubt about it."""
    if choice in ("A", "B") and _DOUBT.search(remark) and _named(remark) != choice:
        return None
    return choice


def _named(text: str) -> str | None:
    """Return the choice that a text without remarks is; `None` for any other text."""
    plain = " ".join(text.strip(_AROUND).translate(_WITHIN).casefold().split()).strip(_AROUND)
    if all(_TIE.fullmatch(part) for part in plain.split(", ")):
        return "tie"
    compared = _COMPARED.fullmatch(plain)
    if compared:
        is_a, is_other_a = compared["a"] is not None, bool(re.fullmatch(_A, compared["other"]))
        wins = compared["sign"].startswith(">")
        return None if is_a == is_other_a else "A" if is_a == wins else "B"
    match = _CHOICE.fullmatch(plain)
    if match is None or (match["a"] and match["than_a"]) or (match["b"] and match["than_b"]):
        return None
    return "A" if match["a"] else "B"
