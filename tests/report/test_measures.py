"""Measures: every one is in every table and gate, by every group."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
from documents import UNGATED
from PIL import Image

from pytest_imgedit.cli.compare import compare_runs
from pytest_imgedit.core.measures import Field

#: An editor that writes grades into a corner of its edits, a judge that reads them there, and a
#: protocol with measures of each kind of scale.
MODULE = """
from pytest_imgedit import Answer, Call, Grammar, Measure, Protocol, mean_row

NAMES = ("follow", "keep", "damage", "reward")


class Editor:
    def __init__(self, *, device, follow=50, keep=80, damage=20, reward=120):
        self.grades = (follow, keep, damage, reward)
        self.noise = follow

    def edit(self, request):
        edit = request.source.transpose(method=0)
        noise = int(request.pair_id[-2:]) * self.noise % 11 % 4
        for x, grade in enumerate(self.grades):
            edit.putpixel((x, 0), (grade + noise, 0, 0))
        return edit


class Judge:
    def __init__(self, *, device):
        pass

    def answer(self, questions):
        return [Answer("\\n".join(self.lines(q.images["edited"]))) for q in questions]

    def lines(self, image):
        for x, name in enumerate(NAMES):
            yield f"{name}: {image.getpixel((x, 0))[0]}"


class Four(Protocol):
    name = "four"

    @property
    def measures(self):
        return {
            "follow": Measure(scale=(0, 10), is_main=True),
            "keep": Measure(scale=(0, 10), is_main=True),
            "damage": Measure(scale=(0, 1), lower_is_better=True),
            "reward": Measure(),
        }

    def calls(self, pair):
        return [Call("all", (("image", "edited"),), Grammar("lines", NAMES, (0, 255)))]

    def item(self, pair, replies):
        grades = replies["all"]
        values = {"follow": grades["follow"] / 10, "keep": grades["keep"] / 10}
        values |= {"damage": grades["damage"] / 100, "reward": grades["reward"] / 10 - 10}
        return {**values, "score": (values["follow"] + values["keep"]) / 2}

    def tables(self, items):
        return [mean_row("score", items, ["score"])]


class Strict(Judge):
    def lines(self, image):
        for x, name in enumerate(NAMES):
            yield f"{name}: {image.getpixel((x, 0))[0] - 10}"


class Red:
    def __init__(self, *, device):
        pass

    def answer(self, questions):
        return [Answer(score=q.images["edited"].getpixel((0, 0))[0]) for q in questions]


class Size(Red):
    def answer(self, questions):
        return [Answer(score=q.images["edited"].width) for q in questions]
"""
USUAL = (
    "--imgedit-suite=pairs.jsonl",
    "--imgedit-judge=four:Judge",
    "--imgedit-set=judge.protocol=four:Four",
    "--imgedit-set=judge.controls=false",
)
#: It follows better by 2 and preserves worse by 2.
OTHER = ("--imgedit-set=editor.follow=70", "--imgedit-set=editor.keep=60")


@pytest.fixture
def measured(bench, monkeypatch):
    """A benchmark of 48 pairs in two categories, of two difficulties and with two tags; the run of
    the first editor is the baseline `main`.
    """
    monkeypatch.syspath_prepend(bench.path)
    (bench.path / "four.py").write_text(MODULE)
    rows = []
    for number in range(48):
        image = Image.new("RGB", (16, 16), (number * 5, 90, 255 - number * 5))
        image.putpixel((8, 8), (255, 255, 255))
        image.save(bench.path / f"{number}.png")
        row = {
            "id": f"p{number:02}",
            "category": ("physics", "social")[number % 2],
            "image": f"{number}.png",
            "instruction": "mirror it",
            "difficulty": ("easy", "hard")[number // 2 % 2],
            "tags": ["rain"] if number < 24 else ["rain", "snow"],
        }
        rows.append(json.dumps(row))
    (bench.path / "pairs.jsonl").write_text("\n".join(rows))
    assert bench.run(*USUAL, "--imgedit-editor=four:Editor", "--imgedit-save=main").ret == 0
    return bench


GROUPS = [
    "overall",
    "physics",
    "social",
    "difficulty=easy",
    "difficulty=hard",
    "tag=rain",
    "tag=snow",
]


@pytest.mark.full
def test_every_measure_is_in_every_report_and_gate_by_every_group(measured):
    """Measures and groups are those of the results, reports those of the run."""
    saved = measured.results["measures"]
    assert list(saved) == ["score", "follow", "keep", "damage", "reward"]
    assert [*saved["follow"]["rows"]] == GROUPS
    fields = [str(Field(name, group)) for name in saved for group in saved[name]["rows"]]
    worse = {"score": 9, "follow": 9.9, "keep": 9, "damage": 0.01, "reward": 90}
    limits = [f"{field}:{worse[Field.parse(field).measure]}" for field in fields]
    result = measured.run(
        *USUAL,
        *OTHER,
        "--imgedit-editor=four:Editor",
        "--imgedit-compare=main",
        "--junitxml=junit.xml",
        *(f"--imgedit-fail-under={limit}" for limit in limits),
        *(f"--imgedit-max-drop={field}:0.5" for field in fields),
    )
    assert result.ret == 1
    document = measured.results
    gates = {(gate["kind"], gate["field"]): gate for gate in document["gates"]}
    folder = measured.runs[-1]
    markdown = (folder / "report.md").read_text()
    html = (folder / "report.html").read_text()
    junit = ET.parse(measured.path / "junit.xml").getroot()
    properties = {node.get("name") for node in junit.iter("property")}
    cases = {node.get("name") for node in junit.iter("testcase")}
    _, compared, _ = compare_runs(["main", folder.name], out=measured.path / ".imgedit", **UNGATED)
    for name, measure in document["measures"].items():
        for group, row in measure["rows"].items():
            field = str(Field(name, group))
            assert row["n"] == row["scored"] == (24 if group not in ("overall", "tag=rain") else 48)
            assert None not in (row["mean"], row["ci95"], row["mde"])
            difference = document["comparison"]["measures"][name][group]
            assert None not in (difference["difference"], difference["ci95"], difference["mde"])
            assert gates["fail_under", field]["state"] == "FAIL"
            fell = "FAIL" if name == "keep" else "PASS"
            assert gates["max_drop", field]["state"] == fell, gates["max_drop", field]
            assert {f"fail_under[{field}]", f"max_drop[{field}]"} <= cases
            mean = f"imgedit_mean[{name}@{group}]"
            assert {mean, f"{mean} difference"} <= properties
            if name == "score":
                continue
            for report in (markdown.replace("\\", ""), html):
                title = f"{name} ("
                assert title in report
                assert group in report.partition(title)[2]
            assert f"{name} (" in compared
            assert group in compared


def test_two_judges_and_two_metrics_score_the_same_edits(measured):
    """Loads are counted, gates may name each, and what was scored before is not scored again."""
    further = (
        "--imgedit-judge=four:Strict",
        "--imgedit-set=judges.Strict.protocol=four:Four",
        "--imgedit-metric=four:Red",
    )
    usual = (*USUAL, "--imgedit-editor=four:Editor")
    gates = ("--imgedit-fail-under=Strict.score@overall:6", "--imgedit-fail-under=Red@tag=rain:40")
    result = measured.run(*usual, *further, *gates)
    assert result.ret == 1
    document = measured.results
    assert [worker["further"] for worker in document["workers"]] == ["Strict", "Red"]
    assert (document["timing"]["edits"], document["timing"]["verdicts"]) == (0, 0)
    states = {gate["field"]: gate["state"] for gate in document["gates"]}
    assert (states["Strict.score@overall"], states["Red@tag=rain"]) == ("FAIL", "PASS")
    judge, strict = (document["measures"][name]["rows"] for name in ("score", "Strict.score"))
    for group in GROUPS:
        assert strict[group]["mean"] == pytest.approx(judge[group]["mean"] - 1)
    assert document["further"]["Strict"]["agreement"]["spearman"] == pytest.approx(1)
    assert document["further"]["Strict"]["agreement"]["difference"] == pytest.approx(-1)
    assert document["further"]["Red"]["role"] == "metric"
    markdown = (measured.runs[-1] / "report.md").read_text().replace("\\", "")
    html = (measured.runs[-1] / "report.html").read_text()
    for name in ("Strict.score", "Strict.keep", "Red"):
        assert f"{name} (" in markdown
        assert f"{name} (" in html
    result.stdout.fnmatch_lines(["*judge Strict: four:Strict*Spearman 1.00*"])

    assert measured.run(*usual, *further, "--imgedit-metric=four:Size").ret == 0
    document = measured.results
    assert [worker["further"] for worker in document["workers"]] == ["Size"]
    assert document["measures"]["Size"]["rows"]["overall"]["mean"] == 16
    assert document["measures"]["Strict.score"]["rows"] == strict


@pytest.mark.full
def test_another_judge_of_the_name_cannot_be_compared(measured):
    usual = (*USUAL, "--imgedit-editor=four:Editor")
    protocol = "--imgedit-set=judges.Strict.protocol=four:Four"
    save = "--imgedit-save=both"
    assert measured.run(*usual, "--imgedit-judge=four:Strict", protocol, save).ret == 0
    result = measured.run(
        *usual,
        "--imgedit-set=judges.Strict.spec=four:Judge",
        protocol,
        "--imgedit-compare=both",
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*baseline both: not comparable: another judge*Strict)"])


@pytest.mark.full
def test_a_run_that_follows_better_and_preserves_worse_fails(measured):
    result = measured.run(
        *USUAL,
        *OTHER,
        "--imgedit-editor=four:Editor",
        "--imgedit-compare=main",
        "--imgedit-max-drop=overall:0.2",
        "--imgedit-max-drop=follow@overall:0.2",
        "--imgedit-max-drop=keep@overall:0.2",
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "imgedit: plan: max_drop keep@overall:0.2 fails if the mean keep (0 to 10) of all "
            "pairs is shown to have fallen by more than 0.2; *",
            "category * mean * follow keep",
            "overall * 6.* * 7.* 6.*",
            "measures against baseline main, all pairs",
            "follow (0 to 10) * PASS*",
            "damage (0 to 1, lower is better) *",
            "imgedit: FAIL: keep@overall 6.*, was 8.* in main: -*",
        ]
    )
    states = {gate["field"]: gate["state"] for gate in measured.results["gates"]}
    assert states == {
        "overall": "PASS",
        "follow@overall": "PASS",
        "keep@overall": "FAIL",
    }


@pytest.mark.parametrize(
    ("gate", "line"),
    [
        (
            "fail-under=preservd@overall:0.5",
            "--imgedit-fail-under: unknown measure 'preservd' in 'preservd@overall', expected one "
            "of: score, change, preserved, l1, psnr, ssim; did you mean 'preserved'?",
        ),
        (
            "fail-under=preserved@overall:7",
            "--imgedit-fail-under: preserved@overall:7, expected a number from 0 to 1",
        ),
        (
            "fail-under=l1@tag=rian:0.1",
            "--imgedit-fail-under: unknown field 'l1@tag=rian', expected one of: overall, *",
        ),
        ("fail-under=overall@:5", "--imgedit-fail-under: *"),
    ],
)
def test_a_gate_on_what_the_run_has_not_is_refused(bench, gate, line):
    bench.refuses(line, f"--imgedit-{gate}", "--imgedit-editor=identity")
