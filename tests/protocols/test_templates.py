"""Templates and formulas of protocols: what takes too much is refused, and what is usual works."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import pytest

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import ReplyError, UsageError
from pytest_imgedit.protocols import templates
from pytest_imgedit.protocols.loading import load_protocol

VALUES = {"text": "x" * 2000, "title": "T", "criteria": ("a", "b"), "description": ""}

TOO_MUCH = [
    "{{ 2**(10**9) }}",
    "{{ 10**4000 }}",
    "{{ 'a' * 10**9 }}",
    "{{ 10**9 * 'a' }}",
    "{{ [1] * 10**9 }}",
    "{{ '%1000000000d' % 3 }}",
    "{{ '%*d' % (1000000000, 3) }}",
    "{{ '%1000000000d'|format(3) }}",
    "{{ 'a'|indent(10**9) }}",
    "{{ ('a' * 50000)|replace('a', 'b' * 50000) }}",
    "{{ text.replace('', 'b' * 9000) }}",
    "{{ 'ab'.join('c' * 90000) }}",
    "{{ ['a', 'b', 'c']|join('c' * 90000) }}",
    "{{ 5|round(-10**9) }}",
    "{{ [[1]]|tojson(indent=10**9) }}",
    "{{ range(10**9) }}",
    "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "{% for a in range(9999) %}{{ text }}{% endfor %}",
    "{% for a in range(9999) %}{% set y = 'a' * 99999 %}{% endfor %}",
    "{% set x = 'aa' %}" + "{% set x = x ~ x %}" * 40 + "{{ x }}",
    "{% set x = [1] %}" + "{% set x = [x, x] %}" * 40 + "{{ x }}",
    "a" * 200_000,
]


@pytest.mark.parametrize("template", TOO_MUCH, ids=lambda text: text[:50])
def test_work_and_sizes_are_bounded(template):
    with pytest.raises(templates.TooMuch) as error:
        templates.render(template, VALUES)
    assert len(str(error.value)) < 200


UNKNOWN = [
    "{{ lipsum(n=10**7) }}",
    "{{ cycler(1, 2) }}",
    "{{ namespace(a=1) }}",
    "{{ range(3)|random }}",
    "{% if false %}{{ range(3)|random }}{% endif %}",
    "{{ 'a'|center(10**9) }}",
    "{{ 'a'.center(10**9) }}",
    "{{ 'a'.ljust(10**9) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ [1]|batch(10**9)|list }}",
    "{{ [1]|slice(10**9)|list }}",
    "{{ text|wordwrap(1) }}",
    "{{ text|pprint }}",
    "{{ text|attr('__class__') }}",
    "{{ ['a']|map('random') }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% set x %}a{% endset %}",
    "{% filter upper %}a{% endfilter %}",
    "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{{ range }}",
    "{{ self }}",
]


@pytest.mark.parametrize("template", UNKNOWN)
def test_what_has_no_bound_or_differs_each_time_is_unknown(template):
    with pytest.raises(Exception, match=r"not known|undefined|no filter|unsafe"):
        templates.render(template, VALUES)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (
            "{% for c in criteria %}{{ loop.index }}. {{ c|upper }}"
            "{% if not loop.last %}, {% endif %}{% endfor %}",
            "1. A, 2. B",
        ),
        ("{{ title ~ '-' ~ 5 ~ (1 ~ 2) }}", "T-512"),
        ("{{ criteria|join(', ') }} {{ ', '.join(criteria) }}", "a, b a, b"),
        ("{{ '%.2f'|format(3.14159) }} {{ '%.1f' % 2.25 }}", "3.14 2.2"),
        ("{{ criteria|length + 3 * 2 }}", "8"),
        ("{% set x = title.lower() %}{{ x }}", "t"),
        ("{{ title|tojson }}", '"T"'),
        ("{{ 'a\nb'|indent(2) }}", "a\n  b"),
        ("{{ description or 'none' }}{{ title|default('x') }}", "noneT"),
        ("{{ 7 * 7 }} {{ 2**0.5 > 1 }}", "49 True"),
        ("{% for i in range(3) %}{{ loop.cycle('a', 'b') }}{% endfor %}", "aba"),
        ("{{ max(1, 2) + min(3, 4) + sqrt(4) }}", "7.0"),
        ("{{ {'a': 1}['a'] }}{{ title[0:1] }}", "1T"),
        ("{{ 'x' if 'a' in criteria else 'y' }}", "x"),
    ],
)
def test_usual_templates_work(template, text):
    assert templates.render(template, VALUES) == text


@pytest.mark.parametrize(
    "formula", ["2**(10**9)", "'a' * 10**11", "range(10**9)|sum", "10.0**999", "a / 0", "b" * 5000]
)
def test_a_formula_that_fails_says_why_in_a_short_line(formula):
    with pytest.raises(ReplyError, match=r"failed: .") as error:
        templates.evaluate(formula, {"a": 4.0})
    assert len(str(error.value)) < 500


#: Places of a protocol in TOML, as paths of keys.
PLACES = [
    ("unreadable",),
    ("calls", 0, "name"),
    ("calls", 0, "user"),
    ("calls", 0, "reply", "names", 0),
    ("calls", 0, "reply", "form"),
    ("score", "item"),
    ("rows", 0, "mean"),
    ("categories", "inherit"),
]


@pytest.mark.parametrize(
    "value", ["n" * 12_000, {"n" * 12_000: 1}, "{{ " + "n" * 12_000, "{{ text." + "n" * 12_000]
)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_a_long_value_of_a_protocol_is_cut_in_its_message(place, value):
    table = tomllib.loads(files("pytest_imgedit.protocols").joinpath("seeds.toml").read_text())
    part = table
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    settings = Settings.model_validate(
        {"protocols": {"mine": table}, "judge": {"protocol": "mine"}}
    )
    with pytest.raises(UsageError) as error:
        load_protocol(settings)
    assert len(str(error.value)) < 1000
    assert "\n" not in str(error.value)
