"""No text of a results document steers a terminal, or the order of a line, in any output; every free
field is attacked in every output.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from hostile_documents import FORGED, STEERING, hostile_run, steering_in
from PIL import Image

from pytest_imgedit import report
from pytest_imgedit.cli import main as command_line
from pytest_imgedit.core.items import ItemFailed, ItemResult
from pytest_imgedit.core.pairs import slug
from pytest_imgedit.core.results import Results
from pytest_imgedit.plugin import junit
from pytest_imgedit.report import html, markdown, progress, read, terminal, write
from pytest_imgedit.stats.outcome import outcome
from pytest_imgedit.store.blobs import Blobs
from pytest_imgedit.tracking import log_run

#: Modules of `report` that write nothing on their own.
PARTS = {
    "board_page": "the output `leaderboard --duel --html`",
    "board_tables": "the outputs `leaderboard --duel`, `--md` and `--csv`",
    "causes": "what differs between two runs",
    "charts": "numbers and labels of the pages",
    "comparison_page": "the output `compare --html`",
    "duel_cards": "pairs of the output `html`, and of the output `view`",
    "duel_tables": "tables of all reports",
    "leaderboard_page": "the output `leaderboard --html`",
    "leaderboard_tables": "the outputs `leaderboard`, `--md` and `--csv`",
    "measure_tables": "tables of all reports",
    "outputs": "how what a user names is written",
    "parameters": "a column of the outputs `runs` and `view`",
    "pictures": "images of the pages",
    "published_causes": "what differs from a published row",
    "read": "reads what was written",
    "tables": "tables of all reports",
    "trend_page": "the output `trend --html`",
    "view_page": "the output `view`",
    "why_page": "the outputs `why`, `--md` and `--html`",
}
#: Commands that show no results.
WITHOUT_RESULTS = {
    "init": "reads data",
    "import": "reads a config",
    "duel": "runs a judge",
    "explain": "reads journals",
    "qualify": "runs a judge",
    "suites": "lists what is built in",
    "schema": "prints a schema",
    "doctor": "reads a machine",
}
#: Fields that no output shows.
UNSEEN = {
    "Commit.branch",
    "ControlTrial.cluster",
    "ControlTrial.control",
    "Duel.protocol_sha256",
    "Edit.environment",
    "Edit.worker",
    "Environment.versions",
    "GateOptions.compare",
    "GateOptions.fail_under",
    "GateOptions.max_drop",
    "GateOptions.min_win",
    "HostOrigin.name",
    "HostOrigin.versions",
    "Item.description",
    "Item.missing",
    "Item.reference_text",
    "Item.rewritten",
    "JudgeInfo.protocol_sha256",
    "Machine.architecture",
    "Machine.system",
    "ModelInfo.commit",
    "ModelOptions.shard",
    "Options.suite",
    "ProtocolCall.codec",
    "ProtocolCall.detail",
    "Results.environments",
    "SuiteInfo.remarks",
    "Verdict.environment",
    "Verdict.touched",
    "WorkerInfo.further",
    "WorkerInfo.probe",
}
#: Outputs in which a line of a text is no line of the output's own; elsewhere only sections have
#: lines.
WITH_TEXTS_OF_LINES = ("html", "report --html", "wandb")
OF_LINES = "Section.body"


class World:
    """A store with two hostile runs, `a` and `b`, of the same pairs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, folder / "store"
        document, self.marks = hostile_run()
        buffer = io.BytesIO()
        Image.new("RGB", (8, 8)).save(buffer, "PNG")
        self.blob = Blobs(self.store / "blobs").put(buffer.getvalue())
        for number, name in enumerate("ab"):
            document, _ = hostile_run(number)
            document["items"][0]["seeds"][0]["edit"]["blob"] = self.blob
            self.write(name, document)
        self.results = Results.model_validate(document)

    def write(self, name: str, document: dict) -> None:
        path = self.store / "runs" / name / "results.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))

    def command(self, *arguments: str, out: bool = True) -> str:
        """Return what a command prints; it may fail in one line."""
        said = io.StringIO()
        place = [f"--out={self.store}"] if out else []
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = command_line.main([*arguments, *place])
        assert code in (0, 1), said.getvalue()
        return said.getvalue()

    def written(self, *arguments: str, name: str) -> str:
        """Return the file that a command writes."""
        self.command(*arguments, f"{self.folder / name}")
        return (self.folder / name).read_text()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        # Where each text is another, the run contradicts itself.
        patch.setattr(read, "contradictions", lambda results: iter(()))
        yield World(tmp_path_factory.mktemp("hostile"))


def _export(world: World) -> str:
    folder = world.folder / "edits"
    said = world.command("export", "a", str(folder))
    names = [str(path.relative_to(folder)) for path in folder.rglob("*")]
    assert any(name.endswith("p0.png") for name in names)
    return "\n".join([said, *names, (folder / "edits.json").read_text()])


def _why(world: World) -> str:
    """What is said of a run and of another one whose free texts all differ from its own."""
    document, _ = hostile_run()
    path = world.folder / "other" / "results.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document).replace(FORGED, f"{FORGED} of another run"))
    return world.command("why", "a", str(path))


def _merge(world: World) -> str:
    """What is said of shards that cannot be joined."""
    document, _ = hostile_run()
    ids = [item["id"] for item in document["items"]]
    document["selection"]["shard"] = {"index": 1, "count": 1, "ids": ids}
    said = io.StringIO()
    for name in ("c", "d"):
        document["editor"]["spec"] += name
        path = world.folder / "shards" / name / "runs" / "r" / "results.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent.parent.parent / "blobs").mkdir(exist_ok=True)
        path.write_text(json.dumps(document))
    shards = [str(world.folder / "shards" / name) for name in ("c", "d")]
    with contextlib.redirect_stderr(said):
        command_line.main(["merge", *shards, f"--out={world.folder / 'merged'}"])
    return said.getvalue()


def _agreement(world: World) -> str:
    ratings = world.folder / "people.csv"
    ratings.write_text("id,score\n" + "".join(f"p{n},{n % 5}\n" for n in range(8)))
    return world.command("agreement", "a", str(ratings))


def _junit(world: World) -> str:
    results = world.results
    properties = junit.run_properties(results)
    for item in _items(world):
        properties += junit.item_properties(item, results.comparison, results.duel)
    reports = [(each.nodeid, each.location, each.longrepr) for each in junit.gate_reports(results)]
    return "\n".join(
        str(part) for pair in (*properties, *reports) for part in pair if isinstance(part, str)
    )


def _items(world: World) -> list[ItemResult]:
    report_path = world.folder / "report.html"
    return [ItemResult.of(item, None, world.store, report_path) for item in world.results.items]


def _log(world: World) -> str:
    path, screen = world.folder / "run.log", io.StringIO()
    lines = progress.RunProgress(path, screen, quiet=False)
    slot = SimpleNamespace(name="edit-0", label="CPU")
    for item in world.results.items:
        lines.note(str(item.error))
        lines.log(item.instruction)
        lines.worker_said(slot, item.instruction)
    lines.close()
    return screen.getvalue() + path.read_text()


def _view(world: World) -> str:
    """All that the page of several runs is given, but for ids of runs, which are slugs there."""
    page = world.folder / "page"
    assert command_line.main(["view", str(world.store), f"--out={page}"]) == 0
    paths = [path for path in page.rglob("*") if path.suffix in (".html", ".js")]
    text = "\n".join(map(Path.read_text, paths))
    for number in range(2):
        text = text.replace(slug(hostile_run(number)[0]["run"]["id"]), "")
    return text


def _wandb(world: World) -> str:
    """All that a tracker is told."""
    said: list[object] = []
    run = SimpleNamespace(
        config=SimpleNamespace(update=lambda values, **_: said.append(values)),
        log=lambda values, step: said.append(values),
    )
    fake = SimpleNamespace(
        Table=lambda columns, data: [columns, data], Image=lambda path: path, run=run
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "wandb", fake)
        log_run(world.results, world.store, run)
    return "\n".join(_texts(said))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, str):
        yield value


def _stopped(world: World) -> str:
    stopped = world.results.run.model_copy(update={"status": "incomplete"})
    return outcome(world.results.model_copy(update={"run": stopped})).line


#: What shows results, by name.
OUTPUTS: dict[str, Callable[[World], str]] = {
    "html": lambda world: html.render(world.results, lambda name: None),
    "markdown": lambda world: markdown.render(world.results),
    "terminal": lambda world: terminal.render(world.results, 400, color=False),
    "terminal -v": lambda world: terminal.render(world.results, 400, color=False, verbose=True),
    "terminal, narrow": lambda world: terminal.render(world.results, 40, False, verbose=True),
    "write": lambda world: "\n".join(write.gate_commands(world.results, outcome(world.results))),
    "outcome": lambda world: outcome(world.results).line,
    "outcome, stopped": _stopped,
    "progress": _log,
    "junit": _junit,
    "failed item": lambda world: "\n".join(
        str(ItemFailed(item, str(item.error))) for item in _items(world)
    ),
    "wandb": _wandb,
    "compare": lambda world: world.command("compare", "a", "b", "--max-drop=overall:1"),
    "compare --html": lambda world: world.written("compare", "a", "b", "--html", name="c.html"),
    "why": lambda world: world.command("why", "a", "b"),
    "why, all differs": _why,
    "why --md": lambda world: world.written("why", "a", "b", "--md", name="w.md"),
    "why --html": lambda world: world.written("why", "a", "b", "--html", name="w.html"),
    "leaderboard": lambda world: world.command("leaderboard", "a", "b", "--reference=a"),
    "leaderboard --md": lambda world: world.written("leaderboard", "a", "b", "--md", name="l.md"),
    "leaderboard --csv": lambda world: world.written(
        "leaderboard", "a", "b", "--csv", name="l.csv"
    ),
    "leaderboard --html": lambda world: world.written(
        "leaderboard", "a", "b", "--html", name="l.html"
    ),
    "trend": lambda world: world.command("trend", "a", "b"),
    "trend --html": lambda world: world.written("trend", "a", "b", "--html", name="t.html"),
    "report": lambda world: world.command("report", "a"),
    "report --html": lambda world: world.written("report", "a", "--html", name="r.html"),
    "report --md": lambda world: world.written("report", "a", "--md", name="r.md"),
    "export": _export,
    "merge": _merge,
    "runs": lambda world: world.command("runs"),
    "agreement": _agreement,
    "view": _view,
    "plan": lambda world: world.command("plan", "a", "--power=1"),
    "plan, at hand": lambda world: world.command("plan", "a", "--before=b"),
}


@pytest.fixture(scope="module")
def shown(world: World) -> Callable[[str], str]:
    """What an output of this name shows; each is made once."""
    return cache(lambda name: OUTPUTS[name](world))


def test_every_module_of_reports_and_every_command_is_an_output() -> None:
    modules = {path.stem for path in Path(*report.__path__).glob("*.py")} - {"__init__"}
    assert modules == {*PARTS} | (modules & {*OUTPUTS})
    commands = {command.name for command in command_line.COMMANDS}
    assert commands == {*WITHOUT_RESULTS} | (commands & {*OUTPUTS})


@pytest.mark.parametrize("name", OUTPUTS)
def test_no_output_holds_a_character_that_steers_or_a_forged_line(world, shown, name):
    text = shown(name)
    assert steering_in(text) == []
    if name not in WITH_TEXTS_OF_LINES:
        ends = [before[-200:] for before in text.split(f"\n{FORGED}")[:-1]]
        assert [end for end in ends if world.marks[OF_LINES] not in end] == []
    if name != "terminal, narrow":  # its cells are wrapped
        escapes = (ascii(STEERING[0])[1:-1], json.dumps(STEERING[0])[1:-1])
        plain = text.replace("\\\\", "\\")
        for field, mark in world.marks.items():
            assert mark not in text or any(f"{mark}{escape}" in plain for escape in escapes), field


def test_every_free_field_is_in_an_output(world, shown):
    everything = "\n".join(map(shown, OUTPUTS))
    unseen = {field for field, mark in world.marks.items() if mark not in everything}
    assert unseen == UNSEEN


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("command", command_line.COMMANDS, ids=lambda command: command.name)
@pytest.mark.everyday
def test_no_command_prints_a_character_that_steers(monkeypatch, capsys, command, as_json):
    """Whatever its function returns, also to `--json`, whose parser gets the text as it is."""
    text = f"一{STEERING}"
    monkeypatch.setattr(command_line, "resolve_name", lambda _: lambda **_: ({text: text}, text, 0))
    places = [name for name in command.arguments if not name.startswith("-")]
    out = [f"--out={name}" for name in ("x",) if command.name == "merge"]
    assert command_line.main([command.name, *places, *out, *(["--json"] if as_json else [])]) == 0
    said = capsys.readouterr().out
    assert steering_in(said) == []
    assert "一" in said
    if as_json:
        assert json.loads(said) == {text: text}
