"""No regular expression takes more than linear time, whatever a reply, an instruction or a file
holds.
"""

from __future__ import annotations

import ast
import importlib
import re
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import pytest_imgedit
from pytest_imgedit.core.compat_replies import RULES
from pytest_imgedit.core.errors import ReplyError
from pytest_imgedit.core.reply import Grammar, number_places
from pytest_imgedit.core.text import FAR, shorten

FOLDER = Path(pytest_imgedit.__file__).parent
LENGTH = 100_000
#: Of replies, which eleven readers read: what is not linear takes seconds for so many characters.
REPLY_LENGTH = 25_000
#: Forms of replies that choose, which have a scale of their own.
CHOICES = ("choice", "choice-or-tie")
#: What hostile texts are runs of.
RUNS = (
    " ",
    "\n",
    "0",
    "a",
    "[",
    "(",
    "/",
    "\\",
    ".",
    "-",
    '"',
    '"x": ',
    "A\n",
    "`",
    "<think>",
    "://a:",
    "eyJa-",
    "env:a",
    "\x00a",
    "key=",
)


def uses(tree, module):
    """Yield each pattern that a module uses, and the method that it uses."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if not isinstance(node.func.value, ast.Name):
            continue
        owner, method = getattr(module, node.func.value.id, None), node.func.attr
        if isinstance(owner, re.Pattern):
            yield owner, method
        elif (
            owner is re
            and method not in ("compile", "escape")
            and isinstance(node.args[0], ast.Constant)
        ):
            yield re.compile(node.args[0].value), method


#: Files that may use a pattern.
FILES = [
    path
    for path in sorted(FOLDER.rglob("*.py"))
    if re.search(r"^import re$|_[A-Z]+\.(?:sub|match|search|split)", path.read_text(), re.MULTILINE)
]


def patterns_of(path):
    """Return each pattern that a file uses, with the method that it uses."""
    name = ".".join(path.relative_to(FOLDER.parent).with_suffix("").parts)
    return set(uses(ast.parse(path.read_text()), importlib.import_module(name)))


def use(pattern, method, text):
    if method == "sub":
        pattern.sub("", text)
    elif method == "finditer":
        sum(1 for _ in pattern.finditer(text))
    else:
        getattr(pattern, method)(text)


@pytest.mark.parametrize(
    ("module", "text"), [("core/reply_marks.py", "think"), ("core/redaction.py", "Bearer")]
)
def test_the_patterns_of_replies_and_secrets_are_among_them(module, text):
    assert any(text in str(pattern.pattern) for pattern, _ in patterns_of(FOLDER / module))


@pytest.mark.everyday
def test_most_patterns_of_the_package_are_found():
    assert len({pattern for path in FILES for pattern, _ in patterns_of(path)}) > 25


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=str(path.relative_to(FOLDER))) for path in FILES],
)
@pytest.mark.everyday
def test_every_pattern_is_linear(path):
    for pattern, method in patterns_of(path):
        for run in RUNS:
            for text in (run * (LENGTH // len(run)), f"a{run * (LENGTH // len(run))}\x01"):
                subject = text.encode() if isinstance(pattern.pattern, bytes) else text
                started = time.process_time()
                use(pattern, method, subject)
                assert time.process_time() - started < 1, (pattern.pattern, run)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    "template",
    [
        "{}",
        "x: 5{}/ 10 y",
        '{{"x": {}',
        *(
            pytest.param(template, marks=pytest.mark.full)
            for template in (
                "x: {}",
                "x:{}5",
                "{}x: 5",
                "Final Score{}5",
                "x{}|",
                "x: 5{}\nx: 6",
                "{{x{}5",
                '{{"x": "A"{}',
            )
        ),
    ],
)
@pytest.mark.everyday
def test_a_reply_is_read_in_linear_time(template, run):
    reply = template.format(run * (REPLY_LENGTH // len(run)))
    forms = get_args(get_type_hints(Grammar)["form"])
    for read in (
        *(Grammar(name, ("x",)).read for name in forms if name not in CHOICES),
        *(Grammar(name, ("x",), (0, 1), labels=("x",)).read for name in CHOICES),
        partial(Grammar("number", ("x",)).read, variant="compat"),
        *(
            partial(grammar.read, variant="compat")
            for form, rules in RULES.items()
            for name in rules
            for grammar in [
                Grammar(form, ("x",), (0, 1), labels=("x",), compat=name)
                if form in CHOICES
                else Grammar(form, ("x",), compat=name)
            ]
        ),
        partial(number_places, labels=["x"]),
    ):
        started = time.process_time()
        with suppress(ReplyError):
            read(reply)
        assert time.process_time() - started < 1


def test_of_a_long_text_only_the_beginning_is_masked():
    seen = []

    def mask(text):
        seen.append(len(text))
        return text.replace("hidden", "***")

    text = "hidden" + "x" * 10**6
    assert shorten(text, 10, mask) == "***xxxxxxx… (1000006 characters)"
    assert shorten("hidden", 10, mask) == "***"
    assert seen == [FAR, 6]
