"""Totals that public benchmarks have published come out of their own rows."""

from __future__ import annotations

import math

import pytest
from documents import an_item

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.protocols.kris import LEVELS, MEASURES, TYPES
from pytest_imgedit.protocols.loading import load_protocol
from pytest_imgedit.run.assemble import protocol_table
from pytest_imgedit.suites import gedit, imgedit


def protocol(name, variant="compat"):
    return load_protocol(Settings.model_validate({"judge": {"protocol": name, "variant": variant}}))


def rows(name, items, variant="compat"):
    table = protocol_table(protocol(name, variant), items, (), sees_change=True)
    return {row.name: row.value for row in table.rows}


#: BAGEL's EVAL.md, without and with reasoning: pairs of a type, then VC, VQ, IF, KP and their mean.
KRIS = {
    "Attribute Perception": (
        275,
        (76.64, 74.45, 41.73, None, 64.27),
        (75.09, 74.00, 53.18, None, 67.42),
    ),
    "Spatial Perception": (
        100,
        (70.25, 80.0, 37.0, None, 62.42),
        (78.75, 87.25, 39.0, None, 68.33),
    ),
    "Temporal Prediction": (
        74,
        (36.49, 61.82, 29.05, None, 42.45),
        (48.31, 81.08, 46.62, None, 58.67),
    ),
    "Social Science": (125, (76.2, 78.8, 37.0, 29.6, 55.40), (80.4, 79.4, 51.6, 42.8, 63.55)),
    "Natural Science": (
        393,
        (69.59, 84.03, 40.27, 30.15, 56.01),
        (67.68, 82.95, 52.1, 42.88, 61.40),
    ),
    "Logical Reasoning": (
        150,
        (80.17, 85.67, 26.33, 18.0, 52.54),
        (62.83, 79.67, 28.33, 21.67, 48.12),
    ),
    "Instruction Decomposition": (
        150,
        (40.17, 69.5, 42.0, None, 50.56),
        (47.83, 66.83, 36.0, None, 50.22),
    ),
}
KRIS_TOTALS = (
    {
        "Factual Knowledge": 60.26,
        "Conceptual Knowledge": 55.86,
        "Procedural Knowledge": 51.69,
        "Overall": 56.21,
    },
    {
        "Factual Knowledge": 66.18,
        "Conceptual Knowledge": 61.92,
        "Procedural Knowledge": 49.02,
        "Overall": 60.18,
    },
)


def kris_items(column):
    """Items of each type whose grades, from 1 to 5, have the published means."""
    items = []
    for name, (count, *columns) in KRIS.items():
        grades = {}
        for measure, percent in zip(MEASURES.values(), columns[column], strict=False):
            if percent is not None:
                total = round(percent / 25 * count)
                low, high = divmod(total, count)
                grades[measure] = [1 + low + (number < high) for number in range(count)]
        for number in range(count):
            values = {measure: float(column[number]) for measure, column in grades.items()}
            items.append(an_item(f"{name[:4]}-{number}", TYPES[name][0], aspects=values))
    return items


@pytest.mark.parametrize("column", [0, 1])
def test_kris_tree_of_bagel_comes_out(column):
    found = rows("kris?totals=bagel", kris_items(column))
    for name, (_, *columns) in KRIS.items():
        assert found[name] == pytest.approx(columns[column][-1], abs=0.0051), name
        for short, percent in zip(MEASURES, columns[column], strict=False):
            if percent is not None:
                assert found[f"{name} {short}"] == pytest.approx(percent, abs=0.0051)
    for name, total in KRIS_TOTALS[column].items():
        assert round(found[name], 2) == total, name
    assert set(LEVELS) < set(found)


#: Uni-CoT's README: the means of types, each level after its own, and of everything.
KRIS_OF_THE_PAPER = """
Gemini-2.0 66.33 63.33 63.92 65.26 68.19 56.94 59.65 54.13 71.67 62.90 62.41
Step-3o 69.67 61.08 63.25 66.70 66.88 60.88 62.32 49.06 54.92 51.99 61.43
Doubao 70.92 59.17 40.58 63.30 65.50 61.19 62.23 47.75 60.58 54.17 60.70
Uni-CoT 72.76 72.87 67.10 71.85 70.81 66.00 67.16 53.43 73.93 63.68 68.00
GPT-4o 83.17 79.08 68.25 79.80 85.50 80.06 81.37 71.56 85.08 78.32 80.09
"""


def kris_items_of_means(means):
    """Items that all have the published mean of their type, with as many grades as it has."""
    return [
        an_item(
            f"{name[:4]}-{number}",
            TYPES[name][0],
            aspects={
                measure: 1 + mean / 25
                for measure, percent in zip(MEASURES.values(), columns, strict=False)
                if percent is not None
            },
        )
        for (name, (count, columns, _)), mean in zip(KRIS.items(), means, strict=True)
        for number in range(count)
    ]


@pytest.mark.parametrize("line", KRIS_OF_THE_PAPER.split("\n")[1:-1])
def test_kris_totals_of_the_paper_are_means_over_items(line):
    a, b, c, factual, d, e, conceptual, f, g, procedural, overall = map(float, line.split()[1:])
    items = kris_items_of_means((a, b, c, d, e, f, g))
    stated = dict(
        zip(("Overall", *LEVELS), (overall, factual, conceptual, procedural), strict=True)
    )
    found = rows("kris", items)
    assert {name: found[name] for name in stated} == pytest.approx(stated, abs=0.0101)
    over_grades = rows("kris?totals=bagel", items)
    assert abs(over_grades["Overall"] - overall) > 0.1
    assert abs(over_grades["Procedural Knowledge"] - procedural) > 0.4


def test_kris_published_rows_say_which_totals_they_are():
    named = {row.model: row.row for row in protocol("kris").published}
    assert {model for model, row in named.items() if row == "Overall, means over all grades"} == {
        "BAGEL",
        "BAGEL with reasoning",
    }
    assert set(named.values()) == {"Overall, means over items", "Overall, means over all grades"}


def test_a_kris_item_that_compat_left_a_grade_of_weighs_as_any_other():
    whole = an_item("a", "count_change", aspects=dict.fromkeys(MEASURES.values(), 5.0))
    half = an_item("b", "count_change", aspects={"quality": 1.0})
    assert rows("kris", [whole, half])["Overall"] == 50
    assert rows("kris?totals=bagel", [whole, half])["Overall"] == 80


@pytest.mark.parametrize(
    ("spec", "totals"),
    [
        ("kris:data", "means over items"),
        ("kris:data?totals=paper", "means over items"),
        ("kris:data?per_category=5&totals=bagel", "means over all grades"),
    ],
)
def test_the_suites_query_chooses_the_totals(spec, totals):
    assert load_protocol(Settings.model_validate({"suite": {"spec": spec}})).totals == totals


#: BAGEL's EVAL.md, without and with reasoning: pairs, mean score and number of right ones.
RISE = {
    "temporal": (85, (2.654118, 2), (3.336471, 5)),
    "causal": (90, (2.788889, 5), (3.608889, 16)),
    "spatial": (100, (3.452, 14), (3.492, 21)),
    "logical": (85, (1.08, 1), (1.157647, 1)),
}


@pytest.mark.parametrize(
    ("column", "score", "percent", "accuracy"),
    [(0, 2.537778, 38.44, 6.11), (1, 2.933333, 48.33, 11.94)],
)
def test_risebench_rows_of_bagel_come_out(column, score, percent, accuracy):
    items = [
        an_item(
            f"{category}-{number}",
            category,
            aspects={"score": columns[column][0], "accuracy": float(number < columns[column][1])},
        )
        for category, (count, *columns) in RISE.items()
        for number in range(count)
    ]
    found = rows("risebench", items)
    assert found["Overall score"] == pytest.approx(score, abs=1e-5)
    assert round(found["Overall score %"], 2) == percent
    assert round(found["Overall accuracy %"], 2) == accuracy
    assert found["Causal score"] == pytest.approx(RISE["causal"][1 + column][0])


#: RISEBench's README: accuracy by category, in percent, and overall.
RISE_OF_THE_README = """
GPT-Image-1.5 57.6 62.2 62.0 21.2 51.4
GPT-Image-2 45.9 66.7 50.0 34.1 49.4
Gemini-3-pro-image-preview 43.5 63.3 48.0 37.6 48.3
Gemini-2.5-Flash-Image 29.4 48.9 37.0 18.8 33.9
GPT-Image-1 36.5 34.4 37.0 10.6 30.0
GPT-Image-1-mini 25.9 31.1 33.0 9.4 25.3
Qwen-Image-Edit-2511 21.2 18.9 31.0 4.7 19.4
BAGEL+with+reasoning 11.8 27.8 21.0 1.2 15.8
Gemini-2.0-Flash-exp 9.4 16.7 23.0 4.7 13.9
Seedream-4.0 17.6 13.3 11.0 7.1 12.2
Gemini-2.0-Flash-pre 11.8 14.4 11.0 2.4 10.0
Qwen-Image-Edit-2509 4.7 11.1 17.0 2.4 9.2
BAGEL 3.5 4.4 14.0 0.0 5.8
FLUX.1-Kontext-Dev 2.3 5.5 13.0 1.2 5.8
Ovis-U1 1.1 3.3 4.0 2.4 2.8
Step1X-Edit 0.0 2.2 2.0 3.5 1.9
OmniGen 1.2 1.1 0.0 1.2 0.8
EMU2 1.2 1.1 0.0 0.0 0.5
HiDream-Edit 0.0 0.0 0.0 0.0 0.0
FLUX.1-Canny 0.0 0.0 0.0 0.0 0.0
"""


@pytest.mark.parametrize("line", RISE_OF_THE_README.split("\n")[1:-1])
def test_risebench_overalls_of_the_readme_are_means_over_items(line):
    model, *percents, overall = line.split()
    items = []
    for (category, (count, *_)), percent in zip(RISE.items(), percents, strict=True):
        right = round(float(percent) * count / 100)
        items += [
            an_item(f"{category}-{number}", category, aspects={"accuracy": float(number < right)})
            for number in range(count)
        ]
    found = rows("risebench", items)["Overall accuracy %"]
    is_cut = model == "EMU2"  # 0.56, printed as 0.5
    assert (math.floor(found * 10) / 10 if is_cut else round(found, 1)) == float(overall)
    stated = {row.model: row.value for row in protocol("risebench").published}
    assert stated[model.replace("+", " ")] == float(overall)


def test_risebench_counts_an_item_that_compat_drops_as_wrong_but_not_in_the_score():
    right = an_item("a", "causal", aspects={"score": 5.0, "accuracy": 1.0})
    dropped = an_item("b", "causal", None, status="dropped", aspects={})
    found = rows("risebench", [right, dropped])
    assert (found["Overall score"], found["Overall accuracy %"]) == (5.0, 50.0)


#: The README of Ovis-U1: the average, then the means of the groups in the order of `GROUPS`.
GEDIT = """
GPT-4o 7.534 7.205 6.491 6.607 8.096 7.768 6.961 7.622 8.331 8.067 7.427 8.301
AnyEdit 3.212 4.663 4.260 2.537 2.024 3.479 2.032 3.995 3.089 3.180 0.922 5.151
Instruct-Pix2Pix 3.684 3.825 5.182 3.688 3.509 4.339 4.560 3.461 2.031 4.237 0.955 4.733
MagicBrush 4.518 5.637 5.136 5.078 4.513 4.487 4.439 5.252 3.704 4.941 1.384 5.130
OmniGen 5.062 5.281 6.003 5.308 2.916 3.087 4.903 6.628 6.352 5.616 4.519 5.064
Gemini 6.315 6.781 6.369 6.040 6.938 5.591 4.676 7.501 6.447 7.003 5.765 6.350
Step1X-Edit 6.701 6.547 6.545 6.204 6.483 6.787 7.221 6.975 6.512 7.068 6.921 6.448
Doubao 6.754 7.430 7.095 6.339 6.973 6.972 6.767 7.674 6.748 7.447 3.471 7.383
BAGEL 6.519 7.324 6.909 6.381 4.753 4.573 6.150 7.896 7.164 7.021 7.320 6.218
Ovis-U1 6.420 7.486 6.879 6.208 4.790 5.981 6.463 7.491 7.254 7.266 4.482 6.314
"""


@pytest.mark.parametrize("line", GEDIT.split("\n")[1:-1])
def test_gedit_averages_of_ovis_are_means_of_the_groups(line):
    average, *means = map(float, line.split()[1:])
    items = [
        an_item(f"{group}-{number}", group, mean, aspects={})
        for group, mean in zip(gedit.GROUPS, means, strict=True)
        for number in range(1 + len(group) % 3)
    ]
    assert rows("gedit", items)["score"] == pytest.approx(average, abs=0.001)


#: The READMEs of Ovis-U1 and of BAGEL, and FireRed-Image-Edit's page: the overall, then the types in the order of `TYPES`.
IMGEDIT = {
    "GPT-4o": (4.2, 4.61, 4.33, 2.9, 4.35, 3.66, 4.57, 4.93, 3.96, 4.89),
    "MagicBrush": (1.90, 2.84, 1.58, 1.51, 1.97, 1.58, 1.75, 2.38, 1.62, 1.22),
    "Instruct-P2P": (1.88, 2.45, 1.83, 1.44, 2.01, 1.50, 1.44, 3.55, 1.2, 1.46),
    "AnyEdit": (2.45, 3.18, 2.95, 1.88, 2.47, 2.23, 2.24, 2.85, 1.56, 2.65),
    "UltraEdit": (2.7, 3.44, 2.81, 2.13, 2.96, 1.45, 2.83, 3.76, 1.91, 2.98),
    "OmniGen": (2.96, 3.47, 3.04, 1.71, 2.94, 2.43, 3.21, 4.19, 2.24, 3.38),
    "Step1X-Edit": (3.06, 3.88, 3.14, 1.76, 3.40, 2.41, 3.16, 4.63, 2.64, 2.52),
    "ICEdit": (3.05, 3.58, 3.39, 1.73, 3.15, 2.93, 3.08, 3.84, 2.04, 3.68),
    "BAGEL": (3.2, 3.56, 3.31, 1.7, 3.3, 2.62, 3.24, 4.49, 2.38, 4.17),
    "UniWorld-V1": (3.26, 3.82, 3.64, 2.27, 3.47, 3.24, 2.99, 4.21, 2.96, 2.74),
    "OmniGen2": (3.44, 3.57, 3.06, 1.77, 3.74, 3.2, 3.57, 4.81, 2.52, 4.68),
    "Ovis-U1": (4.00, 4.13, 3.62, 2.98, 4.45, 4.06, 4.22, 4.69, 3.45, 4.61),
    "Nano Banana": (4.29, 4.62, 4.41, 3.68, 4.34, 4.39, 4.40, 4.18, 3.72, 4.83),
    "Seedream 4.0": (4.30, 4.33, 4.38, 3.89, 4.65, 4.57, 4.35, 4.22, 3.71, 4.61),
    "Seedream 4.5": (4.32, 4.57, 4.65, 2.97, 4.66, 4.46, 4.37, 4.92, 3.71, 4.56),
    "Nano Banana Pro": (4.37, 4.44, 4.62, 3.42, 4.60, 4.63, 4.32, 4.97, 3.64, 4.69),
    "FLUX.1 Kontext dev": (3.71, 3.99, 3.88, 2.19, 4.27, 3.13, 3.98, 4.51, 3.23, 4.18),
    "Step1X-Edit-v1.2": (3.95, 3.91, 4.04, 2.68, 4.48, 4.26, 3.90, 4.82, 3.23, 4.22),
    "Qwen-Image-Edit-2509": (4.31, 4.34, 4.27, 3.42, 4.73, 4.36, 4.37, 4.91, 3.56, 4.80),
    "FLUX.2 dev": (4.35, 4.50, 4.18, 3.83, 4.65, 4.65, 4.31, 4.88, 3.46, 4.70),
    "LongCat-Image-Edit": (4.45, 4.44, 4.53, 3.83, 4.80, 4.60, 4.33, 4.92, 3.75, 4.82),
    "Qwen-Image-Edit-2511": (4.51, 4.54, 4.57, 4.13, 4.70, 4.46, 4.36, 4.89, 4.16, 4.81),
    "FireRed-Image-Edit": (4.56, 4.55, 4.66, 4.34, 4.75, 4.58, 4.45, 4.97, 4.07, 4.71),
    "BAGEL, EVAL.md": (3.28, 3.45, 3.23, 1.48, 3.76, 2.99, 3.28, 4.26, 3.18, 4.38),
}
#: Pairs of each type in `basic_edit.json`.
SIZES = (95, 94, 117, 92, 86, 94, 100, 23, 36)


def test_imgedit_overalls_are_means_of_types_but_for_those_that_no_formula_gives():
    formulas = {}
    for model, (stated, *means) in IMGEDIT.items():
        items = [
            an_item(f"{kind}-{number}", kind, aspects={"score": mean})
            for kind, mean, size in zip(imgedit.TYPES, means, SIZES, strict=True)
            for number in range(size)
        ]
        found = rows("imgedit", items)
        formulas[model] = [
            name for name, value in found.items() if math.isclose(value, stated, abs_tol=0.0051)
        ]
    unexplained = {model for model, names in formulas.items() if not names}
    assert unexplained == {"GPT-4o", "MagicBrush", "BAGEL, EVAL.md"}
    assert {model for model, names in formulas.items() if names == ["score, over items"]} == {
        "Ovis-U1"
    }
    published = {row.model: row for row in protocol("imgedit").published}
    assert {row.row for row in published.values()} - {"unexplained total"} == {
        "score, over groups",
        "score, over items",
    }
    assert {model for model, row in published.items() if "unexplained" in row.row} == unexplained


def test_kris_repeats_its_total_over_pairs_of_one_source_if_some_have_several():
    grades = dict.fromkeys(MEASURES.values(), 5.0)
    single = an_item("a", "count_change", aspects=grades)
    several = an_item("b", "temporal_prediction", aspects=dict.fromkeys(grades, 1.0))
    several = several.model_copy(update={"further": (several.source,) * 2})
    failed = several.model_copy(update={"id": "c", "status": "edit_error", "aspects": {}})

    def totals(items):
        found = protocol("kris").all_tables(items)
        return {row.name: [*row.values] for row in found if row.name.startswith("Overall")}

    assert totals([single]) == {"Overall": [100]}
    of_one = "Overall, pairs of one source image"
    assert totals([single, several, failed]) == {"Overall": [100, 0], of_one: [100]}
    assert totals([single, failed]) == {"Overall": [100], of_one: [100]}
    assert totals([several]) == {"Overall": [0]}
