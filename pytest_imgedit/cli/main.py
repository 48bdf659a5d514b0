"""Entry point of `imgedit`: arguments in, text or JSON out, an exit code."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_imgedit.cli.printed import Printed
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.sanitize import disarmed, message, printable, readable
from pytest_imgedit.core.streams import let_go, open_missing
from pytest_imgedit.core.versions import __version__

EXIT_CODES = (
    "exit codes: 0 all is well; {one}2 interrupted; 4 bad arguments or files, said in one line"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; each returns what `--json` prints, what is printed else, and the exit
    code.
    """
    open_missing()
    for file in (sys.stdout, sys.stderr):
        if isinstance(file, io.TextIOWrapper):
            file.reconfigure(errors="backslashreplace")
    parser = _parser()
    namespace, unknown = parser.parse_known_args(arguments)
    given = vars(namespace)
    subcommand = given.pop("subcommand")
    if unknown:
        named = " ".join(filter(None, (parser.prog, subcommand)))
        parser.exit(
            4, f"{named}: unrecognized arguments: {' '.join(unknown)}; see {named} --help\n"
        )
    if "command" not in given:
        parser.print_help()
        return 0
    module, _, name = given.pop("command").partition(":")
    as_json = given.pop("json")
    try:
        command: Callable[..., Printed] = getattr(
            import_module(f"pytest_imgedit.cli.{module}"), name
        )
        document, text, code = command(**given)
    except UsageError as error:
        print(f"imgedit: {message(error)}", file=sys.stderr)
        return 4
    except KeyboardInterrupt:
        print("imgedit: interrupted; what was finished is kept", file=sys.stderr)
        return 2
    except OSError as error:
        named = str(error.filename or "")[:200]
        print(f"imgedit: {printable(f'{named}: {error.strerror or error}')}", file=sys.stderr)
        return 4
    shown = (
        json.dumps(document, ensure_ascii=False, indent=1) if as_json else disarmed(readable(text))
    )
    try:
        print(shown, flush=True)
    except BrokenPipeError:  # such as `imgedit runs | head`
        let_go(sys.stdout)  # type: ignore[arg-type]
    except OSError as error:  # a full disk
        print(f"imgedit: stdout: {error.strerror}", file=sys.stderr)
        let_go(sys.stdout)  # type: ignore[arg-type]
        return 4
    return code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        """Exit 4 with one line, as all usage errors of ours do."""
        self.exit(4, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="imgedit", description="Set up benchmarks, look at runs and at this machine."
    )
    parser.add_argument("--version", action="version", version=f"pytest-imgedit {__version__}")
    add = partial(_add, parser.add_subparsers(metavar="COMMAND", dest="subcommand"))
    repeatable: dict[str, Any] = {"action": "append", "default": []}
    run = "a run's folder or results.json, the id of a run in the store, or latest"

    one = add("init", "init:init", "write a benchmark folder, a config, a suite and CI workflows")
    one.add_argument(
        "data", type=Path, metavar="DATA", nargs="?", help="a CSV, a JSON, or a folder of images"
    )
    one.add_argument(
        "--config", metavar="NAME", help="a ready config: qwen-image-edit, flux-kontext, one-gpu, …"
    )
    one.add_argument("--editor", metavar="SPEC", help="the model under test, as --imgedit-editor")
    one.add_argument("--judge", metavar="SPEC", help="what scores it, as --imgedit-judge")
    one.add_argument(
        "--ci",
        choices=("auto", "github", "gitlab", "none"),
        default="auto",
        help="for which system a workflow is written (default: that of the git remote)",
    )

    one = add(
        "compare",
        "runs:compare_runs",
        "compare two runs or baselines pair by pair",
        "a gate did not pass",
    )
    one.add_argument("before", metavar="BEFORE", help=f"{run}; or a baseline's NAME or path")
    one.add_argument("now", metavar="AFTER", help="the same")
    fallen = "a gate: fail if overall or a category fell by more than DROP; repeatable"
    one.add_argument("--max-drop", metavar="FIELD:DROP", help=fallen, **repeatable)
    one.add_argument(
        "--max-collapsed",
        metavar="N",
        help="a gate: number or fraction of pairs that may drop by 3 points or more",
    )
    one.add_argument(
        "--alpha",
        type=float,
        default=0.05,
        help="false-alarm rate of all gates together (default: 0.05)",
    )
    one.add_argument(
        "--margin",
        type=float,
        default=0.5,
        help="smallest drop that a passing gate must have been able to detect (default: 0.5)",
    )

    one = add(
        "trend",
        "trend:trend",
        "tell whether a series of checkpoints got worse",
        "scores have fallen",
    )
    one.add_argument(
        "references", metavar="BASELINE", nargs="*", help=f"oldest first; each a baseline, or {run}"
    )
    one.add_argument(
        "--last",
        type=int,
        metavar="N",
        help="the store's newest N runs with the same pairs and judge",
    )
    one.add_argument(
        "--alpha",
        type=float,
        default=0.05,
        help="false-alarm rate of the whole series (default: 0.05)",
    )
    one.add_argument("--html", type=Path, metavar="PATH", help="write a page with charts")

    one = add(
        "report", "runs:render_again", "render the reports of a run again", "the run did not pass"
    )
    one.add_argument("reference", metavar="RUN", help=run)
    one.add_argument(
        "--html",
        type=Path,
        metavar="PATH",
        help="an extra HTML report, with a folder of thumbnails",
    )
    one.add_argument("--md", type=Path, metavar="PATH", help="an extra Markdown report")
    one.add_argument(
        "--html-embed", action="store_true", help="HTML as one file, with the thumbnails inside"
    )

    one = add(
        "export",
        "export:export",
        "export a run's edits as CATEGORY/ID.png, with a list",
        "edits are missing",
    )
    one.add_argument("reference", metavar="RUN", help=run)
    one.add_argument("folder", type=Path, metavar="DIR", help="a new folder")

    one = add(
        "import",
        "importing:import_file",
        "convert a config of image_edit_benchmark, or show its report",
    )
    one.add_argument(
        "path", type=Path, metavar="FILE", help="config.yaml, or evaluation_report_….json"
    )
    one.add_argument(
        "--to",
        type=Path,
        default=Path("imgedit.toml"),
        metavar="FILE",
        help="what is written (imgedit.toml)",
    )

    one = add(
        "merge",
        "merge:merge",
        "join the shards of a run, and decide its gates",
        "a gate did not pass",
    )
    one.add_argument(
        "references",
        metavar="RUN",
        nargs="+",
        help="a shard: its store, its folder or results.json",
    )
    one.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="the new store of the whole run"
    )

    add(
        "runs",
        "runs:list_runs",
        "list the runs of a store, oldest first",
        "a run could not be read",
    )

    one = add("explain", "explain:explain", "show what an edit or a verdict depends on")
    one.add_argument(
        "reference",
        metavar="EDIT|VERDICT",
        help="the first characters of its key, or an image's SHA-256",
    )

    one = add(
        "agreement",
        "agreement:agree",
        "compare a run's scores with ratings by people",
        "no rating fits a scored pair",
    )
    one.add_argument("reference", metavar="RUN", help=run)
    one.add_argument(
        "ratings", type=Path, metavar="HUMAN.csv", help="columns id and score, one row a rating"
    )

    one = add("plan", "plan:plan", "tell how many pairs gates need, and what that costs")
    one.add_argument(
        "reference",
        metavar="RUN",
        nargs="?",
        help=f"{run}, whose spread and costs the estimate uses",
    )
    one.add_argument(
        "--power",
        type=float,
        required=True,
        metavar="MDE",
        help="drop that gates must detect, in points",
    )
    one.add_argument(
        "--before", metavar="REF", help="plan gates on drops, from how RUN differs from REF"
    )
    one.add_argument(
        "--gate", metavar="FIELD", help="overall (default) or a category; repeatable", **repeatable
    )
    one.add_argument(
        "--spread", type=float, metavar="SD", help="instead of a RUN: a pair's standard deviation"
    )
    one.add_argument(
        "--alpha",
        type=float,
        default=0.05,
        help="false-alarm rate of all gates together (default: 0.05)",
    )

    one = add(
        "qualify",
        "qualify:qualify",
        "try a judge alone, on edits of known quality",
        "the judge failed",
    )
    one.add_argument(
        "judge", metavar="JUDGE", nargs="?", help="its spec (default: the config's, or scenes)"
    )
    one.add_argument("--suite", metavar="SPEC", help="the pairs (default: the config's, or scenes)")
    one.add_argument("--gpus", metavar="GPUS", help="as --imgedit-gpus")
    one.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a TOML config, such as with parameters of the judge",
    )
    one.add_argument(
        "--set",
        dest="assigned",
        metavar="KEY=VALUE",
        help="set a TOML key; repeatable",
        **repeatable,
    )

    one = add("schema", "schema:schema", "print the JSON schema of results.json")
    one.add_argument("--baseline", action="store_true", help="that of a baseline instead")

    one = add(
        "doctor",
        "doctor:examine",
        "tell what this machine has, lacks, and cannot hold",
        "something is wrong",
    )
    one.add_argument(
        "--config", type=Path, metavar="FILE", help="a TOML config, whose models are checked"
    )
    return parser


def _add(
    commands: Any, name: str, command: str, summary: str, one: str = ""
) -> argparse.ArgumentParser:
    """Add a command: a `module:function` beside this file, imported when it is called, with
    arguments by their names.

    `one` says what the exit code 1 means, where there is one.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXIT_CODES.format(one=f"1 {one}; " if one else ""),
    )
    parser.set_defaults(command=command)
    parser.add_argument("--json", action="store_true", help="print JSON")
    if name not in ("doctor", "import", "init", "merge", "schema"):
        parser.add_argument(
            "--out", type=Path, default=Path(".imgedit"), metavar="DIR", help="the store (.imgedit)"
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
