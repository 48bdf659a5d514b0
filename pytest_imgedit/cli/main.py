"""Entry point of `imgedit`: arguments in, text or JSON out, an exit code."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_imgedit.cli.printed import Printed
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.sanitize import disarmed, printable, readable
from pytest_imgedit.core.streams import let_go, open_missing
from pytest_imgedit.core.versions import __version__

Command = Callable[[argparse.Namespace], Printed]

EXIT_CODES = "exit codes: 0 all is well; 1 {one}; 2 interrupted; 4 bad arguments or files, said in one line"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; each returns what `--json` prints, what is printed else, and the exit code."""
    open_missing()
    for file in (sys.stdout, sys.stderr):
        if isinstance(file, io.TextIOWrapper):
            file.reconfigure(errors="backslashreplace")
    parser = _parser()
    given = parser.parse_args(arguments)
    if "command" not in given:
        parser.print_help()
        return 0
    command: Command = given.command
    try:
        document, text, code = command(given)
    except UsageError as error:
        print(f"imgedit: {printable(str(error))}", file=sys.stderr)
        return 4
    except KeyboardInterrupt:
        print("imgedit: interrupted; what was finished is kept", file=sys.stderr)
        return 2
    except OSError as error:
        named = str(error.filename or "")[:200]
        print(f"imgedit: {printable(f'{named}: {error.strerror or error}')}", file=sys.stderr)
        return 4
    shown = json.dumps(document, ensure_ascii=False, indent=1) if given.json else disarmed(readable(text))
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
        prog="imgedit", description="Set up benchmarks of pytest-imgedit; look at runs and at this machine."
    )
    parser.add_argument("--version", action="version", version=f"pytest-imgedit {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND")
    run = "a run's folder or results.json, the id of a run in the store, or latest"

    one = _add(commands, "init", _init, "write a benchmark folder, a config, a suite and CI workflows", "not used")
    one.add_argument(
        "data", type=Path, metavar="DATA", nargs="?", help="a CSV, a JSON, or a folder of images (this one)"
    )
    one.add_argument("--config", metavar="NAME", help="a ready config: qwen-image-edit, flux-kontext, one-gpu, …")
    one.add_argument(
        "--ci",
        choices=("auto", "github", "gitlab", "none"),
        default="auto",
        help="for which system a workflow is written (default: that of the git remote, else both)",
    )

    one = _add(commands, "compare", _compare, "compare two runs or baselines pair by pair", "a gate did not pass")
    one.add_argument("before", metavar="A", help=f"{run}; or a baseline's NAME or path")
    one.add_argument("now", metavar="B", help="the same")
    one.add_argument(
        "--max-drop",
        action="append",
        default=[],
        metavar="FIELD:DROP",
        help="a gate: overall or a category must not have fallen by more than DROP; repeatable",
    )
    one.add_argument(
        "--max-collapsed",
        metavar="N",
        help="a gate: pairs, or fraction of pairs, that may have fallen far",
    )
    one.add_argument("--alpha", type=float, default=0.05, help="chance of any false alarm (default: 0.05)")
    one.add_argument("--margin", type=float, default=0.5, help="a gate that could not show so much is inconclusive")

    one = _add(commands, "trend", _trend, "look whether a series of checkpoints has fallen", "scores have fallen")
    one.add_argument("series", metavar="BASELINE", nargs="*", help=f"two or more, oldest first: baselines, or {run}")
    one.add_argument(
        "--last", type=int, metavar="N", help="the newest N runs of the store with the same pairs and judge"
    )
    one.add_argument("--alpha", type=float, default=0.05, help="chance of a false alarm in the whole series (0.05)")
    one.add_argument("--html", type=Path, metavar="PATH", help="a page with charts")

    one = _add(commands, "report", _report, "render the reports of a run again", "the run did not pass its gates")
    one.add_argument("run", metavar="RUN", help=run)
    one.add_argument("--html", type=Path, metavar="PATH", help="an extra HTML report, its images in a folder beside it")
    one.add_argument("--md", type=Path, metavar="PATH", help="an extra Markdown report")
    one.add_argument("--html-embed", action="store_true", help="HTML of one file, with reduced images inside")

    _add(commands, "runs", _runs, "list the runs of a store, oldest first", "a run could not be read")

    one = _add(commands, "explain", _explain, "say all that decided an edit or a verdict", "not used")
    one.add_argument("key", metavar="EDIT|VERDICT", help="the first characters of its key, or of an image's SHA-256")

    one = _add(commands, "agreement", _agreement, "compare the judge with people", "no rating fits a scored pair")
    one.add_argument("run", metavar="RUN", help=run)
    one.add_argument("ratings", type=Path, metavar="HUMAN.csv", help="columns id and score, one row a rating")

    one = _add(commands, "plan", _plan, "say how many pairs gates would need, and what that costs", "not used")
    one.add_argument("run", metavar="RUN", nargs="?", help=f"{run}, whose spread and costs are gone by")
    one.add_argument("--power", type=float, required=True, metavar="MDE", help="points that gates are to find")
    one.add_argument(
        "--before", metavar="REF", help="plan gates on drops, by how RUN moved against this run or baseline"
    )
    one.add_argument("--gate", action="append", default=[], metavar="FIELD", help="overall (default) or a category")
    one.add_argument("--spread", type=float, metavar="SD", help="instead of a RUN: a pair's standard deviation")
    one.add_argument("--alpha", type=float, default=0.05, help="chance of a false alarm of all gates (default: 0.05)")

    one = _add(commands, "qualify", _qualify, "try a judge on edits of known worth, alone", "it cannot be believed")
    one.add_argument("judge", metavar="JUDGE", nargs="?", help="its spec (default: the config's, or scenes)")
    one.add_argument("--suite", metavar="SPEC", help="the pairs (default: the config's, or scenes)")
    one.add_argument("--gpus", metavar="GPUS", help="as --imgedit-gpus")
    one.add_argument("--config", type=Path, metavar="FILE", help="a TOML config, such as with parameters of the judge")
    one.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one TOML key; repeatable"
    )

    one = _add(commands, "schema", _schema, "print the JSON schema of results.json", "not used")
    one.add_argument("--baseline", action="store_true", help="that of a baseline instead")

    one = _add(commands, "doctor", _doctor, "say what this machine has, lacks, and cannot hold", "something is wrong")
    one.add_argument("--config", type=Path, metavar="FILE", help="look for this config's models, and whether they fit")
    return parser


def _add(commands: Any, name: str, command: Command, summary: str, one: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary.capitalize() + ".", epilog=EXIT_CODES.format(one=one)
    )
    parser.set_defaults(command=command)
    parser.add_argument("--json", action="store_true", help="print JSON")
    if name not in ("doctor", "init", "schema"):
        parser.add_argument(
            "--out", type=Path, default=Path(".imgedit"), metavar="DIR", help="the store (default: .imgedit)"
        )
    return parser


# Imported when called, so that `imgedit --help` answers at once.
def _init(given: argparse.Namespace) -> Printed:
    from pytest_imgedit.cli import init

    return init.init(given.data, given.config, given.ci)


def _compare(given: argparse.Namespace) -> Printed:
    from pytest_imgedit.cli import runs

    limits = (given.max_drop, given.max_collapsed, given.alpha, given.margin)
    return runs.compare_runs(given.before, given.now, given.out, *limits)


def _report(given: argparse.Namespace) -> Printed:
    from pytest_imgedit.cli import runs

    return runs.render_again(given.run, given.out, given.html, given.md, given.html_embed)


def _runs(given: argparse.Namespace) -> Printed:
    from pytest_imgedit.cli import runs

    return runs.list_runs(given.out)


def _explain(given: argparse.Namespace) -> Printed:
    from pytest_imgedit.cli import explain

    return explain.explain(given.key, given.out)


def _agreement(given: argparse.Namespace) -> Printed:
    from pytest_imgedit.cli import agreement

    return agreement.agree(given.run, given.ratings, given.out)


def _trend(given: argparse.Namespace) -> Printed:
    from pytest_imgedit.cli import trend

    return trend.trend(given.series, given.last, given.alpha, given.out, given.html)


def _plan(given: argparse.Namespace) -> Printed:
    from pytest_imgedit.cli import plan

    return plan.plan(given.run, given.before, given.gate, given.spread, given.power, given.alpha, given.out)


def _qualify(given: argparse.Namespace) -> Printed:
    from pytest_imgedit.cli import qualify

    return qualify.qualify(given.judge, given.suite, given.gpus, given.config, given.set, given.out)


def _schema(given: argparse.Namespace) -> Printed:
    from pytest_imgedit.cli import schema

    return schema.schema(given.baseline)


def _doctor(given: argparse.Namespace) -> Printed:
    from pytest_imgedit.cli import doctor

    return doctor.examine(given.config)


if __name__ == "__main__":
    sys.exit(main())
