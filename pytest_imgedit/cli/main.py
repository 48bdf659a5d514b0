"""Entry point of `imgedit`: arguments in, text or JSON out, an exit code."""

import argparse
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from pytest_imgedit.core import errors, streams, strict_json, versions
from pytest_imgedit.core.text import disarmed, escaped_json, message, printable, readable

_RUN = "a run's folder or results.json, the id or the name of a run in the store, or latest"
_WHOLE = f"{_RUN} (the newest run of all pairs)"
_STORE = {
    "--out": {
        "type": Path,
        "default": Path(".imgedit"),
        "metavar": "DIR",
        "help": "the store (.imgedit)",
    }
}
_ALPHA = {
    "type": float,
    "default": 0.05,
    "help": "false-alarm rate of all gates together (default: 0.05)",
}


@dataclass(frozen=True, kw_only=True)
class Command:
    """A subcommand: `function` is a `module:function` of this folder, which is imported on call.

    `arguments` maps the name of an argument to its options for `add_argument`; the function takes
    them by name. `failure` says what the exit code 1 means, for a command that has it.
    """

    name: str
    function: str
    summary: str
    arguments: Mapping[str, Mapping[str, Any]]
    failure: str = ""


COMMANDS = (
    Command(
        name="init",
        function="init:init",
        summary="write a benchmark folder, a config, a suite and a CI workflow, or update what CI "
        "needs",
        arguments={
            "data": {
                "type": Path,
                "metavar": "DATA",
                "nargs": "?",
                "help": "a table as CSV, JSONL or JSON, a suite, or a folder of images",
            },
            "--config": {
                "metavar": "NAME",
                "help": "a ready config: qwen-image-edit, flux-kontext, one-gpu, …",
            },
            "--editor": {"metavar": "SPEC", "help": "the model under test, as --imgedit-editor"},
            "--judge": {"metavar": "SPEC", "help": "what scores it, as --imgedit-judge"},
            "--ci": {
                "choices": ("auto", "github", "gitlab", "none"),
                "default": "auto",
                "help": "for which system a workflow is written (default: that of the git remote, "
                "or github)",
            },
        },
    ),
    Command(
        name="compare",
        function="compare:compare_runs",
        summary="compare two runs or baselines pair by pair, or rank more of them",
        arguments={
            **_STORE,
            "references": {
                "metavar": "RUN",
                "nargs": "+",
                "help": f"the older one first; each a baseline, or {_WHOLE}; with more than two, "
                "the first is the reference of a leaderboard",
            },
            "--max-drop": {
                "metavar": "FIELD:DROP",
                "action": "append",
                "default": [],
                "help": "a gate: fail if overall or a category fell by more than DROP; repeatable",
            },
            "--max-collapsed": {
                "metavar": "N",
                "help": "a gate: number or fraction of pairs that may drop by 3 points or more",
            },
            "--duel": {
                "action": "store_true",
                "help": "ask a judge which edits are better, pair by pair",
            },
            "--min-win": {
                "metavar": "FIELD:SHARE",
                "action": "append",
                "default": [],
                "help": "a gate: fail if the share of duels that FIELD wins is under SHARE; "
                "repeatable (default with --duel: overall:0.5)",
            },
            "--judge": {
                "metavar": "SPEC",
                "help": "who decides duels (default: the config's, or that of the later run)",
            },
            "--gpus": {"metavar": "GPUS", "help": "as --imgedit-gpus, for duels"},
            "--config": {
                "type": Path,
                "metavar": "FILE",
                "help": "a TOML config with the judge of duels",
            },
            "--set": {
                "dest": "assigned",
                "metavar": "KEY=VALUE",
                "action": "append",
                "default": [],
                "help": "set a TOML key for duels; repeatable",
            },
            "--alpha": _ALPHA,
            "--margin": {
                "type": float,
                "default": 0.5,
                "help": "smallest drop that a passing gate must have been able to detect "
                "(default: 0.5)",
            },
            "--inconclusive": {
                "choices": ("warn", "fail"),
                "default": "warn",
                "help": "what a gate does that lacks pairs (default: warn)",
            },
            "--html": {"type": Path, "metavar": "PATH", "help": "write a page with the tables"},
        },
        failure="a gate did not pass, nor only warn",
    ),
    Command(
        name="duel",
        function="duel:duel",
        summary="have a judge compare the edits of every two of several runs",
        arguments={
            **_STORE,
            "references": {
                "metavar": "RUN",
                "nargs": "*",
                "help": f"one a system; each a baseline that keeps its edits, or {_WHOLE}; one at "
                "least a run",
            },
            "--judge": {
                "metavar": "SPEC",
                "help": "who decides (default: the config's, or that of the last run)",
            },
            "--gpus": {"metavar": "GPUS", "help": "as --imgedit-gpus"},
            "--config": {
                "type": Path,
                "metavar": "FILE",
                "help": "a TOML config with the judge",
            },
            "--set": {
                "dest": "assigned",
                "metavar": "KEY=VALUE",
                "action": "append",
                "default": [],
                "help": "set a TOML key; repeatable",
            },
            "--votes": {
                "type": Path,
                "metavar": "FILE",
                "action": "append",
                "default": [],
                "help": "votes that were made elsewhere, as CSV or logs of GenArena, which are "
                "kept and not asked again; repeatable",
            },
        },
        failure="the judge failed its trial, or decided nothing",
    ),
    Command(
        name="why",
        function="why:why",
        summary="tell why two numbers differ: what differs between two runs, and what it did",
        arguments={
            **_STORE,
            "before": {
                "metavar": "A",
                "help": f"a baseline, or {_WHOLE}; beside a published row a run",
            },
            "now": {
                "metavar": "B",
                "help": "the same, or a published row as PROTOCOL/MODEL, such as gedit/BAGEL",
            },
            "--ask": {
                "action": "store_true",
                "help": "have B's judge score up to 50 of A's edits again; the bill comes first",
            },
            "--judge": {
                "metavar": "SPEC",
                "help": "B's judge, if its results do not tell all of it",
            },
            "--gpus": {"metavar": "GPUS", "help": "as --imgedit-gpus, for that judge"},
            "--config": {
                "type": Path,
                "metavar": "FILE",
                "help": "a TOML config with that judge",
            },
            "--set": {
                "dest": "assigned",
                "metavar": "KEY=VALUE",
                "action": "append",
                "default": [],
                "help": "set a TOML key of that judge; repeatable",
            },
            "--md": {"type": Path, "metavar": "PATH", "help": "write a Markdown report"},
            "--html": {"type": Path, "metavar": "PATH", "help": "write a page"},
        },
    ),
    Command(
        name="leaderboard",
        function="leaderboard:leaderboard",
        summary="rank runs over the pairs that all of them have, or systems by votes in duels",
        arguments={
            **_STORE,
            "references": {
                "metavar": "RUN",
                "nargs": "*",
                "help": f"one a system; each a baseline, or {_WHOLE}; with --duel, only votes "
                "between these count",
            },
            "--reference": {
                "metavar": "RUN",
                "help": "show the differences of all others from this run, or, with --duel, from "
                "a system that votes name",
            },
            "--duel": {
                "action": "store_true",
                "help": "rate systems by votes between their edits, such as those of imgedit duel",
            },
            "--votes": {
                "type": Path,
                "metavar": "FILE",
                "action": "append",
                "default": [],
                "help": "a CSV file of votes, or a log or a folder of logs of GenArena; repeatable "
                "(default: the votes in the store, which also count if runs are named)",
            },
            "--fit": {
                "choices": ("genarena", "gedit-v2"),
                "help": "show the ratings of that arena's own fit instead, without intervals",
            },
            "--measure": {
                "metavar": "NAME",
                "action": "append",
                "default": [],
                "help": "a measure to rank by; repeatable (default: all that the runs share)",
            },
            "--md": {"type": Path, "metavar": "PATH", "help": "write a Markdown report"},
            "--csv": {
                "type": Path,
                "metavar": "PATH",
                "help": "write one row a measure, group and system; with --duel, a column and "
                "system",
            },
            "--html": {"type": Path, "metavar": "PATH", "help": "write a page with charts"},
        },
    ),
    Command(
        name="trend",
        function="trend:trend",
        summary="tell whether a series of checkpoints got worse",
        arguments={
            **_STORE,
            "references": {
                "metavar": "BASELINE",
                "nargs": "*",
                "help": f"oldest first; each a baseline, or {_WHOLE}",
            },
            "--last": {
                "type": int,
                "metavar": "N",
                "help": "the store's newest N runs with the same pairs and judge",
            },
            "--measure": {
                "metavar": "NAME",
                "action": "append",
                "default": [],
                "help": "a measure to look at; repeatable (default: the score and main measures)",
            },
            "--alpha": {
                **_ALPHA,
                "help": "false-alarm rate of the whole series (default: 0.05)",
            },
            "--html": {"type": Path, "metavar": "PATH", "help": "write a page with charts"},
        },
        failure="a measure got worse",
    ),
    Command(
        name="report",
        function="runs:render_again",
        summary="render the reports of a run again",
        arguments={
            **_STORE,
            "reference": {"metavar": "RUN", "help": _RUN},
            "--html": {
                "type": Path,
                "metavar": "PATH",
                "help": "an extra HTML report, with a folder of thumbnails",
            },
            "--md": {"type": Path, "metavar": "PATH", "help": "an extra Markdown report"},
            "--html-embed": {
                "action": "store_true",
                "help": "HTML as one file, with the thumbnails inside",
            },
        },
        failure="the run did not pass",
    ),
    Command(
        name="view",
        function="view:view",
        summary="show runs side by side in a browser: runs, pairs by models, each pair",
        arguments={
            "references": {
                "metavar": "RUN|STORE",
                "nargs": "*",
                "help": f"stores, or {_RUN} (default: all runs of .imgedit)",
            },
            "--out": {
                "type": Path,
                "metavar": "DIR",
                "help": "write a folder with all images, which any host can serve "
                "(default: view in the store, which links to its images)",
            },
            "--serve": {
                "action": "store_true",
                "help": "serve the page on 127.0.0.1 until Ctrl-C, instead of opening it",
            },
        },
        failure="a run could not be read",
    ),
    Command(
        name="export",
        function="runs:export",
        summary="export a run's edits as CATEGORY/ID.png, with a list",
        arguments={
            **_STORE,
            "reference": {"metavar": "RUN", "help": _RUN},
            "folder": {"type": Path, "metavar": "DIR", "help": "a new folder"},
        },
        failure="edits are missing",
    ),
    Command(
        name="import",
        function="importing:import_file",
        summary="convert a config of image_edit_benchmark, or show its report",
        arguments={
            "path": {
                "type": Path,
                "metavar": "FILE",
                "help": "config.yaml, or evaluation_report_….json",
            },
            "--to": {
                "type": Path,
                "default": Path("imgedit.toml"),
                "metavar": "FILE",
                "help": "what is written (imgedit.toml)",
            },
        },
    ),
    Command(
        name="merge",
        function="merge:merge",
        summary="join the shards of a run, and decide its gates",
        arguments={
            "references": {
                "metavar": "RUN",
                "nargs": "+",
                "help": "a shard: its store, its folder or results.json",
            },
            "--out": {
                "type": Path,
                "required": True,
                "metavar": "DIR",
                "help": "the new store of the whole run",
            },
        },
        failure="a gate did not pass",
    ),
    Command(
        name="runs",
        function="runs:list_runs",
        summary="list the runs of a store, oldest first",
        arguments=_STORE,
        failure="a run could not be read",
    ),
    Command(
        name="explain",
        function="runs:explain",
        summary="show what an edit or a verdict depends on",
        arguments={
            **_STORE,
            "reference": {
                "metavar": "EDIT|VERDICT",
                "help": "the first characters of its key, or an image's SHA-256",
            },
        },
    ),
    Command(
        name="agreement",
        function="agreement:agree",
        summary="compare runs' scores with ratings or choices by people, and these with each other",
        arguments={
            **_STORE,
            "references": {
                "metavar": "RUN",
                "nargs": "+",
                "help": f"{_WHOLE}; for choices, or a baseline, and all between which people chose",
            },
            "ratings": {
                "type": Path,
                "metavar": "HUMAN.csv",
                "help": "ratings: columns id, score and (optional) rater; choices: id, a, b, "
                "winner and rater, where a and b are names of runs; one row a person",
            },
        },
        failure="no rating or choice fits a scored pair",
    ),
    Command(
        name="plan",
        function="plan:plan",
        summary="tell how many pairs gates need, and what that costs",
        arguments={
            **_STORE,
            "reference": {
                "metavar": "RUN",
                "nargs": "?",
                "help": f"{_WHOLE}, whose spread and costs the estimate uses",
            },
            "--power": {
                "type": float,
                "metavar": "MDE",
                "help": "drop that gates must detect, on the scale of the measure; without it, "
                "what the pairs of RUN can detect",
            },
            "--before": {
                "metavar": "REF",
                "help": "plan gates on drops, from how RUN differs from REF",
            },
            "--gate": {
                "metavar": "FIELD",
                "action": "append",
                "default": [],
                "help": "[MEASURE@]GROUP, as in gates (default: overall); repeatable",
            },
            "--spread": {
                "type": float,
                "metavar": "SD",
                "help": "instead of a RUN: a pair's standard deviation",
            },
            "--alpha": _ALPHA,
        },
    ),
    Command(
        name="qualify",
        function="doctor:qualify",
        summary="try a judge alone, on edits of known quality or on people's choices",
        arguments={
            **_STORE,
            "judge": {
                "metavar": "JUDGE",
                "nargs": "?",
                "help": "its spec (default: the config's, or scenes)",
            },
            "--suite": {
                "metavar": "SPEC",
                "help": "the pairs (default: the config's, or scenes)",
            },
            "--people": {
                "metavar": "CHOICES",
                "help": "what people chose of two edits: FILE.csv, mmrb2:DIR or "
                "editreward-bench:DIR",
            },
            "--gpus": {"metavar": "GPUS", "help": "as --imgedit-gpus"},
            "--config": {
                "type": Path,
                "metavar": "FILE",
                "help": "a TOML config, such as with parameters of the judge",
            },
            "--set": {
                "dest": "assigned",
                "metavar": "KEY=VALUE",
                "action": "append",
                "default": [],
                "help": "set a TOML key; repeatable",
            },
        },
        failure="the judge failed",
    ),
    Command(
        name="suites",
        function="suites:list_suites",
        summary="list the public benchmarks that can be run by their own protocol",
        arguments={
            "--price-in": {
                "type": float,
                "metavar": "PRICE",
                "help": "price of a million tokens of questions, for the cost of a model",
            },
            "--price-out": {
                "type": float,
                "metavar": "PRICE",
                "help": "price of a million tokens of replies",
            },
        },
    ),
    Command(
        name="schema",
        function="runs:schema",
        summary="print the JSON schema of results.json",
        arguments={"--baseline": {"action": "store_true", "help": "that of a baseline instead"}},
    ),
    Command(
        name="doctor",
        function="doctor:examine",
        summary="tell what this machine has, lacks, and cannot hold",
        arguments={
            "--config": {
                "type": Path,
                "metavar": "FILE",
                "help": "a TOML config, whose models are checked",
            }
        },
        failure="something is wrong",
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, or print the help without one; return the exit code.

    A command returns the document that `--json` prints, the text that is printed otherwise, and
    the exit code. What is wrong with arguments, files or the machine is one line on stderr and the
    exit code 4; Ctrl-C is 2.
    """
    streams.open_missing()
    for file in (sys.stdout, sys.stderr):
        if isinstance(file, io.TextIOWrapper):
            file.reconfigure(errors="backslashreplace")
    parser = make_parser()
    namespace, unknown = parser.parse_known_args(arguments)
    values = vars(namespace)
    subcommand = values.pop("subcommand")
    if unknown:
        program = " ".join(filter(None, (parser.prog, subcommand)))
        names = printable(" ".join(unknown))
        parser.exit(4, f"{program}: unrecognized arguments: {names}; see {program} --help\n")
    if subcommand is None:
        parser.print_help()
        return 0
    as_json = values.pop("json")
    name = f"pytest_imgedit.cli.{values.pop('function')}"
    try:
        function: Callable[..., tuple[strict_json.JsonObject, str, int]] = resolve_name(name)
        document, text, code = function(**values)
    except errors.UsageError as error:
        print(f"imgedit: {message(error)}", file=sys.stderr)
        return 4
    except KeyboardInterrupt:
        print("imgedit: interrupted; what was finished is kept", file=sys.stderr)
        return 2
    except (OSError, RuntimeError, MemoryError) as error:
        problem = errors.system_refusal(error)
        if isinstance(error, FileNotFoundError) and not error.filename:
            problem = "the current folder is gone, expected one that is there"
        if problem is None:
            raise
        print(f"imgedit: {printable(problem)}", file=sys.stderr)
        return 4
    if as_json:
        shown = escaped_json(json.dumps(document, ensure_ascii=False, indent=1))
    else:
        shown = disarmed(readable(text))
    return code if _print(shown) else 4


def _print(shown: str) -> bool:
    """Print to stdout; return whether that worked. A reader that stops early is no failure."""
    try:
        print(shown, flush=True)
    except OSError as error:
        streams.let_go(sys.stdout)  # type: ignore[arg-type]
        if not isinstance(error, BrokenPipeError):  # a full disk, not `imgedit runs | head`
            print(f"imgedit: stdout: {error.strerror}", file=sys.stderr)
            return False
    return True


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        """Exit 4 with one line, as all our usage errors do."""
        shown = printable(f"{self.prog}: {message}; see {self.prog} --help")
        self.exit(4, f"{shown}\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; it exits with 4 for what it does not take."""
    parser = _Parser(
        prog="imgedit", description="Set up benchmarks, look at runs and at this machine."
    )
    parser.add_argument(
        "--version", action="version", version=f"pytest-imgedit {versions.__version__}"
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", dest="subcommand")
    for command in COMMANDS:
        codes = {
            0: "all is well",
            1: command.failure,
            2: "interrupted",
            4: "bad arguments or files, said in one line",
        }
        meanings = "; ".join(f"{code} {meaning}" for code, meaning in codes.items() if meaning)
        subparser = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            epilog=f"exit codes: {meanings}",
        )
        subparser.set_defaults(function=command.function)
        subparser.add_argument("--json", action="store_true", help="print JSON")
        for name, options in command.arguments.items():
            subparser.add_argument(name, **options)
    return parser


if __name__ == "__main__":
    sys.exit(main())
