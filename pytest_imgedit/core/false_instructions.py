"""Words of closed classes in an instruction, English and Chinese, and words that make it false."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

#: What stands before a word that the instruction excludes or leaves: `blue` of "red, not blue".
_EXCLUDED = re.compile(
    r"(?:\b(?:instead of|rather than|other than|than|not|no longer|no|from)(?: (?:a|an|the))? "
    r"|而不是|不再是|不是|从|由)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ChangedWord:
    """An instruction with one word changed: `old` into `new`."""

    instruction: str
    old: str
    new: str


@dataclass(frozen=True)
class _WordClass:
    """Words by language, each with others that make an instruction false, best first.

    `before` and `after` are patterns of what must stand around an English word, since many have
    further meanings; Chinese ones are long enough to have one.
    """

    english: Mapping[str, tuple[str, ...]]
    chinese: Mapping[str, tuple[str, ...]]
    before: str = r"(?<![\w-])"
    after: str = r"(?![\w-])"

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern that finds any of these words."""
        english = _any_of(self.english)
        chinese = _any_of(self.chinese)
        return re.compile(f"{self.before}(?:{english}){self.after}|{chinese}", re.IGNORECASE)


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern that finds any of some words, the longest where several begin alike."""
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


def _swapped(*pairs: tuple[str, str]) -> dict[str, tuple[str, ...]]:
    """Return each word of the pairs with the other word of its pair."""
    others: dict[str, tuple[str, ...]] = {}
    for first, second in pairs:
        others[first] = (second,)
        others[second] = (first,)
    return others


_COLOURS = {
    "red": ("blue", "green"),
    "orange": ("blue", "purple"),
    "yellow": ("purple", "blue"),
    "green": ("red", "purple"),
    "blue": ("yellow", "red"),
    "purple": ("yellow", "green"),
    "violet": ("yellow", "green"),
    "pink": ("green", "blue"),
    "brown": ("blue", "green"),
    "black": ("white", "yellow"),
    "white": ("black", "red"),
    "gray": ("red", "green"),
    "grey": ("red", "green"),
    "gold": ("blue", "green"),
    "golden": ("blue", "green"),
    "silver": ("red", "green"),
    "cyan": ("red", "yellow"),
    "magenta": ("green", "yellow"),
    "turquoise": ("red", "yellow"),
    "beige": ("blue", "purple"),
}
_COLOUR_SIGNS = {
    "红色": ("蓝色", "绿色"),
    "橙色": ("蓝色", "紫色"),
    "黄色": ("紫色", "蓝色"),
    "绿色": ("红色", "紫色"),
    "蓝色": ("黄色", "红色"),
    "紫色": ("黄色", "绿色"),
    "粉色": ("绿色", "蓝色"),
    "棕色": ("蓝色", "绿色"),
    "黑色": ("白色", "黄色"),
    "白色": ("黑色", "红色"),
    "灰色": ("红色", "绿色"),
    "金色": ("蓝色", "绿色"),
    "银色": ("红色", "绿色"),
}
_SIDES = _swapped(("left", "right"), ("top", "bottom"), ("upper", "lower"), ("above", "below"))
_SIDE_SIGNS = {
    **_swapped(("左边", "右边"), ("左侧", "右侧"), ("左上", "右上"), ("左下", "右下")),
    **_swapped(("左面", "右面"), ("左手", "右手"), ("左方", "右方"), ("左半", "右半")),
    **_swapped(("上方", "下方"), ("上面", "下面"), ("顶部", "底部"), ("前面", "后面")),
}
_COUNTS = {
    "two": ("four", "five"),
    "three": ("five", "six"),
    "four": ("two", "six"),
    "five": ("two", "three"),
    "six": ("three", "two"),
    "seven": ("four", "three"),
    "eight": ("four", "five"),
    "nine": ("four", "five"),
    "ten": ("five", "four"),
    **{str(count): (str(count + 2), str(count + 3)) for count in range(2, 10)},
}
_MEASURED = "个只本辆朵张条把件位名颗棵头匹座幅块片杯瓶盏支双"
_OTHER_COUNTS = {"两": "四", "三": "五", "四": "两", "五": "三", "六": "三"}
_COUNT_SIGNS = {
    f"{count}{unit}": (f"{other}{unit}",)
    for count, other in _OTHER_COUNTS.items()
    for unit in _MEASURED
}
_SIZES = {
    **_swapped(("big", "small"), ("tiny", "huge"), ("bigger", "smaller"), ("taller", "shorter")),
    **_swapped(("wider", "narrower"), ("thicker", "thinner"), ("largest", "smallest")),
    "large": ("small",),
    "larger": ("smaller",),
    "biggest": ("smallest",),
    "longer": ("shorter",),
}
_SIZE_SIGNS = {
    **_swapped(("更大", "更小"), ("变大", "变小"), ("放大", "缩小"), ("大的", "小的")),
    **_swapped(("最大", "最小"), ("更高", "更矮"), ("更长", "更短")),
}
_ORDER = {
    "first": ("last", "third"),
    "second": ("first", "fourth"),
    "third": ("first", "second"),
    "fourth": ("first", "second"),
    "last": ("first", "second"),
}
_ORDER_SIGNS = {
    "第一": ("最后一", "第三"),
    "第二": ("第一", "第四"),
    "第三": ("第一", "第二"),
    "最后一": ("第一", "第二"),
}
CLASSES: Mapping[str, _WordClass] = {
    "colours": _WordClass(_COLOURS, _COLOUR_SIGNS),
    "sides": _WordClass(
        _SIDES,
        _SIDE_SIGNS,
        before=r"(?<![\w-])(?<!\bis )(?<!\ball )(?<!look )",
        after=r"(?=[ -](?:side|corner|half|part|edge|hand|third|left|right|of)\b|\s*(?:$|[.,;!]))"
        r"(?![\w])",
    ),
    "numbers": _WordClass(
        _COUNTS,
        _COUNT_SIGNS,
        before=r"(?<![\w.:/-])",
        after=r"(?![\w.:/%°-])(?! (?:seconds?|minutes?|hours?|days?|weeks?|months?|years?|degrees?"
        r"|percent|times|o'clock)\b)",
    ),
    "sizes": _WordClass(_SIZES, _SIZE_SIGNS, before=r"(?<![\w-])(?<!\bno )"),
    "order": _WordClass(_ORDER, _ORDER_SIGNS, before=r"(?<=\bthe )"),
}


def change_word(instruction: str, name: str) -> ChangedWord | None:
    """Return an instruction with its last word of the class `name` of `CLASSES` changed into
    another of its class, so that an edit that followed it no longer does.

    The new word is the best one that the instruction does not hold, or else the best. Words that
    the instruction excludes ("not blue") are left. `None` if there is no word to change.
    """
    words = CLASSES[name]
    others = {**words.english, **words.chinese}
    folded = instruction.casefold()
    for match in reversed(list(words.pattern.finditer(instruction))):
        if _EXCLUDED.search(instruction, 0, match.start()):
            continue
        old = match[0]
        candidates = others[old.casefold()]
        new = next((other for other in candidates if other not in folded), candidates[0])
        if old[0].isupper():
            new = new.capitalize()
        changed = instruction[: match.start()] + new + instruction[match.end() :]
        return ChangedWord(changed, old, new)
    return None
