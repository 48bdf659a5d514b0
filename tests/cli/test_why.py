"""`imgedit why`: what it prints and writes of two runs, a baseline, a file and a published row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from documents import a_run, an_item
from worker_threads import ThreadExecutor

from pytest_imgedit.cli import why as command
from pytest_imgedit.cli.main import main
from pytest_imgedit.core import files
from pytest_imgedit.core.results import ItemError, ProtocolRow, ProtocolTable, Results
from pytest_imgedit.report.causes import Cause
from pytest_imgedit.report.why_page import Explanation, Step, markdown, page, text
from pytest_imgedit.store.baselines import make_baseline, write_baseline

JUDGE = {"protocol": "aspects", "variant": "strict", "protocol_sha256": "0" * 64}


def a_document(name: str, score: float = 5.0, **changes: Any) -> Results:
    items = [an_item(f"p{number}", "physics", score + number / 4) for number in range(4)]
    return a_run(items=items, run={"id": name}, gates=[], **changes)


def write_run(results: Results, folder: Path = Path(".imgedit")) -> Path:
    path = folder / "runs" / results.run.id / "results.json"
    path.parent.mkdir(parents=True)
    files.write_json(path, results.model_dump(mode="json"))
    return path


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A store with the runs `first`, and `second` of another judge with lower scores."""
    monkeypatch.chdir(tmp_path)
    write_run(a_document("first"))
    write_run(a_document("second", 4.5, judge={"spec": "other", "fingerprint": None, **JUDGE}))
    return tmp_path


def said(capsys, *arguments: str) -> list[str]:
    assert main(["why", *arguments]) == 0, capsys.readouterr().err
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    return lines


def test_the_first_line_is_the_cause_and_the_last_row_what_is_not_explained(here, capsys):
    lines = said(capsys, "first", "second")
    assert lines[0] == "judge: j → other"
    assert "A: run first: editor identity, judge j" in lines
    assert "overall: 5.38 → 4.88 (-0.50)" in lines
    (row,) = [line.split() for line in lines if line.startswith("not explained")]
    assert row[-1] == "-0.50"


@pytest.mark.parametrize("other", ["first", "copy.json", "main"])
def test_equal_runs_are_equal_whatever_they_are_called(here, capsys, other):
    results = a_document("first")
    files.write_json(Path("copy.json"), results.model_dump(mode="json"))
    write_baseline(Path("benchmarks/baselines"), make_baseline(results, "main"))
    lines = said(capsys, "first", other)
    assert lines[0] == "equal"
    assert "overall: 5.38 on both sides" in lines
    assert not any("→" in line or "not explained" in line for line in lines)
    assert any("not stated by B, a baseline: base seed" in line for line in lines) == (
        other == "main"
    )


def test_other_scores_without_a_cause_are_not_called_equal(here, capsys):
    write_run(a_document("third", 4.5))
    lines = said(capsys, "first", "third")
    assert lines[0] == "no cause: nothing that both sides state differs"
    assert "overall: 5.38 → 4.88 (-0.50)" in lines


def test_latest_is_the_newest_run_of_the_other_ones_suite(here, capsys):
    second = a_document("second")
    write_baseline(Path("benchmarks/baselines"), make_baseline(second, "main"))
    other_suite = {"name": "t", "sha256": "1" * 64, "pairs": 4}
    write_run(a_document("third", suite=other_suite))
    for arguments in (("main", "latest"), ("latest", "main")):
        assert said(capsys, *arguments)[0].startswith("judge: ")


def test_json_holds_causes_with_their_consequences(here, capsys):
    assert main(["why", "first", "second", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["causes"] == [{"cause": "judge: j → other", "consequences": []}]
    assert document["start"] - document["end"] == pytest.approx(0.5)
    assert document["unexplained"] == pytest.approx(-0.5)
    assert not document["equal"]


def test_steps_lead_from_one_number_to_the_other(here, capsys):
    missing = a_document("part")
    write_run(a_run(items=list(missing.items[:2]), run={"id": "part"}, gates=[]))
    lines = said(capsys, "first", "part")
    assert lines[0] == "pairs missing in B: 2 (p2, p3)"
    assert "overall: 5.38 → 5.12 (-0.25)" in lines
    assert main(["why", "first", "part", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    at = document["start"]
    for step in document["effects"]:
        assert step["before"] == pytest.approx(at)
        at = step["after"]
    assert at + document["unexplained"] == pytest.approx(document["end"])
    assert document["unexplained"] == pytest.approx(0, abs=1e-9)


def test_all_three_outputs_hold_every_cause_consequence_step_and_note(here, capsys):
    explanation = Explanation(
        before="a <run>",
        now="another",
        causes=[Cause("judge: x → y", ("answering model: m → n",)), Cause("base seed: 0 → 1")],
        value="overall",
        start=5.0,
        end=4.0,
        steps=[Step("no effect", 5.0, 5.0), Step("other judge", 5.0, 4.25)],
        unexplained=-0.25,
        notes=["not stated: weights"],
        effect_notes=["a note on steps"],
    )
    lines = text(explanation).splitlines()
    assert lines[:4] == [
        "judge: x → y",
        "  answering model: m → n",
        "base seed: 0 → 1",
        "not stated: weights",
    ]
    rows = [line.split() for line in lines if line.startswith(("other judge", "not explained"))]
    assert [row[2:] for row in rows] == [["5.00", "4.25", "-0.75"], ["4.25", "4.00", "-0.25"]]
    assert "no effect" not in " ".join(lines)
    report = markdown(explanation)
    assert "- judge: x → y\n  - answering model: m → n\n- base seed: 0 → 1\n" in report
    assert "| not explained | 4.25 | 4.00 | -0.25 |" in report
    assert "a \\<run\\>" in report
    html = page(explanation)
    assert "<li>judge: x → y<ul><li>answering model: m → n</li></ul></li>" in html
    assert "a &lt;run&gt;" in html
    for shown in (report, html):
        for part in ("overall: 5.00 → 4.00", "other judge", "not stated: weights"):
            assert part in shown
        assert "a note on steps" in shown


def test_files_are_written_and_named(here, capsys):
    lines = said(capsys, "first", "second", "--md=why.md", "--html=why.html")
    assert lines[-2:] == ["md: why.md", "html: why.html"]
    assert "judge: j → other" in Path("why.md").read_text()
    assert "<li>judge: j → other</li>" in Path("why.html").read_text()


def test_long_texts_are_wrapped(here, capsys):
    spec = "a-judge-of-a-long-name " * 9
    write_run(a_document("third", judge={"spec": spec, "fingerprint": None, **JUDGE}))
    lines = said(capsys, "first", "third")
    assert lines[0].startswith("judge: j → a-judge")
    assert lines[1].startswith("    a-judge")


def test_a_published_row_is_compared_by_what_it_states(here, capsys):
    row = ProtocolRow(name="score", n=4, value=6.25, ci95=None, scale=(0, 10), decimals=2)
    table = ProtocolTable(name="gedit@strict", calls=(), rows=(row,), published=())
    judge = {"spec": "j", **JUDGE, "protocol": "gedit"}
    write_run(a_document("judged", protocol=table, judge=judge))
    _, (published,) = command.find_published("gedit/bagel") or ("", [])
    lines = said(capsys, "judged", "gedit/bagel")
    assert lines[0] == f"pairs: 4 → {published.pairs}"
    shown = " ".join(line.strip() for line in lines)
    assert f"editor: identity → {published.model}" in shown
    assert "not stated: judge, provider, order, sampling, rewriting, weights" in shown
    assert f"score of gedit: 6.25 → {published.value:.2f}" in shown
    assert not any(line.startswith(("protocol", "judge")) for line in lines)


def test_the_other_numbers_of_a_published_row_are_named(here, capsys):
    _, rows = command.find_published("gedit/Nano Banana") or ("", [])
    shown = " ".join(line.strip() for line in said(capsys, "first", "gedit/Nano Banana"))
    assert f"also published: {rows[1].value:g} ({rows[1].source})" in shown
    assert f"→ {rows[0].value:.2f} (–)" in shown


def test_of_several_rows_of_a_model_that_of_the_run_is_compared(here, capsys):
    row = ProtocolRow(name="multi_object", n=4, value=6.0, ci95=None, scale=(0, 10), decimals=2)
    table = ProtocolTable(name="omnicontext@strict", calls=(), rows=(row,), published=())
    write_run(
        a_document(
            "judged", protocol=table, judge={**JUDGE, "spec": "j", "protocol": "omnicontext"}
        )
    )
    (line,) = [line for line in said(capsys, "judged", "omnicontext/BAGEL") if " (+" in line]
    assert line == "multi_object of omnicontext: 6.00 → 6.64 (+0.64)"


def test_a_run_of_another_protocol_has_no_value_of_a_published_row(here, capsys):
    lines = said(capsys, "first", "kris/GPT-4o")
    assert "protocol: aspects → kris" in lines
    assert any(line.startswith("A has no row ") for line in lines)
    assert not any(line.startswith("not explained") for line in lines)


@pytest.mark.parametrize(
    "name", ["kris", "kris?totals=bagel", "omnicontext", "risebench", "imgedit"]
)
def test_rows_of_every_public_protocol_are_found_without_its_prompts(name):
    assert command.published_rows(name)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("first", "gedit/BAGLE"), "no published row of this model, expected one of *mean 'BAGEL'"),
        (("first", "gedit/" + "x" * 999), "no published row of this model"),
        (("first", "nothing/BAGEL"), "no such baseline or run"),
        (("main", "gedit/BAGEL"), "main: a baseline, expected a run beside a published row"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(here, capsys, arguments, line):
    write_baseline(Path("benchmarks/baselines"), make_baseline(a_document("first"), "main"))
    assert main(["why", *arguments]) == 4
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    for part in line.split("*"):
        assert part in error


def test_two_runs_of_a_benchmark_are_told_apart_by_their_editors(bench, capsys, monkeypatch):
    monkeypatch.chdir(bench.path)
    for editor in ("oracle", "blend", "oracle"):
        result = bench.run(f"--imgedit-editor={editor}", "--imgedit-limit=1")
        assert result.ret == 0
    oracle, blend, again = (path.name for path in bench.runs)
    capsys.readouterr()
    assert said(capsys, oracle, again)[0] == "equal"
    lines = said(capsys, oracle, blend)
    assert lines[0] == "editor: oracle → blend"
    assert any(line.startswith("  edits: ") for line in lines)
    causes = lines[: lines.index("")]
    assert all(line.startswith("  ") for line in causes[1:])


def test_the_other_judge_is_asked_about_the_same_edits(bench, capsys, monkeypatch):
    monkeypatch.chdir(bench.path)
    monkeypatch.setattr("pytest_imgedit.workers.local.LocalExecutor", ThreadExecutor)
    for score in ("5.0", "7.0"):
        bench.run("--imgedit-judge=fakes:Constant", f"--imgedit-set=judge.score={score}")
    first, second = (path.name for path in bench.runs)
    capsys.readouterr()
    assert "not explained" in "\n".join(said(capsys, first, second))
    lines = said(capsys, first, second, "--ask")
    assert any(line.split()[:3] == ["judge", "5.00", "7.00"] for line in lines), lines
    assert main(["why", first, second, "--ask", "--judge=scenes"]) == 4
    assert "--judge=scenes: not the judge of B, expected fakes:Constant" in capsys.readouterr().err
    assert main(["why", "gedit/BAGEL", first]) == 4
    assert "gedit/BAGEL: a published row, expected a run first" in capsys.readouterr().err
    assert main(["why", first, second, "--gpus=0"]) == 4
    assert "--gpus: nothing to ask, expected --ask too" in capsys.readouterr().err
    assert main(["why", first, "gedit/BAGEL", "--ask"]) == 4
    assert "one published number, expected two runs" in capsys.readouterr().err


def test_a_run_without_scores_has_no_steps_and_the_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    error = ItemError("score", "unreadable", "no grade")
    failed = a_run(items=[an_item("p0", "physics", None, error=error)], run={"id": "failed"})
    write_run(failed)
    write_run(a_document("second"))
    assert "no steps: A has no overall score" in "\n".join(said(capsys, "failed", "second"))
    assert "no steps: B has no overall score" in "\n".join(said(capsys, "second", "failed"))
